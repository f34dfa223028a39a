//! Gatehouse: login throttling and SMS anti-abuse on an exact sliding-window limiter.
//!
//! A sign-in, top to bottom: [`routes`] finds the handler; [`web`] parses the request, finds the
//! client's address and redeems a CAPTCHA answer ([`captcha`]); [`login`] takes a slot on the account's
//! and the address's windows ([`throttle`]) before it verifies the password, and settles the slot by
//! the outcome, which comes back to one `match` in [`web`].
//!
//! A code by SMS, top to bottom: [`web`] parses the number; [`sms`] takes a hit on the windows of number,
//! address, prefix and everyone ([`throttle`]), writes the message into its ledger ([`db`]), which decides
//! for good, and hands it to the gateway; what a code that comes back opens is [`login`]'s to say.
//!
//! A change of the limits: [`tuning`] puts an administrator's draft into the document that [`config`]
//! watches, which is then in force on every instance that watches it.
//! What was tried, and how it ended, [`audit`] keeps for the console.
//!
//! What runs is put together in [`app`], from what [`config`] read. Calls go down only: `web` names no
//! database and no store, and `throttle` serves as a library of its own; [`web::RateLimit`] puts it before the
//! endpoints of another application.

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
pub mod entropy;
pub mod files;
#[cfg(feature = "server")]
pub mod login;
#[cfg(feature = "server")]
pub mod lookup;
#[cfg(feature = "server")]
pub mod outage;
#[cfg(feature = "server")]
pub mod request_id;
#[cfg(feature = "server")]
pub mod routes;
pub mod secret;
#[cfg(feature = "server")]
pub mod sms;
#[cfg(feature = "server")]
pub mod stop;
#[cfg(feature = "server")]
pub mod telemetry;
pub mod throttle;
#[cfg(feature = "server")]
pub mod tuning;
#[cfg(feature = "actix")]
pub mod web;

#[cfg(feature = "server")]
rust_i18n::i18n!("locales", fallback = "en");

#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct LibraryPage;
