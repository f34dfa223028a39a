//! `/register`

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};

use crate::captcha;
use crate::config::Live;
use crate::login::{Registered, Username};
use crate::web::challenge::Answered;
use crate::web::flash::Flash;
use crate::web::handlers::session::{signed_in, welcome};
use crate::web::handlers::{about_login, about_password, asker, broken, fresh_challenge};
use crate::web::message::{Field, FieldErrors, Message};
use crate::web::next::Next;
use crate::web::pages::forms::{NextQuery, RegisterForm};
use crate::web::pages::login::Notice;
use crate::web::pages::register::{Hints, RegisterPage};
use crate::web::services::{Services, Shared};
use crate::web::visit::Visit;
use crate::web::wait::Wait;

const FORM: captcha::Form = captcha::Form::Register;
const HINTS: Hints =
    Hints { login_max: crate::login::LONGEST_LOGIN, password_min: crate::login::SHORTEST_PASSWORD };

/// `GET /register`
pub async fn show(visit: Visit, query: Query<NextQuery>, services: Shared) -> HttpResponse {
    let next = Next::parse(&query.next);
    match signed_in(&visit, &services).await {
        Ok(Some(_)) => visit.keep_flash().see_other(next.unwrap_or_else(Next::home).as_str(), None),
        Ok(None) => RegisterPage::new(&visit, HINTS, next).respond(&visit),
        Err(error) => broken(&visit, &error),
    }
}

/// `POST /register`
pub async fn submit(visit: Visit, form: Form<RegisterForm>, services: Shared) -> HttpResponse {
    let form = form.into_inner();
    let live = services.live.snapshot();
    let page = Reply { visit: &visit, services: &services, live: &live, form: &form };
    if !visit.admits_form(&form.csrf_token) {
        return page.plain(Notice::Expired);
    }
    if form.captcha_refresh.is_some() {
        return page.challenged(Notice::Refreshed).await;
    }
    let login = match parse(&form) {
        Ok(login) => login,
        Err(errors) if form.captcha_id.is_empty() => return page.plain(Notice::Invalid(errors)),
        Err(errors) => return page.challenged(Notice::Invalid(errors)).await,
    };
    let answered =
        asker(&visit, FORM).redeem(&services, &live, &form.captcha_id, form.captcha_answer.expose()).await;
    let solved = match answered {
        Answered::Nothing => false,
        Answered::Solved => true,
        Answered::Wrong => return page.challenged(Notice::CaptchaWrong).await,
        Answered::Throttled(refusal) => return page.wait(refusal.retry_after),
    };
    let address = visit.client.subject();
    let registered =
        services.registration.register(&live, &login, form.password.expose(), address.as_ref(), solved).await;
    match registered {
        Ok(Registered::Made(account)) => {
            let next = Next::parse(&form.next);
            let welcomed = welcome(&visit, &services, &account, next, Some(Flash::Registered)).await;
            welcomed.unwrap_or_else(|error| broken(&visit, &error))
        }
        Ok(Registered::LoginTaken) => page.invalid(Field::Login, Message::LoginTaken),
        Ok(Registered::Unfit(unfit)) => page.invalid(Field::Password, about_password(unfit)),
        Ok(Registered::Challenged { .. }) => page.challenged(Notice::CaptchaNeeded).await,
        Ok(Registered::Throttled { retry_after, .. }) => page.wait(retry_after),
        Ok(Registered::Busy { retry_after }) => page.plain(Notice::Busy(Wait::new(visit.now(), retry_after))),
        Err(error) => broken(&visit, &error),
    }
}

/// The ways in which the form comes back.
struct Reply<'a> {
    visit: &'a Visit,
    services: &'a Services,
    live: &'a Live,
    form: &'a RegisterForm,
}

impl Reply<'_> {
    fn page(&self, notice: Notice) -> RegisterPage {
        let next = Next::parse(&self.form.next);
        RegisterPage::new(self.visit, HINTS, next).login(&self.form.login).notice(notice)
    }

    fn plain(&self, notice: Notice) -> HttpResponse {
        self.page(notice).respond(self.visit)
    }

    fn invalid(&self, field: Field, message: Message) -> HttpResponse {
        self.plain(Notice::Invalid(FieldErrors::one(field, message)))
    }

    fn wait(&self, retry_after: std::time::Duration) -> HttpResponse {
        self.plain(Notice::Throttled(Wait::new(self.visit.now(), retry_after)))
    }

    async fn challenged(&self, notice: Notice) -> HttpResponse {
        let challenge = fresh_challenge(self.visit, self.services, self.live, FORM).await;
        self.page(notice).captcha(challenge).respond(self.visit)
    }
}

fn parse(form: &RegisterForm) -> Result<Username, FieldErrors> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&form.login).map_err(about_login));
    if form.password.expose().is_empty() {
        errors.add(Field::Password, Message::PasswordMissing);
    }
    if !form.captcha_id.is_empty() && form.captcha_answer.expose().trim().is_empty() {
        errors.add(Field::CaptchaAnswer, Message::CaptchaMissing);
    }
    login.filter(|_| errors.is_empty()).ok_or(errors)
}
