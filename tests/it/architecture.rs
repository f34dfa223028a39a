//! What a module may name, how long a file may be, and the like: rules of the house that no compiler
//! checks, held over the sources as text.

use std::path::{Path, PathBuf};

/// One reason to be opened ends somewhere; past this a file has two.
const LONGEST_FILE: usize = 400;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file under a folder with that ending, as its path from the root and its text.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.extension().is_some_and(|kind| kind == ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), ending, &mut found);
    assert!(!found.is_empty(), "{folder} holds no .{ending} files");
    found.sort();
    let shown = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found.iter().map(|path| (shown(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// A line without its comment. Text in quotation marks that holds `//` is cut, too, which hides nothing
/// that these rules look for.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether a line of code has that word, bounded by what is no part of a name.
fn names(line: &str, word: &str) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    code(line).match_indices(word).any(|(at, _)| {
        let (before, after) = (&code(line)[..at], &code(line)[at + word.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

/// Every line under the folder that names one of the words.
fn offences(folder: &str, words: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    for (path, text) in files(folder, "rs") {
        for (number, line) in text.lines().enumerate() {
            if words.iter().any(|word| names(line, word)) {
                offences.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    offences
}

#[test]
fn the_web_names_neither_sqlx_nor_redis() {
    let found = offences("src/web", &["sqlx", "redis", "on_db", "on_tx"]);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_throttle_names_neither_http_nor_sql_nor_accounts() {
    let above = [
        "actix_web",
        "sqlx",
        "crate::login",
        "crate::web",
        "crate::captcha",
        "crate::config",
        "crate::db",
        "crate::app",
        "crate::sms",
    ];
    let found = offences("src/throttle", &above);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn calls_go_down_only() {
    for (folder, above) in [
        ("src/login", &["actix_web", "crate::web", "crate::routes", "crate::app"][..]),
        (
            "src/sms",
            &["actix_web", "crate::web", "crate::login", "crate::captcha", "crate::routes", "crate::app"],
        ),
        ("src/sms", &["actix_web", "crate::web", "crate::login", "crate::routes", "crate::app"]),
        ("src/custom", &["actix_web", "crate::web", "crate::routes", "crate::app"]),
        ("src/tuning", &["actix_web", "crate::web", "crate::login", "crate::routes", "crate::app"]),
        ("src/lookup", &["actix_web", "crate::web", "crate::routes", "crate::app"]),
        ("src/captcha", &["actix_web", "crate::web", "crate::login", "crate::routes", "crate::app"]),
        (
            "src/config",
            &[
                "actix_web",
                "crate::web",
                "crate::login",
                "crate::sms",
                "crate::captcha",
                "crate::audit",
                "crate::tuning",
                "crate::routes",
                "crate::app",
            ],
        ),
    ] {
        let found = offences(folder, above);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn time_is_told_by_the_clock_alone() {
    let found: Vec<_> = offences("src", &["SystemTime::now", "Timestamp::now", "Zoned::now", "Utc::now"])
        .into_iter()
        .filter(|line| !line.starts_with("src/clock.rs:"))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_script_opens_with_its_contract() {
    for (path, text) in files("lua", "lua") {
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap();
        assert!(text.starts_with(&format!("--[[ {name}: ")), "{path} does not say what it is");
        let header = text.split("]]").next().unwrap();
        // What every script begins with takes nothing and answers nothing itself.
        if name == "window" {
            continue;
        }
        for part in ["Why a script:", "\n  KEYS[", "\n  ARGV", "\n  Output"] {
            assert!(header.contains(part), "{path} leaves out {part:?}");
        }
    }
}

#[test]
fn every_source_says_what_it_is_for_in_its_first_line() {
    for (path, text) in files("src", "rs").into_iter().chain(files("tests", "rs")) {
        assert!(
            text.starts_with("//!") || path.ends_with("tests.rs") || path.ends_with("tests/mod.rs"),
            "{path}"
        );
    }
}

#[test]
fn no_source_is_longer_than_one_reason() {
    let lengths = files("src", "rs").into_iter().map(|(path, text)| (text.lines().count(), path));
    let long: Vec<_> = lengths.filter(|(lines, _)| *lines > LONGEST_FILE).collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// The policy that pages are sent with forbids it; a browser would drop it without a word.
#[test]
fn no_template_has_a_script_or_a_style_in_it() {
    for (path, text) in files("templates", "html") {
        for (number, line) in text.lines().enumerate() {
            let at = format!("{path}:{}: {}", number + 1, line.trim());
            let lower = line.to_lowercase();
            assert!(!lower.contains("style="), "{at}");
            assert!(!lower.contains("<style"), "{at}");
            assert!(!lower.contains("javascript:"), "{at}");
            assert!(!lower.contains("<script") || lower.contains("<script src="), "{at}");
            let handler = lower.match_indices(" on").any(|(index, _)| {
                let name = lower[index + 3..].split('=').next().unwrap_or_default();
                lower[index + 3..].contains('=')
                    && !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_lowercase())
            });
            assert!(!handler, "{at}");
        }
    }
}

/// Styles set by script are governed by the policy, too; classes are not.
#[test]
fn the_script_makes_no_code_of_text() {
    for (path, text) in files("static", "js") {
        for banned in [
            "eval(",
            "new Function",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "setAttribute(\"style\"",
            "setAttribute(\"on",
        ] {
            assert!(!text.contains(banned), "{path} has {banned}");
        }
    }
}

#[test]
fn exceptions_to_a_lint_give_a_reason() {
    for (path, text) in files("src", "rs") {
        for (number, line) in text.lines().enumerate() {
            assert!(
                !names(line, "#[allow") && !line.contains("#[allow("),
                "{path}:{}: use #[expect(…, reason)]",
                number + 1
            );
        }
        for expect in text.split("#[expect(").skip(1) {
            let inside = expect.split(")]").next().unwrap_or_default();
            assert!(inside.contains("reason = \""), "{path}: an #[expect] without a reason: {inside}");
        }
    }
}
