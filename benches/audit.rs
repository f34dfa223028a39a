//! What a million refused sign-ins leave in the record of events, what recording costs them, and what it
//! costs clients that sign in meanwhile. How to run and read it: benches/README.md.
#![expect(clippy::disallowed_methods, reason = "how long a round takes is what is measured")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatehouse::accounts::*;
use gatehouse::audit::{self, Action, Audit, AuditEvent, EventRule, EventSubject, Outcome as Ended};
use gatehouse::clock::{Clock, Micros};
use gatehouse::config::{self, LiveSettings};
use gatehouse::db::Db;
use gatehouse::entropy::Entropy;
use gatehouse::foundation::Foundation;
use gatehouse::login::*;
use gatehouse::secret::MasterKey;
use gatehouse_limiter::{Limiter, MemoryStore};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sqlx::query_scalar;

const ATTEMPTS: u32 = 1_000_000;
/// Requests in flight at once.
const CALLERS: u32 = 8;
const BLOCKED_ACCOUNTS: u32 = 100;
const ADDRESSES: u32 = 1_000;
const SIGN_INS: usize = 200;
const FAILURES: u32 = 5;
const LIMITS: &str = "[limits.login-account]\nrules = [{ max = 5, window = \"1h\" }]\n\
    [limits.login-address]\nrules = [{ max = 5, window = \"1h\" }]\n";
const PASSWORD: &str = "correct horse battery staple";

struct House {
    sign_in: SignInService,
    audit: Audit,
    live: Arc<LiveSettings>,
    db: Db,
    folder: tempfile::TempDir,
}

fn main() {
    let metrics = PrometheusBuilder::new().install_recorder().expect("the only recorder");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        println!("audit: {ATTEMPTS} refused sign-ins, {CALLERS} at once, on SQLite");
        record_alone().await;
        flood(&metrics, "100 accounts from 1,000 addresses", |number| {
            (format!("blocked{}", number % BLOCKED_ACCOUNTS), number / BLOCKED_ACCOUNTS % ADDRESSES + 10)
        })
        .await;
        flood(&metrics, "100,000 names from one address", |number| (format!("name{}", number % 100_000), 1))
            .await;
    });
}

async fn house() -> House {
    let (folder, clock, key) =
        (tempfile::tempdir().expect("a folder"), Clock::System, MasterKey::from_bytes([1; 32]));
    let db = Db::connect(&format!("sqlite://{}/a.db", folder.path().display())).await.expect("a database");
    let kept = audit::Settings { retention: Duration::from_secs(86_400), max_rows: 10_000_000 };
    let foundation =
        Foundation { db: db.clone(), clock: clock.clone(), entropy: Entropy::Os, secrets: key.clone() };
    let audit = Audit::new(&foundation, kept);
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let hasher = PasswordHasher::new(
        HashSettings::default(),
        BreachedList::default(),
        &MasterKey::from_bytes([1; 32]),
        Clock::System,
        Entropy::Os,
    )
    .expect("fine settings");
    let memory = || MemoryStore::new(Clock::System);
    let subjects = || key.derive("throttle.subject");
    let limiter = Limiter::new(gatehouse::throttle::Store::Memory(memory()), subjects(), &Entropy::Os);
    let local_fallback = Limiter::new(memory(), subjects(), &Entropy::Os);
    let failures = Arc::new(FailureRecord::new(db.clone(), clock.clone()));
    let guard = Arc::new(LoginGuard::new(
        limiter,
        local_fallback,
        failures,
        accounts.clone(),
        audit.clone(),
        Default::default(),
    ));
    let login = Username::parse("alice").expect("a name");
    let hash = hasher.hash_new(PASSWORD, &login).await.expect("room").expect("a fine password");
    accounts.create(&login, &hash, Roles::default()).await.expect("the first of that name");
    let live = config::parse(Path::new("bench.toml"), LIMITS, &[]).expect("a fine file").live;
    House {
        sign_in: SignInService::new(guard, accounts, hasher, &Entropy::Os),
        audit,
        live: Arc::new(live),
        db,
        folder,
    }
}

impl House {
    async fn attempt(&self, login: &str, address: u32, password: &str) -> SignInOutcome {
        let bytes = address.to_be_bytes();
        let attempt = SignInAttempt {
            login: Username::parse(login).expect("a name"),
            password: gatehouse::login::Password::attempt(password).expect("a password"),
            origin: RequestOrigin {
                address: [&[4][..], &bytes].concat(),
                network: [&[4][..], &bytes[..3]].concat(),
            },
            devices: KnownDevices::default(),
            browser: None,
            denied: false,
            solved: false,
        };
        self.sign_in.attempt(&self.live, attempt).await.expect("the database answers")
    }

    async fn count(&self, sql: &'static str) -> i64 {
        let Db::Sqlite(pools) = &self.db else { unreachable!("its URL says SQLite") };
        query_scalar(sql).fetch_one(&pools.all).await.expect("a number")
    }

    fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.folder.path()).expect("the folder");
        files.map(|file| file.and_then(|file| file.metadata()).map_or(0, |data| data.len())).sum()
    }

    /// The median and the 99th percentile of sign-ins with the right password.
    async fn latency(&self) -> [Duration; 2] {
        let mut times = Vec::with_capacity(SIGN_INS);
        for _ in 0..SIGN_INS {
            let begun = Instant::now();
            let outcome = self.attempt("alice", 2, PASSWORD).await;
            assert!(matches!(outcome, SignInOutcome::SignedIn(_)), "{outcome:?}");
            times.push(begun.elapsed());
        }
        times.sort();
        [times[SIGN_INS / 2], times[SIGN_INS * 99 / 100]]
    }
}

/// `record` of a refusal alone: folded, and as the first of its kind.
async fn record_alone() {
    let house = house().await;
    let time = |fresh: bool, turns: u32| {
        let begun = Instant::now();
        for turn in 0..turns {
            let frees_at = Micros(i64::from(if fresh { turn } else { 0 }));
            let why = EventRule { limit: "login-account", rule: 0, frees_at, noted: false };
            let event = AuditEvent::new(house.audit.now(), Action::SignIn, Ended::Throttled);
            let address = Some(EventSubject::Address(&[4, 203, 0, 113, 7]));
            let account = Some(EventSubject::Login("blocked"));
            house.audit.record(AuditEvent { why: Some(why), account, address, ..event });
        }
        begun.elapsed().as_nanos() / u128::from(turns)
    };
    let (folded, fresh) = (time(false, ATTEMPTS), time(true, 10_000));
    println!("\nrecord: {folded} ns where an episode is open, {fresh} ns where one ends and one begins");
}

async fn flood(metrics: &PrometheusHandle, title: &str, whom: fn(u32) -> (String, u32)) {
    let house = Arc::new(house().await);
    let stopper = gatehouse::stop::StopSender::new();
    let writing = tokio::spawn(house.audit.clone().keep_writing(stopper.stop()));
    for number in 0..BLOCKED_ACCOUNTS * FAILURES {
        house.attempt(&format!("blocked{}", number % BLOCKED_ACCOUNTS), 100_000 + number, "wrong").await;
    }
    for number in 0..FAILURES {
        house.attempt(&format!("first{number}"), 1, "wrong").await;
    }
    house.audit.flush().await;
    let alone = house.latency().await;
    let (rows, bytes, dropped) = (house.count(ROWS).await, house.bytes(), fate(metrics, "dropped"));

    let over = Arc::new(AtomicBool::new(false));
    let signing_in = tokio::spawn({
        let (house, over) = (Arc::clone(&house), Arc::clone(&over));
        async move {
            let latency = house.latency().await;
            (latency, !over.load(Ordering::SeqCst))
        }
    });
    let begun = Instant::now();
    let callers = (0..CALLERS).map(|caller| {
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            for number in (caller..ATTEMPTS).step_by(CALLERS as usize) {
                let (login, address) = whom(number);
                let outcome = house.attempt(&login, address, "wrong").await;
                assert!(
                    matches!(outcome, SignInOutcome::Denied(gatehouse::denied::Denied::Throttled { .. })),
                    "{outcome:?}"
                );
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller does not panic");
    }
    let took = begun.elapsed();
    over.store(true, Ordering::SeqCst);
    let (meanwhile, all_meanwhile) = signing_in.await.expect("signing in does not panic");
    house.audit.flush().await;
    writing.abort();

    let counted = house.count(COUNTED).await;
    let left = house.count(ROWS).await - rows;
    println!("\n{title}");
    println!("  {} ns a refusal, {:.0} a second", took.as_nanos() / u128::from(ATTEMPTS), per_second(took));
    println!("  rows written   {left}");
    println!("  bytes written  {}", house.bytes().saturating_sub(bytes));
    println!("  counted        {counted} of {ATTEMPTS}");
    println!("  dropped        {}", fate(metrics, "dropped") - dropped);
    for (name, alone, meanwhile) in [("p50", alone[0], meanwhile[0]), ("p99", alone[1], meanwhile[1])] {
        let ratio = meanwhile.as_secs_f64() / alone.as_secs_f64();
        println!("  sign-in {name}    {alone:.1?} alone, {meanwhile:.1?} meanwhile: {ratio:.2}");
    }
    if !all_meanwhile {
        println!("  (the flood was over before the last sign-in)");
    }
}

const ROWS: &str = "SELECT COUNT(*) FROM events";
const COUNTED: &str = "SELECT CAST(SUM(count) AS BIGINT) FROM events WHERE outcome = 'throttled'";

fn per_second(took: Duration) -> f64 {
    f64::from(ATTEMPTS) / took.as_secs_f64()
}

fn fate(metrics: &PrometheusHandle, fate: &str) -> i64 {
    let lead = format!("gatehouse_audit_events_total{{fate=\"{fate}\"}} ");
    let text = metrics.render();
    let told = text.lines().find_map(|line| line.strip_prefix(&lead));
    told.map_or(0, |number| number.parse().expect("a number"))
}
