//! Periodic work that does not depend on requests.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use metrics_exporter_prometheus::PrometheusHandle;

use super::AppParts;
use crate::db::Db;
use crate::gate;
use crate::stop::StopSignal;
use crate::throttle::AnyStore;
use crate::web::kit::connections::{self, Connections};
use crate::web::kit::services::Services;

/// Between two sweeps of expired logs and sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Between two checks whether the window store can decide on sign-ins again, if no attempt causes one.
const RETURN_EVERY: Duration = Duration::from_secs(1);
/// Between two looks for attempts that have lapsed.
const LAPSED_EVERY: Duration = Duration::from_secs(1);
/// Between two checks whether there are imported passwords.
const IMPORTED_EVERY: Duration = Duration::from_secs(5);

/// Deletes what has expired, a little at a time.
pub(super) async fn upkeep(parts: Arc<AppParts>, services: Data<Services>, mut stop: StopSignal) {
    const BATCH: u32 = 500;
    while stop.pause(SWEEP_EVERY).await {
        if let AnyStore::Memory(store) = parts.limiter.store() {
            store.sweep();
        }
        parts.insurance.store().sweep();
        services.captchas.sweep();
        services.token_gate.sweep();
        while matches!(services.sessions.purge_expired(BATCH).await, Ok(purged) if purged == u64::from(BATCH))
        {
        }
        while matches!(services.sessions.purge_forms(BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {
        }
        while matches!(services.gate.purge(BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {}
        // What could not be deleted is tried again next time.
        let _ = services.accounts.purge_device_failures().await;
        while matches!(services.policy.purge(BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {}
        let live = services.live.snapshot();
        let guard = services.sign_in.guard();
        while matches!(guard.purge(&live.limits, BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {}
        while matches!(services.audit.purge(BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {}
        services.codes.watch_level(&live).await;
        while matches!(services.codes.give_up(BATCH).await, Ok(given_up) if given_up == u64::from(BATCH)) {}
        while matches!(services.codes.purge(&live, BATCH).await, Ok(purged) if purged == u64::from(BATCH)) {}
    }
}

/// Returns to the window store after an outage.
pub(super) async fn rebuild_lost_windows(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(RETURN_EVERY).await {
        services.sign_in.guard().rebuild_if_lost(&services.live.snapshot().limits).await;
    }
}

/// Ends the attempts at other programs' logins about which nobody has said anything.
pub(super) async fn lapse_attempts(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(LAPSED_EVERY).await {
        services.attempts.lapse(&services.live.snapshot()).await;
    }
}

/// Notices that accounts were imported, and that the last of their passwords was replaced.
pub(super) async fn follow_imported(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(IMPORTED_EVERY).await {
        // An outage is reported by the probes.
        let _ = services.sign_in.follow_imported().await;
    }
}

/// Follows the changes of sessions, while there are applications that sessions are used at.
pub(super) async fn follow_session_changes(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(gate::READ_EVERY).await {
        if !services.live.snapshot().apps.is_empty() {
            // An outage is reported by the probes, and nobody is let in for longer than a few seconds.
            let _ = services.gate.follow_changes().await;
        }
    }
}

/// Probes the database. A probe in progress at shutdown is dropped.
pub(super) async fn probe_database(db: Db, mut stop: StopSignal) {
    tokio::select! {
        () = stop.told() => {}
        () = db.run_probes() => {}
    }
}

/// Closes idle connections. Also runs the upkeep of the metrics, which would pile up if nobody reads them.
pub(super) async fn watch(
    connections: Arc<Connections>,
    parts: Arc<AppParts>,
    metrics: PrometheusHandle,
    mut stop: StopSignal,
) {
    let store_up = metrics::gauge!("gatehouse_store_up");
    loop {
        // Before the first pause too: a gauge that nobody has set says 0, which is an outage.
        store_up.set(if parts.store_is_up() { 1.0 } else { 0.0 });
        if !stop.pause(connections::SWEEP_EVERY).await {
            return;
        }
        connections.sweep();
        metrics.run_upkeep();
    }
}
