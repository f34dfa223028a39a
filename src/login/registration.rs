//! Making an account with a name and a password, with or without a number, and changing that password.

use std::sync::Arc;
use std::time::Duration;

use super::guard::Guard;
use super::{
    Account, Accounts, CreateError, HashError, Hasher, PasswordError, Phc, Roles, ServiceError, ShownBy,
    Username,
};
use crate::config::Live;
use crate::sms::{Checked, Code, Codes, Guess, Phone, Purpose};
use crate::throttle::Then;

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
    /// The client's address as it is counted.
    pub address: &'a [u8],
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
        let Inner { guard, accounts, hasher, .. } = &*self.0;
        let Newcomer { login, password, phone, address, solved } = newcomer;
        if let Some(refusal) = guard.count_address(&live.limits.register_address, address, solved).await {
            let retry_after = refusal.retry_after;
            return Ok(match refusal.then {
                Then::Captcha => Registered::Challenged { retry_after },
                Then::Block => Registered::Throttled { limit: "register-address".into(), retry_after },
            });
        }
        let hash = match hasher.hash_new(password, login).await {
            Ok(Ok(hash)) => hash,
            Ok(Err(unfit)) => return Ok(Registered::Unfit(unfit)),
            Err(error) => return Ok(Registered::Busy { retry_after: retry_after(error) }),
        };
        let Some((phone, code)) = phone else {
            return self.made(accounts.create(login, &hash, Roles::default()).await);
        };
        if accounts.find(login).await?.is_some() {
            return Ok(Registered::LoginTaken);
        }
        let guess = Guess { phone, purpose: Purpose::Register, code, address, solved };
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

    /// Sets a new password for somebody who has just proven the old one, with the account as it was then.
    pub async fn change_password(&self, verified: &Account, new: &str) -> Result<Changed, ServiceError> {
        let Inner { accounts, hasher, .. } = &*self.0;
        let hash = match hasher.hash_new(new, &verified.login).await {
            Ok(Ok(hash)) => hash,
            Ok(Err(unfit)) => return Ok(Changed::Unfit(unfit)),
            Err(error) => return Ok(Changed::Busy { retry_after: retry_after(error) }),
        };
        let shown = ShownBy::Password(verified.password_version);
        let Some(version) = accounts.set_password(verified.id, &hash, shown).await? else {
            return Ok(Changed::Stale);
        };
        let account = Account {
            password_hash: Some(hash),
            password_version: version,
            must_change_password: false,
            ..verified.clone()
        };
        Ok(Changed::Done(Box::new(account)))
    }
}

pub(super) fn retry_after(error: HashError) -> Duration {
    match error {
        HashError::Busy { retry_after } => retry_after,
        HashError::Stopped => Duration::from_secs(1),
    }
}
