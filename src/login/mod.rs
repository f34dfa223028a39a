//! Signing in: what an attempt must pass (guard, counts in a row), the hashing of passwords, and registration.

mod attempts;
mod breached;
mod by_code;
mod consecutive;
mod factor_verifier;
mod guard;
mod guess;
mod hasher;
mod password;
mod registration;
mod sign_in;
mod wforce;

pub use crate::config::PasswordSettings as HashSettings;
pub use attempts::{AttemptOutcome, AttemptSettled, GuardedAttempt, GuardedAttempts, GuardedDevice};
pub use breached::{
    BreachedList, BreachedPasswords, BuildError, BuildOptions, BuildProgress, BuildSummary, FilterError,
    build as build_breached,
};
pub use by_code::{ByCode, CodeEntry, CodeRefusal, resets_by_mail};
pub use consecutive::password_enabled_counter;
pub use factor_verifier::{FactorGuess, FactorOutcome, FactorRequest, FactorVerifier, PasskeyOutcome};
pub use gatehouse_limiter::middleware::RequestOrigin;
pub use guard::{
    AccountSubject, AttemptSlot, ClientCapabilities, CountedAttempt, CountingMode, FailureRecord,
    GuardAdmission, GuardRequest, GuardedLogin, LoginGuard, SettleError, account_subject, all_failures,
};
#[doc(hidden)]
pub use guess::detector as spray_detector;
pub use guess::{Guess, GuessKeys, GuessSource, GuessTag, Spray, SprayNews, SprayWatch};
pub use hasher::{ComparedHash, HashCaller, HashLane, HasherBusy, PasswordHasher, VerifyResult};
pub use password::{MAX_CHARS as LONGEST_PASSWORD, MIN_CHARS as SHORTEST_PASSWORD, Password, PasswordError};
pub use registration::{
    PasswordChangeOutcome, Registration, RegistrationOutcome, RegistrationRequest, is_admitted, is_reserved,
};
pub use sign_in::{SignInAttempt, SignInOutcome, SignInService, SignedInOwner};
pub use wforce::{AuthPolicy, PolicyAttempt};
