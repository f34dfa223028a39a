//! Why a form is shown again.

use actix_web::http::StatusCode;

use crate::web::kit::locale::Wait;
use crate::web::kit::message::{Field, FieldErrors, Message};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Notice {
    #[default]
    None,
    /// Another image was requested. Nothing was tried.
    Refreshed,
    /// The name or the password is wrong. The page does not say which.
    Rejected,
    CaptchaNeeded,
    CaptchaWrong,
    Throttled(Wait),
    /// Too many sign-ins at once to verify them all.
    Busy(Wait),
    /// No code was sent: too many were sent recently.
    TooManyCodes(Wait),
    /// Nothing that needs codes works at the moment.
    NoCodes(Wait),
    /// Somebody is signed in, but not recently enough for a part of an application.
    SignInAgain,
    /// The same of the password.
    PasswordAgain,
    /// The part asks for a password, and the account has none.
    PasswordForPart,
    /// The gateway did not accept the message. It may be tried again at once.
    NotSent,
    /// The account has no password, and needs one first.
    PasswordFirst,
    /// An administrator's account, which codes never open.
    PasswordRequired,
    /// An administrator disabled the account.
    AccountDisabled,
    /// The errors are at the fields.
    Invalid(FieldErrors),
    /// The form was too old, or not ours.
    Expired,
}

impl Notice {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::None
            | Self::Refreshed
            | Self::SignInAgain
            | Self::PasswordAgain
            | Self::PasswordForPart => StatusCode::OK,
            Self::Rejected => StatusCode::UNAUTHORIZED,
            Self::CaptchaNeeded
            | Self::CaptchaWrong
            | Self::Expired
            | Self::PasswordFirst
            | Self::PasswordRequired
            | Self::AccountDisabled => StatusCode::FORBIDDEN,
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

    /// What was sent is wrong and can be corrected.
    pub const fn is_mistake(&self) -> bool {
        matches!(self, Self::Rejected | Self::CaptchaWrong | Self::Invalid(_))
    }

    /// The errors at the fields of a form that shows this notice.
    pub fn errors(&self) -> FieldErrors {
        match self {
            Self::Invalid(errors) => errors.clone(),
            Self::CaptchaWrong => FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaWrong),
            _ => FieldErrors::default(),
        }
    }
}
