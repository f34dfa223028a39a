//! One request for a code, with everything that it needs on its own task.

use std::sync::Arc;
use std::time::Duration;

use super::codes::SmsCodes;
use super::departure::Departure;
use super::once;
use super::request::MessageRequest;
use super::watched::{MessageKeys, SmsLimits};
use super::{MessagePurpose, Phone, SmsCode};
use crate::config::{Brake, LiveSettings};

/// One request on its own task: its parameters, and the limits that were in force then.
pub struct SendJob {
    pub codes: SmsCodes,
    pub watched: Arc<SmsLimits>,
    pub keys: MessageKeys,
    pub brake: Brake,
    /// How long its code is valid; how long the request is recognised if the code is not ours.
    pub code_ttl: Duration,
    pub phone: Phone,
    pub purpose: MessagePurpose,
    /// One that somebody else has made.
    pub code: Option<SmsCode>,
    /// The requester's address and network, if they are known.
    pub origin: Option<[Vec<u8>; 2]>,
    /// The requesting browser, as the ledger stores it.
    pub asker: Option<String>,
    pub guess_window: Duration,
    pub solved: bool,
    /// How long everybody is challenged.
    pub everyone: Option<Duration>,
    pub locale: String,
    /// Of the program's texts.
    pub language: Option<String>,
    pub departure: Option<Departure>,
}

impl SendJob {
    pub fn new(codes: SmsCodes, live: &LiveSettings, ask: MessageRequest<'_>) -> Self {
        let (watched, purpose) = (codes.watched(live), ask.purpose.stored());
        let name = ask.once.map(|name| [ask.phone.as_str().as_bytes(), purpose.as_bytes(), name.as_bytes()]);
        // Nobody knows who asks, so the request has an address of its own.
        let nobody = [b"nobody ", ask.once.unwrap_or_default().as_bytes()].concat();
        let keys = codes.0.budgets.keys(
            &watched,
            ask.phone,
            ask.origin.unwrap_or([&nobody; 2]),
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
            code_ttl: match ask.purpose {
                MessagePurpose::Own(_) | MessagePurpose::Verification(_) => live.sms.code_ttl,
                MessagePurpose::Relayed(_) => once::RELAYED,
            },
            phone: ask.phone.clone(),
            purpose: ask.purpose,
            code: ask.code.cloned(),
            origin: ask.origin.map(|origin| origin.map(<[u8]>::to_owned)),
            asker,
            guess_window: live.limits.sms_guess.longest_window(),
            solved: ask.solved,
            everyone,
            locale: ask.locale.to_owned(),
            language: ask.language.map(str::to_owned),
            departure: ask.departure,
        }
    }
}
