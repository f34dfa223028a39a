//! `/login/code`: signing in with a number and the code that goes to it.

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};

use crate::captcha;
use crate::login::{ByCodeOutcome, CodeEntry, SignedInBy};
use crate::sms::Purpose;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::code::fields::CodeForm;
use crate::web::code::send::{Wish, not_opened, parse_both, send, step_of};
use crate::web::code::view::{CodePage, CodeStep};
use crate::web::form::fields::NextQuery;
use crate::web::form::notice::Notice;
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, Message};
use crate::web::kit::next::Next;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::session::{signed_in, welcome};

/// `GET /login/code`
pub async fn show(visit: Visit, query: Query<NextQuery>, services: Shared) -> HttpResponse {
    let next = Next::parse(&query.next);
    match signed_in(&visit, &services).await {
        Ok(Some(_)) => visit.keep_flash().see_other(next.unwrap_or_else(Next::home).as_str(), None),
        Ok(None) => CodePage::new(&visit, Purpose::Login, None, next).respond(&visit),
        Err(error) => broken(&visit, &error),
    }
}

/// `POST /login/code`
pub async fn submit(visit: Visit, form: Form<CodeForm>, services: Shared) -> HttpResponse {
    let live = services.live.snapshot();
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = CodePage::new(&visit, Purpose::Login, None, Next::parse(&form.next));
        page.step(step).notice(notice).captcha(captcha).respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let reply = Reply {
        visit: &visit,
        services: &services,
        live: &live,
        form: captcha::CaptchaForm::SmsCode,
        show: &show,
    };
    match Wish::of(&form.fields) {
        Wish::AnotherNumber => return reply.plain(Notice::None),
        Wish::Code => return send(reply, Purpose::Login, &form.fields, &form.guarded, &page).await,
        Wish::Entry => {}
    }
    let admitted = reply.admit(&form.guarded, |errors| parse_both(&live, &form.fields, errors)).await;
    let ((phone, code), solved) = match admitted {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let origin = visit.client.origin();
    let (browser, known) = (Some(&visit.browser.bytes()[..]), &visit.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    match services.by_code.sign_in(&live, entry).await {
        Ok(ByCodeOutcome::SignedIn { account, made }) => {
            let flash = made.then_some(Flash::Registered);
            match welcome(&visit, &services, &account, Next::parse(&form.next), flash, SignedInBy::Code).await
            {
                Ok(Some(response)) => response,
                Ok(None) => reply.invalid(Field::Code, Message::CodeWrong),
                Err(error) => broken(&visit, &error),
            }
        }
        Ok(ByCodeOutcome::PasswordRequired) => reply.plain(Notice::PasswordRequired),
        Ok(ByCodeOutcome::Not(not)) => not_opened(&reply, not).await,
        Err(error) => broken(&visit, &error),
    }
}
