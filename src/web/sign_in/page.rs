//! `/login`

use actix_web::HttpResponse;
use actix_web::web::Query;
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{Password, Username};
use crate::web::form::fields::{FormPairs, GuardedFields, NextFields};
use crate::web::form::notice::Notice;
use crate::web::form::once::{FormReach, once};
use crate::web::form::reply::{FormReply, TriedPassword};
use crate::web::kit::extract::{SecretField, UnreadBody};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::WebResult;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::session::{signed_in, unless_signed_in, welcome};
use crate::web::sign_in::view::LoginPage;

/// `POST /login`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoginForm {
    pub login: String,
    pub password: SecretField,
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

/// `GET /login`. Anyone who is signed in already goes on from here.
pub async fn show(visit: Visit, query: Query<NextFields>, services: Shared) -> WebResult {
    let live = visit.live(&services);
    // Whoever is known nowhere here would be asked anyway.
    let asks = live.access.challenges_everyone(visit.now()).is_some() && visit.known_devices().is_empty();
    if asks && signed_in(&visit, &services).await?.is_none() {
        let (form, next) = (CaptchaForm::Login, query.target(&visit, &live));
        let show = |notice, captcha| {
            LoginPage::new(&visit, next.clone()).notice(notice).captcha(captcha).respond(&visit)
        };
        let reply = FormReply { visit: &visit, services: &services, live: &live, form, show: &show };
        return Ok(reply.challenged(Notice::None).await);
    }
    let page = |visit: &Visit, next, why| LoginPage::new(visit, next).notice(why).respond(visit);
    unless_signed_in(visit, &services, &query, page).await
}

/// `POST /login`
pub async fn submit(visit: Visit, body: UnreadBody<FormPairs>, services: Shared) -> WebResult {
    once(visit, services, body, FormReach::ThisProcess, sign_in).await
}

async fn sign_in(visit: Visit, form: LoginForm, services: Shared) -> WebResult {
    let live = visit.live(&services);
    let show = |notice, captcha| -> HttpResponse {
        let page = LoginPage::new(&visit, form.to.target(&visit, &live)).login(&form.login);
        page.notice(notice).captcha(captcha).respond(&visit)
    };
    let reply =
        FormReply { visit: &visit, services: &services, live: &live, form: CaptchaForm::Login, show: &show };
    let ((login, password), solved) = reply.admit(&form.guarded, |errors| parse(&form, errors)).await?;
    match reply.try_password(login, password, solved).await? {
        TriedPassword::Right(owner) => {
            let next = form.to.target(&visit, &live);
            let response = welcome(&visit, &services, &owner, next, None, owner.shown()).await?;
            // None: the password was changed while this one was verified.
            Ok(response.unwrap_or_else(|| reply.plain(Notice::Rejected)))
        }
        TriedPassword::Wrong { captcha_required } => {
            Ok(reply.again(Notice::Rejected, captcha_required).await)
        }
    }
}

fn parse(form: &LoginForm, errors: &mut FieldErrors) -> Option<(Username, Password)> {
    let login = errors.take(Field::Login, Username::parse(&form.login).map_err(Message::from));
    let password = Password::attempt(form.password.expose()).map_err(Message::from);
    let password = errors.take(Field::Password, password);
    login.zip(password)
}
