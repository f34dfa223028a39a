//! The subjects of the account's and the device's windows.

use crate::audit;
use crate::login::{Account, AccountId, KnownDevice, KnownDevices, Username};

/// The subject of an account's window. An account that does not exist is counted by its name, so that no
/// difference shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccountSubject(Option<KnownAccount>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownAccount {
    id: AccountId,
    /// The newest version seen.
    password_version: i64,
}

/// Of every password in a realm: other programs do not say that one was changed.
pub const REALM_VERSION: i64 = 0;

impl AccountSubject {
    /// Not looked up yet.
    pub const UNKNOWN: Self = Self(None);

    pub(super) fn of(account: Option<&Account>) -> Self {
        let known =
            |account: &Account| KnownAccount { id: account.id, password_version: account.password_version };
        Self(account.map(known))
    }

    /// A name in a realm. Nobody here knows whether it has an account.
    pub const fn in_realm(id: AccountId) -> Self {
        Self(Some(KnownAccount { id, password_version: REALM_VERSION }))
    }

    pub fn account(self) -> Option<AccountId> {
        self.0.map(|known| known.id)
    }

    /// The account as an event names it.
    pub fn recorded<'a>(&'a self, login: &'a Username) -> audit::EventSubject<'a> {
        match &self.0 {
            Some(known) => audit::EventSubject::Account { id: known.id.as_bytes(), login: login.as_str() },
            None => audit::EventSubject::Login(login.as_str()),
        }
    }

    /// The browser's known device there. A newer password than the one remembered is accepted, because our
    /// cookies are authentic. An older one is void without a look at the database, so that refusals need
    /// none.
    pub fn known_device(&self, devices: &KnownDevices) -> Option<KnownDevice> {
        let known = self.0?;
        devices.at(known.id).filter(|device| device.password_version >= known.password_version)
    }
}

/// The subject of an account in its limit; for one that does not exist, its name.
pub fn account_subject(name: &str, account: Option<AccountId>) -> Vec<u8> {
    match account {
        Some(id) => account_key(id).to_vec(),
        None => [b"name ", name.as_bytes()].concat(),
    }
}

pub(super) fn account_key(id: AccountId) -> [u8; 19] {
    let mut key = *b"id ................";
    key[3..].copy_from_slice(id.as_bytes());
    key
}
