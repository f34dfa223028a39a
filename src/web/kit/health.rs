//! How what this instance depends on is.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;

/// The state of what this instance depends on.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// It answers, and takes what is written. Without it nothing works: 503.
    pub database: State,
    /// Without it sign-ins go on, with a CAPTCHA for everyone and windows of this process: 200.
    pub store: State,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Up,
    Down,
}

#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    /// One more with each change that was applied.
    pub version: u64,
    /// Whether the last change was refused; the log says why.
    pub refused: bool,
    /// Whether what they are kept in answers, where that is a service. While it does not, what it said last
    /// is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<State>,
}

/// Looks at the dependencies. Each look waits at most a second.
pub trait Health: Send + Sync {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>>;
}
