//! One request for a code, with everything that it needs on its own task.

use std::sync::Arc;
use std::time::Duration;

use super::codes::SmsCodes;
use super::request::MessageRequest;
use super::watched::{MessageKeys, SmsLimits};
use super::{MessagePurpose, Phone};
use crate::config::{Brake, LiveSettings};

/// One request on its own task: its parameters, and the limits that were in force then.
pub struct SendJob {
    pub codes: SmsCodes,
    pub watched: Arc<SmsLimits>,
    pub keys: MessageKeys,
    pub brake: Brake,
    pub code_ttl: Duration,
    pub phone: Phone,
    pub purpose: MessagePurpose,
    pub address: Vec<u8>,
    pub network: Vec<u8>,
    /// The requesting browser, as the ledger stores it.
    pub asker: Option<String>,
    pub guess_window: Duration,
    pub solved: bool,
    /// How long everybody is challenged.
    pub everyone: Option<Duration>,
    pub locale: String,
    /// Of the program's texts.
    pub language: Option<String>,
}

impl SendJob {
    pub fn new(codes: SmsCodes, live: &LiveSettings, ask: MessageRequest<'_>) -> Self {
        let (watched, purpose) = (codes.watched(live), ask.purpose.stored());
        let name = ask.once.map(|name| [ask.phone.as_str().as_bytes(), purpose.as_bytes(), name.as_bytes()]);
        let keys = codes.0.budgets.keys(
            &watched,
            ask.phone,
            [ask.address, ask.network],
            ask.purpose.program(),
            name.as_ref().map(|parts| &parts[..]),
        );
        let everyone = live.access.challenges_everyone(codes.0.clock.now());
        let asker = ask.browser.map(|browser| codes.asker(keys.phone, browser));
        Self {
            codes,
            watched,
            keys,
            brake: live.sms.brake.clone(),
            code_ttl: live.sms.code_ttl,
            phone: ask.phone.clone(),
            purpose: ask.purpose,
            address: ask.address.to_owned(),
            network: ask.network.to_owned(),
            asker,
            guess_window: live.limits.sms_guess.longest_window(),
            solved: ask.solved,
            everyone,
            locale: ask.locale.to_owned(),
            language: ask.language.map(str::to_owned),
        }
    }
}
