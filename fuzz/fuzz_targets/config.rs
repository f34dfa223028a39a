//! A configuration is accepted, or refused with a place for each reason; read twice it is the same. Input: the file, and
//! after a NUL the environment: a line for each variable.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (file, environment) = text.split_once('\0').unwrap_or((text, ""));
    let variables: Vec<(String, String)> = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (format!("GATEHOUSE__{name}"), value.to_owned()))
        .collect();
    let read = || gatehouse::config::parse(Path::new("gatehouse.toml"), file, &variables);
    match (read(), read()) {
        (Ok(one), Ok(other)) => {
            assert!(one.settings.differences(&other.settings).is_empty());
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
        (Err(one), Err(other)) => {
            assert_eq!(one.to_string(), other.to_string());
            let told = one.to_string();
            let is_placed =
                |line: &str| line.starts_with("gatehouse.toml") || line.starts_with("GATEHOUSE__");
            assert!(told.lines().next().is_some_and(is_placed), "{told}");
        }
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => panic!("refused only once: {error}"),
    }
});
