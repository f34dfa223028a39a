//! The handlers of the pages: parse, call, match.

pub mod account;
pub mod captcha;
pub mod login;
pub mod register;
pub mod session;

use actix_web::HttpResponse;

use crate::captcha::{Challenge, Form, Later};
use crate::config::Live;
use crate::db::DbError;
use crate::login::{PasswordError, UsernameError};
use crate::web::challenge::Asker;
use crate::web::message::Message;
use crate::web::pages::Layout;
use crate::web::pages::captcha::{CaptchaBlock, ChallengeView};
use crate::web::pages::error::{ErrorKind, ErrorPage};
use crate::web::services::Services;
use crate::web::visit::Visit;
use crate::web::wait::Wait;

/// Something is broken: logged here, once, and told without its cause.
pub fn broken(visit: &Visit, error: &DbError) -> HttpResponse {
    tracing::error!(%error, "a page could not be answered");
    ErrorPage::new(layout(visit), ErrorKind::Unavailable).respond(visit)
}

fn layout(visit: &Visit) -> Layout {
    visit.layout("/", None)
}

fn asker(visit: &Visit, form: Form) -> Asker<'_> {
    Asker { form, client: visit.client, browser: Some(&visit.browser) }
}

async fn fresh_challenge(visit: &Visit, services: &Services, live: &Live, form: Form) -> CaptchaBlock {
    match asker(visit, form).issue(services, live).await {
        Ok(Challenge { id, expires_in }) => CaptchaBlock::Challenge(ChallengeView { id, expires_in }),
        Err(Later { retry_after }) => CaptchaBlock::Later(Wait::new(visit.now(), retry_after)),
    }
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
