//! What is done now and then, whether or not requests come.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;

use super::Parts;
use crate::throttle::AnyStore;
use crate::web::services::Services;

/// Between two looks for expired logs and sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Between two looks whether the window store can decide again on sign-ins, where nobody comes to find out.
const RETURN_EVERY: Duration = Duration::from_secs(1);

/// Drops what has expired, a little at a time.
pub(super) fn upkeep(parts: Arc<Parts>, services: Data<Services>) -> tokio::task::JoinHandle<()> {
    const BATCH: u32 = 500;
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            if let AnyStore::Memory(store) = parts.limiter.store() {
                store.sweep();
            }
            parts.insurance.store().sweep();
            services.captchas.sweep();
            services.token_gate.sweep();
            while matches!(services.sessions.purge_expired(BATCH).await, Ok(purged) if purged == u64::from(BATCH))
            {
            }
            let live = services.live.snapshot();
            let guard = services.sign_in.guard();
            while matches!(guard.purge(&live.limits, BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {
            }
            while matches!(services.audit.purge(BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {}
            services.codes.watch_level(&live).await;
            while matches!(services.codes.give_up(BATCH).await, Ok(given_up) if given_up == u64::from(BATCH))
            {
            }
            while matches!(services.codes.purge(&live, BATCH).await, Ok(purged) if purged == u64::from(BATCH))
            {
            }
        }
    })
}

/// Returns to the window store after an outage.
pub(super) fn keep_whole(services: Data<Services>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(RETURN_EVERY).await;
            services.sign_in.guard().keep_whole(&services.live.snapshot().limits).await;
        }
    })
}
