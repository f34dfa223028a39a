//! `/admin/accounts`: finds an account, shows where it is signed in, and changes its state.

pub mod api;

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::web::{Form, Path, Query};
use askama::Template;
use serde::Deserialize;
use serde_json::json;
use strum::VariantArray;

use crate::accounts::{
    Account, AccountAct, AccountChange, AccountCursor, AccountFilter, AccountId, AccountPage, Groups,
    GroupsError, Username,
};
use crate::audit::SubjectKind;
use crate::clock::Micros;
use crate::db::DbError;
use crate::sms::Phone;
use crate::web::console::confirm::{self, FormPairs, value};
use crate::web::console::guard::Admin;
use crate::web::console::subject_link;
use crate::web::http::{
    Device, Flash, Layout, Moment, PageRequest, Problem, Services, ServicesData, WebError, WebResult,
};

const HERE: &str = "/admin/accounts";
const A_PAGE: u32 = 50;
/// Bytes of a list of groups as it is typed: 50 of 64, with spaces.
const LONGEST_LIST: usize = 4096;

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
        let name = format!("account-{}", act.as_str());
        admin.did_to(services, account, &name, &json!({ "reason": reason }));
    }
    Ok(change)
}

/// Gives an account these groups and no others, and records that.
async fn change_groups(
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
        admin.did_to(services, account, "account-groups", &detail);
    }
    Ok(change)
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AccountsPageQuery {
    after: String,
}

/// `GET /admin/accounts`
pub async fn show(
    visit: PageRequest,
    admin: Admin,
    wanted: Query<AccountsPageQuery>,
    services: ServicesData,
) -> WebResult {
    let after = AccountCursor::of_account(&wanted.after);
    let found = services.accounts.page(&AccountFilter::default(), after, A_PAGE).await?;
    let next = found.next.map(|cursor| format!("{HERE}?after={cursor}"));
    let layout = visit.layout(HERE, Some(admin.login()));
    let page = AccountsView { layout, rows: found.entries, next, asked: String::new(), problem: None };
    Ok(visit.page(StatusCode::OK, &page))
}

/// `POST /admin/accounts`: finds accounts. What somebody typed does not appear in a URL, so there is no next page.
pub async fn find(
    visit: PageRequest,
    admin: Admin,
    pairs: Form<FormPairs>,
    services: ServicesData,
) -> WebResult {
    let asked: String = value(&pairs, "asked").trim().chars().take(255).collect();
    let (status, found, problem) = if admin.sends_own_form(&visit, &services, &pairs) {
        let found = services.accounts.page(&filter(&asked, &services), None, A_PAGE).await?;
        let problem = found.entries.is_empty().then_some(FindProblem::Nothing);
        (StatusCode::OK, found, problem)
    } else {
        (StatusCode::FORBIDDEN, AccountPage::empty(), Some(FindProblem::Expired))
    };
    let layout = visit.layout(HERE, Some(admin.login()));
    Ok(visit.page(status, &AccountsView { layout, rows: found.entries, next: None, asked, problem }))
}

/// A number that is written as one, or the first letters of a name.
fn filter(asked: &str, services: &Services) -> AccountFilter {
    let region = &services.live.snapshot().sms.default_region;
    match Phone::parse(asked, region) {
        Ok(phone) => AccountFilter { phone: Some(phone), ..AccountFilter::default() },
        Err(_) => AccountFilter { login: Some(asked.to_lowercase()), ..AccountFilter::default() },
    }
}

/// `GET /admin/accounts/{id}`
pub async fn one(visit: PageRequest, admin: Admin, id: Path<String>, services: ServicesData) -> WebResult {
    let account = found(&services, &id).await?;
    Ok(visit.page(StatusCode::OK, &view(&visit, &services, &admin, account).await?))
}

/// `POST /admin/accounts/{id}/{act}`, with a reason and a confirmed password; to delete it, also with its name.
pub async fn act(
    visit: PageRequest,
    admin: Admin,
    path: Path<(String, String)>,
    pairs: Form<FormPairs>,
    services: ServicesData,
) -> WebResult {
    let (id, act) = path.into_inner();
    let ours = admin.sends_own_form(&visit, &services, &pairs);
    let act = AccountAct::parse(&act).ok_or(Problem::NotFound)?;
    let account = by_id(&services, &id).await?;
    let done = || match act {
        AccountAct::Delete => visit.see_other(HERE, Some(Flash::AccountDeleted)),
        _ => visit.see_other(&format!("{HERE}/{id}"), Some(Flash::AccountChanged)),
    };
    if account.deleted_at.is_some() {
        // The second of two clicks.
        return if act == AccountAct::Delete { Ok(done()) } else { Err(Problem::NotFound.into()) };
    }
    let again = async |problem: AccountProblem| -> WebResult {
        let view = view(&visit, &services, &admin, account.clone()).await?;
        Ok(visit.page(problem.status(), &AccountView { problem: Some((Some(act), problem)), ..view }))
    };
    if !ours {
        return again(AccountProblem::Expired).await;
    }
    let reason = confirm::reason(&pairs);
    if reason.is_empty() {
        return again(AccountProblem::ReasonMissing).await;
    }
    let is_named = |typed: &str| Username::parse(typed.trim()).is_ok_and(|name| name == account.login);
    if act == AccountAct::Delete && !is_named(value(&pairs, "account_name")) {
        return again(AccountProblem::NameWrong).await;
    }
    let target = format!("{HERE}/{id}/{}", act.as_str());
    let act = Box::pin(async {
        match change(&services, &admin, &account, act, &reason).await? {
            AccountChange::Done | AccountChange::Unchanged => Ok(done()),
            AccountChange::LastAdmin => again(AccountProblem::LastAdmin).await,
            AccountChange::NoPassword => again(AccountProblem::NoPassword).await,
            AccountChange::Gone | AccountChange::OfAdmin => Err(Problem::NotFound.into()),
        }
    });
    confirm::confirmed(&visit, &services, &admin, &target, &pairs, act).await
}

/// `POST /admin/accounts/{id}/groups`, with a reason and a confirmed password.
pub async fn set_groups(
    visit: PageRequest,
    admin: Admin,
    id: Path<String>,
    pairs: Form<FormPairs>,
    services: ServicesData,
) -> WebResult {
    let ours = admin.sends_own_form(&visit, &services, &pairs);
    let account = found(&services, &id).await?;
    let typed = value(&pairs, "groups");
    let again = async |problem: AccountProblem| -> WebResult {
        let view = view(&visit, &services, &admin, account.clone()).await?;
        let status = problem.status();
        let view = AccountView { groups: typed.to_owned(), problem: Some((None, problem)), ..view };
        Ok(visit.page(status, &view))
    };
    if !ours {
        return again(AccountProblem::Expired).await;
    }
    if typed.len() > LONGEST_LIST {
        return again(AccountProblem::TooManyGroups).await;
    }
    let groups = match Groups::parse(typed.split([' ', ',']).map(str::trim).filter(|name| !name.is_empty())) {
        Ok(groups) => groups,
        Err(GroupsError::Name(name)) => return again(AccountProblem::GroupName(name)).await,
        Err(GroupsError::TooMany) => return again(AccountProblem::TooManyGroups).await,
    };
    let reason = confirm::reason(&pairs);
    if reason.is_empty() {
        return again(AccountProblem::ReasonMissing).await;
    }
    let target = format!("{HERE}/{id}/groups");
    let act = Box::pin(async {
        match change_groups(&services, &admin, &account, &groups, &reason).await? {
            AccountChange::Done | AccountChange::Unchanged => {
                Ok(visit.see_other(&format!("{HERE}/{id}"), Some(Flash::AccountChanged)))
            }
            _ => Err(Problem::NotFound.into()),
        }
    });
    confirm::confirmed(&visit, &services, &admin, &target, &pairs, act).await
}

async fn view(
    visit: &PageRequest,
    services: &Services,
    admin: &Admin,
    account: Account,
) -> Result<AccountView, WebError> {
    let line = |agent: &str, network: String, seen: Micros| SessionLine {
        device: Device::parse(agent),
        network,
        seen: Moment(seen),
    };
    let sessions = services.sessions.list(account.id).await?.into_iter();
    let sign_ins = services.accounts.last_sign_ins(account.id).await?.into_iter();
    let groups = services.accounts.groups(account.id).await?;
    let key = services.audit.subject(&account.recorded());
    Ok(AccountView {
        layout: visit.layout(format!("{HERE}/{}", account.id), Some(admin.login())),
        sessions: sessions.map(|it| line(&it.user_agent, it.network, it.last_seen)).collect(),
        sign_ins: sign_ins.map(|it| line(&it.user_agent, it.network, it.at)).collect(),
        own: account.id == admin.who.account.id,
        events: subject_link::events_of(SubjectKind::Account, key, None),
        problem: None,
        groups: groups.names().collect::<Vec<_>>().join(" "),
        account,
    })
}

/// Why nothing is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FindProblem {
    Nothing,
    Expired,
}

#[derive(Template)]
#[template(path = "pages/admin/accounts.html")]
struct AccountsView {
    layout: Layout,
    rows: Vec<Account>,
    next: Option<String>,
    asked: String,
    problem: Option<FindProblem>,
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AccountProblem {
    ReasonMissing,
    /// The name that was typed before it is deleted.
    NameWrong,
    GroupName(String),
    TooManyGroups,
    LastAdmin,
    NoPassword,
    Expired,
}

impl AccountProblem {
    const fn status(&self) -> StatusCode {
        match self {
            Self::ReasonMissing | Self::NameWrong | Self::GroupName(_) | Self::TooManyGroups => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::LastAdmin | Self::NoPassword => StatusCode::CONFLICT,
            Self::Expired => StatusCode::FORBIDDEN,
        }
    }

    fn text(&self, layout: &Layout) -> Cow<'static, str> {
        match self {
            Self::ReasonMissing => layout.t("draft.reason-missing"),
            Self::NameWrong => layout.t("accounts.delete-name-wrong"),
            Self::GroupName(name) => layout.with("accounts.group-wrong", name),
            Self::TooManyGroups => layout.t("accounts.groups-too-many"),
            Self::LastAdmin => layout.t("accounts.last-admin"),
            Self::NoPassword => layout.t("accounts.needs-password"),
            Self::Expired => layout.t("notice.expired-text"),
        }
    }
}

struct SessionLine {
    device: Device,
    network: String,
    seen: Moment,
}

#[derive(Template)]
#[template(path = "pages/admin/one_account.html")]
struct AccountView {
    layout: Layout,
    account: Account,
    sessions: Vec<SessionLine>,
    sign_ins: Vec<SessionLine>,
    /// The one who looks at it.
    own: bool,
    /// The link to its events.
    events: String,
    /// Why a change was not made: an act, or, without one, that of its groups.
    problem: Option<(Option<AccountAct>, AccountProblem)>,
    /// As they are, or as they were typed.
    groups: String,
}

impl AccountView {
    /// What can be done to it now.
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

    /// The locale keys of an act: its button, and what it does.
    const fn words(&self, act: &AccountAct) -> (&'static str, &'static str) {
        match act {
            AccountAct::Disable => ("accounts.disable", "accounts.disable-about"),
            AccountAct::Enable => ("accounts.enable", "accounts.enable-about"),
            AccountAct::EndSessions => ("accounts.end-sessions", "accounts.end-sessions-about"),
            AccountAct::RequireNewPassword => ("accounts.new-password", "accounts.new-password-about"),
            AccountAct::MakeAdmin => ("accounts.make-admin", "accounts.make-admin-about"),
            AccountAct::UnmakeAdmin => ("accounts.unmake-admin", "accounts.unmake-admin-about"),
            AccountAct::Delete => ("accounts.delete", "accounts.delete-about"),
        }
    }

    fn groups_wrong(&self) -> Option<Cow<'static, str>> {
        let (_, problem) = self.problem.as_ref().filter(|(act, _)| act.is_none())?;
        Some(problem.text(&self.layout))
    }

    /// Which of the two fields of its groups is wrong.
    const fn reason_is_missing(&self) -> bool {
        matches!(self.problem, Some((None, AccountProblem::ReasonMissing)))
    }

    /// Whether the name of the account has to be typed, because nothing brings it back.
    fn asks_for_name(&self, act: &AccountAct) -> bool {
        *act == AccountAct::Delete
    }

    const fn name_is_wrong(&self) -> bool {
        matches!(self.problem, Some((_, AccountProblem::NameWrong)))
    }

    /// What went wrong with this act.
    fn wrong(&self, act: &AccountAct) -> Option<Cow<'static, str>> {
        let (_, problem) = self.problem.as_ref().filter(|(asked, _)| asked.as_ref() == Some(act))?;
        Some(problem.text(&self.layout))
    }
}
