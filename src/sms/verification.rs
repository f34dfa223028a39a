//! Checks the code of another program, by the id of its verification: a slot among the wrong codes that were entered
//! for its number in this program, the comparison, and what the outcome means for the slot.

use std::time::Duration;

use super::codes::SmsCodes;
use super::guessing::{most, settled};
use super::ledger::StoredVerification;
use super::outcome::{SmsError, TRY_AGAIN};
use super::{MessageId, SmsCode};
use crate::audit::{self, Action, AuditEvent, EventRule, Outcome};
use crate::config::{LimitName, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::request_id;
use crate::throttle::{AnyStore, Hold, HoldDecision, Refusal};

/// How long a check may wait for others in flight to be compared.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum VerificationOutcome {
    /// Now, and never again.
    Approved,
    WrongCode,
    /// It has expired, its code was entered too often, or it was approved before.
    Lapsed,
    /// It is none of this program's.
    Unknown,
    /// Nothing was compared.
    Denied(Denied),
}

/// A check that has its slot.
struct AdmittedCheck {
    codes: SmsCodes,
    hold: Hold<AnyStore>,
    verification: StoredVerification,
    id: MessageId,
    code: SmsCode,
    /// How many wrong guesses a code survives.
    most: Option<u32>,
    /// What the limit in monitor mode would have refused.
    noted: Option<Refusal>,
}

impl SmsCodes {
    /// Wrong codes count by the number and the program, so that a newer code does not refill them and a program, which
    /// sees what people type, uses up nobody's guesses but its own; those of the address that asked first count apart,
    /// so that a stranger who asks after the owner uses up nothing of the owner's. Each code also counts them in the
    /// ledger. If it is known that there is nothing to compare with, nothing counts.
    ///
    /// Compared is the newest code of the number and purpose: somebody else who asks for one makes no other useless.
    pub async fn check_verification(
        &self,
        live: &LiveSettings,
        program: &str,
        id: &str,
        code: &SmsCode,
    ) -> Result<VerificationOutcome, SmsError> {
        let Some(id) = MessageId::parse(id) else { return Ok(VerificationOutcome::Unknown) };
        let limit = &live.limits.sms_guess;
        let since = limit.longest_window() + live.sms.code_ttl;
        let found = self.0.ledger.verification(id, program, since).await?;
        let Some(verification) = found else { return Ok(VerificationOutcome::Unknown) };
        if !verification.lives {
            return Ok(VerificationOutcome::Lapsed);
        }
        let subject = verification.guesser.subject_in(program, verification.phone);
        let bucket = self.0.budgets.limiter().bucket(limit, &subject);
        let counters = &self.0.metrics.guesses;
        let denied = match self.0.budgets.hold(&self.watched(live), &[bucket], true, PATIENCE).await {
            Ok(HoldDecision::Held(hold)) => {
                let (noted, most) = (hold.noted, most(limit));
                let (codes, code) = (self.clone(), code.clone());
                let check = AdmittedCheck { codes, hold, verification, id, code, most, noted };
                // A program that hangs up now must not leave the hold unsettled.
                return request_id::spawn(check.run()).await.expect("a comparison does not panic");
            }
            Ok(HoldDecision::Refused(refusal)) => {
                counters.throttled.increment(1);
                let why = Some(EventRule::refused(limit.name(), &refusal));
                let event =
                    AuditEvent::new(self.0.audit.decided(&refusal), Action::Guess, Outcome::Throttled);
                let purpose = verification.purpose.stored();
                self.0.audit.record(AuditEvent { why, ..about(&verification, &purpose, event) });
                Denied::by(limit.name().to_owned(), &refusal)
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => {
                counters.unavailable.increment(1);
                let audit = &self.0.audit;
                let event = AuditEvent::new(audit.now(), Action::Guess, Outcome::Unavailable);
                audit.record(about(&verification, &verification.purpose.stored(), event));
                Denied::Unavailable { retry_after: TRY_AGAIN }
            }
        };
        Ok(VerificationOutcome::Denied(denied))
    }
}

impl AdmittedCheck {
    async fn run(self) -> Result<VerificationOutcome, SmsError> {
        let compared = match self.compare().await {
            Ok(compared) => compared,
            Err(error) => {
                settled(self.hold.refund().await);
                return Err(error.into());
            }
        };
        let taken = self.hold.at;
        let Self { codes, hold, verification, noted, .. } = self;
        let counters = &codes.0.metrics.guesses;
        let (outcome, counts_from) = match compared {
            VerificationOutcome::WrongCode => {
                counters.wrong.increment(1);
                (Outcome::Wrong, Some(settled(hold.keep().await).unwrap_or(taken)))
            }
            VerificationOutcome::Approved => {
                counters.right.increment(1);
                settled(hold.refund().await);
                (Outcome::Ok, None)
            }
            // Another check was first, or the code was replaced meanwhile: this one was compared with nothing.
            other => {
                settled(hold.refund().await);
                return Ok(other);
            }
        };
        let limit = LimitName::SmsGuess.as_str();
        let why = noted.as_ref().map(|refusal| EventRule::noted(limit, refusal));
        let event =
            AuditEvent { settled: counts_from, why, ..AuditEvent::new(taken, Action::Guess, outcome) };
        codes.0.audit.record(about(&verification, &verification.purpose.stored(), event));
        Ok(compared)
    }

    async fn compare(&self) -> Result<VerificationOutcome, DbError> {
        let Self { codes, verification: StoredVerification { phone, purpose, guesser, .. }, code, .. } = self;
        let (ledger, purpose) = (&codes.0.ledger, purpose.stored());
        let Some(current) = ledger.try_code(*phone, &purpose, *guesser, self.most).await? else {
            return Ok(VerificationOutcome::Lapsed);
        };
        if !codes.is_code(&current.code_hash, *phone, &purpose, current.message, code) {
            ledger.note_wrong(self.hold.buckets()[0].key, self.hold.id()).await?;
            return Ok(VerificationOutcome::WrongCode);
        }
        if !ledger.redeem(*phone, &purpose, &current).await? {
            return Ok(VerificationOutcome::Lapsed);
        }
        // The code is used up, so it is approved even if this write fails.
        for message in [current.message, self.id] {
            if let Err(error) = ledger.note_entered(message).await {
                tracing::warn!(%error, "the ledger could not record that a code was entered");
            }
        }
        Ok(VerificationOutcome::Approved)
    }
}

/// The ledger does not have the number, only what events name it by.
fn about<'a>(
    verification: &'a StoredVerification,
    purpose: &'a str,
    event: AuditEvent<'a>,
) -> AuditEvent<'a> {
    AuditEvent {
        // Not among the guesses that open something here.
        detail: Some(FROM_PROGRAM.to_owned()),
        name: Some(purpose),
        phone: verification
            .recorded
            .as_ref()
            .map(|(key, mask)| audit::EventSubject::Recorded { key: *key, mask }),
        prefix: Some(audit::EventSubject::Prefix(&verification.block)),
        ..event
    }
}

/// What an event says about it.
const FROM_PROGRAM: &str = r#"{"from":"program"}"#;
