//! Hostile documents: what is reported about them, and how much.

use super::{read, refusal};
use crate::config::error::ConfigLocation;
use repeated::{MOST_PROBLEMS, MOST_VISITED, repeated};

#[path = "../../../fuzz/repeated.rs"]
mod repeated;

fn visited(text: &str) -> usize {
    crate::config::visited("gatehouse.toml".as_ref(), text)
}

/// Counting lines from the start of the text for each value would take minutes for this document, and block a
/// request's thread or the watcher's.
#[test]
fn a_document_of_nothing_but_mistakes_is_refused_while_its_author_waits() {
    let line = |items| format!("limits.login-account = {{ rules = [{}] }}", "1,".repeat(items));
    let refused = refusal(&line(60_000));
    assert!(refused.contains("rules: has 60000 entries; at most 8 are allowed"), "{refused:.200}");
    assert!(refused.contains(":1: limits.login-account.rules[0]: is a number"), "{refused:.200}");
    let dense = refusal(&line(500_000));
    assert!(dense.starts_with("gatehouse.toml: has 500"), "{dense:.100}");
    assert!(dense.contains("at most 65536 are allowed"), "{dense}");
    let lines = |count| refusal(&format!("[limits]\n{}", "a = 1\n".repeat(count)));
    let twice = lines(2_500);
    assert!(
        twice.starts_with("gatehouse.toml:3: limits.a: is set twice; keep one of them\n"),
        "{twice:.100}"
    );
    assert_eq!(twice.lines().count(), 100, "who wrote so many wants none of the others listed");
    assert_eq!(lines(20_000), "gatehouse.toml:3: limits.a: is set twice; keep one of them");
}

/// What is repeated where: the first entry past the most ends it, or the first mistake past those that are told.
#[test]
fn reading_stops_at_the_most_entries_and_at_the_most_mistakes() {
    let visited_in = |head: &str, part: &str, count: usize, tail: &str| {
        let text = format!("{head}{}{tail}", part.repeat(count));
        assert!(refusal(&text).lines().count() <= MOST_PROBLEMS, "{part}");
        visited(&text)
    };
    let app = "[[apps]]\nname = \"a\"\nhosts = [\"a.b\"]\n";
    let networks = r#"{ network = "192.0.2.1", until = "2030-01-01T00:00:00Z", reason = "r" },"#;
    for (entries, seen) in [
        (visited_in("", "[[apps]]\n", 6_000, ""), 0),
        (visited_in("", "[[apps]]\n", 4_000, ""), 101),
        (visited_in("", "[[apps]]\nname = \"a\"\n", 4_000, ""), 101),
        (visited_in(app, "[[apps.parts]]\n", 4_000, ""), 103),
        (visited_in(app, "[[apps.parts]]\npath = \"/a\"\nwho = []\n", 4_000, ""), 202),
        (visited_in("limits.login-account.rules = [", "{ max = 1, window = \"1m\" },", 3_000, "]"), 8),
        (visited_in("access.deny = [", "{},", 10_000, "]"), 34),
        (visited_in("access.deny = [", networks, 3_000, "]"), 1_000),
        (visited_in("server.trusted_proxies = [", "\"x\",", 10_000, "]"), 101),
        (visited_in("server.trusted_proxies = [", "\"192.0.2.1\",", 10_000, "]"), 1_000),
    ] {
        // A few more are sections and lists above.
        assert!((seen..=seen + 5).contains(&entries), "{entries} were visited, and not {seen}");
    }
}

#[test]
fn there_are_at_most_200_custom_limits() {
    let text = |count| {
        (0..count).map(|number| format!("[limits.custom.l{number}]\nrules = []\n")).collect::<String>()
    };
    assert_eq!(read(&text(200)).unwrap().live.limits.custom.len(), 200);
    let more = refusal(&text(201));
    assert_eq!(more, "gatehouse.toml:1: limits.custom: has 201 entries; at most 200 are allowed");
    let many = text(4_500);
    assert!(visited(&many) <= 210);
}

#[test]
fn a_key_of_a_novel_is_compared_with_none_of_ours() {
    let long = "login_account".repeat(5_000);
    let told = refusal(&format!("{long} = 1\n[limits]\n{long} = {{}}\n"));
    assert_eq!(told.lines().count(), 2);
    assert!(!told.contains("did you mean"), "{told}");
}

/// The seeds of the fuzzer, with parts of them repeated, as it does until they are as long as a draft can be.
#[test]
fn the_documents_of_the_fuzzer_are_read_in_bounds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/config");
    let mut refused = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let file = repeated(text.split('\0').next().unwrap_or_default(), 24 * 1024);
        assert!(visited(&file) <= MOST_VISITED, "{text:?}");
        if let Err(error) = read(&file) {
            refused += 1;
            assert!(error.problems().len() <= MOST_PROBLEMS, "{text:?}");
            assert!(error.to_string().len() < 200_000, "{text:?}");
        }
    }
    assert!(refused > 20, "the corpus is read");
}

#[test]
fn what_is_told_of_a_document_is_bounded_whatever_it_holds() {
    let many = (0..5000).map(|number| format!("a{number} = 1\n")).collect::<String>();
    let told = refusal(&format!("[limits.login-account]\nrules = []\n{many}"));
    assert_eq!(told.lines().count(), 100);
    assert!(told.ends_with(": there are more mistakes than these; correct these first"), "{told}");
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
fn a_place_counts_lines_whatever_letters_take() {
    for before in ["", "# x\n", "# 日本語\n", "# 😀é\r\n\n"] {
        for letters in [1, 900] {
            let text = format!("{}a = [{}語]", before.repeat(letters), "\"日\", ".repeat(letters));
            let problem = read(&text).expect_err("a refusal").problems()[0].clone();
            let ConfigLocation::File { line, offset, .. } = problem.place else {
                panic!("no place in the file")
            };
            assert_eq!((line, offset), (text.lines().count(), text.len() - "語]".len()), "{before:?}");
        }
    }
}
