//! `/account`: the profile, the password, and where somebody is signed in.

use actix_web::HttpResponse;
use actix_web::web::Form;

use crate::captcha;
use crate::db::DbError;
use crate::login::{
    Account, AuthenticatedSession, HashCaller, Password, PasswordChangeOutcome, ServiceError, SessionId,
    SignInAttempt, SignInOutcome, SignedInBy,
};
use crate::web::account::view::{AccountPage, Attempt, AttemptRow, SessionRow};
use crate::web::captcha::challenge::Answered;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::form::fields::Typed;
use crate::web::form::fields::{Guarded, TokenForm};
use crate::web::form::reply::{asker, fresh_challenge, unanswered};
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{self, Visit};
use crate::web::kit::wait::Wait;
use crate::web::session::{client, renew, signed_in};
use serde::Deserialize;

/// `POST /account/password`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    pub current_password: Typed,
    pub new_password: Typed,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `POST /account/sessions/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeForm {
    pub session_id: String,
    pub csrf_token: String,
}

const FORM: captcha::CaptchaForm = captcha::CaptchaForm::PasswordChange;

/// Who is signed in, or the answer for one who is not.
macro_rules! who_is_signed_in {
    ($visit:expr, $services:expr) => {
        match signed_in(&$visit, &$services).await {
            Ok(Some(who)) => who,
            Ok(None) => return $visit.keep_flash().see_other("/login?next=/account", None),
            Err(error) => return broken(&$visit, &error),
        }
    };
}

/// `GET /account`
pub async fn show(visit: Visit, services: Shared) -> HttpResponse {
    let who = who_is_signed_in!(visit, services);
    respond(&visit, &services, &who, |page| page).await
}

/// `POST /account/password`. The current password is tried like at sign-in: the same windows count it.
pub async fn change_password(visit: Visit, form: Form<PasswordForm>, services: Shared) -> HttpResponse {
    let who = who_is_signed_in!(visit, services);
    match try_to_change(&visit, &form, &services, &who).await {
        Ok(response) => response,
        Err(error) => broken(&visit, &error),
    }
}

async fn try_to_change(
    visit: &Visit,
    form: &PasswordForm,
    services: &Services,
    who: &AuthenticatedSession,
) -> Result<HttpResponse, ServiceError> {
    let live = services.live.snapshot();
    let challenge = || fresh_challenge(visit, services, &live, FORM);
    let page = |errors: FieldErrors, captcha: CaptchaBlock| {
        respond(visit, services, who, |page| page.errors(errors).captcha(captcha))
    };
    let wait = |retry_after| {
        let wait = Wait::new(visit.now(), retry_after);
        respond(visit, services, who, move |page| page.wait(wait))
    };
    if !visit.admits_form(&form.guarded.csrf_token) {
        return Ok(respond(visit, services, who, AccountPage::expired_form).await);
    }
    // There is nothing to try it with; the page says what to do.
    if !services.sign_in.is_open_to(&live, &who.account, &client(visit)).await? {
        return Ok(visit.see_other("/account", None));
    }
    if form.guarded.captcha_refresh.is_some() {
        return Ok(page(FieldErrors::default(), challenge().await).await);
    }
    let current = match parse(form) {
        Ok(current) => current,
        Err(errors) if form.guarded.captcha_id.is_empty() => {
            return Ok(page(errors, CaptchaBlock::Absent).await);
        }
        Err(errors) => return Ok(page(errors, challenge().await).await),
    };
    let Guarded { captcha_id, captcha_answer, .. } = &form.guarded;
    let answered = asker(visit, FORM).redeem(services, &live, captcha_id, captcha_answer.expose()).await;
    let solved = match answered {
        Answered::Nothing => false,
        Answered::Solved => true,
        Answered::Wrong => {
            let wrong = FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaWrong);
            return Ok(page(wrong, challenge().await).await);
        }
    };
    let attempt = SignInAttempt {
        login: who.account.login.clone(),
        password: current,
        origin: visit.client.origin(),
        client: client(visit),
        solved,
    };
    let needed = || FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaMissing);
    let wrong = || FieldErrors::one(Field::CurrentPassword, Message::CurrentPasswordWrong);
    let verified = match services.sign_in.attempt(&live, attempt).await? {
        SignInOutcome::SignedIn(account) => account,
        SignInOutcome::Rejected { captcha_required: false, .. } => {
            return Ok(page(wrong(), CaptchaBlock::Absent).await);
        }
        SignInOutcome::Rejected { captcha_required: true, .. } => {
            return Ok(page(wrong(), challenge().await).await);
        }
        SignInOutcome::Challenged { .. } => return Ok(page(needed(), challenge().await).await),
        SignInOutcome::Throttled { retry_after, .. } | SignInOutcome::Busy { retry_after } => {
            return Ok(wait(retry_after).await);
        }
    };
    let caller = HashCaller::stranger(visit.client.network().as_ref(), solved);
    match services.registration.change_password(&caller, &verified, form.new_password.expose()).await? {
        PasswordChangeOutcome::Done(account) => Ok(signed_in_anew(visit, services, &account).await?),
        PasswordChangeOutcome::Stale => Ok(page(wrong(), CaptchaBlock::Absent).await),
        PasswordChangeOutcome::Unfit(unfit) => {
            let errors = FieldErrors::one(Field::NewPassword, Message::from(unfit));
            Ok(page(errors, CaptchaBlock::Absent).await)
        }
        PasswordChangeOutcome::Challenged => Ok(page(needed(), challenge().await).await),
        PasswordChangeOutcome::Busy { retry_after } => Ok(wait(retry_after).await),
    }
}

/// With the change of password every session has ended; this browser gets a new one.
async fn signed_in_anew(
    visit: &Visit,
    services: &Services,
    account: &Account,
) -> Result<HttpResponse, DbError> {
    let Some(token) = renew(services, account, &client(visit), None, SignedInBy::Password).await? else {
        return Ok(visit.see_other("/login", Some(Flash::PasswordChanged)));
    };
    let mut response = visit.see_other("/account", Some(Flash::PasswordChanged));
    visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
    visit.remember_device(&mut response, account);
    Ok(response)
}

fn parse(form: &PasswordForm) -> Result<Password, FieldErrors> {
    let mut errors = FieldErrors::default();
    let current = Password::attempt(form.current_password.expose()).map_err(Message::of_current_password);
    let current = errors.take(Field::CurrentPassword, current);
    if form.new_password.expose().is_empty() {
        errors.add(Field::NewPassword, Message::PasswordMissing);
    } else if form.new_password.expose() == form.current_password.expose() {
        errors.add(Field::NewPassword, Message::PasswordUnchanged);
    }
    unanswered(&form.guarded, &mut errors);
    current.filter(|_| errors.is_empty()).ok_or(errors)
}

/// `POST /account/sessions/revoke`
pub async fn revoke(visit: Visit, form: Form<RevokeForm>, services: Shared) -> HttpResponse {
    let who = who_is_signed_in!(visit, services);
    if !visit.admits_form(&form.csrf_token) {
        return respond(&visit, &services, &who, AccountPage::expired_form).await;
    }
    if who.account.must_change_password {
        return visit.keep_flash().see_other("/account", None);
    }
    // One that has ended meanwhile is as well revoked as any.
    if let Some(id) = SessionId::parse(&form.session_id)
        && let Err(error) = services.sessions.revoke(who.account.id, id).await
    {
        return broken(&visit, &error);
    }
    visit.see_other("/account", Some(Flash::SessionRevoked))
}

/// `POST /account/sessions/revoke-others`
pub async fn revoke_others(visit: Visit, form: Form<TokenForm>, services: Shared) -> HttpResponse {
    let who = who_is_signed_in!(visit, services);
    if !visit.admits_form(&form.csrf_token) {
        return respond(&visit, &services, &who, AccountPage::expired_form).await;
    }
    if who.account.must_change_password {
        return visit.keep_flash().see_other("/account", None);
    }
    match services.sessions.end_others(who.account.id, who.session.id).await {
        Ok(_) => visit.see_other("/account", Some(Flash::OthersRevoked)),
        Err(error) => broken(&visit, &error),
    }
}

async fn respond(
    visit: &Visit,
    services: &Services,
    who: &AuthenticatedSession,
    dress: impl FnOnce(AccountPage) -> AccountPage,
) -> HttpResponse {
    match page(visit, services, who).await {
        Ok(page) => dress(page).respond(visit),
        Err(error) => broken(visit, &error),
    }
}

async fn page(
    visit: &Visit,
    services: &Services,
    who: &AuthenticatedSession,
) -> Result<AccountPage, DbError> {
    let AuthenticatedSession { account, session: current } = who;
    let mut sessions = services.sessions.list(account.id).await?;
    // Newest first, but for the one in use, which is what the others are told apart from.
    sessions.sort_by_key(|session| session.id != current.id);
    let sessions = sessions.into_iter().map(|session| {
        let id = session.id.to_string();
        SessionRow::new(id, &session.user_agent, session.network, session.created_at, session.last_seen)
            .current(session.id == current.id)
    });
    let attempts =
        services.accounts.last_sign_ins(account.id).await?.into_iter().map(|sign_in| {
            AttemptRow::new(sign_in.at, Attempt::SignedIn, &sign_in.user_agent, sign_in.network)
        });
    let shortest = crate::login::SHORTEST_PASSWORD;
    let live = services.live.snapshot();
    let open = services.sign_in.is_open_to(&live, account, &client(visit)).await?;
    Ok(AccountPage::new(visit, account.login.as_str(), account.created_at, shortest)
        .ways_in(account.phone.as_ref().map(|phone| phone.as_str()), account.password_hash.is_some())
        .admin(account.roles.admin)
        .sessions(sessions.collect())
        .attempts(attempts.collect())
        .must_change(account.must_change_password)
        .password_disabled(account.password_disabled_at, open))
}
