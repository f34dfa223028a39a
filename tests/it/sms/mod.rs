//! Codes by SMS: what is sent, what is counted, and what a code that comes back is good for.

mod guessing;
mod ledger;
mod outage;
mod pumping;
mod rebuild;
mod rig;
mod sending;
