//! Compares one guess, from top to bottom: a slot among the wrong guesses at its number and from its address,
//! the comparison, and what the outcome means for the slot.

use std::time::Duration;

use super::codes::SmsCodes;
use super::ledger::{Guesser, StoredVerification};
use super::message::{CheckOutcome, ProvenPhone, SmsError, TRY_AGAIN};
use super::{MessageId, Phone, Purpose, SmsCode};
use crate::audit::{self, Action, AuditEvent, EventRule, Outcome};
use crate::config::{LimitName, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::request_id;
use crate::throttle::{
    AnyStore, Hold, HoldDecision, Limit, LimitMode, OwnedBucket, Refusal, RuleAction, StoreError, SubjectKey,
};

/// How long a guess may wait for others in flight to be compared.
const GUESS_PATIENCE: Duration = Duration::from_secs(5);

/// An entered code, and its client.
#[derive(Debug, Clone, Copy)]
pub struct CodeGuess<'a> {
    pub phone: &'a Phone,
    pub purpose: Purpose,
    pub code: &'a SmsCode,
    /// The client's address in the form that limits count.
    pub address: &'a [u8],
    /// The network of the address.
    pub network: &'a [u8],
    /// The id of the client's browser, if it has one.
    pub browser: Option<&'a [u8]>,
    /// The number's account has signed in from that browser before.
    pub known: bool,
    /// A challenge was solved with it.
    pub solved: bool,
}

/// The bucket of the number comes first.
const NUMBER: usize = 0;

/// A guess that has its slot, and must now be compared or refunded.
#[must_use = "a guess that is neither becomes a wrong one"]
pub struct AdmittedGuess {
    codes: SmsCodes,
    hold: Hold<AnyStore>,
    phone: Phone,
    key: SubjectKey,
    purpose: Purpose,
    code: SmsCode,
    guesser: Guesser,
    /// There was a code when it was looked up: the guess counts among those compared with one.
    finds_code: bool,
    /// Counts it if there is no code.
    without_code: OwnedBucket,
    /// How many wrong guesses of one guesser a single code survives.
    most: Option<u32>,
    address: Vec<u8>,
    network: Vec<u8>,
    solved: bool,
    /// What a limit in monitor mode would have refused, and which limit.
    noted: Option<(String, Refusal)>,
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuessResult {
    Right,
    Wrong,
    /// There was no code, or none any more.
    Nothing,
}

impl SmsCodes {
    /// Compares a code.
    pub async fn check(&self, live: &LiveSettings, guess: CodeGuess<'_>) -> Result<CheckOutcome, SmsError> {
        match self.admit(live, guess).await? {
            Ok(admitted) => admitted.compare().await,
            Err(denied) => Ok(CheckOutcome::Denied(denied)),
        }
    }

    /// A guess takes its slot among the wrong ones before anything is compared, and returns it if it is
    /// right: a slot for its guesser at the number, and one for the address and its network, which otherwise
    /// could try a few codes of every number. Whether there is a code is looked up first: if there is none,
    /// the guess takes its slot elsewhere and costs the number nothing. Everything else is the same.
    pub async fn admit(
        &self,
        live: &LiveSettings,
        guess: CodeGuess<'_>,
    ) -> Result<Result<AdmittedGuess, Denied>, SmsError> {
        let CodeGuess { phone, purpose, browser, known, .. } = guess;
        let key = self.phone_key(live, phone);
        let asker = browser.map(|browser| self.asker(key, browser)).unwrap_or_default();
        let found = self.0.ledger.find_code(key, purpose, &asker).await?;
        let guesser = match found.asked {
            _ if known => Guesser::Known,
            true => Guesser::Asker,
            false => Guesser::Anyone,
        };
        Ok(self.admit_as(live, guess, guesser, found.code).await)
    }

    async fn admit_as(
        &self,
        live: &LiveSettings,
        guess: CodeGuess<'_>,
        guesser: Guesser,
        finds_code: bool,
    ) -> Result<AdmittedGuess, Denied> {
        let limiter = self.0.budgets.limiter();
        let CodeGuess { phone, purpose, code, address, network, solved, .. } = guess;
        let at_number =
            |finds_code| limiter.bucket(&live.limits.sms_guess, &guesser.subject(phone, finds_code));
        let mut buckets = vec![at_number(finds_code)];
        // A known device is not limited by either, as with a password.
        if guesser != Guesser::Known {
            buckets.push(limiter.bucket(&live.limits.login_address, address));
            buckets.push(limiter.bucket(&live.limits.login_network, network));
        }
        let about = |event| about(guess, guesser.detail(finds_code), event);
        let guesses = &self.0.metrics.guesses;
        let watched = self.watched(live);
        let hold = match self.0.budgets.hold(&watched, &buckets, solved, GUESS_PATIENCE).await {
            Ok(HoldDecision::Held(hold)) => hold,
            Ok(HoldDecision::Refused(refusal)) => {
                let limit = buckets[refusal.bucket].limit.name().to_owned();
                self.record_refused(about, &limit, &refusal);
                let counter = match refusal.then {
                    RuleAction::Captcha => &guesses.challenged,
                    RuleAction::Block => &guesses.throttled,
                };
                counter.increment(1);
                return Err(Denied::by(limit, &refusal));
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => {
                guesses.unavailable.increment(1);
                let audit = &self.0.audit;
                audit.record(about(AuditEvent::new(audit.now(), Action::Guess, Outcome::Unavailable)));
                return Err(Denied::Unavailable { retry_after: TRY_AGAIN });
            }
        };
        let (key, most) = (self.phone_key(live, phone), most(&live.limits.sms_guess));
        let noted = hold.noted.map(|refusal| (buckets[refusal.bucket].limit.name().to_owned(), refusal));
        let without_code = at_number(false).to_owned();
        let (phone, code, codes) = (phone.clone(), code.clone(), self.clone());
        let (address, network) = (address.to_owned(), network.to_owned());
        Ok(AdmittedGuess {
            codes,
            hold,
            phone,
            key,
            purpose,
            code,
            guesser,
            finds_code,
            without_code,
            most,
            address,
            network,
            solved,
            noted,
        })
    }

    fn record_refused<'a>(
        &self,
        about: impl Fn(AuditEvent<'a>) -> AuditEvent<'a>,
        limit: &'a str,
        refusal: &Refusal,
    ) {
        let audit = &self.0.audit;
        let event = AuditEvent::new(audit.decided(refusal), Action::Guess, Outcome::refused(refusal));
        audit.record(AuditEvent { why: Some(EventRule::refused(limit, refusal)), ..about(event) });
    }
}

impl SmsCodes {
    /// If guesses waited for each other when the code went away, they are answered as if there had been none:
    /// they wait for those that found none, too.
    async fn count_without_code(&self, bucket: &OwnedBucket) -> Option<Refusal> {
        match self.0.budgets.limiter().hold(&[bucket.borrow()], true, GUESS_PATIENCE).await {
            Ok(HoldDecision::Refused(refusal)) => Some(refusal),
            Ok(HoldDecision::Held(hold)) => {
                settled(hold.keep().await);
                None
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => None,
        }
    }
}

impl AdmittedGuess {
    pub async fn compare(self) -> Result<CheckOutcome, SmsError> {
        // A client that hangs up now must not leave the hold unsettled, so this runs to its end on its own
        // task.
        request_id::spawn(self.run()).await.expect("a comparison does not panic")
    }

    /// Returns the slot of a guess that was not compared.
    pub async fn refund(self) {
        settled(self.hold.refund().await);
    }

    async fn run(self) -> Result<CheckOutcome, SmsError> {
        let compared = match self.compare_with_code().await {
            Ok(compared) => compared,
            Err(error) => {
                self.refund().await;
                return Err(error.into());
            }
        };
        let taken = self.hold.at;
        let mut refused = None;
        let counts_from = match compared {
            GuessResult::Right => {
                settled(self.hold.refund().await);
                None
            }
            // The code was used or expired in the meantime: the number is not charged, because nothing was
            // compared.
            GuessResult::Nothing if self.finds_code => {
                let kept = self.hold.keep_in(|bucket| bucket != NUMBER).await;
                refused = self.codes.count_without_code(&self.without_code).await;
                Some(settled(kept).unwrap_or(taken))
            }
            GuessResult::Wrong | GuessResult::Nothing => {
                Some(settled(self.hold.keep().await).unwrap_or(taken))
            }
        };
        let right = compared == GuessResult::Right;
        let guesses = &self.codes.0.metrics.guesses;
        let counter = if right { &guesses.right } else { &guesses.wrong };
        counter.increment(1);
        let Self {
            codes, phone, purpose, code, address, network, solved, noted, guesser, without_code, ..
        } = self;
        let guess = CodeGuess {
            phone: &phone,
            purpose,
            code: &code,
            address: &address,
            network: &network,
            browser: None,
            known: false,
            solved,
        };
        let outcome = if right { Outcome::Ok } else { Outcome::Wrong };
        let why = noted.as_ref().map(|(limit, refusal)| EventRule::noted(limit, refusal));
        let event =
            AuditEvent { settled: counts_from, why, ..AuditEvent::new(taken, Action::Guess, outcome) };
        codes.0.audit.record(about(guess, guesser.detail(compared != GuessResult::Nothing), event));
        Ok(match refused {
            _ if right => CheckOutcome::Right(ProvenPhone::of(phone)),
            Some(Refusal { retry_after, .. }) => {
                let limit = without_code.limit.name().to_owned().into();
                CheckOutcome::Denied(Denied::Throttled { limit, retry_after })
            }
            None => CheckOutcome::Wrong,
        })
    }

    /// The same work whether or not there is a code; the ledger knows a wrong guess before it is answered.
    async fn compare_with_code(&self) -> Result<GuessResult, DbError> {
        let compared = self.compare_once().await?;
        let log = match compared {
            GuessResult::Right => return Ok(compared),
            GuessResult::Wrong => self.hold.buckets()[NUMBER].key,
            GuessResult::Nothing => self.without_code.key,
        };
        self.codes.0.ledger.note_wrong(log, self.hold.id()).await?;
        Ok(compared)
    }

    async fn compare_once(&self) -> Result<GuessResult, DbError> {
        let ledger = &self.codes.0.ledger;
        let current = if self.finds_code {
            ledger.try_code(self.key, self.purpose.as_str(), self.guesser, self.most).await?
        } else {
            ledger.try_decoy(self.key).await?
        };
        let Some(current) = current else { return Ok(GuessResult::Nothing) };
        let equal = self.codes.is_code(
            &current.code_hash,
            self.key,
            self.purpose.as_str(),
            current.message,
            &self.code,
        );
        if !self.finds_code {
            return Ok(GuessResult::Nothing);
        }
        if !equal || !ledger.redeem(self.key, self.purpose.as_str(), &current).await? {
            return Ok(GuessResult::Wrong);
        }
        // The code is used up, so the guess counts as right even if this write fails: only the brake needs
        // it.
        if let Err(error) = ledger.note_entered(current.message).await {
            tracing::warn!(%error, "the ledger could not record that a code was entered");
        }
        Ok(GuessResult::Right)
    }
}

/// A hold that cannot be settled becomes a failure by itself.
pub(super) fn settled<T>(told: Result<T, StoreError>) -> Option<T> {
    told.inspect_err(|error| {
        tracing::debug!(%error, "the outcome of a guess did not reach the window store");
    })
    .ok()
}

fn about<'a>(guess: CodeGuess<'a>, detail: Option<&str>, event: AuditEvent<'a>) -> AuditEvent<'a> {
    AuditEvent {
        detail: detail.map(str::to_owned),
        name: Some(guess.purpose.as_str()),
        solved: guess.solved,
        address: Some(audit::EventSubject::Address(guess.address)),
        network: Some(audit::EventSubject::Network(guess.network)),
        phone: Some(audit::EventSubject::Phone(guess.phone.as_str())),
        prefix: Some(audit::EventSubject::Prefix(guess.phone.block())),
        ..event
    }
}

/// How often one code may be compared; None if guesses are not limited.
pub(super) fn most(limit: &Limit) -> Option<u32> {
    let rules = limit.rules().iter().filter(|_| limit.mode() == LimitMode::Enforce);
    rules.map(|rule| rule.max).min()
}

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
        let denied = match self.0.budgets.hold(&self.watched(live), &[bucket], true, GUESS_PATIENCE).await {
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
                self.0.audit.record(AuditEvent { why, ..about_verification(&verification, &purpose, event) });
                Denied::by(limit.name().to_owned(), &refusal)
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => {
                counters.unavailable.increment(1);
                let audit = &self.0.audit;
                let event = AuditEvent::new(audit.now(), Action::Guess, Outcome::Unavailable);
                audit.record(about_verification(&verification, &verification.purpose.stored(), event));
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
        codes.0.audit.record(about_verification(&verification, &verification.purpose.stored(), event));
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
fn about_verification<'a>(
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
