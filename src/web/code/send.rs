//! Forms of two steps, a number and then the code that went to it: what the first one does on every page.

use actix_web::HttpResponse;

use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::login::NotOpened;
use crate::sms::{CodeRequest, Phone, Purpose, SendOutcome, SendReceipt, SmsCode, TurnResult};
use crate::web::captcha::view::CaptchaBlock;
use crate::web::code::fields::CodeFields;
use crate::web::code::view::{CodeStep, SentCode};
use crate::web::form::fields::Guarded;
use crate::web::form::notice::Notice;
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::message::{Field, FieldErrors, Message};

/// What a form with a number in it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// A code.
    Code,
    /// What the code is for.
    Entry,
    /// The first step again.
    AnotherNumber,
}

impl Wish {
    /// A code typed, or the second step sent, is an entry; a number alone asks for its code.
    pub fn of(fields: &CodeFields) -> Self {
        if fields.change.is_some() {
            Self::AnotherNumber
        } else if fields.send.is_some() || fields.code.expose().is_empty() && fields.good_until.is_empty() {
            Self::Code
        } else {
            Self::Entry
        }
    }
}

/// The step that a form came from, so that it is shown again where nothing moves on.
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

/// Sends a code and shows the second step, or says why not.
pub async fn send(
    reply: Reply<'_>,
    purpose: Purpose,
    fields: &CodeFields,
    guarded: &Guarded,
    show: &dyn Fn(CodeStep, Notice, CaptchaBlock) -> HttpResponse,
) -> HttpResponse {
    let Reply { visit, services, live, .. } = reply;
    let phone = match reply.read(guarded, |errors| parse_phone(live, fields, errors)).await {
        Ok(phone) => phone,
        Err(response) => return response,
    };
    let (address, network) = (visit.client.subject(), visit.client.network());
    let ask = CodeRequest {
        phone: &phone,
        purpose,
        address: address.as_ref(),
        network: network.as_ref(),
        browser: Some(visit.browser.bytes()),
        solved: false,
        // A page is good for one message: its button pressed twice is the same wish.
        once: Some(&guarded.csrf_token),
        locale: visit.locale.code(),
    };
    // Before the challenge: the first of two presses has used it up.
    let sending = match services.codes.turn(live, ask, !guarded.captcha_id.is_empty()).await {
        Ok(TurnResult::Mine(turn)) => match reply.redeem(guarded).await {
            Ok(solved) => services.codes.send_in_turn(live, CodeRequest { solved, ..ask }, turn).await,
            Err(response) => return response,
        },
        Ok(TurnResult::Answered(sending)) => Ok(sending),
        Err(error) => Err(error),
    };
    match sending {
        Ok(SendOutcome::Sent(sent)) => {
            let now = visit.now();
            let number = phone.as_str().to_owned();
            let (good_until, next_code) = (now.plus(sent.expires_in), now.plus(sent.resend_after));
            let SendReceipt { confirmed, short, .. } = sent;
            let sent = SentCode { number, good_until, next_code, confirmed: confirmed || short, short };
            show(CodeStep::sent(sent, now), Notice::None, CaptchaBlock::Absent)
        }
        Ok(SendOutcome::Challenged { .. }) => reply.challenged(Notice::CaptchaNeeded).await,
        Ok(SendOutcome::Throttled { retry_after, .. }) => {
            let step = step_of(fields, visit.now()).not_before(retry_after, visit.now());
            show(step, Notice::TooManyCodes(reply.until(retry_after)), CaptchaBlock::Absent)
        }
        Ok(SendOutcome::NotSent) => reply.plain(Notice::NotSent),
        Ok(SendOutcome::Unavailable { retry_after }) => reply.no_codes(retry_after),
        Err(error) => broken(visit, &error),
    }
}

/// The page for a code that opened nothing.
pub async fn not_opened(reply: &Reply<'_>, not: NotOpened) -> HttpResponse {
    match not {
        NotOpened::Wrong => reply.invalid(Field::Code, Message::CodeWrong),
        NotOpened::Challenged { .. } => reply.challenged(Notice::CaptchaNeeded).await,
        NotOpened::Throttled { retry_after, .. } => reply.wait(retry_after),
        NotOpened::Unavailable { retry_after } => reply.no_codes(retry_after),
    }
}

pub fn parse_phone(live: &LiveSettings, fields: &CodeFields, errors: &mut FieldErrors) -> Option<Phone> {
    let parsed = crate::web::kit::phone::parse(live, fields.phone.expose()).map_err(Message::from);
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
