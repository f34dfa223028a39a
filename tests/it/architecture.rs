//! Rules that no compiler checks, such as what a module may name, checked on the
//! text of the sources.

mod imports;

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The modules from the ground up, by the table in docs/architecture.md: one uses those before it only.
fn floors() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| floor | modules |")).skip(2);
    let modules = rows.take_while(|line| line.starts_with('|')).flat_map(|row| {
        let column = row.split('|').nth(2).unwrap();
        column.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    let mut floors: Vec<String> = modules.collect();
    floors.reverse();
    for floor in &floors {
        let there =
            ["src/{}.rs", "src/{}/mod.rs"].map(|path| root().join(path.replace("{}", floor)).exists());
        assert!(there.contains(&true), "{floor} is no module");
    }
    floors
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

/// A line without its comment. A string that contains `//` is cut, too, which hides nothing that these rules
/// look for.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Whether a line of code contains that word as a whole name.
fn names(line: &str, word: &str) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    code(line).match_indices(word).any(|(at, _)| {
        let (before, after) = (&code(line)[..at], &code(line)[at + word.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

/// Every line of a module (a file, a folder or both) that names one of the words.
fn offences(module: &str, words: &[&str]) -> Vec<String> {
    let mut offences = Vec::new();
    let inside = |path: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    };
    let folder = module.split('/').next().unwrap();
    for (path, text) in files(folder, "rs").into_iter().filter(|(path, _)| inside(path)) {
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
fn below_the_web_nothing_names_http_and_below_the_database_nothing_names_sql() {
    let floors = floors();
    let below = |floor| floors.iter().take_while(move |other| *other != floor);
    for (floor, word) in
        below("web").map(|floor| (floor, "actix_web")).chain(below("db").map(|floor| (floor, "sqlx")))
    {
        let found = offences(&format!("src/{floor}"), &[word]);
        assert!(found.is_empty(), "{found:#?}");
    }
}

fn uses() -> imports::Uses {
    let sources = files("src", "rs");
    let sources = sources.iter().filter(|(path, _)| !path.contains("tests"));
    imports::uses(sources.map(|(path, text)| (path.trim_start_matches("src/"), &**text)))
}

#[test]
fn calls_go_down_only() {
    let floors = floors();
    let floor = |module: &str| floors.iter().position(|floor| floor == module);
    for (from, to) in uses() {
        let (Some(upper), Some(lower)) = (from.first(), to.first()) else { continue };
        assert!(floor(upper).is_some(), "{upper} has no floor");
        let down = upper == lower || floor(upper) > floor(lower);
        assert!(down, "{} uses {}", from.join("::"), to.join("::"));
    }
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let circles = imports::circles(&uses());
    assert!(circles.is_empty(), "{circles:#?}");
}

/// Without this, a crate that is no longer used would still be built.
#[test]
fn every_dependency_is_named_by_the_code() {
    let manifest =
        |path: &str| std::fs::read_to_string(root().join(path)).unwrap().parse::<toml::Table>().unwrap();
    let (application, limiter) = (manifest("Cargo.toml"), manifest("limiter/Cargo.toml"));
    for (manifest, section, folders) in [
        (&application, "dependencies", &["src"][..]),
        (&application, "dev-dependencies", &["src", "tests", "benches"]),
        (&limiter, "dependencies", &["limiter/src"]),
        (&limiter, "dev-dependencies", &["limiter/src", "limiter/tests", "tests/it/support"]),
    ] {
        let sources: Vec<_> = folders.iter().flat_map(|folder| files(folder, "rs")).collect();
        for dependency in manifest[section].as_table().unwrap().keys() {
            let name = dependency.replace('-', "_");
            let named = sources.iter().any(|(_, text)| text.lines().any(|line| names(line, &name)));
            assert!(named, "{section}: {dependency}");
        }
    }
}

#[test]
fn time_is_told_by_the_clock_alone() {
    let clocks = ["SystemTime::now", "Timestamp::now", "Zoned::now", "Utc::now"];
    let found: Vec<_> = ["src", "limiter"]
        .into_iter()
        .flat_map(|module| offences(module, &clocks))
        .filter(|line| !line.starts_with("limiter/src/clock.rs:"))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// What a browser sends is read by one function. The framework's own gives up at the first cookie that it cannot decode,
/// which may be another application's (`clippy.toml` bans it).
#[test]
fn cookies_are_read_in_one_place() {
    let header = ["COOKIE", "\"cookie\"", "CookieJar"];
    let is_test = |line: &str| line.split(':').next().unwrap().contains("tests");
    let elsewhere = |line: &str| {
        let allowed = ["src/web/http/cookies.rs:", "src/oidc/check.rs:", "src/web/openapi.rs:"];
        !is_test(line) && !allowed.iter().any(|path| line.starts_with(path))
    };
    let read = ["src", "limiter"].into_iter().flat_map(|module| offences(module, &header));
    let found: Vec<_> = read.filter(|line| elsewhere(line)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let bans = std::fs::read_to_string(root().join("clippy.toml")).unwrap();
    for of in ["HttpRequest", "dev::ServiceRequest"] {
        for name in ["cookie", "cookie_raw", "cookies", "cookies_raw"] {
            assert!(bans.contains(&format!("\"actix_web::{of}::{name}\"")), "{of}::{name}");
        }
    }
}

#[test]
fn every_script_opens_with_its_contract() {
    for (path, text) in files("lua", "lua") {
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap();
        assert!(text.starts_with(&format!("--[[ {name}: ")), "{path} does not say what it is");
        let header = text.split("]]").next().unwrap();
        // What the scripts have in common has no inputs or outputs.
        if ["window", "log"].contains(&name) {
            continue;
        }
        for part in ["Why a script:", "\n  KEYS[", "\n  ARGV", "\n  Output"] {
            assert!(header.contains(part), "{path} leaves out {part:?}");
        }
    }
}

#[test]
fn every_source_says_what_it_is_for_in_its_first_line() {
    for (path, text) in ["src", "limiter/src", "tests"].into_iter().flat_map(|folder| files(folder, "rs")) {
        assert!(
            text.starts_with("//!") || path.ends_with("tests.rs") || path.ends_with("tests/mod.rs"),
            "{path}"
        );
    }
}

/// The content security policy forbids it; a browser would ignore it silently.
#[test]
fn no_template_has_a_script_or_a_style_in_it() {
    // Mails have no style sheet of ours.
    let pages =
        files("templates", "html").into_iter().filter(|(path, _)| !path.starts_with("templates/letters/"));
    for (path, text) in pages {
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

/// The policy also applies to styles set by script, but not to classes.
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
