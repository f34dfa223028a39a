//! `/account/email`, `POST` and `DELETE /api/v1/account/email`: the e-mail address of the signed-in account. An address can
//! set a new password, so that both changes need the current one.

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::{Account, AuthenticatedSession};
use crate::codes::Recipient;
use crate::web::account::sets_password;
use crate::web::account::with_password::{FORM, give, give_by_form, require_open, show_form, verified};
use crate::web::code::calls::{parse_sent_code, parse_sent_email};
use crate::web::code::{
    CodeForm, CodePage, EMAIL, EMAIL_FOR_NOTICES, EMAIL_REMOVAL, EMAIL_REMOVAL_FOR_NOTICES, FormTexts,
};
use crate::web::http::action::read_current;
use crate::web::http::describe::{ATTEMPT, CodeDigits, CurrentPassword, EmailAddress, PASSWORD};
use crate::web::http::page::language;
use crate::web::http::{
    CaptchaSolution, Field, Flash, PageRequest, Problem, SecretField, Services, ServicesData, WebResult,
};
use crate::web::second_step::require_factor;
use crate::web::session::{Member, MemberCall, OwnersForm};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEmail, example = json!({
    "email": "ada@example.org", "code": "012345", "current_password": "correct horse battery staple"
}))]
pub struct SetEmailBody {
    #[schema(value_type = EmailAddress)]
    email: SecretField,
    #[schema(value_type = CodeDigits)]
    code: SecretField,
    /// The current password. The field may be named `password`, too.
    #[serde(alias = "password")]
    #[schema(value_type = CurrentPassword)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EmailRemoval, example = json!({ "current_password": "correct horse battery staple" }))]
pub struct RemoveEmailBody {
    /// The current password. The field may be named `password`, too.
    #[serde(alias = "password")]
    #[schema(value_type = CurrentPassword)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AccountEmail, example = json!({ "email": "ada@example.org" }))]
struct AccountEmail {
    /// Its domain is in ASCII and in small letters.
    email: String,
}

/// The words of both forms, and the message after the first: what an address is good for at this account.
struct EmailTexts {
    set: &'static FormTexts,
    remove: &'static FormTexts,
    done: Flash,
}

impl EmailTexts {
    fn of(visit: &PageRequest, services: &Services, account: &Account) -> Self {
        if sets_password(&visit.live(services), account) {
            Self { set: &EMAIL, remove: &EMAIL_REMOVAL, done: Flash::EmailSet }
        } else {
            let (set, remove) = (&EMAIL_FOR_NOTICES, &EMAIL_REMOVAL_FOR_NOTICES);
            Self { set, remove, done: Flash::EmailSetForNotices }
        }
    }
}

pub async fn show(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    show_form(&visit, &services, &who, EmailTexts::of(&visit, &services, &who.account).set).await
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
    let words = EmailTexts::of(&visit, &services, &who.account);
    give_by_form(&visit, &services, &who, &form, (words.set, words.done)).await
}

pub async fn show_removal(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    let words = EmailTexts::of(&visit, &services, &who.account).remove;
    require_open(&visit, &services, &who, words.path).await?;
    Ok(match who.account.open_hash() {
        Some(_) => CodePage::new(&visit, words, Some(who.account.login.as_str()), None).respond(&visit),
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
    let words = EmailTexts::of(&visit, &services, &who.account).remove;
    let owner = verified(&visit, &services, &who, &form, words).await?;
    let removed = services.emails.remove(&owner).await?;
    Ok(visit.see_other("/account", removed.then_some(Flash::EmailRemoved)))
}

/// Give the account an e-mail address, in place of the one that it may have
///
/// With the code that POST /api/v1/email/codes sent there. The current password is verified first; a mistake in it does
/// not use up the code. An account with a second factor proves that before, with POST /api/v1/confirm. The address before
/// is told of it. That another account has the address is told only to a caller with its code.
#[utoipa::path(
    post,
    path = "/api/v1/account/email",
    operation_id = "setEmail",
    tag = "account",
    request_body = SetEmailBody,
    responses((status = 200, description = "The account has the address.", body = AccountEmail)),
    extensions(("x-problems" = json!([ATTEMPT, PASSWORD, "invalid-email", "invalid-code", "email-taken", "no-password", "step-up-required"])))
)]
pub async fn api_set(MemberCall { who, call, body }: MemberCall<SetEmailBody>) -> WebResult {
    let (to, code) = (Recipient::from(parse_sent_email(&body.email)?), parse_sent_code(&body.code)?);
    let call = call.by(to.channel());
    if who.account.password_hash.is_none() {
        return Err(Problem::NoPassword.into());
    }
    require_factor(&call.services, &who).await?;
    let password = read_current(Field::CurrentPassword, &body.current_password)?;
    let (actor, locale) = (call.actor(FORM, body.captcha.as_ref()), language(call.request().headers()));
    call.told(FORM, give(&actor, &who.account, ((&to, &code), password), locale).await).await?;
    Ok(HttpResponse::Ok().json(AccountEmail { email: to.as_str().to_owned() }))
}

/// Remove the account's e-mail address
///
/// The answer is 204, too, if it has none. An account with a second factor proves that before, with POST /api/v1/confirm.
#[utoipa::path(
    delete,
    path = "/api/v1/account/email",
    operation_id = "removeEmail",
    tag = "account",
    request_body = RemoveEmailBody,
    responses((status = 204, description = "The account has no address.")),
    extensions(("x-problems" = json!([ATTEMPT, PASSWORD, "no-password", "step-up-required"])))
)]
pub async fn api_remove(MemberCall { who, call, body }: MemberCall<RemoveEmailBody>) -> WebResult {
    if who.account.password_hash.is_none() {
        return Err(Problem::NoPassword.into());
    }
    require_factor(&call.services, &who).await?;
    let password = read_current(Field::CurrentPassword, &body.current_password)?;
    let actor = call.actor(FORM, body.captcha.as_ref());
    let verified = actor.verify(&who.account, password, Field::CurrentPassword).await;
    let (owner, _) = call.told(FORM, verified).await?;
    let emails = &call.services.emails;
    // It was changed meanwhile, and its sessions have ended.
    if !emails.remove(&owner).await? && emails.of(owner.id).await?.is_some() {
        return Err(Problem::Unauthenticated.into());
    }
    Ok(HttpResponse::NoContent().finish())
}
