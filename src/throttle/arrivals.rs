//! How many attempts have come to each log of a limiter in this process.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::store::SubjectKey;

/// Counters of arrivals, a power of two. Logs that share one only see more company than they have.
const ARRIVAL_SLOTS: usize = 16_384;

/// Allocated at the first attempt: a limiter that never holds does not need the 128 KiB.
#[derive(Debug)]
pub struct ArrivalCounts(LazyLock<Box<[AtomicU64]>>);

impl Default for ArrivalCounts {
    fn default() -> Self {
        Self(LazyLock::new(|| (0..ARRIVAL_SLOTS).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl ArrivalCounts {
    /// Counts an attempt at this log; returns its number.
    pub fn arrive(&self, key: SubjectKey) -> u64 {
        self.slot(key).fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether no attempt has come to this log since the one with that number.
    pub fn is_last(&self, key: SubjectKey, number: u64) -> bool {
        self.slot(key).load(Ordering::SeqCst) == number
    }

    /// Keys are keyed hashes already, so any of their bits will do.
    fn slot(&self, key: SubjectKey) -> &AtomicU64 {
        &self.0[usize::from(u16::from_le_bytes([key.0[10], key.0[11]])) % ARRIVAL_SLOTS]
    }
}
