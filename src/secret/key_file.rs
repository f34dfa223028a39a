//! The file of the master key, and the three steps that replace the key which signs.
//!
//! 32 bytes are one key for everything. After a rotation the file is `stored 32 | key 32 … | index 1`: the key of
//! what is stored, then one or two keys in the order in which they were made, and which of them signs. With two
//! keys, both are accepted.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use zeroize::{Zeroize, Zeroizing};

use super::MasterKey;
use crate::entropy::Entropy;
use crate::files::open_regular;

const KEY: usize = 32;
const LONGEST: usize = 3 * KEY + 1;

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("secrets.key_file {path}: {reason}")]
    Io { path: PathBuf, reason: std::io::Error },
    #[error(
        "secrets.key_file {path}: its {length} bytes are no key (32, 65 or 97 bytes); put the right file there, or move it away if it is lost: gatehouse key replace"
    )]
    Unreadable { path: PathBuf, length: usize },
    #[error("secrets.key_file {path}: other users can read it (mode {mode:o}); run: chmod 600 {path}")]
    Mode { path: PathBuf, mode: u32 },
    #[error("{path} is there, and may be the only copy of an earlier key; move it away, and try again")]
    OldIsThere { path: PathBuf },
    #[error("secrets.key_file {path}: {step} is not the next step; the next one is: gatehouse key {next}")]
    Step { path: PathBuf, step: KeyStep, next: KeyStep },
}

/// A step of a rotation, after each of which every instance is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum KeyStep {
    /// Makes a new key, which is accepted and does not sign yet.
    Add,
    /// Signs with the new key. The old one is accepted.
    Use,
    /// Removes the old key: what it has signed is not accepted any more.
    Drop,
}

pub struct KeyFile {
    path: PathBuf,
    stored: Zeroizing<[u8; KEY]>,
    /// The one that signs, if it is not that of what is stored, and how many.
    keys: Zeroizing<Vec<[u8; KEY]>>,
    signing: usize,
}

impl KeyFile {
    /// Reads the file, or creates it (mode 0600) if there is none: the complete file is linked into place, and
    /// only if there is none.
    pub fn load_or_create(path: &Path, entropy: &Entropy) -> Result<Self, KeyFileError> {
        let failed = |reason| KeyFileError::Io { path: path.to_owned(), reason };
        if let Some(file) = Self::find(path)? {
            return Ok(file);
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let draft = draft_of(path, entropy);
        let written = write_private(&draft, &Zeroizing::new(entropy.bytes::<KEY>())[..])
            .and_then(|_| std::fs::hard_link(&draft, path));
        let removed = std::fs::remove_file(&draft);
        match written {
            Err(reason) if reason.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(reason)),
            Ok(()) => removed.map_err(failed).and_then(|()| Self::load(path)),
            Err(_) => Self::load(path),
        }
    }

    /// Reads the file; None if there is none.
    pub fn find(path: &Path) -> Result<Option<Self>, KeyFileError> {
        match Self::load(path) {
            Err(KeyFileError::Io { reason, .. }) if reason.kind() == std::io::ErrorKind::NotFound => Ok(None),
            loaded => loaded.map(Some),
        }
    }

    /// Renames the file to a name of its own, which it returns: another one takes its place.
    pub fn set_aside(self) -> Result<PathBuf, KeyFileError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |reason| KeyFileError::Io { path, reason }
        };
        // The file itself: several instances may reach it by a link.
        let path = std::fs::canonicalize(&self.path).map_err(failed(&self.path))?;
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        let old = PathBuf::from(old);
        // It may be the only copy of the key before.
        std::fs::hard_link(&path, &old).map_err(|reason| match reason.kind() {
            std::io::ErrorKind::AlreadyExists => KeyFileError::OldIsThere { path: old.clone() },
            _ => KeyFileError::Io { path: old.clone(), reason },
        })?;
        std::fs::remove_file(&path).map_err(failed(&path))?;
        Ok(old)
    }

    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        use std::os::unix::fs::PermissionsExt;
        let failed = |reason| KeyFileError::Io { path: path.to_owned(), reason };
        let file = open_regular(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Mode { path: path.to_owned(), mode });
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 1));
        file.take(LONGEST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(path, &bytes)
            .ok_or_else(|| KeyFileError::Unreadable { path: path.to_owned(), length: bytes.len() })
    }

    fn parse(path: &Path, bytes: &[u8]) -> Option<Self> {
        let (stored, rest) = bytes.split_first_chunk::<KEY>()?;
        let (keys, signing) = match rest {
            [] => (vec![*stored], 0),
            [keys @ .., index] => {
                let (keys, odd) = keys.as_chunks::<KEY>();
                let fits = odd.is_empty() && keys.len() <= 2 && usize::from(*index) < keys.len();
                fits.then(|| (keys.to_vec(), usize::from(*index)))?
            }
        };
        Some(Self {
            path: path.to_owned(),
            stored: Zeroizing::new(*stored),
            keys: Zeroizing::new(keys),
            signing,
        })
    }

    pub fn master(&self) -> MasterKey {
        let accepted = (self.keys.len() == 2).then(|| self.keys[1 - self.signing]);
        MasterKey { stored: *self.stored, signing: self.keys[self.signing], accepted }
    }

    /// The only step that can be next.
    pub fn next(&self) -> KeyStep {
        match (self.keys.len(), self.signing) {
            (1, _) => KeyStep::Add,
            (_, 0) => KeyStep::Use,
            _ => KeyStep::Drop,
        }
    }

    /// Takes the next step and replaces the file, with its owner. Running servers keep what they have read.
    pub fn take(&mut self, step: KeyStep, entropy: &Entropy) -> Result<(), KeyFileError> {
        if step != self.next() {
            return Err(KeyFileError::Step { path: self.path.clone(), step, next: self.next() });
        }
        match step {
            KeyStep::Add => self.keys.push(entropy.bytes()),
            KeyStep::Use => self.signing = 1,
            KeyStep::Drop => {
                self.keys[0].zeroize();
                self.keys.remove(0);
                self.signing = 0;
            }
        }
        self.replace(entropy).map_err(|reason| KeyFileError::Io { path: self.path.clone(), reason })
    }

    fn replace(&self, entropy: &Entropy) -> std::io::Result<()> {
        use std::os::unix::fs::{MetadataExt, fchown};
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
        bytes.extend_from_slice(&self.stored[..]);
        self.keys.iter().for_each(|key| bytes.extend_from_slice(key));
        bytes.push(self.signing as u8);
        // The file itself: several instances may reach it by a link.
        let path = std::fs::canonicalize(&self.path)?;
        let before = std::fs::metadata(&path)?;
        let draft = draft_of(&path, entropy);
        let replaced = write_private(&draft, &bytes)
            .and_then(|file| {
                // By the open file: whoever owns the folder could put a link at the draft's name.
                let after = file.metadata()?;
                let moved = (after.uid(), after.gid()) != (before.uid(), before.gid());
                if moved { fchown(&file, Some(before.uid()), Some(before.gid())) } else { Ok(()) }
            })
            .and_then(|()| std::fs::rename(&draft, &path));
        if replaced.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
        replaced
    }
}

fn draft_of(path: &Path, entropy: &Entropy) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{:016x}", u64::from_le_bytes(entropy.bytes())));
    draft.into()
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_first_starts_agree_on_one_key_and_others_may_not_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/secret.key");
        let keys: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let load = || *KeyFile::load_or_create(&path, &Entropy::Os).unwrap().stored;
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
            Err(KeyFileError::Unreadable { length: 5, .. })
        ));
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
    }

    const ORDER: [KeyStep; 3] = [KeyStep::Add, KeyStep::Use, KeyStep::Drop];

    fn made(folder: &Path) -> KeyFile {
        KeyFile::load_or_create(&folder.join("secret.key"), &Entropy::Os).unwrap()
    }

    /// Whether the second reads what the first has signed.
    fn believes(signer: &MasterKey, reader: &MasterKey) -> bool {
        let sign = |key: &crate::secret::SubKey| key.hash(&[b"said"]);
        let signature = sign(signer.derive_signing("test.use").signing());
        reader.derive_signing("test.use").signer(&signature, sign).is_some()
    }

    #[test]
    fn instances_one_step_apart_believe_each_other_and_the_old_key_ends_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = made(folder.path());
        let first = file.master();
        let mut before = file.master();
        for step in ORDER {
            file.take(step, &Entropy::Os).unwrap();
            let after = made(folder.path()).master();
            assert!(believes(&before, &after) && believes(&after, &before), "{step}");
            assert_eq!(after.stored, first.stored, "what is stored is found again");
            before = after;
        }
        assert!(!believes(&first, &before) && !believes(&before, &first));
        file.take(KeyStep::Add, &Entropy::Os).unwrap();
        assert_eq!(made(folder.path()).next(), KeyStep::Use, "and again");
    }

    #[test]
    fn a_step_out_of_order_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = made(folder.path());
        let path = folder.path().join("secret.key");
        for step in ORDER {
            for wrong in ORDER.into_iter().filter(|other| *other != step) {
                let before = std::fs::read(&path).unwrap();
                assert!(matches!(file.take(wrong, &Entropy::Os), Err(KeyFileError::Step { .. })));
                assert_eq!(std::fs::read(&path).unwrap(), before);
            }
            file.take(step, &Entropy::Os).unwrap();
        }
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "no draft is left");
    }

    #[test]
    fn only_whole_files_are_keys() {
        let parsed = |bytes: &[u8]| KeyFile::parse(Path::new("x"), bytes).is_some();
        for length in 0..=130 {
            let mut bytes = vec![0; length];
            assert_eq!(parsed(&bytes), [32, 65, 97].contains(&length), "{length}");
            if let Some(last) = bytes.last_mut().filter(|_| length > 32) {
                *last = 2;
                assert!(!parsed(&bytes), "{length}: there is no third key");
            }
        }
    }
}
