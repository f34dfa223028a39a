//! Who people are: user names, passwords and their hashes, accounts, and where they are signed in.

mod accounts;
mod by_code;
mod client;
mod consecutive;
mod devices;
mod failure_record;
mod guard;
mod hasher;
mod id;
mod password;
mod phc;
mod registration;
mod scopes;
mod sessions;
mod sign_in;
mod tokens;
mod username;

pub use crate::config::{PasswordSettings as HashSettings, SessionSettings};
pub use accounts::{
    Account, Accounts, CreateError, DeviceFailures, Failure, PastSignIn, PhoneSet, Roles, ShownBy,
};
pub use by_code::{ByCode, CodeEntry, Entered, Given, NotOpened, Reset, Resetting};
pub use client::{Client, Origin};
pub use consecutive::password_enabled_counter;
pub use devices::{DeviceId, Devices, KnownDevice, KnownDevices, LIFE as DEVICE_LIFE, device_subject};
pub use failure_record::FailureRecord;
pub use guard::{Admission, Counted, Guard, Path, Slot, Subject, Who, account_subject};
pub use hasher::{Caller, Hasher, HasherBusy, Lane, Verified};
pub use id::{AccountId, SessionId};
pub use password::{MAX_CHARS as LONGEST_PASSWORD, MIN_CHARS as SHORTEST_PASSWORD, Password, PasswordError};
pub use phc::Phc;
pub use registration::{Changed, Newcomer, Registered, Registration};
pub use scopes::{MOST_SCOPES, Scopes, ScopesError};
pub use sessions::{Authenticated, Session, Sessions, SignedInBy, Token};
pub use sign_in::{Attempt, BUSY, Outcome, Owner, SignIn};
pub use tokens::{ApiToken, Bearer, MOST_TOKENS, NewToken, TokenEntry, TokenId, Tokens};
pub use username::{MAX_CHARS as LONGEST_LOGIN, Username, UsernameError};

/// What a service stands on has failed; its caller hears no more than that.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Db(#[from] crate::db::DbError),
    #[error(transparent)]
    Sms(#[from] crate::sms::SmsError),
}
