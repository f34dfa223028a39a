//! Codes by SMS: what is sent, what is counted, what carries it, and what a code that comes back is good for.

pub mod administration;
mod braking;
mod carried;
mod edge;
pub mod flows;
mod gateways;
mod guessers;
mod guessing;
pub mod http;
mod kannel;
mod ledger;
mod names;
mod none;
mod outage;
mod outcomes;
mod owner;
mod postgres;
mod providers;
mod pumping;
mod rebuild;
mod rig;
mod sending;
mod short_http;
mod shortage;
mod spent_asker;
mod spoilt;
mod tls;
