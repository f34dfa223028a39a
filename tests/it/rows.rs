//! The rows of the URL table: each keeps what it says to whoever calls it, and what it says holds together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::web::http::row::{AccessKind, Caller, Origin, RowFacts, WhileDenied};
use reqwest::Method;
use serde_json::json;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::routes::{API, rows};

on_both_stores!(every_form_and_call_refuses_a_foreign_one, every_row_refuses_who_shows_nothing);

fn filled(row: &RowFacts, account: &str) -> String {
    let path = row.path.replace("{limit}", "login-account").replace("{id}", account);
    path.replace("{act}", "disable").replace(":.*", "").replace(['{', '}'], "")
}

async fn account_of(app: &TestApp, login: &str) -> String {
    let account = app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap();
    account.id.to_string()
}

async fn send(client: &Client, method: &str, path: &str, origin: &str, form: Option<&str>) -> Answer {
    let url = format!("{}{path}", client.url);
    let request = client.http.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
    let request = request.header("origin", origin);
    let request = match form {
        None => request.json(&json!({})),
        Some(token) => request.form(&[("password", PASSWORD), ("csrf_token", token)]),
    };
    Answer::read(request.send().await.unwrap()).await
}

/// From the page of another site, without its token, and with that of another browser: whoever is signed in. The same from
/// our page is not refused for that.
async fn every_form_and_call_refuses_a_foreign_one(store: Store) {
    let app = TestApp::on(store).without(&["login-address", "login-network"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    // So that there is something to confirm.
    app.advance(Duration::from_secs(3600));
    let (own, other) =
        (boss.get("/account").await.csrf_token(), app.client().get("/login").await.csrf_token());
    let (mut wrong, mut forms, id) = (Vec::new(), 0, account_of(&app, "boss").await);
    for (method, row) in rows() {
        let (path, evil) = (filled(&row, &id), "https://evil.example");
        let tries = match row.origin {
            Origin::Form => vec![
                ("foreign", evil, Some(own.as_str())),
                ("no token", boss.url.as_str(), Some("")),
                ("another's token", boss.url.as_str(), Some(other.as_str())),
            ],
            Origin::Call => vec![("foreign", evil, None)],
            _ => continue,
        };
        forms += usize::from(row.origin == Origin::Form);
        // Half a sign-in that nobody has begun has no form, a change that is not there has no page, and what an account
        // with a password has no use for leads away.
        let has_no_form = row.caller == Caller::HalfSignIn
            || ["/admin/limits/rollback", "/account/factors/code"].contains(&row.path.as_str());
        for (what, origin, form) in tries {
            let answer = send(&boss, method, &path, origin, form).await;
            if answer.status != 403 && !(has_no_form && [303, 404].contains(&answer.status)) {
                wrong.push(format!(
                    "{what}: {method} {path}: {} {}",
                    answer.status,
                    answer.header("location")
                ));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(forms > 40, "only {forms} forms");
    // What each says to its own form is in no way that.
    app.register("alice").await;
    let (alice, mut refused) = (account_of(&app, "alice").await, Vec::new());
    for (number, (method, row)) in rows().into_iter().enumerate() {
        if row.origin == Origin::Form {
            let own = app.sign_in_admin(&format!("boss{number}")).await;
            let token = own.get("/account").await.csrf_token();
            let answer = send(&own, method, &filled(&row, &alice), &own.url, Some(&token)).await;
            if answer.text.contains("was not sent from this site") || answer.text.contains("open too long") {
                refused.push(row.path);
            }
        }
    }
    assert_eq!(refused, [""; 0]);
}

/// Nobody's session and no token: what is not anyone's is answered as a refusal, whatever is sent.
async fn every_row_refuses_who_shows_nothing(store: Store) {
    let app = TestApp::on(store).set("server.metrics_from", "['198.51.100.0/24']").start().await;
    let (mut refused, mut wrong) = (0, Vec::new());
    for (method, row) in rows() {
        let nobody = app.client();
        let (origin, form) = (&app.url, (!row.path.starts_with(API)).then_some("x"));
        let path = filled(&row, "x");
        let answer = match method {
            // As a proxy asks for somebody elsewhere: what is for this machine is not for them.
            "GET" | "OPTIONS" => {
                let request = nobody.http.get(format!("{}{path}", app.url));
                Answer::read(request.header("x-forwarded-for", "203.0.113.9").send().await.unwrap()).await
            }
            _ => send(&nobody, method, &path, origin, form).await,
        };
        let wanted: &[u16] = match row.caller {
            Caller::Anyone | Caller::MaybeMember => continue,
            Caller::Session | Caller::Member | Caller::Admin(..) => &[401, 303],
            Caller::HalfSignIn => &[410, 303],
            Caller::Program(_) | Caller::MailServer | Caller::LimitUser => &[401],
            Caller::Client | Caller::TokenHolder | Caller::Signer => &[401, 400, 422],
            Caller::Gateway => &[401, 404],
            Caller::Proxy => &[403],
            Caller::Monitoring | Caller::ThisMachine => &[404],
        };
        let to = answer.header("location");
        if !wanted.contains(&answer.status) || answer.status == 303 && !to.starts_with("/login") {
            wrong.push(format!("{method} {path}: {} {} {to}", answer.status, answer.problem()));
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
            let page = row.page_path();
            assert!(pages.contains(page), "{} stands on {page}, which is no page", row.path);
            assert!(!page.contains('{') || page == row.path, "{} stands on any of {page}", row.path);
        }
        if !matches!(*method, "GET" | "OPTIONS") {
            assert_ne!(row.origin, Origin::Harmless, "{method} {} may change something", row.path);
        }
    }
}

/// Written apart from the rows: what each scope opens, and what an administrator does without a password.
#[test]
fn calls_of_administrators_take_the_scope_and_the_password_that_they_should() {
    let scopes = [
        ("/admin/limits", "limits:read limits:write", "limits:write"),
        ("/admin/limits/history", "limits:read limits:write", ""),
        ("/admin/limits/preview", "", "limits:read limits:write"),
        ("/admin/limits/rollback", "", "limits:write"),
        ("/admin/access", "limits:read access:write", "access:write"),
        ("/admin/origins/{origin}", "limits:read access:write", ""),
        ("/admin/apps", "limits:read apps:write", "apps:write"),
        ("/admin/apps/preview", "", "apps:write"),
        ("/admin/apps/{name}/secrets", "limits:read apps:write", "apps:write"),
        ("/admin/apps/{name}/secrets/{id}", "", "apps:write"),
        ("/admin/events", "events:read", ""),
        ("/admin/messages", "events:read", ""),
        ("/admin/messages/countries", "events:read", ""),
        ("/admin/brakes", "events:read", ""),
        ("/admin/brakes/{prefix}", "", "subjects:clear"),
        ("/admin/subjects/{limit}/{subject}", "events:read subjects:clear", "subjects:clear"),
        ("/admin/refused-mailboxes/{email}", "", "subjects:clear"),
        ("/admin/disabled-passwords/{login}", "", "accounts:write"),
        ("/admin/accounts", "accounts:write", "accounts:write"),
        ("/admin/accounts/{id}", "accounts:write", ""),
        ("/admin/accounts/{id}/groups", "accounts:write", "accounts:write"),
        ("/admin/accounts/{id}/profile", "", "accounts:write"),
        ("/admin/accounts/{id}/factors", "", "accounts:write"),
        ("/admin/accounts/{id}/{act}", "", "accounts:write"),
        ("/admin/accounts/{id}/invite", "", "accounts:write"),
        ("/admin/accounts/{id}/unlock", "", "accounts:write"),
        ("/admin/invitations", "accounts:write", "accounts:write"),
        ("/admin/invitations/{id}", "", "accounts:write"),
        ("/admin/tokens", "", ""),
        ("/admin/tokens/{id}", "", ""),
        ("/admin/confirm", "", ""),
    ];
    let without_password = ["/admin/confirm", "/admin/limits/preview", "/admin/apps/preview"];
    let mut asked = 0;
    for (method, row) in rows() {
        let (Some(path), Caller::Admin(kind, opens)) = (row.path.strip_prefix(API), row.caller) else {
            continue;
        };
        let (_, reads, changes) = scopes
            .iter()
            .find(|(known, ..)| *known == path)
            .unwrap_or_else(|| panic!("add {path} to `scopes` above"));
        let wanted = if method == "GET" { reads } else { changes };
        let opens: Vec<&str> = opens.iter().map(|scope| scope.into_str()).collect();
        assert_eq!(opens.join(" "), **wanted, "{method} {path}");
        let password = method != "GET" && !without_password.contains(&path);
        assert_eq!(kind == AccessKind::Change, password, "{method} {path}");
        asked += 1;
    }
    assert_eq!(asked, 40, "calls of administrators that take a token or a password");
}

/// Written apart from the rows: what a refused network reaches.
#[test]
fn a_refused_network_reaches_what_it_should() {
    let rows = rows();
    let reach = |path: &str| {
        let row = rows.iter().find(|(_, row)| row.path == path);
        row.unwrap_or_else(|| panic!("{path} is in no row")).1.while_denied
    };
    let reaches = |wanted, paths: &[&str]| {
        for path in paths {
            assert_eq!(reach(path), wanted, "{path}");
        }
    };
    reaches(
        WhileDenied::KnownBrowser,
        &[
            "/",
            "/login",
            "/confirm",
            "/login/factor",
            "/logout",
            "/account",
            "/account/phone",
            "/admin",
            "/admin/access",
            "/captcha/{id}.png",
            "/api/v1/captcha",
            "/api/v1/confirm",
            "/api/v1/login",
            "/api/v1/login/factor",
            "/api/v1/logout",
            "/api/v1/recovery-codes",
            "/api/v1/session",
            "/api/v1/totp",
            "/api/v1/factors",
            "/api/v1/passkeys",
            "/api/v1/account/phone",
            "/api/v1/admin/limits",
            "/oauth/authorize",
            "/oauth/continue",
            "/oauth/consent",
            "/oauth/logout",
        ],
    );
    reaches(
        WhileDenied::Nothing,
        &[
            "/login/code",
            "/register",
            "/password/reset",
            "/api/v1/register",
            "/api/v1/sms/login",
            "/api/v1/limits/{name}/reserve",
            "/api/v1/attempts",
            "/api/v1/verifications",
            "/oauth/token",
            "/wforce/",
            "/dev/outbox",
            "/openapi.json",
        ],
    );
    reaches(WhileDenied::KnownSession, &["/api/v1/sms/codes"]);
    reaches(
        WhileDenied::Everybody,
        &[
            "/healthz",
            "/readyz",
            "/metrics",
            "/favicon.ico",
            "/static/{file}",
            "/sms/reports/{gateway}",
            "/api/authz/forward-auth",
            "/.gatehouse/start",
        ],
    );
}
