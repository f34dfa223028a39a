//! The code service: who gets a code, and what an entered code proves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::budgets::SmsBudgets;
use super::ledger::{Ledger, hex};
use super::level::BudgetLevel;
use super::metrics::SmsMetrics;
use super::once::OnceQueue;
use super::share::PhoneOwners;
use super::watched::{LastSmsLimits, SmsLimits};
use super::{DeliveryReport, MessageId, Phone, Purpose, SmsCode, SmsGateway};
use crate::audit::Audit;
use crate::clock::Clock;
use crate::config::LiveSettings;
use crate::db::{Db, DbError};
use crate::entropy::Entropy;
use crate::secret::{MasterKey, SubKey};
use crate::throttle::{AnyStore, Limit, Limiter, SubjectKey};

/// Messages in flight at once in this process. Beyond this, something that they depend on is stuck.
const MOST_UNDER_WAY: u32 = 256;
/// How long a gateway may take, whatever its own timeout is.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(30);
/// The retry time that a caller gets while something that a message needs is out.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The code service. Clones share it.
#[derive(Clone)]
pub struct SmsCodes(pub(super) Arc<CodesInner>);

pub(super) struct CodesInner {
    pub ledger: Ledger,
    pub budgets: SmsBudgets,
    pub gateway: Arc<dyn SmsGateway>,
    pub gateway_patience: Duration,
    pub clock: Clock,
    pub entropy: Entropy,
    pub turns: Arc<OnceQueue>,
    pub places: Arc<Semaphore>,
    pub owners: Arc<dyn PhoneOwners>,
    pub watched: LastSmsLimits,
    pub level: tokio::sync::Mutex<BudgetLevel>,
    pub metrics: SmsMetrics,
    pub audit: Audit,
    key: SubKey,
    askers: SubKey,
}

/// What the service depends on.
pub struct CodesParts {
    pub db: Db,
    /// Over the store that every instance shares.
    pub limiter: Limiter<AnyStore>,
    pub gateway: Arc<dyn SmsGateway>,
    /// Knows which numbers belong to an account, for a shortage.
    pub owners: Arc<dyn PhoneOwners>,
    pub clock: Clock,
    pub entropy: Entropy,
    pub audit: Audit,
}

/// One request for a code.
#[derive(Debug, Clone, Copy)]
pub struct CodeRequest<'a> {
    pub phone: &'a Phone,
    pub purpose: Purpose,
    /// The requester's address in the form that limits count.
    pub address: &'a [u8],
    /// The network of the address.
    pub network: &'a [u8],
    /// The id of the requesting browser, if it has one: it gets guesses of its own at the code.
    pub browser: Option<&'a [u8]>,
    /// A challenge was solved with the request.
    pub solved: bool,
    /// The requester's name for this request: the same name is the same request, whose message is not sent
    /// twice.
    pub once: Option<&'a str>,
    /// The language of the message.
    pub locale: &'a str,
}

/// The result of a request for a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    Sent(SendReceipt),
    /// A challenge must be solved with it; without one, not before that time.
    Challenged {
        limit: String,
        retry_after: Duration,
    },
    /// Refused until that time, even with a solved challenge.
    Throttled {
        limit: String,
        retry_after: Duration,
    },
    /// The gateway refused it: it was not sent, and the number's limit does not count it.
    NotSent,
    /// Something that a message needs is out: the window store, the gateway, or a free slot.
    Unavailable {
        retry_after: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReceipt {
    /// How long its code is valid.
    pub expires_in: Duration,
    /// Until the number's rules admit the next message.
    pub resend_after: Duration,
    /// The gateway confirmed it. Otherwise it may have been sent, and is not sent again.
    pub confirmed: bool,
    /// Codes are short and go to numbers with accounts first. The answer does not say whether this number has
    /// one.
    pub short: bool,
}

/// The result of a guess.
#[derive(Debug)]
pub enum CheckOutcome {
    Right(ProvenPhone),
    /// Wrong code, or no code (any more): the answer does not say which.
    Wrong,
    /// Nothing was compared: a challenge must be solved with it; without one, not before that time.
    Challenged {
        limit: String,
        retry_after: Duration,
    },
    /// Nothing was compared.
    Throttled {
        limit: String,
        retry_after: Duration,
    },
    /// Nothing was compared: the window store is out, or too many guesses are in flight.
    Unavailable {
        retry_after: Duration,
    },
}

/// A number that was just proved to belong to the client. Only a comparison creates one.
#[derive(Debug)]
pub struct ProvenPhone(Phone);

impl ProvenPhone {
    /// Only for the code that has compared a code.
    pub(super) const fn of(phone: Phone) -> Self {
        Self(phone)
    }

    pub const fn phone(&self) -> &Phone {
        &self.0
    }
}

/// The database is out: nothing was sent that is not in the ledger, and no code was accepted.
#[derive(Debug, thiserror::Error)]
pub enum SmsError {
    #[error(transparent)]
    Db(#[from] DbError),
}

impl SmsCodes {
    pub fn new(parts: CodesParts, master: &MasterKey) -> Self {
        Self::with_patience(parts, master, GATEWAY_PATIENCE)
    }

    /// With another bound on how long the gateway may take.
    pub fn with_patience(parts: CodesParts, master: &MasterKey, gateway_patience: Duration) -> Self {
        let CodesParts { db, limiter, gateway, owners, clock, entropy, audit } = parts;
        let ledger = Ledger::new(db, clock.clone(), entropy.clone());
        let budgets = SmsBudgets::new(limiter, ledger.clone());
        Self(Arc::new(CodesInner {
            ledger,
            budgets,
            gateway,
            gateway_patience,
            clock,
            entropy,
            turns: Arc::default(),
            places: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
            owners,
            watched: LastSmsLimits::default(),
            level: tokio::sync::Mutex::default(),
            metrics: SmsMetrics::register(),
            audit,
            key: master.derive("code.hash"),
            askers: master.derive("code.asker"),
        }))
    }

    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    pub fn gateway(&self) -> &dyn SmsGateway {
        &*self.0.gateway
    }

    /// The key of a number in the ledger.
    pub fn phone_key(&self, live: &LiveSettings, phone: &Phone) -> SubjectKey {
        self.0.budgets.limiter().bucket(&live.limits.sms_phone, phone.as_str().as_bytes()).key
    }

    /// Makes sure that the window store has the windows of earlier messages. Used at start, so that the first
    /// request need not wait for it. False if that was not possible yet.
    pub async fn rebuild_windows(&self, live: &LiveSettings) -> bool {
        self.0.budgets.rebuild_windows(&self.watched(live)).await
    }

    pub(super) fn watched(&self, live: &LiveSettings) -> Arc<SmsLimits> {
        self.0.watched.of(live)
    }

    /// Waits until no message is in flight any more. Used at shutdown.
    pub async fn drain(&self) {
        let _ = self.0.places.acquire_many(MOST_UNDER_WAY).await;
    }

    /// Bound to the number, the purpose and the message: equal codes have different hashes.
    pub(super) fn code_hash(
        &self,
        phone: SubjectKey,
        purpose: Purpose,
        message: MessageId,
        code: &SmsCode,
    ) -> String {
        let message = message.to_string();
        let parts: [&[u8]; 4] =
            [&phone.0, purpose.as_str().as_bytes(), message.as_bytes(), code.expose().as_bytes()];
        blake3::Hash::from_bytes(self.0.key.hash(&parts)).to_hex().to_string()
    }

    /// The id of a browser that requests a number's codes, as the ledger stores it.
    pub(super) fn asker(&self, phone: SubjectKey, browser: &[u8]) -> String {
        hex(&self.0.askers.hash(&[&phone.0, browser]))
    }

    /// Writes the reports of a gateway, which were found authentic; returns how many messages they were
    /// about.
    pub async fn report(&self, gateway: &str, reports: Vec<DeliveryReport>) -> Result<usize, SmsError> {
        Ok(self.0.ledger.report(gateway, &reports).await?)
    }

    /// Marks messages whose process died as unknown; at most `batch`.
    pub async fn give_up(&self, batch: u32) -> Result<u64, SmsError> {
        Ok(self.0.ledger.give_up(batch).await?)
    }

    /// Deletes at most `batch` messages older than the ledger's retention, and as many codes and brakes;
    /// returns the largest of these counts. Never deletes one that a window still needs.
    pub async fn purge(&self, live: &LiveSettings, batch: u32) -> Result<u64, SmsError> {
        let now = self.0.ledger.now().await?;
        let longest = live.sms.retention.max(live.sms.brake.window);
        let before = now.minus(longest).min(self.watched(live).horizon(now));
        let askers = self.0.ledger.forget_askers(longest_window(&live.limits.sms_guess), batch).await?;
        Ok(self.0.ledger.purge(before, batch).await?.max(askers))
    }
}

/// The longest time that any rule of a limit looks back.
pub(super) fn longest_window(limit: &Limit) -> Duration {
    limit.rules().iter().map(|rule| rule.span.longest()).max().unwrap_or_default()
}
