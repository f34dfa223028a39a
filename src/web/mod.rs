//! HTTP only: what a request says about its client, and what answers look like. Nothing here names a database
//! or a store. A feature has one file with its page, its form and its call of the API; `http` is shared.

pub mod account;
pub mod api_page;
pub mod captcha;
pub mod code;
pub mod console;
pub mod delivery_reports;
pub mod form;
pub mod freeze;
pub mod gate;
pub mod http;
pub mod oidc;
pub mod openapi;
pub mod outbox;
pub mod passkeys;
pub mod programs;
pub mod register;
pub mod reset;
pub mod second_step;
pub mod session;
pub mod sign_in;
pub mod sign_in_by_code;
pub mod status;
#[cfg(test)]
mod tests;
pub mod welcome;

pub use http::client::{ClientAddress, TrustedProxies};
pub use http::locale::{Locale, Wait};
pub use http::message::{Field, FieldErrors, Message};
pub use http::next::Next;
pub use http::page::{Flash, PageRequest, WebContext};
pub use http::problem::Problem;
