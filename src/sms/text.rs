//! The text of a message: the code, its purpose, how long it is valid, and a warning not to share it.

use std::time::Duration;

use rust_i18n::t;
use zeroize::Zeroizing;

use crate::config::{ProgramText, fits_one_segment};
use crate::message::{MessageCode, Purpose};

/// Whole minutes, rounded down, so that nobody is told a longer time than the code is valid.
fn minutes(ttl: Duration) -> u64 {
    (ttl.as_secs() / 60).max(1)
}

/// In the program's own words, if it has some, and otherwise in ours, which name it. No line binds the code to our
/// site: it is not for us.
pub fn program_text(
    name: &str,
    template: Option<&ProgramText>,
    code: &MessageCode,
    ttl: Option<Duration>,
    locale: &str,
    language: Option<&str>,
) -> Zeroizing<String> {
    let (minutes, code) = (ttl.map(|ttl| minutes(ttl).to_string()), code.expose());
    let filled =
        |template: &ProgramText| template.fill(language, code, minutes.as_deref().unwrap_or_default());
    if let Some(text) = template.and_then(filled) {
        return text;
    }
    let program = template.map_or(name, |template| template.program.as_str());
    let words = match &minutes {
        Some(minutes) => {
            t!("sms.code.program", locale = locale, program = program, code = code, minutes = minutes)
        }
        // It is not known here how long it is valid.
        None => t!("sms.code.relayed", locale = locale, program = program, code = code),
    };
    in_one_segment(Zeroizing::new(words.into_owned()), program, code, locale)
}

/// The words, or fewer if they are more than one SMS with the program's name: a name of other letters than ASCII leaves
/// less room, and one from a scope may be long.
fn in_one_segment(words: Zeroizing<String>, program: &str, code: &str, locale: &str) -> Zeroizing<String> {
    let short = |locale: &str| {
        let short = t!("sms.code.short", locale = locale, program = program, code = code);
        Zeroizing::new(short.into_owned())
    };
    if fits_one_segment(&words) {
        return words;
    }
    Some(short(locale)).filter(|short| fits_one_segment(short)).unwrap_or_else(|| short("en"))
}

/// Fits in one SMS segment in every language; `brand` is our name in it. If there is room, its last line binds the code to
/// the site (`@login.example #012345`): browsers offer it there and nowhere else
/// (<https://wicg.github.io/sms-one-time-codes/>). As secret as the code.
pub fn text(
    purpose: Purpose,
    code: &MessageCode,
    ttl: Duration,
    locale: &str,
    brand: &str,
    site: Option<&str>,
) -> Zeroizing<String> {
    let key = match purpose {
        Purpose::Login => "sms.code.login",
        Purpose::Register => "sms.code.register",
        Purpose::Reset => "sms.code.reset",
        Purpose::Verify => "sms.code.verify",
    };
    let (minutes, code) = (minutes(ttl), code.expose());
    let words = t!(key, locale = locale, program = brand, code = code, minutes = minutes).into_owned();
    let words = in_one_segment(Zeroizing::new(words), brand, code, locale);
    let bound = site.map(|site| Zeroizing::new(format!("{}\n@{site} #{code}", *words)));
    bound.filter(|bound| fits_one_segment(bound)).unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    #[test]
    fn every_text_fits_one_segment_and_says_code_and_minutes() {
        let code = MessageCode::random(&Entropy::seeded(3));
        let longest = ["a".repeat(40), "é".repeat(40), "店".repeat(40)];
        let brands = longest.iter().map(String::as_str).chain(["Gatehouse", "Exämple"]);
        for (brand, locale) in brands.flat_map(|brand| ["en", "zh-CN", "xx"].map(|locale| (brand, locale))) {
            for purpose in Purpose::ALL {
                for site in [None, Some("id.example"), Some("a-rather-long-name.of-a-company.example")] {
                    let text = text(purpose, &code, TEN_MINUTES, locale, brand, site);
                    assert!(fits_one_segment(&text), "{}", *text);
                    assert!(text.contains(code.expose()) && text.contains(brand), "{}", *text);
                    assert!(text.contains("10") || brand != "Gatehouse", "{}", *text);
                }
            }
        }
    }

    #[test]
    fn a_program_of_any_name_gets_one_segment_with_its_name_and_code() {
        let code = MessageCode::relayed("0123456789").unwrap();
        let ours = MessageCode::parse("012345").unwrap();
        let names = [
            "shop".to_owned(),
            "a".repeat(64),
            "é".repeat(40),
            "店".repeat(40),
            "😀".repeat(20),
            "Café".into(),
        ];
        for (name, locale) in names.iter().flat_map(|name| [(name, "en"), (name, "zh-CN"), (name, "xx")]) {
            let of = if name.is_ascii() { name.as_str() } else { "shop" };
            let named = ProgramText::named(name);
            let template = (!name.is_ascii()).then_some(&named);
            for text in [
                program_text(of, template, &ours, Some(TEN_MINUTES), locale, None),
                program_text(of, template, &code, None, locale, None),
            ] {
                assert!(fits_one_segment(&text), "{}", *text);
                assert!(text.contains(name.as_str()) && text.contains("012345"), "{}", *text);
            }
        }
    }

    #[test]
    fn the_last_line_names_the_site_if_there_is_room_for_it() {
        let code = MessageCode::parse("012345").unwrap();
        let last = |locale, site: &str| {
            let text = text(Purpose::Login, &code, TEN_MINUTES, locale, "Gatehouse", Some(site));
            text.lines().last().unwrap().to_owned()
        };
        assert_eq!(last("en", "auth.example"), "@auth.example #012345");
        assert_eq!(last("zh-CN", "id.example"), "@id.example #012345");
        assert!(last("zh-CN", "id.company.example").ends_with('。'), "no room in 70 units");
        assert!(last("en", &"a".repeat(60)).ends_with("Ignore it."), "no room in 160 septets");
        let alone = text(Purpose::Login, &code, TEN_MINUTES, "en", "Gatehouse", None);
        assert_eq!(alone.lines().count(), 1);
    }

    #[test]
    fn every_purpose_has_words_of_its_own_in_each_language() {
        let code = MessageCode::random(&Entropy::seeded(4));
        for locale in ["en", "zh-CN"] {
            let texts: std::collections::BTreeSet<_> = Purpose::ALL
                .map(|purpose| {
                    text(purpose, &code, Duration::from_secs(300), locale, "Gatehouse", None).to_string()
                })
                .into();
            assert_eq!(texts.len(), Purpose::ALL.len());
            let warning = if locale == "en" { "Do not share it" } else { "切勿告诉他人" };
            assert!(texts.iter().all(|text| text.contains(warning) && !text.contains('%')), "{texts:?}");
        }
    }
}
