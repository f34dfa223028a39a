//! Usernames: which are valid, and the canonical form in which two spellings of one are the same.

use std::borrow::Cow;

use precis_profiles::UsernameCaseMapped;
use precis_profiles::precis_core::Error as Precis;
use precis_profiles::precis_core::profile::PrecisFastInvocation;
use unicode_security::{RestrictionLevel, RestrictionLevelDetection};

use super::DeviceId;
use crate::secret::hidden_debug;

/// Characters after mapping. Enough for the local part of an e-mail address (RFC 5321: 64).
pub const MAX_CHARS: usize = 64;
/// Bytes after mapping: no key or column is longer, in any script.
pub const MAX_BYTES: usize = 255;
/// Bytes of a name with an @ after mapping: no mail server takes a longer address (RFC 5321, 4.5.3.1.3).
pub const MAX_ADDRESS: usize = 254;
/// Bytes before mapping: 64 characters may have combining marks, but longer input cannot map to a valid name.
const MAX_INPUT: usize = 1024;

/// A username in its canonical form (RFC 8265, UsernameCaseMapped): lower case, normal width, NFC. Equal
/// names are equal bytes, so databases and limits identify an account by it. Columns contain parsed names alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Username(String);

crate::db::text_column!(Username, name => Self(name.to_owned()));

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UsernameError {
    #[error("enter a username")]
    Empty,
    #[error("a username must have at most {MAX_CHARS} characters")]
    TooLong,
    #[error("a username must not contain spaces")]
    Whitespace,
    /// Only administrators, invitations to an account and imports give such names.
    #[error("a username that people choose must not contain @; it is not an e-mail address")]
    At,
    #[error("a username with @ must be one address of at most {MAX_ADDRESS} bytes, such as ada@example.org")]
    Address,
    #[error(
        "a username can contain letters, digits and common punctuation, but no symbols or invisible characters"
    )]
    Character,
    #[error("a username must contain at least one letter; digits alone could be a phone number")]
    NoLetter,
    #[error("a username must use one script; this one mixes letters that look alike")]
    MixedScripts,
    #[error("a username must not mix right-to-left and left-to-right letters")]
    Direction,
}

impl Username {
    /// A name that somebody chooses for themselves. It has no @: applications may take an address for proof of whose it is.
    pub fn chosen(input: &str) -> Result<Self, UsernameError> {
        let name = Self::parse(input)?;
        // A full-width @ becomes one only after mapping.
        if name.0.contains('@') { Err(UsernameError::At) } else { Ok(name) }
    }

    /// Maps `input` to its canonical form and checks it. Whether an account may have the name does not depend on whether
    /// one has it, so a refusal does not show that.
    pub fn parse(input: &str) -> Result<Self, UsernameError> {
        if input.len() > MAX_INPUT {
            return Err(UsernameError::TooLong);
        }
        // Keyboards complete a word with a space.
        let input = input.trim();
        if input.is_empty() {
            return Err(UsernameError::Empty);
        }
        if is_plain(input) {
            return Self::check(input).map(|()| Self(input.to_owned()));
        }
        if input.chars().any(char::is_whitespace) {
            return Err(UsernameError::Whitespace);
        }
        let name = UsernameCaseMapped::enforce(input).map_err(|error| match error {
            // The characters were accepted by then; what is left is the Bidi rule (RFC 5893).
            Precis::Invalid => UsernameError::Direction,
            Precis::BadCodepoint(_) | Precis::Unexpected(_) => UsernameError::Character,
        })?;
        Self::check(&name)?;
        // If a second mapping gives another name, the number of mappings would decide whether the two are one
        // account (RFC 8264, section 7).
        if UsernameCaseMapped::enforce(&*name).ok().as_deref() != Some(&*name) {
            return Err(UsernameError::Character);
        }
        Ok(Self(name.into_owned()))
    }

    fn check(name: &str) -> Result<(), UsernameError> {
        match name.split_once('@') {
            Some((mailbox, host)) => {
                // In a look-up the id of a device stands there.
                let is_host = !host.is_empty() && !host.contains('@') && DeviceId::parse(host).is_none();
                if mailbox.is_empty() || !is_host || name.len() > MAX_ADDRESS {
                    return Err(UsernameError::Address);
                }
            }
            None if name.len() > MAX_BYTES || name.chars().count() > MAX_CHARS => {
                return Err(UsernameError::TooLong);
            }
            None => {}
        }
        if !name.chars().any(char::is_alphabetic) {
            return Err(UsernameError::NoLetter);
        }
        // UTS 39, Highly Restrictive: one script, or the mixtures in which Chinese, Japanese and Korean are
        // written (with Latin). This catches a Cyrillic letter in a Latin name. A name that is entirely
        // Cyrillic and happens to look Latin is accepted, because it may be honest.
        if !name.is_ascii() && !name.check_restriction_level(RestrictionLevel::HighlyRestrictive) {
            return Err(UsernameError::MixedScripts);
        }
        Ok(())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The spelling of a new account. Greek has one capital for σ and for ς, which ends a word, so that nobody can tell which
    /// of them was meant.
    #[must_use]
    pub fn standard(self) -> Self {
        match self.0.contains(SIGMAS) {
            // Rust knows where a word ends (Unicode's Final_Sigma).
            true => Self(self.0.replace(SIGMAS, "Σ").to_lowercase()),
            false => self,
        }
    }

    /// The spellings of an account that this may name, the likeliest first. An older version took each as it was typed.
    pub fn spellings(&self) -> [Self; 3] {
        [self.clone(), self.clone().standard(), Self(folded(&self.0).into_owned())]
    }
}

const SIGMAS: [char; 2] = ['σ', 'ς'];

/// Folds a name: the result is one for all its spellings.
pub fn folded(name: &str) -> Cow<'_, str> {
    if name.contains('ς') { name.replace('ς', "σ").into() } else { name.into() }
}

/// Most names are plain, and RFC 8265 maps them to themselves. Finding that out by its rules would take
/// longer than everything else in a refusal.
fn is_plain(input: &str) -> bool {
    input
        .bytes()
        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"._-".contains(&letter))
}

hidden_debug!(Username);

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(input: &str) -> Result<String, UsernameError> {
        Username::parse(input).map(|name| name.as_str().to_owned())
    }

    #[test]
    fn plain_letters_are_mapped_to_themselves() {
        for letter in (' '..='~').filter(|letter| is_plain(&letter.to_string())) {
            for name in [format!("{letter}"), format!("a{letter}"), format!("{letter}{letter}z")] {
                assert_eq!(UsernameCaseMapped::enforce(name.as_str()).unwrap(), name);
            }
        }
        assert!(is_plain("alice.b_c-9") && !is_plain("Alice") && !is_plain("a b") && !is_plain("a@b"));
    }

    #[test]
    fn a_final_sigma_makes_no_other_name() {
        let name = |text: &str| Username::parse(text).unwrap();
        for text in ["ΣΊΣΥΦΟΣ", "σίσυφος", "σίσυφοσ", "Σίσυφος"] {
            assert_eq!(name(text).standard().as_str(), "σίσυφος", "{text}");
            assert_eq!(folded(name(text).as_str()), "σίσυφοσ", "{text}");
            let spellings = name(text).spellings().map(|name| name.0);
            assert_eq!(spellings[0], name(text).0, "as it was typed first");
            assert!(["σίσυφος", "σίσυφοσ"].iter().all(|known| spellings.iter().any(|it| it == known)));
        }
        assert_eq!(name("alice").spellings(), [name("alice"), name("alice"), name("alice")]);
        for text in ["σίσυφος", "ς", "σ", "οδυσσεύς-2"] {
            let standard = name(text).standard();
            assert_eq!(name(standard.as_str()).standard(), standard, "{text}");
        }
    }

    #[test]
    fn spellings_of_one_name_are_the_same_name() {
        assert_eq!(canonical("Alice").unwrap(), "alice");
        assert_eq!(canonical("ＡＬＩＣＥ").unwrap(), "alice", "full-width letters");
        assert_eq!(canonical("e\u{301}lodie").unwrap(), canonical("ÉLODIE").unwrap(), "combining marks");
        assert_eq!(canonical("Å").unwrap(), canonical("a\u{30a}").unwrap(), "the ångström sign's letter");
        assert_eq!(canonical("张三").unwrap(), "张三");
        assert_eq!(canonical("o'brien-2.jr_").unwrap(), "o'brien-2.jr_");
        for text in ["alice ", " alice", "alice\n", "\u{3000}alice\u{a0}"] {
            assert_eq!(canonical(text).unwrap(), "alice", "{text:?}");
        }
    }

    #[test]
    fn turkish_letters_map_without_a_locale() {
        assert_eq!(canonical("IŞIK").unwrap(), "işik", "no locale is guessed: I is always i");
        assert_ne!(canonical("ışık"), canonical("işik"), "dotless i is a letter of its own");
        assert_ne!(canonical("İstanbul"), canonical("istanbul"), "İ keeps its dot as a mark");
    }

    #[test]
    fn right_to_left_names_are_names_and_mixtures_are_not() {
        assert_eq!(canonical("דוד").unwrap(), "דוד");
        assert_eq!(canonical("محمد").unwrap(), "محمد");
        assert_eq!(canonical("דודabc"), Err(UsernameError::Direction));
        assert_eq!(canonical("bob\u{202e}"), Err(UsernameError::Character), "an override is no letter");
    }

    #[test]
    fn invisible_control_and_symbol_characters_are_refused() {
        for name in
            ["bob\0", "bob\u{7}", "bo\u{200b}b", "bo\u{200d}b", "bo\u{2060}b", "\u{feff}bob", "bo\u{ad}b"]
        {
            assert_eq!(canonical(name), Err(UsernameError::Character), "{name:?}");
        }
        for name in ["bob🙂", "♥", "\u{e000}bob", "bob\u{fffe}", "ﬁona", "①bob"] {
            assert_eq!(canonical(name), Err(UsernameError::Character), "{name:?}");
        }
        for name in ["b ob", "bo\nb", "bo\tb", "bo\u{a0}b", "bo\u{3000}b"] {
            assert_eq!(canonical(name), Err(UsernameError::Whitespace), "{name:?}");
        }
    }

    #[test]
    fn what_would_be_taken_for_a_phone_or_an_address_is_refused() {
        for name in ["13800138000", "+8613800138000", "138-0013-8000", "１３８", "---", "."] {
            assert_eq!(canonical(name), Err(UsernameError::NoLetter), "{name:?}");
        }
        assert_eq!(
            canonical("٠١٢٣"),
            Err(UsernameError::Direction),
            "Arabic digits start no name (RFC 5893)"
        );
        for name in ["a@b.example", "a＠b.example"] {
            assert_eq!(Username::chosen(name), Err(UsernameError::At), "{name}");
        }
        assert_eq!(canonical("a1"), Ok("a1".into()));
    }

    #[test]
    fn scripts_that_look_alike_do_not_mix() {
        assert_eq!(canonical("аdmin"), Err(UsernameError::MixedScripts), "Cyrillic а");
        assert_eq!(canonical("admιn"), Err(UsernameError::MixedScripts), "Greek ι");
        assert_eq!(canonical("админ").unwrap(), "админ");
        assert_eq!(canonical("王小明Leo").unwrap(), "王小明leo", "Han with Latin is how Chinese is written");
        assert_eq!(canonical("さくらAI").unwrap(), "さくらai");
    }

    #[test]
    fn an_administrator_gives_addresses_as_names() {
        let longest = format!("{}@{}.example", "a".repeat(64), "b".repeat(181));
        for (typed, name) in [
            ("Ada.Lovelace+x@Example.ORG", "ada.lovelace+x@example.org"),
            ("ａｄａ＠example.org", "ada@example.org"),
            ("ada@intranet", "ada@intranet"),
            (longest.as_str(), longest.as_str()),
        ] {
            assert_eq!(canonical(typed).unwrap(), name);
            assert_eq!(Username::chosen(typed), Err(UsernameError::At), "{typed}");
        }
        let device = format!("ada@{}", "0".repeat(32));
        for name in ["ada@", "@example.org", "a@b@c", "@", &format!("a{longest}"), &device] {
            assert_eq!(canonical(name), Err(UsernameError::Address), "{name:?}");
        }
        assert_eq!(canonical("a b@example.org"), Err(UsernameError::Whitespace));
        assert_eq!(canonical("аda@example.org"), Err(UsernameError::MixedScripts), "Cyrillic а");
        assert_eq!(canonical("1@2"), Err(UsernameError::NoLetter));
        assert_eq!(Username::chosen("Ada").unwrap().as_str(), "ada");
    }

    #[test]
    fn length_is_counted_after_mapping() {
        assert_eq!(canonical(""), Err(UsernameError::Empty));
        assert_eq!(canonical(" \u{3000}"), Err(UsernameError::Empty));
        assert!(canonical(&"a".repeat(64)).is_ok());
        assert_eq!(canonical(&"a".repeat(65)), Err(UsernameError::TooLong));
        assert_eq!(canonical(&"e\u{301}".repeat(64)).unwrap().chars().count(), 64);
        assert!(canonical(&"张".repeat(64)).is_ok(), "192 bytes");
        assert_eq!(canonical(&"𠀀".repeat(64)), Err(UsernameError::TooLong), "256 bytes");
    }

    #[test]
    fn ten_megabytes_are_refused_before_they_are_mapped() {
        assert_eq!(canonical(&"e\u{301}".repeat(3_500_000)), Err(UsernameError::TooLong));
    }

    #[test]
    fn debug_output_hides_the_name() {
        assert!(!format!("{:?}", Username::parse("alice").unwrap()).contains("alice"));
    }

    proptest::proptest! {
        #[test]
        fn a_canonical_name_maps_to_itself(input in "\\PC{0,40}") {
            if let Ok(name) = Username::parse(&input) {
                proptest::prop_assert_eq!(Username::parse(name.as_str()), Ok(name));
            }
        }
    }
}
