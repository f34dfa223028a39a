//! What receivers are told: found in the record, the ledger and the history of the limits, so that whichever
//! instance looks finds the same, under the same id.

use serde_json::{Value, json};

use crate::audit::{Action, Audit, DEVICE_FIRST, EventEntry, EventFilter, FROM_DEVICE, Outcome};
use crate::clock::{Micros, iso};
use crate::config::WebhookEvent;
use crate::db::DbError;
use crate::sms::{HeldBrake, SmsCodes};
use crate::tuning::{LimitsChange, Tuning};

/// More in one look than this are told later, or never if they go on for as long as a look goes back.
const MOST: u32 = 100;
/// The history holds whole documents.
const MOST_CHANGES: u32 = 5;
/// What is told of the record. Each is read apart: an index finds it, and many of one kind hide none of another.
const RECORDED: [Action; 11] = [
    Action::Attack,
    Action::PasswordDisabled,
    Action::Budget,
    Action::FactorAdded,
    Action::FactorRemoved,
    Action::FactorFailed,
    Action::FactorReset,
    Action::TotpDisabled,
    Action::KeyRotated,
    Action::TokenReuse,
    Action::ConsentGiven,
];

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

    /// The same bytes whoever asks.
    pub fn body(&self) -> String {
        json!({ "type": self.event.into_str(), "timestamp": iso(self.at), "data": self.data }).to_string()
    }
}

#[derive(Clone)]
pub struct NoticeSources {
    pub audit: Audit,
    pub codes: SmsCodes,
    pub tuning: Tuning,
    pub public_url: String,
}

impl NoticeSources {
    pub async fn since(&self, since: Micros) -> Result<Vec<WebhookNotice>, DbError> {
        let mut notices = Vec::new();
        for action in RECORDED {
            let outcomes = match action {
                // Guesses that were refused are many, and hide none that was compared.
                Action::FactorFailed => vec![Outcome::Wrong],
                // A late repeat ends nothing.
                Action::TokenReuse => vec![Outcome::Refused],
                _ => Vec::new(),
            };
            // Anybody can show a passkey that does not exist.
            let named = action == Action::FactorFailed;
            let since = Some(since);
            let filter =
                EventFilter { actions: vec![action], outcomes, named, since, ..EventFilter::default() };
            let page = self.audit.log().page(&filter, None, MOST).await?;
            notices.extend(page.entries.iter().filter_map(|entry| self.of_event(entry)));
        }
        let brakes = self.codes.ledger().brakes().await?;
        notices
            .extend(brakes.iter().filter(|brake| brake.began_at >= since).map(|brake| self.of_brake(brake)));
        let changes = self.tuning.history(None, MOST_CHANGES).await?;
        let changes = changes.iter().filter(|change| change.at >= since && change.previous.is_some());
        notices.extend(changes.map(|change| self.of_change(change)));
        Ok(notices)
    }

    fn of_event(&self, entry: &EventEntry) -> Option<WebhookNotice> {
        let (event, data) = match entry.action {
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
                    "half" => "half",
                    _ => "four-fifths",
                };
                (
                    WebhookEvent::MessagesSpent,
                    json!({ "spent": part, "console": self.link("/admin/messages") }),
                )
            }
            _ => return None,
        };
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
