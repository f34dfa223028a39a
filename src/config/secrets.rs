//! `[secrets]`: where the master key is.

use std::path::PathBuf;

use super::section::section;
use super::values::path;

section! {
    Secrets in "secrets" {
        /// 32 bytes; made at the first start, mode 0600.
        key_file: PathBuf = "data/secret.key".into(), path;
    }
}
