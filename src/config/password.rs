//! `[password]`: what a password hash costs, and how many are computed or waited for at once.

use super::reader::Section;
use super::values::integer;

/// The cost is OWASP's for argon2id (Password Storage Cheat Sheet: m = 19 MiB, t = 2, p = 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordSettings {
    /// Memory of one verification, in KiB.
    pub memory_kib: u32,
    /// Passes over that memory.
    pub iterations: u32,
    /// Lanes of one verification.
    pub parallelism: u32,
    /// Verifications that may wait for their turn; past them the answer is 503.
    pub queue: usize,
    /// Verifications at once; `None`: one for each core.
    pub workers: Option<usize>,
}

impl Default for PasswordSettings {
    fn default() -> Self {
        Self { memory_kib: 19_456, iterations: 2, parallelism: 1, queue: 256, workers: None }
    }
}

impl PasswordSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        Self {
            // From the least memory that OWASP lists (7 MiB, with more passes) to 1 GiB, which already
            // takes seconds.
            memory_kib: section.value("memory_kib", default.memory_kib, integer(7_168..=1_048_576)),
            iterations: section.value("iterations", default.iterations, integer(1..=64)),
            parallelism: section.value("parallelism", default.parallelism, integer(1..=16)),
            queue: section
                .optional("queue", integer(1..=65_536))
                .map_or(default.queue, |queue| queue as usize),
            workers: section.optional("workers", integer(1..=1024)).map(|workers| workers as usize),
        }
    }
}
