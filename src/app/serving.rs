//! The running server: it listens, runs background tasks, and shuts down.

use std::future::{Future, ready};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use actix_http::HttpService;
use actix_server::{Server, ServerBuilder, ServerHandle};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::AppConfig;
use actix_web::rt::net::TcpStream;
use actix_web::web::Data;
use gatehouse_limiter::RedisLink;
use metrics_exporter_prometheus::PrometheusHandle;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::JoinSet;

use super::clock_steps::ClockWatch;
use super::{AppParts, Application, StartError, purges};
use crate::config::BackendKind;
use crate::db::Db;
use crate::stop::{StopSender, StopSignal};
use crate::throttle::Store;
use crate::web::http::connections::{self, Bounds, Connections};
use crate::web::http::headers::SecurityHeaders;
use crate::web::http::pipeline::PacedStream;
use crate::web::http::services::{Health, Limits, Report, State};
use crate::web::http::{Services, WebContext};
use crate::{files, gate, routes};

/// How long requests in flight may take to end after SIGTERM.
const DRAIN: u64 = 15;
/// How many connections the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// How long messages that nobody waits for may take at shutdown: as long as a gateway may.
const LAST_MESSAGES: Duration = Duration::from_secs(10);
/// How long the database may take for the last events.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long open connections to the database may take to be closed.
const CLOSING: Duration = Duration::from_secs(2);

impl Application {
    /// Starts to listen. The returned server runs when it is awaited, and drains at SIGTERM.
    pub fn serve(self) -> Result<RunningServer, StartError> {
        let Self { services, edge, security, settings, parts, webhooks, logouts } = self;
        let failed = |reason| StartError::Bind { address: settings.server.bind, reason };
        let stopper = StopSender::new();
        let mut background = JoinSet::new();
        background.spawn(upkeep(Arc::clone(&parts), services.clone(), stopper.stop()));
        background.spawn(purges::run(Arc::clone(&parts), services.clone(), stopper.stop()));
        background.spawn(watch_others(Arc::clone(&parts), services.clone(), stopper.stop()));
        background.spawn(rebuild_lost_windows(Arc::clone(&parts), services.clone(), stopper.stop()));
        background.spawn(lapse_attempts(services.clone(), stopper.stop()));
        background.spawn(follow_imported(services.clone(), stopper.stop()));
        background.spawn(follow_breached(services.clone(), stopper.stop()));
        background.spawn(follow_origins(services.clone(), stopper.stop()));
        background.spawn(follow_session_changes(services.clone(), stopper.stop()));
        background.spawn(keep_token_keys(services.clone(), stopper.stop()));
        background.spawn(Arc::new(logouts).run(stopper.stop()));
        background.spawn(probe_database(parts.db.clone(), stopper.stop()));
        background.spawn(probe_gateways(services.clone(), stopper.stop()));
        background.spawn(deliver_mail(services.clone(), stopper.stop()));
        background.spawn(services.audit.clone().keep_writing(stopper.stop()));
        background.spawn(services.attacks.clone().keep_watch(stopper.stop()));
        if let Some(webhooks) = webhooks {
            webhooks.start(&mut background, &stopper);
        }
        let workers = settings.server.workers;
        let workers = workers.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
        let bounds = Bounds::within(files::raise_limit());
        let connections = Connections::new(bounds, edge.trusted.clone());
        // A row that its handler does not fit ends the start here.
        drop(routes::table());
        let listener = listen(settings.server.bind).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let ceiling = bounds.ceiling.div_ceil(workers);
        // `gatehouse serve` listens for the signals of the process from its start on.
        let builder = Server::build().workers(workers).max_concurrent_connections(ceiling).disable_signals();
        let app = (services.clone(), edge, security);
        let server = accept(builder, listener, Arc::clone(&connections), app).map_err(failed)?;
        let (tuning, stop) = (services.tuning.clone(), stopper.stop());
        background.spawn(async move { tuning.run(stop).await });
        background.spawn(watch(connections, Arc::clone(&parts), services.metrics.clone(), stopper.stop()));
        Ok(RunningServer { address, server, services, parts, stopper, background })
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart need not wait until the connections of before are forgotten.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

type AppData = (Data<Services>, Data<WebContext>, Data<SecurityHeaders>);

/// Accepts as actix-web's own server does, with a stream that hands over one request at a time.
fn accept(
    builder: ServerBuilder,
    listener: TcpListener,
    connections: Arc<Connections>,
    app: AppData,
) -> io::Result<Server> {
    let draining = builder.graceful_shutdown_signal();
    let serve = move || {
        let (services, edge, security) = app.clone();
        let (connections, draining) = (Arc::clone(&connections), draining.clone());
        let app = routes::app(services, edge, security).into_factory();
        let app = app.map_err(|error| error.error_response());
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let draining = draining.clone();
                async move { draining.notified().await }
            })
            .client_request_timeout(connections::HEAD_TIME)
            .client_disconnect_timeout(connections::LINGER_TIME)
            .keep_alive(connections::IDLE_TIME)
            .on_connect_ext(move |stream: &PacedStream, data| connections.accept(stream, data))
            .h1(map_config(app, |()| AppConfig::default()));
        fn_service(|stream: TcpStream| {
            let peer = stream.peer_addr().ok();
            ready(Ok((PacedStream::new(stream), peer)))
        })
        .and_then(http)
    };
    Ok(builder.shutdown_timeout(DRAIN).listen("gatehouse", listener, serve)?.run())
}

pub struct RunningServer {
    pub address: SocketAddr,
    server: Server,
    services: Data<Services>,
    parts: Arc<AppParts>,
    stopper: StopSender,
    background: JoinSet<()>,
}

impl RunningServer {
    pub fn handle(&self) -> ServerHandle {
        self.server.handle()
    }

    pub async fn run(self) -> std::io::Result<()> {
        let Self { server, services, parts, stopper, mut background, .. } = self;
        let ended = server.await;
        // First the background writers, so that nothing is written after the last events; the connections
        // last, while there is a runtime to close them on.
        drop(stopper);
        // Messages that were reported as sent are handed over, as far as the gateway answers.
        if tokio::time::timeout(LAST_MESSAGES, services.codes.drain()).await.is_err() {
            tracing::warn!("messages were still being sent at shutdown; their outcome is unknown");
        }
        let last_words = async {
            while background.join_next().await.is_some() {}
            services.audit.flush().await;
            services.tuning.leave().await;
        };
        if tokio::time::timeout(LAST_WORDS, last_words).await.is_err() {
            tracing::warn!("the last security events are lost: the database did not store them in time");
        }
        background.shutdown().await;
        let _ = tokio::time::timeout(CLOSING, parts.db.close()).await;
        ended
    }
}

/// Between two sweeps of what has expired in memory.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Between two checks whether the window store can decide on sign-ins again, if no attempt causes one, and whether it
/// still has what it decides by.
const RETURN_EVERY: Duration = Duration::from_secs(1);
/// Between two looks for other instances.
const OTHERS_EVERY: Duration = Duration::from_secs(2);
/// Between two looks for attempts that have lapsed.
const LAPSED_EVERY: Duration = Duration::from_secs(1);
/// Between two checks whether there are imported passwords.
const IMPORTED_EVERY: Duration = Duration::from_secs(5);

/// Between two looks for SMS gateways that may be asked whether they are back.
const GATEWAYS_EVERY: Duration = Duration::from_secs(5);

/// Between two looks for queued mails.
const MAIL_EVERY: Duration = Duration::from_millis(500);

/// Between two looks at the list of lost passwords, and at the files of origins.
const FILES_EVERY: Duration = Duration::from_secs(2);

/// Drops what has expired in memory.
pub(super) async fn upkeep(parts: Arc<AppParts>, services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(SWEEP_EVERY).await {
        if let Store::Memory(store) = parts.limiter.store() {
            store.sweep();
        }
        parts.local_fallback.store().sweep();
        services.captchas.sweep();
        services.token_gate.sweep();
        services.codes.watch_level(&services.live.snapshot()).await;
        services.codes.watch_costs(&services.live.snapshot()).await;
        services.codes.watch_mail().await;
    }
}

/// Hands queued mails over.
pub(super) async fn deliver_mail(services: Data<Services>, mut stop: StopSignal) {
    loop {
        // An outage is reported by the probes. What fails is tried again: the queue is in the database.
        let taken = services.codes.deliver_mail(&services.live.snapshot()).await;
        let pause = if taken.unwrap_or_default() > 0 { Duration::ZERO } else { MAIL_EVERY };
        if !stop.pause(pause).await {
            return;
        }
    }
}

/// Notices which SMS gateways are back in service.
pub(super) async fn probe_gateways(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(GATEWAYS_EVERY).await {
        services.codes.probe_gateways().await;
    }
}

/// Tells whenever others begin to run on the database of an instance that counts in its own process.
pub(super) async fn watch_others(parts: Arc<AppParts>, services: Data<Services>, mut stop: StopSignal) {
    let mut known = Vec::new();
    while parts.counts_alone() && stop.pause(OTHERS_EVERY).await {
        // An outage is reported by the probes.
        let Ok(others) = services.tuning.others().await else { continue };
        if !others.is_empty() && others != known {
            let others = others.join(", ");
            tracing::error!(%others, "store.url: memory: counts in this process alone, and other instances run on this database or wait to: each admits what a limit allows; stop them, or give all of them the same Redis");
        }
        known = others;
    }
}

/// Returns to the window store after an outage, and notices what it has lost.
pub(super) async fn rebuild_lost_windows(
    parts: Arc<AppParts>,
    services: Data<Services>,
    mut stop: StopSignal,
) {
    let mut clock = ClockWatch::default();
    while stop.pause(RETURN_EVERY).await {
        if let Store::Memory(store) = parts.limiter.store()
            && clock.was_set(&parts.clock)
        {
            store.doubt();
        }
        let live = services.live.snapshot();
        services.sign_in.guard().rebuild_if_lost(&live.limits).await;
        services.codes.forget_if_lost(&live).await;
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

/// Notices that `[login]` names another list of lost passwords, or that its file was replaced.
pub(super) async fn follow_breached(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(FILES_EVERY).await {
        let (list, login) = (services.hasher.breached().clone(), services.live.snapshot().login.clone());
        let _ = tokio::task::spawn_blocking(move || list.follow(&login)).await;
    }
}

/// Notices that `[origins]` names other files, or that one was replaced.
pub(super) async fn follow_origins(services: Data<Services>, mut stop: StopSignal) {
    while stop.pause(FILES_EVERY).await {
        let (origins, files) = (services.live.origins().clone(), services.live.snapshot().origins.files());
        let _ = tokio::task::spawn_blocking(move || origins.follow(&files)).await;
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

/// Keeps the keys that sign tokens. A key that is being made at shutdown is dropped.
pub(super) async fn keep_token_keys(services: Data<Services>, mut stop: StopSignal) {
    tokio::select! {
        () = stop.told() => {}
        () = services.token_keys.run() => {}
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

impl AppParts {
    fn counts_alone(&self) -> bool {
        matches!(self.limiter.store(), Store::Memory(_))
    }

    pub(super) fn store_is_up(&self) -> bool {
        self.link.as_ref().is_none_or(RedisLink::is_up)
    }
}

impl Health for AppParts {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async {
            let state = |up| if up { State::Up } else { State::Down };
            let backend = match self.live.backend() {
                BackendKind::File => None,
                BackendKind::Redis | BackendKind::Nacos => Some(state(self.live.backend_down().is_none())),
            };
            Report {
                database: state(self.db.is_up().await),
                store: state(self.store_is_up()),
                eviction: self
                    .link
                    .as_ref()
                    .and_then(RedisLink::eviction)
                    .map(|eviction| eviction.to_string()),
                store_clock_ahead: self.guard.store_clock_ahead().as_ref().map(Duration::as_secs),
                counts_alone: self.counts_alone(),
                limits: Limits {
                    version: self.live.version(),
                    refused: self.live.last_refused().is_some(),
                    backend,
                },
            }
        })
    }
}
