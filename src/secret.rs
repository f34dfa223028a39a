//! The master key, and the keys derived from it: one for each purpose, so that hashes for one purpose reveal
//! nothing about another.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip128::SipHasher24;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::entropy::Entropy;
use crate::files::open_regular;

/// The 32 bytes from which every key is derived. Losing it invalidates every window, session and challenge.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey([u8; 32]);

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("secrets.key_file {path}: {reason}")]
    Io { path: PathBuf, reason: std::io::Error },
    #[error(
        "secrets.key_file {path}: holds {length} bytes instead of 32; restore the file, or remove it so that a new key is created (which signs everyone out)"
    )]
    Length { path: PathBuf, length: usize },
    #[error("secrets.key_file {path}: other users can read it (mode {mode:o}); run: chmod 600 {path}")]
    Mode { path: PathBuf, mode: u32 },
}

impl MasterKey {
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes())
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads the key, or creates it (mode 0600) if there is none. Two processes that start at once end with
    /// the same key: the complete file is linked into place, and only if there is none.
    pub fn load_or_create(path: &Path, entropy: &Entropy) -> Result<Self, KeyFileError> {
        let failed = |reason| KeyFileError::Io { path: path.to_owned(), reason };
        match open_regular(path) {
            Ok(file) => return Self::read(path, file),
            Err(reason) if reason.kind() != std::io::ErrorKind::NotFound => return Err(failed(reason)),
            Err(_) => {}
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let fresh = Self::random(entropy);
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{:016x}", u64::from_le_bytes(entropy.bytes())));
        let draft = PathBuf::from(draft);
        let written = write_private(&draft, &fresh.0).and_then(|()| std::fs::hard_link(&draft, path));
        let removed = std::fs::remove_file(&draft);
        match written {
            Ok(()) => removed.map(|()| fresh).map_err(failed),
            Err(reason) if reason.kind() == std::io::ErrorKind::AlreadyExists => {
                Self::read(path, open_regular(path).map_err(failed)?)
            }
            Err(reason) => Err(failed(reason)),
        }
    }

    fn read(path: &Path, file: std::fs::File) -> Result<Self, KeyFileError> {
        use std::os::unix::fs::PermissionsExt;
        let failed = |reason| KeyFileError::Io { path: path.to_owned(), reason };
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Mode { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::with_capacity(33);
        file.take(33).read_to_end(&mut bytes).map_err(failed)?;
        let key = <[u8; 32]>::try_from(bytes.as_slice());
        let length = bytes.len();
        bytes.zeroize();
        key.map(Self).map_err(|_| KeyFileError::Length { path: path.to_owned(), length })
    }

    /// The key for one purpose, named as `area.use` (`throttle.subject`, `captcha.answer`).
    pub fn derive(&self, purpose: &str) -> SubKey {
        let mut hasher = blake3::Hasher::new_derive_key(&format!("gatehouse 2026 {purpose}"));
        hasher.update(&self.0);
        SubKey(*hasher.finalize().as_bytes())
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A key for one purpose.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SubKey([u8; 32]);

impl SubKey {
    /// A keyed hash (BLAKE3) of the parts, each with its length, so that different lists of parts never have
    /// the same input.
    pub fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        // Nearly all inputs fit one block on the stack, for which the one-shot call is three times as fast.
        let mut whole = [0; 256];
        let mut end = 0;
        for part in parts {
            let Some(place) = whole.get_mut(end..end + 8 + part.len()) else { return self.hash_long(parts) };
            place[..8].copy_from_slice(&(part.len() as u64).to_le_bytes());
            place[8..].copy_from_slice(part);
            end += 8 + part.len();
        }
        *blake3::keyed_hash(&self.0, &whole[..end]).as_bytes()
    }

    /// A keyed hash (SipHash-2-4 with 128 bits) of `input` under `tag`: a pseudorandom function for short
    /// inputs, in a third of the time. Use a key for only one of the two hashes.
    pub fn short_hash(&self, tag: [u8; 8], input: &[u8]) -> [u8; 16] {
        let key = self.0.first_chunk().expect("32 bytes hold 16");
        let mut hasher = SipHasher24::new_with_key(key);
        hasher.write_u64(u64::from_le_bytes(tag));
        hasher.hash(input).as_bytes()
    }

    fn hash_long(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }
}

/// Makes 128 bits that nobody can guess and that never repeat, in a tenth of the time that the system's
/// generator takes: a counter, hashed under a key of this process.
pub struct UniqueIds {
    key: SubKey,
    made: AtomicU64,
}

impl UniqueIds {
    pub fn new(entropy: &Entropy, purpose: &str) -> Self {
        Self { key: MasterKey::random(entropy).derive(purpose), made: AtomicU64::new(0) }
    }

    pub fn make(&self) -> [u8; 16] {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.key.short_hash(*b"counter ", &number.to_le_bytes())
    }
}

/// Whether two secrets are equal, in constant time.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_inputs_are_hashed_alike() {
        let key = MasterKey::from_bytes([7; 32]).derive("test.hash");
        for length in [0, 1, 100, 239, 240, 241, 1000] {
            let long = vec![b'x'; length];
            assert_eq!(key.hash(&[b"a", &long]), key.hash_long(&[b"a", &long]), "{length} bytes");
        }
        assert_ne!(key.hash(&[b"ab", b"c"]), key.hash(&[b"a", b"bc"]));
    }

    /// The vector of 15 bytes from the authors' `vectors.h`, with its key 00 01 … 0f.
    #[test]
    fn the_short_hash_is_siphash_2_4_128() {
        let key = SubKey(std::array::from_fn(|index| index as u8));
        let hash = key.short_hash([0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12, 13, 14]);
        let expected =
            [0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9];
        assert_eq!(hash, expected);
    }

    #[test]
    fn two_first_starts_agree_on_one_key_and_others_may_not_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/secret.key");
        let keys: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let load = || MasterKey::load_or_create(&path, &Entropy::Os).unwrap().0;
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        let permissions = std::fs::metadata(&path).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o600);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(MasterKey::load_or_create(&path, &Entropy::Os), Err(KeyFileError::Mode { .. })));
    }

    #[test]
    fn a_truncated_key_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        write_private(&path, b"short").unwrap();
        assert!(matches!(
            MasterKey::load_or_create(&path, &Entropy::Os),
            Err(KeyFileError::Length { length: 5, .. })
        ));
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
    }
}
