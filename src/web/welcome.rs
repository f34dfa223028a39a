//! `/welcome/{token}` and `POST /api/v1/welcome`: an invitation is taken up with a password, and with a name if it makes the
//! account. Only sending the form does anything: programs that look at links in messages use none up.

use actix_web::HttpResponse;
use actix_web::web::{Json, Path};
use askama::Template;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{FirstFactor, Invitation, InvitationToken, Username};
use crate::captcha::CaptchaForm;
use crate::login::{Password, is_admitted};
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReach, FormReply, GuardedFields, Notice, SentForm, form_page};
use crate::web::http::describe::{ATTEMPT, NewPassword, UserName};
use crate::web::http::{
    ApiRequest, CaptchaSolution, Field, FieldErrors, Flash, Message, PageRequest, Problem, SecretField,
    Services, ServicesData, WebResult,
};
use crate::web::register::{Newcomer, register};
use crate::web::session::{UserBody, welcome, welcome_program};

const FORM: CaptchaForm = CaptchaForm::Register;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WelcomeForm {
    /// Not looked at if the account has a name.
    login: String,
    password: SecretField,
    #[serde(flatten)]
    guarded: GuardedFields,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AcceptedInvitation, example = json!({
    "token": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "new_password": "correct horse battery staple"
}))]
pub struct WelcomeBody {
    /// The end of the link, after `/welcome/`.
    #[schema(value_type = String)]
    token: SecretField,
    /// Required by an invitation that makes an account, and refused by one to an account that has a name.
    #[schema(value_type = Option<UserName>)]
    login: Option<String>,
    #[schema(value_type = NewPassword)]
    new_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Finds it, with one answer to what is unknown, used, revoked or expired.
async fn find(services: &Services, token: &str) -> Result<Invitation, Problem> {
    let token = InvitationToken::parse(token).ok_or(Problem::InvitationEnded)?;
    services.invitations.find(&token).await?.ok_or(Problem::InvitationEnded)
}

/// `GET /welcome/{token}`
pub async fn show(visit: PageRequest, token: Path<String>, services: ServicesData) -> WebResult {
    let invitation = find(&services, &token).await?;
    let page = WelcomePage::new(&visit, &token, &invitation);
    if !is_admitted(&visit.live(&services), Some(&invitation)) {
        return Ok(page.again(Notice::REGISTRATION_CLOSED, CaptchaBlock::Absent).respond(&visit));
    }
    Ok(page.respond(&visit))
}

/// `POST /welcome/{token}`
pub async fn submit(
    visit: PageRequest,
    token: Path<String>,
    form: SentForm,
    services: ServicesData,
) -> WebResult {
    let act = async move |visit, form, services| submit_once(visit, &token, form, services).await;
    form.once(visit, services, FormReach::AnyInstance, act).await
}

async fn submit_once(
    visit: PageRequest,
    token: &str,
    form: WelcomeForm,
    services: ServicesData,
) -> WebResult {
    // First: a page of another site does not learn whether an invitation is good.
    if !visit.admits_form(&form.guarded.csrf_token) {
        return Err(Problem::Csrf.into());
    }
    let live = visit.live(&services);
    let invitation = find(&services, token).await?;
    let page = WelcomePage::new(&visit, token, &invitation);
    let show = |notice: Notice, captcha| {
        let login = form.login.chars().take(256).collect();
        WelcomePage { login, ..page.clone() }.again(notice, captcha).respond(&visit)
    };
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    let parse = |errors: &mut FieldErrors| {
        let login = match &invitation.account {
            Some(account) => Some(account.login.clone()),
            None => errors.take(Field::Login, Username::chosen(&form.login).map_err(Message::from)),
        };
        errors.take(Field::Password, Password::check(form.password.expose()).map_err(Message::from));
        login
    };
    let login = reply.read(&form.guarded, parse).await?;
    let newcomer = Newcomer::invited(login, invitation.clone());
    let account = register(&reply.actor(&form.guarded), &newcomer, &form.password).await;
    let account = reply.told(account).await?;
    let flash = Some(Flash::Invited);
    let response = welcome(&visit, &services, &account, None, flash, FirstFactor::Password).await?;
    // There is none if the new password was already reset. The user can sign in with the reset one.
    Ok(response.unwrap_or_else(|| visit.see_other("/login", None)))
}

/// Take up an invitation, and sign in
///
/// Sets the first password of the account that an administrator has made, or makes an account. An invitation to one account
/// is good once; one that is unknown, used, revoked or expired is answered alike.
#[utoipa::path(
    post,
    path = "/api/v1/welcome",
    operation_id = "acceptInvitation",
    tag = "sign-in",
    request_body = WelcomeBody,
    responses((
        status = 200,
        description = "Signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, "invitation-ended", "login-taken", "registration-closed", "factor-required", "busy"])))
)]
pub async fn api(body: Json<WelcomeBody>, call: ApiRequest) -> WebResult {
    let invitation = find(&call.services, body.token.expose()).await?;
    let mut errors = FieldErrors::default();
    let login = match (&invitation.account, body.login.as_deref()) {
        (Some(account), None) => Some(account.login.clone()),
        (Some(_), Some(_)) => {
            errors.add(Field::Login, Message::LoginGiven);
            None
        }
        (None, typed) => {
            let parsed = Username::chosen(typed.unwrap_or_default());
            errors.take(Field::Login, parsed.map_err(Message::from))
        }
    };
    let password = Password::check(body.new_password.expose()).map_err(Message::from);
    errors.take(Field::NewPassword, password);
    let login = crate::web::http::api::invalid_unless(login, &errors)?;
    let newcomer = Newcomer::invited(login, invitation);
    let actor = call.actor(FORM, body.captcha.as_ref());
    let account = register(&actor, &newcomer, &body.new_password).await;
    let account = call.told(FORM, account).await?;
    let made = welcome_program(&call, &account, FirstFactor::Password, HttpResponse::Ok()).await?;
    Ok(made.ok_or(Problem::Unauthenticated)?)
}

#[derive(Template, Clone)]
#[template(path = "pages/welcome.html")]
pub struct WelcomePage {
    pub form: FormPage,
    action: String,
    /// The name of the account; None if one is chosen.
    given: Option<Username>,
    /// The name as typed.
    login: String,
}

form_page!(WelcomePage);

impl WelcomePage {
    fn new(visit: &PageRequest, token: &str, invitation: &Invitation) -> Self {
        let action = format!("/welcome/{token}");
        let given = invitation.account.as_ref().map(|account| account.login.clone());
        let form = FormPage::new(visit, &action, None, None);
        Self { form, action, given, login: String::new() }
    }

    fn focus(&self) -> &'static str {
        let first = if self.given.is_none() && self.login.is_empty() { "login" } else { "password" };
        self.form.focus(first)
    }

    fn login_hint(&self) -> String {
        self.layout.with("register.login-hint", &crate::accounts::LONGEST_LOGIN.to_string()).into_owned()
    }
}
