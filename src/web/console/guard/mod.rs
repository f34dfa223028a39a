//! The one guard before everything under `/admin` and `/api/v1/admin`: who may look, who may change
//! something, and what everybody else is answered, as a page (`page`) or by the API (`api`).
//!
//! To look takes an administrator's session with a password of its holder's own choice. To change takes,
//! besides, a request that a page or a program of ours makes, and the password shown lately in that session.

pub mod api;
pub mod page;

use serde_json::{Value, json};

use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::db::DbError;
use crate::login::{AuthenticatedSession, SessionToken};
use crate::tuning::ChangeActor;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::services::Services;

/// An administrator whose request has passed the guard.
#[derive(Debug)]
pub struct Admin {
    pub who: AuthenticatedSession,
    client: ClientAddress,
}

/// Who asks, and for which path, as the URL table has it.
struct Asking<'a> {
    token: Option<&'a str>,
    client: ClientAddress,
    path: &'a str,
}

/// What a request is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Read,
    /// To show the password again. `ours`: it does not come from elsewhere.
    Confirm {
        ours: bool,
    },
    Change {
        ours: bool,
    },
}

/// Why it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// No session, or one that has ended.
    SignedOut,
    /// The password was given out once, and opens nothing but its change.
    PasswordToChange,
    NotAdmin,
    /// Another site makes it, or its form is none of ours.
    Foreign,
    /// The password was not shown lately.
    Unconfirmed,
}

#[derive(Debug)]
struct Denied {
    why: Why,
    /// Nobody where it is for that.
    who: Option<AuthenticatedSession>,
}

impl Why {
    /// As it is recorded.
    const fn as_str(self) -> &'static str {
        match self {
            Self::SignedOut => "signed-out",
            Self::PasswordToChange => "password-to-change",
            Self::NotAdmin => "not-admin",
            Self::Foreign => "foreign",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

impl Admin {
    /// How they are named on a page.
    pub fn login(&self) -> &str {
        self.who.account.login.as_str()
    }

    pub fn id(&self) -> String {
        self.who.account.id.to_string()
    }

    /// Records that a form was none of ours, where the page itself says so and keeps what was typed: the
    /// guard let it by as a reader. `path` is as the URL table has it.
    pub fn was_foreign(&self, services: &Services, path: &str) {
        let detail = json!({ "path": path, "why": Why::Foreign.as_str() });
        record(services, "access", Outcome::Refused, Some(&self.who), self.client, &detail);
    }

    /// Records what they did: `act` is its name, `detail` what else there is to say of it.
    pub fn did(&self, services: &Services, act: &str, detail: &Value) {
        record(services, act, Outcome::Ok, Some(&self.who), self.client, detail);
    }

    /// Records what they would have done, had it been possible.
    pub fn failed(&self, services: &Services, act: &str, detail: &Value) {
        record(services, act, Outcome::Refused, Some(&self.who), self.client, detail);
    }

    /// As the history of the limits names them.
    pub fn by<'a>(&'a self, id: &'a str) -> ChangeActor<'a> {
        ChangeActor { account: id, login: self.login() }
    }
}

/// Judges a request, and records where it is refused.
async fn judge(
    services: &Services,
    asking: Asking<'_>,
    wanted: Wanted,
) -> Result<Result<Admin, Denied>, DbError> {
    let Asking { token, client, path } = asking;
    let who = match token.and_then(SessionToken::parse) {
        Some(token) => services.sessions.find(&token).await?,
        None => None,
    };
    let why = match &who {
        None => Some(Why::SignedOut),
        Some(who) => denied(services, who, wanted, path),
    };
    match (why, who) {
        (None, Some(who)) => Ok(Ok(Admin { who, client })),
        (why, who) => {
            let why = why.unwrap_or(Why::SignedOut);
            let detail = json!({ "path": path, "why": why.as_str() });
            record(services, "access", Outcome::Refused, who.as_ref(), client, &detail);
            Ok(Err(Denied { why, who }))
        }
    }
}

/// In the order that tells somebody without the right the least.
fn denied(services: &Services, who: &AuthenticatedSession, wanted: Wanted, path: &str) -> Option<Why> {
    // A call of another site is refused for that, whoever's browser makes it.
    let foreign = matches!(wanted, Wanted::Confirm { ours: false } | Wanted::Change { ours: false });
    if foreign && path.starts_with("/api/") {
        return Some(Why::Foreign);
    }
    if who.account.must_change_password {
        return Some(Why::PasswordToChange);
    }
    if !who.account.roles.admin {
        return Some(Why::NotAdmin);
    }
    match wanted {
        Wanted::Read | Wanted::Confirm { ours: true } => None,
        Wanted::Confirm { ours: false } | Wanted::Change { ours: false } => Some(Why::Foreign),
        Wanted::Change { ours: true } => {
            (!services.sessions.is_confirmed(&who.session)).then_some(Why::Unconfirmed)
        }
    }
}

fn record(
    services: &Services,
    act: &str,
    outcome: Outcome,
    who: Option<&AuthenticatedSession>,
    client: ClientAddress,
    detail: &Value,
) {
    let account = who.map(|who| &who.account);
    let actor = account.map(|account| account.id.to_string());
    let address = client.subject();
    let who = ConsoleActor {
        actor: actor.as_deref(),
        account: account.map(|account| EventSubject::Account {
            id: account.id.as_bytes(),
            login: account.login.as_str(),
        }),
        address: Some(EventSubject::Address(address.as_ref())),
    };
    services.audit.act(act, outcome, who, Some(detail.to_string()));
}
