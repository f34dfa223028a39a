//! Why a form is shown again.

use actix_web::http::StatusCode;

use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::wait::Wait;

/// Why the form is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Notice {
    #[default]
    None,
    /// Another image was asked for; nothing was tried.
    Refreshed,
    /// Name or password is wrong, and the page does not say which.
    Rejected,
    CaptchaNeeded,
    CaptchaWrong,
    Throttled(Wait),
    /// More sign-ins at once than there is room to check.
    Busy(Wait),
    /// No code was sent: there were enough of late.
    TooManyCodes(Wait),
    /// Nothing that has to do with codes works at the moment.
    NoCodes(Wait),
    /// The gateway did not take the message; it may be tried again at once.
    NotSent,
    /// The account has no password to show, and one is needed first.
    PasswordFirst,
    /// An administrator's account, which no code opens.
    PasswordRequired,
    /// See the fields.
    Invalid(FieldErrors),
    /// The form was too old, or not one of ours.
    Expired,
}

impl Notice {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::None | Self::Refreshed => StatusCode::OK,
            Self::Rejected => StatusCode::UNAUTHORIZED,
            Self::CaptchaNeeded
            | Self::CaptchaWrong
            | Self::Expired
            | Self::PasswordFirst
            | Self::PasswordRequired => StatusCode::FORBIDDEN,
            Self::Throttled(_) | Self::TooManyCodes(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy(_) | Self::NoCodes(_) | Self::NotSent => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid(errors) => errors.status(),
        }
    }

    pub const fn wait(&self) -> Option<&Wait> {
        match self {
            Self::Throttled(wait) | Self::Busy(wait) | Self::TooManyCodes(wait) | Self::NoCodes(wait) => {
                Some(wait)
            }
            _ => None,
        }
    }

    /// What stands at the fields of a form that is shown with it.
    pub fn errors(&self) -> FieldErrors {
        match self {
            Self::Invalid(errors) => errors.clone(),
            Self::CaptchaWrong => FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaWrong),
            _ => FieldErrors::default(),
        }
    }
}
