//! Webhooks: tells other programs what operators want to know at once, as Standard Webhooks
//! (<https://www.standardwebhooks.com>) describe it.
//!
//! Every instance reads what is new from the record (`notices.rs`) and writes it into one table, once for each
//! receiver (`DeliveryTable`); whichever instance takes a row posts it (`signed.rs`). Only what concerns this
//! instance alone, a store or database that does not answer, does not come from the record
//! (`WatchedDependencies`), and is posted from memory if the database is the one that is out.
//!
//! The other way round, `signed.rs` tells whether a call is signed by somebody whose hooks are taken.

mod notices;
mod signed;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::RedisLink;
use metrics::counter;
use parking_lot::Mutex;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};
use tokio::task::JoinSet;

use crate::clock::{Clock, Micros};
use crate::config::{WebhookEvent, WebhookSettings};
use crate::db::{Db, DbError, execute, on_db};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::https::ReceiverSilence;
use crate::stop::{StopSender, StopSignal};
use notices::WebhookNotice;
use signed::{PostResult, WebhookEndpoint};

pub use notices::NoticeSources;
pub use signed::{EndpointError, HookCall, HookSecretError, SignedHooks};

/// Between two looks for what is new.
const COLLECT_EVERY: Duration = Duration::from_secs(2);
/// Between two looks for what is due.
const POST_EVERY: Duration = Duration::from_secs(1);
/// How far back a receiver is told that was told nothing yet: what happened shortly before a start is.
const LOOK_BACK: Duration = Duration::from_secs(60 * 60);
/// What is read of the record at once.
const BATCH: u32 = 100;
/// When it is tried again after each failed attempt: the schedule that Standard Webhooks recommend.
const RETRIES: [Duration; 9] = {
    const fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(minutes * 60)
    }
    [
        Duration::from_secs(5),
        minutes(5),
        minutes(30),
        minutes(2 * 60),
        minutes(5 * 60),
        minutes(10 * 60),
        minutes(14 * 60),
        minutes(20 * 60),
        minutes(24 * 60),
    ]
};
/// Notices of a receiver that wait in memory for a database that is out.
const MOST_UNSAVED: usize = 16;

pub struct Webhooks {
    receivers: Vec<WebhookReceiver>,
    sources: NoticeSources,
    table: DeliveryTable,
    dependencies: WatchedDependencies,
}

struct WebhookReceiver {
    endpoint: WebhookEndpoint,
    unsaved: Mutex<VecDeque<UnsavedNotice>>,
}

#[derive(Clone)]
struct UnsavedNotice {
    notice: WebhookNotice,
    attempts: usize,
    next_at: Micros,
}

impl Webhooks {
    /// Reads the secrets. `None` if there is no receiver. `instance` is this instance's name; in process, which is never
    /// out, there is no `store`.
    pub fn open(
        foundation: &Foundation,
        settings: &[WebhookSettings],
        sources: NoticeSources,
        (store, instance): (Option<RedisLink>, String),
    ) -> Result<Option<Self>, EndpointError> {
        let opened =
            settings.iter().enumerate().map(|(index, webhook)| WebhookEndpoint::open(index, webhook));
        let receiver = |endpoint| WebhookReceiver { endpoint, unsaved: Mutex::default() };
        let receivers = opened.map(|opened| opened.map(receiver)).collect::<Result<Vec<_>, _>>()?;
        let Foundation { db, clock, entropy, .. } = foundation.clone();
        let table = DeliveryTable { db: db.clone(), clock: clock.clone() };
        let dependencies = WatchedDependencies { db, store, instance, clock, entropy };
        let webhooks = Self { receivers, sources, table, dependencies };
        Ok((!webhooks.receivers.is_empty()).then_some(webhooks))
    }

    /// Runs until it is stopped: one task that looks for news, and one for each receiver, so that one that is
    /// slow delays no other.
    pub fn start(self, tasks: &mut JoinSet<()>, stopper: &StopSender) {
        let shared = Arc::new(self);
        for index in 0..shared.receivers.len() {
            let (webhooks, stop) = (Arc::clone(&shared), stopper.stop());
            tasks.spawn(async move { webhooks.post_due(&webhooks.receivers[index], stop).await });
        }
        let stop = stopper.stop();
        tasks.spawn(async move { shared.collect(stop).await });
    }

    async fn collect(&self, mut stop: StopSignal) {
        let (mut failing, mut changed) = (false, None);
        let mut seen = [DependencyState::default(); 2];
        while stop.pause(COLLECT_EVERY).await {
            let round = async {
                self.tell_dependencies(&mut seen).await;
                self.collect_once(&mut changed).await
            };
            let collected = tokio::select! {
                () = stop.told() => return,
                collected = round => collected,
            };
            match (&collected, failing) {
                (Err(error), false) => {
                    tracing::warn!(%error, "webhooks: news cannot be read from the database")
                }
                (Ok(()), true) => tracing::warn!("webhooks: news can be read again"),
                _ => {}
            }
            failing = collected.is_err();
        }
    }

    /// Writes down what is new, once for each receiver that wants it. `changed` is the last change of the limits that was
    /// told here.
    async fn collect_once(&self, changed: &mut Option<Micros>) -> Result<(), DbError> {
        let now = self.table.now().await?;
        self.collect_recorded(now).await?;
        let since = now.minus(LOOK_BACK);
        for notice in self.sources.brakes(since).await? {
            self.write(&notice, now).await?;
        }
        let (notices, newest) = self.sources.changes(changed.unwrap_or(since)).await?;
        for notice in notices {
            self.write(&notice, now).await?;
        }
        *changed = Some(newest);
        Ok(())
    }

    /// What the record has that a receiver was not told, however much that is. It was told once that is written down, so a
    /// stop in between repeats it, under the same ids.
    async fn collect_recorded(&self, now: Micros) -> Result<(), DbError> {
        loop {
            let mut after = i64::MAX;
            for receiver in &self.receivers {
                after = after.min(self.cursor_of(&receiver.endpoint.id, now).await?);
            }
            let news = self.sources.recorded(after, BATCH).await?;
            for notice in
                news.iter().filter_map(|(_, notice)| notice.as_ref()).filter(|notice| notice.is_of(now))
            {
                self.write(notice, now).await?;
            }
            let Some((last, _)) = news.last() else { return Ok(()) };
            for receiver in &self.receivers {
                self.table.advance(&receiver.endpoint.id, *last).await?;
            }
            if news.len() < BATCH as usize {
                return Ok(());
            }
        }
    }

    /// The number in the record up to which a receiver was told.
    async fn cursor_of(&self, endpoint: &str, now: Micros) -> Result<i64, DbError> {
        if let Some(cursor) = self.table.cursor(endpoint).await? {
            return Ok(cursor);
        }
        let before = self.sources.recorded_before(now.minus(LOOK_BACK)).await?;
        self.table.begin(endpoint, before).await?;
        Ok(before)
    }

    async fn write(&self, notice: &WebhookNotice, now: Micros) -> Result<(), DbError> {
        for receiver in self.wanting(notice) {
            self.table.add(notice, &receiver.endpoint.id, now).await?;
        }
        Ok(())
    }

    fn wanting(&self, notice: &WebhookNotice) -> impl Iterator<Item = &WebhookReceiver> {
        let event = notice.event;
        self.receivers.iter().filter(move |receiver| receiver.endpoint.wants(event))
    }

    /// Says what went out or came back.
    async fn tell_dependencies(&self, seen: &mut [DependencyState; 2]) {
        for notice in self.dependencies.changes(seen).await {
            let next_at = self.table.clock.now();
            for receiver in self.wanting(&notice) {
                let mut unsaved = receiver.unsaved.lock();
                unsaved.push_back(UnsavedNotice { notice: notice.clone(), attempts: 0, next_at });
                if unsaved.len() > MOST_UNSAVED {
                    unsaved.pop_front();
                }
            }
        }
    }

    async fn post_due(&self, receiver: &WebhookReceiver, mut stop: StopSignal) {
        let mut silence = ReceiverSilence::default();
        loop {
            let posted = tokio::select! {
                () = stop.told() => return,
                posted = self.post_next(receiver, &mut silence) => posted,
            };
            // A database that does not answer is told by the task that looks for news.
            if !posted.unwrap_or(false) && !stop.pause(POST_EVERY).await {
                return;
            }
        }
    }

    /// Posts what is due; false if nothing is.
    async fn post_next(
        &self,
        receiver: &WebhookReceiver,
        silence: &mut ReceiverSilence,
    ) -> Result<bool, DbError> {
        let endpoint = &receiver.endpoint;
        let unsaved = receiver.unsaved.lock().pop_front();
        if let Some(unsaved) = unsaved {
            return Ok(self.take_unsaved(receiver, unsaved, silence).await);
        }
        if silence.rests(self.table.clock.now()) {
            return Ok(false);
        }
        let Some(due) = self.table.take(&endpoint.id).await? else { return Ok(false) };
        let posted = self.post(endpoint, &due.notice, &due.body, silence).await;
        let mut again = None;
        match posted {
            PostResult::Delivered => {}
            PostResult::Gone => {
                tracing::warn!(webhook = %endpoint, "webhooks: the receiver is gone (410); remove it from the configuration");
            }
            PostResult::Failed { reason } | PostResult::Silent { reason } => {
                again =
                    usize::try_from(due.attempts - 1).ok().and_then(|failed| RETRIES.get(failed)).copied();
                if again.is_some() {
                    tracing::warn!(webhook = %endpoint, attempt = due.attempts, reason, "webhooks: not delivered, will be tried again");
                } else {
                    tracing::error!(webhook = %endpoint, notice = due.notice, reason, "webhooks: not delivered, given up");
                }
            }
        }
        self.table.schedule(&due, &endpoint.id, again).await?;
        Ok(true)
    }

    /// Writes it down. What cannot be written down is posted from here, once it is due; true if that was done with it.
    async fn take_unsaved(
        &self,
        receiver: &WebhookReceiver,
        mut unsaved: UnsavedNotice,
        silence: &mut ReceiverSilence,
    ) -> bool {
        if self.save(&unsaved.notice, &receiver.endpoint).await.is_ok() {
            return true;
        }
        let now = self.table.clock.now();
        if unsaved.next_at <= now && !silence.rests(now) {
            let (id, body) = (&unsaved.notice.id, unsaved.notice.body());
            match self.post(&receiver.endpoint, id, &body, silence).await {
                PostResult::Delivered | PostResult::Gone => return true,
                PostResult::Failed { .. } | PostResult::Silent { .. } => {
                    let wait = RETRIES[unsaved.attempts.min(RETRIES.len() - 1)];
                    (unsaved.next_at, unsaved.attempts) =
                        (self.table.clock.now().plus(wait), unsaved.attempts + 1);
                }
            }
        }
        receiver.unsaved.lock().push_back(unsaved);
        false
    }

    async fn save(&self, notice: &WebhookNotice, endpoint: &WebhookEndpoint) -> Result<(), DbError> {
        let now = self.table.now().await?;
        self.table.add(notice, &endpoint.id, now).await
    }

    async fn post(
        &self,
        endpoint: &WebhookEndpoint,
        notice: &str,
        body: &str,
        silence: &mut ReceiverSilence,
    ) -> PostResult {
        let posted = endpoint.post(notice, body, self.table.clock.now()).await;
        match &posted {
            PostResult::Silent { .. } => silence.unanswered(self.table.clock.now()),
            PostResult::Delivered | PostResult::Gone | PostResult::Failed { .. } => silence.answered(),
        }
        counter!("gatehouse_webhook_attempts_total", "result" => posted.word()).increment(1);
        posted
    }
}

/// How long a taken row belongs to whoever took it: longer than an attempt.
const LEASE: Duration = Duration::from_secs(60);
/// How long a row is kept: longer than the last retry after the first, and than any look back.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

struct DeliveryTable {
    db: Db,
    clock: Clock,
}

struct DueDelivery {
    notice: String,
    body: String,
    /// From 1.
    attempts: i64,
}

impl DeliveryTable {
    async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    /// Writes it down, unless some instance has.
    async fn add(&self, notice: &WebhookNotice, endpoint: &str, now: Micros) -> Result<(), DbError> {
        const KNOWN: &str = "SELECT COUNT(*) FROM webhook_deliveries WHERE notice = $1 AND endpoint = $2";
        const INSERT: &str = "INSERT INTO webhook_deliveries (notice, endpoint, body, created_at, next_at)
            VALUES ($1, $2, $3, $4, $4) ON CONFLICT (notice, endpoint) DO NOTHING";
        // Nearly always it is known, and a read takes no lock.
        let known: i64 = on_db!(&self.db, pool => query_scalar(KNOWN).bind(&notice.id).bind(endpoint)
            .fetch_one(pool).await)?;
        if known == 0 {
            execute!(&self.db => query(INSERT).bind(&notice.id).bind(endpoint).bind(notice.body())
                .bind(now.0))?;
        }
        Ok(())
    }

    async fn cursor(&self, endpoint: &str) -> Result<Option<i64>, DbError> {
        const SQL: &str = "SELECT news FROM webhook_receivers WHERE endpoint = $1";
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(endpoint).fetch_optional(pool).await)?)
    }

    async fn begin(&self, endpoint: &str, after: i64) -> Result<(), DbError> {
        const SQL: &str =
            "INSERT INTO webhook_receivers (endpoint, news) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        execute!(&self.db => query(SQL).bind(endpoint).bind(after))?;
        Ok(())
    }

    async fn advance(&self, endpoint: &str, last: i64) -> Result<(), DbError> {
        const SQL: &str = "UPDATE webhook_receivers SET news = $2 WHERE endpoint = $1 AND news < $2";
        execute!(&self.db => query(SQL).bind(endpoint).bind(last))?;
        Ok(())
    }

    /// Takes the row that is due longest. Of two instances that want it, one gets it.
    async fn take(&self, endpoint: &str) -> Result<Option<DueDelivery>, DbError> {
        const DUE: &str = "SELECT notice FROM webhook_deliveries WHERE endpoint = $1 AND next_at <= $2
            ORDER BY next_at, notice LIMIT 1";
        const TAKE: &str = "UPDATE webhook_deliveries SET attempts = attempts + 1, next_at = $1
            WHERE notice = $2 AND endpoint = $3 AND next_at <= $4 RETURNING notice, body, attempts";
        let now = self.now().await?;
        let due: Option<String> = on_db!(&self.db, pool => query_scalar(DUE).bind(endpoint).bind(now.0)
            .fetch_optional(pool).await)?;
        let Some(notice) = due else { return Ok(None) };
        let taken: Option<(String, String, i64)> = on_db!(&self.db, pool => query_as(TAKE)
            .bind(now.plus(LEASE).0).bind(notice).bind(endpoint).bind(now.0).fetch_optional(pool).await)?;
        Ok(taken.map(|(notice, body, attempts)| DueDelivery { notice, body, attempts }))
    }

    /// Tries it again after a while; None: it was delivered, or is given up.
    async fn schedule(
        &self,
        due: &DueDelivery,
        endpoint: &str,
        again: Option<Duration>,
    ) -> Result<(), DbError> {
        const SQL: &str = "UPDATE webhook_deliveries SET next_at = $1 WHERE notice = $2 AND endpoint = $3 AND attempts = $4";
        let at = match again {
            Some(wait) => Some(self.now().await?.plus(wait).0),
            None => None,
        };
        execute!(&self.db => query(SQL).bind(at).bind(&due.notice).bind(endpoint).bind(due.attempts))?;
        Ok(())
    }
}

/// Deletes the oldest deliveries after a while, whatever became of them.
pub async fn purge(db: &Db, clock: &Clock, batch: u32) -> Result<u64, DbError> {
    const SQL: &str = "DELETE FROM webhook_deliveries WHERE (notice, endpoint) IN (
        SELECT notice, endpoint FROM webhook_deliveries WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
    let before = db.now(clock).await?.minus(KEPT);
    Ok(execute!(db => query(SQL).bind(before.0).bind(i64::from(batch)))?)
}

/// It is out after this many looks in a row: a second's hiccup is told to nobody.
const LOOKS: u32 = 3;

/// What is watched, and this instance's name for it.
struct WatchedDependencies {
    db: Db,
    store: Option<RedisLink>,
    instance: String,
    clock: Clock,
    entropy: Entropy,
}

/// Whether the store or the database answers, as this instance sees it.
#[derive(Clone, Copy, Default)]
struct DependencyState {
    /// Looks in a row that found it out.
    failed: u32,
    told: bool,
}

impl WatchedDependencies {
    /// What went out for good or came back since the last look.
    async fn changes(&self, seen: &mut [DependencyState; 2]) -> Vec<WebhookNotice> {
        let database = self.db.is_up().await;
        let store = self.store.as_ref().is_none_or(RedisLink::is_up);
        let looks = seen.iter_mut().zip([("database", database), ("store", store)]);
        looks.filter_map(|(state, (part, up))| state.look(up).map(|event| self.notice(event, part))).collect()
    }

    fn notice(&self, event: WebhookEvent, part: &str) -> WebhookNotice {
        let data = json!({ "part": part, "instance": self.instance });
        WebhookNotice::new(event, &self.entropy.bytes::<16>(), self.clock.now(), data)
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
        let mut look = |up| state.look(up).map(|event| event.into_str());
        assert_eq!([false, false, true].map(&mut look), [None; 3]);
        assert_eq!([false, false, false, false].map(&mut look), [None, None, Some("dependency.down"), None]);
        assert_eq!([true, true, false, true].map(&mut look), [Some("dependency.up"), None, None, None]);
    }
}
