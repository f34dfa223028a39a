//! Making an account with a name and a password, with or without a number, and changing that password.

use std::sync::Arc;
use std::time::Duration;

use super::consecutive::password_enabled_counter;
use super::guard::{Counted, Guard};
use super::{
    Account, Accounts, Caller, CreateError, Hasher, HasherBusy, Origin, Owner, PasswordError, Phc, Roles,
    ServiceError, ShownBy, Username,
};
use crate::audit::{self, Action, Event, Why};
use crate::config::{LimitName, Live};
use crate::sms::{Checked, Code, Codes, Guess, Phone, Purpose};
use crate::throttle::{Refusal, Then};

const LIMIT: &str = LimitName::RegisterAddress.as_str();

/// The registration service. Clones share it.
#[derive(Clone)]
pub struct Registration(Arc<Inner>);

struct Inner {
    guard: Arc<Guard>,
    accounts: Accounts,
    hasher: Hasher,
    codes: Codes,
}

/// Who wants an account.
#[derive(Clone, Copy)]
pub struct Newcomer<'a> {
    pub login: &'a Username,
    pub password: &'a str,
    /// A number, and the code that came to it.
    pub phone: Option<(&'a Phone, &'a Code)>,
    pub origin: &'a Origin,
    /// The browser's name, if it has one: the one that asked for the code has guesses of its own.
    pub browser: Option<&'a [u8]>,
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
}

#[derive(Debug)]
pub enum Registered {
    Made(Box<Account>),
    LoginTaken,
    /// Told to who has shown that the number is theirs.
    PhoneTaken,
    WrongCode,
    Unfit(PasswordError),
    /// A CAPTCHA must be solved first.
    Challenged {
        retry_after: Duration,
    },
    Throttled {
        limit: String,
        retry_after: Duration,
    },
    Busy {
        retry_after: Duration,
    },
    /// Codes cannot be checked at the moment.
    Unavailable {
        retry_after: Duration,
    },
}

#[derive(Debug)]
pub enum Changed {
    /// Every session has ended; this is the account as it is now.
    Done(Box<Account>),
    /// Another password was set meanwhile.
    Stale,
    Unfit(PasswordError),
    /// There is no room to hash it: a CAPTCHA must be solved first.
    Challenged,
    Busy {
        retry_after: Duration,
    },
}

impl Registration {
    pub fn new(guard: Arc<Guard>, accounts: Accounts, hasher: Hasher, codes: Codes) -> Self {
        Self(Arc::new(Inner { guard, accounts, hasher, codes }))
    }

    /// Counts the address first: a hash is what an attacker would have us compute. The code is looked at
    /// last, so that none is spent on a mistake.
    pub async fn register(&self, live: &Live, newcomer: Newcomer<'_>) -> Result<Registered, ServiceError> {
        let Newcomer { origin, solved, .. } = newcomer;
        if let Err(busy) = self.0.hasher.has_room(&Caller::stranger(&origin.network, solved)).await {
            self.record_busy(newcomer);
            return Ok(refused(solved, busy));
        }
        let limit = &live.limits.register_address;
        let counted = self.0.guard.count_address(limit, &origin.address, solved).await;
        let counted = match counted {
            Ok(counted) => counted,
            Err(refusal) => {
                self.record_refused(newcomer, &refusal);
                let retry_after = refusal.retry_after;
                return Ok(match refusal.then {
                    Then::Captcha => Registered::Challenged { retry_after },
                    Then::Block => Registered::Throttled { limit: LIMIT.into(), retry_after },
                });
            }
        };
        let registered = self.admitted(live, newcomer).await?;
        self.record(newcomer, counted, &registered);
        Ok(registered)
    }

    async fn admitted(&self, live: &Live, newcomer: Newcomer<'_>) -> Result<Registered, ServiceError> {
        let Inner { accounts, hasher, .. } = &*self.0;
        let Newcomer { login, password, phone, origin: Origin { address, network }, browser, solved } =
            newcomer;
        let hash = match hasher.hash_new_for(&Caller::stranger(network, solved), password, login).await {
            Ok(Ok(hash)) => hash,
            Ok(Err(unfit)) => return Ok(Registered::Unfit(unfit)),
            Err(busy) => return Ok(refused(solved, busy)),
        };
        let Some((phone, code)) = phone else {
            return self.made(accounts.create(login, &hash, Roles::default()).await);
        };
        if accounts.find(login).await?.is_some() {
            return Ok(Registered::LoginTaken);
        }
        // Where an account has the number already, no code makes another.
        let purpose = Purpose::Register;
        let guess = Guess { phone, purpose, code, address, network, browser, known: false, solved };
        self.with_number(live, login, &hash, guess).await
    }

    async fn with_number(
        &self,
        live: &Live,
        login: &Username,
        hash: &Phc,
        guess: Guess<'_>,
    ) -> Result<Registered, ServiceError> {
        let Inner { accounts, codes, .. } = &*self.0;
        match codes.check(live, guess).await? {
            Checked::Right(proven) => {
                self.made(accounts.create_with_phone(login, Some(hash), proven.phone()).await)
            }
            Checked::Wrong => Ok(Registered::WrongCode),
            Checked::Challenged { retry_after, .. } => Ok(Registered::Challenged { retry_after }),
            Checked::Throttled { limit, retry_after } => Ok(Registered::Throttled { limit, retry_after }),
            Checked::Unavailable { retry_after } => Ok(Registered::Unavailable { retry_after }),
        }
    }

    fn made(&self, created: Result<Account, CreateError>) -> Result<Registered, ServiceError> {
        match created {
            Ok(account) => {
                self.0.guard.made(&account);
                Ok(Registered::Made(Box::new(account)))
            }
            Err(CreateError::LoginTaken) => Ok(Registered::LoginTaken),
            Err(CreateError::PhoneTaken) => Ok(Registered::PhoneTaken),
            Err(CreateError::Db(error)) => Err(error.into()),
        }
    }

    fn record_refused(&self, newcomer: Newcomer<'_>, refusal: &Refusal) {
        let audit = self.0.guard.audit();
        let event = Event::new(audit.decided(refusal), Action::Register, audit::Outcome::refused(refusal));
        audit.record(Event { why: Some(Why::refused(LIMIT, refusal)), ..about(newcomer, event) });
    }

    fn record_busy(&self, newcomer: Newcomer<'_>) {
        let audit = self.0.guard.audit();
        audit.record(about(newcomer, Event::new(audit.now(), Action::Register, audit::Outcome::Busy)));
    }

    /// Each that was admitted by itself: all of them count, however they end.
    fn record(&self, newcomer: Newcomer<'_>, counted: Counted, registered: &Registered) {
        let audit = self.0.guard.audit();
        let (outcome, name) = match registered {
            Registered::Made(_) => (audit::Outcome::Ok, None),
            Registered::LoginTaken => (audit::Outcome::Failed, Some("login-taken")),
            Registered::PhoneTaken => (audit::Outcome::Failed, Some("phone-taken")),
            Registered::Unfit(_) => (audit::Outcome::Failed, Some("unfit-password")),
            Registered::Busy { .. } => (audit::Outcome::Failed, Some("busy")),
            // Which is an event of its own.
            Registered::WrongCode
            | Registered::Challenged { .. }
            | Registered::Throttled { .. }
            | Registered::Unavailable { .. } => (audit::Outcome::Failed, Some("code")),
        };
        let why = counted.noted.as_ref().map(|refusal| Why::noted(LIMIT, refusal));
        let event = Event { name, why, ..Event::new(counted.at, Action::Register, outcome) };
        let event = about(newcomer, event);
        audit.record(match registered {
            Registered::Made(account) => Event { account: Some(account.recorded()), ..event },
            _ => event,
        });
    }

    /// Sets a new password for somebody who has just proven the old one, with the account as it was then.
    /// From a known device it opens the account to everyone again, where the old one was disabled.
    /// It is hashed with the strangers', whoever it is: accounts are to be had by registering.
    pub async fn change_password(
        &self,
        caller: &Caller,
        verified: &Owner,
        new: &str,
    ) -> Result<Changed, ServiceError> {
        let Inner { accounts, hasher, .. } = &*self.0;
        let hash = match hasher.hash_new_for(caller, new, &verified.login).await {
            Ok(Ok(hash)) => hash,
            Ok(Err(unfit)) => return Ok(Changed::Unfit(unfit)),
            Err(HasherBusy { retry_after }) if caller.solved() => return Ok(Changed::Busy { retry_after }),
            Err(_) => return Ok(Changed::Challenged),
        };
        let version = verified.password_version;
        let shown =
            verified.device.map_or(ShownBy::Password(version), |from| ShownBy::PasswordFrom(version, from));
        let Some(version) = accounts.set_password(verified.id, &hash, shown).await? else {
            return Ok(Changed::Stale);
        };
        if verified.password_disabled_at.is_some() {
            password_enabled_counter().increment(1);
        }
        let account = Account {
            password_hash: Some(hash),
            password_version: version,
            password_failures: 0,
            password_disabled_at: None,
            must_change_password: false,
            ..verified.account.clone()
        };
        Ok(Changed::Done(Box::new(account)))
    }
}

/// Nobody has the name yet, or it is somebody else's.
fn about<'a>(newcomer: Newcomer<'a>, event: Event<'a>) -> Event<'a> {
    let phone = newcomer.phone.map(|(phone, _)| phone);
    Event {
        account: Some(audit::Subject::Login(newcomer.login.as_str())),
        address: Some(audit::Subject::Address(&newcomer.origin.address)),
        phone: phone.map(|phone| audit::Subject::Phone(phone.as_str())),
        prefix: phone.map(|phone| audit::Subject::Prefix(phone.block())),
        solved: newcomer.solved,
        ..event
    }
}

/// There is no room to hash: whoever solved nothing is asked for a challenge.
const fn refused(solved: bool, HasherBusy { retry_after }: HasherBusy) -> Registered {
    if solved { Registered::Busy { retry_after } } else { Registered::Challenged { retry_after } }
}
