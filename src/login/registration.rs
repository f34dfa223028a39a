//! Creating an account with a name and a password, with or without a number or an address, and changing that password.

use std::sync::Arc;

use serde_json::json;

use super::consecutive::password_enabled_counter;
use super::guard::{CountedAttempt, LoginGuard};
use super::{HashCaller, PasswordError, PasswordHasher, RequestOrigin, SignedInOwner};
use crate::accounts::{
    Acceptance, Account, Accounts, CreateError, Emails, Invitation, Phc, Roles, ShownBy, Username,
};
use crate::audit::{self, Action, AuditEvent, EventRule};
use crate::codes::{CheckOutcome, CodeGuess, CodeService, Recipient};
use crate::config::{LimitName, LiveSettings, RegistrationMode, RegistrationProof};
use crate::db::DbError;
use crate::denied::Denied;
use crate::message::{MessageCode, Purpose};

const LIMIT: &str = LimitName::RegisterAddress.as_str();

#[derive(Clone)]
pub struct Registration {
    guard: Arc<LoginGuard>,
    accounts: Accounts,
    emails: Emails,
    hasher: PasswordHasher,
    codes: CodeService,
}

#[derive(Clone, Copy)]
pub struct RegistrationRequest<'a> {
    pub login: &'a Username,
    pub password: &'a str,
    /// The number or address that is theirs, with the code that went there.
    pub proof: Option<(&'a Recipient, &'a MessageCode)>,
    /// The language of mails.
    pub locale: &'a str,
    pub invitation: Option<&'a Invitation>,
    pub origin: &'a RequestOrigin,
    /// The browser's id, if it has one: the one that requested the code has guesses of its own.
    pub browser: Option<&'a [u8]>,
    pub solved: bool,
}

#[derive(Debug)]
pub enum RegistrationOutcome {
    Made(Box<Account>),
    /// Whether the name is taken was not looked up.
    Closed,
    /// It was used, revoked or expired in the meantime.
    InvitationEnded,
    LoginTaken,
    /// Only somebody who has proved that the number is theirs learns this.
    PhoneTaken,
    /// Only somebody who has proved that the address is theirs learns this.
    EmailTaken,
    WrongCode,
    /// Whether the name is taken was not looked up.
    Unfit(PasswordError),
    Denied(Denied),
}

#[derive(Debug)]
pub enum PasswordChangeOutcome {
    /// Every session has ended; contains the account as it is now.
    Done(Box<Account>),
    /// Another password was set in the meantime.
    Stale,
    Unfit(PasswordError),
    Denied(Denied),
}

/// Names by which people or programs would take their owner for somebody else.
const RESERVED: [&str; 3] = ["admin", "root", "everyone"];

/// Whether a stranger may not choose the name: it says more than who somebody is, or an application is open to it.
pub fn is_reserved(live: &LiveSettings, login: &Username) -> bool {
    RESERVED.contains(&login.as_str()) || live.apps.names(login.as_str())
}

/// Whether somebody may have an account, with this invitation or without one. An invitation to an account that was made
/// already is good whatever the mode.
pub fn is_admitted(live: &LiveSettings, invitation: Option<&Invitation>) -> bool {
    match (live.registration.mode, invitation) {
        (RegistrationMode::Open, _) | (_, Some(Invitation { account: Some(_), .. })) => true,
        (mode, Some(_)) => mode == RegistrationMode::Invite,
        (_, None) => false,
    }
}

impl Registration {
    pub fn new(
        guard: Arc<LoginGuard>,
        (accounts, emails): (Accounts, Emails),
        hasher: PasswordHasher,
        codes: CodeService,
    ) -> Self {
        Self { guard, accounts, emails, hasher, codes }
    }

    /// Counts the address first, because an attacker would want us to compute hashes. A form that ends before its
    /// name is looked up is not counted after all, and tells nothing of the name. The code is checked last, so that
    /// a mistake does not use it up.
    pub async fn register(
        &self,
        live: &LiveSettings,
        newcomer: RegistrationRequest<'_>,
    ) -> Result<RegistrationOutcome, DbError> {
        let RegistrationRequest { origin, solved, invitation, .. } = newcomer;
        let guard = &self.guard;
        // First, and for every name alike.
        let proves = |(to, _): (&Recipient, _)| to.mailbox().is_some();
        let lacks_address = invitation.is_none()
            && live.registration.requires(RegistrationProof::Email)
            && !newcomer.proof.is_some_and(proves);
        if !is_admitted(live, invitation) || lacks_address {
            return Ok(RegistrationOutcome::Closed);
        }
        let everyone = guard.challenges_everyone(live, solved);
        if let Some(denied) = guard.check_access_rules(false, everyone, self.event(newcomer)) {
            return Ok(RegistrationOutcome::Denied(denied));
        }
        if let Err(busy) = self.hasher.has_room(&HashCaller::stranger(&origin.network, solved)).await {
            guard.audit().record(self.event(newcomer));
            return Ok(RegistrationOutcome::Denied(Denied::no_room(solved, busy.retry_after)));
        }
        let limit = &live.limits.register_address;
        let at_address = [(limit, &*origin.address)];
        let (counted, hit) = match guard.count_at(&at_address, solved).await {
            Ok(counted) => counted,
            Err(refusal) => {
                guard.record_refused(self.event(newcomer), LIMIT, &refusal);
                return Ok(RegistrationOutcome::Denied(Denied::by(LIMIT, &refusal)));
            }
        };
        let (hashed, registered) = match self.hash(newcomer).await {
            Ok(hash) => (true, self.with_hash(live, newcomer, &hash).await?),
            Err(unhashed) => {
                guard.uncount_at(&at_address, hit).await;
                (false, unhashed)
            }
        };
        self.record(newcomer, counted, hashed, &registered);
        Ok(registered)
    }

    /// The hash of the password, or what the form ends with.
    async fn hash(&self, newcomer: RegistrationRequest<'_>) -> Result<Phc, RegistrationOutcome> {
        let RegistrationRequest { login, password, origin, solved, .. } = newcomer;
        let caller = HashCaller::stranger(&origin.network, solved);
        match self.hasher.hash_new_for(&caller, password, login.as_str()).await {
            Ok(hash) => hash.map_err(RegistrationOutcome::Unfit),
            Err(busy) => Err(RegistrationOutcome::Denied(Denied::no_room(solved, busy.retry_after))),
        }
    }

    async fn with_hash(
        &self,
        live: &LiveSettings,
        newcomer: RegistrationRequest<'_>,
        hash: &Phc,
    ) -> Result<RegistrationOutcome, DbError> {
        let Self { accounts, emails, codes, .. } = self;
        let RegistrationRequest { login, proof, invitation, origin, browser, solved, locale, .. } = newcomer;
        let RequestOrigin { address, network } = origin;
        if let Some(Invitation { id, account: Some(account) }) = invitation {
            let set = accounts.set_password(account.id, hash, ShownBy::Invitation(*id)).await?;
            return Ok(set.map_or(RegistrationOutcome::InvitationEnded, |version| {
                let account = Account::clone(account).with_password(hash.clone(), version);
                RegistrationOutcome::Made(Box::new(account))
            }));
        }
        // Looked up although it is known, so that it takes the same time.
        let taken = accounts.find(login).await?.is_some();
        if is_reserved(live, login) || (taken && proof.is_some()) {
            return Ok(RegistrationOutcome::LoginTaken);
        }
        if let Some(Invitation { id, .. }) = invitation {
            return Ok(match accounts.create_invited(*id, login, hash).await? {
                Acceptance::Accepted(account) => {
                    self.guard.account_created(&account);
                    RegistrationOutcome::Made(account)
                }
                Acceptance::LoginTaken => RegistrationOutcome::LoginTaken,
                Acceptance::Ended => RegistrationOutcome::InvitationEnded,
            });
        }
        let Some((to, code)) = proof else {
            return self.made(accounts.create(login, hash, Roles::default()).await);
        };
        // If an account has the number or the address already, no code creates another.
        let (to, purpose) = (to.clone(), Purpose::Register);
        let guess = CodeGuess { to, purpose, code, address, network, browser, known: false, solved };
        match codes.check(live, guess).await? {
            CheckOutcome::Right(proven) => self.made(match proven.recipient() {
                Recipient::Phone(phone) => accounts.create_with_phone(login, Some(hash), phone).await,
                Recipient::Mailbox(mailbox) => emails.create(login, hash, (mailbox, locale)).await,
            }),
            CheckOutcome::Wrong => Ok(RegistrationOutcome::WrongCode),
            CheckOutcome::Denied(denied) => Ok(RegistrationOutcome::Denied(denied)),
        }
    }

    fn made(&self, created: Result<Account, CreateError>) -> Result<RegistrationOutcome, DbError> {
        match created {
            Ok(account) => {
                self.guard.account_created(&account);
                Ok(RegistrationOutcome::Made(Box::new(account)))
            }
            Err(CreateError::LoginTaken) => Ok(RegistrationOutcome::LoginTaken),
            Err(CreateError::PhoneTaken) => Ok(RegistrationOutcome::PhoneTaken),
            Err(CreateError::EmailTaken) => Ok(RegistrationOutcome::EmailTaken),
            Err(CreateError::Db(error)) => Err(error),
        }
    }

    /// The event of an attempt for which there is no room. What ended otherwise says so with `..`. The name has no
    /// account yet, or belongs to somebody else.
    fn event<'a>(&self, newcomer: RegistrationRequest<'a>) -> AuditEvent<'a> {
        let recorded = newcomer.proof.map(|(to, _)| to.recorded());
        let (recipient, prefix) = recorded.unzip();
        AuditEvent {
            account: Some(audit::EventSubject::Login(newcomer.login.as_str())),
            address: Some(audit::EventSubject::Address(&newcomer.origin.address)),
            network: Some(audit::EventSubject::Network(&newcomer.origin.network)),
            phone: recipient,
            prefix: prefix.flatten(),
            solved: newcomer.solved,
            ..AuditEvent::new(self.guard.audit().now(), Action::Register, audit::Outcome::Busy)
        }
    }

    /// Events of attempts that were admitted. Those that are unfit or met a busy server do not count: a replay knows
    /// them by their names.
    fn record(
        &self,
        newcomer: RegistrationRequest<'_>,
        counted: CountedAttempt,
        hashed: bool,
        registered: &RegistrationOutcome,
    ) {
        let audit = self.guard.audit();
        let name = match registered {
            RegistrationOutcome::Made(_) => None,
            RegistrationOutcome::Closed => Some("registration-closed"),
            RegistrationOutcome::InvitationEnded => Some("invitation-ended"),
            RegistrationOutcome::LoginTaken => Some("login-taken"),
            RegistrationOutcome::PhoneTaken => Some("phone-taken"),
            RegistrationOutcome::EmailTaken => Some("email-taken"),
            RegistrationOutcome::Unfit(_) => Some("unfit-password"),
            RegistrationOutcome::Denied(_) if !hashed => Some("busy"),
            // Which is an event of its own.
            RegistrationOutcome::WrongCode | RegistrationOutcome::Denied(_) => Some("code"),
        };
        let outcome = if name.is_some() { audit::Outcome::Failed } else { audit::Outcome::Ok };
        let why = counted.noted.as_ref().map(|refusal| EventRule::noted(LIMIT, refusal));
        let account = match registered {
            RegistrationOutcome::Made(account) => Some(account.recorded()),
            _ => None,
        };
        let event = self.event(newcomer);
        let account = account.or(event.account);
        // So that the accounts of a link that leaks are found.
        let invitation = newcomer.invitation.map(|invitation| invitation.id.to_string());
        let detail = invitation.map(|id| json!({ "invitation": id }).to_string());
        audit.record(AuditEvent { at: counted.at, outcome, name, why, account, detail, ..event });
    }

    /// Sets a new password for somebody who has just proved the old one, with the account as it was then.
    /// From a known device it also re-enables a disabled password. It is hashed in the strangers' lane for
    /// everybody, because anybody can register accounts.
    pub async fn change_password(
        &self,
        caller: &HashCaller,
        verified: &SignedInOwner,
        new: &str,
    ) -> Result<PasswordChangeOutcome, DbError> {
        let hash = match self.hasher.hash_new_for(caller, new, verified.login.as_str()).await {
            Ok(Ok(hash)) => hash,
            Ok(Err(unfit)) => return Ok(PasswordChangeOutcome::Unfit(unfit)),
            Err(busy) => {
                let denied = Denied::no_room(caller.solved(), busy.retry_after);
                return Ok(PasswordChangeOutcome::Denied(denied));
            }
        };
        let version = verified.password_version;
        let shown =
            verified.device.map_or(ShownBy::Password(version), |from| ShownBy::PasswordFrom(version, from));
        let Some(version) = self.accounts.set_password(verified.id, &hash, shown).await? else {
            return Ok(PasswordChangeOutcome::Stale);
        };
        if verified.password_disabled_at.is_some() {
            password_enabled_counter().increment(1);
        }
        let account = verified.account.clone().with_password(hash, version);
        Ok(PasswordChangeOutcome::Done(Box::new(account)))
    }
}
