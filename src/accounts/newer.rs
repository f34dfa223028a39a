//! Names with characters that the tables of RFC 8264 know nothing of, which are those of Unicode 6.3 (2013): Han of people's
//! names, whole scripts, emoji. Names that the tables know are what they were.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::{BidiClass, GeneralCategory};
use precis_profiles::precis_core::profile::PrecisFastInvocation;
use precis_profiles::precis_core::{DerivedPropertyValue, Error};
use precis_profiles::{Nickname, UsernameCaseMapped};

use crate::unseen::{is_shaper, is_unseen};

/// As UsernameCaseMapped, with newer letters.
pub fn enforce_username(input: &str) -> Result<Cow<'_, str>, Error> {
    UsernameCaseMapped::enforce(input).or_else(|error| match is_about_newer(&error) {
        true => with_stand_ins(input).ok_or(error).and_then(|(text, newer)| newer.put_back(&text)),
        false => Err(error),
    })
}

/// As Nickname, with everything newer that is seen.
pub fn enforce_nickname(input: &str) -> Result<Cow<'_, str>, Error> {
    Nickname::enforce(input).or_else(|error| {
        let is_fit = |letter: char| !is_unseen(letter) && !is_shaper(letter) && is_defined(letter);
        if !is_about_newer(&error) || !input.chars().all(is_fit) {
            return Err(error);
        }
        let spaced = input.split_whitespace().collect::<Vec<_>>().join(" ");
        let composed = ComposingNormalizerBorrowed::new_nfkc().normalize(&spaced.to_lowercase()).into_owned();
        Ok(composed.into())
    })
}

fn is_about_newer(error: &Error) -> bool {
    matches!(error, Error::BadCodepoint(info) if info.property == DerivedPropertyValue::Unassigned)
}

fn category(letter: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(letter)
}

fn is_defined(letter: char) -> bool {
    !matches!(category(letter), GeneralCategory::Unassigned | GeneralCategory::PrivateUse)
}

fn is_newer_letter(letter: char) -> bool {
    use GeneralCategory::{LowercaseLetter, ModifierLetter, OtherLetter, UppercaseLetter};
    let is_letter =
        [LowercaseLetter, ModifierLetter, OtherLetter, UppercaseLetter].contains(&category(letter));
    let text = letter.to_string();
    is_letter
        && UsernameCaseMapped::enforce(&*text).is_err_and(|error| is_about_newer(&error))
        && ComposingNormalizerBorrowed::new_nfkc().is_normalized(&text)
}

/// Newer letters that others stand for.
struct NewerLetters {
    stand_ins: [char; 2],
    /// In their order.
    letters: Vec<char>,
}

/// The rules of names ask what a letter is, not which it is: a letter that the tables know, of the same direction, stands for each
/// that they do not know. None if the text has all of those that could.
fn with_stand_ins(input: &str) -> Option<(String, NewerLetters)> {
    let free = |mut letters: std::ops::RangeInclusive<char>| letters.find(|letter| !input.contains(*letter));
    let stand_ins = [free('一'..='丰')?, free('א'..='ת')?];
    let (mut text, mut letters) = (String::with_capacity(input.len()), Vec::new());
    let lower =
        |letter: char| if is_newer_letter(letter) { letter.to_lowercase().collect() } else { vec![letter] };
    for letter in input.chars().flat_map(lower) {
        if !is_newer_letter(letter) {
            text.push(letter);
            continue;
        }
        let class = CodePointMapData::<BidiClass>::new().get(letter);
        let goes_left = class == BidiClass::RightToLeft || class == BidiClass::ArabicLetter;
        text.push(stand_ins[usize::from(goes_left)]);
        letters.push(letter);
    }
    Some((text, NewerLetters { stand_ins, letters }))
}

impl NewerLetters {
    fn put_back<'a>(self, text: &str) -> Result<Cow<'a, str>, Error> {
        let Self { stand_ins, letters } = self;
        let (name, mut letters) = (UsernameCaseMapped::enforce(text)?.into_owned(), letters.into_iter());
        let back =
            |letter| if stand_ins.contains(&letter) { letters.next().unwrap_or(letter) } else { letter };
        Ok(name.chars().map(back).collect::<String>().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_letters_are_letters() {
        let name = |text: &'static str| enforce_username(text).map(Cow::into_owned);
        // Han of extensions E, G and H; Osage, capital and small; a Georgian capital; Adlam.
        assert_eq!(name("王\u{2b82f}").unwrap(), "王\u{2b82f}");
        assert_eq!(name("\u{30000}\u{31350}一丁").unwrap(), "\u{30000}\u{31350}一丁");
        assert_eq!(name("\u{104b0}x").unwrap(), "\u{104d8}x");
        assert_eq!(name("\u{1c90}").unwrap(), "\u{10d0}");
        assert_eq!(name("\u{1e900}\u{1e901}").unwrap(), "\u{1e922}\u{1e923}");
        assert_eq!(name("ＡＬＩＣＥ\u{2b82f}e\u{301}").unwrap(), "alice\u{2b82f}é", "the other rules hold");
        assert!(name("\u{1e900}x").is_err(), "two directions");
        for text in [
            "bob\u{1f914}",
            "bob\u{20bf}",
            "bob\u{e000}",
            "bob\u{378}",
            "bob\u{200b}\u{2b82f}",
            "\u{1100}bob",
        ] {
            assert!(name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn newer_signs_are_part_of_names_elsewhere() {
        let name = |text: &'static str| enforce_nickname(text).map(Cow::into_owned);
        assert_eq!(name(" Ada  \u{1f914} ").unwrap(), "ada \u{1f914}");
        assert_eq!(name("ＡＤＡ\u{1fae0}").unwrap(), "ada\u{1fae0}");
        for text in ["\u{1f914}\u{200b}", "\u{1f914}\u{200d}x", "\u{1fae0}\0", "\u{1fae0}\u{e000}", "\u{378}"]
        {
            assert!(name(text).is_err(), "{text:?}");
        }
    }
}
