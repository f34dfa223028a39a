//! Sends one code, top to bottom: budgets, ledger, gateway, and what its answer means for both.

use std::sync::Arc;
use std::time::Duration;

use super::brake;
use super::budgets::{Admission, Keys, Ticket, Watched};
use super::codes::{Ask, Codes, Sending, Sent, SmsError, TRY_AGAIN, longest_window};
use super::ledger::{AskedBy, Draft, Earlier, State, WhyNot, Written};
use super::once::Turn;
use super::text::text;
use super::{Code, Delivery, Message, MessageId, Phone, Purpose};
use crate::audit::{self, Action, Event, Outcome, Why};
use crate::clock::Micros;
use crate::config::{Brake, Live};
use crate::db::DbError;
use crate::throttle::{Refusal, Then};

/// How often a request looks how another instance fares with the same one; and how often where that one
/// stands in the ledger, but is not settled: its gateway is slow, or its process has died.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const MOST_LOOKS: usize = 10;
const MOST_LOOKS_AT_PENDING: usize = 4;

/// One request on a task of its own: what it was asked with, and what was in force then.
struct Job {
    codes: Codes,
    watched: Watched,
    keys: Keys,
    brake: Brake,
    code_ttl: Duration,
    phone: Phone,
    purpose: Purpose,
    address: Vec<u8>,
    network: Vec<u8>,
    /// The browser that asks, as the ledger knows it.
    asker: Option<String>,
    guess_window: Duration,
    solved: bool,
    locale: String,
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
        let job = Job::new(self.clone(), live, ask);
        let answer = tokio::spawn(job.recorded(turn)).await.expect("sending does not panic")?;
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

impl From<Sending> for Answer {
    fn from(sending: Sending) -> Self {
        Self { sending, repeated: false, ticket: None, refusal: None }
    }
}

impl Job {
    fn new(codes: Codes, live: &Live, ask: Ask<'_>) -> Self {
        let watched = Watched::of(live);
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
    async fn recorded(self, _turn: InTurn) -> Result<Answer, SmsError> {
        let answer = self.run().await?;
        self.record(&answer);
        Ok(answer)
    }

    async fn run(&self) -> Result<Answer, SmsError> {
        let inner = Arc::clone(&self.codes.0);
        if let Some(retry_after) = self.known_brake().await {
            return Ok(braked(retry_after).into());
        }
        let (mut earlier, mut pending) = (None, 0);
        for _ in 0..MOST_LOOKS {
            match inner.budgets.admit(&self.watched, &self.keys, self.solved).await {
                Admission::In(ticket) => match self.write(ticket).await? {
                    Some(answer) => return Ok(answer),
                    None => continue,
                },
                Admission::Refused(limit, refusal) => return Ok(refused(limit, refusal)),
                Admission::Out(error) => {
                    tracing::debug!(?error, "no message is sent while the window store is out");
                    return Ok(unavailable().into());
                }
                Admission::Repeated => {}
            }
            // Sent, being sent by another instance, or about to be given up by it.
            earlier = self.earlier().await?;
            if let Some(Earlier { state, .. }) = &earlier {
                pending += 1;
                if *state != State::Pending || pending == MOST_LOOKS_AT_PENDING {
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
    async fn known_brake(&self) -> Option<Duration> {
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
        let confirmed = earlier.state == State::Accepted;
        let sent = Sent { expires_in: earlier.expires_in, resend_after, confirmed };
        Ok(Answer { repeated: true, ..Sending::Sent(sent).into() })
    }

    /// It stands in the window store. Where it does not come to stand in the ledger it never was. None
    /// where the store lost its data meanwhile, so that others may stand in its place.
    async fn write(&self, ticket: Ticket) -> Result<Option<Answer>, SmsError> {
        let inner = &*self.codes.0;
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
        };
        let Ok(_place) = inner.places.try_acquire() else {
            inner.budgets.refund(&self.watched, &self.keys, ticket.hit).await;
            return Ok(Some(unavailable().into()));
        };
        let begun = inner.clock.now();
        let why_not = match inner.ledger.write(&draft).await {
            Ok(Written::New { resend_after }) if inner.budgets.stands(&self.watched, &ticket).await => {
                let delivery = self.deliver(&draft, code).await;
                let gone = inner.clock.now().since(begun);
                let sending = self.answer(&delivery, resend_after, gone);
                return Ok(Some(Answer { ticket: Some(ticket), ..sending.into() }));
            }
            Ok(Written::New { .. }) => inner.ledger.withdraw(&draft).await.map(|()| None),
            Ok(Written::Not(why)) => Ok(Some(why)),
            Err(error) => Err(error),
        };
        inner.budgets.refund(&self.watched, &self.keys, ticket.hit).await;
        Ok(match why_not? {
            None => None,
            Some(WhyNot::Repeated(earlier)) => Some(self.repeated(earlier).await?),
            Some(WhyNot::Refused(refusal)) => {
                let sent = inner.ledger.sent_to(self.keys.phone, &self.watched.phone).await?;
                inner.budgets.restore_number(&self.watched, &self.keys, &sent).await;
                Some(refused(self.watched.phone.name().to_owned(), refusal))
            }
            Some(WhyNot::Braked(braked)) => {
                inner.metrics.brakes.increment(u64::from(braked.tripped));
                Some(self::braked(braked.retry_after).into())
            }
        })
    }

    fn answer(&self, delivery: &Delivery, resend_after: Duration, gone: Duration) -> Sending {
        let sent = |confirmed| {
            let (expires_in, resend_after) =
                (self.code_ttl.saturating_sub(gone), resend_after.saturating_sub(gone));
            Sending::Sent(Sent { expires_in, resend_after, confirmed })
        };
        match delivery {
            Delivery::Accepted { .. } => sent(true),
            Delivery::Unknown { .. } => sent(false),
            Delivery::Refused { .. } => Sending::NotSent,
        }
    }

    /// Hands the message to the gateway, once, and writes what became of it: in the ledger first, which
    /// decides.
    async fn deliver(&self, draft: &Draft<'_>, code: Code) -> Delivery {
        let inner = &*self.codes.0;
        let text = text(self.purpose, &code, self.code_ttl, &self.locale);
        let (gateway, phone, id) = (Arc::clone(&inner.gateway), self.phone.clone(), draft.id);
        // A gateway that panics takes this task along, and nothing else.
        let sending = tokio::spawn(async move {
            gateway.send(Message { id, phone: &phone, code: &code, text: &text }).await
        });
        let stop = sending.abort_handle();
        let delivery = match tokio::time::timeout(inner.gateway_patience, sending).await {
            Ok(Ok(delivery)) => delivery,
            Ok(Err(_)) => Delivery::Unknown { reason: "the gateway's code failed".to_owned() },
            Err(_) => {
                stop.abort();
                Delivery::Unknown { reason: "the gateway took too long".to_owned() }
            }
        };
        if self.note(draft, &delivery).await {
            delivery
        } else {
            Delivery::Unknown { reason: "it was given up before its gateway answered".to_owned() }
        }
    }

    /// False if the ledger says something else by now: this process was stopped for minutes.
    async fn note(&self, draft: &Draft<'_>, delivery: &Delivery) -> bool {
        let inner = &*self.codes.0;
        let settled = match inner.ledger.settle(draft, delivery).await {
            Ok(true) if matches!(delivery, Delivery::Refused { .. }) => {
                inner.budgets.refund_all_but_asker(&self.watched, &self.keys, draft.hit).await;
                true
            }
            Ok(settled) => settled,
            // It stays pending, and counts, in the window store as well.
            Err(error) => {
                tracing::warn!(%error, message = %draft.id, "what became of a message is not in the ledger");
                true
            }
        };
        if let Delivery::Refused { reason } | Delivery::Unknown { reason } = delivery {
            tracing::warn!(gateway = draft.gateway, message = %draft.id, reason, "a message is not known to have gone out");
        }
        settled
    }
}

impl Job {
    /// A request that was answered before is no event: it changes nothing.
    fn record(&self, answer: &Answer) {
        if answer.repeated {
            return;
        }
        let audit = &self.codes.0.audit;
        let (outcome, limit) = match &answer.sending {
            Sending::Sent(sent) if sent.confirmed => (Outcome::Ok, None),
            Sending::Sent(_) => (Outcome::Unknown, None),
            Sending::NotSent => (Outcome::Failed, None),
            Sending::Challenged { limit, .. } => (Outcome::Challenged, Some(limit)),
            Sending::Throttled { limit, .. } => (Outcome::Throttled, Some(limit)),
            Sending::Unavailable { .. } => (Outcome::Unavailable, None),
        };
        let buckets = self.watched.buckets(&self.keys);
        let (at, why) = match (limit, &answer.refusal, &answer.ticket) {
            (Some(limit), Some(refusal), _) => (audit.decided(refusal), Some(Why::refused(limit, refusal))),
            // A brake, which no hit holds up.
            (Some(limit), None, _) => {
                (audit.now(), Some(Why { limit, rule: 0, frees_at: Micros(0), noted: false }))
            }
            (None, _, Some(Ticket { at, noted, .. })) => {
                let noted = noted.as_ref();
                (*at, noted.map(|refusal| Why::noted(buckets[refusal.bucket].limit.name(), refusal)))
            }
            (None, _, None) => (audit.now(), None),
        };
        // When what it was counted by was given back.
        let settled = (outcome == Outcome::Failed).then(|| audit.now());
        audit.record(Event {
            settled,
            name: Some(self.purpose.as_str()),
            why,
            solved: self.solved,
            address: Some(audit::Subject::Address(&self.address)),
            network: Some(audit::Subject::Network(&self.network)),
            phone: Some(audit::Subject::Phone(self.phone.as_str())),
            prefix: Some(audit::Subject::Prefix(self.phone.block())),
            ..Event::new(at, Action::Send, outcome)
        });
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

fn braked(retry_after: Duration) -> Sending {
    Sending::Throttled { limit: brake::NAME.to_owned(), retry_after }
}

const fn unavailable() -> Sending {
    Sending::Unavailable { retry_after: TRY_AGAIN }
}
