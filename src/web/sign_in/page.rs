//! `/login`

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};

use crate::captcha;
use crate::login::{Password, SignInAttempt, SignInOutcome, Username};
use crate::web::captcha::view::CaptchaBlock;
use crate::web::form::fields::Guarded;
use crate::web::form::fields::NextQuery;
use crate::web::form::fields::Typed;
use crate::web::form::notice::Notice;
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::message::Message;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::session::{client, signed_in, welcome};
use crate::web::sign_in::view::LoginPage;
use serde::Deserialize;

/// `POST /login`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoginForm {
    pub login: String,
    pub password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `GET /login`
pub async fn show(visit: Visit, query: Query<NextQuery>, services: Shared) -> HttpResponse {
    let next = Next::parse(&query.next);
    match signed_in(&visit, &services).await {
        Ok(Some(_)) => visit.keep_flash().see_other(next.unwrap_or_else(Next::home).as_str(), None),
        Ok(None) => LoginPage::new(&visit, next).respond(&visit),
        Err(error) => broken(&visit, &error),
    }
}

/// `POST /login`
pub async fn submit(visit: Visit, form: Form<LoginForm>, services: Shared) -> HttpResponse {
    let live = services.live.snapshot();
    let show = |notice, captcha: CaptchaBlock| {
        let page = LoginPage::new(&visit, Next::parse(&form.next)).login(&form.login);
        page.notice(notice).captcha(captcha).respond(&visit)
    };
    let reply = Reply {
        visit: &visit,
        services: &services,
        live: &live,
        form: captcha::CaptchaForm::Login,
        show: &show,
    };
    let admitted = reply.admit(&form.guarded, |errors| parse(&form, errors)).await;
    let ((login, password), solved) = match admitted {
        Ok(admitted) => admitted,
        Err(response) => return response,
    };
    let attempt =
        SignInAttempt { login, password, origin: visit.client.origin(), client: client(&visit), solved };
    let outcome = match services.sign_in.attempt(&live, attempt).await {
        Ok(outcome) => outcome,
        Err(error) => return broken(&visit, &error),
    };
    match outcome {
        SignInOutcome::SignedIn(owner) => {
            match welcome(&visit, &services, &owner, Next::parse(&form.next), None, owner.shown()).await {
                Ok(Some(response)) => response,
                // The password was changed while this one was verified.
                Ok(None) => reply.plain(Notice::Rejected),
                Err(error) => broken(&visit, &error),
            }
        }
        SignInOutcome::Rejected { captcha_required: false } => reply.plain(Notice::Rejected),
        SignInOutcome::Rejected { captcha_required: true } => reply.challenged(Notice::Rejected).await,
        SignInOutcome::Challenged { .. } => reply.challenged(Notice::CaptchaNeeded).await,
        SignInOutcome::Throttled { retry_after, .. } => reply.wait(retry_after),
        SignInOutcome::Busy { retry_after } => reply.busy(retry_after),
    }
}

fn parse(form: &LoginForm, errors: &mut FieldErrors) -> Option<(Username, Password)> {
    let login = errors.take(Field::Login, Username::parse(&form.login).map_err(Message::from));
    let password = Password::attempt(form.password.expose()).map_err(Message::from);
    let password = errors.take(Field::Password, password);
    login.zip(password)
}
