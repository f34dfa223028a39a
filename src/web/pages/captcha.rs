//! The CAPTCHA part of a form.

use std::time::Duration;

use crate::web::locale::Locale;
use crate::web::wait::{Wait, span_in_words};

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
    Later(Wait),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeView {
    pub id: String,
    pub expires_in: Duration,
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
