//! The one guard before everything under `/admin` and `/api/v1/admin`: who may look, who may change
//! something, and what everybody else is answered, as a page (`page`) or by the API (`api`).
//!
//! To look takes an administrator's session with a password of its holder's own choice. To change takes,
//! besides, a request that a page or a program of ours makes, and the password shown lately in that session.

pub mod api;
pub mod page;

use crate::db::DbError;
use crate::login::{Authenticated, Token};
use crate::web::services::Services;

/// An administrator whose request has passed the guard.
#[derive(Debug)]
pub struct Admin {
    pub who: Authenticated,
}

/// What a request is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Read,
    Change {
        /// It does not come from elsewhere.
        ours: bool,
    },
}

/// Why it may not, in the order that is looked at.
#[derive(Debug)]
enum Denied {
    /// No session, or one that has ended.
    SignedOut,
    /// The password was given out once, and opens nothing but its change.
    PasswordToChange,
    NotAdmin(Box<Authenticated>),
    /// Another site makes it, or its form is none of ours.
    Foreign,
    /// The password was not shown lately.
    Unconfirmed,
}

impl Admin {
    /// How they are named on a page.
    pub fn login(&self) -> &str {
        self.who.account.login.as_str()
    }

    /// As what they do is recorded.
    pub fn id(&self) -> String {
        self.who.account.id.to_string()
    }
}

async fn judge(
    services: &Services,
    token: Option<&str>,
    wanted: Wanted,
) -> Result<Result<Admin, Denied>, DbError> {
    let found = match token.and_then(Token::parse) {
        Some(token) => services.sessions.find(&token).await?,
        None => None,
    };
    let Some(who) = found else { return Ok(Err(Denied::SignedOut)) };
    if who.account.must_change_password {
        return Ok(Err(Denied::PasswordToChange));
    }
    if !who.account.roles.admin {
        return Ok(Err(Denied::NotAdmin(Box::new(who))));
    }
    Ok(match wanted {
        Wanted::Change { ours: false } => Err(Denied::Foreign),
        Wanted::Change { ours: true } if !services.sessions.is_confirmed(&who.session) => {
            Err(Denied::Unconfirmed)
        }
        Wanted::Read | Wanted::Change { ours: true } => Ok(Admin { who }),
    })
}
