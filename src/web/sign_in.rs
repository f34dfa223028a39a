//! `/login` and `POST /api/v1/login`: signing in with a name and a password.

use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use askama::Template;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::Username;
use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::login::{Password, SignedInOwner};
use crate::oidc::request_at;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{
    FormPage, FormReach, FormReply, GuardedFields, NextFields, Notice, SentForm, form_page,
};
use crate::web::http::api::invalid_unless;
use crate::web::http::describe::{ATTEMPT, CurrentPassword, UserName};
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, CountedAs, Field, FieldErrors, Message, Next,
    PageRequest, Problem, SecretField, ServicesData, WebResult,
};
use crate::web::passkeys;
use crate::web::session::{UserBody, signed_in, unless_signed_in, welcome, welcome_program};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoginForm {
    pub login: String,
    pub password: SecretField,
    /// Instead of both.
    pub passkey: SecretField,
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Credentials, example = json!({ "login": "ada", "password": "correct horse battery staple" }))]
pub struct LoginBody {
    #[schema(value_type = UserName)]
    login: String,
    #[schema(value_type = CurrentPassword)]
    password: SecretField,
    captcha: Option<CaptchaSolution>,
}

fn parse(login: &str, password: &SecretField, errors: &mut FieldErrors) -> Option<(Username, Password)> {
    let login = errors.take(Field::Login, Username::parse(login).map_err(Message::from));
    let password = Password::attempt(password.expose()).map_err(Message::from);
    login.zip(errors.take(Field::Password, password))
}

async fn sign_in(by: &Actor<'_>, shown: (Username, Password)) -> Result<Box<SignedInOwner>, ActionRefusal> {
    let solved = by.redeem().await?;
    by.try_password(shown, None, solved).await
}

/// The name that a client of OpenID Connect expects, if anybody may have it.
fn hinted(next: &Next, live: &LiveSettings) -> Option<String> {
    let (_, request) = request_at(next.as_str(), &live.apps)?;
    Username::parse(&request.login_hint?).ok().map(|name| name.as_str().to_owned())
}

/// `GET /login`. Anyone who is signed in already goes on from here.
pub async fn show(visit: PageRequest, query: Query<NextFields>, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let page = |visit: &PageRequest, next: Option<Next>, why, captcha| {
        let login = next.as_ref().and_then(|next| hinted(next, &live)).unwrap_or_default();
        let form = FormPage::new(visit, "/login", None, next);
        LoginPage { form, login }.again(why, captcha).respond(visit)
    };
    // A browser that is known nowhere here would be asked anyway.
    let asks = live.access.challenges_everyone(visit.now()).is_some() && visit.known_devices().is_empty();
    if asks && signed_in(&visit, &services).await?.is_none() {
        let (form, next) = (CaptchaForm::Login, query.target(&visit, &live));
        let show = |notice, captcha| page(&visit, next.clone(), notice, captcha);
        let reply = FormReply { visit: &visit, services: &services, live: &live, form, show: &show };
        return Ok(reply.challenged(Notice::None).await);
    }
    let page = |visit: &PageRequest, next, why| page(visit, next, why, CaptchaBlock::Absent);
    unless_signed_in(visit, &services, &query, page).await
}

pub async fn submit(visit: PageRequest, form: SentForm, services: ServicesData) -> WebResult {
    form.once(visit, services, FormReach::ThisProcess, submit_once).await
}

async fn submit_once(visit: PageRequest, form: LoginForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let show = |notice, captcha| {
        let page = FormPage::new(&visit, "/login", None, form.to.target(&visit, &live));
        // The name as typed. A password is never shown again.
        let login = form.login.chars().take(256).collect();
        LoginPage { form: page, login }.again(notice, captcha).respond(&visit)
    };
    let challenge = CaptchaForm::Login;
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: challenge, show: &show };
    let next = form.to.target(&visit, &live);
    if !form.passkey.expose().is_empty() {
        let parse = |errors: &mut _| passkeys::parse(form.passkey.expose(), errors);
        let shown = reply.read(&form.guarded, parse).await?;
        let signed_in = passkeys::sign_in(&reply.actor(&form.guarded), &shown).await;
        let (account, proof) = reply.told(signed_in).await?;
        let response = reply.told(welcome(&visit, &services, &account, next, None, proof).await).await?;
        // There is none if the account was changed meanwhile.
        return reply.told(response.ok_or(Problem::InvalidPasskey)).await;
    }
    let parsed = reply.read(&form.guarded, |errors| parse(&form.login, &form.password, errors)).await?;
    let owner = reply.told(sign_in(&reply.actor(&form.guarded), parsed).await).await?;
    let response = reply.told(welcome(&visit, &services, &owner, next, None, owner.shown()).await).await?;
    // There is none if the password was changed while this one was verified.
    reply.told(response.ok_or(Problem::WRONG_LOGIN)).await
}

/// Sign in with a name and a password
///
/// Before the password is verified, the attempt is counted on the account, or on the device if the cookie `gh_device`
/// shows one that the account knows, and on the client's address and network; a success is given back. Past a rule
/// that asks for a CAPTCHA no password is verified without a solved challenge; past a rule that blocks, none at all.
#[utoipa::path(
    post,
    path = "/api/v1/login",
    operation_id = "signIn",
    tag = "sign-in",
    request_body = LoginBody,
    responses((
        status = 200,
        description = "Signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"), ("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, "invalid-credentials", "factor-required", "account-frozen", "busy"])))
)]
pub async fn api(body: Json<LoginBody>, call: ApiRequest) -> WebResult {
    const FORM: CaptchaForm = CaptchaForm::Login;
    let mut errors = FieldErrors::default();
    let parsed = invalid_unless(parse(&body.login, &body.password, &mut errors), &errors)?;
    let owner = sign_in(&call.actor(FORM, body.captcha.as_ref()), parsed).await;
    let owner = call.told(FORM, owner).await?;
    let response = welcome_program(&call, &owner, owner.shown(), HttpResponse::Ok()).await?;
    let response = call.told(FORM, response.ok_or(Problem::WRONG_LOGIN)).await?;
    Ok(call.with_quota(CountedAs::Password, response, None))
}

#[derive(Template)]
#[template(path = "pages/login.html")]
pub struct LoginPage {
    pub form: FormPage,
    pub login: String,
}

form_page!(LoginPage);

impl LoginPage {
    fn focus(&self) -> &'static str {
        self.form.focus(if self.login.is_empty() { "login" } else { "password" })
    }
}
