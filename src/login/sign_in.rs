//! Signing in with a password: a slot is taken before anything is verified, and the outcome settles it.

mod counters;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;

use self::counters::Counters;
use super::consecutive::{Consecutive, Looked};
use super::guard::{Admission, Counted, Guard, Path, Slot, Subject, Who};
use super::{
    Account, Accounts, Caller, Client, DeviceId, Hasher, HasherBusy, KnownDevice, KnownDevices, Origin,
    Password, SignedInBy, Username, Verified,
};
use crate::audit::{self, Action, Event, Why};
use crate::clock::Micros;
use crate::config::Live;
use crate::db::DbError;
use crate::request_id;
use crate::throttle::{Refusal, Then};

pub use counters::signed_in_counter;

/// What asks for a challenge where no limit does: there is more to hash than there is room for.
pub const BUSY: &str = "busy";

/// What a caller who waited in vain for others is told: about as long as those take.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Resolves once a client has hung up.
type HungUp = oneshot::Receiver<Infallible>;

/// The sign-in service. Clones share it.
#[derive(Clone)]
pub struct SignIn(Arc<Inner>);

struct Inner {
    guard: Arc<Guard>,
    accounts: Accounts,
    consecutive: Consecutive,
    hasher: Hasher,
    counters: Counters,
}

/// One try at one account's password.
pub struct Attempt {
    pub login: Username,
    pub password: Password,
    pub origin: Origin,
    /// What the account's owner is shown of it, and as what it is known there.
    pub client: Client,
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
}

#[derive(Debug)]
pub enum Outcome {
    SignedIn(Box<Owner>),
    /// The name or the password is wrong, whichever. Whether the next try needs a CAPTCHA.
    Rejected {
        captcha_required: bool,
    },
    /// Nothing was verified: a CAPTCHA must be solved first. Without one, not before that time. By which limit;
    /// or [`BUSY`].
    Challenged {
        limit: &'static str,
        retry_after: Duration,
    },
    /// Nothing was verified, and no CAPTCHA helps until then.
    Throttled {
        limit: &'static str,
        retry_after: Duration,
    },
    /// Nothing was verified: too much else is.
    Busy {
        retry_after: Duration,
    },
}

/// An account whose password was shown just now, and from which of the devices that are known there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub account: Account,
    pub device: Option<DeviceId>,
}

impl std::ops::Deref for Owner {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl Owner {
    /// As what their session starts.
    pub fn shown(&self) -> SignedInBy {
        self.device.map_or(SignedInBy::Password, SignedInBy::PasswordFrom)
    }
}

impl SignIn {
    pub fn new(guard: Arc<Guard>, accounts: Accounts, hasher: Hasher) -> Self {
        let consecutive = Consecutive::new(accounts.clone());
        Self(Arc::new(Inner { guard, accounts, consecutive, hasher, counters: Counters::register() }))
    }

    pub fn guard(&self) -> &Arc<Guard> {
        &self.0.guard
    }

    /// Every password is tried here, whichever page it was typed on, so that one window counts them all.
    pub async fn attempt(&self, live: &Arc<Live>, attempt: Attempt) -> Result<Outcome, DbError> {
        let outcome = self.decide(live, attempt).await?;
        self.0.counters.count(&outcome);
        Ok(outcome)
    }

    async fn decide(&self, live: &Arc<Live>, mut attempt: Attempt) -> Result<Outcome, DbError> {
        // Twice where the account was made or removed a moment ago, or its password changed since the device
        // was known; the second look is at the database.
        for _ in 0..2 {
            let subject = match self.subject(&attempt).await? {
                Ok(subject) => subject,
                Err(busy) => {
                    return Ok(self.record_busy(
                        &attempt,
                        Subject::UNKNOWN,
                        Path::Stranger,
                        busy.retry_after,
                    ));
                }
            };
            let device = subject.known_device(&attempt.client.devices);
            let first = Guard::path(&live.limits, device);
            if let Err(busy) = self.0.hasher.has_room(&caller(&attempt, first)).await {
                return Ok(self.record_busy(&attempt, subject, first, busy.retry_after));
            }
            let admission = self.0.guard.admit_known(&live.limits, subject, who(&attempt), device).await;
            let slot = match admission {
                Admission::Held(slot) => slot,
                Admission::Refused { path, limit, refusal } => {
                    self.record(&attempt, subject, path, Ended::Refused(limit, refusal));
                    let retry_after = refusal.retry_after;
                    return Ok(match refusal.then {
                        Then::Captcha => Outcome::Challenged { limit, retry_after },
                        Then::Block => Outcome::Throttled { limit, retry_after },
                    });
                }
                Admission::Busy { retry_after } => {
                    return Ok(self.record_busy(&attempt, subject, Path::Stranger, retry_after));
                }
            };
            // Whoever hangs up now must not leave the slot unsettled: this runs to its end without them.
            let (service, live) = (self.clone(), Arc::clone(live));
            let (_here, hung_up) = oneshot::channel();
            let verified = request_id::spawn(async move {
                let verified = service.verify(&live, &attempt, subject, slot, hung_up).await;
                (verified, attempt)
            });
            let (verified, back) = verified.await.expect("verification does not panic");
            match verified? {
                Some(outcome) => return Ok(outcome),
                None => attempt = Attempt { client: back.client.known_as(KnownDevices::default()), ..back },
            }
        }
        Ok(Outcome::Busy { retry_after: BUSY_RETRY })
    }

    /// None where the slot was taken on the wrong subject; it is given back.
    async fn verify(
        &self,
        live: &Live,
        attempt: &Attempt,
        subject: Subject,
        slot: Slot,
        hung_up: HungUp,
    ) -> Result<Option<Outcome>, DbError> {
        let Inner { guard, consecutive, .. } = &*self.0;
        let most = live.login.max_consecutive_failures;
        let (taken, path) = (slot.taken(), slot.path());
        let looked = consecutive.look(&attempt.login, subject.account(), path.known(), most).await;
        let Ok(Some(mut looked)) = looked else {
            slot.refund().await;
            looked?;
            return Ok(Some(self.record_busy(attempt, subject, path, BUSY_RETRY)));
        };
        let found = looked.account.as_ref();
        if !guard.learn(&attempt.login, found, subject) || path.is_void(found) || looked.is_spent() {
            slot.refund().await;
            return Ok(None);
        }
        let compared = match self.compare(attempt, path, &looked, hung_up).await {
            Ok(compared) => compared,
            Err(error) => {
                slot.refund().await;
                return Err(error);
            }
        };
        match (compared, looked.account.take()) {
            (Ok(verified), Some(account)) if verified.ok => {
                let (at, forgave) = slot.succeed().await.unwrap_or((taken.at, false));
                self.record(attempt, subject, path, Ended::Right(taken, at, forgave));
                if verified.rehash {
                    self.rehash(account.clone(), attempt.password.clone(), caller(attempt, path));
                }
                let device = looked.device.map(|from| from.device);
                Ok(Some(Outcome::SignedIn(Box::new(Owner { account, device }))))
            }
            (Ok(_), account) => {
                let kept = slot.keep().await;
                let counts_from = kept.as_ref().ok().copied().flatten().unwrap_or(taken.at);
                self.record(attempt, subject, path, Ended::Wrong(taken, counts_from));
                looked.account = account;
                if consecutive.count(&attempt.login, &looked, most).await? {
                    self.record_disabled(attempt, subject, path);
                }
                kept?;
                drop(looked.turn);
                let captcha_required = guard.challenges_next(&live.limits, subject, who(attempt), path).await;
                Ok(Some(Outcome::Rejected { captcha_required }))
            }
            (Err(busy), _) => {
                slot.refund().await;
                Ok(Some(self.record_busy(attempt, subject, path, busy.retry_after)))
            }
        }
    }

    /// With the account's own password where that opens it to who tries, else with a decoy.
    async fn compare(
        &self,
        attempt: &Attempt,
        path: Path,
        looked: &Looked,
        hung_up: HungUp,
    ) -> Result<Result<Verified, HasherBusy>, DbError> {
        let Inner { consecutive, hasher, .. } = &*self.0;
        let hung_up = async { drop(hung_up.await) };
        let caller = caller(attempt, path);
        let mut compared = hasher.verify(&caller, hung_up, &attempt.password, looked.open_hash()).await;
        if let Ok(Verified { ok: ok @ true, .. }) = &mut compared {
            *ok = consecutive.confirm(looked).await?;
        }
        Ok(compared)
    }

    /// Whether there is any use in trying an account's password from this client: once it is disabled, only from
    /// a device that is known and not spent. To be told to who is signed in to the account, and nobody else.
    pub async fn is_open_to(&self, live: &Live, account: &Account, client: &Client) -> Result<bool, DbError> {
        if account.password_disabled_at.is_none() {
            return Ok(true);
        }
        let path = Path::at(account, &client.devices, &live.limits);
        match path.known() {
            Some(device) if !path.is_void(Some(account)) => {
                self.0.accounts.is_device_spent(device.account, device.id).await.map(|spent| !spent)
            }
            _ => Ok(false),
        }
    }

    /// Whom the login names. Not looked up where there is no room for a stranger: a flood is to cost no question
    /// to the database.
    async fn subject(&self, attempt: &Attempt) -> Result<Result<Subject, HasherBusy>, DbError> {
        let Inner { guard, hasher, .. } = &*self.0;
        if let Some(subject) = guard.remembered(&attempt.login) {
            return Ok(Ok(subject));
        }
        if attempt.client.devices.is_empty()
            && let Err(busy) = hasher.has_room(&caller(attempt, Path::Stranger)).await
        {
            return Ok(Err(busy));
        }
        guard.subject(&attempt.login).await.map(Ok)
    }

    /// Nothing was hashed: whoever solved nothing is asked for a challenge, so that a flood has to pay.
    fn record_busy(&self, attempt: &Attempt, subject: Subject, path: Path, retry_after: Duration) -> Outcome {
        self.record(attempt, subject, path, Ended::Busy);
        match attempt.solved {
            true => Outcome::Busy { retry_after },
            false => Outcome::Challenged { limit: BUSY, retry_after },
        }
    }

    fn record_disabled(&self, attempt: &Attempt, subject: Subject, path: Path) {
        let audit = self.0.guard.audit();
        let (name, detail) = from_device(path.known());
        audit.record(Event {
            name,
            detail,
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::Subject::Address(&attempt.origin.address)),
            ..Event::new(audit.now(), Action::PasswordDisabled, audit::Outcome::Ok)
        });
    }

    fn record(&self, attempt: &Attempt, subject: Subject, path: Path, ended: Ended) {
        let audit = self.0.guard.audit();
        let (at, outcome) = match ended {
            Ended::Refused(_, refusal) => (audit.decided(&refusal), audit::Outcome::refused(&refusal)),
            Ended::Busy => (audit.now(), audit::Outcome::Busy),
            Ended::Right(taken, ..) => (taken.at, audit::Outcome::Ok),
            Ended::Wrong(taken, _) => (taken.at, audit::Outcome::Wrong),
        };
        let (name, detail) = from_device(path.device());
        let event = Event {
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::Subject::Address(&attempt.origin.address)),
            network: Some(audit::Subject::Network(&attempt.origin.network)),
            solved: attempt.solved,
            name,
            detail,
            ..Event::new(at, Action::SignIn, outcome)
        };
        audit.record(match ended {
            Ended::Refused(limit, refusal) => Event { why: Some(Why::refused(limit, &refusal)), ..event },
            Ended::Busy => event,
            Ended::Right(taken, at, forgave) => {
                let detail = event.detail.or((!forgave).then(|| audit::NOT_FORGIVEN.to_owned()));
                Event { settled: Some(at), detail, why: why_noted(path, &taken), ..event }
            }
            Ended::Wrong(taken, at) => Event { settled: Some(at), why: why_noted(path, &taken), ..event },
        });
    }

    /// The parameters have changed since this password was hashed. Nobody waits for it; where it does not
    /// come to pass, the next sign-in tries again.
    fn rehash(&self, account: Account, password: Password, caller: Caller) {
        let service = self.clone();
        tokio::spawn(async move {
            let Inner { accounts, hasher, .. } = &*service.0;
            let (Some(old), Ok(new)) = (&account.password_hash, hasher.hash(&caller, &password).await) else {
                return;
            };
            if let Err(error) = accounts.rehash(account.id, old, &new).await {
                tracing::warn!(%error, "a password could not be hashed again");
            }
        });
    }
}

/// How an attempt ended, as it is recorded.
#[derive(Clone, Copy)]
enum Ended {
    Refused(&'static str, Refusal),
    Busy,
    /// Taken then, given back then; and whether the account's failures were to be forgiven with it.
    Right(Counted, Micros, bool),
    /// Taken then, and from when it counts.
    Wrong(Counted, Micros),
}

/// As an event names what came from a known device.
fn from_device(device: Option<&KnownDevice>) -> (Option<&'static str>, Option<String>) {
    let detail = device.map(|device| json!({ "device": device.id.to_string() }).to_string());
    (device.map(|_| audit::FROM_DEVICE), detail)
}

fn why_noted(path: Path, taken: &Counted) -> Option<Why<'static>> {
    taken.noted.as_ref().map(|refusal| Why::noted(path.limits()[refusal.bucket].as_str(), refusal))
}

/// Who a password is hashed for: the lane is that of the way by which it was admitted.
fn caller(attempt: &Attempt, path: Path) -> Caller {
    Caller::of(&attempt.origin, attempt.solved, path.known())
}

fn who(attempt: &Attempt) -> Who<'_> {
    Who { login: &attempt.login, origin: &attempt.origin, solved: attempt.solved }
}
