//! `[live.nacos]`: what it accepts, and its messages.

#[cfg(feature = "nacos")]
use std::path::PathBuf;

use crate::config::backend_settings::missing_client;
use crate::config::*;

use super::read;

/// Reads `[live.nacos]` with these lines, in a build with the client.
fn nacos(lines: &str) -> Result<NacosSettings, String> {
    let text = format!("[live]\nbackend = 'nacos'\n[live.nacos]\n{lines}");
    let read = read(&text).map(|config| config.settings.backend.nacos.expect("the chosen backend"));
    read.map_err(|error| {
        let lines = error.to_string();
        let others: Vec<&str> = lines.lines().filter(|line| !line.contains("this build")).collect();
        others.join("\n")
    })
}

#[test]
fn a_build_without_the_client_says_how_to_get_one() {
    assert!(
        missing_client(false).is_some_and(|told| told.contains("cargo build --release --features nacos"))
    );
    assert_eq!(missing_client(true), None);
    let told = read("[live]\nbackend = 'nacos'\nnacos.server = 'a:1'").err().map(|error| error.to_string());
    let expected =
        missing_client(cfg!(feature = "nacos")).map(|told| format!("gatehouse.toml:2: live.backend: {told}"));
    assert_eq!(told, expected);
}

#[test]
fn another_backend_needs_none_of_it() {
    let config = read("[live]\nbackend = 'file'\n[live.nacos]\ngroup = 'g'").expect("valid");
    assert_eq!(config.settings.backend.nacos, None);
}

#[test]
#[cfg(feature = "nacos")]
fn all_but_the_server_has_a_default() {
    let settings = nacos("server = 'nacos.internal:8848'").expect("valid");
    assert_eq!((settings.group.as_str(), settings.data_id.as_str()), ("DEFAULT_GROUP", "gatehouse.toml"));
    assert_eq!((settings.namespace.as_str(), &settings.account), ("", &None));
    assert_eq!(settings.place(), PathBuf::from("nacos DEFAULT_GROUP/gatehouse.toml"));
    let settings = nacos(
        "server = '[::1]:1'\nnamespace = 'n-1'\ngroup = 'g'\ndata_id = 'd'\nusername = 'me'\npassword = 'env:WORD'",
    )
    .expect("valid");
    assert_eq!(settings.place(), PathBuf::from("nacos n-1/g/d"));
    let account = settings.account.expect("an account");
    assert_eq!(account.password, SecretRef::Variable("WORD".to_owned()));
}

#[test]
fn what_cannot_be_is_told_at_its_place() {
    let server = "server = 'a:8848'\n";
    let cases = [
        (String::new(), "3: live.nacos.server: is missing; live.backend = \"nacos\" requires it"),
        ("server = 'nacos'".to_owned(), "4: live.nacos.server: is not a server address"),
        ("server = 'http://a:8848'".to_owned(), "4: live.nacos.server: is not a server address"),
        ("server = 'a b:8848'".to_owned(), "4: live.nacos.server: is not a server address"),
        ("server = 'a:64600'".to_owned(), "4: live.nacos.server: has a port that is not possible"),
        (format!("{server}data_id = ''"), "5: live.nacos.data_id: is not a valid name"),
        (format!("{server}group = 'a/b'"), "5: live.nacos.group: is not a valid name"),
        (format!("{server}username = 'me'"), "5: live.nacos.password: is missing"),
        (format!("{server}password = 'env:A'"), "5: live.nacos.username: is missing"),
        (
            format!("{server}username = 'me'\npassword = 'hunter2'"),
            "6: live.nacos.password: contains the secret itself",
        ),
        (format!("{server}tls = true"), "5: live.nacos.tls: is not a setting"),
    ];
    for (lines, expected) in cases {
        let told = nacos(&lines).expect_err("a refusal");
        assert!(told.starts_with(&format!("gatehouse.toml:{expected}")), "{lines}: {told}");
        assert!(!told.contains("hunter2") && !told.contains('\n'), "{told}");
    }
}
