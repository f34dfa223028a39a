//! Identity: usernames, passwords and their hashes, accounts, and sessions.

mod accounts;
mod app_sessions;
mod attempts;
mod by_code;
mod consecutive;
mod devices;
mod guard;
mod hasher;
mod id;
mod password;
mod policy;
mod realm;
mod registration;
mod session_changes;
mod sessions;
mod sign_in;
mod stored_hash;
mod tokens;
mod username;

pub use crate::config::{PasswordSettings as HashSettings, SessionSettings};
pub use accounts::{
    Account, AccountAct, AccountChange, AccountCursor, AccountFilter, AccountPage, Accounts, CreateError,
    DEVICE_LIFE, DeviceFailures, EntryChange, EntryCount, EntryRule, FailureResult, Groups, GroupsError,
    ImportConflict, ImportFile, ImportMistake, ImportMistakes, ImportOutcome, ImportRow, ListedAccounts,
    MOST_IMPORTED, MOST_IN_A_STATEMENT, MOST_NAMED, NamedAccount, PastSignIn, PhoneSet, Roles, ShownBy,
};
pub use app_sessions::{AppSessions, AppTokenHash, AppVisitor, RedeemedCode, is_state_hash, second_try};
pub use attempts::{
    AttemptOutcome, AttemptSettled, AttemptTicket, AttemptsError, AttemptsInFlight, GuardedAttempt,
    GuardedAttempts, GuardedDevice, GuardedOutcome, LocalOutcomes, OutcomeMarks, RedisOutcomes,
};
pub use by_code::{ByCode, ByCodeOutcome, CodeEntry, PhoneOutcome, ResetOutcome, ResetRequest};
pub use consecutive::password_enabled_counter;
pub use devices::{DeviceCookies, KnownDevice, KnownDevices, SignInClient, device_subject};
pub use gatehouse_limiter::middleware::RequestOrigin;
pub use guard::{
    AccountSubject, AttemptSlot, CountedAttempt, FailureRecord, GuardAdmission, GuardMeans, GuardRequest,
    GuardedLogin, LoginGuard, SignInPath, account_subject,
};
pub use hasher::{HashCaller, HashLane, HasherBusy, PasswordHasher, VerifyResult};
pub use id::{AccountId, DeviceId, SessionId};
pub use password::{MAX_CHARS as LONGEST_PASSWORD, MIN_CHARS as SHORTEST_PASSWORD, Password, PasswordError};
pub use policy::{AuthPolicy, KnownPairs, PolicyAttempt, PolicyReport, SavedAsks};
pub use realm::{Realm, RealmLogin, RealmLoginError};
pub use registration::{PasswordChangeOutcome, Registration, RegistrationOutcome, RegistrationRequest};
pub use session_changes::{CHANGES_LAST, MOST_CHANGES, SessionChanges};
pub use sessions::{
    AuthenticatedSession, FormAnswer, FormKey, FormStart, FormTurn, RepeatedForm, Session, SessionToken,
    Sessions, SignedInBy, SubmittedForms,
};
pub use sign_in::{SignInAttempt, SignInOutcome, SignInService, SignedInOwner};
pub use stored_hash::Phc;
pub use tokens::{
    AdminScope, ApiToken, ApiTokens, MOST_SCOPES, MOST_TOKENS, NewToken, ScopesError, TokenBearer,
    TokenEntry, TokenId, TokenScopes,
};
pub use username::{MAX_CHARS as LONGEST_LOGIN, Username, UsernameError};

/// Something that a service depends on has failed; the caller learns no more than that.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Db(#[from] crate::db::DbError),
    #[error(transparent)]
    Sms(#[from] crate::sms::SmsError),
}
