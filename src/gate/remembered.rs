//! Visitors of applications whom this instance remembers between their requests.
//!
//! A change is a row that every instance reads several times a second; what is remembered of its account is then
//! forgotten. What was read from the database before a change is not remembered after it.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::accounts::{AccountId, AppTokenHash, AppVisitor, CHANGES_LAST, SessionChanges};
use crate::clock::{Clock, Micros, Uptime};
use crate::db::DbError;

/// How often changes are read: a session that ends does so everywhere within a second.
pub const READ_EVERY: Duration = Duration::from_millis(250);
/// Nothing that is remembered is used once the changes could not be read for so long.
const BELIEVED: Duration = Duration::from_secs(5);
/// A visitor is read anew after that, which also records that the session is in use.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// After a gap of that length everything is read again.
const UNREAD: Duration = Duration::from_secs(CHANGES_LAST.as_secs() / 5);
/// Visitors at once. Of more, some are read again.
const MOST: usize = 100_000;

pub struct RememberedVisitors {
    visitors: Cache<AppTokenHash, Remembered>,
    state: Mutex<FollowState>,
    changes: SessionChanges,
    clock: Clock,
    uptime: Uptime,
}

#[derive(Clone)]
struct Remembered {
    visitor: Arc<AppVisitor>,
    /// When it was read, by the uptime.
    read_at: Duration,
}

#[derive(Default)]
struct FollowState {
    /// How often something was forgotten.
    generation: u64,
    /// When the last read of changes that succeeded began.
    followed_at: Option<Duration>,
    /// When it was followed, by a clock that goes on while the machine sleeps.
    followed_by_clock: Option<Micros>,
    /// The changes that it found.
    seen: HashSet<String>,
}

impl RememberedVisitors {
    pub fn new(changes: SessionChanges, clock: Clock, uptime: Uptime) -> Self {
        Self { visitors: Cache::new(MOST), state: Mutex::default(), changes, clock, uptime }
    }

    /// The visitor of a token: remembered, or by `read`, which one of several at once does for all.
    pub async fn get<F>(
        &self,
        token: AppTokenHash,
        read: impl Fn() -> F,
    ) -> Result<Option<Arc<AppVisitor>>, DbError>
    where
        F: Future<Output = Result<Option<AppVisitor>, DbError>>,
    {
        if !self.is_followed() {
            return Ok(read().await?.map(Arc::new));
        }
        let now = self.uptime.now();
        if let Some(found) = self.visitors.get(&token) {
            if now.saturating_sub(found.read_at) < READ_AGAIN {
                return Ok(self.unless_idle(found.visitor));
            }
            self.visitors.remove_if(&token, |old| old.read_at == found.read_at);
        }
        let guard = match self.visitors.get_value_or_guard_async(&token).await {
            Ok(found) => return Ok(self.unless_idle(found.visitor)),
            Err(guard) => guard,
        };
        let before = self.state.lock().generation;
        let Some(visitor) = read().await?.map(Arc::new) else { return Ok(None) };
        let state = self.state.lock();
        if state.generation == before {
            // It fails if the entry was forgotten meanwhile, which is right.
            let _ = guard.insert(Remembered { visitor: Arc::clone(&visitor), read_at: now });
        }
        drop(state);
        Ok(Some(visitor))
    }

    /// Forgets the accounts that have changed since the last call.
    pub async fn follow(&self) -> Result<(), DbError> {
        let (began, by_clock) = (self.uptime.now(), self.clock.now());
        let recent = self.changes.recent().await?;
        let mut state = self.state.lock();
        // Changes may have expired before they were read, or are too many to be read.
        let missed = recent.is_none()
            || state.followed_at.is_none_or(|at| began.saturating_sub(at) > UNREAD)
            || state.followed_by_clock.is_none_or(|at| by_clock.since(at) > UNREAD);
        let recent = recent.unwrap_or_default();
        let news: HashSet<AccountId> =
            recent.iter().filter(|(id, _)| !state.seen.contains(id)).map(|(_, account)| *account).collect();
        (state.followed_at, state.followed_by_clock) = (Some(began), Some(by_clock));
        state.seen = recent.into_iter().map(|(id, _)| id).collect();
        if missed {
            state.generation += 1;
            self.visitors.clear();
        } else if !news.is_empty() {
            state.generation += 1;
            self.visitors.retain(|_, found| !news.contains(&found.visitor.account));
        }
        Ok(())
    }

    pub fn forget(&self, account: AccountId) {
        let mut state = self.state.lock();
        state.generation += 1;
        self.visitors.retain(|_, found| found.visitor.account != account);
    }

    fn is_followed(&self) -> bool {
        self.state.lock().followed_at.is_some_and(|at| self.uptime.now().saturating_sub(at) < BELIEVED)
    }

    fn unless_idle(&self, visitor: Arc<AppVisitor>) -> Option<Arc<AppVisitor>> {
        let now: Micros = self.clock.now();
        (now < visitor.idle_until).then_some(visitor)
    }
}

#[cfg(test)]
#[path = "remembered_tests.rs"]
mod tests;
