//! Messages per second through the code service, admitted and refused, compared with their bounds: two write
//! transactions of SQLite, and one decision of the limiter. How to run and read it: benches/README.md.

mod support;

use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gatehouse::accounts::{Accounts, Emails};
use gatehouse::audit::{self, Audit};
use gatehouse::clock::Clock;
use gatehouse::codes::*;
use gatehouse::config::{self, LiveSettings};
use gatehouse::db::{Db, Tx};
use gatehouse::entropy::Entropy;
use gatehouse::foundation::Foundation;
use gatehouse::mail::{MailQueue, MailSeal, MailTransport, Mailer};
use gatehouse::message::*;
use gatehouse::secret::MasterKey;
use gatehouse::sms::*;
use gatehouse::throttle::Limiter;
use gatehouse_limiter::{HitDecision, MemoryStore, RedisStore};
use support::contest::{self, Contest, Place};
use support::cores;
use support::harness::redis::RedisServer;
use support::redis::{drive, runtime};
use tokio::runtime::Runtime;

const CALLERS: u64 = 64;
const ADMITTED: u64 = 1_280;
const REFUSED: u64 = 32_000;
const ROUNDS: usize = 7;
/// Numbers whose hour is used up.
const NUMBERS: u64 = 1_000;
/// Numbers that nothing else asks for.
const LONG_AGO: u64 = 50_000_000;
/// Codes have come back from each of them, a day apart.
const RANGES: u64 = 100;
const REDIS_TIMEOUT: Duration = Duration::from_secs(5);

/// Every budget has room for the whole bench. The brake judges each message, and does not trip.
const ROOMY: &str = r#"
[sms.brake]
min_sent = 1000000
min_sent_range = 1000000
min_solved_range = 1000000
[limits.sms-phone]
rules = [{ max = 1, window = "1m" }, { max = 5, window = "1h" }, { max = 10, window = "24h" }]
[limits.sms-address]
rules = [{ max = 1000000, window = "1h" }]
[limits.sms-network]
rules = [{ max = 1000000, window = "1h" }]
[limits.sms-prefix]
rules = [{ max = 1000000, window = "24h" }]
[limits.sms-total]
rules = [{ max = 1000000, window = "24h" }]
"#;

fn main() {
    let cores = cores::pin_to_one();
    println!("sms: {cores}; {CALLERS} callers; medians of {ROUNDS} rounds in turn");
    let runtime = runtime();
    let server = RedisServer::start();
    let rigs = [("in process", Rig::new(&runtime, None)), ("on Redis", Rig::new(&runtime, Some(&server)))];
    let met = admitted(&runtime, &rigs) & refused(&runtime, &rigs);
    contest::end(met);
}

fn admitted(runtime: &Runtime, rigs: &[(&str, Rig); 2]) -> bool {
    let mut contest =
        Contest::new("admitted, each to another number; SQLite in a file, a gateway that answers at once");
    let bare = enter_bare_transactions(&mut contest, runtime);
    for (name, rig) in rigs {
        rig.prove(runtime);
        for (to, phone) in [("", phone as fn(u64) -> Phone), (", new ranges", new_phone)] {
            let (rig, mut next) = (Rc::new(rig.clone()), 0);
            let place = contest.enter(format!("Codes::send, windows {name}{to}"), move || {
                let rig = Rc::clone(&rig);
                let send = async move |turn| match rig.send_to(phone(NUMBERS + turn)).await {
                    SendOutcome::Sent(sent) if sent.confirmed => {}
                    other => panic!("{other:?}"),
                };
                let round = drive(runtime, CALLERS, next, ADMITTED, &Rc::new(send));
                next += round.decisions;
                round
            });
            contest.compare(place, bare, None);
        }
    }
    contest.run(ROUNDS)
}

/// The minimum for a ledger: a row before the message is sent, and its outcome afterwards.
fn enter_bare_transactions<'c>(contest: &mut Contest<'c>, runtime: &'c Runtime) -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let db = runtime.block_on(database(&folder));
    let (db, mut next) = (Rc::new(db), 0);
    contest.enter("two write transactions, one row each", move || {
        let (db, _keep) = (Rc::clone(&db), &folder);
        let write = async move |turn: u64| {
            const ROW: &str = "INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent)
                VALUES ($1, 'bench', 1, '', '')";
            let id = format!("{turn:032x}");
            in_transaction(&db, ROW, &id).await;
            in_transaction(&db, "UPDATE sign_ins SET network = 'x' WHERE id = $1", &id).await;
        };
        let round = drive(runtime, CALLERS, next, ADMITTED, &Rc::new(write));
        next += round.decisions;
        round
    })
}

async fn in_transaction(db: &Db, sql: &'static str, id: &str) {
    let mut tx = db.begin_exclusive(gatehouse::db::DbLock::on("bench")).await.expect("the database is free");
    if let Tx::Sqlite(tx) = &mut tx {
        sqlx::query(sql).bind(id).execute(&mut **tx).await.expect("a row");
    }
    tx.commit().await.expect("it is written");
}

fn refused(runtime: &Runtime, rigs: &[(&str, Rig); 2]) -> bool {
    let mut met = true;
    for (name, rig) in rigs {
        runtime.block_on(async {
            for number in 0..NUMBERS {
                assert!(matches!(rig.send(number).await, SendOutcome::Sent(_)));
            }
        });
        let mut contest = Contest::new(format!(
            "refused, {NUMBERS} numbers that were sent a code just now; windows {name}"
        ));
        let bare = {
            let rig = Rc::new(rig.clone());
            let reserve = Rc::new(async move |turn| rig.reserve(turn % NUMBERS).await);
            contest.enter("Limiter::reserve of the same five logs", move || {
                drive(runtime, CALLERS, 0, REFUSED, &reserve)
            })
        };
        let rig = Rc::new(rig.clone());
        let send = Rc::new(async move |turn| {
            assert!(matches!(
                rig.send(turn % NUMBERS).await,
                SendOutcome::Denied(gatehouse::denied::Denied::Throttled { .. })
            ));
        });
        let place = contest.enter("Codes::send", move || drive(runtime, CALLERS, 0, REFUSED, &send));
        contest.compare(place, bare, None);
        met &= contest.run(ROUNDS);
    }
    met
}

#[derive(Clone)]
struct Rig {
    codes: CodeService,
    limiter: Limiter,
    db: Db,
    live: Arc<LiveSettings>,
    _folder: Arc<tempfile::TempDir>,
}

impl Rig {
    fn new(runtime: &Runtime, redis: Option<&RedisServer>) -> Self {
        let _inside = runtime.enter();
        let store = match redis {
            None => gatehouse::throttle::Store::Memory(MemoryStore::new(Clock::System)),
            Some(server) => {
                let store = RedisStore::new(server.client(), REDIS_TIMEOUT, "gh", Clock::System);
                assert!(runtime.block_on(store.link().ready(REDIS_TIMEOUT)), "the server is up");
                gatehouse::throttle::Store::Redis(store)
            }
        };
        let limiter = support::limiter(store);
        let folder = tempfile::tempdir().expect("a folder");
        let db = runtime.block_on(database(&folder));
        let (clock, secrets) = (Clock::System, MasterKey::from_bytes([1; 32]));
        let foundation = Foundation { db: db.clone(), clock, entropy: Entropy::Os, secrets };
        let kept = audit::Settings { retention: Duration::from_secs(86_400), max_rows: 1_000_000 };
        let audit = Audit::new(&foundation, kept);
        let accounts = Accounts::new(db.clone(), Clock::System, Entropy::Os);
        let parts = CodesDeps {
            limiter: limiter.clone(),
            gateways: Gateways::from(Arc::new(AtOnce) as Arc<dyn SmsGateway>),
            owners: Arc::new(Emails::new(&foundation, accounts)),
            audit,
            site: None,
            given_up: Default::default(),
            programs: Default::default(),
            relays: Default::default(),
            mailer: Mailer {
                queue: MailQueue::new(foundation.db.clone(), foundation.clock.clone()),
                seal: MailSeal::new(&foundation.secrets),
                transport: MailTransport::Nowhere,
                public_url: String::new(),
            },
        };
        let codes = CodeService::new(&foundation, parts);
        let live = config::parse(Path::new("bench.toml"), ROOMY, &[]).expect("a fine file").live;
        assert!(runtime.block_on(codes.rebuild_windows(&live)));
        Self { codes, limiter, db, live: Arc::new(live), _folder: Arc::new(folder) }
    }

    async fn send(&self, number: u64) -> SendOutcome {
        self.send_to(phone(number)).await
    }

    async fn send_to(&self, phone: Phone) -> SendOutcome {
        let ask =
            RequestedMessage::new(phone, Purpose::Login, "en").asked_from(b"203.0.113.7", b"203.0.113.0/24");
        self.codes.send(&self.live, ask).await.expect("the database answers")
    }

    /// As if two codes of each range had been entered, a day apart.
    fn prove(&self, runtime: &Runtime) {
        const ALL: &str = "UPDATE sms_messages SET entered_at = created_at WHERE $1 <> ''";
        const ONE_OF_EACH: &str =
            "UPDATE sms_messages SET entered_at = created_at - 2 * 86400000000 WHERE $1 <> ''
            AND id IN (SELECT MIN(id) FROM sms_messages GROUP BY number_range)";
        runtime.block_on(async {
            for number in 0..2 * RANGES {
                assert!(matches!(self.send_to(phone(LONG_AGO + number)).await, SendOutcome::Sent(_)));
            }
            in_transaction(&self.db, ALL, "all").await;
            in_transaction(&self.db, ONE_OF_EACH, "one").await;
        });
    }

    async fn reserve(&self, number: u64) {
        let (phone, limits) = (phone(number), &self.live.limits);
        let buckets = [
            self.limiter.bucket(&limits.sms_phone, phone.as_str().as_bytes()),
            self.limiter.bucket(&limits.sms_address, b"203.0.113.7"),
            self.limiter.bucket(&limits.sms_network, b"203.0.113.0/24"),
            self.limiter.bucket(&limits.sms_prefix, phone.block().as_bytes()),
            self.limiter.bucket(&limits.sms_total, b"bench"),
        ];
        let decision = self.limiter.reserve(&buckets, false).await.expect("the store answers");
        assert!(matches!(decision, HitDecision::Refused(_)));
    }
}

/// Neighbours are in other ranges of `RANGES`.
fn phone(number: u64) -> Phone {
    Phone::stored(format!("+86138{:02}{:06}", number % RANGES, number / RANGES))
}

/// The same in ranges of which no codes have come back.
fn new_phone(number: u64) -> Phone {
    Phone::stored(format!("+86139{:02}{:06}", number % RANGES, number / RANGES))
}

async fn database(folder: &tempfile::TempDir) -> Db {
    let url = format!("sqlite://{}", folder.path().join("bench.db").display());
    let db = Db::connect(&url).await.expect("a database");
    in_transaction(&db, "INSERT INTO accounts (id, login, created_at) VALUES ($1, $1, 1)", "bench").await;
    db
}

/// Accepts every message.
struct AtOnce;

impl SmsGateway for AtOnce {
    fn name(&self) -> &'static str {
        "outbox"
    }

    fn send<'a>(&'a self, _: SmsMessage<'a>) -> Pin<Box<dyn Future<Output = DeliveryResult> + Send + 'a>> {
        Box::pin(std::future::ready(DeliveryResult::Accepted { reference: None }))
    }

    fn reports(&self, _: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        Err(ReportError::NotOffered)
    }
}
