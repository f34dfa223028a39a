//! `/admin/accounts`: the list, one account, and what is done to it.

use actix_web::HttpResponse;
use actix_web::web::{Form, Path, Query};
use serde::Deserialize;

use crate::login::{
    Account, AccountAct, AccountChange, AccountCursor, AccountFilter, AccountId, AccountPage, Groups,
    GroupsError, Username,
};
use crate::sms::Phone;
use crate::web::console::LONGEST_REASON;
use crate::web::console::accounts::view::{
    AccountAnswer, AccountView, AccountsView, FindProblem, GroupsAnswer,
};
use crate::web::console::accounts::{self, A_PAGE, change};
use crate::web::console::confirm::carried::{self, FormPairs};
use crate::web::console::guard::Admin;
use crate::web::kit::flash::Flash;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::{WebError, WebResult};

const HERE: &str = "/admin/accounts";
/// Bytes of a list of groups as it is typed: 50 of 64, with spaces.
const LONGEST_LIST: usize = 4096;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AccountsPageQuery {
    after: String,
}

/// `GET /admin/accounts`
pub async fn show(
    visit: Visit,
    admin: Admin,
    wanted: Query<AccountsPageQuery>,
    services: Shared,
) -> WebResult {
    let after = AccountCursor::of_account(&wanted.after);
    let found = services.accounts.page(&AccountFilter::default(), after, A_PAGE).await?;
    Ok(AccountsView::new(&visit, admin.login(), found).respond(&visit))
}

/// `POST /admin/accounts`: finds accounts. What somebody typed does not appear in a URL.
pub async fn find(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let asked: String = carried::value(&pairs, "asked").trim().chars().take(255).collect();
    let answer = |found, problem: Option<FindProblem>| {
        let view = AccountsView::new(&visit, admin.login(), found).asked(asked.clone());
        problem.into_iter().fold(view, AccountsView::problem).respond(&visit)
    };
    if !visit.admits_form(carried::value(&pairs, "csrf_token")) {
        admin.was_foreign(&services, visit.pattern());
        return Ok(answer(AccountPage::empty(), Some(FindProblem::Expired)));
    }
    let found = services.accounts.page(&filter(&asked, &services), None, A_PAGE).await?;
    let problem = found.entries.is_empty().then_some(FindProblem::Nothing);
    Ok(answer(found, problem))
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
pub async fn one(visit: Visit, admin: Admin, id: Path<String>, services: Shared) -> WebResult {
    let account = found(&services, &id).await?;
    Ok(view(&visit, &services, &admin, account).await?.respond(&visit))
}

/// `POST /admin/accounts/{id}/{act}`, with a reason and a confirmed password; to delete it, also with its name.
pub async fn act(
    visit: Visit,
    admin: Admin,
    path: Path<(String, String)>,
    pairs: Form<FormPairs>,
    services: Shared,
) -> WebResult {
    let (id, act) = path.into_inner();
    let ours = visit.admits_form(carried::value(&pairs, "csrf_token"));
    if !ours {
        admin.was_foreign(&services, visit.pattern());
    }
    let Some(act) = AccountAct::parse(&act) else { return Err(Problem::NotFound.into()) };
    let account = by_id(&services, &id).await?;
    if act == AccountAct::Delete && account.deleted_at.is_some() {
        // The second of two clicks.
        return Ok(done(&visit, &id, act));
    }
    let account = not_deleted(account)?;
    let reason: String = carried::value(&pairs, "reason").trim().chars().take(LONGEST_REASON).collect();
    let again = async |answer| -> WebResult {
        let view = view(&visit, &services, &admin, account.clone()).await?;
        Ok(view.answer(act, answer).respond(&visit))
    };
    if !ours {
        return again(AccountAnswer::Expired).await;
    }
    if reason.is_empty() {
        return again(AccountAnswer::ReasonMissing).await;
    }
    let is_named = |typed: &str| Username::parse(typed.trim()).is_ok_and(|name| name == account.login);
    if act == AccountAct::Delete && !is_named(carried::value(&pairs, "account_name")) {
        return again(AccountAnswer::NameWrong).await;
    }
    let target = format!("{HERE}/{id}/{}", act.as_str());
    let confirmed = carried::require(&visit, &services, &admin, &target, &pairs).await?;
    let answer = match change(&services, &admin, &account, act, &reason).await {
        Ok(AccountChange::Done | AccountChange::Unchanged) => Ok(done(&visit, &id, act)),
        Ok(AccountChange::LastAdmin) => again(AccountAnswer::LastAdmin).await,
        Ok(AccountChange::NoPassword) => again(AccountAnswer::NoPassword).await,
        Ok(AccountChange::Gone | AccountChange::OfAdmin) => Err(Problem::NotFound.into()),
        Err(error) => Err(WebError::from(error)),
    };
    confirmed.finish(&visit, services.session_lasts, answer)
}

/// `POST /admin/accounts/{id}/groups`, with a reason and a confirmed password.
pub async fn set_groups(
    visit: Visit,
    admin: Admin,
    id: Path<String>,
    pairs: Form<FormPairs>,
    services: Shared,
) -> WebResult {
    let ours = visit.admits_form(carried::value(&pairs, "csrf_token"));
    if !ours {
        admin.was_foreign(&services, visit.pattern());
    }
    let account = found(&services, &id).await?;
    let reason: String = carried::value(&pairs, "reason").trim().chars().take(LONGEST_REASON).collect();
    let typed = carried::value(&pairs, "groups").to_owned();
    let again = async |answer| -> WebResult {
        let view = view(&visit, &services, &admin, account.clone()).await?;
        Ok(view.groups_answer(typed.clone(), answer).respond(&visit))
    };
    if !ours {
        return again(GroupsAnswer::Expired).await;
    }
    if typed.len() > LONGEST_LIST {
        return again(GroupsAnswer::TooMany).await;
    }
    let groups = match Groups::parse(typed.split([' ', ',']).map(str::trim).filter(|name| !name.is_empty())) {
        Ok(groups) => groups,
        Err(GroupsError::Name(name)) => return again(GroupsAnswer::Name(name)).await,
        Err(GroupsError::TooMany) => return again(GroupsAnswer::TooMany).await,
    };
    if reason.is_empty() {
        return again(GroupsAnswer::ReasonMissing).await;
    }
    let target = format!("{HERE}/{id}/groups");
    let confirmed = carried::require(&visit, &services, &admin, &target, &pairs).await?;
    let answer = match accounts::set_groups(&services, &admin, &account, &groups, &reason).await {
        Ok(AccountChange::Done | AccountChange::Unchanged) => {
            Ok(visit.see_other(&format!("{HERE}/{id}"), Some(Flash::AccountChanged)))
        }
        Ok(_) => Err(Problem::NotFound.into()),
        Err(error) => Err(WebError::from(error)),
    };
    confirmed.finish(&visit, services.session_lasts, answer)
}

fn done(visit: &Visit, id: &str, act: AccountAct) -> HttpResponse {
    match act {
        AccountAct::Delete => visit.see_other(HERE, Some(Flash::AccountDeleted)),
        _ => visit.see_other(&format!("{HERE}/{id}"), Some(Flash::AccountChanged)),
    }
}

async fn found(services: &Services, id: &str) -> Result<Account, WebError> {
    Ok(not_deleted(by_id(services, id).await?)?)
}

async fn by_id(services: &Services, id: &str) -> Result<Account, WebError> {
    let id = AccountId::parse(id).ok_or(Problem::NotFound)?;
    Ok(services.accounts.by_id(id).await?.ok_or(Problem::NotFound)?)
}

fn not_deleted(account: Account) -> Result<Account, Problem> {
    if account.deleted_at.is_none() { Ok(account) } else { Err(Problem::NotFound) }
}

async fn view(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    account: Account,
) -> Result<AccountView, WebError> {
    let sessions = services.sessions.list(account.id).await?;
    let sign_ins = services.accounts.last_sign_ins(account.id).await?;
    let groups = services.accounts.groups(account.id).await?;
    let key = services.audit.subject(&account.recorded());
    let own = account.id == admin.who.account.id;
    let view = AccountView::new(visit, admin.login(), account, sessions, sign_ins);
    Ok(view.own(own).recorded_as(key).in_groups(&groups))
}
