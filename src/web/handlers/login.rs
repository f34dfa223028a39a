//! `/login`

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};

use crate::captcha;
use crate::config::Live;
use crate::login::{Attempt, Outcome, Password, Username};
use crate::web::challenge::Answered;
use crate::web::handlers::session::{client, signed_in, welcome};
use crate::web::handlers::{about_login, about_password, asker, broken, fresh_challenge};
use crate::web::message::{Field, FieldErrors, Message};
use crate::web::next::Next;
use crate::web::pages::forms::{LoginForm, NextQuery};
use crate::web::pages::login::{LoginPage, Notice};
use crate::web::services::{Services, Shared};
use crate::web::visit::Visit;
use crate::web::wait::Wait;

const FORM: captcha::Form = captcha::Form::Login;

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
    let form = form.into_inner();
    let live = services.live.snapshot();
    let page = Reply { visit: &visit, services: &services, live: &live, form: &form };
    if !visit.admits_form(&form.csrf_token) {
        return page.plain(Notice::Expired);
    }
    if form.captcha_refresh.is_some() {
        return page.challenged(Notice::Refreshed).await;
    }
    let (login, password) = match parse(&form) {
        Ok(parsed) => parsed,
        // Nothing was tried, and the answer, if any, was not looked at: a new image goes with it.
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
    let address = visit.client.subject().as_ref().to_vec();
    let attempt = Attempt { login, password, address, client: client(&visit), solved };
    let outcome = match services.sign_in.attempt(&live, attempt).await {
        Ok(outcome) => outcome,
        Err(error) => return broken(&visit, &error),
    };
    match outcome {
        Outcome::SignedIn(account) => {
            let welcomed = welcome(&visit, &services, &account, Next::parse(&form.next), None).await;
            welcomed.unwrap_or_else(|error| broken(&visit, &error))
        }
        Outcome::Rejected { captcha_required: false, .. } => page.plain(Notice::Rejected),
        Outcome::Rejected { captcha_required: true, .. } => page.challenged(Notice::Rejected).await,
        Outcome::Challenged { .. } => page.challenged(Notice::CaptchaNeeded).await,
        Outcome::Throttled { retry_after, .. } => page.wait(retry_after),
        Outcome::Busy { retry_after } => page.plain(Notice::Busy(Wait::new(visit.now(), retry_after))),
    }
}

/// The ways in which the form comes back.
struct Reply<'a> {
    visit: &'a Visit,
    services: &'a Services,
    live: &'a Live,
    form: &'a LoginForm,
}

impl Reply<'_> {
    fn page(&self, notice: Notice) -> LoginPage {
        LoginPage::new(self.visit, Next::parse(&self.form.next)).login(&self.form.login).notice(notice)
    }

    fn plain(&self, notice: Notice) -> HttpResponse {
        self.page(notice).respond(self.visit)
    }

    fn wait(&self, retry_after: std::time::Duration) -> HttpResponse {
        self.plain(Notice::Throttled(Wait::new(self.visit.now(), retry_after)))
    }

    async fn challenged(&self, notice: Notice) -> HttpResponse {
        let challenge = fresh_challenge(self.visit, self.services, self.live, FORM).await;
        self.page(notice).captcha(challenge).respond(self.visit)
    }
}

fn parse(form: &LoginForm) -> Result<(Username, Password), FieldErrors> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&form.login).map_err(about_login));
    let password = Password::attempt(form.password.expose()).map_err(about_password);
    let password = errors.take(Field::Password, password);
    if !form.captcha_id.is_empty() && form.captcha_answer.expose().trim().is_empty() {
        errors.add(Field::CaptchaAnswer, Message::CaptchaMissing);
    }
    match (login, password) {
        (Some(login), Some(password)) if errors.is_empty() => Ok((login, password)),
        _ => Err(errors),
    }
}
