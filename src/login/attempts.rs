//! Attempts at the logins of other programs: admitted before the password is looked at, settled by how it ended. The
//! guard, its windows and its policy in an outage are those of our own sign-in; every subject belongs to a realm.

mod ticket;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use gatehouse_limiter::window::HOLD_LIFE;
use gatehouse_limiter::{HitId, OwnedBucket, RedisLink, Refusal, RuleAction, StoreError};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use strum::{EnumString, IntoStaticStr};

use self::ticket::{AttemptOutcomes, AttemptSeen, AttemptTicket, NotedRule};
use super::RequestOrigin;
use super::guard::{
    AccountSubject, AttemptSlot, BUSY_RETRY, ClientCapabilities, CountingMode, GuardAdmission, GuardRequest,
    GuardedLogin, LoginGuard, REALM_VERSION, SettleError,
};
use super::guess::{Guess, GuessKeys, GuessSource};
use crate::accounts::{AccountId, DeviceCookies, DeviceId, KnownDevice, Realm, RealmLogin};
use crate::audit::{self, Action, Audit, AuditEvent, DEVICE, EventRule, EventSubject, Outcome};
use crate::clock::{Clock, Micros};
use crate::config::{LimitName, LiveSettings};
use crate::denied::Denied;
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::{SigningKeys, SubKey};

pub use ticket::{KEPT, RecentAttempts, call};

#[derive(Clone)]
pub struct GuardedAttempts(Arc<AttemptsParts>);

struct AttemptsParts {
    guard: Arc<LoginGuard>,
    outcomes: AttemptOutcomes,
    tickets: SigningKeys,
    devices: DeviceCookies,
    subjects: SubKey,
    guesses: GuessKeys,
    clock: Clock,
    entropy: Entropy,
    /// The attempts that this instance has admitted and that have not ended, by what their outcome is noted under.
    in_flight: Mutex<HashMap<[u8; 16], (AttemptTicket, AttemptSlot)>>,
}

pub struct GuardedAttempt<'a> {
    pub realm: &'a Realm,
    pub login: &'a RealmLogin,
    /// The origin of the client that the program serves, as our own sign-in counts it.
    pub origin: &'a RequestOrigin,
    pub device: GuardedDevice<'a>,
    /// What the program says of the password: the same for the same password at the name, and at no other name. Empty: it
    /// says nothing, and every failure is a new guess.
    pub guess: &'a [u8],
    pub solved: bool,
    /// The client's address is refused.
    pub denied: bool,
    pub means: ClientCapabilities,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedDevice<'a> {
    Stranger,
    /// What the program was given when this client signed in before.
    Sent(&'a str),
    /// This one has signed in at the name before.
    Known(DeviceId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AttemptOutcome {
    Failure,
    Success,
    /// The password was not looked at.
    Abandoned,
    /// The program did not say in time. It counts as a failure.
    Lapsed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptSettled {
    /// Now, or before. After a success, what to keep for the client.
    Told {
        device: Option<String>,
    },
    ToldOtherwise,
    Lapsed,
    /// It is no attempt of this realm.
    Unknown,
}

impl GuardedAttempts {
    /// `shared` is where every instance sees the outcomes.
    pub fn new(foundation: &Foundation, guard: Arc<LoginGuard>, shared: Option<(RedisLink, String)>) -> Self {
        let Foundation { clock, entropy, secrets, .. } = foundation.clone();
        let device_keys = secrets.derive_signing("guard.device");
        Self(Arc::new(AttemptsParts {
            guard,
            outcomes: AttemptOutcomes::new(clock.clone(), shared),
            tickets: secrets.derive_signing(ticket::PURPOSE),
            devices: DeviceCookies::new(device_keys, clock.clone(), entropy.clone()),
            subjects: secrets.derive("guard.subject"),
            guesses: GuessKeys::new(&secrets),
            clock,
            entropy,
            in_flight: Mutex::default(),
        }))
    }

    /// Decides on an attempt before its password is looked at. Returns the ticket with which it is settled.
    pub async fn ask(&self, live: &LiveSettings, attempt: GuardedAttempt<'_>) -> Result<String, Denied> {
        let AttemptsParts { guard, devices, .. } = &*self.0;
        let account = self.account(attempt.realm, attempt.login);
        let device = match attempt.device {
            GuardedDevice::Stranger => None,
            GuardedDevice::Sent(text) => devices.recognise(text).at(account),
            GuardedDevice::Known(id) => Some(devices.known(account, id, REALM_VERSION)),
        };
        let mode = CountingMode::of(GuardedLogin::Realm, &live.limits, device);
        let everyone = guard.challenges_everyone(live, attempt.solved);
        let check_access_rules = || {
            let event = self.event(&attempt, &account, CountingMode::Stranger);
            guard.check_access_rules(attempt.denied, everyone, event)
        };
        if mode == CountingMode::Stranger
            && let Some(denied) = check_access_rules()
        {
            return Err(denied);
        }
        let origin = Self::origin(attempt.realm, attempt.origin);
        let who = GuardRequest {
            guarded: GuardedLogin::Realm,
            subject: AccountSubject::in_realm(account),
            name: attempt.login.as_str(),
            origin: &origin,
            solved: attempt.solved,
            device_only: attempt.denied || everyone.is_some(),
            means: attempt.means,
        };
        match guard.admit(&live.limits, who, mode).await {
            GuardAdmission::Held(slot) => Ok(self.begin(&attempt, (account, device), slot)),
            GuardAdmission::Refused { mode, refusal, .. }
                if mode.device().is_some()
                    && refusal.then == RuleAction::Block
                    && let Some(denied) = check_access_rules() =>
            {
                Err(denied)
            }
            GuardAdmission::Refused { mode, limit, refusal } => {
                // No challenge can be shown to such a device: it asks again as a stranger, and is recorded then.
                let asks_again =
                    matches!(attempt.device, GuardedDevice::Known(_)) && !attempt.means.challenges;
                if !asks_again || refusal.then != RuleAction::Captcha {
                    guard.record_refused(self.event(&attempt, &account, mode), limit, &refusal);
                }
                Err(Denied::by(limit, &refusal))
            }
            GuardAdmission::Busy => {
                self.audit().record(self.event(&attempt, &account, mode));
                if attempt.means.challenges && !attempt.solved {
                    // A client that has solved a challenge passes those that strangers keep in flight.
                    return Err(Denied::no_room(false, BUSY_RETRY));
                }
                let limit = LimitName::GuardAccount.as_str().into();
                Err(Denied::Throttled { limit, rule: 0, retry_after: BUSY_RETRY })
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
        let account = self.account(realm, login);
        self.0.guard.forgive(GuardedLogin::Realm, &live.limits, account).await?;
        let audit = self.audit();
        audit.record(AuditEvent {
            name: Some(realm.as_str()),
            limit: Some(LimitName::GuardAccount.as_str()),
            account: Some(EventSubject::Realm { id: account.as_bytes(), login: login.as_str() }),
            ..AuditEvent::new(audit.now(), Action::Reset, Outcome::Ok)
        });
        Ok(())
    }

    /// The address and the network as subjects of the realm, which a challenge is bound to, too.
    pub fn origin(realm: &Realm, origin: &RequestOrigin) -> RequestOrigin {
        RequestOrigin { address: realm.subject(&origin.address), network: realm.subject(&origin.network) }
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
        let AttemptsParts { tickets, guesses, entropy, clock, in_flight, .. } = &*self.0;
        let (hit, buckets) = slot.hit();
        let source = match &device {
            Some(device) => GuessSource::device(device.id.as_bytes(), guesses),
            None => {
                let address = attempt.realm.subject(&attempt.origin.address);
                GuessSource::client(&address, &[], guesses)
            }
        };
        let tag = || guesses.tag(&[account.as_bytes(), attempt.guess].concat());
        let guess = (!attempt.guess.is_empty()).then(|| Guess { tag: tag(), source });
        let log = |bucket: &OwnedBucket| (bucket.limit.name().to_owned(), bucket.key.0);
        let noted = |refusal: Refusal| NotedRule {
            limit: buckets[refusal.bucket].limit.name().to_owned(),
            rule: refusal.rule,
            frees_at: refusal.frees_at.0,
        };
        let (key, mask) = (|subject| self.audit().subject(&subject), |subject| audit::mask(&subject));
        let (address, network) = (&attempt.origin.address, &attempt.origin.network);
        // A copy of its entry shares its count.
        let device = device.map_or_else(|| DeviceId::random(entropy), |device| device.id);
        let ticket = AttemptTicket {
            realm: attempt.realm.as_str().to_owned(),
            hit: hit.0,
            at: clock.now().0,
            logs: buckets.iter().map(log).collect(),
            account: *account.as_bytes(),
            guess,
            device: *device.as_bytes(),
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
        in_flight.lock().insert(self.mark(&ticket), (ticket, slot));
        text
    }

    /// What the outcome is noted under.
    fn mark(&self, ticket: &AttemptTicket) -> [u8; 16] {
        let parts = [&ticket.hit[..], &ticket.at.to_be_bytes(), &ticket.account].concat();
        self.0.subjects.short_hash(*b"attempt ", &parts)
    }

    fn told(&self, ticket: &AttemptTicket, outcome: AttemptOutcome) -> AttemptSettled {
        let (account, device) = (AccountId::from(ticket.account), DeviceId::from(ticket.device));
        let entry = || self.0.devices.entry(account, device, REALM_VERSION);
        AttemptSettled::Told { device: (outcome == AttemptOutcome::Success).then(entry) }
    }

    /// Settles an attempt: its outcome is noted first, once for all instances, and then carried out. Telling the same
    /// outcome again changes nothing.
    pub async fn settle(
        &self,
        live: &Arc<LiveSettings>,
        realm: &Realm,
        ticket: &str,
        outcome: AttemptOutcome,
    ) -> Result<AttemptSettled, SettleError> {
        let AttemptsParts { tickets, clock, .. } = &*self.0;
        let ticket = AttemptTicket::read(ticket, tickets).filter(|ticket| ticket.realm == realm.as_str());
        let Some(ticket) = ticket else { return Ok(AttemptSettled::Unknown) };
        if ticket.age(clock.now()) >= KEPT {
            // Its outcome is forgotten, and no window may count it anew.
            return Ok(AttemptSettled::Lapsed);
        }
        // A caller that hangs up must not leave an outcome that is noted and not carried out.
        let (this, live) = (self.clone(), Arc::clone(live));
        let settling = tokio::spawn(async move { this.settle_ticket(&live, ticket, outcome).await });
        settling.await.expect("settling does not panic")
    }

    async fn settle_ticket(
        &self,
        live: &LiveSettings,
        ticket: AttemptTicket,
        outcome: AttemptOutcome,
    ) -> Result<AttemptSettled, SettleError> {
        let AttemptsParts { guard, outcomes, clock, .. } = &*self.0;
        let age = ticket.age(clock.now());
        let lapsed = age >= HOLD_LIFE;
        let id = self.mark(&ticket);
        let noted = if lapsed { AttemptOutcome::Lapsed } else { outcome };
        match outcomes.note(id, noted).await {
            Ok(None) => {
                // Later, the store has counted it by itself.
                if age < 2 * HOLD_LIFE || self.has_slot(&id) {
                    self.carry_out(live, id, &ticket, noted).await?;
                }
                Ok(if lapsed { AttemptSettled::Lapsed } else { self.told(&ticket, outcome) })
            }
            Ok(Some(before)) if before == outcome => {
                // What was noted may not have been carried out, because something was out.
                if !lapsed {
                    let hit = HitId(ticket.hit);
                    let told = (failed(outcome), ticket.guess_of(outcome));
                    guard.settle_elsewhere(&live.limits, &ticket.logs, hit, told).await?;
                }
                Ok(self.told(&ticket, outcome))
            }
            Ok(Some(AttemptOutcome::Lapsed)) => Ok(AttemptSettled::Lapsed),
            Ok(Some(_)) => Ok(AttemptSettled::ToldOtherwise),
            // The instance that has the slot can settle it without the store.
            Err(_) if !lapsed && self.has_slot(&id) => {
                self.carry_out(live, id, &ticket, outcome).await?;
                Ok(self.told(&ticket, outcome))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the attempt by its slot if this instance has it, otherwise by what the ticket says.
    async fn carry_out(
        &self,
        live: &LiveSettings,
        id: [u8; 16],
        ticket: &AttemptTicket,
        outcome: AttemptOutcome,
    ) -> Result<(), SettleError> {
        let mut repeat = false;
        let done = match (self.take_slot(&id), outcome) {
            (Some(slot), AttemptOutcome::Failure | AttemptOutcome::Lapsed) => {
                slot.keep(ticket.guess_of(outcome)).await.map_err(SettleError::from).map(|(at, again)| {
                    repeat = again;
                    at.map(|at| (at, false))
                })
            }
            (Some(slot), AttemptOutcome::Success) => Ok(slot.succeed().await),
            (Some(slot), AttemptOutcome::Abandoned) => {
                slot.refund().await;
                Ok(None)
            }
            (None, _) => {
                let (guard, hit) = (&self.0.guard, HitId(ticket.hit));
                let told = (failed(outcome), ticket.guess_of(outcome));
                guard.settle_elsewhere(&live.limits, &ticket.logs, hit, told).await.map(|again| {
                    repeat = again;
                    Some((self.audit().now(), false))
                })
            }
        };
        let settled = done.as_ref().copied().unwrap_or_default();
        self.record_settled(ticket, (outcome, repeat), settled);
        done.map(drop)
    }

    /// Ends the attempts about which nobody has said anything in time. Call it every second.
    pub async fn lapse(&self, live: &LiveSettings) {
        const AT_ONCE: usize = 64;
        let now = self.0.clock.now();
        let overdue = |(id, (ticket, _)): (&[u8; 16], &(AttemptTicket, AttemptSlot))| {
            (ticket.age(now) >= HOLD_LIFE).then(|| (*id, ticket.clone()))
        };
        let overdue: Vec<_> = self.0.in_flight.lock().iter().filter_map(overdue).collect();
        let out = AtomicBool::new(false);
        let ends = overdue.into_iter().map(|(id, ticket)| {
            let out = &out;
            async move {
                let patient = ticket.age(now) < 2 * HOLD_LIFE;
                if patient && out.load(Ordering::Relaxed) {
                    return;
                }
                match self.0.outcomes.note(id, AttemptOutcome::Lapsed).await {
                    Ok(None) => drop(self.carry_out(live, id, &ticket, AttemptOutcome::Lapsed).await),
                    // Told at another instance, which may not have come to its end.
                    Ok(Some(told)) => self.follow(id, told, ticket.guess_of(told)).await,
                    // It may have been told elsewhere: the store will say, if it comes back soon.
                    Err(_) if patient => out.store(true, Ordering::Relaxed),
                    Err(_) => drop(self.carry_out(live, id, &ticket, AttemptOutcome::Lapsed).await),
                }
            }
        });
        futures_util::stream::iter(ends).for_each_concurrent(AT_ONCE, |end| end).await;
    }

    fn has_slot(&self, id: &[u8; 16]) -> bool {
        self.0.in_flight.lock().contains_key(id)
    }

    fn take_slot(&self, id: &[u8; 16]) -> Option<AttemptSlot> {
        self.0.in_flight.lock().remove(id).map(|(_, slot)| slot)
    }

    /// The slot of an attempt that another instance has recorded. Repeating what that did changes nothing.
    async fn follow(&self, id: [u8; 16], told: AttemptOutcome, guess: Option<Guess>) {
        match self.take_slot(&id) {
            Some(slot) if failed(told) => drop(slot.keep(guess).await),
            Some(slot) => slot.refund().await,
            None => {}
        }
    }

    /// The event of an attempt for which there is no room. What ended otherwise says so with `..`.
    fn event<'a>(
        &self,
        attempt: &'a GuardedAttempt<'_>,
        account: &'a AccountId,
        mode: CountingMode,
    ) -> AuditEvent<'a> {
        let id = account.as_bytes();
        AuditEvent {
            name: Some(attempt.realm.as_str()),
            detail: detail(mode.device().map(|device| device.id), []),
            solved: attempt.solved,
            account: Some(EventSubject::Realm { id, login: attempt.login.as_str() }),
            address: Some(EventSubject::Address(&attempt.origin.address)),
            network: Some(EventSubject::Network(&attempt.origin.network)),
            ..AuditEvent::new(self.audit().now(), Action::Attempt, Outcome::Busy)
        }
    }

    /// `settled`: when, if the store could say, and whether a success was to forgive.
    fn record_settled(
        &self,
        ticket: &AttemptTicket,
        (ended, repeat): (AttemptOutcome, bool),
        settled: Option<(Micros, bool)>,
    ) {
        let seen = &ticket.seen;
        let forgave = settled.is_some_and(|(_, forgave)| forgave);
        let (outcome, more) = match ended {
            AttemptOutcome::Success => (Outcome::Ok, (!forgave).then_some(("forgave", false))),
            AttemptOutcome::Failure => (Outcome::Wrong, repeat.then_some((audit::REPEAT, true))),
            AttemptOutcome::Lapsed => (Outcome::Wrong, Some(("lapsed", true))),
            // It counts nowhere.
            AttemptOutcome::Abandoned => return,
        };
        let account = self.audit().subject(&EventSubject::Realm { id: &ticket.account, login: "" });
        let why = seen.noted.as_ref().map(|NotedRule { limit, rule, frees_at }| EventRule {
            limit,
            rule: *rule,
            frees_at: Micros(*frees_at),
            noted: true,
        });
        self.audit().record(AuditEvent {
            settled: settled.map(|(at, _)| at),
            name: Some(&ticket.realm),
            why,
            detail: detail(ticket.known_device(), more),
            solved: seen.solved,
            account: Some(EventSubject::Recorded { key: account, mask: &seen.login }),
            address: Some(EventSubject::Recorded { key: seen.address, mask: &seen.network_mask }),
            network: Some(EventSubject::Recorded { key: seen.network, mask: &seen.network_mask }),
            ..AuditEvent::new(Micros(seen.at), Action::Attempt, outcome)
        });
    }
}

const fn failed(outcome: AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Failure | AttemptOutcome::Lapsed)
}

/// The device first: by that, attempts from known devices are told from others.
fn detail(device: Option<DeviceId>, more: impl IntoIterator<Item = (&'static str, bool)>) -> Option<String> {
    let device = device.map(|id| (DEVICE.to_owned(), Value::from(id.to_string())));
    let more = more.into_iter().map(|(name, is)| (name.to_owned(), Value::from(is)));
    let detail: Map<String, Value> = device.into_iter().chain(more).collect();
    (!detail.is_empty()).then(|| Value::Object(detail).to_string())
}
