//! `/account/phone`: a number for the account of who is signed in.

use actix_web::HttpResponse;
use actix_web::web::Form;

use crate::captcha;
use crate::login::{CodeEntry, Password, PhoneOutcome};
use crate::sms::Purpose;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::code::fields::CodeForm;
use crate::web::code::send::{Wish, not_opened, parse_both, send, step_of};
use crate::web::code::view::{CodePage, CodeStep};
use crate::web::form::fields::Typed;
use crate::web::form::notice::Notice;
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::session::{Member, client, member};

const HERE: &str = "/account/phone";
/// What the current password is tried with, as where it is changed.
const FORM: captcha::CaptchaForm = captcha::CaptchaForm::PasswordChange;

/// `GET /account/phone`
pub async fn show(visit: Visit, services: Shared) -> HttpResponse {
    match owner(&visit, &services, HERE).await {
        Member::Is(who) => {
            let notice =
                if who.account.password_hash.is_none() { Notice::PasswordFirst } else { Notice::None };
            let page = CodePage::new(&visit, Purpose::Verify, Some(who.account.login.as_str()), None);
            page.notice(notice).respond(&visit)
        }
        Member::Not(response) => response,
    }
}

/// `POST /account/phone`. A number opens the account, so whoever sets one shows the password; before the
/// code is looked at, so that none is spent on a mistake.
pub async fn submit(visit: Visit, form: Form<CodeForm>, services: Shared) -> HttpResponse {
    let who = match owner(&visit, &services, HERE).await {
        Member::Is(who) => who,
        Member::Not(response) => return response,
    };
    let live = services.live.snapshot();
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        CodePage::new(&visit, Purpose::Verify, Some(who.account.login.as_str()), None)
            .step(step)
            .notice(notice)
            .captcha(captcha)
            .respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let reply = Reply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if who.account.password_hash.is_none() {
        return reply.plain(Notice::PasswordFirst);
    }
    match Wish::of(&form.fields) {
        Wish::AnotherNumber => return reply.plain(Notice::None),
        Wish::Code => return send(reply, Purpose::Verify, &form.fields, &form.guarded, &page).await,
        Wish::Entry => {}
    }
    let parse = |errors: &mut _| {
        let parsed = parse_both(&live, &form.fields, errors);
        parsed.zip(parse_current(&form.current_password, errors))
    };
    let (((phone, code), password), solved) = match reply.admit(&form.guarded, parse).await {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let owner = match reply.verify(&who.account, password, Field::CurrentPassword, solved).await {
        Ok(owner) => owner,
        Err(response) => return response,
    };
    let origin = visit.client.origin();
    let (browser, known) = (Some(&visit.browser.bytes()[..]), &visit.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    match services.by_code.give(&live, &owner, entry).await {
        Ok(PhoneOutcome::Done) => visit.see_other("/account", Some(Flash::PhoneSet)),
        Ok(PhoneOutcome::PhoneTaken) => page(
            CodeStep::asking(phone.as_str()),
            Notice::Invalid(FieldErrors::one(Field::Phone, Message::PhoneTaken)),
            CaptchaBlock::Absent,
        ),
        Ok(PhoneOutcome::Not(not)) => not_opened(&reply, not).await,
        Err(error) => broken(&visit, &error),
    }
}

/// `GET /account/phone/remove`
pub async fn show_removal(visit: Visit, services: Shared) -> HttpResponse {
    match owner(&visit, &services, "/account").await {
        Member::Is(who) if who.account.open_hash().is_some() => {
            CodePage::removal(&visit, who.account.login.as_str()).respond(&visit)
        }
        // The number is the only way in, or will be from a new browser.
        Member::Is(_) => visit.see_other("/account", None),
        Member::Not(response) => response,
    }
}

/// `POST /account/phone/remove`
pub async fn remove(visit: Visit, form: Form<CodeForm>, services: Shared) -> HttpResponse {
    let who = match owner(&visit, &services, "/account").await {
        Member::Is(who) => who,
        Member::Not(response) => return response,
    };
    let live = services.live.snapshot();
    let show = |notice, captcha| {
        let page = CodePage::removal(&visit, who.account.login.as_str());
        page.notice(notice).captcha(captcha).respond(&visit)
    };
    let reply = Reply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if who.account.password_hash.is_none() {
        return reply.plain(Notice::PasswordFirst);
    }
    if who.account.password_disabled_at.is_some() {
        return visit.see_other("/account", None);
    }
    let parse = |errors: &mut _| parse_current(&form.current_password, errors);
    let (password, solved) = match reply.admit(&form.guarded, parse).await {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let owner = match reply.verify(&who.account, password, Field::CurrentPassword, solved).await {
        Ok(owner) => owner,
        Err(response) => return response,
    };
    match services.by_code.take_away(&owner).await {
        Ok(true) => visit.see_other("/account", Some(Flash::PhoneRemoved)),
        // Only a page from before offers it.
        Ok(false) => visit.see_other("/account", None),
        Err(error) => broken(&visit, &error),
    }
}

/// A member whose password, if there is one, can be shown from here.
async fn owner(visit: &Visit, services: &Services, here: &str) -> Member {
    let who = match member(visit, services, here).await {
        Member::Is(who) => who,
        not => return not,
    };
    let live = services.live.snapshot();
    match services.sign_in.is_open_to(&live, &who.account, &client(visit)).await {
        Ok(true) => Member::Is(who),
        Ok(false) => Member::Not(visit.see_other("/account", None)),
        Err(error) => Member::Not(broken(visit, &error)),
    }
}

fn parse_current(typed: &Typed, errors: &mut FieldErrors) -> Option<Password> {
    let current = Password::attempt(typed.expose()).map_err(Message::of_current_password);
    errors.take(Field::CurrentPassword, current)
}
