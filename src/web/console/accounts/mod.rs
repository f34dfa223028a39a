//! `/admin/accounts`: finds an account, shows where it is signed in, and changes its state.

pub mod call;
pub mod page;
pub mod view;

use serde_json::json;

use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::db::DbError;
use crate::login::{Account, AccountAct, AccountChange};
use crate::web::console::guard::Admin;
use crate::web::kit::services::Services;

const A_PAGE: u32 = 50;
/// Characters of a reason.
const LONGEST_REASON: usize = 500;

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
        let (actor, address) = (admin.id(), admin.subject());
        let who = ConsoleActor {
            actor: Some(&actor),
            account: Some(account.recorded()),
            address: Some(EventSubject::Address(address.as_ref())),
        };
        let mut detail = json!({ "reason": reason });
        if let Some(token) = admin.token() {
            detail["token"] = token.into();
        }
        services.audit.act(event_name(act), Outcome::Ok, who, Some(detail.to_string()));
    }
    Ok(change)
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
