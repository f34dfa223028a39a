//! `gatehouse serve`

use gatehouse::app::{Application, StartError, World};
use gatehouse::clock::Clock;
use gatehouse::config::{Loaded, ReloadOutcome, Source, Watcher};
use gatehouse::entropy::Entropy;
use gatehouse::login::{Caller, CreateError, Password, Username};
use gatehouse::web::services::Services;
use metrics_exporter_prometheus::PrometheusBuilder;
use tracing_subscriber::EnvFilter;

use super::{Failure, block_on};

/// The name of the administrator that the first start makes.
const FIRST_ADMIN: &str = "admin";

pub fn run(source: Source, loaded: Loaded) -> Result<(), Failure> {
    // What becomes of the config centre is told where the limits are read; its client's own log is for
    // whoever asks for it.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,nacos_sdk=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    block_on(serve(source, loaded))?
}

async fn serve(source: Source, loaded: Loaded) -> Result<(), Failure> {
    let Loaded { settings, live } = loaded;
    let metrics = PrometheusBuilder::new().install_recorder().map_err(Failure::broken)?;
    let world = World::default();
    let watcher = Watcher::start(source, settings.clone(), live.clone(), Clock::System, count_reload)
        .map_err(Failure::broken)?;
    let application =
        Application::build(settings.clone(), live, world.clone(), metrics).await.map_err(start_failure)?;
    let services = application.services.clone();
    let serving = application.serve().map_err(start_failure)?;
    // Not before the port is had: who starts again after a failure would not be shown the password again.
    make_first_admin(&services, &world).await?;
    println!("Gatehouse listens on http://{} ({})", serving.address, settings.server.public_url);
    let reloading = tokio::spawn(reload_on_hangup(watcher));
    let ended = serving.run().await.map_err(Failure::broken);
    reloading.abort();
    ended
}

fn count_reload(outcome: &ReloadOutcome) {
    let outcome = match outcome {
        ReloadOutcome::Applied { .. } => "applied",
        ReloadOutcome::Unchanged { .. } => "unchanged",
        ReloadOutcome::Refused { .. } => "refused",
        ReloadOutcome::Down { .. } => "down",
    };
    metrics::counter!("gatehouse_config_reloads_total", "outcome" => outcome).increment(1);
}

fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Hash(_) | StartError::Key(_) | StartError::Gateway(_) => Failure::unusable(error),
        StartError::Database(_) | StartError::Store(_) | StartError::Bind { .. } => Failure::broken(error),
    }
}

async fn reload_on_hangup(watcher: Watcher) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    while hangups.recv().await.is_some() {
        watcher.reload_now();
    }
}

/// Where there is no administrator, one is made, and its one-time password is shown once: here, on the
/// terminal, and in no log.
async fn make_first_admin(services: &Services, world: &World) -> Result<(), Failure> {
    let Services { accounts, hasher, .. } = services;
    if accounts.has_admin().await.map_err(Failure::broken)? {
        return Ok(());
    }
    let login = Username::parse(FIRST_ADMIN).expect("a user name");
    let word = one_time_password(&world.entropy);
    let password = Password::attempt(&word).expect("a password");
    let hash = hasher.hash(&Caller::OPERATOR, &password).await.map_err(Failure::broken)?;
    match accounts.create_first_admin(&login, &hash).await {
        Ok(Some(_)) => println!(
            "There is no administrator yet, so one was made.\n  name:              {FIRST_ADMIN}\n  one-time password: {word}\nSign in with it and choose a password of your own. It is not shown again."
        ),
        Ok(None) => {}
        Err(CreateError::LoginTaken | CreateError::PhoneTaken) => println!(
            "There is no administrator, and the name {FIRST_ADMIN:?} is taken. Make one: gatehouse admin create NAME"
        ),
        Err(CreateError::Db(error)) => return Err(Failure::broken(error)),
    }
    Ok(())
}

/// 100 random bits in five groups, without letters that look alike (Crockford's base 32).
fn one_time_password(entropy: &Entropy) -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let bytes: [u8; 20] = entropy.bytes();
    let letters: Vec<char> = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    letters.chunks(4).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join("-")
}
