//! `[captcha]`: who makes the challenges (until a restart), how hard and how long (live).

use std::time::Duration;

use super::reader::Section;
use super::values::{duration, text, word};
use crate::captcha::Difficulty;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptchaProvider {
    /// Distorted letters, drawn by this process.
    #[default]
    Image,
    /// The same answer every time: for tests, on loopback only.
    Fixed { answer: String },
}

/// What may change while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptchaTunables {
    pub difficulty: Difficulty,
    /// How long a challenge can be solved.
    pub ttl: Duration,
}

impl Default for CaptchaTunables {
    fn default() -> Self {
        Self { difficulty: Difficulty::default(), ttl: Duration::from_secs(3 * 60) }
    }
}

const DIFFICULTIES: [(&str, Difficulty); 3] =
    [("easy", Difficulty::Easy), ("medium", Difficulty::Medium), ("hard", Difficulty::Hard)];

pub(super) fn read(section: &mut Section<'_>) -> (CaptchaProvider, CaptchaTunables) {
    let default = CaptchaTunables::default();
    let place = section.place_of("provider");
    let fixed = section.value("provider", false, word(&[("image", false), ("fixed", true)]));
    let missing =
        "is missing, and captcha.provider = \"fixed\" needs it: the answer that every challenge takes";
    let answer = section.required("fixed_answer", missing, place.filter(|_| fixed), text);
    let provider = match answer {
        Some(answer) if fixed => CaptchaProvider::Fixed { answer },
        _ => CaptchaProvider::Image,
    };
    let bounds = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
    let tunables = CaptchaTunables {
        difficulty: section.value("difficulty", default.difficulty, word(&DIFFICULTIES)),
        ttl: section.value("ttl", default.ttl, duration(bounds)),
    };
    (provider, tunables)
}
