//! The locales: both files have the same keys, and every key in use exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gatehouse_limiter::CalendarUnit;
use strum::VariantArray;

use super::*;
use crate::accounts::{AccountAct, AccountKey, AccountRole, AccountState, AdminScope};
use crate::audit::{Action, AttackKind, Outcome};
use crate::codes::{Channel, MessageState};
use crate::config::LimitName;
use crate::mail::LetterKind;
use crate::message::Purpose;
use crate::sms::{OutOfService, ReportState};
use crate::web::console::access::AccessAnswer;
use crate::web::http::{Flash, Theme};

fn words(code: &str) -> BTreeMap<String, String> {
    fn walk(prefix: &str, table: &toml::Table, out: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(inner) => walk(&path, inner, out),
                toml::Value::String(text) => drop(out.insert(path, text.clone())),
                _ => {}
            }
        }
    }
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("locales/{code}.toml")));
    let mut out = BTreeMap::new();
    walk("", &text.unwrap().parse().unwrap(), &mut out);
    out
}

fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split("%{").skip(1).filter_map(|rest| rest.split('}').next()).collect()
}

#[test]
fn both_languages_have_the_same_keys() {
    let keys = |code| words(code).into_keys().collect::<BTreeSet<_>>();
    assert_eq!(keys("en"), keys("zh-CN"));
}

#[test]
fn both_languages_fill_in_the_same_placeholders() {
    let chinese = words("zh-CN");
    for (key, text) in words("en") {
        assert_eq!(placeholders(&text), placeholders(&chinese[&key]), "{key}");
    }
}

#[test]
fn no_word_is_empty_or_left_in_english() {
    let chinese = words("zh-CN");
    for (key, text) in words("en") {
        assert!(!text.trim().is_empty(), "{key}");
        assert!(text != chinese[&key], "{key} is not translated");
    }
}

#[test]
fn every_word_that_is_asked_for_is_there_and_none_is_left_over() {
    let known = words("en");
    let sections: BTreeSet<&str> = known.keys().filter_map(|key| key.split('.').next()).collect();
    let mut asked = BTreeSet::new();
    for folder in ["src/web", "src/sms/text.rs", "src/mail/letter.rs", "templates"] {
        visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut |text| {
            let is_key = |literal: &&str| {
                let key = literal
                    .split_once('.')
                    .is_some_and(|(section, name)| sections.contains(section) && !name.is_empty());
                key && literal.bytes().all(|byte| byte.is_ascii_lowercase() || b"._-".contains(&byte))
            };
            asked.extend(text.split('"').filter(is_key).map(str::to_owned));
        });
    }
    asked.extend(derived(&known));
    // What a figure counts is told under its own name.
    let means = |key: &String| Some(format!("means.{}", key.rsplit_once('.')?.1));
    asked.extend(asked.iter().filter_map(means).filter(|key| known.contains_key(key)).collect::<Vec<_>>());
    // The keys of limits are in their table.
    asked.extend(LimitName::ALL.iter().flat_map(|name| <[_; 2]>::from(name.words())).map(str::to_owned));
    for key in &asked {
        assert!(known.contains_key(key), "{key} is in no language");
    }
    // The keys of problems are derived from the name; `problem_tests` checks them.
    for key in known.keys().filter(|key| !key.starts_with("problem.")) {
        assert!(asked.contains(key), "{key} is said nowhere");
    }
}

/// The keys that are derived from a stored name. Every act and detail that an event may have is a word of a source.
fn derived(known: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut all = |section: &str, lead: &str, names: &mut dyn Iterator<Item = &'static str>| {
        for name in names {
            keys.insert(format!("{section}.{lead}{name}"));
        }
    };
    all("event", "", &mut Action::VARIANTS.iter().map(|it| it.into_str()));
    all("event", "attack-", &mut AttackKind::VARIANTS.iter().map(|it| it.into_str()));
    all("outcome", "", &mut Outcome::VARIANTS.iter().map(|it| it.into_str()));
    all("messages", "state-", &mut MessageState::VARIANTS.iter().map(|it| it.into_str()));
    all("messages", "channel-", &mut Channel::VARIANTS.iter().map(|it| it.into_str()));
    all("messages", "purpose-", &mut Purpose::ALL.iter().map(|it| it.into_str()));
    all("warning", "gateway-", &mut OutOfService::VARIANTS.iter().map(|it| it.into_str()));
    all("messages", "reported-", &mut ReportState::VARIANTS.iter().map(|it| it.into_str()));
    all("answers", "is-", &mut AccessAnswer::VARIANTS.iter().map(|it| it.into_str()));
    for answer in AccessAnswer::VARIANTS {
        all("answers", answer.into_str(), &mut ["", "-about", "-do"].into_iter());
    }
    for kind in LetterKind::VARIANTS {
        let parts: &[_] = if kind.is_code() { &["subject", "lead"] } else { &["subject", "lead", "then"] };
        all("mail", &format!("{}.", kind.into_str()), &mut parts.iter().copied());
    }
    for act in AccountAct::VARIANTS {
        all("accounts", act.into_str(), &mut ["", "-about"].into_iter());
        all("act", "account-", &mut [act.into_str()].into_iter());
    }
    all("accounts", "by-", &mut AccountKey::VARIANTS.iter().map(|it| it.into_str()));
    all("accounts", "", &mut AccountRole::VARIANTS.iter().map(|it| it.into_str()));
    all("accounts", "", &mut AccountState::VARIANTS.iter().map(|it| it.into_str()));
    all("rule", "unit-", &mut CalendarUnit::ALL.iter().map(|it| it.as_str()));
    all("draft", "span-", &mut ["window"].into_iter().chain(CalendarUnit::ALL.map(CalendarUnit::as_str)));
    keys.extend(
        AdminScope::VARIANTS.iter().map(|it| format!("tokens.scope-{}", it.into_str().replace(':', "-"))),
    );
    keys.extend(Theme::VARIANTS.iter().map(|theme| theme.into_str().to_owned()));
    keys.extend(Flash::VARIANTS.iter().map(|flash| flash.into_str().to_owned()));
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |text| {
        let words = text
            .split('"')
            .flat_map(|word| [format!("act.{}", word.replace('.', "-")), format!("detail.{word}")]);
        keys.extend(words.filter(|key| known.contains_key(key)));
    });
    keys
}

fn visit(folder: &Path, read: &mut impl FnMut(&str)) {
    if folder.is_file() {
        return read(&std::fs::read_to_string(folder).unwrap());
    }
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, read);
        } else if !path.to_string_lossy().ends_with("tests.rs") {
            read(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_highest_weight_wins_then_the_first() {
    assert_eq!(Locale::accepted("zh-CN,zh;q=0.9,en;q=0.8"), Some(Locale::ZhCn));
    assert_eq!(Locale::accepted("en;q=0.3, zh ; q=0.9"), Some(Locale::ZhCn));
    assert_eq!(Locale::accepted("fr, de;q=0.9, zh-Hant-TW;q=0.2"), Some(Locale::ZhCn));
    assert_eq!(Locale::accepted("en-GB, zh"), Some(Locale::En));
}

#[test]
fn a_weight_of_nothing_refuses_and_nonsense_is_passed_over() {
    assert_eq!(Locale::accepted("zh;q=0, fr"), None);
    assert_eq!(Locale::accepted("zh;q=2, en;q=nan, zh;level=1, *;q=0.1"), Some(Locale::En));
    assert_eq!(Locale::accepted(""), None);
    assert_eq!(Locale::accepted(&format!("{}zh", "x,".repeat(5000))), None);
}

#[test]
fn a_language_is_chosen_by_its_whole_name() {
    assert_eq!(Locale::named("zh-cn"), Some(Locale::ZhCn));
    assert_eq!(Locale::named("zh"), None);
    assert_eq!(Locale::named("../en"), None);
}
