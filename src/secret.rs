//! The master key, and the keys derived from it: one for each purpose, so that what one purpose
//! hashes says nothing about another's.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::entropy::Entropy;

/// 32 bytes that everything keyed hangs on. Losing it forgets every window, session and challenge.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey([u8; 32]);

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("secrets.key_file {path}: {reason}")]
    Io { path: PathBuf, reason: std::io::Error },
    #[error(
        "secrets.key_file {path}: holds {length} bytes where a key has 32; restore the file, or remove it to have a new key made (everyone is signed out)"
    )]
    Length { path: PathBuf, length: usize },
    #[error("secrets.key_file {path}: others may read it (mode {mode:o}); run: chmod 600 {path}")]
    Mode { path: PathBuf, mode: u32 },
}

impl MasterKey {
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes())
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads the key, or makes it (mode 0600) where there is none. Two processes that start at once
    /// end with the same key: the file is linked into place whole, and only where none stands.
    pub fn load_or_create(path: &Path, entropy: &Entropy) -> Result<Self, KeyFileError> {
        let failed = |reason| KeyFileError::Io { path: path.to_owned(), reason };
        match std::fs::File::open(path) {
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
                Self::read(path, std::fs::File::open(path).map_err(failed)?)
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
    /// A keyed hash (BLAKE3) of the parts, each with its length, so that no two lists of parts agree.
    pub fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }
}

/// Whether two secrets agree, in a time that does not tell where they differ.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}
