//! Hostile documents: what is reported about them, and how much.

use super::{read, refusal};
use crate::config::error::ConfigLocation;

/// A place consists of line and letter. Counting both from the start of the text for each value would take
/// minutes for this document, and block a request's thread or the watcher's.
#[test]
fn a_document_of_nothing_but_mistakes_is_refused_while_its_author_waits() {
    let line = format!("limits.login-account = {{ rules = [{}] }}", "1,".repeat(500_000));
    let refused = refusal(&line);
    assert!(
        refused.starts_with("gatehouse.toml:1: limits.login-account.rules[0]: is a number"),
        "{refused:.100}"
    );
    let twice = refusal(&format!("[limits]\n{}", "a = 1\n".repeat(100_000)));
    assert!(
        twice.starts_with("gatehouse.toml:3: limits.a: is set twice; keep one of them\n"),
        "{twice:.100}"
    );
    assert_eq!(twice.lines().count(), 100, "who wrote so many wants none of the others listed");
}

#[test]
fn what_is_told_of_a_document_is_bounded_whatever_it_holds() {
    let many = (0..5000).map(|number| format!("a{number} = 1\n")).collect::<String>();
    let told = refusal(&format!("[limits.login-account]\nrules = []\n{many}"));
    assert_eq!(told.lines().count(), 101);
    assert!(told.ends_with("\n… and 4900 more"), "{told}");
    let long = "x".repeat(100_000);
    let told = refusal(&format!("[limits.{long}]\na = 1\nb = 2\n[server]\nbind = \"{long}\"\n"));
    assert!(told.len() < 5000, "{} bytes", told.len());
}

#[test]
fn a_key_of_the_document_forges_no_line_of_the_log() {
    let told = refusal(
        r#"[server]
"a\nINFO all is well\u0000\u001b[2J" = 1"#,
    );
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(!told.contains(['\0', '\u{1b}']), "{told:?}");
}

#[test]
fn a_place_counts_lines_and_letters_whatever_they_take() {
    for before in ["", "# x\n", "# 日本語\n", "# 😀é\r\n\n"] {
        for letters in [1, 900] {
            let text = format!("{}a = [{}語]", before.repeat(letters), "\"日\", ".repeat(letters));
            let problem = read(&text).expect_err("a refusal").problems()[0].clone();
            let ConfigLocation::File { line, column, .. } = problem.place else {
                panic!("no place in the file")
            };
            let last = text.lines().last().unwrap();
            assert_eq!((line, column), (text.lines().count(), last.chars().count() - 1), "{before:?}");
        }
    }
}
