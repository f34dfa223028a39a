//! `[secrets]`: where the master key is.

use std::path::PathBuf;

use super::reader::Section;
use super::values::path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets {
    /// 32 bytes; made at the first start, mode 0600.
    pub key_file: PathBuf,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { key_file: "data/secret.key".into() }
    }
}

impl Secrets {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self { key_file: section.value("key_file", Self::default().key_file, path) }
    }
}
