//! `/login/code`: signing in with a phone number and a code sent to it.

use actix_web::web::Query;

use crate::captcha::CaptchaForm;
use crate::login::{ByCodeOutcome, CodeEntry, SignedInBy};
use crate::sms::Purpose;
use crate::web::captcha::CaptchaBlock;
use crate::web::code::fields::CodeForm;
use crate::web::code::page::{CodeStage, parse_both, send, step_of};
use crate::web::code::view::{CodePage, CodeStep};
use crate::web::form::fields::{FormPairs, NextFields};
use crate::web::form::notice::Notice;
use crate::web::form::once::{FormReach, once};
use crate::web::form::reply::FormReply;
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::message::{Field, Message};
use crate::web::kit::problem::WebResult;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Flash, Visit};
use crate::web::session::{unless_signed_in, welcome};

/// `GET /login/code`
pub async fn show(visit: Visit, query: Query<NextFields>, services: Shared) -> WebResult {
    let page = |visit: &Visit, next, why| {
        CodePage::new(visit, Purpose::Login, None, next).notice(why).respond(visit)
    };
    unless_signed_in(visit, &services, &query, page).await
}

/// `POST /login/code`
pub async fn submit(visit: Visit, body: UnreadBody<FormPairs>, services: Shared) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, sign_in).await
}

async fn sign_in(visit: Visit, form: CodeForm, services: Shared) -> WebResult {
    let live = visit.live(&services);
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = CodePage::new(&visit, Purpose::Login, None, form.to.target(&visit, &live));
        page.step(step).notice(notice).captcha(captcha).respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let reply = FormReply {
        visit: &visit,
        services: &services,
        live: &live,
        form: CaptchaForm::SmsCode,
        show: &show,
    };
    match CodeStage::of(&form.fields) {
        CodeStage::AnotherNumber => return Ok(reply.plain(Notice::None)),
        CodeStage::Send => return send(&reply, Purpose::Login, &form.fields, &form.guarded, &page).await,
        CodeStage::Entry => {}
    }
    let parse = |errors: &mut _| parse_both(&live, &form.fields, errors);
    let ((phone, code), solved) = reply.admit(&form.guarded, parse).await?;
    let origin = visit.client.origin();
    let (browser, known) = (Some(&visit.browser.bytes()[..]), &visit.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    Ok(match services.by_code.sign_in(&live, entry).await? {
        ByCodeOutcome::SignedIn { account, made } => {
            let (next, flash) = (form.to.target(&visit, &live), made.then_some(Flash::Registered));
            let response = welcome(&visit, &services, &account, next, flash, SignedInBy::Code).await?;
            response.unwrap_or_else(|| reply.invalid(Field::Code, Message::CodeWrong))
        }
        ByCodeOutcome::PasswordRequired => reply.plain(Notice::PasswordRequired),
        ByCodeOutcome::AccountDisabled => reply.plain(Notice::AccountDisabled),
        ByCodeOutcome::WrongCode => reply.invalid(Field::Code, Message::CodeWrong),
        ByCodeOutcome::Denied(denied) => reply.denied(&denied).await,
    })
}
