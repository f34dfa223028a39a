//! Checks entered codes, at our pages and of other programs: a slot among the wrong guesses, the comparison, and what
//! the outcome means for the slot.

use std::time::Duration;

use gatehouse_limiter::{Bucket, HoldDecision, LimitMode, OwnedBucket, Refusal, StoreError, SubjectKey};

use super::ledger::{CurrentCode, Guesser, StoredVerification};
use super::recipient::{Channel, Recipient};
use super::request::TRY_AGAIN;
use super::service::CodeService;
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::denied::Denied;
use crate::message::{MessageCode, MessageId, Purpose};
use crate::request_id;
use crate::throttle::Hold;

/// How long a guess may wait for others in flight to be compared.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct CodeGuess<'a> {
    pub to: Recipient,
    pub purpose: Purpose,
    pub code: &'a MessageCode,
    /// The client's address in the form that limits count.
    pub address: &'a [u8],
    pub network: &'a [u8],
    pub browser: Option<&'a [u8]>,
    /// The number's account has signed in from that browser before.
    pub known: bool,
    pub solved: bool,
}

#[derive(Debug)]
pub enum CheckOutcome {
    Right(Proven),
    /// Wrong code, or no code (any more): the answer does not say which.
    Wrong,
    /// Nothing was compared: a limit is full, the window store is out, or too many guesses are in flight.
    Denied(Denied),
}

/// A number or an address that was just proved to be the client's. Only a comparison creates one.
#[derive(Debug)]
pub struct Proven(Recipient);

impl Proven {
    pub const fn recipient(&self) -> &Recipient {
        &self.0
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum VerificationOutcome {
    Approved,
    WrongCode,
    /// It has expired, its code was entered too often, or it was approved before.
    Lapsed,
    /// It is none of this program's.
    Unknown,
    /// Nothing was compared.
    Denied(Denied),
}

/// The bucket of the number comes first.
const NUMBER: usize = 0;

/// A slot among the wrong guesses. Each of them must now be compared or refunded.
struct GuessSlot {
    codes: CodeService,
    hold: Hold,
    /// What a limit in monitor mode would have refused, and which limit.
    noted: Option<(String, Refusal)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GuessResult {
    Right(MessageId),
    Wrong,
    /// It is the code, but another guess has used it up.
    UsedUp,
    /// There was no code, or none any more.
    Nothing,
}

impl CodeService {
    async fn slot<'a>(
        &self,
        (live, channel): (&LiveSettings, Channel),
        buckets: &[Bucket<'_>],
        solved: bool,
        about: impl Fn(AuditEvent<'a>) -> AuditEvent<'a>,
    ) -> Result<GuessSlot, Denied> {
        let audit = &self.0.deps.audit;
        let name = |refusal: &Refusal| buckets[refusal.bucket].limit.name().to_owned();
        match self
            .0
            .budgets(channel)
            .hold(&self.message_limits(live, channel), buckets, solved, PATIENCE)
            .await
        {
            Ok(HoldDecision::Held(hold)) => {
                let noted = hold.noted.map(|refusal| (name(&refusal), refusal));
                Ok(GuessSlot { codes: self.clone(), hold, noted })
            }
            Ok(HoldDecision::Refused(refusal)) => {
                let limit = name(&refusal);
                let event =
                    AuditEvent::new(audit.decided(&refusal), channel.guess(), Outcome::refused(&refusal));
                self.record_guess(AuditEvent {
                    why: Some(EventRule::refused(&limit, &refusal)),
                    ..about(event)
                });
                Err(Denied::by(limit, &refusal))
            }
            other => {
                self.record_guess(about(AuditEvent::new(audit.now(), channel.guess(), Outcome::Unavailable)));
                match other {
                    // Strangers' guesses may be what fills its address. Whoever has solved a challenge passes them, but not
                    // those at the number.
                    Ok(HoldDecision::OutOfPatience) if !solved && buckets.len() > 1 => {
                        Err(Denied::no_room(false, TRY_AGAIN))
                    }
                    _ => Err(Denied::Unavailable { retry_after: TRY_AGAIN }),
                }
            }
        }
    }

    fn record_guess(&self, event: AuditEvent<'_>) {
        let channel = if event.action == Channel::Mail.guess() { Channel::Mail } else { Channel::Sms };
        self.0.metrics.guess(channel, event.outcome);
        self.0.deps.audit.record(event);
    }

    /// Compares a code with the current one, and uses that up if they are equal.
    async fn compare(
        &self,
        number: SubjectKey,
        purpose: &str,
        code: &MessageCode,
        current: Option<CurrentCode>,
    ) -> Result<GuessResult, DbError> {
        let Some(current) = current else { return Ok(GuessResult::Nothing) };
        if !self.is_code(&current.code_hash, number, purpose, current.message, code) {
            return Ok(GuessResult::Wrong);
        }
        let redeemed = self.0.ledger.redeem(number, purpose, &current).await?;
        Ok(if redeemed { GuessResult::Right(current.message) } else { GuessResult::UsedUp })
    }

    /// The code is used up, so the guess counts as right even if this write fails: only the brake needs it.
    async fn note_entered(&self, message: MessageId) {
        if let Err(error) = self.0.ledger.note_entered(message).await {
            tracing::warn!(%error, "the ledger could not record that a code was entered");
        }
    }
}

/// What was compared. `settled` is when a wrong guess began to count.
fn compared_event(
    (action, right): (Action, bool),
    (taken, settled): (Micros, Option<Micros>),
    noted: Option<&(String, Refusal)>,
) -> AuditEvent<'_> {
    let why = noted.map(|(limit, refusal)| EventRule::noted(limit, refusal));
    let outcome = if right { Outcome::Ok } else { Outcome::Wrong };
    AuditEvent { settled, why, ..AuditEvent::new(taken, action, outcome) }
}

impl GuessSlot {
    fn number(&self) -> &OwnedBucket {
        &self.hold.buckets()[NUMBER]
    }

    /// How many wrong guesses of one guesser a single code survives; None if guesses are not limited.
    fn most(&self) -> Option<u32> {
        let limit = &self.number().limit;
        let rules = limit.rules().iter().filter(|_| limit.mode() == LimitMode::Enforce);
        rules.map(|rule| rule.max).min()
    }
}

/// A hold that cannot be settled becomes a failure by itself.
fn settled<T>(answer: Result<T, StoreError>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::debug!(%error, "the outcome of a guess did not reach the window store"))
        .ok()
}

#[must_use = "a guess that is neither becomes a wrong one"]
pub struct AdmittedGuess {
    slot: GuessSlot,
    client: GuessClient,
    /// The key of the number itself.
    number: SubjectKey,
    code: MessageCode,
    guesser: Guesser,
    /// There was a code when it was looked up: the guess counts among those compared with one.
    finds_code: bool,
    /// Counts it if there is no code.
    without_code: OwnedBucket,
}

struct GuessClient {
    to: Recipient,
    purpose: Purpose,
    address: Vec<u8>,
    network: Vec<u8>,
    solved: bool,
}

impl GuessClient {
    fn about<'a>(&'a self, detail: Option<&str>, event: AuditEvent<'a>) -> AuditEvent<'a> {
        let (recipient, prefix) = self.to.recorded();
        AuditEvent {
            detail: detail.map(str::to_owned),
            name: Some(self.purpose.into_str()),
            solved: self.solved,
            address: Some(EventSubject::Address(&self.address)),
            network: Some(EventSubject::Network(&self.network)),
            phone: Some(recipient),
            prefix,
            ..event
        }
    }
}

impl CodeService {
    pub async fn check(&self, live: &LiveSettings, guess: CodeGuess<'_>) -> Result<CheckOutcome, DbError> {
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
    ) -> Result<Result<AdmittedGuess, Denied>, DbError> {
        let CodeGuess { to, purpose, code, address, network, browser, known, solved } = guess;
        let channel = to.channel();
        let [key, number] =
            [to.subject(), to.bound(&purpose.into())].map(|name| self.key_of(live, channel, name));
        let asker = browser.map(|browser| self.asker(key, browser)).unwrap_or_default();
        let found = self.0.ledger.find_code([key, number], purpose, &asker).await?;
        let guesser = match found.asked {
            _ if known => Guesser::Known,
            true => Guesser::Asker,
            false => Guesser::Anyone,
        };
        let (limits, limiter) = (&live.limits, &self.0.deps.limiter);
        let guesses = match channel {
            Channel::Sms => &limits.sms_guess,
            Channel::Mail => &limits.mail_guess,
        };
        let subject = to.subject_of_guesses();
        let at_number = |finds_code| limiter.bucket(guesses, &guesser.subject(&subject, finds_code));
        let mut buckets = vec![at_number(found.code)];
        // A known device is not limited by either, as with a password.
        if guesser != Guesser::Known {
            buckets.push(limiter.bucket(&limits.login_address, address));
            buckets.push(limiter.bucket(&limits.login_network, network));
        }
        let (address, network) = (address.to_owned(), network.to_owned());
        let client = GuessClient { to, purpose, address, network, solved };
        let about = |event| client.about(guesser.detail(found.code), event);
        let slot = match self.slot((live, channel), &buckets, solved, about).await {
            Ok(slot) => slot,
            Err(denied) => return Ok(Err(denied)),
        };
        Ok(Ok(AdmittedGuess {
            slot,
            number,
            code: code.clone(),
            guesser,
            finds_code: found.code,
            without_code: at_number(false).to_owned(),
            client,
        }))
    }

    /// If guesses waited for each other when the code went away, they are answered as if there had been none:
    /// they wait for those that found none, too.
    async fn count_without_code(&self, bucket: &OwnedBucket) -> Option<Refusal> {
        match self.0.deps.limiter.hold(&[bucket.borrow()], true, PATIENCE).await {
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
    pub async fn compare(self) -> Result<CheckOutcome, DbError> {
        // A client that hangs up now must not leave the hold unsettled, so this runs to its end on its own
        // task.
        request_id::spawn(self.run()).await.expect("a comparison does not panic")
    }

    /// Returns the slot of a guess that was not compared.
    pub async fn refund(self) {
        settled(self.slot.hold.refund().await);
    }

    async fn run(self) -> Result<CheckOutcome, DbError> {
        let compared = match self.compare_with_code().await {
            Ok(compared) => compared,
            Err(error) => {
                self.refund().await;
                return Err(error);
            }
        };
        let Self { slot: GuessSlot { codes, hold, noted }, client, guesser, without_code, .. } = self;
        let taken = hold.at;
        let mut refused = None;
        let counts_from = match compared {
            GuessResult::Right(_) => {
                settled(hold.refund().await);
                None
            }
            // The code was used or expired in the meantime: the number is not charged, because nothing was
            // compared.
            GuessResult::Nothing if self.finds_code => {
                let kept = hold.keep_in(|bucket| bucket != NUMBER).await;
                refused = codes.count_without_code(&without_code).await;
                Some(settled(kept).unwrap_or(taken))
            }
            GuessResult::Wrong | GuessResult::UsedUp | GuessResult::Nothing => {
                Some(settled(hold.keep().await).unwrap_or(taken))
            }
        };
        let right = matches!(compared, GuessResult::Right(_));
        let detail = guesser.detail(compared != GuessResult::Nothing);
        let event =
            compared_event((client.to.channel().guess(), right), (taken, counts_from), noted.as_ref());
        codes.record_guess(client.about(detail, event));
        Ok(match refused {
            _ if right => CheckOutcome::Right(Proven(client.to)),
            Some(Refusal { rule, retry_after, .. }) => {
                let limit = without_code.limit.name().to_owned().into();
                CheckOutcome::Denied(Denied::Throttled { limit, rule, retry_after })
            }
            None => CheckOutcome::Wrong,
        })
    }

    /// The same work whether or not there is a code; the ledger knows a wrong guess before it is answered.
    async fn compare_with_code(&self) -> Result<GuessResult, DbError> {
        let (codes, purpose) = (&self.slot.codes, self.client.purpose.into_str());
        let ledger = codes.ledger();
        let current = if self.finds_code {
            ledger.try_code(self.number, purpose, self.guesser, self.slot.most()).await?
        } else {
            ledger.try_decoy(self.number).await?
        };
        let mut compared = codes.compare(self.number, purpose, &self.code, current).await?;
        if !self.finds_code {
            compared = GuessResult::Nothing;
        }
        let channel = self.client.to.channel();
        let log = match compared {
            GuessResult::Right(message) => {
                codes.note_entered(message).await;
                return Ok(compared);
            }
            GuessResult::Wrong | GuessResult::UsedUp => self.slot.number().key,
            GuessResult::Nothing => self.without_code.key,
        };
        ledger.note_wrong(channel, log, self.slot.hold.id()).await?;
        Ok(compared)
    }
}

impl CodeService {
    /// Checks the code of another program, by the id of its verification.
    ///
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
        code: &MessageCode,
    ) -> Result<VerificationOutcome, DbError> {
        let Some(id) = MessageId::parse(id) else { return Ok(VerificationOutcome::Unknown) };
        let limit = &live.limits.sms_guess;
        let since = limit.longest_window() + live.sms.code_ttl;
        let found = self.0.ledger.verification(id, program, since).await?;
        let Some(verification) = found else { return Ok(VerificationOutcome::Unknown) };
        if !verification.lives {
            return Ok(VerificationOutcome::Lapsed);
        }
        let subject = verification.guesser.subject_in(program, verification.phone);
        let bucket = self.0.deps.limiter.bucket(limit, &subject);
        let about = |event| about_verification(&verification, event);
        let slot = match self.slot((live, Channel::Sms), &[bucket], true, about).await {
            Ok(slot) => slot,
            Err(denied) => return Ok(VerificationOutcome::Denied(denied)),
        };
        let code = code.clone();
        // A program that hangs up now must not leave the hold unsettled.
        let check = async move { slot.check(&verification, &code).await };
        request_id::spawn(check).await.expect("a comparison does not panic")
    }
}

impl GuessSlot {
    async fn check(
        self,
        verification: &StoredVerification,
        code: &MessageCode,
    ) -> Result<VerificationOutcome, DbError> {
        let compared = match self.compare(verification, code).await {
            Ok(compared) => compared,
            Err(error) => {
                settled(self.hold.refund().await);
                return Err(error);
            }
        };
        let Self { codes, hold, noted } = self;
        let taken = hold.at;
        let (right, counts_from) = match compared {
            VerificationOutcome::WrongCode => (false, Some(settled(hold.keep().await).unwrap_or(taken))),
            VerificationOutcome::Approved => {
                settled(hold.refund().await);
                (true, None)
            }
            // Another check was first, or the code was replaced meanwhile: this one was compared with nothing.
            other => {
                settled(hold.refund().await);
                return Ok(other);
            }
        };
        let event = compared_event((Action::Guess, right), (taken, counts_from), noted.as_ref());
        codes.record_guess(about_verification(verification, event));
        Ok(compared)
    }

    async fn compare(
        &self,
        &StoredVerification { id, number, ref purpose, guesser, .. }: &StoredVerification,
        code: &MessageCode,
    ) -> Result<VerificationOutcome, DbError> {
        let codes = &self.codes;
        let current = codes.ledger().try_code(number, purpose, guesser, self.most()).await?;
        Ok(match codes.compare(number, purpose, code, current).await? {
            GuessResult::Right(message) => {
                codes.note_entered(message).await;
                codes.note_entered(id).await;
                VerificationOutcome::Approved
            }
            GuessResult::Wrong => {
                codes.ledger().note_wrong(Channel::Sms, self.number().key, self.hold.id()).await?;
                VerificationOutcome::WrongCode
            }
            GuessResult::UsedUp | GuessResult::Nothing => VerificationOutcome::Lapsed,
        })
    }
}

/// The ledger does not have the number, only what events name it by.
fn about_verification<'a>(verification: &'a StoredVerification, event: AuditEvent<'a>) -> AuditEvent<'a> {
    let recorded = verification.recorded.as_ref();
    AuditEvent {
        // Not among the guesses that open something here.
        detail: Some(r#"{"from":"program"}"#.to_owned()),
        name: Some(&verification.purpose),
        phone: recorded.map(|(key, mask)| EventSubject::Recorded { key: *key, mask }),
        prefix: Some(EventSubject::Prefix(&verification.block)),
        ..event
    }
}
