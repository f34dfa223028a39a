//! `[password]`: the cost of a password hash, and how many are computed or wait at once.

use super::section::section;
use super::values::integer;

section! {
    /// The cost is OWASP's for argon2id (Password Storage Cheat Sheet: m = 19 MiB, t = 2, p = 1).
    #[derive(Copy)]
    PasswordSettings in "password" {
        /// Memory of one verification, in KiB. From the least memory that OWASP lists (7 MiB, with more
        /// passes) to 1 GiB, which takes seconds.
        memory_kib: u32 = 19_456, integer(7_168..=1_048_576);
        /// Passes over that memory.
        iterations: u32 = 2, integer(1..=64);
        /// Lanes of one verification.
        parallelism: u32 = 1, integer(1..=16);
        /// Verifications that may wait for their turn; beyond this the answer is 503.
        queue: usize = 256, integer(1..=65_536);
        /// Simultaneous verifications, each of which keeps `memory_kib` of memory. If left out: one for each
        /// core.
        workers: usize = cores(), integer(1..=1024);
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
