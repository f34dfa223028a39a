//! What the pages and calls of an account have in common that need its current password.

use crate::accounts::{Account, AuthenticatedSession};
use crate::captcha::CaptchaForm;
use crate::codes::Recipient;
use crate::login::{Password, SignedInOwner};
use crate::message::{MessageCode, Purpose};
use crate::web::captcha::CaptchaBlock;
use crate::web::code::{CodeForm, CodePage, FormTexts};
use crate::web::form::{FormReply, Notice};
use crate::web::http::action::parse_current;
use crate::web::http::{
    ActionRefusal, Actor, Field, FieldErrors, Flash, Locale, Next, PageRequest, Services, WebError, WebResult,
};
use crate::web::session::CONFIRM;

/// Challenges of every form that asks for the current password.
pub const FORM: CaptchaForm = CaptchaForm::PasswordChange;

/// Lets a member pass whose password, if there is one, can be shown from here, and who has lately proved the account's
/// second factor, if it has one: the password alone is not enough for what `page` does.
pub async fn require_open(
    visit: &PageRequest,
    services: &Services,
    who: &AuthenticatedSession,
    page: &str,
) -> Result<(), WebError> {
    if services.sessions.lacks_factor(&who.session) {
        let flash = (!visit.request().method().is_safe()).then_some(Flash::ConfirmFirst);
        return Err(visit.see_other(&Next::after(CONFIRM, Next::parse(page).as_ref()), flash).into());
    }
    let live = visit.live(services);
    match services.sign_in.is_open_to(&live, &who.account, &visit.known_devices()).await? {
        true => Ok(()),
        false => Err(visit.see_other("/account", None).into()),
    }
}

/// A form that asks for the current password.
pub async fn show_form(
    visit: &PageRequest,
    services: &Services,
    who: &AuthenticatedSession,
    what: &'static FormTexts,
) -> WebResult {
    require_open(visit, services, who, visit.here()).await?;
    let notice = if who.account.password_hash.is_none() { Notice::PASSWORD_FIRST } else { Notice::None };
    let page = CodePage::new(visit, what, Some(who.account.login.as_str()), None);
    Ok(page.again(notice, CaptchaBlock::Absent).respond(visit))
}

/// The owner, who has just shown the password once more, in a form that asks for nothing else.
pub async fn verified(
    visit: &PageRequest,
    services: &Services,
    who: &AuthenticatedSession,
    form: &CodeForm,
    what: &'static FormTexts,
) -> Result<Box<SignedInOwner>, WebError> {
    require_open(visit, services, who, what.path).await?;
    let live = visit.live(services);
    let show = |notice, captcha| {
        let page = CodePage::new(visit, what, Some(who.account.login.as_str()), None);
        page.again(notice, captcha).respond(visit)
    };
    let reply = FormReply { visit, services, live: &live, form: FORM, show: &show };
    if who.account.password_hash.is_none() {
        return Err(reply.plain(Notice::PASSWORD_FIRST).into());
    }
    let parse =
        |errors: &mut FieldErrors| errors.take(Field::CurrentPassword, parse_current(&form.current_password));
    let password = reply.read(&form.guarded, parse).await?;
    let verified = reply.actor(&form.guarded).verify(&who.account, password, Field::CurrentPassword).await;
    Ok(reply.told(verified).await?.0)
}

/// Gives the account a number or an address. The password is verified before the code is compared, so that a wrong password
/// does not use up the code.
pub async fn give(
    by: &Actor<'_>,
    account: &Account,
    ((to, code), password): ((&Recipient, &MessageCode), Password),
    locale: Locale,
) -> Result<(), ActionRefusal> {
    let (owner, solved) = by.verify(account, password, Field::CurrentPassword).await?;
    Ok(by.services.by_code.give(by.live, &owner, by.entry(to, code, solved), locale.code()).await?)
}

/// The steps of the form that gives the account a number or an address, and what it says after the last of them.
pub async fn give_by_form(
    visit: &PageRequest,
    services: &Services,
    who: &AuthenticatedSession,
    form: &CodeForm,
    (what, done): (&'static FormTexts, Flash),
) -> WebResult {
    require_open(visit, services, who, what.path).await?;
    let live = visit.live(services);
    let page = CodePage::new(visit, what, Some(who.account.login.as_str()), None);
    let show = page.shown_again(visit, &live, &form.fields);
    let reply = FormReply { visit, services, live: &live, form: FORM, show: &show };
    if who.account.password_hash.is_none() {
        return Ok(reply.plain(Notice::PASSWORD_FIRST));
    }
    page.before_entry(&reply, Purpose::Verify, form).await?;
    let parse = |errors: &mut FieldErrors| {
        let parsed = page.parse_both(&live, &form.fields, errors);
        parsed.zip(errors.take(Field::CurrentPassword, parse_current(&form.current_password)))
    };
    let ((to, code), password) = reply.read(&form.guarded, parse).await?;
    let given = give(&reply.actor(&form.guarded), &who.account, ((&to, &code), password), visit.locale).await;
    reply.told(given).await?;
    Ok(visit.see_other("/account", Some(done)))
}
