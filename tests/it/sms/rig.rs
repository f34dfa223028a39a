//! The code service with real parts, and a gateway that counts and does what the test says.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use gatehouse::audit::{self, Audit};
use gatehouse::clock::Clock;
use gatehouse::codes::*;
use gatehouse::config::{self, LiveSettings};
use gatehouse::db::Db;
use gatehouse::denied::Denied;
use gatehouse::entropy::Entropy;
use gatehouse::foundation::Foundation;
use gatehouse::mail::{MailQueue, MailSeal, MailTransport, Mailer};
use gatehouse::message::*;
use gatehouse::secret::MasterKey;
use gatehouse::sms::*;
use gatehouse::throttle::Limiter;
use gatehouse_limiter::{MemoryStore, RedisStore};
use tokio::sync::Semaphore;

pub use super::fakes::*;
pub use crate::support::app::Store;
use crate::support::database::TestDatabase;
use crate::support::limits::NOON;
use crate::support::redis::RedisServer;
use crate::support::steered::SteeredClock;

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const MICRO: Duration = Duration::from_micros(1);

/// Each function of a store becomes a test on each of them, on two threads.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        mod in_process {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::support::app::Store::Memory).await;
            })+
        }

        mod on_redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::support::app::Store::Redis).await;
            })+
        }
    };
}
pub(crate) use on_each_store;

pub struct Rig {
    pub owners: Arc<Book>,
    pub clock: Clock,
    steered: Option<SteeredClock>,
    pub redis: Option<RedisServer>,
    pub gateway: Arc<CountingGateway>,
    pub live: LiveSettings,
    database: TestDatabase,
}

/// One instance of the service.
#[derive(Clone)]
pub struct Instance {
    pub codes: CodeService,
    pub limiter: Limiter,
    pub db: Db,
    pub audit: Audit,
    live: LiveSettings,
}

impl Rig {
    pub async fn new(store: Store, toml: &str) -> Self {
        Self::over(store.database().await, store, toml)
    }

    pub fn over(database: TestDatabase, store: Store, toml: &str) -> Self {
        let steered = (store == Store::Redis).then(|| SteeredClock::at(NOON));
        let redis = steered.as_ref().map(RedisServer::steered);
        let live = config::parse(Path::new("test.toml"), toml, &[]).unwrap().live;
        let gateway = Arc::new(CountingGateway {
            mood: Mutex::new(Mood::Accepts),
            sent: Mutex::default(),
            let_go: Semaphore::new(0),
        });
        Self { owners: Arc::default(), clock: Clock::manual(NOON), steered, redis, gateway, live, database }
    }

    /// With a server's real clocks: the machine's, Redis's and the database's.
    pub async fn by_real_clocks(store: Store, toml: &str) -> Self {
        let redis = (store == Store::Redis).then(RedisServer::start);
        Self { clock: Clock::System, redis, ..Self::new(store, toml).await }
    }

    /// Another instance with the same database; on Redis with the same store.
    pub async fn instance(&self) -> Instance {
        self.patient_instance(30 * SECOND).await
    }

    pub async fn patient_instance(&self, patience: Duration) -> Instance {
        let store = match &self.redis {
            None => gatehouse::throttle::Store::Memory(MemoryStore::new(self.clock.clone())),
            Some(server) => {
                let store =
                    RedisStore::allowing_eviction(server.client(), 5 * SECOND, "gh", self.clock.clone());
                let store = store.remembering_refusals();
                assert!(store.link().ready(5 * SECOND).await);
                gatehouse::throttle::Store::Redis(store)
            }
        };
        let db = Db::connect(&self.database.url).await.unwrap();
        let foundation = foundation(&db, &self.clock);
        let audit = audit(&foundation);
        let limiter = Limiter::new(store, foundation.secrets.derive("throttle.subject"), &Entropy::Os);
        let parts = CodesDeps {
            limiter: limiter.clone(),
            gateways: Gateways::from(Arc::<CountingGateway>::clone(&self.gateway) as Arc<dyn SmsGateway>),
            owners: Arc::<Book>::clone(&self.owners),
            audit: audit.clone(),
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
        let codes = CodeService::with_patience(&foundation, parts, patience);
        Instance { codes, limiter, db, audit, live: self.live.clone() }
    }

    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
        if let Some(steered) = &self.steered {
            steered.advance(span);
        }
    }

    pub fn mood(&self, mood: Mood) {
        *self.gateway.mood.lock().unwrap() = mood;
    }

    /// Every message that the gateway was given, oldest first.
    pub fn sent(&self) -> Vec<SentMessage> {
        self.gateway.sent.lock().unwrap().clone()
    }

    pub fn sent_to(&self, phone: &Phone) -> usize {
        self.sent().iter().filter(|message| message.phone == *phone).count()
    }

    pub fn last_code(&self) -> MessageCode {
        self.sent().last().expect("a message").code.clone()
    }

    pub fn evict(&self) {
        self.redis.as_ref().expect("a rig on Redis").evict("volatile-lru");
    }

    pub fn flush(&self) {
        let server = self.redis.as_ref().expect("a rig on Redis");
        redis::cmd("FLUSHALL").query::<()>(&mut server.connection()).unwrap();
    }

    /// Kills it without notice, and restarts it empty on the same port.
    pub async fn restart_redis(&mut self, instance: &Instance) {
        let mut old = self.redis.take().expect("a rig on Redis");
        old.kill();
        let gatehouse::throttle::Store::Redis(store) = instance.limiter.store() else {
            panic!("a rig on Redis")
        };
        // The link must notice that another process is gone, and then that it is back: our clock does not
        // move it.
        while store.link().is_up() {
            tokio::time::sleep(SECOND / 200).await;
        }
        let (port, steered) = (old.port, self.steered.as_ref().expect("a clock for it"));
        self.redis = Some(RedisServer::start_at(port, |command| steered.steer(command)));
        assert!(store.link().ready(10 * SECOND).await);
    }
}

impl Instance {
    pub async fn send(&self, phone: &Phone) -> SendOutcome {
        self.send_from(phone, &address()).await
    }

    pub async fn send_from(&self, phone: &Phone, address: &[u8]) -> SendOutcome {
        self.ask(ask(phone, address)).await
    }

    pub async fn ask(&self, ask: RequestedMessage) -> SendOutcome {
        self.codes.send(&self.live, ask).await.unwrap()
    }

    pub async fn check(&self, phone: &Phone, code: &MessageCode) -> CheckOutcome {
        self.check_from(phone, code, &address()).await
    }

    pub async fn check_from(&self, phone: &Phone, code: &MessageCode, address: &[u8]) -> CheckOutcome {
        self.guess(guess(phone, code, address)).await
    }

    pub async fn guess(&self, guess: CodeGuess<'_>) -> CheckOutcome {
        self.codes.check(&self.live, guess).await.unwrap()
    }

    pub async fn send_many(&self, phone: &Phone, count: usize) -> Vec<SendOutcome> {
        all((0..count).map(|_| {
            let (instance, phone) = (self.clone(), phone.clone());
            async move { instance.send(&phone).await }
        }))
        .await
    }

    /// Hits that a limit counts for a subject.
    pub async fn counted(&self, limit: &str, subject: &[u8]) -> u32 {
        let bucket = self.limiter.bucket(self.live.limits.get(limit).unwrap(), subject);
        let peek = self.limiter.peek(bucket).await.unwrap();
        peek.rules.iter().map(|rule| rule.count).max().unwrap_or(0)
    }

    /// Like a fail-over that has lost some writes: the mark is there, the log is not.
    pub async fn forget(&self, limit: &str, subject: &[u8]) {
        let bucket = self.limiter.bucket(self.live.limits.get(limit).unwrap(), subject);
        self.limiter.clear(bucket).await.unwrap();
    }

    /// Slots in flight.
    pub async fn holds(&self, limit: &str, subject: &[u8]) -> u32 {
        let bucket = self.limiter.bucket(self.live.limits.get(limit).unwrap(), subject);
        self.limiter.peek(bucket).await.unwrap().holds
    }

    pub async fn ledger(&self) -> Vec<LedgerEntry> {
        self.codes.ledger().page(&LedgerFilter::default(), None, 1000).await.unwrap().entries
    }

    /// The same, after a reload.
    pub fn with(self, live: &LiveSettings) -> Self {
        Self { live: live.clone(), ..self }
    }

    pub fn live(&self) -> &LiveSettings {
        &self.live
    }
}

/// The network of an address is its first six bytes: a /48.
pub fn ask(phone: &Phone, address: &[u8]) -> RequestedMessage {
    let network = &address[..address.len().min(6)];
    RequestedMessage::new(phone.clone(), Purpose::Login, "en").asked_from(address, network)
}

/// A guess without a browser or a known device.
pub fn guess<'a>(phone: &'a Phone, code: &'a MessageCode, address: &'a [u8]) -> CodeGuess<'a> {
    let (network, browser, known) = (&address[..address.len().min(6)], None, false);
    CodeGuess {
        to: phone.clone().into(),
        purpose: Purpose::Login,
        code,
        address,
        network,
        browser,
        known,
        solved: false,
    }
}

/// All at once, each on its own task.
pub async fn all<T: Send + 'static>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = futures.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.unwrap());
    }
    done
}

/// Waits until a condition is true; never for a fixed time.
pub async fn until(so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(30 * SECOND, waiting).await.expect("what is waited for comes about");
}

pub fn is_sent(sending: &SendOutcome) -> bool {
    matches!(sending, SendOutcome::Sent(_))
}

#[track_caller]
pub fn sent(sending: SendOutcome) -> SendReceipt {
    match sending {
        SendOutcome::Sent(sent) => sent,
        other => panic!("expected a message, got {other:?}"),
    }
}

/// The limit and the wait.
#[track_caller]
pub fn throttled(sending: SendOutcome) -> (String, Duration) {
    match sending {
        SendOutcome::Denied(Denied::Throttled { limit, retry_after, .. }) => {
            (limit.into_owned(), retry_after)
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// The limit that refuses a request or asks for a challenge, and the wait, for a shared budget that is spent.
#[track_caller]
pub fn spent_by(sending: SendOutcome) -> (String, Duration) {
    match sending {
        SendOutcome::Denied(Denied::Throttled { limit, retry_after, .. })
        | SendOutcome::Denied(Denied::Challenged { limit, retry_after, .. }) => {
            (limit.into_owned(), retry_after)
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// An IPv6 address in the form that limits count, another one each time.
pub fn address() -> Vec<u8> {
    Entropy::Os.bytes::<8>().to_vec()
}

/// A mobile number that no other test has, in a block of its own: it shares no budget with those before it.
pub fn phone() -> Phone {
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(u32::from_be_bytes(Entropy::Os.bytes())));
    let block = NEXT.fetch_add(1, Ordering::SeqCst) % 10_000;
    let last = u32::from_be_bytes(Entropy::Os.bytes()) % 10_000;
    number_of(&format!("+86138{block:04}{last:04}"))
}

/// Of the same block.
pub fn neighbour(phone: &Phone) -> Phone {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let last = NEXT.fetch_add(1, Ordering::SeqCst) % 10_000;
    let other = number_of(&format!("{}{last:04}", phone.block()));
    if other == *phone { neighbour(phone) } else { other }
}

pub fn number_of(canonical: &str) -> Phone {
    Phone::stored(canonical.to_owned())
}

/// A wrong code, whatever the right one is.
pub fn other_than(code: &MessageCode) -> MessageCode {
    let mut digits = code.expose().as_bytes().to_vec();
    digits[0] = if digits[0] == b'9' { b'0' } else { digits[0] + 1 };
    MessageCode::parse(std::str::from_utf8(&digits).unwrap()).unwrap()
}

pub fn foundation(db: &Db, clock: &Clock) -> Foundation {
    let (db, clock, secrets) = (db.clone(), clock.clone(), MasterKey::from_bytes([3; 32]));
    Foundation { db, clock, entropy: Entropy::Os, secrets }
}

/// A record of events that nobody writes until it is flushed.
pub fn audit(foundation: &Foundation) -> Audit {
    let kept = audit::Settings { retention: 24 * HOUR, max_rows: 10_000 };
    Audit::new(foundation, kept)
}
