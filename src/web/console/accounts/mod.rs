//! `/admin/accounts/{id}`: shows an account and where it is signed in, and changes its state and its groups.

pub mod api;
pub mod groups;
pub mod list;

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::web::{Form, Path};
use askama::Template;
use serde_json::json;
use strum::VariantArray;

use crate::accounts::{
    Account, AccountAct, AccountChange, AccountId, Groups, GroupsError, PastSignIn, Session, Username,
};
use crate::audit::SubjectKind;
use crate::db::DbError;
use crate::web::console::confirm;
use crate::web::console::guard::{Admin, AdminRequest};
use crate::web::console::{FormProblem, subject_link};
use crate::web::form::{FormPairs, value};
use crate::web::http::{Device, Flash, Layout, Problem, Services, WebError, WebResult};

const HERE: &str = "/admin/accounts";
const A_PAGE: u32 = 50;
/// Bytes of a list of groups as it is typed: 50 of 64, with spaces.
const LONGEST_LIST: usize = 4096;

/// Changes an account and records that. Administrators do not shut themselves out.
async fn change(
    admin: &Admin,
    account: &Account,
    act: AccountAct,
    reason: &str,
) -> Result<AccountChange, DbError> {
    if act.shuts_out() && account.id == admin.account.id {
        return Ok(AccountChange::LastAdmin);
    }
    let change = admin.services.accounts.change(account.id, act, admin.token().is_some()).await?;
    if change == AccountChange::Done {
        let name = format!("account-{}", act.as_str());
        admin.did_to(account, &name, &json!({ "reason": reason }));
    }
    Ok(change)
}

/// Gives an account these groups and no others, and records that.
async fn change_groups(
    admin: &Admin,
    account: &Account,
    groups: &Groups,
    reason: &str,
) -> Result<AccountChange, DbError> {
    let accounts = &admin.services.accounts;
    let before = accounts.groups(account.id).await?;
    let change = accounts.set_groups(account.id, groups, admin.token().is_some()).await?;
    record_groups(admin, account, change, [&before, groups], reason);
    Ok(change)
}

/// Adds an account to these groups, and records that.
async fn add_to_groups(
    admin: &Admin,
    account: &Account,
    groups: &Groups,
    reason: &str,
) -> Result<AccountChange, DbError> {
    let accounts = &admin.services.accounts;
    let before = accounts.groups(account.id).await?;
    let change = accounts.add_to_groups(account.id, groups, admin.token().is_some()).await?;
    record_groups(admin, account, change, [&before, &before.with(groups)], reason);
    Ok(change)
}

fn record_groups(
    admin: &Admin,
    account: &Account,
    change: AccountChange,
    [from, to]: [&Groups; 2],
    reason: &str,
) {
    if change == AccountChange::Done {
        let detail = json!({ "reason": reason, "from": from.to_string(), "to": to.to_string() });
        admin.did_to(account, "account-groups", &detail);
    }
}

/// Also one that is deleted.
async fn by_id(services: &Services, id: &str) -> Result<Account, Problem> {
    let id = AccountId::parse(id).ok_or(Problem::NotFound)?;
    services.accounts.by_id(id).await?.ok_or(Problem::NotFound)
}

async fn found(services: &Services, id: &str) -> Result<Account, Problem> {
    let account = by_id(services, id).await?;
    if account.deleted_at.is_none() { Ok(account) } else { Err(Problem::NotFound) }
}

/// `GET /admin/accounts/{id}`
pub async fn one(request: AdminRequest, id: Path<String>) -> WebResult {
    let account = found(&request.services, &id).await?;
    Ok(request.visit.page(StatusCode::OK, &view(&request, account).await?))
}

/// `POST /admin/accounts/{id}/{act}`, with a reason and a confirmed password; to delete it, also with its name.
pub async fn act(request: AdminRequest, path: Path<(String, String)>, pairs: Form<FormPairs>) -> WebResult {
    let (id, act) = path.into_inner();
    let reason = request.reason(&pairs);
    let act = AccountAct::parse(&act).ok_or(Problem::NotFound)?;
    let account = by_id(&request.services, &id).await?;
    let done = || match act {
        AccountAct::Delete => request.visit.see_other(HERE, Some(said_of(act))),
        _ => request.visit.see_other(&format!("{HERE}/{id}"), Some(said_of(act))),
    };
    if account.deleted_at.is_some() {
        // The second of two clicks.
        return if act == AccountAct::Delete { Ok(done()) } else { Err(Problem::NotFound.into()) };
    }
    let again = async |problem: AccountProblem| -> WebResult {
        let view = view(&request, account.clone()).await?;
        let status = problem.status();
        Ok(request.visit.page(status, &AccountView { problem: Some((Some(act), problem)), ..view }))
    };
    let reason = match reason {
        Ok(reason) => reason,
        Err(problem) => return again(AccountProblem::Form(problem)).await,
    };
    let is_named = |typed: &str| Username::parse(typed.trim()).is_ok_and(|name| name == account.login);
    if act == AccountAct::Delete && !is_named(value(&pairs, "account_name")) {
        return again(AccountProblem::NameWrong).await;
    }
    let target = format!("{HERE}/{id}/{}", act.as_str());
    let act = Box::pin(async {
        match change(&request.admin, &account, act, &reason).await? {
            AccountChange::Done | AccountChange::Unchanged => Ok(done()),
            AccountChange::LastAdmin => again(AccountProblem::LastAdmin).await,
            AccountChange::NoPassword => again(AccountProblem::NoPassword).await,
            AccountChange::Gone | AccountChange::OfAdmin | AccountChange::TooManyGroups => {
                Err(Problem::NotFound.into())
            }
        }
    });
    confirm::confirmed(&request, &target, &pairs, act).await
}

/// What the next page says.
const fn said_of(act: AccountAct) -> Flash {
    match act {
        AccountAct::Disable => Flash::AccountDisabled,
        AccountAct::Enable => Flash::AccountEnabled,
        AccountAct::EndSessions => Flash::AccountSignedOut,
        AccountAct::RequireNewPassword => Flash::AccountMustChange,
        AccountAct::MakeAdmin => Flash::AccountMadeAdmin,
        AccountAct::UnmakeAdmin => Flash::AccountUnmadeAdmin,
        AccountAct::Delete => Flash::AccountDeleted,
    }
}

/// `POST /admin/accounts/{id}/groups`, with a reason and a confirmed password.
pub async fn set_groups(request: AdminRequest, id: Path<String>, pairs: Form<FormPairs>) -> WebResult {
    let reason = request.reason(&pairs);
    let account = found(&request.services, &id).await?;
    let typed = value(&pairs, "groups");
    let again = async |problem: AccountProblem| -> WebResult {
        let view = view(&request, account.clone()).await?;
        let status = problem.status();
        let view = AccountView { groups: typed.to_owned(), problem: Some((None, problem)), ..view };
        Ok(request.visit.page(status, &view))
    };
    let groups = match reason {
        Err(FormProblem::Expired) => return again(AccountProblem::Form(FormProblem::Expired)).await,
        _ if typed.len() > LONGEST_LIST => return again(AccountProblem::TooManyGroups).await,
        _ => Groups::parse(typed.split([' ', ',']).map(str::trim).filter(|name| !name.is_empty())),
    };
    let (groups, reason) = match (groups, reason) {
        (Ok(groups), Ok(reason)) => (groups, reason),
        (Err(GroupsError::Name(name)), _) => return again(AccountProblem::GroupName(name)).await,
        (Err(GroupsError::TooMany), _) => return again(AccountProblem::TooManyGroups).await,
        (Ok(_), Err(problem)) => return again(AccountProblem::Form(problem)).await,
    };
    let target = format!("{HERE}/{id}/groups");
    let act = Box::pin(async {
        match change_groups(&request.admin, &account, &groups, &reason).await? {
            AccountChange::Done | AccountChange::Unchanged => {
                Ok(request.visit.see_other(&format!("{HERE}/{id}#groups-of"), Some(Flash::AccountGroupsSet)))
            }
            _ => Err(Problem::NotFound.into()),
        }
    });
    confirm::confirmed(&request, &target, &pairs, act).await
}

async fn view(request: &AdminRequest, account: Account) -> Result<AccountView, WebError> {
    let AdminRequest { services, admin, .. } = request;
    let groups = services.accounts.groups(account.id).await?;
    let key = services.audit.subject(&account.recorded());
    Ok(AccountView {
        layout: request.layout(format!("{HERE}/{}", account.id)),
        sessions: services.sessions.list(account.id).await?,
        sign_ins: services.accounts.last_sign_ins(account.id).await?,
        own: account.id == admin.account.id,
        events: subject_link::events_of(SubjectKind::Account, key, None),
        problem: None,
        groups: groups.names().collect::<Vec<_>>().join(" "),
        names: groups.names().map(str::to_owned).collect(),
        account,
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AccountProblem {
    Form(FormProblem),
    /// The name that was typed before it is deleted.
    NameWrong,
    GroupName(String),
    TooManyGroups,
    LastAdmin,
    NoPassword,
}

impl AccountProblem {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Form(problem) => problem.status(),
            Self::NameWrong | Self::GroupName(_) | Self::TooManyGroups => StatusCode::UNPROCESSABLE_ENTITY,
            Self::LastAdmin | Self::NoPassword => StatusCode::CONFLICT,
        }
    }

    fn text(&self, layout: &Layout) -> Cow<'static, str> {
        match self {
            Self::Form(FormProblem::ReasonMissing) => layout.t("draft.reason-missing"),
            Self::Form(_) => layout.t("notice.expired-text"),
            Self::NameWrong => layout.t("accounts.delete-name-wrong"),
            Self::GroupName(name) => layout.with("accounts.group-wrong", name),
            Self::TooManyGroups => layout.t("accounts.groups-too-many"),
            Self::LastAdmin => layout.t("accounts.last-admin"),
            Self::NoPassword => layout.t("accounts.needs-password"),
        }
    }
}

#[derive(Template)]
#[template(path = "pages/admin/one_account.html")]
struct AccountView {
    layout: Layout,
    account: Account,
    sessions: Vec<Session>,
    sign_ins: Vec<PastSignIn>,
    own: bool,
    events: String,
    /// Why a change was not made: an act, or, without one, that of its groups.
    problem: Option<(Option<AccountAct>, AccountProblem)>,
    /// As they are, or as they were typed.
    groups: String,
    /// As they are.
    names: Vec<String>,
}

impl AccountView {
    fn acts(&self) -> Vec<AccountAct> {
        let Account { roles, disabled_at, must_change_password, password_hash, .. } = &self.account;
        let has_password = password_hash.is_some();
        let fits = |act: &AccountAct| match act {
            AccountAct::Disable => disabled_at.is_none() && !self.own,
            AccountAct::Enable => disabled_at.is_some(),
            AccountAct::EndSessions => true,
            AccountAct::RequireNewPassword => has_password && !must_change_password,
            AccountAct::MakeAdmin => !roles.admin && has_password && disabled_at.is_none(),
            AccountAct::UnmakeAdmin => roles.admin,
            AccountAct::Delete => !self.own,
        };
        AccountAct::VARIANTS.iter().copied().filter(fits).collect()
    }

    /// What the button of an act says, or, with `-about`, what it does.
    fn word(&self, act: &AccountAct, part: &str) -> Cow<'static, str> {
        self.layout.locale.named_word("accounts", &format!("{}{part}", act.into_str()))
    }

    /// Whether the page is shown again for an act, or for the groups.
    const fn is_about_act(&self) -> bool {
        matches!(self.problem, Some((Some(_), _)))
    }

    const fn is_about_groups(&self) -> bool {
        matches!(self.problem, Some((None, _)))
    }

    fn groups_wrong(&self) -> Option<Cow<'static, str>> {
        let (_, problem) = self.problem.as_ref().filter(|(act, _)| act.is_none())?;
        Some(problem.text(&self.layout))
    }

    /// Which of the two fields of its groups is wrong.
    const fn reason_is_missing(&self) -> bool {
        matches!(self.problem, Some((None, AccountProblem::Form(FormProblem::ReasonMissing))))
    }

    /// Whether the name of the account has to be typed, because nothing brings it back.
    fn asks_for_name(&self, act: &AccountAct) -> bool {
        *act == AccountAct::Delete
    }

    const fn name_is_wrong(&self) -> bool {
        matches!(self.problem, Some((_, AccountProblem::NameWrong)))
    }

    fn wrong(&self, act: &AccountAct) -> Option<Cow<'static, str>> {
        let (_, problem) = self.problem.as_ref().filter(|(asked, _)| asked.as_ref() == Some(act))?;
        Some(problem.text(&self.layout))
    }
}
