//! `[secrets]`: the file of the master key.

use std::path::PathBuf;

use super::section::section;
use super::values::path;

section! {
    Secrets in "secrets" {
        /// 32 bytes; created at the first start with mode 0600.
        key_file: PathBuf = "data/secret.key".into(), path;
    }
}
