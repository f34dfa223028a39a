//! How what this instance depends on is.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use utoipa::ToSchema;

/// The state of what this instance depends on.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Readiness, example = json!({
    "database": "up", "store": "up", "limits": { "version": 1, "refused": false }
}))]
pub struct Report {
    /// It answers, and accepts writes. Without it nothing works: 503.
    pub database: State,
    /// Without it, sign-ins continue with a CAPTCHA for everyone, and the database limits the wrong passwords for each
    /// account: 200.
    pub store: State,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ServiceState)]
pub enum State {
    Up,
    Down,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReadinessLimits)]
pub struct Limits {
    /// One more with each change that was applied.
    #[schema(minimum = 1)]
    pub version: u64,
    /// Whether the last change was refused; the log says why.
    pub refused: bool,
    /// Whether the service that keeps the limits answers. While it does not, its last answer is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<State>,
}

/// Looks at the dependencies. Each look waits at most a second.
pub trait Health: Send + Sync {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>>;
}
