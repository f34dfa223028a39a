//! `/admin/accounts`: finds an account, shows where it is signed in, and changes its state.

pub mod call;
pub mod page;
pub mod view;

use serde_json::{Value, json};

use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::db::DbError;
use crate::login::{Account, AccountAct, AccountChange, Groups};
use crate::web::console::guard::Admin;
use crate::web::kit::services::Services;

const A_PAGE: u32 = 50;

/// Changes an account and records that. Administrators do not shut themselves out.
async fn change(
    services: &Services,
    admin: &Admin,
    account: &Account,
    act: AccountAct,
    reason: &str,
) -> Result<AccountChange, DbError> {
    if act.shuts_out() && account.id == admin.who.account.id {
        return Ok(AccountChange::LastAdmin);
    }
    let change = services.accounts.change(account.id, act, admin.token().is_some()).await?;
    if change == AccountChange::Done {
        record(services, admin, account, event_name(act), json!({ "reason": reason }));
    }
    Ok(change)
}

/// Gives an account these groups and no others, and records that.
async fn set_groups(
    services: &Services,
    admin: &Admin,
    account: &Account,
    groups: &Groups,
    reason: &str,
) -> Result<AccountChange, DbError> {
    let before = services.accounts.groups(account.id).await?;
    if before == *groups {
        return Ok(AccountChange::Unchanged);
    }
    let change = services.accounts.set_groups(account.id, groups, admin.token().is_some()).await?;
    if change == AccountChange::Done {
        let detail = json!({ "reason": reason, "from": before.to_string(), "to": groups.to_string() });
        record(services, admin, account, "account-groups", detail);
    }
    Ok(change)
}

fn record(services: &Services, admin: &Admin, account: &Account, act: &str, mut detail: Value) {
    let (actor, address) = (admin.id(), admin.subject());
    let who = ConsoleActor {
        actor: Some(&actor),
        account: Some(account.recorded()),
        address: Some(EventSubject::Address(address.as_ref())),
    };
    if let Some(token) = admin.token() {
        detail["token"] = token.into();
    }
    services.audit.act(act, Outcome::Ok, who, Some(detail.to_string()));
}

/// The name in the record of events.
const fn event_name(act: AccountAct) -> &'static str {
    match act {
        AccountAct::Disable => "account-disable",
        AccountAct::Enable => "account-enable",
        AccountAct::EndSessions => "account-end-sessions",
        AccountAct::RequireNewPassword => "account-require-new-password",
        AccountAct::MakeAdmin => "account-make-admin",
        AccountAct::UnmakeAdmin => "account-unmake-admin",
        AccountAct::Delete => "account-delete",
    }
}
