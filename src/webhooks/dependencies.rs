//! Whether the store and the database answer, as this instance sees it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::json;

use super::notices::WebhookNotice;
use crate::clock::Clock;
use crate::config::WebhookEvent;
use crate::db::Db;
use crate::entropy::Entropy;
use crate::throttle::RedisLink;

/// It is out after this many looks in a row: a second's hiccup is told to nobody.
const LOOKS: u32 = 3;
/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is watched, and this instance's name for it.
pub struct DependencyParts {
    pub db: Db,
    /// `None` in process, which is never out.
    pub store: Option<RedisLink>,
    pub instance: String,
    pub clock: Clock,
    pub entropy: Entropy,
}

pub struct DependencyWatch {
    parts: DependencyParts,
    seen: Mutex<[DependencyState; 2]>,
}

#[derive(Clone, Copy, Default)]
struct DependencyState {
    /// Looks in a row that found it out.
    failed: u32,
    told: bool,
}

impl DependencyWatch {
    pub fn new(parts: DependencyParts) -> Self {
        Self { parts, seen: Mutex::default() }
    }

    /// What went out for good or came back since the last look.
    pub async fn changes(&self) -> Vec<WebhookNotice> {
        let answer = tokio::time::timeout(PATIENCE, self.parts.db.ping()).await;
        let database = matches!(answer, Ok(Ok(()))) && self.parts.db.is_writable();
        let store = self.parts.store.as_ref().is_none_or(RedisLink::is_up);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = seen.iter_mut().zip([("database", database), ("store", store)]);
        looks.filter_map(|(state, (part, up))| state.look(up).map(|event| self.notice(event, part))).collect()
    }

    fn notice(&self, event: WebhookEvent, part: &str) -> WebhookNotice {
        let DependencyParts { instance, clock, entropy, .. } = &self.parts;
        let data = json!({ "part": part, "instance": instance });
        WebhookNotice::new(event, &entropy.bytes::<16>(), clock.now(), data)
    }
}

impl DependencyState {
    fn look(&mut self, up: bool) -> Option<WebhookEvent> {
        self.failed = if up { 0 } else { self.failed.saturating_add(1) };
        let event = match (self.told, up) {
            (false, false) if self.failed >= LOOKS => WebhookEvent::DependencyDown,
            (true, true) => WebhookEvent::DependencyUp,
            _ => return None,
        };
        self.told = !up;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_and_so_is_its_end_but_a_hiccup_is_not() {
        let mut state = DependencyState::default();
        let mut look = |up| state.look(up).map(WebhookEvent::as_str);
        assert_eq!([false, false, true].map(&mut look), [None; 3]);
        assert_eq!([false, false, false, false].map(&mut look), [None, None, Some("dependency.down"), None]);
        assert_eq!([true, true, false, true].map(&mut look), [Some("dependency.up"), None, None, None]);
    }
}
