//! Sends one code, from top to bottom: budgets, ledger, gateway, and what its answer means for both.

use std::sync::Arc;
use std::time::Duration;

use super::brake::BrakedPrefix;
use super::budgets::{BudgetAdmission, BudgetTicket};
use super::codes::SmsCodes;
use super::departure::Departure;
use super::handover::PendingMessage;
use super::job::SendJob;
use super::ledger::{AskedBy, EarlierMessage, MessageDraft, MessageState, WhyNot, WriteResult};
use super::once::{self, OnceTurn};
use super::outcome::{SendAnswer, SendOutcome, SendReceipt, SmsError};
use super::path::SendPath;
use super::request::MessageRequest;
use super::{DeliveryResult, MessageId, MessagePurpose, SmsCode};
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::denied::Denied;
use crate::request_id;

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
        let answer = match once::turn(&self.0.turns, name).await {
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
