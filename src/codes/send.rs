//! Sends one message, from top to bottom: [`CodeService::turn`] waits for requests with the same name, [`InTurn::send`]
//! begins a task, [`SendJob::run`] makes attempts and asks [`decide`] about what they meet, [`SendJob::attempt`] counts the
//! message, [`SendJob::write`] writes it for good, and [`SendJob::deliver`] calls the gateways.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gatehouse_limiter::wait_queue::QueuePosition;
use gatehouse_limiter::{AdmittedHit, HitId, Refusal, StoreError, SubjectKey};
use tokio::time::Instant;
use tracing::Instrument;
use zeroize::Zeroizing;

use super::budgets::{BudgetTicket, MessageBudgets};
use super::decide::{BudgetShare, Facts, Obstacle, SendDecision, SendPath, decide};
use super::ledger::{EarlierMessage, MessageDraft, MessageState, Unsent};
use super::message_limits::{CONFIRMATIONS_LAST, MAIL_CODES_LAST, MessageLogs, RELAYED};
use super::money::MoneyLeft;
use super::recipient::{Channel, Recipient};
use super::request::{HandoverFlag, RequestedMessage, SendAnswer, SendOutcome, SendReceipt};
use super::service::CodeService;
use super::slots::MessageSlot;
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::clock::Micros;
use crate::config::{Brake, Brand, CountryMode, LimitName, LiveSettings, ResetByMail};
use crate::db::DbError;
use crate::denied::{ACCESS, Denied};
use crate::mail::{LetterKind, QueuedMail};
use crate::message::{MessageCode, MessageId, MessagePurpose, Purpose};
use crate::sms::gateway::{ListedSlot, NoGateway};
use crate::sms::{DeliveryResult, RefusedFor, SmsGateway, SmsMessage, text};
use crate::{request_id, spans};

/// How often a request checks on the same request at another instance; and how often if that one is in the
/// ledger but not settled, because its gateway is slow or its process died.
const CHECK_EVERY: Duration = Duration::from_millis(50);
const MOST_CHECKS: usize = 10;
const MOST_CHECKS_OF_PENDING: usize = 4;
/// A pause may be ended early, so nobody is told to wait longer than this.
const LONGEST_RETRY: Duration = Duration::from_secs(60 * 60);
/// How long an identity provider waits: Supabase gives up after 5 s, and an answer within 4 reaches it. The rest is for
/// reading the ledger then.
const RELAY_PATIENCE: Duration = Duration::from_secs(3);
const READING: Duration = Duration::from_millis(500);

/// One request on its own task, and the limits that were in force when it came.
pub struct SendJob {
    codes: CodeService,
    message: RequestedMessage,
    logs: MessageLogs,
    /// The number's own key.
    number: SubjectKey,
    brake: Brake,
    /// Where the number is, which takes as long as a refusal to find out.
    country: OnceLock<Option<String>>,
    /// Whether its country may ask for a challenge.
    country_asks: bool,
    money: MoneyLeft,
    /// How long its code is valid; how long the request is recognised if the code is not ours.
    code_ttl: Duration,
    brand: Arc<Brand>,
    guess_window: Duration,
    first: SendPath,
    reset_by_mail: ResetByMail,
    /// If the caller may stop waiting, and then answers that nothing is sent.
    handover: Option<HandoverFlag>,
}

/// A request whose turn it is among those with its name.
pub struct InTurn {
    job: Box<SendJob>,
    held: Option<QueuePosition<SubjectKey>>,
}

pub enum TurnResult {
    Mine(InTurn),
    /// An earlier request with the name had this answer, or too many wait.
    Answered(SendOutcome),
}

impl CodeService {
    /// Sends a code if every budget admits it. The caller may be dropped: a send that has begun runs to its
    /// end.
    pub async fn send(&self, live: &LiveSettings, message: RequestedMessage) -> Result<SendOutcome, DbError> {
        SendJob::new(self.clone(), live, message).wait_and_send(live).await
    }

    /// Waits until no request with the same name is in progress in this process. Runs in the caller, not on a
    /// task, so that a client that hangs up no longer waits. With `look` it also returns what an earlier
    /// request was answered, and changes nothing: for requests that should not be asked for a challenge that
    /// the earlier one has used up.
    pub async fn turn(
        &self,
        live: &LiveSettings,
        message: RequestedMessage,
        look: bool,
    ) -> Result<TurnResult, DbError> {
        SendJob::new(self.clone(), live, message).wait(live, look).await
    }

    /// Sends the code of an identity provider once for its name, within the time that the provider waits. If that takes
    /// too long, a message that was handed to the gateway is on its way: this one, or that of the same request before,
    /// which the ledger knows. Otherwise none is sent any more.
    pub async fn relay(
        &self,
        live: &LiveSettings,
        message: RequestedMessage,
    ) -> Result<SendOutcome, DbError> {
        let flag = HandoverFlag::default();
        let job = SendJob { handover: Some(flag.clone()), ..SendJob::new(self.clone(), live, message) };
        let once = job.once();
        match tokio::time::timeout(RELAY_PATIENCE, job.wait_and_send(live)).await {
            Ok(outcome) => outcome,
            Err(_) => Ok(match flag.call_off() {
                Some(id) => on_its_way(id, RELAYED),
                None => self.begun(once).await,
            }),
        }
    }

    async fn begun(&self, once: Option<SubjectKey>) -> SendOutcome {
        let Some(once) = once else { return SendOutcome::unavailable() };
        match tokio::time::timeout(READING, self.0.ledger.earlier(once)).await {
            Ok(Ok(Some(earlier))) => on_its_way(earlier.id, earlier.expires_in),
            Ok(Ok(None) | Err(_)) | Err(_) => SendOutcome::unavailable(),
        }
    }

    /// Notes how a code ended at the provider. False if the message is none of the relay's.
    pub async fn relay_outcome(&self, relay: &MessagePurpose, id: &str, used: bool) -> Result<bool, DbError> {
        let Some(id) = MessageId::parse(id) else { return Ok(false) };
        self.0.ledger.note_outcome(relay, id, used).await
    }
}

/// No message is sent while the window store is out, or its windows are not rebuilt yet.
fn store_out(error: Option<StoreError>) -> Unsent {
    tracing::debug!(?error, "no message is sent while the window store is out");
    Unsent::Met(Obstacle::StoreOut)
}

fn on_its_way(id: MessageId, expires_in: Duration) -> SendOutcome {
    let (resend_after, confirmed, short) = (Duration::ZERO, false, false);
    SendOutcome::Sent(SendReceipt { id: Some(id), expires_in, resend_after, confirmed, short })
}

impl InTurn {
    pub async fn send(self, live: &LiveSettings, solved: bool) -> Result<SendOutcome, DbError> {
        let Self { mut job, held } = self;
        let (codes, channel) = (job.codes.clone(), job.message.to.channel());
        job.message.solved = solved;
        let everyone = live.access.challenges_everyone(codes.0.clock.now()).map(Obstacle::EveryoneChallenged);
        let always = job.message.to.phone().is_some_and(|phone| phone.is_challenged(&live.sms));
        let always = always.then_some(Obstacle::AlwaysChallenged);
        // Where the whole is spent, messages to everybody end; those to accounts alone end unseen.
        let MoneyLeft { open, kept } = job.money;
        let money = (!open || (!kept && job.first == SendPath::Open)).then_some(Obstacle::MoneySpent);
        let task = async move {
            let job = Arc::<SendJob>::from(job);
            let answer = job.run(everyone.into_iter().chain(always).chain(money)).await?;
            job.record(&answer);
            // The next request with this name sees the outcome.
            drop(held);
            Ok::<_, DbError>(answer)
        };
        let answer = request_id::spawn(task).await.expect("sending does not panic")?;
        codes.0.metrics.answer(channel, &answer);
        Ok(answer.outcome)
    }
}

impl SendJob {
    fn new(codes: CodeService, live: &LiveSettings, message: RequestedMessage) -> Self {
        let channel = message.to.channel();
        let limits = codes.message_limits(live, channel);
        let logs = MessageLogs::of(&codes.0.deps.limiter, &limits, &message);
        Self {
            number: codes.key_of(live, message.to.channel(), message.to.bound(&message.purpose)),
            reset_by_mail: live.mail.reset,
            logs,
            brake: live.sms.brake.clone(),
            money: codes.money_left(live, &message),
            country_asks: !matches!(message.purpose, MessagePurpose::Relayed(_))
                && message
                    .to
                    .phone()
                    .is_none_or(|phone| phone.country_mode(&live.sms) != CountryMode::Monitor),
            country: OnceLock::new(),
            brand: Arc::clone(&live.brand),
            code_ttl: match message.purpose {
                MessagePurpose::Own(Purpose::Reset) if channel == Channel::Mail => MAIL_CODES_LAST,
                MessagePurpose::Own(_) if channel == Channel::Mail => CONFIRMATIONS_LAST,
                MessagePurpose::Own(_) | MessagePurpose::Verification(_) => live.sms.code_ttl,
                MessagePurpose::Relayed(_) => RELAYED,
            },
            guess_window: limits.guess.longest_window(),
            first: SendPath::first(&message.purpose, channel, live.registration.takes_new_numbers()),
            handover: None,
            codes,
            message,
        }
    }

    async fn wait_and_send(self, live: &LiveSettings) -> Result<SendOutcome, DbError> {
        let solved = self.message.solved;
        match self.wait(live, false).await? {
            TurnResult::Mine(turn) => turn.send(live, solved).await,
            TurnResult::Answered(outcome) => Ok(outcome),
        }
    }

    async fn wait(self, live: &LiveSettings, look: bool) -> Result<TurnResult, DbError> {
        let inner = &*self.codes.0;
        let answered = |answer: SendAnswer| {
            inner.metrics.answer(self.message.to.channel(), &answer);
            Ok(TurnResult::Answered(answer.outcome))
        };
        if let Some(paused) = self.paused(live)
            && let Break(answer) = self.decide(self.first, paused)
        {
            self.record_paused();
            return answered(answer);
        }
        let Some(name) = self.once() else {
            return Ok(TurnResult::Mine(InTurn { job: Box::new(self), held: None }));
        };
        // One at a time in this process: the second learns how the first ended instead of polling.
        let turn = match inner.turns.join(name) {
            Some(position) => position.turn().await.ok(),
            None => None,
        };
        let Some(held) = turn else { return answered(SendOutcome::unavailable().into()) };
        if look && let Some(earlier) = self.earlier().await? {
            return answered(self.repeated(earlier).await?);
        }
        Ok(TurnResult::Mine(InTurn { job: Box::new(self), held: Some(held) }))
    }

    /// Makes attempts until the message is handed over, or until the request is refused for what it meets.
    async fn run(self: &Arc<Self>, set: impl Iterator<Item = Obstacle>) -> Result<SendAnswer, DbError> {
        self.free_name().await?;
        let mut path = self.first;
        for known in set.chain(self.remembered_brake()) {
            match self.decide(path, known) {
                Continue(on) => path = on,
                // A repeated request still learns its outcome.
                Break(_) if self.budgets().is_repeated(&self.logs).await => break,
                Break(answer) => return Ok(answer),
            }
        }
        let (mut earlier, mut pending) = (None, 0);
        for _ in 0..MOST_CHECKS {
            if self.handover.as_ref().is_some_and(HandoverFlag::is_called_off) {
                return Ok(SendOutcome::unavailable().into());
            }
            match self.attempt(path).await? {
                Continue(answer) => return Ok(answer),
                Break(Unsent::Met(obstacle)) => match self.decide(path, obstacle) {
                    Continue(on) => path = on,
                    Break(answer) => return Ok(answer),
                },
                Break(Unsent::TakenBack) => {}
                Break(Unsent::Earlier(earlier)) => return self.repeated(earlier).await,
                Break(Unsent::Repeated) => {
                    earlier = self.earlier().await?;
                    pending += usize::from(earlier.is_some());
                    let is_settled = |it: &EarlierMessage| it.short || it.state != MessageState::Pending;
                    if earlier.as_ref().is_some_and(is_settled) || pending == MOST_CHECKS_OF_PENDING {
                        break;
                    }
                    tokio::time::sleep(CHECK_EVERY).await;
                }
            }
        }
        match earlier {
            Some(earlier) => self.repeated(earlier).await,
            None => Ok(SendOutcome::unavailable().into()),
        }
    }

    /// The path on which the request goes on, or its answer.
    fn decide(&self, path: SendPath, met: Obstacle) -> ControlFlow<SendAnswer, SendPath> {
        let RequestedMessage { purpose, solved, .. } = &self.message;
        let decision = decide(Facts { purpose, solved: *solved, path, met: &met });
        let refusal = if let Obstacle::Limit(_, refusal) = &met { Some(*refusal) } else { None };
        let is_of_domain = matches!((&met, self.message.to.channel()), (Obstacle::Brake(_), Channel::Mail));
        let (mut limit, rule, retry_after) = met.told();
        if is_of_domain {
            limit = LimitName::MailDomain.as_str().into();
        }
        let denied = match decision {
            SendDecision::GoOn(path) => return Continue(path),
            SendDecision::Challenge => Denied::Challenged { limit, rule, retry_after },
            SendDecision::Throttle => Denied::Throttled { limit, rule, retry_after },
            SendDecision::Unavailable => Denied::Unavailable { retry_after },
        };
        Break(SendAnswer { refusal, ..SendOutcome::Denied(denied).into() })
    }

    /// The pause of the number's prefix, if an administrator has set one: the same for every number under it.
    fn paused(&self, live: &LiveSettings) -> Option<Obstacle> {
        let now = self.codes.0.clock.now();
        let left = self.message.to.phone()?.numbers().find_map(|number| live.access.paused(&number, now))?;
        Some(Obstacle::Paused(left.min(LONGEST_RETRY)))
    }

    /// What the number's prefixes ask, if this process met it a moment ago: a flood at a braked prefix writes nothing
    /// and asks nobody.
    fn remembered_brake(&self) -> Option<Obstacle> {
        let brakes = &self.codes.ledger().brakes;
        let country = if self.country_asks && brakes.countries.any_asks() { self.country() } else { None };
        let scope = self.message.scope();
        let known = match &self.message.to {
            Recipient::Phone(phone) => brakes.recall(&scope, phone, country).filter(|_| self.brake.enabled),
            Recipient::Mailbox(_) => brakes.countries.asks(&scope, country?, self.codes.0.clock.now()),
        };
        known.map(Obstacle::Brake)
    }

    fn budgets(&self) -> &MessageBudgets {
        self.codes.0.budgets(self.message.to.channel())
    }

    const fn action(&self) -> Action {
        self.message.to.channel().request()
    }

    fn country(&self) -> Option<&str> {
        let country = || match &self.message.to {
            Recipient::Phone(phone) => phone.country(),
            // Codes that do not come back from a domain are counted as those of a country are.
            Recipient::Mailbox(mailbox) => Some(format!("@{}", mailbox.domain())),
        };
        self.country.get_or_init(country).as_deref()
    }

    fn once(&self) -> Option<SubjectKey> {
        self.logs.once.as_ref().map(|log| log.key)
    }

    async fn earlier(&self) -> Result<Option<EarlierMessage>, DbError> {
        let Some(name) = self.once() else { return Ok(None) };
        Ok(self.codes.ledger().earlier(name).await?.filter(|earlier| !earlier.used_up))
    }

    /// A name whose verification is used up is free again.
    async fn free_name(&self) -> Result<(), DbError> {
        if let (MessagePurpose::Verification(_), Some(name)) = (&self.message.purpose, self.once())
            && let Some(earlier) = self.codes.ledger().earlier(name).await?
            && earlier.used_up
        {
            self.budgets().free_name(&self.logs, earlier.hit).await;
        }
        Ok(())
    }

    /// Whether it was handed over; a mail that is queued will be.
    fn is_on_its_way(&self, earlier: &EarlierMessage) -> bool {
        let is_queued = earlier.state == MessageState::Pending && self.message.to.channel() == Channel::Mail;
        is_queued || earlier.state == MessageState::Accepted
    }

    /// The answer that the first request with this name got, or would get now.
    async fn repeated(&self, earlier: EarlierMessage) -> Result<SendAnswer, DbError> {
        let resend_after = self.codes.ledger().resend_after(self.logs.phone.borrow()).await?;
        let (short, confirmed) = (earlier.short, self.is_on_its_way(&earlier) && !earlier.short);
        let (id, expires_in) = (self.shown_id(earlier.id), earlier.expires_in);
        let receipt = SendReceipt { id, expires_in, resend_after, confirmed, short };
        Ok(SendAnswer { repeated: true, ..SendOutcome::Sent(receipt).into() })
    }

    /// Counts the message, and enters it. If it is not handed over, it no longer counts.
    async fn attempt(self: &Arc<Self>, path: SendPath) -> Result<ControlFlow<Unsent, SendAnswer>, DbError> {
        let budgets = self.budgets();
        if path == SendPath::Accounts {
            match budgets.spent_open_part(&self.logs).await {
                Ok(None) => {}
                Ok(Some(full)) => return Ok(Break(Unsent::Met(full))),
                Err(error) => return Ok(Break(store_out(Some(error)))),
            }
        }
        let ticket = match budgets.admit(&self.logs, path, self.message.solved).await {
            Ok(Continue(ticket)) => ticket,
            Ok(Break(unsent)) => return Ok(Break(unsent)),
            Err(error) => return Ok(Break(store_out(error))),
        };
        let attempt = self.enter(&ticket, path).await;
        if !matches!(attempt, Ok(Continue(_))) {
            budgets.refund(&self.logs.every_log(path), ticket.admitted.id).await;
        }
        if let Ok(Break(Unsent::Met(Obstacle::Limit(..)))) = attempt {
            // The ledger refused what the window store had admitted.
            let number = self.logs.phone.borrow();
            budgets.restore_number(number, &self.codes.ledger().sent_to(number).await?).await;
        }
        attempt
    }

    /// Writes the message with its share of the budgets, and delivers it.
    async fn enter(
        self: &Arc<Self>,
        ticket: &BudgetTicket,
        path: SendPath,
    ) -> Result<ControlFlow<Unsent, SendAnswer>, DbError> {
        let (inner, BudgetTicket { admitted, generation }) = (&*self.codes.0, *ticket);
        let Some(_in_flight) = self.slot(path) else { return Ok(Break(Unsent::Met(Obstacle::NoSlot))) };
        let (share, slot) = match self.share(admitted.id, path).await? {
            Ok(share) => share,
            Err(error) => return Ok(Break(store_out(Some(error)))),
        };
        let id = MessageId::random(&inner.entropy);
        let (code, code_hash) = self.code(id);
        let mail = self.mail(id, &code, share);
        let code_hash = code_hash.as_deref();
        let draft = MessageDraft { code_hash, mail, ..self.draft(id, admitted.id, path, share) };
        let begun = inner.clock.now();
        let resend_after = match self.write(&draft, generation).await? {
            Continue(resend_after) => resend_after,
            Break(unsent) => return Ok(Break(unsent)),
        };
        let short = path != SendPath::Open;
        let is_mail = self.message.to.channel() == Channel::Mail;
        let (confirmed, gone) = if is_mail {
            // It is queued, or withheld. On the open path it is recorded with its answer.
            if short {
                let withheld = share == BudgetShare::Withheld;
                let outcome = if withheld { Outcome::Withheld } else { Outcome::Ok };
                self.record_short(outcome, &admitted, path);
            }
            (Some(true), Duration::ZERO)
        } else if short {
            self.deliver_later((id, code), share, (admitted, path), slot);
            (Some(false), Duration::ZERO)
        } else {
            (self.deliver(id, admitted.id, code).await, inner.clock.now().since(begun))
        };
        let receipt = |confirmed| SendReceipt {
            id: self.shown_id(id),
            expires_in: self.code_ttl.saturating_sub(gone),
            resend_after: resend_after.saturating_sub(gone),
            confirmed,
            short,
        };
        let outcome =
            confirmed.map_or(SendOutcome::NotSent, |confirmed| SendOutcome::Sent(receipt(confirmed)));
        Ok(Continue(SendAnswer { admitted: Some(admitted), ..outcome.into() }))
    }

    /// Writes the message to the ledger, and decides for good that it is handed over. Continues with the time until the
    /// number's rules admit the next.
    async fn write(
        &self,
        draft: &MessageDraft<'_>,
        generation: HitId,
    ) -> Result<ControlFlow<Unsent, Duration>, DbError> {
        let inner = &*self.codes.0;
        let written = inner.ledger.write(draft).await?;
        if let Break(Unsent::Met(Obstacle::Brake(braked))) = &written {
            inner.metrics.brakes_of(&self.message.purpose).increment(u64::from(braked.tripped));
        }
        if written.is_break() {
            return Ok(written);
        }
        let counts = self.budgets().is_current(&self.logs.limits, generation).await;
        // Nothing undoes this: the caller can no longer call the message off, and it goes to the gateway.
        let handed_over = counts && self.handover.as_ref().is_none_or(|flag| flag.hand_over(draft.id));
        if !handed_over {
            // A mail may be on its way to its server.
            return match inner.ledger.withdraw(draft).await? {
                true => Ok(Break(Unsent::TakenBack)),
                false => Ok(written),
            };
        }
        Ok(written)
    }

    /// The code of the message; and its hash if it is ours: a program checks itself what it has made.
    fn code(&self, id: MessageId) -> (MessageCode, Option<String>) {
        if let Some(code) = &self.message.code {
            return (code.clone(), None);
        }
        let code = MessageCode::random(&self.codes.0.entropy);
        let hash = self.codes.code_hash(self.number, &self.message.purpose.stored(), id, &code);
        (code, Some(hash))
    }

    fn draft(&self, id: MessageId, hit: HitId, path: SendPath, share: BudgetShare) -> MessageDraft<'_> {
        let browser = self.message.browser.as_deref();
        MessageDraft {
            id,
            message: &self.message,
            logs: &self.logs,
            number: self.number,
            hit,
            event_key: self.event_key(),
            gateway: match self.message.to.channel() {
                Channel::Sms => self.codes.gateways().likely(self.country()),
                Channel::Mail => "smtp",
            },
            country: self.country(),
            code_hash: None,
            mail: None,
            code_ttl: self.code_ttl,
            asker: browser.map(|browser| self.codes.asker(self.logs.phone.key, browser)),
            guess_window: self.guess_window,
            brake: &self.brake,
            share,
            path,
        }
    }

    /// What is queued of a mail; nothing is sent of one that is withheld.
    fn mail(&self, id: MessageId, code: &MessageCode, share: BudgetShare) -> Option<QueuedMail> {
        let inner = &*self.codes.0;
        let (Recipient::Mailbox(mailbox), MessagePurpose::Own(purpose)) =
            (&self.message.to, &self.message.purpose)
        else {
            return None;
        };
        let kind = match purpose {
            Purpose::Register => LetterKind::RegisterCode,
            Purpose::Reset | Purpose::Login => LetterKind::ResetCode,
            Purpose::Verify => LetterKind::ConfirmCode,
        };
        let withheld = share == BudgetShare::Withheld;
        let (code, locale) = (code.expose(), self.message.locale.as_str());
        Some(inner.deps.mailer.seal.code(id, kind, mailbox, (code, locale), withheld, &inner.entropy))
    }

    /// Counts and records a message in a shortage, of which nobody who asked is told what became.
    fn record_short(&self, outcome: Outcome, admitted: &AdmittedHit, path: SendPath) {
        self.codes.0.metrics.message(self.message.to.channel(), outcome);
        let counted = self.logs.at_once(path);
        // In a shortage every limit of the requester is one that only counts.
        let noted = admitted.noted.as_ref().filter(|_| path == SendPath::Accounts);
        let why = noted.map(|refusal| EventRule::noted(counted[refusal.bucket].limit.name(), refusal));
        self.record_event(AuditEvent { why, ..AuditEvent::new(admitted.at, self.action(), outcome) });
    }

    /// The id of a message, for those who have a use for it.
    fn shown_id(&self, id: MessageId) -> Option<MessageId> {
        self.message.purpose.program().map(|_| id)
    }

    /// Hands the message to the gateway once, and writes the outcome: first to the ledger, which decides. Returns whether
    /// the gateway has confirmed it; None if it was not sent.
    async fn deliver(&self, id: MessageId, hit: HitId, code: MessageCode) -> Option<bool> {
        let taken = self.call_gateways(id, code).await;
        // If that cannot be written, it stays pending and counts, in the window store as well.
        let settled = self.note_delivery(id, Some(&taken)).await;
        match taken.1 {
            // This process was stopped for minutes, and the ledger has marked the message as unknown.
            _ if settled == Some(false) => Some(false),
            DeliveryResult::Accepted { .. } => Some(true),
            DeliveryResult::Unknown { .. } => Some(false),
            DeliveryResult::Refused { .. } => {
                if settled.is_some() {
                    self.budgets().refund_all_but_asker(&self.logs, hit).await;
                }
                None
            }
        }
    }

    /// In a shortage nobody waits for the gateway: the waiting time would show whether a message was sent. If
    /// the gateway refuses, nothing is refunded and the code stays valid, because that would show it later.
    fn deliver_later(
        self: &Arc<Self>,
        (id, code): (MessageId, MessageCode),
        share: BudgetShare,
        (admitted, path): (AdmittedHit, SendPath),
        slot: Option<MessageSlot>,
    ) {
        let job = Arc::clone(self);
        request_id::spawn(async move {
            let taken = match share {
                BudgetShare::Withheld => None,
                BudgetShare::Open | BudgetShare::SpentAsker | BudgetShare::Reserve => {
                    Some(match job.call_gateways(id, code).await {
                        (gateway, DeliveryResult::Refused { reason, .. }) => {
                            (gateway, DeliveryResult::Unknown { reason: format!("refused: {reason}") })
                        }
                        other => other,
                    })
                }
            };
            job.note_delivery(id, taken.as_ref()).await;
            let outcome = match taken {
                None => Outcome::Withheld,
                Some((_, DeliveryResult::Accepted { .. })) => Outcome::Ok,
                Some((_, DeliveryResult::Refused { .. } | DeliveryResult::Unknown { .. })) => {
                    Outcome::Unknown
                }
            };
            job.record_short(outcome, &admitted, path);
            drop(slot);
        });
    }

    /// Writes the outcome to the ledger; None if that is not possible.
    async fn note_delivery(
        &self,
        id: MessageId,
        taken: Option<&(&'static str, DeliveryResult)>,
    ) -> Option<bool> {
        let settled = self.codes.ledger().settle(id, taken).await;
        settled
            .inspect_err(|error| {
                tracing::warn!(%error, message = %id, "the outcome of a message could not be recorded in the ledger");
            })
            .ok()
    }

    /// The text of the message, which is as secret as the code.
    fn text(&self, code: &MessageCode) -> Zeroizing<String> {
        let inner = &*self.codes.0;
        let (locale, language) = (self.message.locale.as_str(), self.message.language.as_deref());
        match &self.message.purpose {
            MessagePurpose::Own(purpose) => {
                let site = inner.deps.site.as_deref();
                text::text(*purpose, code, self.code_ttl, locale, &self.brand.name, site)
            }
            MessagePurpose::Verification(of) => {
                let (name, ttl) = (of.program(), Some(self.code_ttl));
                text::program_text(name, inner.deps.programs.get(name), code, ttl, locale, language)
            }
            MessagePurpose::Relayed(relay) => {
                text::program_text(relay, inner.deps.relays.get(relay), code, None, locale, language)
            }
        }
    }

    /// Hands the message to the first gateway of its number's country, and to the next one only if that one sends nothing to
    /// anybody: whatever else happens may have sent it. Returns the last one and what it said.
    async fn call_gateways(&self, id: MessageId, code: MessageCode) -> (&'static str, DeliveryResult) {
        let inner = &*self.codes.0;
        let (text, country) = (Arc::new(self.text(&code)), self.country());
        let (country, until) = (country, Instant::now() + inner.gateway_patience);
        let (mut tried, mut last) = (Vec::new(), None);
        while let Some(slot) = inner.deps.gateways.next(country, &tried, inner.clock.now()) {
            let delivery = self.call_gateway(slot, (id, code.clone(), Arc::clone(&text)), until).await;
            slot.note(&delivery, country, inner.clock.now());
            let is_out = matches!(delivery, DeliveryResult::Refused { whose: RefusedFor::Everybody(_), .. });
            last = Some((slot.name(), delivery));
            if !is_out {
                break;
            }
            tried.push(slot.name());
        }
        last.unwrap_or_else(|| {
            let (reason, whose) = ("no gateway serves the country".to_owned(), RefusedFor::ThisMessage);
            tracing::warn!(country, message = %id, "no gateway of sms.gateways serves the country of a number");
            (NoGateway.name(), DeliveryResult::Refused { reason, whose })
        })
    }

    async fn call_gateway(
        &self,
        slot: &ListedSlot,
        (id, code, text): (MessageId, MessageCode, Arc<Zeroizing<String>>),
        until: Instant,
    ) -> DeliveryResult {
        let inner = &*self.codes.0;
        let Recipient::Phone(phone) = self.message.to.clone() else {
            return DeliveryResult::Unknown { reason: "not a number".to_owned() };
        };
        let gateway = Arc::clone(slot.gateway());
        // If a gateway panics, only this task ends.
        let span = spans::gateway(slot.name());
        let handed =
            async move { gateway.send(SmsMessage { id, phone: &phone, code: &code, text: &text }).await };
        let sending = request_id::spawn(handed.instrument(span.clone()));
        let (stop, begun) = (sending.abort_handle(), Instant::now());
        let delivery = match tokio::time::timeout_at(until, sending).await {
            Ok(Ok(delivery)) => delivery,
            Ok(Err(_)) => DeliveryResult::Unknown { reason: "the gateway's code failed".to_owned() },
            Err(_) => {
                stop.abort();
                DeliveryResult::Unknown { reason: "the gateway took too long".to_owned() }
            }
        };
        inner.metrics.gateway_took(begun.elapsed());
        if let DeliveryResult::Refused { reason, .. } | DeliveryResult::Unknown { reason } = &delivery {
            spans::failed(&span);
            let gateway = slot.name();
            tracing::info!(gateway, message = %id, reason, "the gateway did not confirm a message");
        }
        delivery
    }
}

// When codes are short: the open part of a shared budget is spent, or the number's prefix is under a brake.
// Everybody who solved a challenge, or who asks while strangers cannot register, gets the same answer, after the same number
// of writes, but only numbers of accounts get a message; at a program's brake, numbers that were proven at that program.
// While only the requester's address or network is spent, their messages come out of the open part of the others, so that the
// reserve lasts until that is spent, too.

impl SendJob {
    /// One of the slots that are open to everybody; or while it is looked up who owns the number.
    fn slot(&self, path: SendPath) -> Option<MessageSlot> {
        let (slots, scope) = (&self.codes.0.slots, self.message.scope());
        if path != SendPath::Open {
            return slots.undecided(&scope);
        }
        slots.open(&scope, self.asker())
    }

    /// Whose share of the open slots it takes; the requester is not always known.
    fn asker(&self) -> Option<[SubjectKey; 2]> {
        self.message.origin.as_ref().map(|_| self.logs.origin.each_ref().map(|log| log.key))
    }

    /// The slot of a message to a proven number.
    fn kept(&self, path: SendPath) -> Option<MessageSlot> {
        let (slots, scope) = (&self.codes.0.slots, self.message.scope());
        let open = (path == SendPath::Accounts).then(|| slots.open(&scope, self.asker())).flatten();
        open.or_else(|| slots.kept(&scope))
    }

    /// The part of the budgets that the message uses, and in a shortage its slot from the answer on. Every number is
    /// looked up, and a hit is taken for every number, so that it takes the same time whoever owns it; one that finds no
    /// slot is treated like one that nobody owns.
    async fn share(
        &self,
        hit: HitId,
        path: SendPath,
    ) -> Result<Result<(BudgetShare, Option<MessageSlot>), StoreError>, DbError> {
        if path == SendPath::Open {
            return Ok(Ok((BudgetShare::Open, None)));
        }
        let inner = &*self.codes.0;
        let proven = path.sends_to(self.proven_since().await?) && self.money.kept;
        let kept = proven.then(|| self.kept(path)).flatten();
        let taken = self.budgets().take(&self.logs, path, kept.is_some(), hit).await;
        Ok(taken.map(|share| {
            let slot = kept.filter(|_| share != BudgetShare::Withheld);
            (share, Some(slot.unwrap_or_else(|| inner.slots.withheld())))
        }))
    }

    /// Since when the number has been proven where the code is for: at the program, or as an account's here.
    async fn proven_since(&self) -> Result<Option<Micros>, DbError> {
        let (inner, purpose) = (&*self.codes.0, &self.message.purpose);
        match purpose.program() {
            None => inner.deps.owners.since(&self.message.to, self.reset_by_mail).await,
            Some(_) => inner.ledger.proven_since(&purpose.scope(), self.logs.phone.key).await,
        }
    }
}

// How requests for codes are recorded as events.

impl CodeService {
    /// `[access]` refuses the client that a program states, before anything is counted.
    pub fn record_denied(&self, purpose: &MessagePurpose, [address, network]: [&[u8]; 2]) {
        let (audit, purpose) = (&self.0.deps.audit, purpose.stored());
        audit.record(AuditEvent {
            name: Some(&purpose),
            address: Some(EventSubject::Address(address)),
            network: Some(EventSubject::Network(network)),
            why: Some(EventRule::by_nobody(ACCESS)),
            ..AuditEvent::new(audit.now(), Action::Send, Outcome::Refused)
        });
    }
}

impl SendJob {
    /// A repeated request is not an event, because it changes nothing. One in a shortage is recorded when its
    /// outcome is known.
    fn record(&self, answer: &SendAnswer) {
        if answer.repeated {
            return;
        }
        let audit = &self.codes.0.deps.audit;
        let Some(outcome) = answer.outcome.told() else { return };
        let limit = match &answer.outcome {
            SendOutcome::Denied(Denied::Challenged { limit, .. } | Denied::Throttled { limit, .. }) => {
                Some(limit)
            }
            _ => None,
        };
        let buckets = self.logs.all(BudgetShare::Open);
        let (at, why) = match (limit, &answer.refusal, &answer.admitted) {
            (Some(limit), Some(refusal), _) => {
                (audit.decided(refusal), Some(EventRule::refused(limit, refusal)))
            }
            // A brake, or everybody is challenged.
            (Some(limit), None, _) => (audit.now(), Some(EventRule::by_nobody(limit))),
            (None, _, Some(AdmittedHit { at, noted, .. })) => {
                let limit = |refusal: &Refusal| buckets[refusal.bucket].limit.name();
                (*at, noted.as_ref().map(|refusal| EventRule::noted(limit(refusal), refusal)))
            }
            (None, _, None) => (audit.now(), None),
        };
        // When its hits were refunded.
        let settled = (outcome == Outcome::Failed).then(|| audit.now());
        let event = AuditEvent { settled, why, ..AuditEvent::new(at, self.action(), outcome) };
        self.record_event(event);
    }

    /// It was not sent, because its prefix is paused.
    fn record_paused(&self) {
        let event = AuditEvent::new(self.codes.0.deps.audit.now(), self.action(), Outcome::Refused);
        self.record_event(AuditEvent { why: Some(EventRule::by_nobody(ACCESS)), ..event });
    }

    /// The key of the number in events. A check of a code of another program names no number.
    fn event_key(&self) -> Option<i64> {
        let (number, _) = self.message.to.recorded();
        let checked_by_id = matches!(self.message.purpose, MessagePurpose::Verification(_));
        checked_by_id.then(|| self.codes.0.deps.audit.subject(&number))
    }

    /// The purpose as the ledger has it, so that a program's is none of ours, nor the realm of a login.
    fn record_event(&self, event: AuditEvent<'_>) {
        let RequestedMessage { to, purpose, origin, solved, .. } = &self.message;
        let (origin, (recipient, prefix)) = (origin.as_ref(), to.recorded());
        self.codes.0.deps.audit.record(AuditEvent {
            name: Some(&purpose.stored()),
            solved: *solved,
            address: origin.map(|origin| EventSubject::Address(&origin.address)),
            network: origin.map(|origin| EventSubject::Network(&origin.network)),
            phone: Some(recipient),
            prefix,
            ..event
        });
    }
}
