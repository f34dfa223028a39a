//! `/confirm`: who is signed in proves it again, and goes on to where that was asked for, as to an application.

use actix_web::HttpResponse;
use actix_web::web::Query;
use askama::Template;
use serde::Deserialize;

use super::factors::FORM;
use crate::accounts::{AuthenticatedSession, Factor};
use crate::config::{AppFactor, LiveSettings};
use crate::oidc::request_at;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReply, GuardedFields, NextFields, Notice, form_page};
use crate::web::http::{Field, Next, PageRequest, SecretField, Services, ServicesData, WebResult};
use crate::web::second_step::{FactorFields, renewed, step_up_by_form};
use crate::web::session::{self, CONFIRM, OwnersForm, SignedIn};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StepUpForm {
    #[serde(flatten)]
    factor: FactorFields,
    current_password: SecretField,
    #[serde(flatten)]
    to: NextFields,
    #[serde(flatten)]
    guarded: GuardedFields,
}

/// What is asked for; None if nothing is left to prove.
fn asked(
    visit: &PageRequest,
    services: &Services,
    live: &LiveSettings,
    who: &AuthenticatedSession,
    next: Option<&Next>,
) -> Option<AppFactor> {
    if let Some((asked, request)) = next.and_then(|next| request_at(next.as_str(), &live.apps)) {
        return request.lacks(who, asked.app, visit.now()).map(|lacking| lacking.factor);
    }
    match next.and_then(Next::app) {
        Some(app) => session::lacked(visit, live, who, app),
        None => (!services.sessions.is_confirmed(&who.session)).then_some(AppFactor::Second),
    }
}

/// A one-time password is changed before everything else, but for the factor that this takes where there is one.
const fn has_to_change_first(who: &AuthenticatedSession) -> bool {
    who.account.must_change_password && who.session.strongest.is_none()
}

fn go_on(visit: &PageRequest, next: Option<&Next>) -> HttpResponse {
    visit.see_other(next.unwrap_or(&Next::home()).as_str(), None)
}

pub async fn show(
    visit: PageRequest,
    SignedIn(who): SignedIn,
    query: Query<NextFields>,
    services: ServicesData,
) -> WebResult {
    if has_to_change_first(&who) {
        return Ok(visit.change_password_first(CONFIRM));
    }
    let live = visit.live(&services);
    let next = query.target(&visit, &live);
    match asked(&visit, &services, &live, &who, next.as_ref()) {
        Some(needed) => Ok(StepUpPage::new(&visit, &who, next, needed).respond(&visit)),
        None => Ok(go_on(&visit, next.as_ref())),
    }
}

pub async fn submit(visit: PageRequest, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, submit_once).await
}

async fn submit_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: StepUpForm,
    services: ServicesData,
) -> WebResult {
    if has_to_change_first(&who) {
        return Ok(visit.change_password_first(CONFIRM));
    }
    let live = visit.live(&services);
    let next = form.to.target(&visit, &live);
    let Some(needed) = asked(&visit, &services, &live, &who, next.as_ref()) else {
        return Ok(go_on(&visit, next.as_ref()));
    };
    let page = StepUpPage::new(&visit, &who, next.clone(), needed);
    let show = |notice, captcha| page.clone().again(notice, captcha).respond(&visit);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    let (whose, password) = ((&who.session, &who.account), (Field::CurrentPassword, &form.current_password));
    let factor = step_up_by_form(&reply, &form.guarded, whose, &form.factor, password).await?;
    let is_passkey = factor.as_ref().is_some_and(|proof| proof.factor == Factor::Passkey);
    if needed == AppFactor::Passkey && !is_passkey {
        return Ok(reply.plain(Notice::None));
    }
    renewed(&visit, &services, factor, go_on(&visit, next.as_ref())).await
}

#[derive(Template, Clone)]
#[template(path = "pages/step_up.html")]
pub struct StepUpPage {
    pub form: FormPage,
    pub login: String,
    /// The confirmation is by this second factor or a weaker one, not by the password.
    strongest: Option<Factor>,
    /// A code is not enough.
    needs_passkey: bool,
}

form_page!(StepUpPage);

impl StepUpPage {
    fn new(visit: &PageRequest, who: &AuthenticatedSession, next: Option<Next>, needed: AppFactor) -> Self {
        let login = who.account.login.as_str();
        Self {
            form: FormPage::new(visit, CONFIRM, Some(login), next),
            login: login.to_owned(),
            strongest: who.session.strongest,
            needs_passkey: needed == AppFactor::Passkey,
        }
    }

    fn focus(&self) -> &'static str {
        self.form.focus(if self.strongest.is_some() { "code" } else { "current_password" })
    }
}
