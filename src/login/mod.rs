//! Who people are: user names, passwords and their hashes, accounts, and where they are signed in.

mod accounts;
mod client;
mod guard;
mod hasher;
mod id;
mod password;
mod phc;
mod registration;
mod sessions;
mod sign_in;
mod username;

pub use accounts::{Account, Accounts, CreateError, PastSignIn, Roles};
pub use client::Client;
pub use guard::{Admission, Guard, Slot, Subject, Who};
pub use hasher::{HashError, HashSettings, Hasher, Verified};
pub use id::{AccountId, SessionId};
pub use password::{MAX_CHARS as LONGEST_PASSWORD, MIN_CHARS as SHORTEST_PASSWORD, Password, PasswordError};
pub use phc::Phc;
pub use registration::{Changed, Registered, Registration};
pub use sessions::{Authenticated, Session, SessionSettings, Sessions, Token};
pub use sign_in::{Attempt, Outcome, SignIn};
pub use username::{MAX_CHARS as LONGEST_LOGIN, Username, UsernameError};
