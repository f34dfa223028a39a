//! The CAPTCHA part of a form.

use std::time::Duration;

use crate::captcha::{CaptchaForm, Challenge};
use crate::clock::Micros;
use crate::web::kit::locale::{Locale, Wait, span_in_words};

/// Pixels of the image. The page states them, so that the layout does not shift when the image loads.
pub const IMAGE_SIZE: (u32, u32) = (crate::captcha::WIDTH as u32, crate::captcha::HEIGHT as u32);
/// Longer than any answer, and too short to carry other data.
pub const LONGEST_ANSWER: u32 = 128;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptchaBlock {
    #[default]
    Absent,
    Challenge(ChallengeView),
    /// A challenge is needed, but this client or everyone has had too many images recently.
    Later(LaterView),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeView {
    pub id: String,
    pub expires_in: Duration,
    /// Until there is an image; none if there is one.
    pub image_wait: Option<Wait>,
    /// A proof of work for the script.
    pub proof: Option<String>,
    pub help: Option<HelpContact>,
}

/// The contact for people who can do neither (`captcha.help`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpContact {
    pub text: String,
    /// Where the text leads, if it is an address.
    pub address: Option<String>,
}

/// Neither an image nor a proof of work is available: until when, and for which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterView {
    pub wait: Wait,
    pub form: CaptchaForm,
    pub help: Option<HelpContact>,
}

impl LaterView {
    /// The alternative: its text, its path, and the text of the link.
    pub const fn instead(&self) -> Option<(&'static str, &'static str, &'static str)> {
        match self.form {
            CaptchaForm::Login => Some(("captcha.later-login", "/login/code", "login.by-code")),
            CaptchaForm::SmsCode => Some(("captcha.later-code", "/login", "code-login.password")),
            CaptchaForm::Register | CaptchaForm::PasswordReset => {
                Some(("captcha.later-have", "/login", "login.submit"))
            }
            CaptchaForm::PasswordChange | CaptchaForm::Attempt | CaptchaForm::Verification => None,
        }
    }
}

impl CaptchaBlock {
    pub const fn is_later(&self) -> bool {
        matches!(self, Self::Later(_))
    }
}

impl HelpContact {
    /// None if no contact is configured.
    pub fn of(line: &str) -> Option<Self> {
        let after = |scheme: &str| {
            let (start, rest) = line.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        let text = if let Some(address) = after("mailto:").or_else(|| after("tel:")) {
            address
        } else if after("https://").or_else(|| after("http://")).is_some() {
            line
        } else {
            return (!line.is_empty()).then(|| Self { text: line.to_owned(), address: None });
        };
        Some(Self { text: text.to_owned(), address: Some(line.to_owned()) })
    }
}

impl ChallengeView {
    pub fn new(challenge: Challenge, now: Micros, help: Option<HelpContact>) -> Self {
        let Challenge { id, expires_in, image_after, proof } = challenge;
        let image_wait = image_after.map(|after| Wait::new(now, after));
        let proof = proof.map(|proof| proof.to_json());
        Self { id, expires_in, image_wait, proof, help }
    }

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
