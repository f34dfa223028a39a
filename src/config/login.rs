//! `[login]`: when a password is disabled after many wrong ones. Live.

use super::section::section;
use super::values::integer;

section! {
    #[derive(Copy)]
    LoginTunables in "login" {
        /// Wrong passwords in a row after which an account's password is disabled; 0: never. The default is
        /// the most that NIST SP 800-63B-4 (3.2.2) allows.
        max_consecutive_failures: u32 = 100, integer(0..=100);
    }
}
