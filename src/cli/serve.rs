//! `gatehouse serve`, and telemetry that is exported while it runs, in builds that can.

use gatehouse::accounts::{CreateError, Username};
#[cfg(feature = "otlp")]
use gatehouse::app::instance_name;
use gatehouse::app::{Application, RunningServer, StartError, TimeAndEntropy, wait_until_alone};
use gatehouse::clock::Clock;
use gatehouse::config::{ConfigSource, ConfigWatcher, LoadedConfig, ReloadOutcome};
use gatehouse::entropy::Entropy;
use gatehouse::login::{HashCaller, Password};
#[cfg(feature = "otlp")]
use gatehouse::otlp::Otlp;
use gatehouse::telemetry;
use gatehouse::web::http::services::Services;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::log::{LogWriter, say, tell};
use super::{CliFailure, block_on, database_failure};
#[cfg(not(feature = "otlp"))]
use no_export::Otlp;

/// The name of the administrator that the first start creates.
const FIRST_ADMIN: &str = "admin";

pub fn run(source: ConfigSource, loaded: LoadedConfig) -> Result<(), CliFailure> {
    #[cfg(feature = "otlp")]
    let opened = {
        let settings = &loaded.settings;
        Otlp::open(&settings.telemetry, instance_name(settings), Clock::System)
            .map_err(CliFailure::unusable)?
    };
    #[cfg(not(feature = "otlp"))]
    let opened: Option<(Otlp, super::log::SpanLayer)> = None;
    let (export, spans) = opened.unzip();
    let _log = LogWriter::start(spans);
    block_on(serve(source, loaded, export))?
}

async fn serve(source: ConfigSource, loaded: LoadedConfig, export: Option<Otlp>) -> Result<(), CliFailure> {
    let LoadedConfig { warnings, settings, live } = loaded;
    for warning in warnings {
        tracing::warn!(%warning, "the configuration has what to mend");
    }
    if let Some(mismatch) = settings.server.url_mismatch() {
        tracing::warn!("{mismatch}");
    }
    let metrics = telemetry::builder().install_recorder().map_err(CliFailure::broken)?;
    telemetry::describe();
    telemetry::register_rare();
    let export = export.map(|export| export.start(metrics.clone()));
    let world = TimeAndEntropy::default();
    let watcher = ConfigWatcher::start(source, settings.clone(), live.clone(), Clock::System, count_reload)
        .map_err(CliFailure::broken)?;
    let reloading = tokio::spawn(reload_on_hangup(watcher));
    let starting = async {
        wait_until_alone(&settings, &world).await.map_err(start_failure)?;
        let application = Application::build(settings.clone(), live, world.clone(), metrics)
            .await
            .map_err(start_failure)?;
        let services = application.services.clone();
        let serving = application.serve().map_err(start_failure)?;
        // Only after the port is bound: a restart after a failure would not show the password again.
        make_first_admin(&services, &world).await?;
        tell!("Gatehouse listens on http://{} ({})", serving.address, settings.server.public_url);
        Ok(serving)
    };
    let mut stop = StopSignals::listen().map_err(CliFailure::broken)?;
    let ended = tokio::select! {
        biased;
        _ = stop.told() => {
            tracing::info!("told to stop before it served");
            Ok(())
        }
        started = starting => match started {
            Ok(serving) => run_until(&mut stop, serving).await,
            Err(failure) => Err(failure),
        },
    };
    if let Some(export) = export {
        export.finish().await;
    }
    // Waits for the watcher's thread, which may still have something to log.
    reloading.abort();
    let _ = reloading.await;
    ended
}

fn count_reload(outcome: &ReloadOutcome) {
    let outcome: &'static str = outcome.into();
    metrics::counter!("gatehouse_config_reloads_total", "outcome" => outcome).increment(1);
}

fn start_failure(error: StartError) -> CliFailure {
    match error {
        StartError::Hash(_)
        | StartError::Key(_)
        | StartError::OtherKey { .. }
        | StartError::Gateway(_)
        | StartError::Mail(_)
        | StartError::StoreAuthorities(_)
        | StartError::Webhook(_)
        | StartError::Hook(_) => CliFailure::unusable(error),
        StartError::Database(error) => database_failure(error),
        StartError::Store(_)
        | StartError::Db(_)
        | StartError::NotAlone(_)
        | StartError::StoreEvicts(_)
        | StartError::Client(_)
        | StartError::Bind { .. } => CliFailure::broken(error),
    }
}

/// The signals that end the process. It listens for them from the start on: the first process of a container is ended by none
/// that it does not handle.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl StopSignals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Returns at the next signal: true if requests that are being answered are to be finished first.
    async fn told(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => false,
            _ = self.quit.recv() => false,
        }
    }
}

async fn run_until(stop: &mut StopSignals, serving: RunningServer) -> Result<(), CliFailure> {
    let handle = serving.handle();
    let mut running = Box::pin(serving.run());
    loop {
        tokio::select! {
            ended = &mut running => return ended.map_err(CliFailure::broken),
            // The server is told at once; `running` ends when it has stopped.
            gracefully = stop.told() => drop(handle.stop(gracefully)),
        }
    }
}

async fn reload_on_hangup(watcher: ConfigWatcher) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    while hangups.recv().await.is_some() {
        watcher.reload_now();
    }
}

/// If there is no administrator, creates one and prints its one-time password once: on the terminal, never in
/// a log.
async fn make_first_admin(services: &Services, world: &TimeAndEntropy) -> Result<(), CliFailure> {
    let Services { accounts, hasher, .. } = services;
    if accounts.has_admin().await.map_err(CliFailure::broken)? {
        return Ok(());
    }
    let login = Username::parse(FIRST_ADMIN).expect("a user name");
    let word = one_time_password(&world.entropy);
    let password = Password::attempt(&word).expect("a password");
    if accounts.find(&login).await.map_err(CliFailure::broken)?.is_some() {
        tell!(
            "There is no administrator, and the name {FIRST_ADMIN:?} is taken. Create one: gatehouse admin create NAME"
        );
        return Ok(());
    }
    if goes_to_journal() {
        tracing::error!(
            "no administrator was created: standard output goes to the journal, where a one-time password would stay; run gatehouse admin create NAME"
        );
        return Ok(());
    }
    let hash = hasher.hash(&HashCaller::OPERATOR, &password).await.map_err(CliFailure::broken)?;
    // Printed before the account exists: there must not be an only password that nobody has seen.
    let address = format!("{}/admin", services.public_url.trim_end_matches('/'));
    let shown = say(&format!(
        "There is no administrator yet, so one is created.\n  sign in at:        {address}\n  username:          {FIRST_ADMIN}\n  one-time password: {word}\nThen choose a password of your own: the form asks for this one once more. It is not shown again."
    ));
    if let Err(reason) = shown {
        tracing::error!(
            %reason,
            "no administrator was created: standard output cannot be written, so the one-time password cannot be shown; start with a writable standard output, or run gatehouse admin create NAME"
        );
        return Ok(());
    }
    match accounts.create_first_admin(&login, &hash).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) | Err(CreateError::LoginTaken | CreateError::PhoneTaken | CreateError::EmailTaken) => {
            tell!("Another instance created it in the meantime: use the password that was shown there.");
            Ok(())
        }
        Err(CreateError::Db(error)) => Err(CliFailure::broken(error)),
    }
}

/// Whether systemd writes standard output to its journal: it names device and inode of the stream
/// (systemd.exec(5), `JOURNAL_STREAM`), since a program that it started may have redirected its output.
fn goes_to_journal() -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(journal) = std::env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/1")
        .is_ok_and(|output| journal == format!("{}:{}", output.dev(), output.ino()))
}

/// 100 random bits in five groups, without letters that look alike (Crockford's base 32).
fn one_time_password(entropy: &Entropy) -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let bytes: [u8; 20] = entropy.bytes();
    let letters: Vec<char> = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    letters.chunks(4).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join("-")
}

/// Builds that cannot export: the configuration refuses a receiver.
#[cfg(not(feature = "otlp"))]
mod no_export {
    use metrics_exporter_prometheus::PrometheusHandle;

    pub enum Otlp {}

    impl Otlp {
        pub fn start(self, _: PrometheusHandle) -> Self {
            self
        }

        pub async fn finish(self) {}
    }
}
