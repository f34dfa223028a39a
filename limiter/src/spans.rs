//! A span for each round trip to Redis, for a program that exports traces: nothing until [`begin`] is called, and
//! one atomic read then on.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Span;

/// The target of every span here, for a filter.
pub const TARGET: &str = "gatehouse::spans";

/// Whether anybody listens. `tracing::span_enabled!` would say so, too, but an event after it may be lost: it leaves a
/// mark with the filters of layers, which they take for the event's.
static TRACED: AtomicBool = AtomicBool::new(false);

/// From now on there are spans.
pub fn begin() {
    TRACED.store(true, Ordering::Relaxed);
}

/// Whether [`begin`] was called.
pub fn is_traced() -> bool {
    TRACED.load(Ordering::Relaxed)
}

/// Only what belongs to a request: upkeep would make a trace of each of its calls.
pub fn within(make: impl FnOnce() -> Span) -> Span {
    if is_traced() && !Span::current().is_none() { make() } else { Span::none() }
}
