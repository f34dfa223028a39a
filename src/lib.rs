//! Gatehouse: login throttling and SMS anti-abuse on an exact sliding-window limiter.
//!
//! A sign-in, from top to bottom: [`routes`] finds the handler; [`web`] parses the request, finds the
//! client's address and redeems a CAPTCHA answer ([`captcha`]); [`login`] takes a slot in the windows of the
//! account and the address ([`throttle`]) before it verifies the password, and settles the slot by the
//! outcome, which comes back to one `match` in [`web`].
//!
//! An SMS code, from top to bottom: [`web`] parses the number; [`sms`] takes a hit in the windows of the
//! number, the address, the prefix and the total ([`throttle`]), writes the message into its ledger ([`db`]),
//! which has the final decision, and hands it to the gateway. [`login`] decides what an entered code opens.
//!
//! A change of the limits: [`tuning`] puts an administrator's draft into the document that [`config`]
//! watches, and it is then in force on every instance that watches the document. [`audit`] records what was
//! tried and how it ended, for the console.
//!
//! [`app`] puts the parts together from what [`config`] read. Calls go down only: `web` names no database and
//! no store. The limiter is a crate of its own (`gatehouse-limiter`), for other programs, too.

// A request's future is allocated and moved with each request: what is large and rare in it is boxed (clippy.toml has the
// size).
#![cfg_attr(not(test), warn(clippy::large_futures))]

pub mod accounts;
pub mod app;
pub mod audit;
pub mod captcha;
pub mod clock;
pub mod codes;
pub mod config;
pub mod custom;
pub mod db;
pub mod denied;
mod fair_queue;
pub mod files;
pub mod foundation;
pub mod gate;
mod https;
pub mod login;
pub mod lookup;
pub mod mail;
pub mod message;
pub mod oidc;
pub mod origins;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod outage;
mod public_address;
pub mod request_id;
pub mod routes;
pub mod secret;
pub mod sms;
pub mod spans;
pub mod stop;
pub mod telemetry;
pub mod throttle;
pub mod tuning;
mod typed;
mod unseen;
pub mod web;
pub mod webauthn;
pub mod webhooks;

pub use gatehouse_limiter::entropy;

rust_i18n::i18n!("locales", fallback = "en");
