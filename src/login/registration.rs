//! Making an account with a name and a password, and changing that password.

use std::sync::Arc;
use std::time::Duration;

use super::guard::Guard;
use super::{Account, Accounts, CreateError, HashError, Hasher, PasswordError, Roles, Username};
use crate::config::Live;
use crate::db::DbError;
use crate::throttle::Then;

/// The registration service. Clones share it.
#[derive(Clone)]
pub struct Registration(Arc<Inner>);

struct Inner {
    guard: Arc<Guard>,
    accounts: Accounts,
    hasher: Hasher,
}

#[derive(Debug)]
pub enum Registered {
    Made(Box<Account>),
    LoginTaken,
    Unfit(PasswordError),
    /// A CAPTCHA must be solved first.
    Challenged {
        retry_after: Duration,
    },
    Throttled {
        limit: &'static str,
        retry_after: Duration,
    },
    Busy {
        retry_after: Duration,
    },
}

#[derive(Debug)]
pub enum Changed {
    Done,
    Unfit(PasswordError),
    Busy { retry_after: Duration },
}

impl Registration {
    pub fn new(guard: Arc<Guard>, accounts: Accounts, hasher: Hasher) -> Self {
        Self(Arc::new(Inner { guard, accounts, hasher }))
    }

    /// Counts the address first: a hash is what an attacker would have us compute.
    pub async fn register(
        &self,
        live: &Live,
        login: &Username,
        password: &str,
        address: &[u8],
        solved: bool,
    ) -> Result<Registered, DbError> {
        let Inner { guard, accounts, hasher } = &*self.0;
        if let Some(refusal) = guard.count_address(&live.limits.register_address, address, solved).await {
            let retry_after = refusal.retry_after;
            return Ok(match refusal.then {
                Then::Captcha => Registered::Challenged { retry_after },
                Then::Block => Registered::Throttled { limit: "register-address", retry_after },
            });
        }
        let hash = match hasher.hash_new(password, login).await {
            Ok(Ok(hash)) => hash,
            Ok(Err(unfit)) => return Ok(Registered::Unfit(unfit)),
            Err(error) => return Ok(Registered::Busy { retry_after: retry_after(error) }),
        };
        match accounts.create(login, &hash, Roles::default()).await {
            Ok(account) => {
                guard.made(&account);
                Ok(Registered::Made(Box::new(account)))
            }
            Err(CreateError::LoginTaken) => Ok(Registered::LoginTaken),
            Err(CreateError::Db(error)) => Err(error),
        }
    }

    /// Sets a new password for somebody who has just proven the old one.
    pub async fn change_password(&self, account: &Account, new: &str) -> Result<Changed, DbError> {
        let Inner { accounts, hasher, .. } = &*self.0;
        match hasher.hash_new(new, &account.login).await {
            Ok(Ok(hash)) => accounts.set_password(account.id, &hash).await.map(|_| Changed::Done),
            Ok(Err(unfit)) => Ok(Changed::Unfit(unfit)),
            Err(error) => Ok(Changed::Busy { retry_after: retry_after(error) }),
        }
    }
}

fn retry_after(error: HashError) -> Duration {
    match error {
        HashError::Busy { retry_after } => retry_after,
        HashError::Stopped => Duration::from_secs(1),
    }
}
