//! Sends one code, from top to bottom: budgets, ledger, gateway, and what its answer means for both.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::Instrument;

use super::brake::BrakedPrefix;
use super::budgets::{BudgetAdmission, BudgetTicket};
use super::codes::SmsCodes;
use super::ledger::{
    AskedBy, EarlierMessage, MessageDraft, MessageOutcome, MessageState, WhyNot, WriteResult,
};
use super::message::{
    Departure, MessageRequest, RelayRequest, SendAnswer, SendOutcome, SendReceipt, SmsError,
};
use super::message_limits::{BudgetShare, MessageKeys, OnceTurn, RELAYED, SendPath, SmsLimits, once_turn};
use super::{DeliveryResult, MessageId, MessagePurpose, Phone, SmsCode, SmsMessage};
use crate::config::{Brake, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::throttle::{HitId, SubjectKey};
use crate::{request_id, spans};

/// How often a request checks on the same request at another instance; and how often if that one is in the
/// ledger but not settled, because its gateway is slow or its process died.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const MOST_LOOKS: usize = 10;
/// A pause may be ended early, so nobody is told to wait longer than this.
const LONGEST_RETRY: Duration = Duration::from_secs(60 * 60);
const MOST_LOOKS_AT_PENDING: usize = 4;

impl SmsCodes {
    /// Sends a code if every budget admits it. The caller may be dropped: a send that has begun runs to its
    /// end.
    pub async fn send<'a>(
        &self,
        live: &LiveSettings,
        ask: impl Into<MessageRequest<'a>>,
    ) -> Result<SendOutcome, SmsError> {
        let ask = ask.into();
        match self.turn(live, ask.clone(), false).await? {
            TurnResult::Mine(turn) => self.send_in_turn(live, ask, turn).await,
            TurnResult::Answered(sending) => Ok(sending),
        }
    }

    /// Waits until no request with the same name is in progress in this process. Runs in the caller, not on a
    /// task, so that a client that hangs up no longer waits. With `look` it also returns what an earlier
    /// request was answered, and changes nothing: for requests that should not be asked for a challenge that
    /// the earlier one has used up.
    pub async fn turn<'a>(
        &self,
        live: &LiveSettings,
        ask: impl Into<MessageRequest<'a>>,
        look: bool,
    ) -> Result<TurnResult, SmsError> {
        let job = SendJob::new(self.clone(), live, ask.into());
        if let Some(left) = live.access.paused(job.phone.as_str(), self.0.clock.now()) {
            let answer = job.paused(left);
            self.0.metrics.count(&answer);
            return Ok(TurnResult::Answered(answer.sending));
        }
        let Some(name) = job.keys.once else { return Ok(TurnResult::Mine(InTurn { _held: None })) };
        let answer = match once_turn(&self.0.turns, name).await {
            None => SendOutcome::unavailable().into(),
            Some(turn) => match if look { job.earlier().await? } else { None } {
                None => return Ok(TurnResult::Mine(InTurn { _held: Some(turn) })),
                Some(earlier) => job.repeated(earlier).await?,
            },
        };
        self.0.metrics.count(&answer);
        Ok(TurnResult::Answered(answer.sending))
    }

    /// The same as [`send`](Self::send), for a request that has waited for its turn.
    pub async fn send_in_turn<'a>(
        &self,
        live: &LiveSettings,
        ask: impl Into<MessageRequest<'a>>,
        turn: InTurn,
    ) -> Result<SendOutcome, SmsError> {
        let job = Arc::new(SendJob::new(self.clone(), live, ask.into()));
        let answer = request_id::spawn(job.recorded(turn)).await.expect("sending does not panic")?;
        self.0.metrics.count(&answer);
        Ok(answer.sending)
    }
}

/// A request's turn among those with its name.
#[derive(Debug)]
pub struct InTurn {
    _held: Option<OnceTurn>,
}

/// The result of waiting for a turn.
#[derive(Debug)]
pub enum TurnResult {
    Mine(InTurn),
    /// An earlier request with the name had this answer, or too many wait.
    Answered(SendOutcome),
}

/// The result of trying to write a message.
enum WriteStep {
    Answer(Box<SendAnswer>),
    /// It must be tried again, on this path.
    Again(SendPath),
}

impl WriteStep {
    fn answer(sending: SendOutcome) -> Self {
        Self::Answer(Box::new(sending.into()))
    }
}

impl SendJob {
    /// The turn ends when this does.
    async fn recorded(self: Arc<Self>, _turn: InTurn) -> Result<SendAnswer, SmsError> {
        let answer = self.run().await?;
        self.record(&answer);
        Ok(answer)
    }

    async fn run(self: &Arc<Self>) -> Result<SendAnswer, SmsError> {
        let inner = &*self.codes.0;
        self.free_name().await?;
        let mut path = SendPath::Open;
        if let Some(left) = self.everyone.filter(|_| !self.solved)
            && !inner.budgets.is_repeated(&self.watched, &self.keys).await
        {
            return Ok(SendOutcome::Denied(Denied::challenged_with_everyone(left)).into());
        }
        if let Some(braked) = self.known_brake().await {
            match self.under_brake(braked) {
                Ok(braked_path) => path = braked_path,
                Err(sending) => return Ok(sending.into()),
            }
        }
        let (mut earlier, mut pending) = (None, 0);
        for _ in 0..MOST_LOOKS {
            if self.departure.as_ref().is_some_and(Departure::is_called_off) {
                return Ok(SendOutcome::unavailable().into());
            }
            match inner.budgets.admit(&self.watched, &self.keys, path.counted_as(), self.solved).await {
                BudgetAdmission::In(ticket) => match self.write(ticket, path).await? {
                    WriteStep::Answer(answer) => return Ok(*answer),
                    WriteStep::Again(in_path) => {
                        path = in_path;
                        continue;
                    }
                },
                BudgetAdmission::Refused(limit, refusal) => {
                    let Some(short) = path.after(&limit, &refusal) else {
                        return Ok(SendAnswer::refused(limit, refusal));
                    };
                    match self.in_shortage(limit.into(), refusal.retry_after) {
                        Some(sending) => return Ok(SendAnswer { refusal: Some(refusal), ..sending.into() }),
                        None => {
                            path = short;
                            continue;
                        }
                    }
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
                if *short || *state != MessageState::Pending || pending == MOST_LOOKS_AT_PENDING {
                    break;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        match earlier {
            Some(earlier) => Ok(self.repeated(earlier).await?),
            None => Ok(SendOutcome::unavailable().into()),
        }
    }

    /// An administrator has paused the number's prefix: the same answer for every number under it, before anything is
    /// counted.
    pub fn paused(&self, left: Duration) -> SendAnswer {
        self.record_paused();
        SendOutcome::Denied(Denied::Unavailable { retry_after: left.min(LONGEST_RETRY) }).into()
    }

    /// A flood at a braked prefix writes nothing and asks nobody. A repeated request still learns its
    /// outcome.
    async fn known_brake(&self) -> Option<BrakedPrefix> {
        let inner = &*self.codes.0;
        let known =
            inner.ledger.known_brake(&self.purpose.scope(), &self.phone).filter(|_| self.brake.enabled)?;
        let repeated = inner.budgets.is_repeated(&self.watched, &self.keys).await;
        (!repeated).then_some(known)
    }

    async fn earlier(&self) -> Result<Option<EarlierMessage>, DbError> {
        let Some(name) = self.keys.once else { return Ok(None) };
        Ok(self.codes.ledger().earlier(name).await?.filter(|earlier| !earlier.used_up))
    }

    /// A name whose verification is used up is free again.
    async fn free_name(&self) -> Result<(), DbError> {
        if let (MessagePurpose::Verification(_), Some(name)) = (&self.purpose, self.keys.once)
            && let Some(earlier) = self.codes.ledger().earlier(name).await?
            && earlier.used_up
        {
            self.codes.0.budgets.free_name(&self.watched, &self.keys, earlier.hit).await;
        }
        Ok(())
    }

    /// The answer that the first request with this name got, or would get now.
    async fn repeated(&self, earlier: EarlierMessage) -> Result<SendAnswer, DbError> {
        let resend_after =
            self.codes.ledger().resend_after(self.keys.phone, self.watched.phone(&self.keys)).await?;
        let (short, confirmed) = (earlier.short, earlier.state == MessageState::Accepted && !earlier.short);
        let (id, expires_in) = (self.told(earlier.id), earlier.expires_in);
        let sent = SendReceipt { id, expires_in, resend_after, confirmed, short };
        Ok(SendAnswer { repeated: true, ..SendOutcome::Sent(sent).into() })
    }

    /// The message is in the window store. If it does not get into the ledger, it is taken back and may be
    /// tried again: if the store lost its data in the meantime, or in a shortage that only the ledger knows.
    async fn write(self: &Arc<Self>, ticket: BudgetTicket, path: SendPath) -> Result<WriteStep, SmsError> {
        let inner = &*self.codes.0;
        let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() else {
            self.give_back(&ticket, path).await;
            return Ok(WriteStep::answer(SendOutcome::unavailable()));
        };
        let share = match self.share(&ticket, path).await {
            Ok(share) => share,
            Err(error) => {
                self.give_back(&ticket, path).await;
                return error.map(WriteStep::answer);
            }
        };
        let (id, purpose) = (MessageId::random(&inner.entropy), self.purpose.stored());
        let (code, code_hash) = match &self.code {
            // Whoever made it checks it.
            Some(code) => (code.clone(), None),
            None => {
                let code = SmsCode::random(&inner.entropy);
                let hash = self.codes.code_hash(self.keys.phone, &purpose, id, &code);
                (code, Some(hash))
            }
        };
        let draft = MessageDraft {
            id,
            keys: &self.keys,
            hit: ticket.hit,
            phone: &self.phone,
            event_key: self.event_key(),
            purpose: &self.purpose,
            gateway: inner.gateway.name(),
            code_hash: code_hash.as_deref(),
            code_ttl: self.code_ttl,
            asked_by: self.asker.as_deref().map(|asker| AskedBy { asker, window: self.guess_window }),
            solved: self.solved,
            limit: self.watched.phone(&self.keys),
            brake: &self.brake,
            share,
            under: path.under(),
        };
        let begun = inner.clock.now();
        let why_not = match inner.ledger.write(&draft).await {
            Ok(WriteResult::New { resend_after })
                if inner.budgets.stands(&self.watched, &ticket).await && self.departs(id) =>
            {
                let letter = PendingMessage { id, hit: ticket.hit, code };
                if path != SendPath::Open {
                    self.hand_over_later(letter, share, ticket, place);
                    let sent = SendReceipt {
                        id: self.told(id),
                        expires_in: self.code_ttl,
                        resend_after,
                        confirmed: false,
                        short: true,
                    };
                    let answer = SendAnswer { ticket: Some(ticket), ..SendOutcome::Sent(sent).into() };
                    return Ok(WriteStep::Answer(Box::new(answer)));
                }
                let delivery = self.deliver(letter).await;
                let gone = inner.clock.now().since(begun);
                let sending = self.answer(id, &delivery, resend_after, gone);
                return Ok(WriteStep::Answer(Box::new(SendAnswer {
                    ticket: Some(ticket),
                    ..sending.into()
                })));
            }
            Ok(WriteResult::New { .. }) => inner.ledger.withdraw(&draft).await.map(|()| None),
            Ok(WriteResult::Not(why)) => Ok(Some(why)),
            Err(error) => Err(error),
        };
        self.give_back(&ticket, path).await;
        Ok(match why_not? {
            None => WriteStep::Again(path),
            Some(WhyNot::Repeated(earlier)) => WriteStep::Answer(Box::new(self.repeated(earlier).await?)),
            Some(WhyNot::Refused(refusal)) => {
                let sent = inner.ledger.sent_to(self.keys.phone, self.watched.phone(&self.keys)).await?;
                inner.budgets.restore_number(&self.watched, &self.keys, &sent).await;
                WriteStep::Answer(Box::new(SendAnswer::refused(
                    self.watched.phone(&self.keys).name().to_owned(),
                    refusal,
                )))
            }
            Some(WhyNot::Braked(braked)) => {
                inner.metrics.brakes_of(&self.purpose).increment(u64::from(braked.tripped));
                self.under_brake(braked).map_or_else(WriteStep::answer, WriteStep::Again)
            }
        })
    }

    /// Last of all: whether it may still be handed to the gateway.
    fn departs(&self, id: MessageId) -> bool {
        self.departure.as_ref().is_none_or(|departure| departure.departs(id))
    }

    async fn give_back(&self, ticket: &BudgetTicket, path: SendPath) {
        self.codes.0.budgets.refund(&self.watched.every_log(&self.keys, path), ticket.hit).await;
    }

    /// The id of a message, for those who have a use for it.
    fn told(&self, id: MessageId) -> Option<MessageId> {
        self.purpose.program().map(|_| id)
    }

    fn answer(
        &self,
        id: MessageId,
        delivery: &DeliveryResult,
        resend_after: Duration,
        gone: Duration,
    ) -> SendOutcome {
        let sent = |confirmed| {
            let (expires_in, resend_after) =
                (self.code_ttl.saturating_sub(gone), resend_after.saturating_sub(gone));
            SendOutcome::Sent(SendReceipt {
                id: self.told(id),
                expires_in,
                resend_after,
                confirmed,
                short: false,
            })
        };
        match delivery {
            DeliveryResult::Accepted { .. } => sent(true),
            DeliveryResult::Unknown { .. } => sent(false),
            DeliveryResult::Refused { .. } => SendOutcome::NotSent,
        }
    }
}

/// What to hand over for a message in the ledger.
pub struct PendingMessage {
    pub id: MessageId,
    pub hit: HitId,
    pub code: SmsCode,
}

impl SendJob {
    pub async fn deliver(&self, letter: PendingMessage) -> DeliveryResult {
        let (id, hit) = (letter.id, letter.hit);
        let delivery = self.hand_over(letter).await;
        match self.codes.ledger().settle(id, &MessageOutcome::Told(&delivery)).await {
            Ok(true) if matches!(delivery, DeliveryResult::Refused { .. }) => {
                self.codes.0.budgets.refund_all_but_asker(&self.watched, &self.keys, hit).await;
            }
            Ok(true) => {}
            // This process was stopped for minutes, and the ledger has marked the message as unknown.
            Ok(false) => {
                let reason = "it was given up before its gateway answered".to_owned();
                return DeliveryResult::Unknown { reason };
            }
            // It stays pending and counts, in the window store as well.
            Err(error) => {
                tracing::warn!(%error, message = %id, "the outcome of a message could not be recorded in the ledger");
            }
        }
        delivery
    }

    /// In a shortage nobody waits for the gateway: the waiting time would show whether a message was sent. If
    /// the gateway refuses, nothing is refunded and the code stays valid, because that would show it later.
    pub fn hand_over_later(
        self: &Arc<Self>,
        letter: PendingMessage,
        share: BudgetShare,
        ticket: BudgetTicket,
        place: OwnedSemaphorePermit,
    ) {
        let (job, id) = (Arc::clone(self), letter.id);
        request_id::spawn(async move {
            let delivery = match share {
                BudgetShare::Withheld => None,
                BudgetShare::Open | BudgetShare::SpentAsker | BudgetShare::Reserve => {
                    Some(match job.hand_over(letter).await {
                        DeliveryResult::Refused { reason } => {
                            DeliveryResult::Unknown { reason: format!("refused: {reason}") }
                        }
                        other => other,
                    })
                }
            };
            let fate = delivery.as_ref().map_or(MessageOutcome::Withheld, MessageOutcome::Told);
            if let Err(error) = job.codes.ledger().settle(id, &fate).await {
                tracing::warn!(%error, message = %id, "the outcome of a message could not be recorded in the ledger");
            }
            job.codes.0.metrics.count_short(delivery.as_ref());
            job.record_short(&ticket, delivery.as_ref());
            drop(place);
        });
    }

    async fn hand_over(&self, letter: PendingMessage) -> DeliveryResult {
        let inner = &*self.codes.0;
        let PendingMessage { id, code, .. } = letter;
        let text = self.text(&code);
        let (gateway, phone) = (Arc::clone(&inner.gateway), self.phone.clone());
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
            let gateway = inner.gateway.name();
            tracing::info!(gateway, message = %id, reason, "the gateway did not confirm a message");
        }
        delivery
    }
}

/// One request on its own task: its parameters, and the limits that were in force then.
pub struct SendJob {
    pub codes: SmsCodes,
    pub watched: Arc<SmsLimits>,
    pub keys: MessageKeys,
    pub brake: Brake,
    /// How long its code is valid; how long the request is recognised if the code is not ours.
    pub code_ttl: Duration,
    pub phone: Phone,
    pub purpose: MessagePurpose,
    /// One that somebody else has made.
    pub code: Option<SmsCode>,
    /// The requester's address and network, if they are known.
    pub origin: Option<[Vec<u8>; 2]>,
    /// The requesting browser, as the ledger stores it.
    pub asker: Option<String>,
    pub guess_window: Duration,
    pub solved: bool,
    /// How long everybody is challenged.
    pub everyone: Option<Duration>,
    pub locale: String,
    /// Of the program's texts.
    pub language: Option<String>,
    pub departure: Option<Departure>,
}

impl SendJob {
    pub fn new(codes: SmsCodes, live: &LiveSettings, ask: MessageRequest<'_>) -> Self {
        let (watched, purpose) = (codes.watched(live), ask.purpose.stored());
        let name = ask.once.map(|name| [ask.phone.as_str().as_bytes(), purpose.as_bytes(), name.as_bytes()]);
        // Nobody knows who asks, so the request has an address of its own.
        let nobody = [b"nobody ", ask.once.unwrap_or_default().as_bytes()].concat();
        let keys = codes.0.budgets.keys(
            &watched,
            ask.phone,
            ask.origin.unwrap_or([&nobody; 2]),
            ask.purpose.program(),
            name.as_ref().map(|parts| &parts[..]),
        );
        let everyone = live.access.challenges_everyone(codes.0.clock.now());
        let asker = ask.browser.map(|browser| codes.asker(keys.phone, browser));
        Self {
            codes,
            watched,
            keys,
            brake: live.sms.brake.clone(),
            code_ttl: match ask.purpose {
                MessagePurpose::Own(_) | MessagePurpose::Verification(_) => live.sms.code_ttl,
                MessagePurpose::Relayed(_) => RELAYED,
            },
            phone: ask.phone.clone(),
            purpose: ask.purpose,
            code: ask.code.cloned(),
            origin: ask.origin.map(|origin| origin.map(<[u8]>::to_owned)),
            asker,
            guess_window: live.limits.sms_guess.longest_window(),
            solved: ask.solved,
            everyone,
            locale: ask.locale.to_owned(),
            language: ask.language.map(str::to_owned),
            departure: ask.departure,
        }
    }
}

/// Supabase gives up after 5 s, and an answer within 4 reaches it. The rest is for reading the ledger then.
const PATIENCE: Duration = Duration::from_secs(3);
const READING: Duration = Duration::from_millis(500);

impl SmsCodes {
    /// Sends a code once for its name. If that takes too long, a message that was handed to the gateway is on its way:
    /// this one, or that of the same request before, which the ledger knows. Otherwise none is sent any more.
    pub async fn relay(&self, live: &LiveSettings, ask: RelayRequest<'_>) -> Result<SendOutcome, SmsError> {
        let departure = Departure::default();
        let ask = MessageRequest { departure: Some(departure.clone()), ..ask.into() };
        match tokio::time::timeout(PATIENCE, self.send(live, ask.clone())).await {
            Ok(sending) => sending,
            Err(_) => Ok(match departure.call_off() {
                Some(id) => on_its_way(id, RELAYED),
                None => self.begun(SendJob::new(self.clone(), live, ask).keys.once).await,
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
    SendOutcome::Sent(SendReceipt {
        id: Some(id),
        expires_in,
        resend_after: Duration::ZERO,
        confirmed: false,
        short: false,
    })
}
