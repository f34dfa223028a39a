//! Who people are: user names, passwords and their hashes, accounts, and where they are signed in.

mod accounts;
mod client;
mod hasher;
mod id;
mod password;
mod phc;
mod sessions;
mod username;

pub use accounts::{Account, Accounts, CreateError, Roles, SignIn};
pub use client::Client;
pub use hasher::{HashError, HashSettings, Hasher, Verified};
pub use id::{AccountId, SessionId};
pub use password::{Password, PasswordError};
pub use phc::Phc;
pub use sessions::{Authenticated, Session, SessionSettings, Sessions, Token};
pub use username::{Username, UsernameError};
