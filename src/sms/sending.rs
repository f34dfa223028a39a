//! Sends one code, top to bottom: budgets, ledger, gateway, and what its answer means for both.

use std::sync::Arc;
use std::time::Duration;

use super::brake::Braked;
use super::budgets::{Admission, Ticket};
use super::codes::{Ask, Codes, Sending, Sent, SmsError, TRY_AGAIN, longest_window};
use super::handing::Letter;
use super::ledger::{AskedBy, Draft, Earlier, State, WhyNot, Written};
use super::once::Turn;
use super::short::Lane;
use super::watched::{Keys, Watched};
use super::{Code, Delivery, MessageId, Phone, Purpose};
use crate::config::{Brake, Live, SMS_BRAKE};
use crate::db::DbError;
use crate::request_id;
use crate::throttle::{Refusal, Then};

/// How often a request looks how another instance fares with the same one; and how often where that one
/// stands in the ledger, but is not settled: its gateway is slow, or its process has died.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const MOST_LOOKS: usize = 10;
const MOST_LOOKS_AT_PENDING: usize = 4;

/// One request on a task of its own: what it was asked with, and what was in force then.
pub(super) struct Job {
    pub codes: Codes,
    pub watched: Arc<Watched>,
    pub keys: Keys,
    pub brake: Brake,
    pub code_ttl: Duration,
    pub phone: Phone,
    pub purpose: Purpose,
    pub address: Vec<u8>,
    pub network: Vec<u8>,
    /// The browser that asks, as the ledger knows it.
    asker: Option<String>,
    guess_window: Duration,
    pub solved: bool,
    pub locale: String,
}

impl Codes {
    /// Sends a code, if every budget admits it. Whoever asks may go away: what was begun is ended.
    pub async fn send(&self, live: &Live, ask: Ask<'_>) -> Result<Sending, SmsError> {
        match self.turn(live, ask, false).await? {
            Turned::Mine(turn) => self.send_in_turn(live, ask, turn).await,
            Turned::Answered(sending) => Ok(sending),
        }
    }

    /// Waits until no request of the same name is under way in this process, here and not on a task: whoever
    /// goes away waits no more. With `look` also says what an earlier one was answered, and changes nothing:
    /// for those that would be asked in vain for a challenge that the earlier one has used up.
    pub async fn turn(&self, live: &Live, ask: Ask<'_>, look: bool) -> Result<Turned, SmsError> {
        let job = Job::new(self.clone(), live, ask);
        let Some(name) = job.keys.once else { return Ok(Turned::Mine(InTurn { _held: None })) };
        let answer = match self.0.turns.wait(name).await {
            None => unavailable().into(),
            Some(turn) => match if look { job.earlier().await? } else { None } {
                None => return Ok(Turned::Mine(InTurn { _held: Some(turn) })),
                Some(earlier) => job.repeated(earlier).await?,
            },
        };
        self.0.metrics.count(&answer);
        Ok(Turned::Answered(answer.sending))
    }

    /// The same as [`send`](Self::send), for who has waited.
    pub async fn send_in_turn(&self, live: &Live, ask: Ask<'_>, turn: InTurn) -> Result<Sending, SmsError> {
        let job = Arc::new(Job::new(self.clone(), live, ask));
        let answer = request_id::spawn(job.recorded(turn)).await.expect("sending does not panic")?;
        self.0.metrics.count(&answer);
        Ok(answer.sending)
    }
}

/// A request's turn among those of its name.
#[derive(Debug)]
pub struct InTurn {
    _held: Option<Turn>,
}

/// What comes of waiting for one.
#[derive(Debug)]
pub enum Turned {
    Mine(InTurn),
    /// An earlier request of the name had this answer, or too many wait.
    Answered(Sending),
}

/// What a request is answered, and whether an earlier one of the same name was answered so.
pub struct Answer {
    pub sending: Sending,
    pub repeated: bool,
    /// What the windows said of it, where they let it in.
    pub ticket: Option<Ticket>,
    /// The rule that refused it.
    pub refusal: Option<Refusal>,
}

/// What comes of trying to write a message.
enum Next {
    Answer(Box<Answer>),
    /// It is to be tried again, in this lane.
    Again(Lane),
}

impl Next {
    fn answer(sending: Sending) -> Self {
        Self::Answer(Box::new(sending.into()))
    }
}

impl From<Sending> for Answer {
    fn from(sending: Sending) -> Self {
        Self { sending, repeated: false, ticket: None, refusal: None }
    }
}

impl Job {
    fn new(codes: Codes, live: &Live, ask: Ask<'_>) -> Self {
        let watched = codes.watched(live);
        let name = ask
            .once
            .map(|name| [ask.phone.as_str().as_bytes(), ask.purpose.as_str().as_bytes(), name.as_bytes()]);
        let keys = codes.0.budgets.keys(&watched, &ask, name.as_ref().map(|parts| &parts[..]));
        let asker = ask.browser.map(|browser| codes.asker(keys.phone, browser));
        Self {
            codes,
            watched,
            keys,
            brake: live.sms.brake.clone(),
            code_ttl: live.sms.code_ttl,
            phone: ask.phone.clone(),
            purpose: ask.purpose,
            address: ask.address.to_owned(),
            network: ask.network.to_owned(),
            asker,
            guess_window: longest_window(&live.limits.sms_guess),
            solved: ask.solved,
            locale: ask.locale.to_owned(),
        }
    }

    /// The turn is over when this is.
    async fn recorded(self: Arc<Self>, _turn: InTurn) -> Result<Answer, SmsError> {
        let answer = self.run().await?;
        self.record(&answer);
        Ok(answer)
    }

    async fn run(self: &Arc<Self>) -> Result<Answer, SmsError> {
        let inner = &*self.codes.0;
        let mut lane = Lane::Open;
        if let Some(braked) = self.known_brake().await {
            match self.in_shortage(SMS_BRAKE.to_owned(), braked.retry_after) {
                Some(sending) => return Ok(sending.into()),
                None => lane = Lane::Short { under: Some(braked) },
            }
        }
        let (mut earlier, mut pending) = (None, 0);
        for _ in 0..MOST_LOOKS {
            match inner.budgets.admit(&self.watched, &self.keys, lane.counted_as(), self.solved).await {
                Admission::In(ticket) => match self.write(ticket, lane).await? {
                    Next::Answer(answer) => return Ok(*answer),
                    Next::Again(in_lane) => {
                        lane = in_lane;
                        continue;
                    }
                },
                Admission::Refused(limit, refusal) => {
                    let Some(short) = lane.after(&limit, &refusal) else {
                        return Ok(refused(limit, refusal));
                    };
                    match self.in_shortage(limit, refusal.retry_after) {
                        Some(sending) => return Ok(Answer { refusal: Some(refusal), ..sending.into() }),
                        None => {
                            lane = short;
                            continue;
                        }
                    }
                }
                Admission::Out(error) => {
                    tracing::debug!(?error, "no message is sent while the window store is out");
                    return Ok(unavailable().into());
                }
                Admission::Repeated => {}
            }
            // Sent, being sent by another instance, or about to be given up by it.
            earlier = self.earlier().await?;
            if let Some(Earlier { state, short, .. }) = &earlier {
                pending += 1;
                if *short || *state != State::Pending || pending == MOST_LOOKS_AT_PENDING {
                    break;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        match earlier {
            Some(earlier) => Ok(self.repeated(earlier).await?),
            None => Ok(unavailable().into()),
        }
    }

    /// A flood at a braked prefix writes nothing and asks nobody. But who repeats a request is told what
    /// became of it.
    async fn known_brake(&self) -> Option<Braked> {
        let inner = &*self.codes.0;
        let known = inner.ledger.known_brake(&self.phone).filter(|_| self.brake.enabled)?;
        let repeated = inner.budgets.is_repeated(&self.watched, &self.keys).await;
        (!repeated).then_some(known)
    }

    async fn earlier(&self) -> Result<Option<Earlier>, DbError> {
        match self.keys.once {
            Some(name) => self.codes.ledger().earlier(name).await,
            None => Ok(None),
        }
    }

    /// The answer that the first request of this name got, or would get now.
    async fn repeated(&self, earlier: Earlier) -> Result<Answer, DbError> {
        let resend_after = self.codes.ledger().resend_after(self.keys.phone, &self.watched.phone).await?;
        let (short, confirmed) = (earlier.short, earlier.state == State::Accepted && !earlier.short);
        let sent = Sent { expires_in: earlier.expires_in, resend_after, confirmed, short };
        Ok(Answer { repeated: true, ..Sending::Sent(sent).into() })
    }

    /// It stands in the window store. Where it does not come to stand in the ledger it never was, and may be
    /// tried again: where the store lost its data meanwhile, or in a shortage that the ledger knows of.
    async fn write(self: &Arc<Self>, ticket: Ticket, lane: Lane) -> Result<Next, SmsError> {
        let inner = &*self.codes.0;
        let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() else {
            self.give_back(&ticket, lane).await;
            return Ok(Next::answer(unavailable()));
        };
        let share = match self.share(&ticket, lane).await {
            Ok(share) => share,
            Err(error) => {
                self.give_back(&ticket, lane).await;
                return error.map(Next::answer);
            }
        };
        let (id, code) = (MessageId::random(&inner.entropy), Code::random(&inner.entropy));
        let code_hash = self.codes.code_hash(self.keys.phone, self.purpose, id, &code);
        let draft = Draft {
            id,
            keys: &self.keys,
            hit: ticket.hit,
            phone: &self.phone,
            purpose: self.purpose,
            gateway: inner.gateway.name(),
            code_hash: &code_hash,
            code_ttl: self.code_ttl,
            asked_by: self.asker.as_deref().map(|asker| AskedBy { asker, window: self.guess_window }),
            solved: self.solved,
            limit: &self.watched.phone,
            brake: &self.brake,
            share,
            under: lane.under(),
        };
        let begun = inner.clock.now();
        let why_not = match inner.ledger.write(&draft).await {
            Ok(Written::New { resend_after }) if inner.budgets.stands(&self.watched, &ticket).await => {
                let letter = Letter { id, hit: ticket.hit, code };
                if lane != Lane::Open {
                    self.hand_over_later(letter, share, ticket, place);
                    let sent =
                        Sent { expires_in: self.code_ttl, resend_after, confirmed: false, short: true };
                    let answer = Answer { ticket: Some(ticket), ..Sending::Sent(sent).into() };
                    return Ok(Next::Answer(Box::new(answer)));
                }
                let delivery = self.deliver(letter).await;
                let gone = inner.clock.now().since(begun);
                let sending = self.answer(&delivery, resend_after, gone);
                return Ok(Next::Answer(Box::new(Answer { ticket: Some(ticket), ..sending.into() })));
            }
            Ok(Written::New { .. }) => inner.ledger.withdraw(&draft).await.map(|()| None),
            Ok(Written::Not(why)) => Ok(Some(why)),
            Err(error) => Err(error),
        };
        self.give_back(&ticket, lane).await;
        Ok(match why_not? {
            None => Next::Again(lane),
            Some(WhyNot::Repeated(earlier)) => Next::Answer(Box::new(self.repeated(earlier).await?)),
            Some(WhyNot::Refused(refusal)) => {
                let sent = inner.ledger.sent_to(self.keys.phone, &self.watched.phone).await?;
                inner.budgets.restore_number(&self.watched, &self.keys, &sent).await;
                Next::Answer(Box::new(refused(self.watched.phone.name().to_owned(), refusal)))
            }
            Some(WhyNot::Braked(braked)) => {
                inner.metrics.brakes.increment(u64::from(braked.tripped));
                match self.in_shortage(SMS_BRAKE.to_owned(), braked.retry_after) {
                    Some(sending) => Next::answer(sending),
                    None => Next::Again(Lane::Short { under: Some(braked) }),
                }
            }
        })
    }

    async fn give_back(&self, ticket: &Ticket, lane: Lane) {
        self.codes.0.budgets.refund(&self.watched.every_log(&self.keys, lane), ticket.hit).await;
    }

    fn answer(&self, delivery: &Delivery, resend_after: Duration, gone: Duration) -> Sending {
        let sent = |confirmed| {
            let (expires_in, resend_after) =
                (self.code_ttl.saturating_sub(gone), resend_after.saturating_sub(gone));
            Sending::Sent(Sent { expires_in, resend_after, confirmed, short: false })
        };
        match delivery {
            Delivery::Accepted { .. } => sent(true),
            Delivery::Unknown { .. } => sent(false),
            Delivery::Refused { .. } => Sending::NotSent,
        }
    }
}

fn refused(limit: String, refusal: Refusal) -> Answer {
    let retry_after = refusal.retry_after;
    let sending = match refusal.then {
        Then::Captcha => Sending::Challenged { limit, retry_after },
        Then::Block => Sending::Throttled { limit, retry_after },
    };
    Answer { refusal: Some(refusal), ..sending.into() }
}

pub(super) const fn unavailable() -> Sending {
    Sending::Unavailable { retry_after: TRY_AGAIN }
}
