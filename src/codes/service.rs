//! The code service: who gets a code, and what an entered code proves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use gatehouse_limiter::wait_queue::WaitQueue;
use gatehouse_limiter::{Limit, LimitMode, RuleAction, StoreError, SubjectKey};
use sqlx::query;
use tokio::sync::Semaphore;

use super::budgets::MessageBudgets;
use super::ledger::Ledger;
use super::message_limits::{LastMessageLimits, MessageLimits, PAGES};
use super::metrics::MessageMetrics;
use super::money::MoneySpent;
use super::recipient::{Channel, Recipient};
use super::slots::MessageSlots;
use super::spent::{BudgetLevel, SpentRule};
use crate::audit::{Action, Audit, AuditEvent, Outcome};
use crate::clock::{Clock, Micros};
use crate::config::{LimitName, LiveSettings, ProgramTexts, ResetByMail};
use crate::db::{CountedBefore, DbError, execute};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::mail::Mailer;
use crate::message::{MessageCode, MessageId, ProgramKind, hex};
use crate::secret::{SigningKeys, SubKey};
use crate::sms::{Gateways, Phone};
use crate::throttle::Limiter;

/// How many requests may wait for their turn, for one name and in all. Each holds a client's connection; any
/// more are told to come back later.
const MOST_WAITING_FOR_ONE: usize = 8;
const MOST_WAITING: usize = 256;
/// How long a gateway may take, whatever its own timeout is.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(30);

/// Mails that one instance hands over at the same time.
pub const MAILS_AT_ONCE: usize = 8;

/// What is known of the server that delivers from the last mails.
#[derive(Debug, Clone, Default)]
pub struct MailServerState {
    /// How often in a row it took nothing, whoever a mail was to.
    pub failures: u32,
    /// When that began, and until when it is left alone. By this process's clock.
    pub since: Micros,
    pub again_at: Micros,
    /// Why it took nothing the last time.
    pub reason: Option<String>,
}

#[derive(Clone)]
pub struct CodeService(pub(super) Arc<CodesInner>);

pub(super) struct CodesInner {
    pub clock: Clock,
    pub entropy: Entropy,
    pub deps: CodesDeps,
    pub ledger: Ledger,
    budgets: [MessageBudgets; 2],
    pub gateway_patience: Duration,
    /// Requests with the same name wait for each other.
    pub turns: Arc<WaitQueue<SubjectKey>>,
    pub slots: MessageSlots,
    limits: LastMessageLimits,
    level: tokio::sync::Mutex<BudgetLevel>,
    pub money: ArcSwap<MoneySpent>,
    /// The last count of messages of countries failed.
    pub costs_failed: AtomicBool,
    pub mail_server: ArcSwap<MailServerState>,
    /// How many more mails may be handed over at the same time.
    pub mail_permits: Arc<Semaphore>,
    pub metrics: MessageMetrics,
    keys: SigningKeys,
    askers: SubKey,
}

/// Knows which numbers and addresses belong to an account. Asked for every request in a shortage, and never otherwise.
pub trait RecipientOwners: Send + Sync {
    /// Since when an account has had the number or the address, by the database's clock; None if no account has it, or
    /// the address is not to set a password by that rule.
    fn since<'a>(
        &'a self,
        recipient: &'a Recipient,
        reset: ResetByMail,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Micros>, DbError>> + Send + 'a>>;
}

pub struct CodesDeps {
    /// Over the store that every instance shares.
    pub limiter: Limiter,
    pub gateways: Gateways,
    pub owners: Arc<dyn RecipientOwners>,
    pub audit: Audit,
    /// The site's domain, to which messages bind their codes.
    pub site: Option<String>,
    /// Messages under a key that was given up.
    pub given_up: CountedBefore,
    pub programs: ProgramTexts,
    pub relays: ProgramTexts,
    pub mailer: Mailer,
}

impl CodesInner {
    pub fn budgets(&self, channel: Channel) -> &MessageBudgets {
        let [sms, mail] = &self.budgets;
        match channel {
            Channel::Sms => sms,
            Channel::Mail => mail,
        }
    }
}

impl CodeService {
    pub fn new(foundation: &Foundation, deps: CodesDeps) -> Self {
        Self::with_patience(foundation, deps, GATEWAY_PATIENCE)
    }

    /// With another bound on how long the gateway may take.
    pub fn with_patience(foundation: &Foundation, deps: CodesDeps, gateway_patience: Duration) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        let ledger = Ledger::new(db, clock.clone(), entropy.clone());
        Self(Arc::new(CodesInner {
            budgets: Channel::ALL.map(|channel| {
                MessageBudgets::new(channel, deps.limiter.clone(), ledger.clone(), deps.given_up.messages)
            }),
            ledger,
            gateway_patience,
            turns: WaitQueue::new(MOST_WAITING, 1 + MOST_WAITING_FOR_ONE),
            slots: MessageSlots::default(),
            limits: LastMessageLimits::default(),
            level: tokio::sync::Mutex::default(),
            money: ArcSwap::default(),
            costs_failed: AtomicBool::new(false),
            mail_server: ArcSwap::default(),
            mail_permits: Arc::new(Semaphore::new(MAILS_AT_ONCE)),
            metrics: MessageMetrics::register(),
            keys: secrets.derive_signing("code.hash"),
            askers: secrets.derive("code.asker"),
            clock,
            entropy,
            deps,
        }))
    }

    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// The scopes of the programs whose messages are configured.
    pub fn scopes(&self) -> impl Iterator<Item = String> {
        let Self(inner) = self;
        let of = |kind: ProgramKind, name: &String| format!("{}{name}", kind.lead());
        let verifiers = inner.deps.programs.keys().map(move |name| of(ProgramKind::Verifier, name));
        verifiers.chain(inner.deps.relays.keys().map(move |name| of(ProgramKind::Relay, name)))
    }

    pub fn gateways(&self) -> &Gateways {
        &self.0.deps.gateways
    }

    /// Notices which gateways are back in service.
    pub async fn probe_gateways(&self) {
        self.0.deps.gateways.probe(|| self.0.clock.now()).await;
    }

    /// The key by which the ledger counts what reaches a phone or a mailbox.
    pub fn recipient_key(&self, live: &LiveSettings, recipient: &Recipient) -> SubjectKey {
        self.key_of(live, recipient.channel(), recipient.subject())
    }

    /// The key under which the ledger has the messages to a phone.
    pub fn phone_key(&self, live: &LiveSettings, phone: &Phone) -> SubjectKey {
        self.key_of(live, Channel::Sms, phone.subject())
    }

    pub(super) fn key_of(&self, live: &LiveSettings, channel: Channel, name: &str) -> SubjectKey {
        let limit = match channel {
            Channel::Sms => &live.limits.sms_phone,
            Channel::Mail => &live.limits.mail_mailbox,
        };
        self.0.deps.limiter.bucket(limit, name.as_bytes()).key
    }

    /// Makes sure that the window store has the windows of earlier messages. Used at start, so that the first
    /// request need not wait for it. False if that was not possible yet.
    pub async fn rebuild_windows(&self, live: &LiveSettings) -> bool {
        let mut complete = true;
        for channel in Channel::ALL {
            let limits = self.message_limits(live, channel);
            complete &= self.0.budgets(channel).rebuild_windows(&limits).await.is_some();
        }
        complete
    }

    /// Notices what the window store has lost.
    pub async fn forget_if_lost(&self, live: &LiveSettings) {
        for channel in Channel::ALL {
            self.0.budgets(channel).forget_if_lost(&self.message_limits(live, channel)).await;
        }
    }

    pub(super) fn message_limits(&self, live: &LiveSettings, channel: Channel) -> Arc<MessageLimits> {
        self.0.limits.of(live, channel)
    }

    /// Waits until no message is in flight any more. Used at shutdown.
    pub async fn drain(&self) {
        self.0.slots.all_free().await;
    }

    /// Bound to the number, the purpose as stored, and the message: equal codes have different hashes.
    pub(super) fn code_hash(
        &self,
        number: SubjectKey,
        purpose: &str,
        message: MessageId,
        code: &MessageCode,
    ) -> String {
        let hash = hash_of(self.0.keys.signing(), number, purpose, message, code);
        String::from_utf8_lossy(&hash).into_owned()
    }

    pub(super) fn is_code(
        &self,
        stored: &str,
        number: SubjectKey,
        purpose: &str,
        message: MessageId,
        code: &MessageCode,
    ) -> bool {
        let hash = |key: &SubKey| hash_of(key, number, purpose, message, code);
        self.0.keys.signer(stored.as_bytes(), hash).is_some()
    }

    /// The id of a browser that requests a number's codes, as the ledger stores it.
    pub(super) fn asker(&self, phone: SubjectKey, browser: &[u8]) -> String {
        hex(&self.0.askers.hash(&[&phone.0, browser]))
    }

    /// Deletes at most `batch` messages older than the ledger's retention, and as many withheld ones, codes and brakes;
    /// returns the largest of these counts. Never deletes one that a window still needs.
    pub async fn purge(&self, live: &LiveSettings, batch: u32) -> Result<u64, DbError> {
        let now = self.0.ledger.now().await?;
        let longest = live.sms.retention.max(live.sms.brake.window);
        let horizons = Channel::ALL.map(|channel| self.message_limits(live, channel).horizon(now));
        let counted = horizons.into_iter().min().unwrap_or(now);
        let before = now.minus(longest).min(counted);
        let guesses = live.limits.sms_guess.longest_window().max(live.limits.mail_guess.longest_window());
        let spans = [guesses, live.sms.brake.again_within];
        self.0.ledger.purge(before, counted, spans, batch).await
    }

    pub async fn spent(&self, live: &LiveSettings) -> Result<Option<SpentRule>, StoreError> {
        let (limits, total) = (self.message_limits(live, Channel::Sms), &live.limits.sms_total);
        if total.mode() == LimitMode::Monitor || total.rules().is_empty() {
            return Ok(None);
        }
        let limiter = &self.0.deps.limiter;
        let states = limiter.peek_all(&limits.total(limiter)).await?;
        let [all, pages] = &states[..] else { unreachable!("a state for each of two logs") };
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
        if level > before {
            let name = level.into_str();
            let audit = &self.0.deps.audit;
            let event = AuditEvent::new(audit.now(), Action::Budget, Outcome::Ok);
            audit.record(AuditEvent { name: Some(name), limit: Some(LimitName::SmsTotal.as_str()), ..event });
            tracing::warn!(level = name, "a large part of the limit sms-total is used");
        }
    }
}

/// In hex.
fn hash_of(
    key: &SubKey,
    number: SubjectKey,
    purpose: &str,
    message: MessageId,
    code: &MessageCode,
) -> [u8; 64] {
    let message = message.to_string();
    let parts: [&[u8]; 4] = [&number.0, purpose.as_bytes(), message.as_bytes(), code.expose().as_bytes()];
    let hash = blake3::Hash::from_bytes(key.hash(&parts)).to_hex();
    *hash.as_bytes().first_chunk().expect("64 digits")
}

impl CodeService {
    /// Messages up to now no longer count for this subject of a limit. Everything else that they count for is
    /// unchanged: other limits and the brake.
    pub async fn forgive(&self, limit: &Limit, subject: &[u8]) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO sms_excuses (phone_key, up_to) VALUES ($1, $2)
            ON CONFLICT (phone_key) DO UPDATE SET up_to = excluded.up_to
            WHERE sms_excuses.up_to < excluded.up_to";
        let CodesInner { deps, ledger, .. } = &*self.0;
        let (log, now) = (deps.limiter.bucket(limit, subject).key, ledger.now().await?);
        execute!(&ledger.db => query(SQL).bind(hex(&log.0)).bind(now.0))?;
        Ok(())
    }

    /// For a limit whose `captcha` rules are for our own pages alone: the subject that counts them.
    pub fn beside(&self, limit: Option<LimitName>) -> Option<&'static [u8]> {
        (limit == Some(LimitName::SmsTotal)).then_some(PAGES)
    }
}
