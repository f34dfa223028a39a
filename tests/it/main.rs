//! Every test that runs real parts, in one binary with one harness.

mod access;
mod accounts;
mod admin;
mod architecture;
mod audit;
mod brand;
mod browser;
mod command_line;
mod connections;
mod custom;
mod documents;
mod factors;
mod figures;
mod gate;
mod guard;
mod mail;
mod monitoring;
mod ocr;
mod oidc;
mod openapi;
mod operators;
#[cfg(feature = "otlp")]
mod otlp;
mod outage;
mod relay;
pub mod reload;
mod rows;
mod shared_budgets;
mod sign_in;
mod sms;
mod support;
mod tuning;
mod verify;
mod webhooks;
