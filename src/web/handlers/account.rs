//! `/account`: the profile, the password, and where somebody is signed in.

use actix_web::HttpResponse;
use actix_web::web::Form;

use crate::captcha;
use crate::db::DbError;
use crate::login::{Attempt as SignInAttempt, Authenticated, Changed, Outcome, Password, SessionId};
use crate::web::challenge::Answered;
use crate::web::flash::Flash;
use crate::web::handlers::session::{client, renew, signed_in};
use crate::web::handlers::{about_password, asker, broken, fresh_challenge};
use crate::web::message::{Field, FieldErrors, Message};
use crate::web::pages::account::{AccountPage, Attempt, AttemptRow, SessionRow};
use crate::web::pages::captcha::CaptchaBlock;
use crate::web::pages::forms::{PasswordForm, RevokeForm, TokenForm};
use crate::web::services::{Services, Shared};
use crate::web::visit::{self, Visit};
use crate::web::wait::Wait;

const FORM: captcha::Form = captcha::Form::PasswordChange;

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
    who: &Authenticated,
) -> Result<HttpResponse, DbError> {
    let live = services.live.snapshot();
    let challenge = || fresh_challenge(visit, services, &live, FORM);
    let page = |errors: FieldErrors, captcha: CaptchaBlock| {
        respond(visit, services, who, |page| page.errors(errors).captcha(captcha))
    };
    let wait = |retry_after| {
        let wait = Wait::new(visit.now(), retry_after);
        respond(visit, services, who, move |page| page.wait(wait))
    };
    if !visit.admits_form(&form.csrf_token) {
        return Ok(respond(visit, services, who, AccountPage::expired_form).await);
    }
    if form.captcha_refresh.is_some() {
        return Ok(page(FieldErrors::default(), challenge().await).await);
    }
    let current = match parse(form) {
        Ok(current) => current,
        Err(errors) if form.captcha_id.is_empty() => return Ok(page(errors, CaptchaBlock::Absent).await),
        Err(errors) => return Ok(page(errors, challenge().await).await),
    };
    let answered =
        asker(visit, FORM).redeem(services, &live, &form.captcha_id, form.captcha_answer.expose()).await;
    let solved = match answered {
        Answered::Nothing => false,
        Answered::Solved => true,
        Answered::Wrong => {
            let wrong = FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaWrong);
            return Ok(page(wrong, challenge().await).await);
        }
        Answered::Throttled(refusal) => return Ok(wait(refusal.retry_after).await),
    };
    let attempt = SignInAttempt {
        login: who.account.login.clone(),
        password: current,
        address: visit.client.subject().as_ref().to_vec(),
        client: client(visit),
        solved,
    };
    let wrong = || FieldErrors::one(Field::CurrentPassword, Message::CurrentPasswordWrong);
    match services.sign_in.attempt(&live, attempt).await? {
        Outcome::SignedIn(_) => {}
        Outcome::Rejected { captcha_required: false, .. } => {
            return Ok(page(wrong(), CaptchaBlock::Absent).await);
        }
        Outcome::Rejected { captcha_required: true, .. } => return Ok(page(wrong(), challenge().await).await),
        Outcome::Challenged { .. } => {
            let needed = FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaMissing);
            return Ok(page(needed, challenge().await).await);
        }
        Outcome::Throttled { retry_after, .. } | Outcome::Busy { retry_after } => {
            return Ok(wait(retry_after).await);
        }
    }
    match services.registration.change_password(&who.account, form.new_password.expose()).await? {
        Changed::Done => signed_in_anew(visit, services, who).await,
        Changed::Unfit(unfit) => {
            let errors = FieldErrors::one(Field::NewPassword, about_password(unfit));
            Ok(page(errors, CaptchaBlock::Absent).await)
        }
        Changed::Busy { retry_after } => Ok(wait(retry_after).await),
    }
}

/// After a change of password every session ends; this browser gets a new one.
async fn signed_in_anew(
    visit: &Visit,
    services: &Services,
    who: &Authenticated,
) -> Result<HttpResponse, DbError> {
    services.sessions.end_all(who.account.id).await?;
    let token = renew(services, &who.account, &client(visit), None).await?;
    let mut response = visit.see_other("/account", Some(Flash::PasswordChanged));
    visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
    Ok(response)
}

fn parse(form: &PasswordForm) -> Result<Password, FieldErrors> {
    let mut errors = FieldErrors::default();
    let current =
        Password::attempt(form.current_password.expose()).map_err(|error| match about_password(error) {
            Message::PasswordMissing => Message::CurrentPasswordMissing,
            _ => Message::CurrentPasswordWrong,
        });
    let current = errors.take(Field::CurrentPassword, current);
    if form.new_password.expose().is_empty() {
        errors.add(Field::NewPassword, Message::PasswordMissing);
    } else if form.new_password.expose() == form.current_password.expose() {
        errors.add(Field::NewPassword, Message::PasswordUnchanged);
    }
    if !form.captcha_id.is_empty() && form.captcha_answer.expose().trim().is_empty() {
        errors.add(Field::CaptchaAnswer, Message::CaptchaMissing);
    }
    current.filter(|_| errors.is_empty()).ok_or(errors)
}

/// `POST /account/sessions/revoke`
pub async fn revoke(visit: Visit, form: Form<RevokeForm>, services: Shared) -> HttpResponse {
    let who = who_is_signed_in!(visit, services);
    if !visit.admits_form(&form.csrf_token) {
        return respond(&visit, &services, &who, AccountPage::expired_form).await;
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
    match services.sessions.end_others(who.account.id, who.session.id).await {
        Ok(_) => visit.see_other("/account", Some(Flash::OthersRevoked)),
        Err(error) => broken(&visit, &error),
    }
}

async fn respond(
    visit: &Visit,
    services: &Services,
    who: &Authenticated,
    dress: impl FnOnce(AccountPage) -> AccountPage,
) -> HttpResponse {
    match page(visit, services, who).await {
        Ok(page) => dress(page).respond(visit),
        Err(error) => broken(visit, &error),
    }
}

async fn page(visit: &Visit, services: &Services, who: &Authenticated) -> Result<AccountPage, DbError> {
    let Authenticated { account, session: current } = who;
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
    Ok(AccountPage::new(visit, account.login.as_str(), account.created_at, shortest)
        .sessions(sessions.collect())
        .attempts(attempts.collect())
        .must_change(account.must_change_password))
}
