//! Compares one guess, top to bottom: its place among the number's wrong ones, the code, and what the
//! outcome means for that place.

use std::time::Duration;

use super::codes::{Checked, Codes, Proven, SmsError, TRY_AGAIN};
use super::{Code, Phone, Purpose};
use crate::config::Live;
use crate::db::DbError;
use crate::secret::same;
use crate::throttle::{AnyStore, Attempt, Hold, Key, Limit, Mode};

/// How long a guess may wait for others in flight to be compared.
const GUESS_PATIENCE: Duration = Duration::from_secs(5);
/// A guess on a task of its own.
struct Guess {
    phone: Phone,
    key: Key,
    purpose: Purpose,
    code: Code,
    /// Wrong ones that a single code survives.
    most: Option<u32>,
}

impl Codes {
    /// Compares a code. A guess takes its place among the number's wrong ones before anything is
    /// compared, and gives it back where it is right.
    pub async fn check(
        &self,
        live: &Live,
        phone: &Phone,
        purpose: Purpose,
        code: &Code,
    ) -> Result<Checked, SmsError> {
        let limiter = self.0.budgets.limiter();
        let bucket = limiter.bucket(&live.limits.sms_guess, phone.as_str().as_bytes());
        let hold = match limiter.hold(&[bucket], false, GUESS_PATIENCE).await {
            Ok(Attempt::Held(hold)) => hold,
            Ok(Attempt::Refused(refusal)) => {
                self.0.metrics.guesses.throttled.increment(1);
                let limit = bucket.limit.name().to_owned();
                return Ok(Checked::Throttled { limit, retry_after: refusal.retry_after });
            }
            Ok(Attempt::OutOfPatience) | Err(_) => {
                self.0.metrics.guesses.unavailable.increment(1);
                return Ok(Checked::Unavailable { retry_after: TRY_AGAIN });
            }
        };
        let guess =
            Guess { phone: phone.clone(), key: self.phone_key(live, phone), purpose, code: code.clone(), most: most(&live.limits.sms_guess) };
        let service = self.clone();
        // Whoever hangs up now must not leave the hold unsettled: this runs to its end without them.
        let compared = tokio::spawn(async move { service.compare(guess, hold).await });
        compared.await.expect("a comparison does not panic")
    }

    async fn compare(&self, guess: Guess, hold: Hold<AnyStore>) -> Result<Checked, SmsError> {
        let right = match self.is_right(&guess).await {
            Ok(right) => right,
            Err(error) => {
                let _ = hold.refund().await;
                return Err(error.into());
            }
        };
        // A hold whose end cannot be told becomes a failure by itself.
        let told = if right { hold.refund().await } else { hold.keep().await };
        if let Err(error) = told {
            tracing::debug!(%error, "the outcome of a guess could not be told to the window store");
        }
        let guesses = &self.0.metrics.guesses;
        let counter = if right { &guesses.right } else { &guesses.wrong };
        counter.increment(1);
        Ok(if right { Checked::Right(Proven::of(guess.phone)) } else { Checked::Wrong })
    }

    async fn is_right(&self, guess: &Guess) -> Result<bool, DbError> {
        let ledger = &self.0.ledger;
        let Some(current) = ledger.try_code(guess.key, guess.purpose, guess.most).await? else { return Ok(false) };
        let hash = self.code_hash(guess.key, guess.purpose, current.message, &guess.code);
        if !same(hash.as_bytes(), current.code_hash.as_bytes()) {
            return Ok(false);
        }
        let right = ledger.redeem(guess.key, guess.purpose, &current).await?;
        // The code is used up, so it has to be right whatever happens here: only the brake asks for it.
        if right && let Err(error) = ledger.note_entered(current.message).await {
            tracing::warn!(%error, "a code that came back is not in the ledger");
        }
        Ok(right)
    }
}

/// How often one code may be compared; None where guesses are not limited.
fn most(limit: &Limit) -> Option<u32> {
    let rules = limit.rules().iter().filter(|_| limit.mode() == Mode::Enforce);
    rules.map(|rule| rule.max).min()
}
