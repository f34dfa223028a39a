//! What receivers are told: found in the record, the ledger and the history of the limits, so that whichever
//! instance looks finds the same, under the same id.

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{Action, Audit, DEVICE_FIRST, EventEntry, FROM_DEVICE, Outcome};
use crate::clock::{Micros, iso};
use crate::codes::CodeService;
use crate::config::WebhookEvent;
use crate::db::DbError;
use crate::sms::HeldBrake;
use crate::tuning::{LimitsChange, Tuning};

/// What a receiver that was away for longer is not told any more.
const OLDEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The history holds whole documents.
const CHANGES: u32 = 5;

/// One thing to tell. Carries no name, number or address in clear.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookNotice {
    /// `webhook-id`.
    pub id: String,
    pub event: WebhookEvent,
    at: Micros,
    data: Value,
}

impl WebhookNotice {
    /// `identity` tells it from every other.
    pub fn new(event: WebhookEvent, identity: &[u8], at: Micros, data: Value) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("gatehouse 2026 webhook id");
        hasher.update(event.into_str().as_bytes()).update(&[0]).update(identity);
        Self { id: format!("msg_{}", &hasher.finalize().to_hex()[..32]), event, at, data }
    }

    /// Whether it is not too old to be told.
    pub fn is_of(&self, now: Micros) -> bool {
        now.since(self.at) < OLDEST
    }

    /// The body: it has the same bytes whoever asks.
    pub fn body(&self) -> String {
        json!({ "type": self.event.into_str(), "timestamp": iso(self.at), "data": self.data }).to_string()
    }
}

#[derive(Clone)]
pub struct NoticeSources {
    pub audit: Audit,
    pub codes: CodeService,
    pub tuning: Tuning,
    pub public_url: String,
}

impl NoticeSources {
    /// What the record has after this number, and the numbers; the first first, and at most so many.
    pub async fn recorded(
        &self,
        after: i64,
        most: u32,
    ) -> Result<Vec<(i64, Option<WebhookNotice>)>, DbError> {
        let news = self.audit.log().news(after, most).await?;
        Ok(news.iter().map(|news| (news.number, self.of_event(&news.entry))).collect())
    }

    /// After which number of the record a receiver begins that was told nothing yet.
    pub async fn recorded_before(&self, since: Micros) -> Result<i64, DbError> {
        self.audit.log().news_before(since).await
    }

    pub async fn brakes(&self, since: Micros) -> Result<Vec<WebhookNotice>, DbError> {
        let brakes = self.codes.ledger().brakes().await?;
        let brakes = brakes.iter().filter(|brake| brake.began_at >= since);
        Ok(brakes.map(|brake| self.of_brake(brake)).collect())
    }

    /// The changes after a time, and the time of the newest. Each has a later one than all before it.
    pub async fn changes(&self, after: Micros) -> Result<(Vec<WebhookNotice>, Micros), DbError> {
        let (mut notices, mut newest, mut before) = (Vec::new(), after, None);
        loop {
            let page = self.tuning.history(before, CHANGES).await?;
            let new: Vec<_> = page.iter().filter(|change| change.at > after).collect();
            newest = new.iter().map(|change| change.at).fold(newest, Micros::max);
            notices.extend(
                new.iter().filter(|change| change.previous.is_some()).map(|change| self.of_change(change)),
            );
            before = page.last().map(LimitsChange::cursor);
            if new.len() < CHANGES as usize {
                return Ok((notices, newest));
            }
        }
    }

    fn of_event(&self, entry: &EventEntry) -> Option<WebhookNotice> {
        let (event, mut data) = match entry.action {
            Action::Attack => {
                let event = match entry.outcome {
                    Outcome::Began => WebhookEvent::AttackBegan,
                    _ => WebhookEvent::AttackEnded,
                };
                let mut data = serde_json::from_str::<Value>(entry.detail.as_deref()?).ok()?;
                data["kind"] = entry.name.as_deref().into();
                data["console"] = self.link("/admin").into();
                (event, data)
            }
            Action::PasswordDisabled => {
                let device = entry.name.as_deref() == Some(FROM_DEVICE);
                (
                    WebhookEvent::PasswordDisabled,
                    json!({ "account": entry.account, "device": device, "console": self.account_link(entry) }),
                )
            }
            Action::Spray => {
                let mut data = serde_json::from_str::<Value>(entry.detail.as_deref()?).ok()?;
                data["console"] = self.link("/admin/events?action=spray").into();
                (WebhookEvent::Spray, data)
            }
            Action::PasswordBreached => {
                let data = json!({ "account": entry.account, "console": self.account_link(entry) });
                (WebhookEvent::PasswordBreached, data)
            }
            Action::FactorFailed => {
                let device = entry.detail.as_deref().is_some_and(|detail| detail.starts_with(DEVICE_FIRST));
                let console = self.account_link(entry);
                let data = json!({ "account": entry.account, "factor": entry.name, "device": device, "console": console });
                (WebhookEvent::FactorFailed, data)
            }
            Action::FactorAdded | Action::FactorRemoved | Action::FactorReset | Action::TotpDisabled => {
                let event = match entry.action {
                    Action::FactorAdded => WebhookEvent::FactorAdded,
                    Action::FactorRemoved => WebhookEvent::FactorRemoved,
                    Action::FactorReset => WebhookEvent::FactorReset,
                    _ => WebhookEvent::TotpDisabled,
                };
                let console = self.account_link(entry);
                (event, json!({ "account": entry.account, "factor": entry.name, "console": console }))
            }
            Action::KeyRotated => {
                let mut data = serde_json::from_str::<Value>(entry.detail.as_deref()?).ok()?;
                data["algorithm"] = entry.name.as_deref().into();
                data["console"] = self.link("/admin/events?action=key-rotated").into();
                (WebhookEvent::KeyRotated, data)
            }
            Action::TokenReuse | Action::ConsentGiven => {
                let event = match entry.action {
                    Action::TokenReuse => WebhookEvent::TokenReuse,
                    _ => WebhookEvent::ConsentGiven,
                };
                let console = self.account_link(entry);
                (event, json!({ "account": entry.account, "app": entry.name, "console": console }))
            }
            Action::Budget => {
                let part = match entry.name.as_deref()? {
                    "short" => "four-fifths",
                    part => part,
                };
                let mut data = json!({ "spent": part, "limit": entry.limit });
                if let Some(country) = &entry.detail {
                    data["country"] = country.as_str().into();
                }
                data["console"] = self.link("/admin/messages").into();
                (WebhookEvent::MessagesSpent, data)
            }
            _ => return None,
        };
        if entry.count > 1 {
            data["count"] = entry.count.into();
        }
        let identity = [entry.at.0.to_be_bytes(), entry.id.to_be_bytes()].concat();
        Some(WebhookNotice::new(event, &identity, entry.at, data))
    }

    fn of_brake(&self, brake: &HeldBrake) -> WebhookNotice {
        let program = brake.program.as_deref().unwrap_or_default();
        let began_at = brake.began_at.0.to_be_bytes();
        let identity = [&began_at, program.as_bytes(), brake.prefix.as_bytes()].concat();
        let data = json!({
            "prefix": brake.prefix,
            "program": brake.program,
            "ends_at": iso(brake.ends_at),
            "sent": brake.sent,
            "entered": brake.entered,
            "console": self.link("/admin/messages"),
        });
        WebhookNotice::new(WebhookEvent::BrakeBegan, &identity, brake.began_at, data)
    }

    fn of_change(&self, change: &LimitsChange) -> WebhookNotice {
        let data = json!({
            "change": change.id,
            "version": change.version,
            "previous": change.previous,
            // An administrator's id; none if the document was edited by hand.
            "actor": change.actor,
            "console": self.link("/admin/limits/history"),
        });
        WebhookNotice::new(WebhookEvent::LimitsChanged, change.id.as_bytes(), change.at, data)
    }

    fn account_link(&self, entry: &EventEntry) -> String {
        self.link(&match &entry.account {
            Some(account) => format!("/admin/lookup?account={:016x}", account.key),
            None => format!("/admin/events?action={}", entry.action.into_str()),
        })
    }

    fn link(&self, path: &str) -> String {
        format!("{}{path}", self.public_url)
    }
}
