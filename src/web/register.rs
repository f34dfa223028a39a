//! `/register` and `POST /api/v1/register`: a new account with a name, a password, and optionally a phone number, or an
//! e-mail address where one is required.

use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use askama::Template;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{Account, FirstFactor, Invitation, Username};
use crate::captcha::CaptchaForm;
use crate::codes::Recipient;
use crate::config::{LiveSettings, RegistrationProof, ResetByMail};
use crate::login::{Password, RegistrationOutcome, RegistrationRequest};
use crate::mail::Mailbox;
use crate::message::{MessageCode, Purpose};
use crate::web::captcha::CaptchaBlock;
use crate::web::code::calls::{parse_sent_email, parse_sent_phone};
use crate::web::code::{Asks, CodeFields, CodeStage, CodeStep, is_entry, send_step, step_of};
use crate::web::form::{
    FormPage, FormReach, FormReply, GuardedFields, NextFields, Notice, SentForm, form_page,
};
use crate::web::http::api::invalid_unless;
use crate::web::http::describe::{
    ATTEMPT, CodeDigits, EmailAddress, MobileNumber, NUMBER, NewPassword, UserName,
};
use crate::web::http::extract;
use crate::web::http::page::language;
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, CountedAs, Field, FieldErrors, Flash, Locale, Message,
    Next, PageRequest, Problem, SecretField, ServicesData, WebResult,
};
use crate::web::session::{UserBody, unless_signed_in, welcome, welcome_program};

const FORM: CaptchaForm = CaptchaForm::Register;
/// Where a code is entered that somebody has.
const ENTRY: &str = "/register?code";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RegisterForm {
    pub login: String,
    pub password: SecretField,
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAccount, example = json!({ "login": "ada", "password": "correct horse battery staple" }))]
pub struct RegisterBody {
    #[schema(value_type = UserName)]
    login: String,
    #[schema(value_type = NewPassword)]
    password: SecretField,
    /// Together with the code that was sent to it, or neither.
    #[schema(value_type = Option<MobileNumber>)]
    phone: Option<SecretField>,
    /// Where an account needs an address, and only there: with the code that was sent to it.
    #[schema(value_type = Option<EmailAddress>)]
    email: Option<SecretField>,
    #[schema(value_type = Option<CodeDigits>)]
    code: Option<SecretField>,
    captcha: Option<CaptchaSolution>,
}

/// Somebody who wants an account, or to enter that of an invitation.
pub struct Newcomer {
    login: Username,
    proof: Option<(Recipient, MessageCode)>,
    invitation: Option<Invitation>,
    locale: Locale,
}

impl Newcomer {
    fn new(login: Username, proof: Option<(Recipient, MessageCode)>, locale: Locale) -> Self {
        Self { login, proof, invitation: None, locale }
    }

    pub fn invited(login: Username, invitation: Invitation) -> Self {
        Self { invitation: Some(invitation), ..Self::new(login, None, Locale::default()) }
    }
}

/// What newcomers prove besides a name and a password: an address where accounts need one, else a number if they like.
fn asks(live: &LiveSettings) -> Asks {
    if live.registration.requires(RegistrationProof::Email) { Asks::Email } else { Asks::Phone }
}

pub async fn register(
    by: &Actor<'_>,
    Newcomer { login, proof, invitation, locale }: &Newcomer,
    password: &SecretField,
) -> Result<Box<Account>, ActionRefusal> {
    let solved = by.redeem().await?;
    let request = RegistrationRequest {
        login,
        password: password.expose(),
        proof: proof.as_ref().map(|(to, code)| (to, code)),
        locale: locale.code(),
        invitation: invitation.as_ref(),
        origin: &by.origin,
        browser: by.browser().map(|browser| &browser[..]),
        solved,
    };
    match by.services.registration.register(by.live, request).await? {
        RegistrationOutcome::Made(account) => Ok(account),
        RegistrationOutcome::Closed => Err(Problem::RegistrationClosed.into()),
        RegistrationOutcome::InvitationEnded => Err(Problem::InvitationEnded.into()),
        RegistrationOutcome::LoginTaken => Err(Problem::LoginTaken.into()),
        RegistrationOutcome::PhoneTaken => Err(Problem::PhoneTaken.into()),
        RegistrationOutcome::EmailTaken => Err(Problem::EmailTaken.into()),
        RegistrationOutcome::WrongCode => Err(Problem::InvalidCode.into()),
        RegistrationOutcome::Unfit(unfit) => Err(Problem::at(Field::Password, unfit.into()).into()),
        RegistrationOutcome::Denied(denied) => Err(Problem::denied(denied, CountedAs::Account).into()),
    }
}

pub async fn show(visit: PageRequest, query: Query<NextFields>, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let is_open = live.registration.mode.is_open();
    let page = |visit: &PageRequest, next, _| {
        let asks = asks(&live);
        // Only mails lead to it, and only where accounts need an address.
        let in_hand = asks == Asks::Email && is_entry(visit);
        let form = FormPage::new(visit, if in_hand { ENTRY } else { "/register" }, None, next);
        let step = CodeStep { asks, in_hand, ..CodeStep::asking("") };
        let page = RegisterPage { form, login: String::new(), step };
        let notice = if is_open { Notice::None } else { Notice::REGISTRATION_CLOSED };
        page.again(notice, CaptchaBlock::Absent).respond(visit)
    };
    unless_signed_in(visit, &services, &query, page).await
}

pub async fn submit(visit: PageRequest, form: SentForm, services: ServicesData) -> WebResult {
    form.once(visit, services, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: RegisterForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let asks = asks(&live);
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = FormPage::new(&visit, "/register", None, form.to.target(&visit, &live));
        let login = form.login.chars().take(256).collect();
        RegisterPage { form: page, login, step: CodeStep { asks, ..step } }
            .again(notice, captcha)
            .respond(&visit)
    };
    let show = |notice: Notice, captcha| {
        let step = match notice.errors().of(asks.field()) {
            Some(Message::PhoneTaken | Message::EmailTaken | Message::NoCodesSent) => CodeStep::asking(""),
            // The other step came from a page that still asked for a number.
            Some(_) if asks == Asks::Email && form.fields.in_hand.is_none() => {
                CodeStep::asking(form.fields.typed())
            }
            _ => step_of(&form.fields, visit.now()),
        };
        page(step, notice, captcha)
    };
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if !live.registration.mode.is_open() && visit.admits_form(&form.guarded.csrf_token) {
        return Ok(reply.plain(Notice::REGISTRATION_CLOSED));
    }
    match stage(asks, &form) {
        Some(_) if asks == Asks::Phone && !visit.edge.sends_codes => {
            return Ok(reply.invalid(Field::Phone, Message::NoCodesSent));
        }
        Some(CodeStage::AnotherNumber) => return Ok(reply.plain(Notice::None)),
        Some(CodeStage::Send) if form.fields.send.is_some() || passes(&live, &form) => {
            let (step, notice) =
                send_step(&reply, (asks, Purpose::Register), &form.fields, &form.guarded).await?;
            return Ok(page(step, notice, CaptchaBlock::Absent));
        }
        Some(CodeStage::Send | CodeStage::Entry) | None => {}
    }
    let parsed = reply.read(&form.guarded, |errors| parse(&live, &form, visit.locale, errors)).await?;
    let account = reply.told(register(&reply.actor(&form.guarded), &parsed, &form.password).await).await?;
    let (next, flash) = (form.to.target(&visit, &live), Some(Flash::Registered));
    let response = welcome(&visit, &services, &account, next, flash, FirstFactor::Password).await?;
    // There is none if the new password was already reset. The user can sign in with the reset one.
    Ok(response.unwrap_or_else(|| visit.see_other("/login", None)))
}

/// The stage of the code; None if none is needed: no number is given, and no address required.
fn stage(asks: Asks, form: &RegisterForm) -> Option<CodeStage> {
    let named = asks == Asks::Email
        || !form.fields.phone.expose().trim().is_empty()
        || !form.fields.code.expose().is_empty();
    named.then(|| CodeStage::of(&form.fields))
}

/// Whether all other fields are valid, so that no message is sent for a form that is shown again anyway. The
/// password is asked for together with the code.
fn passes(live: &LiveSettings, form: &RegisterForm) -> bool {
    let mut errors = FieldErrors::default();
    parse_login(form, &mut errors);
    asks(live).parse(live, &form.fields, &mut errors);
    errors.is_empty()
}

/// Every mistake at once.
fn parse(
    live: &LiveSettings,
    form: &RegisterForm,
    locale: Locale,
    errors: &mut FieldErrors,
) -> Option<Newcomer> {
    let (login, asks) = (parse_login(form, errors), asks(live));
    let proof = match stage(asks, form) {
        None => Some(None),
        Some(CodeStage::Entry) => asks.parse_both(live, &form.fields, errors).map(Some),
        Some(CodeStage::Send | CodeStage::AnotherNumber) => {
            asks.parse(live, &form.fields, errors);
            return None;
        }
    };
    errors.take(Field::Password, Password::check(form.password.expose()).map_err(Message::from));
    login.zip(proof).map(|(login, proof)| Newcomer::new(login, proof, locale))
}

fn parse_login(form: &RegisterForm, errors: &mut FieldErrors) -> Option<Username> {
    errors.take(Field::Login, Username::chosen(&form.login).map_err(Message::from))
}

/// Create an account, and sign in to it
///
/// Whether a number or an address belongs to another account is told only to a caller with its code. Input that is refused
/// does not use up the code.
#[utoipa::path(
    post,
    path = "/api/v1/register",
    operation_id = "register",
    tag = "sign-in",
    request_body = RegisterBody,
    responses((
        status = 201,
        description = "Created and signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, NUMBER, "invalid-email", "invalid-code", "login-taken", "phone-taken", "email-taken", "registration-closed", "busy"])))
)]
pub async fn api(body: Json<RegisterBody>, call: ApiRequest) -> WebResult {
    // Before the fields are looked at: the answer is one for every name.
    if !call.live.registration.mode.is_open() {
        return Err(Problem::RegistrationClosed.into());
    }
    let parsed = parse_body(&call, &body)?;
    let account = register(&call.actor(FORM, body.captcha.as_ref()), &parsed, &body.password).await;
    let account = call.told(FORM, account).await?;
    let made = welcome_program(&call, &account, FirstFactor::Password, HttpResponse::Created()).await?;
    Ok(made.ok_or(Problem::Unauthenticated)?)
}

/// Every mistake at once. That of a number alone is a problem of its own.
fn parse_body(call: &ApiRequest, body: &RegisterBody) -> Result<Newcomer, Problem> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::chosen(&body.login).map_err(Message::from));
    let proof = parse_proof(call, body, &mut errors);
    errors.take(Field::Password, Password::check(body.password.expose()).map_err(Message::from));
    match (&body.phone, &body.email, errors.iter().collect::<Vec<_>>().as_slice()) {
        (Some(phone), _, [(Field::Phone, message)]) if is_of_input(message) => {
            parse_sent_phone(&call.live, phone).map(drop)?;
        }
        (_, Some(email), [(Field::Email, message)]) if is_of_input(message) => {
            parse_sent_email(email).map(drop)?;
        }
        _ => {}
    }
    let locale = language(call.request().headers());
    let newcomer = login.zip(proof).map(|(login, proof)| Newcomer::new(login, proof, locale));
    invalid_unless(newcomer, &errors)
}

/// Whether the number or the address itself is wrong.
fn is_of_input(message: &Message) -> bool {
    !matches!(message, Message::NoCodesSent | Message::NotAskedHere)
}

/// Number or address, and code: both are needed, or neither where no address is required.
fn parse_proof(
    call: &ApiRequest,
    body: &RegisterBody,
    errors: &mut FieldErrors,
) -> Option<Option<(Recipient, MessageCode)>> {
    let RegisterBody { phone, email, code, .. } = body;
    let (to, asked) = match asks(&call.live) {
        Asks::Email if phone.is_some() => (Err(Message::NotAskedHere), Field::Phone),
        Asks::Email => {
            let parsed = |typed: &SecretField| Ok(Mailbox::parse(typed.expose())?.into());
            (email.as_ref().map_or(Err(Message::MailboxMissing), parsed), Field::Email)
        }
        _ if email.is_some() => (Err(Message::NotAskedHere), Field::Email),
        _ if phone.is_none() && code.is_none() => return Some(None),
        _ if !call.edge.sends_codes => (Err(Message::NoCodesSent), Field::Phone),
        _ => {
            let parsed = |typed: &SecretField| Ok(extract::parse_phone(&call.live, typed.expose())?.into());
            (phone.as_ref().map_or(Err(Message::PhoneMissing), parsed), Field::Phone)
        }
    };
    let to = errors.take(asked, to);
    let code = code.as_ref().ok_or(Message::CodeMissing);
    let code = code.and_then(|code| MessageCode::parse(code.expose()).ok_or(Message::CodeDigits));
    to.zip(errors.take(Field::Code, code)).map(Some)
}

#[derive(Template)]
#[template(path = "pages/register.html")]
pub struct RegisterPage {
    pub form: FormPage,
    pub login: String,
    pub step: CodeStep,
}

form_page!(RegisterPage);

impl RegisterPage {
    fn focus(&self) -> &'static str {
        self.form.focus(match self.step.second {
            _ if self.login.is_empty() => "login",
            Some(_) => "code",
            None if self.asks_address() || self.step.in_hand => "email",
            None => "password",
        })
    }

    /// Somebody who gives a number chooses the password in the next step, together with the code.
    fn asks_number(&self) -> bool {
        self.layout.sends_codes && self.step.is_first()
    }

    /// The page is the first step of a registration that needs an address. The password is chosen in the next.
    fn asks_address(&self) -> bool {
        self.step.asks == Asks::Email && self.step.is_first()
    }

    fn login_hint(&self) -> String {
        self.layout.with("register.login-hint", &crate::accounts::LONGEST_LOGIN.to_string()).into_owned()
    }
}
