//! `/password/reset`: sets a new password for a user who proves that the account's number is theirs.

use actix_web::HttpResponse;

use crate::captcha::CaptchaForm;
use crate::login::{CodeEntry, ResetOutcome, ResetRequest};
use crate::sms::Purpose;
use crate::web::captcha::CaptchaBlock;
use crate::web::code::fields::CodeForm;
use crate::web::code::page::{CodeStage, parse_both, send, step_of};
use crate::web::code::view::{CodePage, CodeStep};
use crate::web::form::fields::FormPairs;
use crate::web::form::notice::Notice;
use crate::web::form::once::{FormReach, once};
use crate::web::form::reply::FormReply;
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::WebResult;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{self, Flash, Visit};

/// `GET /password/reset`. Also for signed-in users: an account without a password can set one by a code.
pub async fn show(visit: Visit) -> HttpResponse {
    CodePage::new(&visit, Purpose::Reset, None, None).respond(&visit)
}

/// `POST /password/reset`
pub async fn submit(visit: Visit, body: UnreadBody<FormPairs>, services: Shared) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, reset).await
}

async fn reset(visit: Visit, form: CodeForm, services: Shared) -> WebResult {
    let live = visit.live(&services);
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = CodePage::new(&visit, Purpose::Reset, None, None);
        page.step(step).notice(notice).captcha(captcha).respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let challenge = CaptchaForm::PasswordReset;
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: challenge, show: &show };
    match CodeStage::of(&form.fields) {
        CodeStage::AnotherNumber => return Ok(reply.plain(Notice::None)),
        CodeStage::Send => return send(&reply, Purpose::Reset, &form.fields, &form.guarded, &page).await,
        CodeStage::Entry => {}
    }
    let parse = |errors: &mut FieldErrors| {
        let parsed = parse_both(&live, &form.fields, errors);
        if form.new_password.expose().is_empty() {
            errors.add(Field::NewPassword, Message::PasswordMissing);
        }
        parsed
    };
    let ((phone, code), solved) = reply.admit(&form.guarded, parse).await?;
    let origin = visit.client.origin();
    let (browser, known) = (Some(&visit.browser.bytes()[..]), &visit.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    let request = ResetRequest { entry, new_password: form.new_password.expose() };
    Ok(match services.by_code.reset(&live, request).await? {
        ResetOutcome::Done(account) => {
            let mut response = visit.see_other("/login", Some(Flash::PasswordReset));
            visit::set(&mut response, visit.cookies().end_session());
            visit.remember_device(&mut response, &account);
            response
        }
        ResetOutcome::NoAccount => {
            let unknown = Notice::Invalid(FieldErrors::one(Field::Phone, Message::NoAccount));
            page(CodeStep::asking(phone.as_str()), unknown, CaptchaBlock::Absent)
        }
        ResetOutcome::PasswordRequired => reply.plain(Notice::PasswordRequired),
        ResetOutcome::AccountDisabled => reply.plain(Notice::AccountDisabled),
        ResetOutcome::WrongCode => reply.invalid(Field::Code, Message::CodeWrong),
        ResetOutcome::Unfit(unfit) => reply.invalid(Field::NewPassword, Message::from(unfit)),
        ResetOutcome::Denied(denied) => reply.denied(&denied).await,
    })
}
