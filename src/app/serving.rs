//! The running server: it listens, runs background tasks, and shuts down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpServer;
use actix_web::dev::{Server, ServerHandle};
use tokio::task::JoinSet;

use super::{Application, StartError, upkeep};
use crate::audit::Audit;
use crate::db::Db;
use crate::sms::SmsCodes;
use crate::stop::StopSender;
use crate::tuning::Tuning;
use crate::web::kit::connections::{self, Bounds, Connections};
use crate::{files, routes};

/// How long requests in flight may take to end after SIGTERM.
const DRAIN: u64 = 15;
/// How long messages that nobody waits for may take at shutdown: as long as a gateway may.
const LAST_MESSAGES: Duration = Duration::from_secs(10);
/// How long the database may take for the last events.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long open connections to the database may take to be closed.
const CLOSING: Duration = Duration::from_secs(2);

impl Application {
    /// Starts to listen. The returned server runs when it is awaited, and drains at SIGTERM.
    pub fn serve(self) -> Result<RunningServer, StartError> {
        let Self { services, edge, security, settings, parts, webhooks } = self;
        let metrics = services.metrics.clone();
        let failed = |reason| StartError::Bind { address: settings.server.bind, reason };
        let (tuning, audit, codes) =
            (services.tuning.clone(), services.audit.clone(), services.codes.clone());
        let db = parts.db.clone();
        let stopper = StopSender::new();
        let mut background = JoinSet::new();
        background.spawn(upkeep::upkeep(Arc::clone(&parts), services.clone(), stopper.stop()));
        background.spawn(upkeep::rebuild_lost_windows(services.clone(), stopper.stop()));
        background.spawn(upkeep::lapse_attempts(services.clone(), stopper.stop()));
        background.spawn(upkeep::follow_imported(services.clone(), stopper.stop()));
        background.spawn(upkeep::follow_session_changes(services.clone(), stopper.stop()));
        background.spawn(upkeep::probe_database(db.clone(), stopper.stop()));
        background.spawn(audit.clone().keep_writing(stopper.stop()));
        background.spawn(services.attacks.clone().keep_watch(stopper.stop()));
        if let Some(webhooks) = webhooks {
            webhooks.start(&mut background, &stopper);
        }
        let workers = settings.server.workers.unwrap_or_else(default_workers);
        let bounds = Bounds::within(files::raise_limit());
        let connections = Connections::new(bounds, edge.trusted.clone());
        let accepting = Arc::clone(&connections);
        let server = HttpServer::new(move || routes::app(services.clone(), edge.clone(), security.clone()))
            .workers(workers)
            .max_connections(bounds.ceiling.div_ceil(workers))
            .client_request_timeout(connections::HEAD_TIME)
            .keep_alive(connections::IDLE_TIME)
            .on_connect(move |stream, data| accepting.accept(stream, data))
            .shutdown_timeout(DRAIN)
            .bind(settings.server.bind)
            .map_err(failed)?;
        let address = server.addrs().first().copied().unwrap_or(settings.server.bind);
        let (kept_up, stop) = (tuning.clone(), stopper.stop());
        background.spawn(async move { kept_up.run(stop).await });
        background.spawn(upkeep::watch(connections, parts, metrics, stopper.stop()));
        Ok(RunningServer { address, server: server.run(), audit, codes, tuning, db, stopper, background })
    }
}

/// A server that listens.
pub struct RunningServer {
    pub address: SocketAddr,
    server: Server,
    audit: Audit,
    codes: SmsCodes,
    tuning: Tuning,
    db: Db,
    stopper: StopSender,
    background: JoinSet<()>,
}

impl RunningServer {
    pub fn handle(&self) -> ServerHandle {
        self.server.handle()
    }

    /// Runs until it is stopped.
    pub async fn run(self) -> std::io::Result<()> {
        let Self { server, audit, codes, tuning, db, stopper, mut background, .. } = self;
        let ended = server.await;
        // First the background writers, so that nothing is written after the last events; the connections
        // last, while there is a runtime to close them on.
        drop(stopper);
        // Messages that were reported as sent are handed over, as far as the gateway answers.
        if tokio::time::timeout(LAST_MESSAGES, codes.drain()).await.is_err() {
            tracing::warn!("messages were still being sent at shutdown; their outcome is unknown");
        }
        let last_words = async {
            while background.join_next().await.is_some() {}
            audit.flush().await;
            tuning.leave().await;
        };
        if tokio::time::timeout(LAST_WORDS, last_words).await.is_err() {
            tracing::warn!("the last security events are lost: the database did not store them in time");
        }
        background.shutdown().await;
        let _ = tokio::time::timeout(CLOSING, db.close()).await;
        ended
    }
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
