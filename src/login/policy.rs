//! Attempts as an authentication policy server is asked about them (weakforced's dialect, which Dovecot speaks): the
//! password is reported by a hash, the outcome without a ticket, and nobody can be shown a challenge.

mod asked;
mod pairs;
mod saved;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::asked::{AskedBefore, FailureOf};
use super::{
    AttemptOutcome, AttemptsError, DeviceId, GuardMeans, GuardedAttempt, GuardedAttempts, GuardedDevice,
    GuardedOutcome, Realm, RealmLogin, RequestOrigin,
};
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::denied::Denied;
use crate::secret::{MasterKey, SubKey};

pub use pairs::KnownPairs;
pub use saved::SavedAsks;

/// How long an attempt waits for others in flight. Dovecot gives up after two seconds
/// (`auth_policy_server_timeout_msecs`), and would take that for a failure.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The service. Clones share it.
#[derive(Clone)]
pub struct AuthPolicy(Arc<PolicyParts>);

struct PolicyParts {
    attempts: GuardedAttempts,
    asks: SavedAsks,
    pairs: KnownPairs,
    keys: SubKey,
}

/// One attempt, as a program describes it.
#[derive(Clone)]
pub struct PolicyAttempt {
    pub realm: Realm,
    pub login: RealmLogin,
    /// None: the program does not know the client's address.
    pub origin: Option<RequestOrigin>,
    /// The connection, which tries one password after the other. Empty: the program does not say.
    pub session: String,
    /// What the program says about the password: a hash, of twelve bits with Dovecot's defaults.
    pub password: String,
    /// The client's address is refused.
    pub denied: bool,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyReport {
    Success,
    Failure,
    /// We refused it, and the password was not looked at.
    Refused,
}

impl AuthPolicy {
    pub fn new(attempts: GuardedAttempts, asks: SavedAsks, pairs: KnownPairs, master: &MasterKey) -> Self {
        let keys = master.derive("guard.policy");
        Self(Arc::new(PolicyParts { attempts, asks, pairs, keys }))
    }

    /// Whether the password may be looked at.
    pub async fn allow(&self, live: &LiveSettings, attempt: &PolicyAttempt) -> Result<bool, DbError> {
        let PolicyParts { asks, .. } = &*self.0;
        let key = self.key(attempt);
        // Within a session one attempt follows the other. Without one, the same password may be tried twice at once,
        // and a password that no hash tells from it.
        if !attempt.session.is_empty() && asks.change(key, AskedBefore::ask_again).await {
            return Ok(true);
        }
        let Some(ticket) = self.admit(live, attempt).await? else { return Ok(false) };
        // A caller that hangs up must not leave a slot that no report finds.
        let this = self.clone();
        let begun = tokio::spawn(async move {
            this.0.asks.change(key, |asked, now| asked.begin(&ticket, now)).await;
        });
        begun.await.expect("keeping it does not panic");
        Ok(true)
    }

    /// How it ended. It is carried out even if the caller hangs up.
    pub async fn report(
        &self,
        live: &Arc<LiveSettings>,
        attempt: PolicyAttempt,
        report: PolicyReport,
    ) -> Result<(), AttemptsError> {
        let (this, live) = (self.clone(), Arc::clone(live));
        let told = tokio::spawn(async move {
            match report {
                PolicyReport::Success => this.succeed(&live, &attempt).await,
                PolicyReport::Failure => this.fail(&live, &attempt).await,
                PolicyReport::Refused => Ok(()),
            }
        });
        told.await.expect("a report does not panic")
    }

    /// Deletes what is known no longer; returns how much.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        self.0.pairs.purge(batch).await
    }

    async fn succeed(&self, live: &Arc<LiveSettings>, attempt: &PolicyAttempt) -> Result<(), AttemptsError> {
        let PolicyParts { attempts, asks, pairs, .. } = &*self.0;
        // Without a session and a hash, attempts of others look the same.
        let alike = !attempt.session.is_empty() || !attempt.password.is_empty();
        let succeed = if alike { AskedBefore::succeed } else { AskedBefore::succeed_one };
        let open = asks.change(self.key(attempt), succeed).await;
        let outcomes =
            std::iter::once(AttemptOutcome::Success).chain(std::iter::repeat(AttemptOutcome::Abandoned));
        // Each is settled whatever becomes of the others: one that is not would count as a failure.
        let mut settled = Ok(());
        for (ticket, outcome) in open.iter().zip(outcomes) {
            let told = attempts.settle(live, &attempt.realm, ticket, outcome).await;
            settled = settled.and(told.map(drop));
        }
        let remembered = pairs.remember(self.pair(attempt)).await;
        settled?;
        Ok(remembered?)
    }

    async fn fail(&self, live: &Arc<LiveSettings>, attempt: &PolicyAttempt) -> Result<(), AttemptsError> {
        let PolicyParts { attempts, asks, .. } = &*self.0;
        let ticket = match asks.change(self.key(attempt), AskedBefore::fail).await {
            FailureOf::Open(ticket) => Some(ticket),
            FailureOf::Counted => None,
            FailureOf::Unasked => self.count(live, attempt).await?,
        };
        if let Some(ticket) = ticket {
            attempts.settle(live, &attempt.realm, &ticket, AttemptOutcome::Failure).await?;
        }
        Ok(())
    }

    /// A slot for an attempt, as a known pair first.
    async fn admit(&self, live: &LiveSettings, attempt: &PolicyAttempt) -> Result<Option<String>, DbError> {
        let asked = Instant::now();
        let device = self.device(attempt).await?;
        match self.ask(live, attempt, (device, false), PATIENCE).await? {
            // Whoever shares the address has used up what the pair has. It is not worse off than a stranger.
            GuardedOutcome::Denied(Denied::Challenged { .. }) if device != GuardedDevice::Stranger => {
                let left = PATIENCE.saturating_sub(asked.elapsed());
                Ok(ticket(self.ask(live, attempt, (GuardedDevice::Stranger, false), left).await?))
            }
            outcome => Ok(ticket(outcome)),
        }
    }

    /// A slot for an attempt that has failed already. None: what counts it is full.
    async fn count(&self, live: &LiveSettings, attempt: &PolicyAttempt) -> Result<Option<String>, DbError> {
        let attempt = PolicyAttempt { denied: false, ..attempt.clone() };
        // It counts somewhere even while the database does not say where.
        let device = self.device(&attempt).await.unwrap_or(GuardedDevice::Stranger);
        Ok(ticket(self.ask(live, &attempt, (device, true), PATIENCE).await?))
    }

    async fn ask(
        &self,
        live: &LiveSettings,
        attempt: &PolicyAttempt,
        (device, solved): (GuardedDevice<'_>, bool),
        patience: Duration,
    ) -> Result<GuardedOutcome, DbError> {
        let origin = self.origin(attempt);
        let asked = GuardedAttempt {
            realm: &attempt.realm,
            login: &attempt.login,
            origin: &origin,
            device,
            solved,
            denied: attempt.denied,
            means: GuardMeans { patience, challenges: false },
        };
        self.0.attempts.ask(live, asked).await
    }

    /// An address that is refused is not let in because it was used before.
    async fn device(&self, attempt: &PolicyAttempt) -> Result<GuardedDevice<'static>, DbError> {
        let pair = self.pair(attempt);
        let known = !attempt.denied && self.0.pairs.is_known(pair).await?;
        Ok(if known { GuardedDevice::Known(pair) } else { GuardedDevice::Stranger })
    }

    /// Without an address, each name has a place of its own, so that nobody uses it up for all others.
    fn origin(&self, attempt: &PolicyAttempt) -> RequestOrigin {
        attempt.origin.clone().unwrap_or_else(|| {
            let nowhere = self.name(attempt);
            RequestOrigin {
                address: [&b"\0"[..], &nowhere].concat(),
                network: [&b"\0"[..], &nowhere].concat(),
            }
        })
    }

    fn name(&self, attempt: &PolicyAttempt) -> [u8; 16] {
        *self.0.attempts.account(&attempt.realm, &attempt.login).as_bytes()
    }

    fn pair(&self, attempt: &PolicyAttempt) -> DeviceId {
        let parts = [&self.name(attempt)[..], &self.origin(attempt).address].concat();
        DeviceId::from(self.0.keys.short_hash(*b"pair    ", &parts))
    }

    /// What makes it the same attempt.
    fn key(&self, attempt: &PolicyAttempt) -> [u8; 16] {
        let (name, origin) = (self.name(attempt), self.origin(attempt));
        let parts = [&name[..], &origin.address, attempt.session.as_bytes(), attempt.password.as_bytes()];
        let sized = parts.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes()[..], part].concat());
        self.0.keys.short_hash(*b"attempt ", &sized.collect::<Vec<u8>>())
    }
}

fn ticket(outcome: GuardedOutcome) -> Option<String> {
    match outcome {
        GuardedOutcome::Go { ticket } => Some(ticket),
        GuardedOutcome::Denied(_) => None,
    }
}
