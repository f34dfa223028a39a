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
//! no store, and `throttle` can be used as a library; [`web::RateLimit`] is a middleware for another
//! application's endpoints.

// A request's future is allocated and moved with each request: what is large and rare in it is boxed (clippy.toml has the
// size).
#![cfg_attr(not(test), warn(clippy::large_futures))]

#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod audit;
#[cfg(feature = "server")]
pub mod captcha;
pub mod clock;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod custom;
#[cfg(feature = "server")]
pub mod db;
#[cfg(feature = "server")]
pub mod denied;
pub mod entropy;
#[cfg(feature = "server")]
mod fair_queue;
pub mod files;
#[cfg(feature = "server")]
pub mod gate;
#[cfg(feature = "server")]
mod https;
#[cfg(feature = "server")]
pub mod login;
#[cfg(feature = "server")]
pub mod lookup;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "server")]
pub mod outage;
#[cfg(feature = "server")]
mod public_address;
#[cfg(feature = "server")]
pub mod request_id;
#[cfg(feature = "server")]
pub mod routes;
pub mod secret;
#[cfg(feature = "server")]
pub mod sms;
pub mod spans;
#[cfg(feature = "server")]
pub mod stop;
#[cfg(feature = "server")]
pub mod telemetry;
pub mod throttle;
#[cfg(feature = "server")]
pub mod tuning;
mod wait_queue;
#[cfg(feature = "actix")]
pub mod web;
#[cfg(feature = "server")]
pub mod webhooks;

#[cfg(feature = "server")]
rust_i18n::i18n!("locales", fallback = "en");

#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct LibraryPage;
