//! With `memory:`, this instance has to be the only one on its database: two would each admit what a limit allows. One that
//! starts beside another waits for it to go, and ends if it stays.

use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};

use super::{StartError, TimeAndEntropy, database_url, instance_name, open_key};
use crate::clock::Clock;
use crate::config::{DatabaseUrl, Settings, SqliteFile, StoreUrl};
use crate::db::{Db, DbError, RENEWED_WITHIN, WaitingInstance};

/// Long enough for a rolling restart, and for one that was killed to be known as gone.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Returns once no other instance runs on the database, if the store is in this process. Until then it answers that it is
/// not ready.
pub async fn wait_until_alone(settings: &Settings, world: &TimeAndEntropy) -> Result<(), StartError> {
    let is_shared = settings.database.url != DatabaseUrl::Sqlite(SqliteFile::Memory);
    if settings.store.url != StoreUrl::Memory || !is_shared {
        return Ok(());
    }
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    // A mistake that waiting does not mend.
    open_key(settings, &db, &world.entropy).await?;
    let us = db.announce(&instance_name(settings), &world.clock, &world.entropy).await?;
    let mut listening = None;
    let waited = wait(&db, &us, &world.clock, (LOOK_EVERY, PATIENCE), |others| {
        let others = others.join(", ");
        tracing::warn!(
            %others,
            "store.url: memory: counts in this process alone, and other instances run on this database; waiting up to a minute for them to end"
        );
        listening = not_ready(settings);
    })
    .await;
    if let Some(server) = listening {
        server.stop(false).await;
    }
    // One that goes on is listed under another id from now on.
    if !matches!(waited, Ok(Waited::Alone)) {
        db.withdraw(&us).await?;
    }
    db.close().await;
    match waited? {
        Waited::Alone => Ok(()),
        Waited::InVain(others) => Err(StartError::NotAlone(others.join(", "))),
    }
}

/// The instances that run on the database, for a command that must not run beside any. One of our host name and port
/// that was killed is waited for.
pub async fn that_run(settings: &Settings, db: &Db, clock: &Clock) -> Result<Vec<String>, DbError> {
    let us = WaitingInstance::unlisted(instance_name(settings), db.now(clock).await?);
    match wait(db, &us, clock, (LOOK_EVERY, RENEWED_WITHIN), |_| ()).await? {
        Waited::Alone => Ok(Vec::new()),
        Waited::InVain(others) => Ok(others),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Waited {
    Alone,
    /// These are still there.
    InVain(Vec<String>),
}

async fn wait(
    db: &Db,
    us: &WaitingInstance,
    clock: &Clock,
    (look_every, patience): (Duration, Duration),
    mut first: impl FnMut(&[String]),
) -> Result<Waited, DbError> {
    let mut looks = 0_u32;
    loop {
        let now = db.now(clock).await?;
        let others = db.others_than(us, now).await?;
        if others.is_empty() {
            return Ok(Waited::Alone);
        }
        if now.since(us.since) >= patience {
            return Ok(Waited::InVain(others));
        }
        if looks == 0 {
            first(&others);
        }
        looks += 1;
        db.still_waits(us, now).await?;
        tokio::time::sleep(look_every).await;
    }
}

/// Answers at the address to be, so that nothing is sent here and nobody takes it for dead. None if it cannot: the instance
/// that is waited for may listen there.
fn not_ready(settings: &Settings) -> Option<ServerHandle> {
    let not_ready = || async {
        HttpResponse::ServiceUnavailable()
            .insert_header(("retry-after", "10"))
            .content_type("text/plain")
            .body("another instance runs on this database\n")
    };
    let app = move || {
        App::new().route("/healthz", web::get().to(|| async { "ok\n" })).default_service(web::to(not_ready))
    };
    let server = HttpServer::new(app).workers(1).disable_signals().bind(settings.server.bind).ok()?.run();
    let handle = server.handle();
    tokio::spawn(server);
    Some(handle)
}

#[cfg(test)]
mod tests {
    use sqlx::query;

    use super::*;
    use crate::clock::Micros;
    use crate::db::execute;
    use crate::entropy::Entropy;

    struct SecondStart {
        db: Db,
        clock: Clock,
    }

    impl SecondStart {
        async fn new() -> Self {
            let db = Db::connect("sqlite::memory:").await.unwrap();
            Self { db, clock: Clock::manual(Micros::from_seconds(1_000_000)) }
        }

        async fn announce(&self, host: &str) -> WaitingInstance {
            self.db.announce(host, &self.clock, &Entropy::Os).await.unwrap()
        }

        /// One that runs, and was seen that long ago.
        async fn runs(&self, host: &str, ago: Duration) {
            self.was_seen(host, self.clock.now().minus(ago)).await;
        }

        /// One that gives signs of life now and in a minute.
        async fn stays(&self, host: &str) {
            self.was_seen(host, self.clock.now()).await;
            self.was_seen(host, self.clock.now().plus(MINUTE)).await;
        }

        async fn was_seen(&self, host: &str, at: Micros) {
            const SQL: &str = "INSERT INTO instances (id, host, started_at, seen_at, version, applied_at)
                VALUES ($1, $2, 0, $3, 'some', 0)";
            let id = format!("{host} {}", at.0);
            execute!(&self.db => query(SQL).bind(id).bind(host).bind(at.0)).unwrap();
        }

        async fn never_waits(&self, us: &WaitingInstance) -> Waited {
            wait(&self.db, us, &self.clock, (Duration::ZERO, PATIENCE), |_| panic!("it waits")).await.unwrap()
        }

        /// Waits as if this much passed before the second look.
        async fn wait(&self, us: &WaitingInstance, passes: Duration) -> Waited {
            wait(&self.db, us, &self.clock, (Duration::ZERO, PATIENCE), |_| self.clock.advance(passes))
                .await
                .unwrap()
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn one_that_stays_is_waited_for_for_a_minute() {
        let rig = SecondStart::new().await;
        let us = rig.announce("us:80").await;
        rig.stays("them:80").await;
        assert_eq!(rig.wait(&us, MINUTE).await, Waited::InVain(vec!["them:80".to_owned()]));
    }

    #[tokio::test]
    async fn one_that_was_killed_is_gone_after_a_while_without_a_sign_of_life() {
        let rig = SecondStart::new().await;
        rig.runs("them:80", Duration::from_secs(5)).await;
        let us = rig.announce("us:80").await;
        assert_eq!(rig.wait(&us, Duration::from_secs(15)).await, Waited::Alone);
    }

    #[tokio::test]
    async fn the_process_before_is_gone_in_seconds_and_another_machine_of_the_same_name_is_not() {
        let rig = SecondStart::new().await;
        rig.runs("us:80", Duration::from_secs(3)).await;
        let us = rig.announce("us:80").await;
        assert_eq!(rig.wait(&us, Duration::from_secs(7)).await, Waited::Alone);
        let rig = SecondStart::new().await;
        let us = rig.announce("us:80").await;
        rig.stays("us:80").await;
        assert_eq!(rig.wait(&us, MINUTE).await, Waited::InVain(vec!["us:80".to_owned()]));
    }

    #[tokio::test]
    async fn a_row_of_a_clock_that_was_wrong_is_no_instance() {
        let rig = SecondStart::new().await;
        rig.was_seen("them:80", rig.clock.now().plus(MINUTE * 1_000)).await;
        let us = rig.announce("us:80").await;
        assert_eq!(rig.never_waits(&us).await, Waited::Alone);
        assert_eq!(
            rig.db.beside("", "", rig.clock.now()).await.unwrap(),
            ["us:80"],
            "nor for those that run"
        );
    }

    #[tokio::test]
    async fn of_two_that_start_at_once_the_earlier_goes_on() {
        let rig = SecondStart::new().await;
        let first = rig.announce("one:80").await;
        rig.clock.advance(Duration::from_millis(1));
        let second = rig.announce("two:80").await;
        assert_eq!(rig.never_waits(&first).await, Waited::Alone);
        let told = Waited::InVain(vec!["one:80".to_owned()]);
        // The first runs by the time that the minute is over.
        rig.was_seen("one:80", rig.clock.now().plus(MINUTE)).await;
        assert_eq!(rig.wait(&second, MINUTE).await, told);
    }
}
