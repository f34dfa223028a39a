//! `/account`: the profile, the password and the active sessions.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};
use serde::Deserialize;

use crate::audit::{EventSubject, FailureSummary};
use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::gate::may_use;
use crate::login::{
    Account, AuthenticatedSession, HashCaller, Password, PasswordChangeOutcome, SessionId, SignedInBy,
};
use crate::web::account::require_open;
use crate::web::account::view::{AccountPage, AppLink, SessionRow, SignInRow};
use crate::web::form::fields::{FormPairs, GuardedFields, NextFields, TokenForm};
use crate::web::form::notice::Notice;
use crate::web::form::once::{FormReach, once};
use crate::web::form::reply::FormReply;
use crate::web::kit::extract::{SecretField, UnreadBody};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::next::Next;
use crate::web::kit::problem::{WebError, WebResult};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{self, Flash, Visit};
use crate::web::session::{self, SignedIn, renew};

/// How far back the account page shows what failed, and from how many networks.
const FAILURES_SHOWN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const FAILED_NETWORKS: u32 = 8;

/// `POST /account/password`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    pub current_password: SecretField,
    pub new_password: SecretField,
    /// Where a reader wanted to go who first had to change a one-time password.
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

/// `POST /account/sessions/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeForm {
    pub session_id: String,
    pub csrf_token: String,
}

/// `GET /account`
pub async fn show(visit: Visit, who: SignedIn, query: Query<NextFields>, services: Shared) -> WebResult {
    let next = query.target(&visit, &visit.live(&services));
    Ok(page(&visit, &services, &who.0).await?.next(next).respond(&visit))
}

/// `GET /.well-known/change-password` (<https://www.w3.org/TR/change-password-url/>), for password managers.
pub async fn change_here(visit: Visit) -> HttpResponse {
    visit.keep_flash().see_other("/account#password", None)
}

/// `POST /account/password`. The same limits count the current password as at sign-in.
pub async fn change_password(visit: Visit, body: UnreadBody<FormPairs>, services: Shared) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, set_password).await
}

/// The session is looked up last: the same form before this one may have ended it.
async fn set_password(visit: Visit, form: PasswordForm, services: Shared) -> WebResult {
    let who = session::require(&visit, &services, "/account").await?;
    require_open(&visit, &services, &who).await?;
    let live = visit.live(&services);
    let page = page(&visit, &services, &who).await?.next(form.to.target(&visit, &live));
    let show = |notice, captcha| page.clone().notice(notice).captcha(captcha).respond(&visit);
    let challenge = CaptchaForm::PasswordChange;
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: challenge, show: &show };
    let (current, solved) = reply.admit(&form.guarded, |errors| parse(&form, errors)).await?;
    let owner = reply.verify(&who.account, current, Field::CurrentPassword, solved).await?;
    let caller = HashCaller::stranger(visit.client.network().as_ref(), solved);
    let new = form.new_password.expose();
    match services.registration.change_password(&caller, &owner, new).await? {
        PasswordChangeOutcome::Done(account) => {
            signed_in_anew(&visit, &services, &account, form.to.target(&visit, &live)).await
        }
        PasswordChangeOutcome::Stale => {
            Ok(reply.invalid(Field::CurrentPassword, Message::CurrentPasswordWrong))
        }
        PasswordChangeOutcome::Unfit(unfit) => Ok(reply.invalid(Field::NewPassword, Message::from(unfit))),
        PasswordChangeOutcome::Denied(denied) => Ok(reply.denied(&denied).await),
    }
}

/// Changing the password ends every session. This browser gets a new one.
async fn signed_in_anew(
    visit: &Visit,
    services: &Services,
    account: &Account,
    next: Option<Next>,
) -> WebResult {
    let Some(token) = renew(services, account, &visit.sign_in_client(), None, SignedInBy::Password).await?
    else {
        return Ok(visit.see_other("/login", Some(Flash::PasswordChanged)));
    };
    let next = next.unwrap_or_else(Next::home);
    let mut response = visit.see_other(next.as_str(), Some(Flash::PasswordChanged));
    visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
    visit.remember_device(&mut response, account);
    Ok(response)
}

fn parse(form: &PasswordForm, errors: &mut FieldErrors) -> Option<Password> {
    let current = Password::attempt(form.current_password.expose()).map_err(Message::of_current_password);
    let current = errors.take(Field::CurrentPassword, current);
    if form.new_password.expose().is_empty() {
        errors.add(Field::NewPassword, Message::PasswordMissing);
    } else if form.new_password.expose() == form.current_password.expose() {
        errors.add(Field::NewPassword, Message::PasswordUnchanged);
    }
    current
}

/// `POST /account/sessions/revoke`
pub async fn revoke(
    visit: Visit,
    SignedIn(who): SignedIn,
    form: Form<RevokeForm>,
    services: Shared,
) -> WebResult {
    admit(&visit, &services, &who, &form.csrf_token).await?;
    // If the session has already ended, there is nothing to revoke.
    if let Some(id) = SessionId::parse(&form.session_id) {
        services.sessions.revoke(who.account.id, id).await?;
    }
    Ok(visit.see_other("/account", Some(Flash::SessionRevoked)))
}

/// `POST /account/sessions/revoke-others`
pub async fn revoke_others(
    visit: Visit,
    SignedIn(who): SignedIn,
    form: Form<TokenForm>,
    services: Shared,
) -> WebResult {
    admit(&visit, &services, &who, &form.csrf_token).await?;
    services.sessions.end_others(who.account.id, who.session.id).await?;
    Ok(visit.see_other("/account", Some(Flash::OthersRevoked)))
}

/// Admits a form of this page that has no other fields to check.
async fn admit(
    visit: &Visit,
    services: &Services,
    who: &AuthenticatedSession,
    csrf_token: &str,
) -> Result<(), WebError> {
    if !visit.admits_form(csrf_token) {
        let page = page(visit, services, who).await?;
        return Err(page.notice(Notice::Expired).respond(visit).into());
    }
    if who.account.must_change_password {
        return Err(visit.clone().keep_flash().see_other("/account", None).into());
    }
    Ok(())
}

async fn page(
    visit: &Visit,
    services: &Services,
    who: &AuthenticatedSession,
) -> Result<AccountPage, WebError> {
    let AuthenticatedSession { account, session: current } = who;
    let mut sessions = services.sessions.list(account.id).await?;
    // The current session first, then the newest first.
    sessions.sort_by_key(|session| session.id != current.id);
    let live = visit.live(services);
    let (apps, hosts) = apps(visit, services, &live, account).await?;
    let sessions = sessions.into_iter().map(|session| {
        let (id, of) = (session.id.to_string(), session.id);
        let used = hosts.iter().filter(|(id, _)| *id == of).map(|(_, host)| host.clone());
        SessionRow::new(id, &session.user_agent, session.network, session.created_at, session.last_seen)
            .current(session.id == current.id)
            .hosts(used.collect())
    });
    let sign_ins = services.accounts.last_sign_ins(account.id).await?.into_iter();
    let sign_ins = sign_ins.map(|past| SignInRow::new(past.at, &past.user_agent, past.network));
    let failures = failures(visit, services, account).await?;
    let shortest = crate::login::SHORTEST_PASSWORD;
    let open = services.sign_in.is_open_to(&live, account, &visit.sign_in_client()).await?;
    Ok(AccountPage::new(visit, account.login.as_str(), account.created_at, shortest)
        .ways_in(account.phone.as_ref().map(|phone| phone.as_str()), account.password_hash.is_some())
        .admin(account.roles.admin)
        .apps(apps)
        .sessions(sessions.collect())
        .sign_ins(sign_ins.collect())
        .failures(failures)
        .must_change(account.must_change_password)
        .password_disabled(account.password_disabled_at, open))
}

/// The applications that the reader may use, and the hosts at which each session is used.
async fn apps(
    visit: &Visit,
    services: &Services,
    live: &LiveSettings,
    account: &Account,
) -> Result<(Vec<AppLink>, Vec<(SessionId, String)>), DbError> {
    if live.apps.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let groups = services.accounts.groups(account.id).await?;
    let scheme = if visit.cookies().secure() { "https" } else { "http" };
    let open = live.apps.all().iter().filter(|app| may_use(app, account.login.as_str(), &groups));
    let links = open.filter_map(|app| {
        Some(AppLink { name: app.name.clone(), url: format!("{scheme}://{}/", app.hosts.first()?) })
    });
    Ok((links.collect(), services.gate.hosts(account.id).await?))
}

/// What failed at the account lately. Strangers can fill this list, so it is apart from the sign-ins.
async fn failures(visit: &Visit, services: &Services, account: &Account) -> Result<FailureSummary, DbError> {
    let audit = &services.audit;
    let phone = account.phone.as_ref().map(|phone| audit.subject(&EventSubject::Phone(phone.as_str())));
    // A number may have belonged to somebody else before.
    let since = visit.now().minus(FAILURES_SHOWN).max(account.created_at);
    audit.log().failures(audit.subject(&account.recorded()), phone, since, FAILED_NETWORKS).await
}
