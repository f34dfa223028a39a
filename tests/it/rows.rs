//! The rows of the URL table: each keeps what it says to whoever calls it, and what it says holds together.

use std::collections::{BTreeMap, BTreeSet};

use gatehouse::accounts::Username;
use gatehouse::web::http::row::{Caller, Origin, RowFacts, WhileDenied};
use reqwest::Method;
use serde_json::json;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::routes::{API, rows};

on_both_stores!(every_form_refuses_a_foreign_one, every_row_refuses_who_shows_nothing);

fn filled(row: &RowFacts, account: &str) -> String {
    let path = row.path.replace("{limit}", "login-account").replace("{id}", account);
    path.replace("{act}", "disable").replace(":.*", "").replace(['{', '}'], "")
}

async fn send_form(client: &Client, path: &str, origin: &str, token: Option<&str>) -> Answer {
    let url = format!("{}{path}", client.url);
    let token = token.map(|token| ("csrf_token", token));
    let form: Vec<_> = [("password", PASSWORD)].into_iter().chain(token).collect();
    let request = client.http.post(url).header("origin", origin).form(&form);
    Answer::read(request.send().await.unwrap()).await
}

/// From the page of another site, without its token, and with that of another browser: whoever is signed in.
async fn every_form_refuses_a_foreign_one(store: Store) {
    let app = TestApp::on(store).start().await;
    let boss = app.sign_in_admin("boss").await;
    let (own, other) =
        (boss.get("/account").await.csrf_token(), app.client().get("/login").await.csrf_token());
    let account = app.services.accounts.find(&Username::parse("boss").unwrap()).await.unwrap().unwrap();
    let account = account.id.to_string();
    let forms: Vec<_> = rows().into_iter().filter(|(_, row)| row.origin == Origin::Form).collect();
    assert!(forms.len() > 40, "{forms:?}");
    let mut wrong = Vec::new();
    for (_, row) in &forms {
        let path = filled(row, &account);
        let foreign = send_form(&boss, &path, "https://evil.example", Some(&own)).await;
        let bare = send_form(&boss, &path, &boss.url, None).await;
        let strange = send_form(&boss, &path, &boss.url, Some(&other)).await;
        for (what, answer) in [("foreign", foreign), ("no token", bare), ("another's token", strange)] {
            // A change that is not there, or half a sign-in that nobody has begun, has no form; and where
            // nothing is left to confirm, the form leads on.
            let nothing = row.path == "/admin/limits/rollback" && answer.status == 404
                || row.caller == Caller::HalfSignIn && answer.header("location") == "/login"
                || row.path == "/confirm" && answer.header("location") == "/";
            if answer.status != 403 && !nothing {
                wrong.push(format!("{what}: {}: {} {}", row.path, answer.status, answer.header("location")));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert_eq!(boss.get("/account").await.status, 200, "nothing was done");
}

/// Nobody's session and no token: what is not anyone's is answered as a refusal, whatever is sent.
async fn every_row_refuses_who_shows_nothing(store: Store) {
    let app = TestApp::on(store).start().await;
    let (mut refused, mut wrong) = (0, Vec::new());
    for (method, row) in rows() {
        let nobody = app.client();
        let request = nobody.http.request(
            Method::from_bytes(method.as_bytes()).unwrap(),
            format!("{}{}", app.url, filled(&row, "x")),
        );
        let request = request.header("origin", &app.url);
        // As a proxy on this machine says it: for somebody elsewhere.
        let request = request.header("x-forwarded-for", "203.0.113.9").header("forwarded", "for=203.0.113.9");
        let request = match (method, row.path.starts_with(API), row.origin) {
            ("GET" | "OPTIONS", ..) => request,
            (_, true, _) => request.json(&json!({})),
            _ => request.form(&[("csrf_token", "x")]),
        };
        let answer = Answer::read(request.send().await.unwrap()).await;
        let wanted: &[u16] = match row.caller {
            Caller::Anyone | Caller::MaybeMember => continue,
            Caller::Session | Caller::Member => &[401, 303],
            Caller::HalfSignIn => &[410, 303],
            Caller::Admin(..) => &[401, 303],
            Caller::Program(_) | Caller::MailServer | Caller::LimitUser => &[401],
            Caller::Client | Caller::TokenHolder | Caller::Signer => &[401, 400, 422],
            Caller::Gateway => &[401, 404],
            Caller::Proxy => &[403],
            Caller::Monitoring | Caller::ThisMachine => &[404],
        };
        let to = answer.header("location");
        if !wanted.contains(&answer.status) || answer.status == 303 && !to.starts_with("/login") {
            wrong.push(format!("{method} {}: {} {} {to}", row.path, answer.status, answer.problem()));
        }
        refused += 1;
    }
    assert_eq!(wrong, [""; 0]);
    assert!(refused > 100, "only {refused} rows");
}

/// A form that is refused leads back to where it stands; and a path is one thing to a network that is refused.
#[test]
fn what_rows_say_holds_together() {
    let rows = rows();
    let pages: BTreeSet<&str> =
        rows.iter().filter(|(method, _)| *method == "GET").map(|(_, row)| row.path.as_str()).collect();
    let mut reach = BTreeMap::<&str, WhileDenied>::new();
    let mut seen = BTreeSet::new();
    for (method, row) in &rows {
        assert!(seen.insert((method, &row.path)), "{method} {} is there twice", row.path);
        let asked = *reach.entry(&row.path).or_insert(row.while_denied);
        assert!(asked == row.while_denied || *method == "OPTIONS", "{method} {}", row.path);
        if row.origin == Origin::Form {
            assert!(pages.contains(row.page()), "{} stands on {}, which is no page", row.path, row.page());
        }
        if !matches!(*method, "GET" | "OPTIONS") {
            assert_ne!(row.origin, Origin::Harmless, "{method} {} may change something", row.path);
        }
    }
}
