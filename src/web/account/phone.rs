//! `/account/phone` and `POST` and `DELETE /api/v1/account/phone`: the number of the signed-in account. A number opens the
//! account, so that both changes need the password.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::AuthenticatedSession;
use crate::web::account::with_password::{FORM, give, give_by_form, require_open, show_form, verified};
use crate::web::code::calls::{parse_sent_code, parse_sent_phone};
use crate::web::code::{CodeForm, CodePage, PHONE, REMOVAL};
use crate::web::http::action::read_current;
use crate::web::http::describe::{ATTEMPT, CodeDigits, CurrentPassword, MobileNumber, NUMBER, PASSWORD};
use crate::web::http::page::language;
use crate::web::http::{
    CaptchaSolution, Field, Flash, PageRequest, Problem, SecretField, ServicesData, WebResult, no_content_if,
};
use crate::web::second_step::require_factor;
use crate::web::session::{Member, MemberCall, OwnersForm};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPhone, example = json!({
    "phone": "+8613800138000", "code": "012345", "current_password": "correct horse battery staple"
}))]
pub struct SetPhoneBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    #[schema(value_type = CodeDigits)]
    code: SecretField,
    /// Required if the account has a password.
    #[serde(default)]
    #[schema(value_type = CurrentPassword, required = false)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PhoneRemoval, example = json!({ "current_password": "correct horse battery staple" }))]
pub struct RemovePhoneBody {
    /// Required if the account has a password.
    #[serde(default)]
    #[schema(value_type = CurrentPassword, required = false)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

pub async fn show(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    show_form(&visit, &services, &who, &PHONE).await
}

pub async fn submit(visit: PageRequest, _: Member, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, submit_once).await
}

async fn submit_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: CodeForm,
    services: ServicesData,
) -> WebResult {
    give_by_form(&visit, &services, &who, &form, (&PHONE, Flash::PhoneSet)).await
}

pub async fn show_removal(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    require_open(&visit, &services, &who, REMOVAL.path).await?;
    Ok(match who.account.open_hash() {
        Some(_) => CodePage::new(&visit, &REMOVAL, Some(who.account.login.as_str()), None).respond(&visit),
        // The number is the only way in, or the only one from a new browser.
        None => visit.see_other("/account", None),
    })
}

pub async fn remove(visit: PageRequest, _: Member, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, remove_once).await
}

async fn remove_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: CodeForm,
    services: ServicesData,
) -> WebResult {
    if who.account.password_disabled_at.is_some() {
        return Ok(visit.see_other("/account", None));
    }
    let owner = verified(&visit, &services, &who, &form, &REMOVAL).await?;
    // False only if the form is from an outdated page.
    let flash = services.by_code.take_away(&owner).await?.then_some(Flash::PhoneRemoved);
    Ok(visit.see_other("/account", flash))
}

/// Give the account a number, in place of the one that it may have
///
/// A number can sign in, so the current password is verified first, as at sign-in; a mistake in it does not use up the
/// code. An account with a second factor proves that before, with POST /api/v1/confirm. An account without a password gets
/// one from POST /api/v1/password/reset first. That another account has the number is told only to a caller with its code.
#[utoipa::path(
    post,
    path = "/api/v1/account/phone",
    operation_id = "setPhone",
    tag = "account",
    request_body = SetPhoneBody,
    responses((status = 204, description = "The account has the number.")),
    extensions(("x-problems" = json!([ATTEMPT, PASSWORD, NUMBER, "invalid-code", "phone-taken", "no-password", "step-up-required"])))
)]
pub async fn api_set(MemberCall { who, call, body }: MemberCall<SetPhoneBody>) -> WebResult {
    let (to, code) = (parse_sent_phone(&call.live, &body.phone)?.into(), parse_sent_code(&body.code)?);
    if who.account.password_hash.is_none() {
        return Err(Problem::NoPassword.into());
    }
    require_factor(&call.services, &who).await?;
    let password = read_current(Field::CurrentPassword, &body.current_password)?;
    let (actor, locale) = (call.actor(FORM, body.captcha.as_ref()), language(call.request().headers()));
    call.told(FORM, give(&actor, &who.account, ((&to, &code), password), locale).await).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Remove the account's number
///
/// Also 204 if it has none. An account with a second factor proves that before, with POST /api/v1/confirm.
#[utoipa::path(
    delete,
    path = "/api/v1/account/phone",
    operation_id = "removePhone",
    tag = "account",
    request_body = RemovePhoneBody,
    responses((status = 204, description = "The account has no number.")),
    extensions(("x-problems" = json!([ATTEMPT, PASSWORD, "only-way-in", "step-up-required"])))
)]
pub async fn api_remove(MemberCall { who, call, body }: MemberCall<RemovePhoneBody>) -> WebResult {
    if who.account.password_hash.is_none() {
        return Err(Problem::OnlyWayIn.into());
    }
    // If the password is disabled, the number is the only way in from new browsers.
    if who.account.password_disabled_at.is_some() {
        return Err(Problem::PasswordDisabled.into());
    }
    require_factor(&call.services, &who).await?;
    let password = read_current(Field::CurrentPassword, &body.current_password)?;
    let actor = call.actor(FORM, body.captcha.as_ref());
    let verified = actor.verify(&who.account, password, Field::CurrentPassword).await;
    let (owner, _) = call.told(FORM, verified).await?;
    Ok(no_content_if(call.services.by_code.take_away(&owner).await?, Problem::OnlyWayIn)?)
}
