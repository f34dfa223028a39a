//! A dependency that may be out: one log line when it goes out and one when it comes back, however many calls
//! fail in between.

use std::fmt::Display;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use metrics::{Counter, Gauge};

/// One dependency; its metrics are `gatehouse_{name}_up` and `gatehouse_{name}_errors_total`.
#[derive(Debug)]
pub struct DependencyStatus {
    what: &'static str,
    up: &'static str,
    errors: &'static str,
    /// The label of both metrics, where several dependencies share them.
    label: Option<(&'static str, &'static str)>,
    after: u64,
    is_out: AtomicBool,
    failed: AtomicU64,
    handles: OnceLock<(Gauge, Counter)>,
}

impl DependencyStatus {
    /// It counts as out after this many failures in a row.
    pub const fn new(what: &'static str, up: &'static str, errors: &'static str, after: u64) -> Self {
        let (is_out, failed) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { what, up, errors, label: None, after, is_out, failed, handles: OnceLock::new() }
    }

    /// One of several dependencies that share their metrics, with its label.
    pub const fn labelled(mut self, name: &'static str, value: &'static str) -> Self {
        self.label = Some((name, value));
        self
    }

    /// Shows its errors at zero before the first one. Whether it is up is not known yet.
    pub fn register_errors(&self) {
        metrics::counter!(self.errors, self.label.as_slice()).increment(0);
    }

    pub fn failed(&self, reason: &impl Display) {
        if self.count() >= self.after {
            self.set_out(reason);
        }
    }

    /// It is out, however many failures came before.
    pub fn out(&self, reason: &impl Display) {
        self.count();
        self.set_out(reason);
    }

    fn count(&self) -> u64 {
        self.refused();
        self.failed.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn set_out(&self, reason: &impl Display) {
        if !self.is_out.swap(true, Ordering::Relaxed) {
            self.handles().0.set(0.0);
            let which = self.label.map(|(_, value)| value);
            tracing::warn!(%reason, which, "{} is out of service", self.what);
        }
    }

    /// An error that says nothing of the dependency.
    pub fn refused(&self) {
        self.handles().1.increment(1);
    }

    pub fn answered(&self) {
        self.handles().0.set(1.0);
        let failed = self.failed.swap(0, Ordering::Relaxed);
        if self.is_out.swap(false, Ordering::Relaxed) {
            let which = self.label.map(|(_, value)| value);
            tracing::warn!(failed, which, "{} is back in service", self.what);
        }
    }

    /// Whether a failure now is already known.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    fn handles(&self) -> &(Gauge, Counter) {
        let labels = self.label.as_slice();
        self.handles
            .get_or_init(|| (metrics::gauge!(self.up, labels), metrics::counter!(self.errors, labels)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_out_after_so_many_failures_in_a_row_and_back_with_one_answer() {
        let outage = DependencyStatus::new("a test", "gatehouse_test_up", "gatehouse_test_errors_total", 3);
        for _ in 0..2 {
            outage.failed(&"no answer");
            outage.failed(&"no answer");
            outage.answered();
        }
        assert!(!outage.is_out());
        (0..3).for_each(|_| outage.failed(&"no answer"));
        assert!(outage.is_out());
        outage.answered();
        assert!(!outage.is_out());
    }
}
