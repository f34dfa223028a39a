//! With a wrong password nobody learns whether an account has a second factor, or none, or no password, or whether there
//! is one at all; and what other programs make of our apps' codes.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::support::app::{Store, on_both_stores};

on_both_stores! {
    a_wrong_password_tells_nothing_of_factors,
    apps_by_another_library_show_codes_that_are_right,
}

/// An answer without what differs from request to request, and without the name that was sent.
fn seen(answer: &Answer, login: &str) -> (u16, BTreeMap<String, String>, String) {
    let headers =
        answer.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
    let shown = |name: &str, value: &str| match name {
        "set-cookie" => value.split('=').next().unwrap_or_default().to_owned(),
        _ => value.to_owned(),
    };
    let headers =
        headers.map(|(name, value)| (name.to_string(), shown(name.as_str(), value.to_str().unwrap())));
    let mut text = answer.text.replace(login, "NAME");
    for field in ["csrf_token", "captcha_id"] {
        text = answer.hidden(field).map_or_else(|| text.clone(), |value| text.replace(&value, "ID"));
    }
    (answer.status, headers.collect(), text)
}

async fn a_wrong_password_tells_nothing_of_factors(store: Store) {
    const WRONG: &str = "a wrong password";
    let app = TestApp::on(store).behind_a_proxy().start().await;
    owner(&app, "enrolled-name").await;
    app.client().register("plain-account", PASSWORD).await;
    let by_code = app.client();
    let code = by_code.code("+8613800138000", "login").await;
    let made = by_code.call("/sms/login", json!({ "phone": "+8613800138000", "code": code })).await;
    let passwordless = made.body["user"]["login"].as_str().expect("its name").to_owned();
    let mut told = Vec::new();
    for (number, login) in
        ["nobody-at-all", "plain-account", "enrolled-name", &passwordless].into_iter().enumerate()
    {
        let browser = app.client_at(&format!("198.51.{number}.7"));
        let page = browser.submit("/login", "/login", &[("login", login), ("password", WRONG)]).await;
        assert_eq!(page.status, 401, "{}", page.text);
        let mut answers = vec![seen(&page, login)];
        for _ in 0..2 {
            let call = browser.login(login, WRONG).await;
            assert_eq!(call.problem(), "invalid-credentials", "{}", call.text);
            answers.push(seen(&call, login));
        }
        // A challenge's image is another each time.
        let challenged = browser.login(login, WRONG).await;
        assert_eq!((challenged.status, challenged.problem()), (403, "captcha-required"));
        told.push((login.to_owned(), answers));
    }
    let (unknown, others) = told.split_first().unwrap();
    for (login, answers) in others {
        for (one, other) in unknown.1.iter().zip(answers) {
            assert_eq!(one, other, "unknown and {login}");
        }
    }
}

/// What `pyotp` says, with the arguments of a line of its script.
fn pyotp(script: &str, arguments: &[&str]) -> String {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/pyotp-2.12.1");
    let missing = "pip install --no-deps --target target/tools/pyotp-2.12.1 pyotp==2.12.1";
    assert!(packages.is_dir(), "{missing}");
    let script = format!("import sys, pyotp\nprint({script}, end='')");
    let mut python = Command::new("python3");
    let made =
        python.args(["-c", &script]).args(arguments).env("PYTHONPATH", packages).output().expect("python3");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

async fn apps_by_another_library_show_codes_that_are_right(store: Store) {
    const NOW: &str = "pyotp.parse_uri(sys.argv[1]).at(int(sys.argv[2]))";
    const READ: &str = "'|'.join([(app := pyotp.parse_uri(sys.argv[1])).secret, app.name, app.issuer])";
    let app = TestApp::start(store).await;
    let browser = app.client();
    browser.register("ada-lovelace", PASSWORD).await;
    let proposed = browser.call("/totp", json!({})).await;
    let (uri, secret) = (proposed.body["uri"].as_str().unwrap(), proposed.body["secret"].as_str().unwrap());
    assert_eq!(pyotp(READ, &[uri]), format!("{secret}|ada-lovelace|Gatehouse"));
    for _ in 0..20 {
        let now = (app.clock.now().0 / 1_000_000).to_string();
        assert_eq!(pyotp(NOW, &[uri, &now]), totp(&app, secret), "as oathtool at {now}");
        app.advance(STEP);
    }
    let now = (app.clock.now().0 / 1_000_000).to_string();
    let used = put(&browser, "/totp", json!({ "code": pyotp(NOW, &[uri, &now]) })).await;
    assert_eq!(used.status, 200, "{}", used.text);
}
