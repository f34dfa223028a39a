//! The CAPTCHA part of a form.

use std::time::Duration;

use crate::captcha::CaptchaForm;
use crate::web::kit::locale::Locale;
use crate::web::kit::wait::{Wait, span_in_words};

/// Pixels of the image as it is drawn: said on the page, so that nothing jumps when it arrives.
pub const IMAGE_SIZE: (u32, u32) = (crate::captcha::WIDTH as u32, crate::captcha::HEIGHT as u32);
/// Longer than any answer, short enough not to carry anything else.
pub const LONGEST_ANSWER: u32 = 128;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptchaBlock {
    #[default]
    Absent,
    Challenge(ChallengeView),
    /// One is needed, but this client or everyone has been given too many of late.
    Later(LaterView),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeView {
    pub id: String,
    pub expires_in: Duration,
}

/// No image for now: until when, and for which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaterView {
    pub wait: Wait,
    pub form: CaptchaForm,
}

impl LaterView {
    /// What else one can do, and where: the text, the path, and the text of the link to it.
    pub const fn instead(&self) -> Option<(&'static str, &'static str, &'static str)> {
        match self.form {
            CaptchaForm::Login => Some(("captcha.later-login", "/login/code", "login.by-code")),
            CaptchaForm::SmsCode => Some(("captcha.later-code", "/login", "code-login.password")),
            CaptchaForm::Register | CaptchaForm::PasswordReset => {
                Some(("captcha.later-have", "/login", "login.submit"))
            }
            CaptchaForm::PasswordChange => None,
        }
    }
}

impl CaptchaBlock {
    pub const fn is_later(&self) -> bool {
        matches!(self, Self::Later(_))
    }
}

impl ChallengeView {
    pub fn lasts(&self, locale: Locale) -> String {
        span_in_words(self.expires_in.as_secs(), locale)
    }

    pub const fn width(&self) -> u32 {
        IMAGE_SIZE.0
    }

    pub const fn height(&self) -> u32 {
        IMAGE_SIZE.1
    }

    pub const fn longest(&self) -> u32 {
        LONGEST_ANSWER
    }
}
