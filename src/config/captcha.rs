//! `[captcha]`: who makes the challenges (fixed until a restart), how hard they are, how long they last and what
//! there is besides the image (live).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document::ValueNode;
use super::reader::{ParseResult, SectionReader, WithinSection};
use super::section::section;
use super::values::{MINUTE, SECOND, duration, text, word, yes_or_no};

/// Where answers come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptchaProvider {
    /// Distorted letters, drawn by this process.
    #[default]
    Image,
    /// The same answer every time, of 1 to 128 bytes without white space: for tests, on loopback only. The
    /// image is blank if a letter is not in the alphabet.
    Fixed { answer: String },
}

/// How much an image is distorted. Stock OCR reads some easy ones; hard ones cost people more than machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    Easy,
    #[default]
    Medium,
    Hard,
}

const DIFFICULTIES: [(&str, Difficulty); 3] =
    [("easy", Difficulty::Easy), ("medium", Difficulty::Medium), ("hard", Difficulty::Hard)];

section! {
    /// Settings that need a restart.
    CaptchaSettings in "captcha" {
        provider: CaptchaProvider = CaptchaProvider::Image, WithinSection(provider);
    }
}

section! {
    /// Settings that are live.
    CaptchaTunables in "captcha" {
        difficulty: Difficulty = Difficulty::Medium, word(&DIFFICULTIES);
        /// How long a challenge can be solved. The longest proof of work takes a slow phone 15 s.
        ttl: Duration = MINUTE * 3, duration(SECOND * 30..=MINUTE * 60);
        /// A proof of work is offered beside the image.
        proof_of_work: bool = true, yes_or_no;
        /// The contact for people who can do neither; none if empty.
        help: String = String::new(), contact;
    }
}

/// A line that is shown to everybody: an address to write to or to call, or a few words.
fn contact(node: ValueNode) -> ParseResult<String> {
    const LONGEST: usize = 200;
    let line = node.text()?.trim().to_owned();
    if line.chars().any(char::is_control) || line.chars().count() > LONGEST {
        return Err(format!(
            "must be one line of at most {LONGEST} characters: a URL (https:, mailto: or tel:) or text"
        ));
    }
    Ok(line)
}

fn provider(section: &mut SectionReader<'_>, key: &'static str) -> Option<CaptchaProvider> {
    let place = section.place_of(key);
    let fixed = section.value(key, false, word(&[("image", false), ("fixed", true)]));
    let missing = "is missing; captcha.provider = \"fixed\" requires it: the answer to every challenge";
    let answer = section.required("fixed_answer", missing, place.filter(|_| fixed), text);
    answer.filter(|_| fixed).map(|answer| CaptchaProvider::Fixed { answer })
}
