//! Sends one message, from top to bottom: budgets, ledger, gateway, and what its answer means for both.

use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::wait_queue::QueuePosition;
use gatehouse_limiter::{HitId, SubjectKey};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::Instrument;

use super::brake::BrakedPrefix;
use super::budgets::{BudgetAdmission, BudgetTicket};
use super::codes::SmsCodes;
use super::ledger::{AskedBy, EarlierMessage, MessageDraft, MessageState, WhyNot, WriteResult};
use super::message::{HandoverFlag, RequestedMessage, SendAnswer, SendOutcome, SendReceipt, SmsError};
use super::message_limits::{BudgetShare, MessageKeys, MessageLimits, RELAYED, SendPath};
use super::{DeliveryResult, MessageId, MessagePurpose, SmsCode, SmsMessage};
use crate::clock::Micros;
use crate::config::{Brake, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
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
    pub codes: SmsCodes,
    pub message: RequestedMessage,
    pub limits: Arc<MessageLimits>,
    pub keys: MessageKeys,
    brake: Brake,
    /// How long its code is valid; how long the request is recognised if the code is not ours.
    pub code_ttl: Duration,
    /// The requesting browser, as the ledger stores it.
    asker: Option<String>,
    guess_window: Duration,
    /// How long everybody is challenged.
    everyone: Option<Duration>,
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

impl SmsCodes {
    /// Sends a code if every budget admits it. The caller may be dropped: a send that has begun runs to its
    /// end.
    pub async fn send(
        &self,
        live: &LiveSettings,
        message: RequestedMessage,
    ) -> Result<SendOutcome, SmsError> {
        SendJob::new(self.clone(), live, message).send(live).await
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
    ) -> Result<TurnResult, SmsError> {
        SendJob::new(self.clone(), live, message).turn(live, look).await
    }

    /// Sends the code of an identity provider once for its name, within the time that the provider waits. If that takes
    /// too long, a message that was handed to the gateway is on its way: this one, or that of the same request before,
    /// which the ledger knows. Otherwise none is sent any more.
    pub async fn relay(
        &self,
        live: &LiveSettings,
        message: RequestedMessage,
    ) -> Result<SendOutcome, SmsError> {
        let flag = HandoverFlag::default();
        let job = SendJob { handover: Some(flag.clone()), ..SendJob::new(self.clone(), live, message) };
        let once = job.keys.once;
        match tokio::time::timeout(RELAY_PATIENCE, job.send(live)).await {
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
    pub async fn relay_outcome(
        &self,
        relay: &MessagePurpose,
        id: &str,
        used: bool,
    ) -> Result<bool, SmsError> {
        let Some(id) = MessageId::parse(id) else { return Ok(false) };
        Ok(self.0.ledger.note_outcome(relay, id, used).await?)
    }
}

fn on_its_way(id: MessageId, expires_in: Duration) -> SendOutcome {
    let (resend_after, confirmed, short) = (Duration::ZERO, false, false);
    SendOutcome::Sent(SendReceipt { id: Some(id), expires_in, resend_after, confirmed, short })
}

impl InTurn {
    pub async fn send(mut self, live: &LiveSettings, solved: bool) -> Result<SendOutcome, SmsError> {
        let codes = self.job.codes.clone();
        self.job.message.solved = solved;
        self.job.everyone = live.access.challenges_everyone(codes.0.deps.clock.now());
        let task = async move {
            let job = Arc::<SendJob>::from(self.job);
            let answer = job.run().await?;
            job.record(&answer);
            // The next request with this name sees the outcome.
            drop(self.held);
            Ok::<_, SmsError>(answer)
        };
        let answer = request_id::spawn(task).await.expect("sending does not panic")?;
        codes.0.metrics.count(&answer);
        Ok(answer.outcome)
    }
}

enum WriteStep {
    Answer(Box<SendAnswer>),
    /// It must be tried again, on this path.
    Again(SendPath),
}

impl WriteStep {
    fn answer(answer: impl Into<SendAnswer>) -> Self {
        Self::Answer(Box::new(answer.into()))
    }
}

impl SendJob {
    fn new(codes: SmsCodes, live: &LiveSettings, message: RequestedMessage) -> Self {
        let limits = codes.message_limits(live);
        let keys = MessageKeys::of(codes.0.budgets.limiter(), &limits, &message);
        Self {
            asker: message.browser.as_deref().map(|browser| codes.asker(keys.phone, browser)),
            limits,
            keys,
            brake: live.sms.brake.clone(),
            code_ttl: match message.purpose {
                MessagePurpose::Own(_) | MessagePurpose::Verification(_) => live.sms.code_ttl,
                MessagePurpose::Relayed(_) => RELAYED,
            },
            guess_window: live.limits.sms_guess.longest_window(),
            everyone: None,
            handover: None,
            codes,
            message,
        }
    }

    async fn send(self, live: &LiveSettings) -> Result<SendOutcome, SmsError> {
        let solved = self.message.solved;
        match self.turn(live, false).await? {
            TurnResult::Mine(turn) => turn.send(live, solved).await,
            TurnResult::Answered(outcome) => Ok(outcome),
        }
    }

    async fn turn(self, live: &LiveSettings, look: bool) -> Result<TurnResult, SmsError> {
        let inner = &*self.codes.0;
        let answered = |answer: SendAnswer| {
            inner.metrics.count(&answer);
            Ok(TurnResult::Answered(answer.outcome))
        };
        // An administrator has paused the number's prefix: the same answer for every number under it, before anything is
        // counted.
        if let Some(left) = live.access.paused(self.message.phone.as_str(), inner.deps.clock.now()) {
            self.record_paused();
            return answered(Denied::Unavailable { retry_after: left.min(LONGEST_RETRY) }.into());
        }
        let Some(name) = self.keys.once else {
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

    async fn run(self: &Arc<Self>) -> Result<SendAnswer, SmsError> {
        let inner = &*self.codes.0;
        self.free_name().await?;
        if let Some(left) = self.everyone.filter(|_| !self.message.solved)
            && !inner.budgets.is_repeated(&self.limits, &self.keys).await
        {
            return Ok(Denied::challenged_with_everyone(left).into());
        }
        let mut path = match self.known_brake().await {
            None => SendPath::Open,
            Some(braked) => match self.under_brake(braked) {
                Ok(path) => path,
                Err(denied) => return Ok(denied.into()),
            },
        };
        let (mut earlier, mut pending) = (None, 0);
        for _ in 0..MOST_CHECKS {
            if self.handover.as_ref().is_some_and(HandoverFlag::is_called_off) {
                return Ok(SendOutcome::unavailable().into());
            }
            let share = path.counted_as();
            match inner.budgets.admit(&self.limits, &self.keys, share, self.message.solved).await {
                BudgetAdmission::In(ticket) => match self.write(ticket, path).await? {
                    WriteStep::Answer(answer) => return Ok(*answer),
                    WriteStep::Again(on) => {
                        path = on;
                        continue;
                    }
                },
                BudgetAdmission::Refused(limit, refusal) => {
                    let Some(short) = path.after(&limit, &refusal) else {
                        return Ok(SendAnswer::refused(limit, refusal));
                    };
                    if let Some(denied) = self.in_shortage(limit.into(), refusal.retry_after) {
                        return Ok(SendAnswer { refusal: Some(refusal), ..denied.into() });
                    }
                    path = short;
                    continue;
                }
                BudgetAdmission::Out(error) => {
                    tracing::debug!(?error, "no message is sent while the window store is out");
                    return Ok(SendOutcome::unavailable().into());
                }
                BudgetAdmission::Repeated => {}
            }
            // Sent, in progress at another instance, or about to be given up there.
            earlier = self.earlier().await?;
            if let Some(EarlierMessage { state, short, .. }) = &earlier {
                pending += 1;
                if *short || *state != MessageState::Pending || pending == MOST_CHECKS_OF_PENDING {
                    break;
                }
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
        match earlier {
            Some(earlier) => Ok(self.repeated(earlier).await?),
            None => Ok(SendOutcome::unavailable().into()),
        }
    }

    /// A flood at a braked prefix writes nothing and asks nobody. A repeated request still learns its
    /// outcome.
    async fn known_brake(&self) -> Option<BrakedPrefix> {
        let inner = &*self.codes.0;
        let (scope, phone) = (self.message.purpose.scope(), &self.message.phone);
        let known = inner.ledger.known_brake(&scope, phone).filter(|_| self.brake.enabled)?;
        let repeated = inner.budgets.is_repeated(&self.limits, &self.keys).await;
        (!repeated).then_some(known)
    }

    async fn earlier(&self) -> Result<Option<EarlierMessage>, DbError> {
        let Some(name) = self.keys.once else { return Ok(None) };
        Ok(self.codes.ledger().earlier(name).await?.filter(|earlier| !earlier.used_up))
    }

    /// A name whose verification is used up is free again.
    async fn free_name(&self) -> Result<(), DbError> {
        if let (MessagePurpose::Verification(_), Some(name)) = (&self.message.purpose, self.keys.once)
            && let Some(earlier) = self.codes.ledger().earlier(name).await?
            && earlier.used_up
        {
            self.codes.0.budgets.free_name(&self.limits, &self.keys, earlier.hit).await;
        }
        Ok(())
    }

    /// The answer that the first request with this name got, or would get now.
    async fn repeated(&self, earlier: EarlierMessage) -> Result<SendAnswer, DbError> {
        let limit = self.limits.phone(&self.keys);
        let resend_after = self.codes.ledger().resend_after(self.keys.phone, limit).await?;
        let (short, confirmed) = (earlier.short, earlier.state == MessageState::Accepted && !earlier.short);
        let (id, expires_in) = (self.shown_id(earlier.id), earlier.expires_in);
        let receipt = SendReceipt { id, expires_in, resend_after, confirmed, short };
        Ok(SendAnswer { repeated: true, ..SendOutcome::Sent(receipt).into() })
    }

    /// The message is in the window store. If it does not get into the ledger, it is taken back and may be
    /// tried again: if the store lost its data in the meantime, or in a shortage that only the ledger knows.
    async fn write(self: &Arc<Self>, ticket: BudgetTicket, path: SendPath) -> Result<WriteStep, SmsError> {
        let inner = &*self.codes.0;
        let Ok(permit) = Arc::clone(&inner.permits).try_acquire_owned() else {
            self.give_back(&ticket, path).await;
            return Ok(WriteStep::answer(SendOutcome::unavailable()));
        };
        let share = match self.share(&ticket, path).await {
            Ok(share) => share,
            Err(answer) => {
                self.give_back(&ticket, path).await;
                return answer.map(WriteStep::answer);
            }
        };
        let (id, purpose) = (MessageId::random(&inner.deps.entropy), self.message.purpose.stored());
        let (code, code_hash) = match &self.message.code {
            // Whoever made it checks it.
            Some(code) => (code.clone(), None),
            None => {
                let code = SmsCode::random(&inner.deps.entropy);
                let hash = self.codes.code_hash(self.keys.phone, &purpose, id, &code);
                (code, Some(hash))
            }
        };
        let draft = MessageDraft {
            id,
            message: &self.message,
            keys: &self.keys,
            hit: ticket.hit,
            event_key: self.event_key(),
            gateway: inner.deps.gateway.name(),
            code_hash: code_hash.as_deref(),
            code_ttl: self.code_ttl,
            asked_by: self.asker.as_deref().map(|asker| AskedBy { asker, window: self.guess_window }),
            limit: self.limits.phone(&self.keys),
            brake: &self.brake,
            share,
            under: path.under(),
        };
        let begun = inner.deps.clock.now();
        let why_not = match inner.ledger.write(&draft).await {
            // Last of all: whether it may still be handed to the gateway.
            Ok(WriteResult::New { resend_after })
                if inner.budgets.is_current(&self.limits, &ticket).await
                    && self.handover.as_ref().is_none_or(|flag| flag.hand_over(id)) =>
            {
                let outcome = if path == SendPath::Open {
                    let delivery = self.deliver(id, ticket.hit, code).await;
                    let gone = inner.deps.clock.now().since(begun);
                    self.delivered(id, &delivery, resend_after, gone)
                } else {
                    self.hand_over_later((id, code), share, ticket.at, permit);
                    let (id, expires_in) = (self.shown_id(id), self.code_ttl);
                    let (confirmed, short) = (false, true);
                    SendOutcome::Sent(SendReceipt { id, expires_in, resend_after, confirmed, short })
                };
                let admitted = Some((ticket.at, ticket.noted));
                return Ok(WriteStep::answer(SendAnswer { admitted, ..outcome.into() }));
            }
            Ok(WriteResult::New { .. }) => inner.ledger.withdraw(&draft).await.map(|()| None),
            Ok(WriteResult::Not(why)) => Ok(Some(why)),
            Err(error) => Err(error),
        };
        self.give_back(&ticket, path).await;
        Ok(match why_not? {
            None => WriteStep::Again(path),
            Some(WhyNot::Repeated(earlier)) => WriteStep::answer(self.repeated(earlier).await?),
            Some(WhyNot::Refused(refusal)) => {
                let limit = self.limits.phone(&self.keys);
                let sent = inner.ledger.sent_to(self.keys.phone, limit).await?;
                inner.budgets.restore_number(&self.limits, &self.keys, &sent).await;
                WriteStep::answer(SendAnswer::refused(limit.name().to_owned(), refusal))
            }
            Some(WhyNot::Braked(braked)) => {
                inner.metrics.brakes_of(&self.message.purpose).increment(u64::from(braked.tripped));
                self.under_brake(braked).map_or_else(WriteStep::answer, WriteStep::Again)
            }
        })
    }

    async fn give_back(&self, ticket: &BudgetTicket, path: SendPath) {
        self.codes.0.budgets.refund(&self.limits.every_log(&self.keys, path), ticket.hit).await;
    }

    /// The id of a message, for those who have a use for it.
    fn shown_id(&self, id: MessageId) -> Option<MessageId> {
        self.message.purpose.program().map(|_| id)
    }

    fn delivered(
        &self,
        id: MessageId,
        delivery: &DeliveryResult,
        resend_after: Duration,
        gone: Duration,
    ) -> SendOutcome {
        let confirmed = match delivery {
            DeliveryResult::Accepted { .. } => true,
            DeliveryResult::Unknown { .. } => false,
            DeliveryResult::Refused { .. } => return SendOutcome::NotSent,
        };
        SendOutcome::Sent(SendReceipt {
            id: self.shown_id(id),
            expires_in: self.code_ttl.saturating_sub(gone),
            resend_after: resend_after.saturating_sub(gone),
            confirmed,
            short: false,
        })
    }

    /// Hands the message to the gateway once, and writes the outcome: first to the ledger, which decides.
    async fn deliver(&self, id: MessageId, hit: HitId, code: SmsCode) -> DeliveryResult {
        let delivery = self.hand_over(id, code).await;
        match self.settle(id, Some(&delivery)).await {
            Some(true) if matches!(delivery, DeliveryResult::Refused { .. }) => {
                self.codes.0.budgets.refund_all_but_asker(&self.limits, &self.keys, hit).await;
            }
            // If that could not be written, it stays pending and counts, in the window store as well.
            Some(true) | None => {}
            // This process was stopped for minutes, and the ledger has marked the message as unknown.
            Some(false) => {
                let reason = "it was given up before its gateway answered".to_owned();
                return DeliveryResult::Unknown { reason };
            }
        }
        delivery
    }

    /// In a shortage nobody waits for the gateway: the waiting time would show whether a message was sent. If
    /// the gateway refuses, nothing is refunded and the code stays valid, because that would show it later.
    fn hand_over_later(
        self: &Arc<Self>,
        (id, code): (MessageId, SmsCode),
        share: BudgetShare,
        admitted_at: Micros,
        permit: OwnedSemaphorePermit,
    ) {
        let job = Arc::clone(self);
        request_id::spawn(async move {
            let delivery = match share {
                BudgetShare::Withheld => None,
                BudgetShare::Open | BudgetShare::SpentAsker | BudgetShare::Reserve => {
                    Some(match job.hand_over(id, code).await {
                        DeliveryResult::Refused { reason } => {
                            DeliveryResult::Unknown { reason: format!("refused: {reason}") }
                        }
                        other => other,
                    })
                }
            };
            job.settle(id, delivery.as_ref()).await;
            job.codes.0.metrics.count_short(delivery.as_ref());
            job.record_short(admitted_at, delivery.as_ref());
            drop(permit);
        });
    }

    /// Writes the outcome to the ledger; None if that is not possible.
    async fn settle(&self, id: MessageId, delivery: Option<&DeliveryResult>) -> Option<bool> {
        let settled = self.codes.ledger().settle(id, delivery).await;
        settled
            .inspect_err(|error| {
                tracing::warn!(%error, message = %id, "the outcome of a message could not be recorded in the ledger");
            })
            .ok()
    }

    async fn hand_over(&self, id: MessageId, code: SmsCode) -> DeliveryResult {
        let inner = &*self.codes.0;
        let text = self.text(&code);
        let (gateway, phone) = (Arc::clone(&inner.deps.gateway), self.message.phone.clone());
        // If a gateway panics, only this task ends.
        let span = spans::gateway(gateway.name());
        let handed =
            async move { gateway.send(SmsMessage { id, phone: &phone, code: &code, text: &text }).await };
        let sending = request_id::spawn(handed.instrument(span.clone()));
        let (stop, begun) = (sending.abort_handle(), Instant::now());
        let delivery = match tokio::time::timeout(inner.gateway_patience, sending).await {
            Ok(Ok(delivery)) => delivery,
            Ok(Err(_)) => DeliveryResult::Unknown { reason: "the gateway's code failed".to_owned() },
            Err(_) => {
                stop.abort();
                DeliveryResult::Unknown { reason: "the gateway took too long".to_owned() }
            }
        };
        inner.metrics.gateway(begun.elapsed(), &delivery);
        if let DeliveryResult::Refused { reason } | DeliveryResult::Unknown { reason } = &delivery {
            spans::failed(&span);
            let gateway = inner.deps.gateway.name();
            tracing::info!(gateway, message = %id, reason, "the gateway did not confirm a message");
        }
        delivery
    }
}
