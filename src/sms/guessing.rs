//! Compares one guess, top to bottom: its place among the wrong ones of its number and of its address, the
//! code, and what the outcome means for that place.

use std::time::Duration;

use super::codes::{Checked, Codes, Proven, SmsError, TRY_AGAIN};
use super::{Code, Phone, Purpose};
use crate::audit::{self, Action, Event, Outcome, Why};
use crate::config::Live;
use crate::db::DbError;
use crate::request_id;
use crate::secret::same;
use crate::throttle::{AnyStore, Attempt, Hold, Key, Limit, Mode, Refusal, StoreError, Then};

/// How long a guess may wait for others in flight to be compared.
const GUESS_PATIENCE: Duration = Duration::from_secs(5);

/// A code that came back, and from where.
#[derive(Debug, Clone, Copy)]
pub struct Guess<'a> {
    pub phone: &'a Phone,
    pub purpose: Purpose,
    pub code: &'a Code,
    /// The client's address as it is counted.
    pub address: &'a [u8],
    /// The network that it is in.
    pub network: &'a [u8],
    /// A challenge was solved with it.
    pub solved: bool,
}

/// A guess that has its place, and is to be compared or given back.
#[must_use = "a guess that is neither becomes a wrong one"]
pub struct Admitted {
    codes: Codes,
    hold: Hold<AnyStore>,
    phone: Phone,
    key: Key,
    purpose: Purpose,
    code: Code,
    /// Wrong ones that a single code survives.
    most: Option<u32>,
    address: Vec<u8>,
    network: Vec<u8>,
    solved: bool,
    /// What a watching limit would have refused, and which.
    noted: Option<(String, Refusal)>,
}

impl Codes {
    /// Compares a code.
    pub async fn check(&self, live: &Live, guess: Guess<'_>) -> Result<Checked, SmsError> {
        match self.admit(live, guess).await {
            Ok(admitted) => admitted.compare().await,
            Err(not) => Ok(not),
        }
    }

    /// A guess takes its place among the wrong ones before anything is compared, and gives it back where it
    /// is right: among those of the number, and those of the address and its network, which else could try a few
    /// codes of every number there is.
    pub async fn admit(&self, live: &Live, guess: Guess<'_>) -> Result<Admitted, Checked> {
        let limiter = self.0.budgets.limiter();
        let Guess { phone, purpose, code, address, network, solved } = guess;
        let buckets = [
            limiter.bucket(&live.limits.sms_guess, phone.as_str().as_bytes()),
            limiter.bucket(&live.limits.login_address, address),
            limiter.bucket(&live.limits.login_network, network),
        ];
        let guesses = &self.0.metrics.guesses;
        let hold = match limiter.hold(&buckets, solved, GUESS_PATIENCE).await {
            Ok(Attempt::Held(hold)) => hold,
            Ok(Attempt::Refused(refusal)) => {
                let limit = buckets[refusal.bucket].limit.name().to_owned();
                self.record_refused(guess, &limit, &refusal);
                let retry_after = refusal.retry_after;
                return Err(match refusal.then {
                    Then::Captcha => {
                        guesses.challenged.increment(1);
                        Checked::Challenged { limit, retry_after }
                    }
                    Then::Block => {
                        guesses.throttled.increment(1);
                        Checked::Throttled { limit, retry_after }
                    }
                });
            }
            Ok(Attempt::OutOfPatience) | Err(_) => {
                guesses.unavailable.increment(1);
                let audit = &self.0.audit;
                audit.record(about(guess, Event::new(audit.now(), Action::Guess, Outcome::Unavailable)));
                return Err(Checked::Unavailable { retry_after: TRY_AGAIN });
            }
        };
        let (key, most) = (self.phone_key(live, phone), most(&live.limits.sms_guess));
        let noted = hold.noted.map(|refusal| (buckets[refusal.bucket].limit.name().to_owned(), refusal));
        let (phone, code, codes) = (phone.clone(), code.clone(), self.clone());
        let (address, network) = (address.to_owned(), network.to_owned());
        Ok(Admitted { codes, hold, phone, key, purpose, code, most, address, network, solved, noted })
    }

    fn record_refused(&self, guess: Guess<'_>, limit: &str, refusal: &Refusal) {
        let audit = &self.0.audit;
        let event = Event::new(audit.decided(refusal), Action::Guess, Outcome::refused(refusal));
        audit.record(Event { why: Some(Why::refused(limit, refusal)), ..about(guess, event) });
    }
}

impl Admitted {
    pub async fn compare(self) -> Result<Checked, SmsError> {
        // Whoever hangs up now must not leave the hold unsettled: this runs to its end without them.
        request_id::spawn(self.run()).await.expect("a comparison does not panic")
    }

    /// It was not compared after all, and never was.
    pub async fn refund(self) {
        settled(self.hold.refund().await);
    }

    async fn run(self) -> Result<Checked, SmsError> {
        let right = match self.is_right().await {
            Ok(right) => right,
            Err(error) => {
                self.refund().await;
                return Err(error.into());
            }
        };
        let taken = self.hold.at;
        let counts_from = if right {
            settled(self.hold.refund().await);
            None
        } else {
            Some(settled(self.hold.keep().await).unwrap_or(taken))
        };
        let guesses = &self.codes.0.metrics.guesses;
        let counter = if right { &guesses.right } else { &guesses.wrong };
        counter.increment(1);
        let Self { codes, phone, purpose, code, address, network, solved, noted, .. } = self;
        let guess =
            Guess { phone: &phone, purpose, code: &code, address: &address, network: &network, solved };
        let outcome = if right { Outcome::Ok } else { Outcome::Wrong };
        let why = noted.as_ref().map(|(limit, refusal)| Why::noted(limit, refusal));
        let event = Event { settled: counts_from, why, ..Event::new(taken, Action::Guess, outcome) };
        codes.0.audit.record(about(guess, event));
        Ok(if right { Checked::Right(Proven::of(phone)) } else { Checked::Wrong })
    }

    async fn is_right(&self) -> Result<bool, DbError> {
        let ledger = &self.codes.0.ledger;
        let Some(current) = ledger.try_code(self.key, self.purpose, self.most).await? else {
            return Ok(false);
        };
        let hash = self.codes.code_hash(self.key, self.purpose, current.message, &self.code);
        if !same(hash.as_bytes(), current.code_hash.as_bytes()) {
            return Ok(false);
        }
        let right = ledger.redeem(self.key, self.purpose, &current).await?;
        // The code is used up, so it has to be right whatever happens here: only the brake asks for it.
        if right && let Err(error) = ledger.note_entered(current.message).await {
            tracing::warn!(%error, "a code that came back is not in the ledger");
        }
        Ok(right)
    }
}

/// A hold whose end cannot be told becomes a failure by itself.
fn settled<T>(told: Result<T, StoreError>) -> Option<T> {
    told.inspect_err(|error| {
        tracing::debug!(%error, "the outcome of a guess could not be told to the window store");
    })
    .ok()
}

fn about<'a>(guess: Guess<'a>, event: Event<'a>) -> Event<'a> {
    Event {
        name: Some(guess.purpose.as_str()),
        solved: guess.solved,
        address: Some(audit::Subject::Address(guess.address)),
        network: Some(audit::Subject::Network(guess.network)),
        phone: Some(audit::Subject::Phone(guess.phone.as_str())),
        prefix: Some(audit::Subject::Prefix(guess.phone.block())),
        ..event
    }
}

/// How often one code may be compared; None where guesses are not limited.
fn most(limit: &Limit) -> Option<u32> {
    let rules = limit.rules().iter().filter(|_| limit.mode() == Mode::Enforce);
    rules.map(|rule| rule.max).min()
}
