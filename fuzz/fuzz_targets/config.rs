//! A configuration is accepted, or refused with a place for each reason; read twice it is the same, and however long it
//! is, reading ends soon. Input: the file, and after a NUL the environment: a line for each variable. A part of the file
//! may be repeated ([`repeated`]).
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

#[path = "../repeated.rs"]
mod repeated;

use repeated::{MOST_PROBLEMS, MOST_VISITED, repeated};

/// As the longest draft.
const LONGEST: usize = 256 * 1024;

fuzz_target!(|text: &str| {
    let (file, environment) = text.split_once('\0').unwrap_or((text, ""));
    let file = repeated(file, LONGEST);
    let variables: Vec<(String, String)> = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (format!("GATEHOUSE__{name}"), value.to_owned()))
        .collect();
    let path = Path::new("gatehouse.toml");
    assert!(gatehouse::config::visited(path, &file) <= MOST_VISITED);
    let read = || gatehouse::config::parse(path, &file, &variables);
    match (read(), read()) {
        (Ok(one), Ok(other)) => {
            assert!(one.settings.differences(&other.settings).is_empty());
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
        (Err(one), Err(other)) => {
            assert_eq!(one.to_string(), other.to_string());
            assert!(one.problems().len() <= MOST_PROBLEMS);
            let told = one.to_string();
            let is_placed =
                |line: &str| line.starts_with("gatehouse.toml") || line.starts_with("GATEHOUSE__");
            assert!(told.lines().next().is_some_and(is_placed), "{told}");
        }
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => panic!("refused only once: {error}"),
    }
});
