//! `/password/reset`: a new password for who shows the account's number.

use actix_web::HttpResponse;
use actix_web::web::Form;

use crate::captcha;
use crate::login::{CodeEntry, ResetOutcome, ResetRequest};
use crate::sms::Purpose;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::code::fields::CodeForm;
use crate::web::code::send::{Wish, not_opened, parse_both, send, step_of};
use crate::web::code::view::{CodePage, CodeStep};
use crate::web::form::notice::Notice;
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, Message};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{self, Visit};

/// `GET /password/reset`. Also for who is signed in: by a code, to an account without a password.
pub async fn show(visit: Visit) -> HttpResponse {
    CodePage::new(&visit, Purpose::Reset, None, None).respond(&visit)
}

/// `POST /password/reset`
pub async fn submit(visit: Visit, form: Form<CodeForm>, services: Shared) -> HttpResponse {
    let live = services.live.snapshot();
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        CodePage::new(&visit, Purpose::Reset, None, None)
            .step(step)
            .notice(notice)
            .captcha(captcha)
            .respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let form_name = captcha::CaptchaForm::PasswordReset;
    let reply = Reply { visit: &visit, services: &services, live: &live, form: form_name, show: &show };
    match Wish::of(&form.fields) {
        Wish::AnotherNumber => return reply.plain(Notice::None),
        Wish::Code => return send(reply, Purpose::Reset, &form.fields, &form.guarded, &page).await,
        Wish::Entry => {}
    }
    let parse = |errors: &mut _| {
        let parsed = parse_both(&live, &form.fields, errors);
        if form.new_password.expose().is_empty() {
            errors.add(Field::NewPassword, Message::PasswordMissing);
        }
        parsed
    };
    let ((phone, code), solved) = match reply.admit(&form.guarded, parse).await {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let origin = visit.client.origin();
    let new_password = form.new_password.expose();
    let (browser, known) = (Some(&visit.browser.bytes()[..]), &visit.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    let ask = ResetRequest { entry, new_password };
    match services.by_code.reset(&live, ask).await {
        Ok(ResetOutcome::Done(account)) => {
            let mut response = visit.see_other("/login", Some(Flash::PasswordReset));
            visit::set(&mut response, visit.cookies().end_session());
            visit.remember_device(&mut response, &account);
            response
        }
        Ok(ResetOutcome::NoAccount) => page(
            CodeStep::asking(phone.as_str()),
            Notice::Invalid(crate::web::FieldErrors::one(Field::Phone, Message::NoAccount)),
            CaptchaBlock::Absent,
        ),
        Ok(ResetOutcome::PasswordRequired) => reply.plain(Notice::PasswordRequired),
        Ok(ResetOutcome::Not(not)) => not_opened(&reply, not).await,
        Ok(ResetOutcome::Unfit(unfit)) => reply.invalid(Field::NewPassword, Message::from(unfit)),
        Ok(ResetOutcome::Busy { retry_after }) => reply.busy(retry_after),
        Err(error) => broken(&visit, &error),
    }
}
