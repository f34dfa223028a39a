//! `[telemetry]`: what it accepts, and its messages.

use crate::config::sections::missing_exporter;

use super::{read, refusal};

#[test]
fn a_build_without_the_exporter_says_how_to_get_one() {
    assert!(
        missing_exporter(false).is_some_and(|told| told.contains("cargo build --release --features otlp"))
    );
    assert_eq!(missing_exporter(true), None);
    let told =
        read("[telemetry]\notlp_endpoint = 'http://127.0.0.1:4318'").err().map(|told| told.to_string());
    let expected = missing_exporter(cfg!(feature = "otlp"))
        .map(|told| format!("gatehouse.toml:2: telemetry.otlp_endpoint: {told}"));
    assert_eq!(told, expected);
}

#[test]
fn without_a_receiver_the_rest_may_stand() {
    let config =
        read("[telemetry]\notlp_endpoint = ''\nsample = 0.1\nheaders = { A = 'env:B' }").expect("valid");
    assert_eq!(config.settings.telemetry.otlp_endpoint, None);
    let told = |line: &str| refusal(&format!("[telemetry]\n{line}"));
    for (line, expected) in [
        ("sample = 1.5", "telemetry.sample: 1.5 is out of range; it must be from 0 to 1"),
        ("interval = '0s'", "telemetry.interval: 0s is out of range; it must be from 1s to 1h"),
        ("service_name = ' '", "telemetry.service_name: is empty"),
        ("headers = { 'a b' = 'x' }", "telemetry.headers.a b: is not a valid HTTP header name"),
        (
            "headers = { a = 'env:' }",
            "telemetry.headers.a: names no environment variable after env:; write it as \"env:NAME\"",
        ),
        ("otlp_endpoints = 'x'", "telemetry.otlp_endpoints: is not a setting; did you mean otlp_endpoint?"),
    ] {
        assert_eq!(told(line), format!("gatehouse.toml:2: {expected}"), "{line}");
    }
}

#[test]
#[cfg(feature = "otlp")]
fn a_receiver_is_a_base_url_and_gets_no_secret_in_clear() {
    let told = |endpoint: &str| refusal(&format!("[telemetry]\notlp_endpoint = '{endpoint}'"));
    for (endpoint, expected) in [
        ("collector:4318", "has the scheme \"collector\"; OTLP over HTTP needs http or https"),
        (
            "127.0.0.1:4318",
            "is not a URL (relative URL without a base); write the base URL, as \"http://127.0.0.1:4318\"",
        ),
        (
            "https://me:word@otel.example",
            "contains a username or password; write them into telemetry.headers",
        ),
        (
            "https://otel.example/?key=1",
            "has a part after ? or #; write the base URL, as \"http://127.0.0.1:4318\"",
        ),
        (
            "https://otel.example/v1/traces",
            "ends with the path of a signal, which is added to it; write the base URL, as \"http://127.0.0.1:4318\"",
        ),
    ] {
        assert_eq!(
            told(endpoint),
            format!("gatehouse.toml:2: telemetry.otlp_endpoint: {expected}"),
            "{endpoint}"
        );
    }
    let with = |endpoint: &str, value: &str| {
        read(&format!("[telemetry]\notlp_endpoint = '{endpoint}'\nheaders = {{ Authorization = '{value}' }}"))
    };
    assert_eq!(
        with("http://otel.example", "env:KEY").expect_err("a refusal").to_string(),
        "gatehouse.toml:2: telemetry.otlp_endpoint: is http, but the secret in telemetry.headers.Authorization is sent there; use https"
    );
    for (endpoint, value) in [
        ("https://otel.example/otlp", "env:KEY"),
        ("http://127.0.0.1:4318", "env:KEY"),
        ("http://[::1]:4318", "file:key"),
        ("http://collector:4318", "a tenant"),
    ] {
        assert!(with(endpoint, value).is_ok(), "{endpoint}");
    }
}
