//! The handlers of the pages: parse, call, match.

pub mod account;
pub mod admin;
pub mod captcha;
pub mod code;
pub mod code_login;
pub mod confirm;
pub mod login;
pub mod messages;
pub mod outbox;
pub mod phone;
pub mod register;
pub mod reply;
pub mod reports;
pub mod reset;
pub mod session;
pub mod tokens;

use actix_web::HttpResponse;

use crate::login::{PasswordError, UsernameError};
use crate::sms::PhoneError;
use crate::web::message::Message;
use crate::web::pages::Layout;
use crate::web::pages::error::{ErrorKind, ErrorPage};
use crate::web::problem::Problem;
use crate::web::visit::Visit;

/// Something is broken: logged here, once, and told without its cause.
pub fn broken(visit: &Visit, error: &impl std::fmt::Display) -> HttpResponse {
    failed(error);
    let mut page = ErrorPage::new(layout(visit), ErrorKind::Unavailable).respond(visit);
    Problem::BROKEN.head(page.headers_mut());
    page
}

/// An outage has lines of its own in the log; what fails in one is none.
pub fn failed(error: &impl std::fmt::Display) {
    if crate::db::OUTAGE.is_out() {
        tracing::debug!(%error, "a request could not be answered");
    } else {
        tracing::error!(%error, "a request could not be answered");
    }
}

fn layout(visit: &Visit) -> Layout {
    visit.layout("/", None)
}

pub const fn about_login(error: UsernameError) -> Message {
    match error {
        UsernameError::Empty => Message::LoginMissing,
        UsernameError::TooLong => Message::LoginLength { min: 1, max: crate::login::LONGEST_LOGIN },
        UsernameError::Whitespace
        | UsernameError::At
        | UsernameError::Character
        | UsernameError::NoLetter
        | UsernameError::MixedScripts
        | UsernameError::Direction => Message::LoginCharacters,
    }
}

pub const fn about_password(error: PasswordError) -> Message {
    match error {
        PasswordError::Empty => Message::PasswordMissing,
        PasswordError::TooShort => Message::PasswordTooShort { min: crate::login::SHORTEST_PASSWORD },
        PasswordError::TooLong => Message::PasswordTooLong { max: crate::login::LONGEST_PASSWORD },
        PasswordError::Character => Message::PasswordCharacters,
        PasswordError::Guessable => Message::PasswordGuessable,
    }
}

/// The same of one that is in force: what could not be set cannot be right either.
pub const fn about_current(error: PasswordError) -> Message {
    match error {
        PasswordError::Empty => Message::CurrentPasswordMissing,
        _ => Message::CurrentPasswordWrong,
    }
}

pub const fn about_phone(error: PhoneError) -> Message {
    match error {
        PhoneError::Missing => Message::PhoneMissing,
        PhoneError::NotANumber => Message::PhoneInvalid,
        PhoneError::NotMobile => Message::PhoneNotMobile,
        PhoneError::CountryNotAllowed => Message::CountryNotAllowed,
    }
}
