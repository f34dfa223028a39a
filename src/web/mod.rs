//! HTTP only: what a request says about its client, and what answers look like. Nothing here names a database
//! or a store. Each feature has a folder with its page, its view and its call; `kit` is shared.

#[cfg(feature = "server")]
pub mod account;
#[cfg(feature = "server")]
pub mod api_page;
#[cfg(feature = "server")]
pub mod captcha;
#[cfg(feature = "server")]
pub mod code;
#[cfg(feature = "server")]
pub mod console;
#[cfg(feature = "server")]
pub mod delivery_reports;
#[cfg(feature = "server")]
pub mod form;
#[cfg(feature = "server")]
pub mod gate;
pub mod kit;
#[cfg(feature = "server")]
pub mod machine;
#[cfg(feature = "server")]
pub mod openapi;
#[cfg(feature = "server")]
pub mod outbox;
#[cfg(feature = "server")]
pub mod problem_page;
pub mod rate_limit;
#[cfg(feature = "server")]
pub mod register;
#[cfg(feature = "server")]
pub mod reset;
#[cfg(feature = "server")]
pub mod session;
#[cfg(feature = "server")]
pub mod sign_in;
#[cfg(feature = "server")]
pub mod sign_in_by_code;
#[cfg(feature = "server")]
pub mod status;
#[cfg(all(test, feature = "server"))]
mod tests;

pub use kit::client::{ClientAddress, TrustedProxies};
#[cfg(feature = "server")]
pub use kit::locale::Locale;
#[cfg(feature = "server")]
pub use kit::locale::Wait;
#[cfg(feature = "server")]
pub use kit::message::{Field, FieldErrors, Message};
#[cfg(feature = "server")]
pub use kit::next::Next;
#[cfg(feature = "server")]
pub use kit::problem::Problem;
#[cfg(feature = "server")]
pub use kit::visit::Flash;
#[cfg(feature = "server")]
pub use kit::visit::{Edge, Visit};
pub use rate_limit::RateLimit;
