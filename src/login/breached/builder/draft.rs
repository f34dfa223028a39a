//! The file that is written beside another one, and replaces it when it is whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Is removed when it is dropped, unless it has replaced its target.
pub(super) struct FilterDraft {
    file: File,
    /// Where it is; None once it has replaced its target.
    path: Option<PathBuf>,
    target: PathBuf,
}

impl FilterDraft {
    /// No other process that lives may use the number for the same target: what has it already was left by one that was
    /// killed.
    pub fn beside(target: &Path, number: u64) -> io::Result<Self> {
        let path = beside(target, &format!("new-{number}"));
        let create = || OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match create() {
            Err(reason) if reason.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                create()
            }
            other => other,
        }?;
        Ok(Self { file, path: Some(path), target: target.to_owned() })
    }

    #[cfg(test)]
    pub fn on(file: File, target: &Path) -> Self {
        Self { file, path: None, target: target.to_owned() }
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Puts the bytes at the beginning, and the file where its target is.
    pub fn replace_target(mut self, beginning: &[u8]) -> io::Result<()> {
        self.file.write_all_at(beginning, 0)?;
        self.file.sync_all()?;
        if let Some(path) = &self.path {
            fs::rename(path, &self.target)?;
        }
        self.path = None;
        // If that fails, a power failure may bring back the old file, which was whole, too.
        File::open(folder_of(&self.target)).and_then(|folder| folder.sync_all()).ok();
        Ok(())
    }
}

impl Drop for FilterDraft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            fs::remove_file(path).ok();
        }
    }
}

/// A hidden name in the same folder.
pub(super) fn beside(target: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    target.with_file_name(name)
}

pub(super) fn folder_of(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
