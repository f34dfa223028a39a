//! `/account/phone`: sets the phone number of the signed-in account.

use crate::captcha::CaptchaForm;
use crate::login::{AuthenticatedSession, CodeEntry, Password, PhoneOutcome};
use crate::sms::Purpose;
use crate::web::account::require_open;
use crate::web::captcha::CaptchaBlock;
use crate::web::code::fields::CodeForm;
use crate::web::code::page::{CodeStage, parse_both, send, step_of};
use crate::web::code::view::{CodePage, CodeStep, OneStep};
use crate::web::form::fields::FormPairs;
use crate::web::form::notice::Notice;
use crate::web::form::once::{FormReach, once};
use crate::web::form::reply::FormReply;
use crate::web::kit::extract::{SecretField, UnreadBody};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::WebResult;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Flash, Visit};
use crate::web::session::Member;

/// The challenges of the password form apply here, too.
const FORM: CaptchaForm = CaptchaForm::PasswordChange;

/// `GET /account/phone`
pub async fn show(visit: Visit, Member(who): Member, services: Shared) -> WebResult {
    require_open(&visit, &services, &who).await?;
    let notice = if who.account.password_hash.is_none() { Notice::PasswordFirst } else { Notice::None };
    let page = CodePage::new(&visit, Purpose::Verify, Some(who.account.login.as_str()), None);
    Ok(page.notice(notice).respond(&visit))
}

/// `POST /account/phone`. A phone number opens the account, so setting one needs the password. The password
/// is verified before the code is compared, so that a wrong password does not use up the code.
pub async fn submit(
    visit: Visit,
    Member(who): Member,
    body: UnreadBody<FormPairs>,
    services: Shared,
) -> WebResult {
    let act = |visit, form, services| set_phone(visit, who, form, services);
    once(visit, services, body, FormReach::AnyInstance, act).await
}

async fn set_phone(visit: Visit, who: AuthenticatedSession, form: CodeForm, services: Shared) -> WebResult {
    require_open(&visit, &services, &who).await?;
    let live = visit.live(&services);
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = CodePage::new(&visit, Purpose::Verify, Some(who.account.login.as_str()), None);
        page.step(step).notice(notice).captcha(captcha).respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if who.account.password_hash.is_none() {
        return Ok(reply.plain(Notice::PasswordFirst));
    }
    match CodeStage::of(&form.fields) {
        CodeStage::AnotherNumber => return Ok(reply.plain(Notice::None)),
        CodeStage::Send => return send(&reply, Purpose::Verify, &form.fields, &form.guarded, &page).await,
        CodeStage::Entry => {}
    }
    let parse = |errors: &mut FieldErrors| {
        let parsed = parse_both(&live, &form.fields, errors);
        parsed.zip(parse_current(&form.current_password, errors))
    };
    let (((phone, code), password), solved) = reply.admit(&form.guarded, parse).await?;
    let owner = reply.verify(&who.account, password, Field::CurrentPassword, solved).await?;
    let origin = visit.client.origin();
    let (browser, known) = (Some(&visit.browser.bytes()[..]), &visit.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    Ok(match services.by_code.give(&live, &owner, entry).await? {
        PhoneOutcome::Done => visit.see_other("/account", Some(Flash::PhoneSet)),
        PhoneOutcome::PhoneTaken => {
            let taken = Notice::Invalid(FieldErrors::one(Field::Phone, Message::PhoneTaken));
            page(CodeStep::asking(phone.as_str()), taken, CaptchaBlock::Absent)
        }
        PhoneOutcome::WrongCode => reply.invalid(Field::Code, Message::CodeWrong),
        PhoneOutcome::Denied(denied) => reply.denied(&denied).await,
    })
}

/// `GET /account/phone/remove`
pub async fn show_removal(visit: Visit, Member(who): Member, services: Shared) -> WebResult {
    require_open(&visit, &services, &who).await?;
    Ok(match who.account.open_hash() {
        Some(_) => {
            CodePage::one_step(&visit, OneStep::PhoneRemoval, who.account.login.as_str()).respond(&visit)
        }
        // The number is the only way in, or the only one from a new browser.
        None => visit.see_other("/account", None),
    })
}

/// `POST /account/phone/remove`
pub async fn remove(
    visit: Visit,
    Member(who): Member,
    body: UnreadBody<FormPairs>,
    services: Shared,
) -> WebResult {
    let act = |visit, form, services| remove_phone(visit, who, form, services);
    once(visit, services, body, FormReach::AnyInstance, act).await
}

async fn remove_phone(
    visit: Visit,
    who: AuthenticatedSession,
    form: CodeForm,
    services: Shared,
) -> WebResult {
    require_open(&visit, &services, &who).await?;
    let live = visit.live(&services);
    let show = |notice, captcha| {
        let page = CodePage::one_step(&visit, OneStep::PhoneRemoval, who.account.login.as_str());
        page.notice(notice).captcha(captcha).respond(&visit)
    };
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if who.account.password_hash.is_none() {
        return Ok(reply.plain(Notice::PasswordFirst));
    }
    if who.account.password_disabled_at.is_some() {
        return Ok(visit.see_other("/account", None));
    }
    let parse = |errors: &mut FieldErrors| parse_current(&form.current_password, errors);
    let (password, solved) = reply.admit(&form.guarded, parse).await?;
    let owner = reply.verify(&who.account, password, Field::CurrentPassword, solved).await?;
    // False only if the form is from an outdated page.
    let removed = services.by_code.take_away(&owner).await?;
    Ok(visit.see_other("/account", removed.then_some(Flash::PhoneRemoved)))
}

pub fn parse_current(typed: &SecretField, errors: &mut FieldErrors) -> Option<Password> {
    let current = Password::attempt(typed.expose()).map_err(Message::of_current_password);
    errors.take(Field::CurrentPassword, current)
}
