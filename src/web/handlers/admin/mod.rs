//! The handlers of the console: parse, call, match.

pub mod edit;
pub mod events;
mod figures;
pub mod history;
pub mod limits;
pub mod overview;
pub mod password;

use crate::audit::{Outcome, Subject, Who};
use crate::web::admin::Admin;
use crate::web::services::Services;
use crate::web::visit::Visit;

/// Records what an administrator did, or was not allowed to.
fn record(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    act: &str,
    outcome: Outcome,
    detail: serde_json::Value,
) {
    let (account, address) = (&admin.who.account, visit.client.subject());
    let (id, actor) = (account.id.bytes(), admin.id());
    let who = Who {
        actor: Some(&actor),
        account: Some(Subject::Account { id: &id, login: account.login.as_str() }),
        address: Some(Subject::Address(address.as_ref())),
    };
    services.audit.act(act, outcome, who, Some(detail.to_string()));
}
