//! Randomness as a parameter: the operating system's, or a seeded stream that a test can repeat.

use std::sync::{Arc, Mutex};

/// The source of unpredictable bytes. Clones share the same source.
#[derive(Debug, Clone, Default)]
pub enum Entropy {
    /// The operating system's generator.
    #[default]
    Os,
    /// Every run gets the same bytes in the same order.
    Seeded(Arc<Mutex<blake3::OutputReader>>),
}

impl Entropy {
    /// A stream that is the same for the same seed. For tests.
    pub fn seeded(seed: u64) -> Self {
        let reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        Self::Seeded(Arc::new(Mutex::new(reader)))
    }

    /// # Panics
    /// Where the operating system has no randomness to give: nothing here is safe without it.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system for randomness")]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        match self {
            Self::Os => getrandom::fill(&mut out).expect("the operating system's random generator"),
            Self::Seeded(reader) => reader.lock().expect("seeded stream").fill(&mut out),
        }
        out
    }
}
