//! Attempts at the logins of other programs: admitted before the password is looked at, settled by how it ended. The
//! guard, its windows and its policy in an outage are those of our own sign-in; every subject belongs to a realm.

mod in_flight;
mod outcomes;
mod record;
mod settling;
mod ticket;

use std::sync::Arc;

use parking_lot::Mutex;

use super::guard::{
    AccountSubject, AttemptSlot, GuardAdmission, GuardMeans, GuardRequest, GuardedLogin, LoginGuard,
    REALM_VERSION, SignInPath,
};
use super::{AccountId, DeviceCookies, DeviceId, KnownDevice, Realm, RealmLogin, RequestOrigin};
use crate::audit::{self, Audit, EventSubject, Outcome};
use crate::clock::Clock;
use crate::config::{LimitName, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::entropy::Entropy;
use crate::secret::{MasterKey, SigningKeys, SubKey};
use crate::throttle::{Refusal, RuleAction, StoreError};

pub use in_flight::AttemptsInFlight;
pub use outcomes::{LocalOutcomes, OutcomeMarks, RedisOutcomes};
pub use ticket::AttemptTicket;
use ticket::{AttemptSeen, NotedRule};

/// The service. Clones share it.
#[derive(Clone)]
pub struct GuardedAttempts(Arc<AttemptsParts>);

struct AttemptsParts {
    guard: Arc<LoginGuard>,
    outcomes: Arc<dyn OutcomeMarks>,
    tickets: SigningKeys,
    devices: DeviceCookies,
    subjects: SubKey,
    clock: Clock,
    entropy: Entropy,
    /// The attempts that this instance has admitted and that have not ended.
    in_flight: Mutex<AttemptsInFlight>,
}

/// One attempt, as a program states it.
pub struct GuardedAttempt<'a> {
    pub realm: &'a Realm,
    pub login: &'a RealmLogin,
    /// Of the client that the program serves, as our own sign-in counts it.
    pub origin: &'a RequestOrigin,
    pub device: GuardedDevice<'a>,
    pub solved: bool,
    /// The client's address is refused.
    pub denied: bool,
    pub means: GuardMeans,
}

/// What is known of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedDevice<'a> {
    Stranger,
    /// What the program was given when this client signed in before.
    Sent(&'a str),
    /// This one has signed in at the name before.
    Known(DeviceId),
}

#[derive(Debug)]
pub enum GuardedOutcome {
    /// The password may be looked at. Settle it with the ticket.
    Go {
        ticket: String,
    },
    Denied(Denied),
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    Failure,
    Success,
    /// The password was not looked at.
    Abandoned,
    /// Nobody said, in time. It counts as a failure.
    Lapsed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptSettled {
    /// Now, or before. After a success, what to keep for the client.
    Told {
        device: Option<String>,
    },
    /// Something else was told before.
    ToldOtherwise,
    Lapsed,
    /// It is no attempt of this realm.
    Unknown,
}

/// The outcome is not noted; tell it again.
#[derive(Debug, thiserror::Error)]
pub enum AttemptsError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AttemptOutcome {
    const ALL: [Self; 4] = [Self::Failure, Self::Success, Self::Abandoned, Self::Lapsed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Success => "success",
            Self::Abandoned => "abandoned",
            Self::Lapsed => "lapsed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

impl GuardedAttempt<'_> {
    /// As a stranger's, and is recorded then: nobody can show a challenge to this device.
    fn is_asked_again(&self, refusal: &Refusal) -> bool {
        let known = matches!(self.device, GuardedDevice::Known(_));
        known && !self.means.challenges && refusal.then == RuleAction::Captcha
    }
}

impl GuardedAttempts {
    pub fn new(
        guard: Arc<LoginGuard>,
        outcomes: Arc<dyn OutcomeMarks>,
        master: &MasterKey,
        clock: Clock,
        entropy: Entropy,
    ) -> Self {
        let devices =
            DeviceCookies::new(master.derive_signing("guard.device"), clock.clone(), entropy.clone());
        Self(Arc::new(AttemptsParts {
            guard,
            outcomes,
            tickets: master.derive_signing("guard.attempt"),
            devices,
            subjects: master.derive("guard.subject"),
            clock,
            entropy,
            in_flight: Mutex::default(),
        }))
    }

    /// Decides on an attempt before its password is looked at.
    pub async fn ask(
        &self,
        live: &LiveSettings,
        attempt: GuardedAttempt<'_>,
    ) -> Result<GuardedOutcome, DbError> {
        let AttemptsParts { guard, devices, subjects, .. } = &*self.0;
        let account = attempt.login.id(attempt.realm, subjects);
        let device = match attempt.device {
            GuardedDevice::Stranger => None,
            GuardedDevice::Sent(text) => devices.recognise(text).at(account),
            GuardedDevice::Known(id) => Some(devices.known(account, id, REALM_VERSION)),
        };
        let path = LoginGuard::path(GuardedLogin::Realm, &live.limits, device);
        let everyone = live.access.challenges_everyone(self.audit().now()).filter(|_| !attempt.solved);
        if path == SignInPath::Stranger
            && let Some(denied) = self.bar_stranger(&attempt, account, everyone)
        {
            return Ok(GuardedOutcome::Denied(denied));
        }
        let origin = in_realm(attempt.realm, attempt.origin);
        let who = GuardRequest {
            guarded: GuardedLogin::Realm,
            name: attempt.login.as_str(),
            origin: &origin,
            solved: attempt.solved,
            alone: attempt.denied || everyone.is_some(),
            means: attempt.means,
        };
        let subject = AccountSubject::in_realm(account);
        match guard.admit_known(&live.limits, subject, who, device).await {
            GuardAdmission::Held(slot) => {
                Ok(GuardedOutcome::Go { ticket: self.begin(&attempt, (account, device), slot) })
            }
            GuardAdmission::Refused { path, refusal, .. }
                if path.device().is_some()
                    && refusal.then == RuleAction::Block
                    && let Some(denied) = self.bar_stranger(&attempt, account, everyone) =>
            {
                Ok(GuardedOutcome::Denied(denied))
            }
            GuardAdmission::Refused { path, limit, refusal } => {
                if !attempt.is_asked_again(&refusal) {
                    self.record_refused(&attempt, (account, path), limit, &refusal);
                }
                Ok(GuardedOutcome::Denied(Denied::by(limit, &refusal)))
            }
            GuardAdmission::Busy { retry_after } => {
                self.record(&attempt, (account, path), self.audit().now(), Outcome::Busy, None);
                let limit = LimitName::GuardAccount.as_str().into();
                Ok(GuardedOutcome::Denied(Denied::Throttled { limit, retry_after }))
            }
        }
    }

    /// A name's failures count no longer: its owner has proved who they are in another way.
    pub async fn forgive(
        &self,
        live: &LiveSettings,
        realm: &Realm,
        login: &RealmLogin,
    ) -> Result<(), StoreError> {
        let account = login.id(realm, &self.0.subjects);
        self.0.guard.forgive(GuardedLogin::Realm, &live.limits, account).await?;
        self.record_forgiven(realm, login, account);
        Ok(())
    }

    /// What an address is bound to in a challenge of this realm.
    pub fn origin(realm: &Realm, origin: &RequestOrigin) -> RequestOrigin {
        in_realm(realm, origin)
    }

    /// What a name is counted as.
    pub fn account(&self, realm: &Realm, login: &RealmLogin) -> AccountId {
        login.id(realm, &self.0.subjects)
    }

    fn audit(&self) -> &Audit {
        self.0.guard.audit()
    }

    fn begin(
        &self,
        attempt: &GuardedAttempt<'_>,
        (account, device): (AccountId, Option<KnownDevice>),
        slot: AttemptSlot,
    ) -> String {
        let AttemptsParts { tickets, entropy, clock, in_flight, .. } = &*self.0;
        let path = slot.path();
        let (hit, buckets) = slot.hit();
        let names = path.limits(GuardedLogin::Realm).iter().copied();
        let noted = |refusal: Refusal| NotedRule {
            limit: path.limits(GuardedLogin::Realm)[refusal.bucket].as_str().to_owned(),
            rule: refusal.rule,
            frees_at: refusal.frees_at.0,
        };
        let (key, mask) = (|subject| self.audit().subject(&subject), |subject| audit::mask(&subject));
        let (address, network) = (&attempt.origin.address, &attempt.origin.network);
        let ticket = AttemptTicket {
            realm: attempt.realm.clone(),
            hit,
            at: clock.now(),
            logs: names.zip(buckets.iter().map(|bucket| bucket.key)).collect(),
            account,
            // A copy of its entry shares its count.
            device: device.map_or_else(|| DeviceId::random(entropy), |device| device.id),
            seen: AttemptSeen {
                at: slot.taken().at.0,
                solved: attempt.solved,
                noted: slot.taken().noted.map(noted),
                login: mask(EventSubject::Login(attempt.login.as_str())),
                address: key(EventSubject::Address(address)),
                network: key(EventSubject::Network(network)),
                network_mask: mask(EventSubject::Network(network)),
            },
        };
        let text = ticket.sign(tickets);
        in_flight.lock().0.insert(self.mark(&ticket), (ticket, slot));
        text
    }

    /// What the outcome is noted under.
    fn mark(&self, ticket: &AttemptTicket) -> [u8; 16] {
        let at = ticket.at.0.to_be_bytes();
        self.0
            .subjects
            .short_hash(*b"attempt ", &[&ticket.hit.0[..], &at, ticket.account.as_bytes()].concat())
    }

    fn told(&self, ticket: &AttemptTicket, outcome: AttemptOutcome) -> AttemptSettled {
        let device = (outcome == AttemptOutcome::Success)
            .then(|| self.0.devices.entry(ticket.account, ticket.device, REALM_VERSION));
        AttemptSettled::Told { device }
    }
}

/// The address and the network as subjects of the realm.
fn in_realm(realm: &Realm, origin: &RequestOrigin) -> RequestOrigin {
    RequestOrigin { address: realm.subject(&origin.address), network: realm.subject(&origin.network) }
}
