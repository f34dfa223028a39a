//! The code service: who gets a code, and what an entered code proves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::budgets::SmsBudgets;
use super::ledger::{Ledger, hex};
use super::level::{BudgetLevel, SpentRule};
use super::metrics::SmsMetrics;
use super::once;
use super::outcome::SmsError;
use super::share::PhoneOwners;
use super::watched::{LastSmsLimits, SmsLimits};
use super::{DeliveryReport, MessageId, Phone, SmsCode, SmsGateway};
use crate::audit::{Action, Audit, AuditEvent, Outcome};
use crate::clock::Clock;
use crate::config::{LimitName, LiveSettings, ProgramTexts};
use crate::db::Db;
use crate::entropy::Entropy;
use crate::secret::{MasterKey, SigningKeys, SubKey};
use crate::throttle::wait_queue::WaitQueue;
use crate::throttle::{AnyStore, LimitMode, Limiter, RuleAction, StoreError, SubjectKey};

/// Messages in flight at once in this process. Beyond this, something that they depend on is stuck.
const MOST_UNDER_WAY: u32 = 256;
/// How long a gateway may take, whatever its own timeout is.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(30);

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
    pub turns: Arc<WaitQueue<SubjectKey>>,
    pub places: Arc<Semaphore>,
    pub owners: Arc<dyn PhoneOwners>,
    pub watched: LastSmsLimits,
    pub level: tokio::sync::Mutex<BudgetLevel>,
    pub metrics: SmsMetrics,
    pub audit: Audit,
    pub site: Option<String>,
    pub programs: ProgramTexts,
    pub relays: ProgramTexts,
    /// Of codes.
    keys: SigningKeys,
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
    /// The site's domain, to which messages bind their codes.
    pub site: Option<String>,
    /// What the messages of other programs say.
    pub programs: ProgramTexts,
    /// The same of codes that others make.
    pub relays: ProgramTexts,
}

impl SmsCodes {
    pub fn new(parts: CodesParts, master: &MasterKey) -> Self {
        Self::with_patience(parts, master, GATEWAY_PATIENCE)
    }

    /// With another bound on how long the gateway may take.
    pub fn with_patience(parts: CodesParts, master: &MasterKey, gateway_patience: Duration) -> Self {
        let CodesParts { db, limiter, gateway, owners, clock, entropy, audit, site, programs, relays } =
            parts;
        let ledger = Ledger::new(db, clock.clone(), entropy.clone());
        let budgets = SmsBudgets::new(limiter, ledger.clone());
        Self(Arc::new(CodesInner {
            ledger,
            budgets,
            gateway,
            gateway_patience,
            clock,
            entropy,
            turns: once::queue(),
            places: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
            owners,
            watched: LastSmsLimits::default(),
            level: tokio::sync::Mutex::default(),
            metrics: SmsMetrics::register(),
            audit,
            site,
            programs,
            relays,
            keys: master.derive_signing("code.hash"),
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

    /// Bound to the number, the purpose as stored, and the message: equal codes have different hashes.
    pub(super) fn code_hash(
        &self,
        phone: SubjectKey,
        purpose: &str,
        message: MessageId,
        code: &SmsCode,
    ) -> String {
        let hash = hash_of(self.0.keys.signing(), phone, purpose, message, code);
        String::from_utf8_lossy(&hash).into_owned()
    }

    /// Whether a stored hash is that of the code.
    pub(super) fn is_code(
        &self,
        stored: &str,
        phone: SubjectKey,
        purpose: &str,
        message: MessageId,
        code: &SmsCode,
    ) -> bool {
        let hash = |key: &SubKey| hash_of(key, phone, purpose, message, code);
        self.0.keys.signer(stored.as_bytes(), hash).is_some()
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
        let guesses = self.0.ledger.purge_guesses(live.limits.sms_guess.longest_window(), batch).await?;
        Ok(self.0.ledger.purge(before, batch).await?.max(guesses))
    }

    /// None if the total is not limited.
    pub async fn spent(&self, live: &LiveSettings) -> Result<Option<SpentRule>, StoreError> {
        let (watched, total) = (self.watched(live), &live.limits.sms_total);
        if total.mode() == LimitMode::Monitor || total.rules().is_empty() {
            return Ok(None);
        }
        let [all, pages] = self.0.budgets.spent(&watched).await?;
        let counts = all.rules.iter().zip(&pages.rules).map(|(all, pages)| (all.count, pages.count));
        let blocks = total.rules().iter().zip(counts).filter(|(rule, _)| rule.then == RuleAction::Block);
        let spent = blocks.map(|(rule, (count, pages))| SpentRule { count, pages, max: rule.max });
        Ok(spent.max_by(|one, other| one.part().total_cmp(&other.part())))
    }

    /// Checks how much is spent, for the metrics and the record. Runs periodically, not in a request, because
    /// no requester needs it.
    pub async fn watch_level(&self, live: &LiveSettings) {
        // One at a time, so that levels are recorded in the order in which they were read.
        let mut last = self.0.level.lock().await;
        let Ok(spent) = self.spent(live).await else { return };
        self.0.metrics.spent.set(spent.map_or(0.0, SpentRule::part));
        self.0.metrics.pages_spent.set(spent.map_or(0.0, SpentRule::part_of_pages));
        let level = spent.map_or(BudgetLevel::Calm, |spent| spent.level_after(*last));
        let before = std::mem::replace(&mut *last, level);
        if level > before
            && let Some(name) = level.name()
        {
            let audit = &self.0.audit;
            let event = AuditEvent::new(audit.now(), Action::Budget, Outcome::Ok);
            audit.record(AuditEvent { name: Some(name), limit: Some(LimitName::SmsTotal.as_str()), ..event });
            tracing::warn!(level = name, "a large part of the limit sms-total is used");
        }
    }
}

/// In hex.
fn hash_of(key: &SubKey, phone: SubjectKey, purpose: &str, message: MessageId, code: &SmsCode) -> [u8; 64] {
    let message = message.to_string();
    let parts: [&[u8]; 4] = [&phone.0, purpose.as_bytes(), message.as_bytes(), code.expose().as_bytes()];
    let hash = blake3::Hash::from_bytes(key.hash(&parts)).to_hex();
    *hash.as_bytes().first_chunk().expect("64 digits")
}
