//! Codes, by SMS and by e-mail, for pages and API calls, for every purpose: two-step forms, a number or an address and then
//! its code (`/login/code`, `/password/reset`, `/account/phone`, `/account/email`; the registration form has the same
//! fields), and the calls that ask for one.

pub mod calls;
mod texts;

use std::time::Duration;

use actix_web::HttpResponse;
use askama::Template;
use serde::Deserialize;
use url::form_urlencoded;

use crate::clock::Micros;
use crate::codes::{Recipient, RequestedMessage, SendOutcome, SendReceipt, TurnResult};
use crate::config::{LiveSettings, ResetByMail};
use crate::mail::Mailbox;
use crate::message::{MessageCode, Purpose};
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReply, GuardedFields, NextFields, Notice, form_page};
use crate::web::http::extract;
use crate::web::http::locale::span_in_words;
use crate::web::http::{
    ActionRefusal, Actor, Browser, CountedAs, Field, FieldErrors, Locale, Message, Next, PageRequest,
    Problem, SecretField, Wait, WebError,
};

pub use texts::*;

/// The fields for a phone number and its code. A form has two steps. The server keeps nothing of the first:
/// the browser sends it again with the second step, and it is checked again.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeFields {
    /// A number; where both are taken, a number or an address.
    pub phone: SecretField,
    pub email: SecretField,
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
    /// Present if the form asked for a code that somebody has, together with the number or the address.
    pub in_hand: Option<String>,
}

/// `POST` of the pages in [`FormTexts`].
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

/// Sends a code, unless the same request sent one. `once` names the request; `challenged`: it may come with an answer that
/// is used up.
async fn send(
    by: &Actor<'_>,
    (to, purpose): (&Recipient, Purpose),
    browser: &Browser,
    locale: Locale,
    once: Option<String>,
    challenged: bool,
) -> Result<SendReceipt, ActionRefusal> {
    let Actor { services, live, origin, .. } = by;
    // An older instance would count mails among messages.
    if to.mailbox().is_some() && services.factor_verifier.factors().is_upgrading().await? {
        return Err(Problem::UpgradeUnfinished.into());
    }
    let message = RequestedMessage {
        browser: Some(browser.bytes().to_vec()),
        once,
        ..RequestedMessage::new(to.clone(), purpose, locale.code())
    };
    let message = message.asked_from(&origin.address, &origin.network);
    // Before the challenge is checked: the first of two requests has already used it up.
    let sending = match services.codes.turn(live, message, challenged).await? {
        TurnResult::Answered(sending) => sending,
        TurnResult::Mine(turn) => {
            let solved = by.redeem().await?;
            turn.send(live, solved).await?
        }
    };
    match sending {
        SendOutcome::Sent(sent) => Ok(sent),
        SendOutcome::NotSent => Err(Problem::NotSent.into()),
        SendOutcome::Denied(denied) => Err(Problem::denied(denied, CountedAs::Message).into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeStage {
    Send,
    Entry,
    AnotherNumber,
}

impl CodeStage {
    /// A form with a code, or of the second step, is an entry. A number alone requests a code.
    pub fn of(fields: &CodeFields) -> Self {
        if fields.change.is_some() {
            Self::AnotherNumber
        } else if fields.send.is_some() || fields.code.expose().is_empty() && !fields.is_of_entry() {
            Self::Send
        } else {
            Self::Entry
        }
    }
}

/// The step that a form came from, so that it can be shown again.
pub fn step_of(fields: &CodeFields, now: Micros) -> CodeStep {
    let step = CodeStep { in_hand: fields.in_hand.is_some(), ..CodeStep::asking(fields.typed()) };
    let seconds = |text: &str| text.parse().ok().map(Micros::from_seconds);
    let Some(good_until) = seconds(&fields.good_until).filter(|_| fields.change.is_none()) else {
        return step;
    };
    let next_code = seconds(&fields.next_code).unwrap_or(now);
    let (confirmed, short) = (fields.unconfirmed.is_none(), fields.short.is_some());
    CodeStep { second: Some(SecondStep { now, good_until, next_code, confirmed, short }), ..step }
}

/// Sends a code. The step to show after it, or why no code was sent.
pub async fn send_step(
    reply: &FormReply<'_>,
    (asks, purpose): (Asks, Purpose),
    fields: &CodeFields,
    guarded: &GuardedFields,
) -> Result<(CodeStep, Notice), WebError> {
    let FormReply { visit, live, .. } = *reply;
    let to = reply.read(guarded, |errors| asks.parse(live, fields, errors)).await?;
    // A page can send one message. A second press of the button is the same request.
    let once = Some(guarded.csrf_token.clone());
    let (actor, challenged) = (reply.actor(guarded), guarded.was_challenged());
    let sent = send(&actor, (&to, purpose), &visit.browser, visit.locale, once, challenged).await;
    let now = visit.now();
    match sent {
        Ok(SendReceipt { expires_in, resend_after, confirmed, short, .. }) => {
            let (good_until, next_code) = (now.plus(expires_in), now.plus(resend_after));
            let second = SecondStep { now, good_until, next_code, confirmed: confirmed || short, short };
            let step = CodeStep { second: Some(second), ..CodeStep::asking(to.as_str()) };
            Ok((step, Notice::None))
        }
        Err(ActionRefusal(Problem::Throttled { retry_after, .. })) => {
            let mut step = step_of(fields, now);
            if let Some(second) = &mut step.second {
                second.next_code = now.plus(retry_after);
            }
            Ok((step, Notice::too_many_codes(reply.until(retry_after))))
        }
        Err(refusal) => reply.told(Err(refusal)).await,
    }
}

/// What a form sends codes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    Phone,
    Email,
    /// A number or an address, in one field, for a new password.
    Either,
}

impl Asks {
    /// What is left of it where only one of both sets a password.
    const fn among(self, sms: bool, mail: bool) -> Self {
        match self {
            Self::Either if !mail => Self::Phone,
            Self::Either if !sms => Self::Email,
            other => other,
        }
    }

    pub const fn field(self) -> Field {
        match self {
            Self::Email => Field::Email,
            Self::Phone | Self::Either => Field::Phone,
        }
    }

    pub fn parse(
        self,
        live: &LiveSettings,
        fields: &CodeFields,
        errors: &mut FieldErrors,
    ) -> Option<Recipient> {
        let typed = fields.typed();
        let mailbox = || Mailbox::parse(typed).map(Recipient::from).map_err(Message::from);
        let phone = || extract::parse_phone(live, typed).map(Recipient::from).map_err(Message::from);
        let parsed = match self {
            Self::Phone => phone(),
            Self::Email => mailbox(),
            Self::Either if typed.contains(['@', '＠', '﹫']) => mailbox(),
            Self::Either => phone().map_err(|wrong| match wrong {
                Message::PhoneMissing | Message::PhoneInvalid => Message::RecipientInvalid,
                other => other,
            }),
        };
        errors.take(self.field(), parsed)
    }

    /// Parses the number or the address, and the code that was sent there.
    pub fn parse_both(
        self,
        live: &LiveSettings,
        fields: &CodeFields,
        errors: &mut FieldErrors,
    ) -> Option<(Recipient, MessageCode)> {
        let to = self.parse(live, fields, errors);
        let code = parse_code(fields, errors);
        to.zip(code)
    }
}

impl CodeFields {
    /// Whether the form asked for the code.
    fn is_of_entry(&self) -> bool {
        self.in_hand.is_some() || !self.good_until.is_empty()
    }

    /// The number or the address as it was typed: a form has one field for it.
    pub fn typed(&self) -> &str {
        let Self { phone, email, .. } = self;
        if phone.expose().is_empty() { email.expose() } else { phone.expose() }
    }
}

fn parse_code(fields: &CodeFields, errors: &mut FieldErrors) -> Option<MessageCode> {
    let typed = fields.code.expose().trim();
    let missing = if typed.is_empty() { Message::CodeMissing } else { Message::CodeDigits };
    errors.take(Field::Code, MessageCode::parse(typed).ok_or(missing))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeStep {
    pub asks: Asks,
    /// The number or the address as typed, or where the code was sent to.
    pub number: String,
    pub second: Option<SecondStep>,
    /// Instead of the second step: the code was sent before, perhaps from another browser, and is asked for together with the
    /// number or the address.
    pub in_hand: bool,
}

/// What the page keeps about a sent code, in hidden fields for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondStep {
    pub now: Micros,
    pub good_until: Micros,
    /// When another code may be requested.
    pub next_code: Micros,
    /// The gateway confirmed that it accepted the message.
    pub confirmed: bool,
    /// Codes are rationed: the message may not come, and the page does not say whether it will.
    pub short: bool,
}

impl CodeStep {
    pub fn asking(typed: &str) -> Self {
        Self { asks: Asks::Phone, number: typed.chars().take(254).collect(), second: None, in_hand: false }
    }

    /// No code is asked for yet.
    pub const fn is_first(&self) -> bool {
        self.second.is_none() && !self.in_hand
    }

    pub const fn field(&self) -> Field {
        if self.second.is_some() { Field::Code } else { self.asks.field() }
    }

    /// The address whose code is asked for has an @; no number has.
    pub fn is_email(&self) -> bool {
        self.asks == Asks::Email || self.number.contains('@')
    }
}

/// Unix seconds, rounded up, so that the moment is never too early.
const fn seconds_up(at: Micros) -> i64 {
    at.plus(Duration::from_micros(999_999)).seconds()
}

impl SecondStep {
    pub const fn valid_until(&self) -> i64 {
        seconds_up(self.good_until)
    }

    pub const fn resend_from(&self) -> i64 {
        seconds_up(self.next_code)
    }

    /// How long the code is still valid; None if it has expired. Rounded down: the form field was already rounded up, and
    /// must not be rounded up twice.
    pub fn lasts(&self, locale: Locale) -> Option<String> {
        let left = self.good_until.since(self.now);
        (!left.is_zero()).then(|| span_in_words(left.as_secs().max(1), locale))
    }

    /// Until another code may be requested; None if one may be requested now.
    pub fn again(&self) -> Option<Wait> {
        let wait = self.next_code.since(self.now);
        (!wait.is_zero()).then(|| Wait::new(self.now, wait))
    }
}

/// Whether a page is asked for to enter a code that somebody has, as the links of mails ask for it. They say nothing else.
pub fn is_entry(visit: &PageRequest) -> bool {
    form_urlencoded::parse(visit.request().query_string().as_bytes()).any(|(name, _)| name == "code")
}

#[derive(Template, Clone)]
#[template(path = "pages/code.html")]
pub struct CodePage {
    pub form: FormPage,
    words: &'static FormTexts,
    step: CodeStep,
}

form_page!(CodePage);

impl CodePage {
    /// `user` is the signed-in user.
    pub fn new(
        visit: &PageRequest,
        words: &'static FormTexts,
        user: Option<&str>,
        next: Option<Next>,
    ) -> Self {
        let in_hand = is_entry(visit);
        let path = if in_hand { words.entry() } else { words.path.to_owned() };
        let form = FormPage::new(visit, &path, user, next);
        let asks = words.to.among(form.layout.sends_codes, form.layout.mail_resets());
        let step = CodeStep { asks, in_hand, ..CodeStep::asking("") };
        Self { form, words, step }
    }

    pub fn at(self, step: CodeStep) -> Self {
        let asks = self.step.asks;
        Self { step: CodeStep { asks, ..step }, ..self }
    }

    /// Shows the form again as it was sent. For a number that the action does not take, another is asked for.
    pub fn shown_again<'a>(
        &'a self,
        visit: &'a PageRequest,
        live: &'a LiveSettings,
        fields: &'a CodeFields,
    ) -> impl Fn(Notice, CaptchaBlock) -> HttpResponse + 'a {
        move |notice, captcha| {
            let errors = notice.errors();
            let step = match errors.of(self.step.asks.field()) {
                Some(Message::NoAccount | Message::PhoneTaken | Message::EmailTaken) => {
                    let to = self.step.asks.parse(live, fields, &mut FieldErrors::default());
                    CodeStep::asking(to.as_ref().map_or(fields.typed(), Recipient::as_str))
                }
                _ => step_of(fields, visit.now()),
            };
            self.clone().at(step).again(notice, captcha).respond(visit)
        }
    }

    /// The steps before a code is used for its purpose; the error is the page that they show.
    pub async fn before_entry(
        &self,
        reply: &FormReply<'_>,
        purpose: Purpose,
        form: &CodeForm,
    ) -> Result<(), WebError> {
        match CodeStage::of(&form.fields) {
            CodeStage::AnotherNumber => Err(reply.plain(Notice::None).into()),
            CodeStage::Send => {
                let (step, notice) =
                    send_step(reply, (self.step.asks, purpose), &form.fields, &form.guarded).await?;
                let page = self.clone().at(step).again(notice, CaptchaBlock::Absent);
                Err(page.respond(reply.visit).into())
            }
            CodeStage::Entry => Ok(()),
        }
    }

    pub fn parse_both(
        &self,
        live: &LiveSettings,
        fields: &CodeFields,
        errors: &mut FieldErrors,
    ) -> Option<(Recipient, MessageCode)> {
        self.step.asks.parse_both(live, fields, errors)
    }

    /// What the page says before its fields. The second step says where the code was sent to.
    fn lead(&self) -> Option<&'static str> {
        if self.step.second.is_some() {
            None
        } else if self.step.in_hand && !self.words.one_step {
            Some("code.in-hand-lead")
        } else if self.words.path == LOGIN.path && !self.layout.takes_new_numbers {
            Some("code-login.lead-closed")
        } else if self.words.path == RESET.path {
            Some(match (self.step.asks, self.layout.resets_by_mail) {
                (Asks::Phone, _) => "reset.lead-phone",
                (Asks::Email, ResetByMail::WithoutNumber) => "reset.lead-email-alone",
                (Asks::Email, _) => "reset.lead-email",
                (Asks::Either, ResetByMail::WithoutNumber) => "reset.lead-alone",
                (Asks::Either, _) => self.words.lead,
            })
        } else {
            Some(self.words.lead)
        }
    }

    fn focus(&self) -> &'static str {
        match (self.notice.wait(), self.errors.first()) {
            (Some(_), _) => "",
            (None, Some(field)) => field.name(),
            (None, None) if self.words.one_step => Field::CurrentPassword.name(),
            (None, None) => self.step.field().name(),
        }
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
