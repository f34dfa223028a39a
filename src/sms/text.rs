//! The text of a message: the code, its purpose, how long it is valid, and a warning not to share it.

use std::time::Duration;

use rust_i18n::t;
use zeroize::Zeroizing;

use super::{Purpose, SmsCode};

/// Fits in one SMS segment in every language. As secret as the code.
pub fn text(purpose: Purpose, code: &SmsCode, ttl: Duration, locale: &str) -> Zeroizing<String> {
    let key = match purpose {
        Purpose::Login => "sms.code.login",
        Purpose::Register => "sms.code.register",
        Purpose::Reset => "sms.code.reset",
        Purpose::Verify => "sms.code.verify",
    };
    // Rounded down, so that nobody is told a longer time than the code is valid.
    let minutes = (ttl.as_secs() / 60).max(1);
    Zeroizing::new(t!(key, locale = locale, code = code.expose(), minutes = minutes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    /// The ASCII characters that take one septet in GSM 03.38.
    fn is_gsm(letter: char) -> bool {
        matches!(letter, '\n' | ' '..='Z' | 'a'..='z') && letter != '`'
    }

    #[test]
    fn every_text_fits_one_segment_and_says_code_and_minutes() {
        let code = SmsCode::random(&Entropy::seeded(3));
        for locale in ["en", "zh-CN", "xx"] {
            for purpose in Purpose::ALL {
                let text = text(purpose, &code, Duration::from_secs(600), locale);
                let units = text.encode_utf16().count();
                let most = if text.chars().all(is_gsm) { 160 } else { 70 };
                assert!(units <= most, "{units} of {most}: {}", *text);
                assert!(text.contains(code.expose()) && text.contains("10"), "{}", *text);
            }
        }
    }

    #[test]
    fn every_purpose_has_words_of_its_own_in_each_language() {
        let code = SmsCode::random(&Entropy::seeded(4));
        for locale in ["en", "zh-CN"] {
            let texts: std::collections::BTreeSet<_> = Purpose::ALL
                .map(|purpose| text(purpose, &code, Duration::from_secs(300), locale).to_string())
                .into();
            assert_eq!(texts.len(), Purpose::ALL.len());
            let warning = if locale == "en" { "Do not share it" } else { "切勿告诉他人" };
            assert!(texts.iter().all(|text| text.contains(warning) && !text.contains('%')), "{texts:?}");
        }
    }
}
