//! Passwords: one form for every keyboard, and the rules for new ones.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;
use zxcvbn::Score;

use crate::secret::hidden_debug;
use crate::unseen::{is_shaper, is_unseen};

/// NIST SP 800-63B-4, 3.1.1.2: 15 if a password is the only factor. In characters (code points) after
/// normalisation.
pub const MIN_CHARS: usize = 15;
/// NIST asks for at least 64; more costs nothing, because the hash reads its input once.
pub const MAX_CHARS: usize = 256;
/// The most bytes that are read at all: 256 characters of four bytes.
pub const MAX_INPUT: usize = 1024;
/// The number of characters that the strength estimate reads. Its time grows with the square of the length:
/// characters that each stand for several letters took 28 ms at 32 characters, 54 at 48, 212 at 100
/// (optimised build).
const ESTIMATED_CHARS: usize = 32;
/// zxcvbn's highest: 10^10 guesses or more. One lower (10^8) accepts a common word with a year and some
/// punctuation, or the same season and year twice, which a minimum of 15 characters invites.
const MIN_SCORE: Score = Score::Four;

/// The input in one form for every keyboard: spaces of all kinds are one, and letters are composed (NFC), as by RFC 8265's
/// OpaqueString. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct Password {
    normal: SecretString,
    /// The password as it was typed, if that is something else.
    typed: Option<SecretString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("enter a password")]
    Empty,
    #[error("a password must have at least {MIN_CHARS} characters; a few unrelated words work well")]
    TooShort,
    #[error("a password must have at most {MAX_CHARS} characters")]
    TooLong,
    #[error("a password must not contain control characters, such as tabs and line breaks")]
    Control,
    #[error("a password must not contain characters that Unicode does not define")]
    Undefined,
    #[error("this password is easy to guess; use a few unrelated words")]
    Guessable,
    #[error("this password is in a published list of lost passwords; use one that you use nowhere else")]
    Breached,
}

impl Password {
    /// A new password with an acceptable length; `guessable` checks the rest. There are no composition rules
    /// (NIST SP 800-63B-4).
    pub(super) fn choose(input: &str) -> Result<Self, PasswordError> {
        bound(input)?;
        let normal = normalised(input)?;
        let password = Self { normal: SecretString::from(normal.into_owned()), typed: None };
        match password.normal.expose_secret().chars().count() {
            ..MIN_CHARS => Err(PasswordError::TooShort),
            MIN_CHARS..=MAX_CHARS => Ok(password),
            _ => Err(PasswordError::TooLong),
        }
    }

    /// What can be said of a new password at once. Whether it is guessable takes longer, and is said when it is
    /// hashed.
    pub fn check(input: &str) -> Result<(), PasswordError> {
        Self::choose(input).map(drop)
    }

    /// The block-list: common passwords, dates, keyboard runs, repeats, the name of this service, and words
    /// of the owner (a name, a number). Takes up to 30 ms for an adversarial input.
    pub(super) fn guessable(&self, own: &str) -> bool {
        // One picture of a family is seven characters, of which three join the others.
        let seen = self.normal.expose_secret().chars().filter(|it| !is_unseen(*it) && !is_shaper(*it));
        let head = seen.take(ESTIMATED_CHARS).collect::<String>();
        let head = Zeroizing::new(head);
        zxcvbn::zxcvbn(&head, &[own, "gatehouse"]).score() < MIN_SCORE
    }

    /// A password tried at sign-in. Only its length is checked (1 to 1024 bytes): a short or odd one is
    /// simply wrong, and must look and cost the same as any other.
    pub fn attempt(input: &str) -> Result<Self, PasswordError> {
        bound(input)?;
        // Input that is no password was never stored either, so as it is it matches nothing.
        let normal = normalised(input).unwrap_or(Cow::Borrowed(input));
        let typed = (normal != input).then(|| SecretString::from(input.to_owned()));
        Ok(Self { normal: SecretString::from(normal.into_owned()), typed })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.normal.expose_secret().as_bytes()
    }

    /// What other systems hash: they do not normalise.
    pub(super) fn bytes_as_typed(&self) -> &[u8] {
        self.typed.as_ref().unwrap_or(&self.normal).expose_secret().as_bytes()
    }
}

/// NIST SP 800-63B-4 has all of Unicode accepted. A character that is not defined yet is refused, because the form in which
/// it is composed could change when it is. Printable ASCII is itself; looking it up would take longer than everything else
/// in a refusal.
fn normalised(input: &str) -> Result<Cow<'_, str>, PasswordError> {
    if input.bytes().all(|letter| (b' '..=b'~').contains(&letter)) {
        return Ok(Cow::Borrowed(input));
    }
    let category = |letter| CodePointMapData::<GeneralCategory>::new().get(letter);
    let mut plain = Zeroizing::new(String::with_capacity(input.len()));
    for letter in input.chars() {
        plain.push(match category(letter) {
            GeneralCategory::Control => return Err(PasswordError::Control),
            GeneralCategory::Unassigned => return Err(PasswordError::Undefined),
            GeneralCategory::SpaceSeparator => ' ',
            _ => letter,
        });
    }
    Ok(Cow::Owned(ComposingNormalizerBorrowed::new_nfc().normalize(&plain).into_owned()))
}

hidden_debug!(Password);

const fn bound(input: &str) -> Result<(), PasswordError> {
    match input.len() {
        0 => Err(PasswordError::Empty),
        1..=MAX_INPUT => Ok(()),
        _ => Err(PasswordError::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use precis_profiles::OpaqueString;
    use precis_profiles::precis_core::profile::PrecisFastInvocation;

    use super::*;

    fn choose(input: &str) -> Result<(), PasswordError> {
        let password = Password::choose(input)?;
        if password.guessable("guybrush") { Err(PasswordError::Guessable) } else { Ok(()) }
    }

    /// Hashes of passwords that were normalised by the crate `precis-profiles` (Unicode 6.3) are stored.
    #[test]
    fn what_rfc_8265_accepts_is_what_it_always_was() {
        for letter in '\0'..=char::MAX {
            for text in [letter.to_string(), format!("e{letter}\u{301}")] {
                if let Ok(stored) = OpaqueString::enforce(text.as_str()) {
                    assert_eq!(normalised(&text).as_deref(), Ok(&*stored), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn all_of_unicode_is_accepted() {
        for one in [
            "🙂",
            "🤔",
            "₽",
            "₿",
            "🫠",
            "\u{2b820}",
            "❤\u{fe0f}",
            "👨\u{200d}👩\u{200d}👧\u{200d}👦",
            "👍🏽",
            "🇺🇦",
            "\u{e000}",
            "ꟸ",
            "ﷺ",
            "Ⅳ",
        ] {
            assert_eq!(choose(&format!("quilted {one} lantern ferry 77")), Ok(()), "{one}");
        }
        for (one, error) in [
            ("\t", PasswordError::Control),
            ("\0", PasswordError::Control),
            ("\u{85}", PasswordError::Control),
            ("\u{378}", PasswordError::Undefined),
            ("\u{fffe}", PasswordError::Undefined),
        ] {
            assert_eq!(choose(&format!("quilted {one} lantern ferry 77")), Err(error), "{one:?}");
        }
    }

    #[test]
    fn what_joins_pictures_makes_no_password_of_two() {
        assert_eq!(
            choose("👨\u{200d}👩\u{200d}👧\u{200d}👦🧑\u{200d}🚀🙂❤\u{fe0f}☂\u{fe0f}"),
            Err(PasswordError::Guessable)
        );
        assert_eq!(choose(&format!("ab{}", "\u{200b}".repeat(40))), Err(PasswordError::Guessable));
    }

    #[test]
    fn fifteen_characters_are_counted_not_bytes() {
        assert_eq!(choose("qvT7#mZp2!xKd9"), Err(PasswordError::TooShort), "14");
        assert_eq!(choose("qvT7#mZp2!xKd9w"), Ok(()), "15");
        assert_eq!(choose("张三李四王五"), Err(PasswordError::TooShort), "6 characters of 18 bytes");
        assert_eq!(choose("我家门前有两棵枣树还有一棵柳树"), Ok(()), "15 characters");
    }

    #[test]
    fn long_passphrases_are_welcome_up_to_the_bound() {
        let phrase = "quiet lanterns drift above marble orchards 我 ";
        let long: String = phrase.chars().cycle().take(256).collect();
        assert_eq!(choose(&long), Ok(()));
        assert_eq!(choose(&format!("{long}x")), Err(PasswordError::TooLong));
        assert_eq!(choose(&"🐒".repeat(257)), Err(PasswordError::TooLong));
        assert_eq!(choose(&"x".repeat(10_000_000)), Err(PasswordError::TooLong));
    }

    #[test]
    fn no_composition_is_asked_for() {
        assert_eq!(choose("lantern marble orchard quiet"), Ok(()), "small letters and spaces");
    }

    #[test]
    fn guessable_passwords_are_refused() {
        for weak in [
            "passwordpassword",
            "aaaaaaaaaaaaaaaaaaaa",
            "qwertyuiopasdfgh",
            "123456789012345678",
            "guybrushguybrush",
            "gatehousegatehouse",
            "Gatehouse2026!!!",
            "guybrushpassword",
            "P@ssw0rdP@ssw0rd",
            "Summer2026Summer",
            "welcome to gatehouse",
            "我爱你我爱你我爱你我爱你我爱你",
            "abcdefghijklmnopqrstuvwxyz",
        ] {
            assert_eq!(choose(weak), Err(PasswordError::Guessable), "{weak}");
        }
    }

    #[test]
    fn one_password_typed_on_two_keyboards_is_one_password() {
        let bytes = |input| Password::attempt(input).unwrap().bytes().to_vec();
        assert_eq!(bytes("cafe\u{301} au lait noir"), bytes("café au lait noir"), "composed or not");
        assert_eq!(bytes("a\u{3000}b"), bytes("a b"), "an ideographic space");
        assert_ne!(bytes("Correct"), bytes("correct"), "case counts");
        assert_ne!(bytes(" x "), bytes("x"), "nothing is trimmed");
    }

    #[test]
    fn at_sign_in_a_short_or_odd_password_is_only_wrong() {
        assert!(Password::attempt("x").is_ok());
        assert_eq!(Password::attempt("a\0b").unwrap().bytes(), b"a\0b");
        assert!(Password::attempt(&"x".repeat(1024)).is_ok());
        assert_eq!(Password::attempt(&"x".repeat(1025)).map(drop), Err(PasswordError::TooLong));
        assert_eq!(Password::attempt("").map(drop), Err(PasswordError::Empty));
        assert_eq!(choose("control\u{7}characters ring"), Err(PasswordError::Control));
    }

    #[test]
    fn debug_output_hides_the_password() {
        assert_eq!(format!("{:?}", Password::attempt("opensesame").unwrap()), "Password(…)");
    }
}
