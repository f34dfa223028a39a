//! Two-step forms, a number and then its code: the first step, which all pages share.

use actix_web::HttpResponse;

use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::denied::Denied;
use crate::sms::{self, Phone, Purpose, SendOutcome, SendReceipt, SmsCode, TurnResult};
use crate::web::captcha::CaptchaBlock;
use crate::web::code::fields::CodeFields;
use crate::web::code::view::{CodeStep, SentCode};
use crate::web::form::fields::GuardedFields;
use crate::web::form::notice::Notice;
use crate::web::form::reply::FormReply;
use crate::web::kit::extract;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::WebResult;

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
pub async fn send(
    reply: &FormReply<'_>,
    purpose: Purpose,
    fields: &CodeFields,
    guarded: &GuardedFields,
    show: &dyn Fn(CodeStep, Notice, CaptchaBlock) -> HttpResponse,
) -> WebResult {
    let FormReply { visit, services, live, .. } = *reply;
    let phone = reply.read(guarded, |errors| parse_phone(live, fields, errors)).await?;
    let (address, network) = (visit.client.subject(), visit.client.network());
    let message = sms::Message {
        browser: Some(visit.browser.bytes().to_vec()),
        // A page can send one message. A second press of the button is the same request.
        once: Some(guarded.csrf_token.clone()),
        ..sms::Message::new(phone.clone(), purpose, visit.locale.code())
    };
    let message = message.asked_from(address.as_ref(), network.as_ref());
    // Before the challenge is checked: the first of two presses has already used it up.
    let sending = match services.codes.turn(live, message, guarded.was_challenged()).await? {
        TurnResult::Answered(sending) => sending,
        TurnResult::Mine(turn) => {
            let solved = reply.redeem(guarded).await?;
            turn.send(live, solved).await?
        }
    };
    let now = visit.now();
    Ok(match sending {
        SendOutcome::Sent(SendReceipt { expires_in, resend_after, confirmed, short, .. }) => {
            let number = phone.as_str().to_owned();
            let (good_until, next_code) = (now.plus(expires_in), now.plus(resend_after));
            let sent = SentCode { number, good_until, next_code, confirmed: confirmed || short, short };
            show(CodeStep::sent(sent, now), Notice::None, CaptchaBlock::Absent)
        }
        SendOutcome::Denied(Denied::Throttled { retry_after, .. }) => {
            let step = step_of(fields, now).not_before(retry_after, now);
            show(step, Notice::TooManyCodes(reply.until(retry_after)), CaptchaBlock::Absent)
        }
        SendOutcome::Denied(denied) => reply.denied(&denied).await,
        SendOutcome::NotSent => reply.plain(Notice::NotSent),
    })
}

pub fn parse_phone(live: &LiveSettings, fields: &CodeFields, errors: &mut FieldErrors) -> Option<Phone> {
    let parsed = extract::parse_phone(live, fields.phone.expose()).map_err(Message::from);
    errors.take(Field::Phone, parsed)
}

pub fn parse_code(fields: &CodeFields, errors: &mut FieldErrors) -> Option<SmsCode> {
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
