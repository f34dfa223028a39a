//! `/account/phone`: a number for the account of who is signed in.

use actix_web::HttpResponse;
use actix_web::web::Form;

use crate::captcha;
use crate::login::{CodeEntry, Given};
use crate::sms::Purpose;
use crate::web::flash::Flash;
use crate::web::handlers::broken;
use crate::web::handlers::code::{Wish, not_opened, parse_both, send, step_of};
use crate::web::handlers::reply::Reply;
use crate::web::handlers::session::{Member, member};
use crate::web::message::{Field, FieldErrors, Message};
use crate::web::pages::captcha::CaptchaBlock;
use crate::web::pages::code::{CodePage, CodeStep};
use crate::web::pages::error::{ErrorKind, ErrorPage};
use crate::web::pages::forms::{CodeForm, TokenForm};
use crate::web::pages::login::Notice;
use crate::web::services::Shared;
use crate::web::visit::Visit;

const HERE: &str = "/account/phone";

/// `GET /account/phone`
pub async fn show(visit: Visit, services: Shared) -> HttpResponse {
    match member(&visit, &services, HERE).await {
        Member::Is(who) => {
            CodePage::new(&visit, Purpose::Verify, Some(who.account.login.as_str()), None).respond(&visit)
        }
        Member::Not(response) => response,
    }
}

/// `POST /account/phone`
pub async fn submit(visit: Visit, form: Form<CodeForm>, services: Shared) -> HttpResponse {
    let who = match member(&visit, &services, HERE).await {
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
    let reply =
        Reply { visit: &visit, services: &services, live: &live, form: captcha::Form::SmsCode, show: &show };
    match Wish::of(&form.fields) {
        Wish::AnotherNumber => return reply.plain(Notice::None),
        Wish::Code => return send(reply, Purpose::Verify, &form.fields, &form.guarded, &page).await,
        Wish::Entry => {}
    }
    let admitted = reply.admit(&form.guarded, |errors| parse_both(&live, &form.fields, errors)).await;
    let ((phone, code), solved) = match admitted {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let address = visit.client.subject();
    let entry = CodeEntry { phone: &phone, code: &code, address: address.as_ref(), solved };
    match services.by_code.give(&live, &who.account, entry).await {
        Ok(Given::Done) => visit.see_other("/account", Some(Flash::PhoneSet)),
        Ok(Given::PhoneTaken) => page(
            CodeStep::asking(phone.as_str()),
            Notice::Invalid(FieldErrors::one(Field::Phone, Message::PhoneTaken)),
            CaptchaBlock::Absent,
        ),
        Ok(Given::Not(not)) => not_opened(&reply, not).await,
        Err(error) => broken(&visit, &error),
    }
}

/// `POST /account/phone/remove`
pub async fn remove(visit: Visit, form: Form<TokenForm>, services: Shared) -> HttpResponse {
    let who = match member(&visit, &services, "/account").await {
        Member::Is(who) => who,
        Member::Not(response) => return response,
    };
    if !visit.admits_form(&form.csrf_token) {
        return ErrorPage::new(visit.layout("/account", None), ErrorKind::ForeignForm).respond(&visit);
    }
    match services.by_code.take_away(&who.account).await {
        Ok(true) => visit.see_other("/account", Some(Flash::PhoneRemoved)),
        // Only a page from before offers it.
        Ok(false) => visit.see_other("/account", None),
        Err(error) => broken(&visit, &error),
    }
}
