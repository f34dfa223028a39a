//! Webhooks: tells other programs what operators want to know at once, as Standard Webhooks
//! (<https://www.standardwebhooks.com>) describe it.
//!
//! Every instance reads what is new from the record (`notices.rs`) and writes it into one table, once for each
//! receiver (`deliveries.rs`); whichever instance takes a row posts it (`endpoint.rs`). Only what concerns this
//! instance alone, a store or database that does not answer, does not come from the record
//! (`dependencies.rs`), and is posted from memory if the database is the one that is out.
//!
//! The other way round, `incoming.rs` tells whether a call is signed by somebody whose hooks are taken.

mod deliveries;
mod dependencies;
mod endpoint;
mod incoming;
mod notices;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tokio::task::JoinSet;

use crate::clock::{Clock, Micros};
use crate::config::WebhookSettings;
use crate::db::DbError;
use crate::stop::{StopSender, StopSignal};

use deliveries::{DeliveryTable, DueDelivery};
use dependencies::DependencyWatch;
pub use endpoint::EndpointError;
use endpoint::{PostResult, WebhookEndpoint};
pub use incoming::{HookCall, HookSecretError, SignedHooks};
pub use notices::NoticeSources;
use notices::WebhookNotice;

pub use dependencies::DependencyParts;

/// Between two looks for what is new.
const COLLECT_EVERY: Duration = Duration::from_secs(2);
/// Between two looks for what is due.
const POST_EVERY: Duration = Duration::from_secs(1);
/// How far back a look goes: what happened shortly before a start is still told.
const LOOK_BACK: Duration = Duration::from_secs(60 * 60);
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
/// Notices that wait in memory for a database that is out.
const MOST_UNSAVED: usize = 16;

pub struct Webhooks {
    endpoints: Vec<WebhookEndpoint>,
    sources: NoticeSources,
    table: DeliveryTable,
    clock: Clock,
    watch: DependencyWatch,
}

/// A notice that could not be written down yet.
struct UnsavedNotice {
    notice: WebhookNotice,
    /// Receivers that do not have it.
    missing: Vec<usize>,
    attempts: usize,
    next_at: Micros,
}

impl Webhooks {
    /// Reads the secrets. `None` if there is no receiver.
    pub fn open(
        settings: &[WebhookSettings],
        sources: NoticeSources,
        dependencies: DependencyParts,
    ) -> Result<Option<Self>, EndpointError> {
        let opened =
            settings.iter().enumerate().map(|(index, webhook)| WebhookEndpoint::open(index, webhook));
        let endpoints = opened.collect::<Result<Vec<_>, _>>()?;
        let clock = dependencies.clock.clone();
        let table = DeliveryTable::new(dependencies.db.clone(), clock.clone());
        let watch = DependencyWatch::new(dependencies);
        let webhooks = Self { endpoints, sources, table, clock, watch };
        Ok((!webhooks.endpoints.is_empty()).then_some(webhooks))
    }

    /// Runs until it is stopped: one task that looks for news, and one for each receiver, so that one that is
    /// slow delays no other.
    pub fn start(self, tasks: &mut JoinSet<()>, stopper: &StopSender) {
        let shared = Arc::new(self);
        for index in 0..shared.endpoints.len() {
            let (webhooks, stop) = (Arc::clone(&shared), stopper.stop());
            tasks.spawn(async move { webhooks.post_due(&webhooks.endpoints[index], stop).await });
        }
        let stop = stopper.stop();
        tasks.spawn(async move { shared.collect(stop).await });
    }

    async fn collect(&self, mut stop: StopSignal) {
        let (mut unsaved, mut failing) = (VecDeque::new(), false);
        while stop.pause(COLLECT_EVERY).await {
            let round = async {
                self.tell_dependencies(&mut unsaved).await;
                self.collect_once().await
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

    /// Writes down what is new, once for each receiver that wants it.
    async fn collect_once(&self) -> Result<(), DbError> {
        let now = self.table.now().await?;
        for notice in self.sources.since(now.minus(LOOK_BACK)).await? {
            for endpoint in self.wanting(&notice) {
                self.table.add(&notice, self.endpoints[endpoint].id(), now).await?;
            }
        }
        self.table.purge(now).await
    }

    fn wanting(&self, notice: &WebhookNotice) -> Vec<usize> {
        (0..self.endpoints.len()).filter(|index| self.endpoints[*index].wants(notice.event)).collect()
    }

    /// Says what went out or came back. What cannot be written down is posted from here.
    async fn tell_dependencies(&self, unsaved: &mut VecDeque<UnsavedNotice>) {
        for notice in self.watch.changes().await {
            let missing = self.wanting(&notice);
            let next_at = self.clock.now();
            unsaved.push_back(UnsavedNotice { notice, missing, attempts: 0, next_at });
        }
        while unsaved.len() > MOST_UNSAVED {
            unsaved.pop_front();
        }
        for entry in unsaved.iter_mut() {
            if self.save(entry).await.is_ok() {
                entry.missing.clear();
            } else if entry.next_at <= self.clock.now() {
                self.post_unsaved(entry).await;
            }
        }
        unsaved.retain(|entry| !entry.missing.is_empty());
    }

    async fn save(&self, entry: &UnsavedNotice) -> Result<(), DbError> {
        let now = self.table.now().await?;
        for index in &entry.missing {
            self.table.add(&entry.notice, self.endpoints[*index].id(), now).await?;
        }
        Ok(())
    }

    async fn post_unsaved(&self, entry: &mut UnsavedNotice) {
        let mut missing = Vec::new();
        for index in std::mem::take(&mut entry.missing) {
            let posted =
                self.endpoints[index].post(&entry.notice.id, &entry.notice.body(), self.clock.now()).await;
            count(&posted);
            if matches!(posted, PostResult::Failed { .. }) {
                missing.push(index);
            }
        }
        entry.next_at = self.clock.now().plus(RETRIES[entry.attempts.min(RETRIES.len() - 1)]);
        (entry.missing, entry.attempts) = (missing, entry.attempts + 1);
    }

    async fn post_due(&self, endpoint: &WebhookEndpoint, mut stop: StopSignal) {
        loop {
            let posted = tokio::select! {
                () = stop.told() => return,
                posted = self.post_next(endpoint) => posted,
            };
            // A database that does not answer is told by the task that looks for news.
            if !posted.unwrap_or(false) && !stop.pause(POST_EVERY).await {
                return;
            }
        }
    }

    /// Posts what is due; false if nothing is.
    async fn post_next(&self, endpoint: &WebhookEndpoint) -> Result<bool, DbError> {
        let Some(due) = self.table.take(endpoint.id()).await? else { return Ok(false) };
        let posted = endpoint.post(&due.notice, &due.body, self.clock.now()).await;
        count(&posted);
        self.settle(endpoint, &due, posted).await?;
        Ok(true)
    }

    async fn settle(
        &self,
        endpoint: &WebhookEndpoint,
        due: &DueDelivery,
        posted: PostResult,
    ) -> Result<(), DbError> {
        let PostResult::Failed { reason } = posted else {
            if posted == PostResult::Gone {
                tracing::warn!(webhook = %endpoint, "webhooks: the receiver is gone (410); remove it from the configuration");
            }
            return self.table.done(due, endpoint.id()).await;
        };
        match usize::try_from(due.attempts - 1).ok().and_then(|failed| RETRIES.get(failed)) {
            Some(wait) => {
                tracing::warn!(webhook = %endpoint, attempt = due.attempts, reason, "webhooks: not delivered, will be tried again");
                self.table.try_again(due, endpoint.id(), *wait).await
            }
            None => {
                tracing::error!(webhook = %endpoint, notice = due.notice, reason, "webhooks: not delivered, given up");
                self.table.done(due, endpoint.id()).await
            }
        }
    }
}

fn count(posted: &PostResult) {
    let result = match posted {
        PostResult::Delivered => "delivered",
        PostResult::Gone => "gone",
        PostResult::Failed { .. } => "failed",
    };
    counter!("gatehouse_webhook_attempts_total", "result" => result).increment(1);
}
