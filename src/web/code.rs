//! Codes by SMS, for pages and API calls, for every purpose: two-step forms, a number and then its code
//! (`/login/code`, `/password/reset`, `/account/phone`; the registration form has the same fields), and
//! `POST /api/v1/sms/codes`.

use std::ops::Deref;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::HeaderMap;
use actix_web::web::Json;
use askama::Template;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;

use crate::captcha::{CaptchaAnswer, CaptchaForm};
use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::denied::Denied;
use crate::sms::{self, Phone, PhoneError, Purpose, SendOutcome, SendReceipt, SmsCode, TurnResult};
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReply, GuardedFields, NextFields, Notice};
use crate::web::http::describe::{self, ATTEMPT, BODY, MEMBER, MobileNumber, NUMBER};
use crate::web::http::extract::{self};
use crate::web::http::locale::{span_in_words, whole_seconds};
use crate::web::http::page::{language, set};
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, CountedAs, Field, FieldErrors, InputError, Locale,
    Message, Next, PageRequest, Problem, SecretField, Wait, WebResult,
};
use crate::web::session;

/// The fields for a phone number and its code. A form has two steps. The server keeps nothing of the first:
/// the browser sends it again with the second step, and it is checked again.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeFields {
    pub phone: SecretField,
    pub code: SecretField,
    /// Present if a code, or another code, is requested.
    pub send: Option<String>,
    /// Present if the user wants to enter another number.
    pub change: Option<String>,
    /// Unix seconds, for display: when another code may be requested.
    pub next_code: String,
    /// Unix seconds, for display: until when the code is valid. Set in the second step.
    pub good_until: String,
    /// For display: present if it is unknown whether the message was sent.
    pub unconfirmed: Option<String>,
    /// For display: present if codes are rationed.
    pub short: Option<String>,
}

/// `POST /login/code`, `POST /password/reset`, `POST /account/phone` and `POST /account/phone/remove`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeForm {
    /// Registration names this field `password`; there is only one password here.
    #[serde(alias = "password")]
    pub new_password: SecretField,
    /// Also required to change an account's number.
    pub current_password: SecretField,
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CodeRequest, example = json!({ "phone": "138 0013 8000", "purpose": "login" }))]
pub struct SendCodeBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    /// What the code is for. `verify` is for a user who is signed in.
    #[schema(schema_with = describe::purposes)]
    purpose: CodePurpose,
    captcha: Option<CaptchaSolution>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum CodePurpose {
    Login,
    Register,
    Reset,
    Verify,
}

impl From<CodePurpose> for Purpose {
    fn from(purpose: CodePurpose) -> Self {
        match purpose {
            CodePurpose::Login => Self::Login,
            CodePurpose::Register => Self::Register,
            CodePurpose::Reset => Self::Reset,
            CodePurpose::Verify => Self::Verify,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = CodeSent, example = json!({ "phone": "+86138****8000", "expires_in": 300, "resend_after": 60 }))]
struct CodeAccepted {
    /// In E.164, masked.
    phone: String,
    /// Seconds until the code expires.
    expires_in: u64,
    /// Seconds until another code can be sent to the number.
    resend_after: u64,
    /// Present if the gateway did not say whether it has the message. It is not sent again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = unknown)]
    delivery: Option<&'static str>,
    /// Present while codes are short, for everyone who solved a challenge: they go to numbers with accounts first,
    /// and the answer does not tell which number has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<bool>,
}

fn unknown() -> ObjectBuilder {
    describe::one_of(["unknown"])
}

/// Sends a code, unless the same request sent one. `challenged`: it may come with an answer that is used up.
async fn send(
    by: &Actor<'_>,
    message: sms::RequestedMessage,
    challenged: bool,
    answer: Option<CaptchaAnswer<'_>>,
) -> Result<SendReceipt, ActionRefusal> {
    let Actor { services, live, .. } = by;
    // Before the challenge is checked: the first of two requests has already used it up.
    let sending = match services.codes.turn(live, message, challenged).await? {
        TurnResult::Answered(sending) => sending,
        TurnResult::Mine(turn) => {
            let solved = by.redeem(answer).await?;
            turn.send(live, solved).await?
        }
    };
    match sending {
        SendOutcome::Sent(sent) => Ok(sent),
        SendOutcome::NotSent => Err(ActionRefusal::NotSent),
        SendOutcome::Denied(denied) => Err(ActionRefusal::Denied(denied, CountedAs::Message)),
    }
}

/// Send a code to a number
///
/// The answer is the same whether or not an account has the number. `verify` needs a session.
#[utoipa::path(
    post,
    path = "/api/v1/sms/codes",
    operation_id = "sendCode",
    tag = "sms",
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "The caller's name for this request, of visible ASCII. A repetition for the same number and purpose \
            gets the same answer and sends no second message while the code is valid.",
        min_length = 1,
        max_length = 64
    )),
    request_body = SendCodeBody,
    responses((
        status = 202,
        description = "Sent, or perhaps sent: see delivery. A browser without a cookie gets one; with it, its guesses at \
            the code are counted apart.",
        body = CodeAccepted,
        headers(("BrowserCookie"), ("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!([BODY, ATTEMPT, MEMBER, NUMBER])))
)]
pub async fn api(body: Json<SendCodeBody>, call: ApiRequest) -> WebResult {
    let purpose = Purpose::from(body.purpose);
    if purpose == Purpose::Verify {
        session::member(call.request()).await?;
    } else if call.is_denied() {
        return Err(Problem::Denied.into());
    }
    let phone = parse_sent_phone(&call.live, &body.phone)?;
    let headers = call.request().headers();
    let once = idempotency_key(headers)?;
    let (address, network) = (call.client.subject(), call.client.network());
    let locale = language(headers, call.edge.cookies).code();
    let (browser, named) = call.named_browser();
    let message = sms::RequestedMessage {
        browser: Some(browser.bytes().to_vec()),
        once: once.map(str::to_owned),
        ..sms::RequestedMessage::new(phone.clone(), purpose, locale)
    };
    let message = message.asked_from(address.as_ref(), network.as_ref());
    let answer = body.captcha.as_ref().map(CaptchaSolution::answer);
    match send(&call.actor(CaptchaForm::SmsCode), message, answer.is_some(), answer).await {
        Ok(sent) => {
            let mut response = HttpResponse::Accepted().json(accepted(&phone, sent));
            if let Some(cookie) = named {
                set(&mut response, cookie);
            }
            Ok(call.with_quota(CountedAs::Message, response, None))
        }
        Err(refusal) => Err(call.refused(CaptchaForm::SmsCode, refusal).await),
    }
}

fn accepted(phone: &Phone, sent: SendReceipt) -> CodeAccepted {
    let resend_after = resend_seconds(&sent);
    CodeAccepted {
        phone: phone.masked(),
        expires_in: whole_seconds(sent.expires_in),
        resend_after,
        delivery: (!sent.confirmed && !sent.short).then_some("unknown"),
        short: sent.short.then_some(true),
    }
}

/// Until another code can be sent.
pub fn resend_seconds(sent: &SendReceipt) -> u64 {
    // Rounded up: who comes back when told to is not too early, and a code that is good for five minutes
    // but for the time it took to send it is said to be good for five.
    if sent.resend_after == Duration::ZERO { 0 } else { whole_seconds(sent.resend_after) }
}

/// A number as a call sends it.
pub fn parse_sent_phone(live: &LiveSettings, typed: &SecretField) -> Result<Phone, Problem> {
    extract::parse_phone(live, typed.expose()).map_err(|error| match error {
        PhoneError::Missing | PhoneError::NotANumber | PhoneError::NotMobile => Problem::InvalidPhone,
        PhoneError::CountryNotAllowed => Problem::CountryNotAllowed,
    })
}

pub fn parse_sent_code(typed: &SecretField) -> Result<SmsCode, Problem> {
    let not_six = || Problem::invalid(&FieldErrors::one(Field::Code, Message::CodeDigits));
    SmsCode::parse(typed.expose()).ok_or_else(not_six)
}

/// Of 1 to 64 visible characters (draft-ietf-httpapi-idempotency-key-header).
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let fits = |key: &&str| (1..=64).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let wrong = InputError {
        field: "Idempotency-Key".into(),
        message: "Use 1 to 64 visible ASCII characters without spaces.".into(),
    };
    match value.to_str().ok().filter(fits) {
        Some(key) => Ok(Some(key)),
        None => Err(Problem::InvalidInput { errors: vec![wrong] }),
    }
}

/// What a form with a number requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeStage {
    /// Send a code.
    Send,
    /// Use the code for its purpose.
    Entry,
    /// Return to the first step.
    AnotherNumber,
}

impl CodeStage {
    /// A form with a code, or of the second step, is an entry. A number alone requests a code.
    pub fn of(fields: &CodeFields) -> Self {
        if fields.change.is_some() {
            Self::AnotherNumber
        } else if fields.send.is_some() || fields.code.expose().is_empty() && fields.good_until.is_empty() {
            Self::Send
        } else {
            Self::Entry
        }
    }
}

/// The step that a form came from, so that it can be shown again.
pub fn step_of(fields: &CodeFields, now: Micros) -> CodeStep {
    let first = || CodeStep::asking(fields.phone.expose());
    if fields.change.is_some() {
        return first();
    }
    let seconds = |text: &str| text.parse().ok().map(Micros::from_seconds);
    let Some(good_until) = seconds(&fields.good_until) else { return first() };
    let next_code = seconds(&fields.next_code).unwrap_or(now);
    let (number, confirmed) = (fields.phone.expose().to_owned(), fields.unconfirmed.is_none());
    let short = fields.short.is_some();
    CodeStep::sent(SentCode { number, good_until, next_code, confirmed, short }, now)
}

/// Sends a code and shows the second step, or shows why no code was sent.
pub async fn send_and_show(
    reply: &FormReply<'_>,
    purpose: Purpose,
    fields: &CodeFields,
    guarded: &GuardedFields,
    show: &dyn Fn(CodeStep, Notice, CaptchaBlock) -> HttpResponse,
) -> WebResult {
    let FormReply { visit, live, .. } = *reply;
    let phone = reply.read(guarded, |errors| parse_phone(live, fields, errors)).await?;
    let (address, network) = (visit.client.subject(), visit.client.network());
    let message = sms::RequestedMessage {
        browser: Some(visit.browser.bytes().to_vec()),
        // A page can send one message. A second press of the button is the same request.
        once: Some(guarded.csrf_token.clone()),
        ..sms::RequestedMessage::new(phone.clone(), purpose, visit.locale.code())
    };
    let message = message.asked_from(address.as_ref(), network.as_ref());
    let sent = send(&reply.actor(), message, guarded.was_challenged(), guarded.answer()).await;
    let now = visit.now();
    match sent {
        Ok(SendReceipt { expires_in, resend_after, confirmed, short, .. }) => {
            let number = phone.as_str().to_owned();
            let (good_until, next_code) = (now.plus(expires_in), now.plus(resend_after));
            let sent = SentCode { number, good_until, next_code, confirmed: confirmed || short, short };
            Ok(show(CodeStep::sent(sent, now), Notice::None, CaptchaBlock::Absent))
        }
        Err(ActionRefusal::Denied(Denied::Throttled { retry_after, .. }, _)) => {
            let step = step_of(fields, now).not_before(retry_after, now);
            Ok(show(step, Notice::TooManyCodes(reply.until(retry_after)), CaptchaBlock::Absent))
        }
        Err(refusal) => Err(reply.refused(refusal).await),
    }
}

pub fn parse_phone(live: &LiveSettings, fields: &CodeFields, errors: &mut FieldErrors) -> Option<Phone> {
    let parsed = extract::parse_phone(live, fields.phone.expose()).map_err(Message::from);
    errors.take(Field::Phone, parsed)
}

fn parse_code(fields: &CodeFields, errors: &mut FieldErrors) -> Option<SmsCode> {
    let typed = fields.code.expose().trim();
    let missing = if typed.is_empty() { Message::CodeMissing } else { Message::CodeDigits };
    errors.take(Field::Code, SmsCode::parse(typed).ok_or(missing))
}

/// Number and code, for the second step.
pub fn parse_both(
    live: &LiveSettings,
    fields: &CodeFields,
    errors: &mut FieldErrors,
) -> Option<(Phone, SmsCode)> {
    let phone = parse_phone(live, fields, errors);
    let code = parse_code(fields, errors);
    phone.zip(code)
}

/// What the page keeps about a sent code, in hidden fields for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentCode {
    pub number: String,
    pub good_until: Micros,
    /// When another code may be requested.
    pub next_code: Micros,
    /// The gateway confirmed that it accepted the message.
    pub confirmed: bool,
    /// Codes are rationed: the message may not come, and the page does not say whether it will.
    pub short: bool,
}

/// The current step of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeStep {
    /// The number as typed, or the number that the code was sent to.
    pub number: String,
    pub second: Option<SecondStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondStep {
    /// Unix seconds, rounded up.
    pub good_until: i64,
    pub next_code: i64,
    lasts: u64,
    /// Until another code may be requested; None if one may be requested now.
    pub again: Option<Wait>,
    pub confirmed: bool,
    pub short: bool,
}

impl CodeStep {
    pub fn asking(typed: &str) -> Self {
        Self { number: typed.chars().take(64).collect(), second: None }
    }

    pub fn sent(sent: SentCode, now: Micros) -> Self {
        let wait = sent.next_code.since(now);
        let second = SecondStep {
            good_until: seconds_up(sent.good_until),
            next_code: seconds_up(sent.next_code),
            lasts: left(sent.good_until.since(now)),
            again: (!wait.is_zero()).then(|| Wait::new(now, wait)),
            confirmed: sent.confirmed,
            short: sent.short,
        };
        Self { number: sent.number.chars().take(64).collect(), second: Some(second) }
    }

    /// Another code was requested, but none is allowed for this long.
    pub fn not_before(mut self, retry_after: Duration, now: Micros) -> Self {
        if let Some(second) = &mut self.second {
            second.next_code = seconds_up(now.plus(retry_after));
            second.again = Some(Wait::new(now, retry_after));
        }
        self
    }

    /// The field to fill in next.
    pub const fn field(&self) -> Field {
        if self.second.is_some() { Field::Code } else { Field::Phone }
    }
}

/// Whole seconds, rounded down. The form field was already rounded up, and must not be rounded up twice.
fn left(span: Duration) -> u64 {
    if span.is_zero() { 0 } else { span.as_secs().max(1) }
}

/// Rounded up, so that the moment is never too early.
const fn seconds_up(at: Micros) -> i64 {
    at.plus(Duration::from_micros(999_999)).seconds()
}

impl SecondStep {
    /// How long the code is still valid; None if it has expired.
    pub fn lasts(&self, locale: Locale) -> Option<String> {
        (self.lasts > 0).then(|| span_in_words(self.lasts, locale))
    }
}

/// What differs between pages: the path, and the keys of the texts.
struct Words {
    path: &'static str,
    title: &'static str,
    lead: &'static str,
    submit: &'static str,
    new_password: bool,
    /// The second step, or the only one, asks for the current password.
    current_password: bool,
    /// The form has no number and no code.
    one_step: bool,
    /// Below the form: the text before the link, the link's text, and its target.
    aside: [&'static str; 3],
}

const LOGIN: Words = Words {
    path: "/login/code",
    title: "code-login.title",
    lead: "code-login.lead",
    submit: "login.submit",
    new_password: false,
    current_password: false,
    one_step: false,
    aside: ["code-login.have-password", "code-login.password", "/login"],
};
const RESET: Words = Words {
    path: "/password/reset",
    title: "reset.title",
    lead: "reset.lead",
    submit: "reset.submit",
    new_password: true,
    current_password: false,
    one_step: false,
    aside: ["reset.remembered", "reset.login", "/login"],
};
const PHONE: Words = Words {
    path: "/account/phone",
    title: "phone.title",
    lead: "phone.lead",
    submit: "phone.submit",
    new_password: false,
    current_password: true,
    one_step: false,
    aside: ["phone.no-change", "phone.account", "/account"],
};
const REMOVAL: Words = Words {
    path: "/account/phone/remove",
    title: "phone.remove-title",
    lead: "phone.remove-lead",
    submit: "account.remove-phone",
    one_step: true,
    ..PHONE
};

const EXPORT: Words = Words {
    path: "/account/export",
    title: "account.export",
    lead: "account.export-lead",
    submit: "account.export-submit",
    ..REMOVAL
};
const DELETION: Words = Words {
    path: "/account/delete",
    title: "account.delete",
    lead: "account.delete-lead",
    submit: "account.delete-submit",
    ..REMOVAL
};

/// What is done in one step, for the current password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneStep {
    PhoneRemoval,
    Export,
    Deletion,
}

#[derive(Template)]
#[template(path = "pages/code.html")]
pub struct CodePage {
    pub form: FormPage,
    words: &'static Words,
    step: CodeStep,
}

/// Its template names the fields of the form without it.
impl Deref for CodePage {
    type Target = FormPage;

    fn deref(&self) -> &FormPage {
        &self.form
    }
}

impl CodePage {
    /// For a purpose that has its own page. `user` is the signed-in user.
    pub fn new(visit: &PageRequest, purpose: Purpose, user: Option<&str>, next: Option<Next>) -> Self {
        let words = match purpose {
            Purpose::Reset => &RESET,
            Purpose::Verify => &PHONE,
            Purpose::Login | Purpose::Register => &LOGIN,
        };
        Self { form: FormPage::new(visit, words.path, user, next), words, step: CodeStep::asking("") }
    }

    pub fn one_step(visit: &PageRequest, what: OneStep, user: &str) -> Self {
        let words = match what {
            OneStep::PhoneRemoval => &REMOVAL,
            OneStep::Export => &EXPORT,
            OneStep::Deletion => &DELETION,
        };
        Self { form: FormPage::new(visit, words.path, Some(user), None), words, step: CodeStep::asking("") }
    }

    pub fn at(self, step: CodeStep) -> Self {
        Self { step, ..self }
    }

    /// The page as it is shown again, and why.
    pub fn again(self, notice: Notice, captcha: CaptchaBlock) -> Self {
        Self { form: self.form.again(notice, captcha), ..self }
    }

    pub fn respond(&self, visit: &PageRequest) -> HttpResponse {
        self.form.respond(visit, self)
    }

    fn focus(&self) -> &'static str {
        match (self.notice.wait(), self.errors.first()) {
            (Some(_), _) => "",
            (None, Some(field)) => field.name(),
            (None, None) if self.words.one_step => Field::CurrentPassword.name(),
            (None, None) => self.step.field().name(),
        }
    }

    /// The form cannot succeed.
    fn closed(&self) -> bool {
        matches!(self.notice, Notice::PasswordFirst | Notice::PasswordRequired | Notice::AccountDisabled)
    }

    fn password_hint(&self) -> String {
        self.layout.with("register.password-hint", &crate::login::SHORTEST_PASSWORD.to_string()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_not_shown_by_debug() {
        let form: crate::web::sign_in::LoginForm =
            serde_json::from_str(r#"{"password":"hunter2","captcha_answer":"xyz"}"#).unwrap();
        let shown = format!("{form:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("xyz"), "{shown}");
        assert_eq!(form.password.expose(), "hunter2");
        let form: CodeForm = serde_json::from_str(r#"{"code":"123456","new_password":"hunter2"}"#).unwrap();
        let shown = format!("{form:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("123456"), "{shown}");
        assert_eq!(form.fields.code.expose(), "123456");
    }
}
