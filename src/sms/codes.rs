//! The code service: who may be sent one, and what a code that comes back proves.

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

/// Messages on their way at once in this process. Past it something behind us is stuck.
const MOST_UNDER_WAY: u32 = 256;
/// How long a gateway may take, whatever its own time-out is.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(30);
/// What a caller is told while something that a message needs is out.
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

/// What the service stands on.
pub struct CodesParts {
    pub db: Db,
    /// Over the store that every instance shares.
    pub limiter: Limiter<AnyStore>,
    pub gateway: Arc<dyn SmsGateway>,
    /// Who knows whose number it is, for when messages are short.
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
    /// The asker's address as it is counted.
    pub address: &'a [u8],
    /// The network that it is in.
    pub network: &'a [u8],
    /// The name of the browser that asks, if it has one: it has guesses of its own at the code.
    pub browser: Option<&'a [u8]>,
    /// A challenge was solved with it.
    pub solved: bool,
    /// What the asker calls this request: the same again is the same request, whose message is not sent
    /// twice.
    pub once: Option<&'a str>,
    /// The language of the message.
    pub locale: &'a str,
}

/// What became of a request for a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    Sent(SendReceipt),
    /// A challenge must be solved with it; without one not before that time.
    Challenged {
        limit: String,
        retry_after: Duration,
    },
    /// Whatever comes with it, not before that time.
    Throttled {
        limit: String,
        retry_after: Duration,
    },
    /// The gateway has refused it: it did not go out, and counts nowhere.
    NotSent,
    /// Something that a message needs is out: the window store, the gateway, or room for one more.
    Unavailable {
        retry_after: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReceipt {
    /// How long its code is good.
    pub expires_in: Duration,
    /// Until the number's rules admit the next message.
    pub resend_after: Duration,
    /// The gateway said so. Otherwise it may have gone out, and will not be sent again.
    pub confirmed: bool,
    /// Codes are short and go to numbers with accounts first: whether this is one is not told, and not
    /// confirmed.
    pub short: bool,
}

/// What became of a guess.
#[derive(Debug)]
pub enum CheckOutcome {
    Right(ProvenPhone),
    /// It is not the code, or there is none (any more): the difference is nobody's business.
    Wrong,
    /// Nothing was compared: a challenge must be solved with it; without one not before that time.
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

/// A number that was just shown to be somebody's. Only a comparison makes one.
#[derive(Debug)]
pub struct ProvenPhone(Phone);

impl ProvenPhone {
    /// For the one that has compared a code, and nobody else.
    pub(super) const fn of(phone: Phone) -> Self {
        Self(phone)
    }

    pub const fn phone(&self) -> &Phone {
        &self.0
    }
}

/// The database is out: nothing was sent that is not in the ledger, and nothing is known to be right.
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

    /// How the ledger knows a number.
    pub fn phone_key(&self, live: &LiveSettings, phone: &Phone) -> SubjectKey {
        self.0.budgets.limiter().bucket(&live.limits.sms_phone, phone.as_str().as_bytes()).key
    }

    /// Sees that the window store has the windows of what was sent before: for the start, so that the
    /// first request need not wait for it. False where it could not be done yet.
    pub async fn rebuild_windows(&self, live: &LiveSettings) -> bool {
        self.0.budgets.rebuild_windows(&self.watched(live)).await
    }

    pub(super) fn watched(&self, live: &LiveSettings) -> Arc<SmsLimits> {
        self.0.watched.of(live)
    }

    /// Waits until no message is on its way any more: for the end.
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

    /// How the ledger knows a browser that asks for a number's codes.
    pub(super) fn asker(&self, phone: SubjectKey, browser: &[u8]) -> String {
        hex(&self.0.askers.hash(&[&phone.0, browser]))
    }

    /// Writes what a gateway reports, as it has been found authentic; how many messages it told of.
    pub async fn report(&self, gateway: &str, reports: Vec<DeliveryReport>) -> Result<usize, SmsError> {
        Ok(self.0.ledger.report(gateway, &reports).await?)
    }

    /// Says of messages whose process died that nobody knows what became of them; at most `batch`.
    pub async fn give_up(&self, batch: u32) -> Result<u64, SmsError> {
        Ok(self.0.ledger.give_up(batch).await?)
    }

    /// Forgets at most `batch` messages that are older than the ledger is to remember, and as many codes
    /// and brakes; how many of the kind of which most went. Never one that a window still needs.
    pub async fn purge(&self, live: &LiveSettings, batch: u32) -> Result<u64, SmsError> {
        let now = self.0.ledger.now().await?;
        let longest = live.sms.retention.max(live.sms.brake.window);
        let before = now.minus(longest).min(self.watched(live).horizon(now));
        let askers = self.0.ledger.forget_askers(longest_window(&live.limits.sms_guess), batch).await?;
        Ok(self.0.ledger.purge(before, batch).await?.max(askers))
    }
}

/// How far back any rule of a limit looks.
pub(super) fn longest_window(limit: &Limit) -> Duration {
    limit.rules().iter().map(|rule| rule.span.longest()).max().unwrap_or_default()
}
