//! A row of `events` on its way to the database.

use super::event::{Action, AuditEvent, EventSubject, Outcome};
use super::mask::mask;
use crate::clock::Micros;
use crate::request_id::RequestId;

/// The keys of an event's subjects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EventKeys {
    pub account: Option<i64>,
    pub address: Option<i64>,
    pub network: Option<i64>,
    pub phone: Option<i64>,
    pub prefix: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct AuditRow {
    pub at: Micros,
    /// Increases with each row of this process, and ends in random bits.
    pub id: i64,
    pub until: Micros,
    pub count: i64,
    pub action: Action,
    pub outcome: Outcome,
    pub name: Option<Box<str>>,
    pub limit: Option<Box<str>>,
    pub rule: Option<i64>,
    pub noted: bool,
    pub solved: bool,
    pub keys: EventKeys,
    pub account_mask: Option<Box<str>>,
    pub address_mask: Option<Box<str>>,
    pub phone_mask: Option<Box<str>>,
    pub actor: Option<Box<str>>,
    pub detail: Option<Box<str>>,
    pub request: Option<Box<str>>,
}

/// The maximum size of a detail in bytes. Details come from us, but a reason is typed by somebody.
const LONGEST_DETAIL: usize = 4096;

impl AuditRow {
    /// Only subjects with a key.
    pub fn of(event: &AuditEvent<'_>, keys: EventKeys, id: i64) -> Self {
        let shown = |key: Option<i64>, subject: Option<&EventSubject<'_>>| {
            key.and(subject).map(|subject| mask(subject).into_boxed_str())
        };
        let address = if keys.address.is_some() { &event.address } else { &event.network };
        let phone = if keys.phone.is_some() { &event.phone } else { &event.prefix };
        Self {
            at: event.at,
            id,
            until: event.settled.unwrap_or(event.at),
            count: 1,
            action: event.action,
            outcome: event.outcome,
            name: event.name.map(Into::into),
            limit: event.why.map(|why| why.limit).or(event.limit).map(Into::into),
            rule: event.why.map(|why| why.rule as i64),
            noted: event.why.is_some_and(|why| why.noted),
            solved: event.solved,
            keys,
            account_mask: shown(keys.account, event.account.as_ref()),
            address_mask: shown(keys.address.or(keys.network), address.as_ref()),
            phone_mask: shown(keys.phone.or(keys.prefix), phone.as_ref()),
            actor: event.actor.map(Into::into),
            detail: event.detail.as_deref().map(|text| cut(text, LONGEST_DETAIL).into()),
            request: RequestId::current().map(|id| id.as_str().into()),
        }
    }
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
