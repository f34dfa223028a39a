//! `/admin/confirm` and `POST /api/v1/admin/confirm`: the password, confirmed before something is changed; and asked for
//! between a form of the console and its change, so that no input is lost.

use std::future::Future;
use std::time::Duration;

use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::Deserialize;
use serde_json::json;

use crate::accounts::{Factor, SessionToken};
use crate::captcha::CaptchaForm;
use crate::web::captcha::CaptchaBlock;
use crate::web::console::guard::{Admin, AdminForm, AdminRequest, CONFIRM, Permitted};
use crate::web::form::{FormPage, FormReply, GuardedFields, NextFields, Notice, form_page, parse};
use crate::web::http::describe::{ATTEMPT, PASSWORD};
use crate::web::http::error_page::problem_page;
use crate::web::http::{
    ApiRequest, Field, Next, PageRequest, Problem, SecretField, UnreadBody, WebError, WebResult,
};
use crate::web::second_step::{ConfirmBody, FactorFields, renew, step_up_by_form};

const CONSOLE: &str = "/admin";

/// Confirm the password before a change
///
/// An administrator changes something only if the session has confirmed the password, or a second factor where the account
/// has one, within `[session] confirm`, by default 15 minutes. A sign-in by password counts as one. The password is verified
/// as at sign-in, and the same limits count it.
#[utoipa::path(
    post,
    path = "/api/v1/admin/confirm",
    operation_id = "confirmPassword",
    tag = "admin",
    request_body = ConfirmBody,
    responses((
        status = 204,
        description = "Confirmed. The session has a new token, and the old one is invalid.",
        headers(("SessionCookie"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, PASSWORD, "invalid-factor", "step-up-required"])))
)]
pub async fn api_submit(
    permitted: Permitted,
    request: HttpRequest,
    body: UnreadBody<ConfirmBody>,
) -> WebResult {
    let (admin, body) = permitted.read(body).await?;
    let call = ApiRequest::admit(&request)?;
    let session = admin.session().ok_or(Problem::Forbidden)?;
    let confirmed = body.confirm(&call, session, &admin.account).await?;
    admin.did("confirm", &json!({}));
    Ok(confirmed)
}

/// `POST /admin/confirm`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfirmForm {
    password: SecretField,
    /// Instead, where the account asks for a second factor.
    #[serde(flatten)]
    factor: FactorFields,
    next: String,
    #[serde(flatten)]
    guarded: GuardedFields,
}

/// `GET /admin/confirm`
pub async fn show(request: AdminRequest, query: Query<NextFields>) -> WebResult {
    let next = parse_next(&query.next);
    if request.admin.is_confirmed() {
        return Ok(request.visit.see_other(place(next.as_ref()), None));
    }
    Ok(ConfirmPage::of(&request.visit, &request.admin, next).respond(&request.visit))
}

/// `POST /admin/confirm`. The same limits count the password as at sign-in.
pub async fn submit(posted: AdminForm) -> WebResult {
    let (request, form) = (&posted.request, parse::<ConfirmForm>(&posted.pairs)?);
    let next = parse_next(&form.next);
    let page = || ConfirmPage::of(&request.visit, &request.admin, next.clone());
    let token = confirm(request, &form, &page).await?;
    let answer = request.visit.see_other(place(next.as_ref()), None);
    Ok(with_session(&request.visit, &token, request.services.session_lasts, Ok(answer)))
}

/// The session's new token, after the password was verified; otherwise `page` again.
async fn confirm(
    request: &AdminRequest,
    form: &ConfirmForm,
    page: &dyn Fn() -> ConfirmPage,
) -> Result<SessionToken, WebError> {
    let AdminRequest { visit, services, admin } = request;
    let live = visit.live(services);
    let show = |notice, captcha: CaptchaBlock| page().again(notice, captcha).respond(visit);
    let reply = FormReply { visit, services, live: &live, form: CaptchaForm::PasswordChange, show: &show };
    let whose = (admin.session().ok_or(Problem::Forbidden)?, &admin.account);
    let password = (Field::Password, &form.password);
    let factor = step_up_by_form(&reply, &form.guarded, whose, &form.factor, password).await?;
    let fresh = renew(visit, services, factor).await?.ok_or_else(|| visit.see_other("/login", None))?;
    admin.did("confirm", &json!({}));
    Ok(fresh)
}

/// Rejects this page itself as a target.
fn parse_next(text: &str) -> Option<Next> {
    Next::parse(text).filter(|next| next.as_str().split(['?', '#']).next() != Some(CONFIRM))
}

fn place(next: Option<&Next>) -> &str {
    next.map_or(CONSOLE, Next::as_str)
}

/// Does what a form of ours asks for if the password was confirmed recently or comes with this form. Otherwise answers with
/// the page that asks for the password and carries the form to where it was sent.
pub async fn confirmed<const LIMIT: usize>(
    posted: &AdminForm<LIMIT>,
    act: impl Future<Output = WebResult>,
) -> WebResult {
    let AdminForm { request, pairs, .. } = posted;
    let AdminRequest { visit, services, admin } = request;
    if !posted.is_ours() {
        return Err(Problem::Csrf.into());
    }
    if admin.is_confirmed() {
        return act.await;
    }
    let page = || ConfirmPage {
        carried: Some(CarriedForm::new(visit.request().path(), pairs)),
        ..ConfirmPage::of(visit, admin, None)
    };
    if !pairs.iter().any(|(name, _)| name == "password" || name == "code") {
        return Ok(page().respond(visit));
    }
    let form = parse::<ConfirmForm>(pairs).unwrap_or_default();
    let token = confirm(request, &form, &page).await?;
    Ok(with_session(visit, &token, services.session_lasts, act.await))
}

/// The answer with the token that confirming renewed, also if it is an error: the token before it is void.
fn with_session(
    visit: &PageRequest,
    token: &SessionToken,
    session_lasts: Duration,
    answer: WebResult,
) -> HttpResponse {
    let mut response = match answer {
        Ok(response) => response,
        Err(WebError::Answer(response)) => *response,
        Err(WebError::Problem(problem)) => problem_page(visit, &problem),
    };
    visit.begin_session(&mut response, token, session_lasts);
    response
}

/// A form that is submitted again to its target after the password is confirmed.
pub struct CarriedForm {
    action: String,
    fields: Vec<(String, String)>,
}

impl CarriedForm {
    /// Every field of the form, except those that the page asks for itself.
    pub fn new(action: &str, pairs: &[(String, String)]) -> Self {
        const OWN: [&str; 9] = [
            "csrf_token",
            "password",
            "code",
            "recovery",
            "passkey",
            "captcha_id",
            "captcha_answer",
            "captcha_altcha",
            "captcha_refresh",
        ];
        let fields = pairs.iter().filter(|(name, _)| !OWN.contains(&name.as_str())).cloned().collect();
        Self { action: action.to_owned(), fields }
    }
}

#[derive(Template)]
#[template(path = "pages/confirm.html")]
pub struct ConfirmPage {
    pub form: FormPage,
    /// It runs after the password is confirmed.
    pub carried: Option<CarriedForm>,
    /// The confirmation is by this second factor or a weaker one, not by the password.
    pub strongest: Option<Factor>,
}

form_page!(ConfirmPage);

impl ConfirmPage {
    /// The form as it is first shown.
    pub fn new(visit: &PageRequest, user: &str, next: Option<Next>) -> Self {
        Self { form: FormPage::new(visit, CONFIRM, Some(user), next), carried: None, strongest: None }
    }

    fn of(visit: &PageRequest, admin: &Admin, next: Option<Next>) -> Self {
        let strongest = admin.session().and_then(|session| session.strongest);
        Self { strongest, ..Self::new(visit, admin.login(), next) }
    }

    /// A page with a wait sets no focus, so that its message is read first.
    fn focus(&self) -> &'static str {
        match (self.notice.wait(), self.strongest) {
            (Some(_), _) => "",
            (None, Some(_)) => "code",
            (None, None) => "password",
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use actix_web::web::Data;
    use url::Url;

    use super::*;
    use crate::clock::{Clock, Micros};
    use crate::entropy::Entropy;
    use crate::secret::MasterKey;
    use crate::web::http::{Problem, TrustedProxies, WebContext};

    #[test]
    fn an_error_after_confirming_carries_the_new_session_too() {
        let (url, master) = (Url::parse("http://127.0.0.1:8080").unwrap(), MasterKey::from_bytes([3; 32]));
        let clock = Clock::manual(Micros(0));
        let edge = WebContext::new(&url, TrustedProxies::default(), &master, clock, Entropy::seeded(9));
        let request = TestRequest::get().peer_addr("203.0.113.77:4711".parse().unwrap()).to_http_request();
        let visit = PageRequest::of(&request, Data::new(edge));
        let token = SessionToken::parse(&"A".repeat(43)).unwrap();
        let answer = with_session(&visit, &token, Duration::from_secs(60), Err(Problem::Broken.into()));
        assert_eq!(answer.status(), 503);
        assert!(answer.cookies().any(|cookie| cookie.name() == visit.cookies().session_name));
    }
}
