//! Every path of administrators, requested by everybody who may not: refused, and recorded.

use std::collections::BTreeSet;
use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::audit::Outcome;
use reqwest::Method;
use serde_json::Value;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};
use crate::support::routes::{API, table};

/// The body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Nothing,
    /// A form: it changes something.
    Form,
    /// The same by API.
    Json(&'static str),
    /// A draft by API: it changes nothing.
    Draft(&'static str),
    /// A form that shows its own mistakes, keeps the input, and asks for the password itself.
    Kept,
}

/// One request: a method and a path of the URL table, with a possible body.
type Way = (&'static str, &'static str, Body);

/// All of them. A new path under `/admin` must be added here, or the test below fails.
const WAYS: &[Way] = &[
    ("GET", "/admin/confirm", Body::Nothing),
    ("POST", "/admin/confirm", Body::Form),
    ("GET", "/admin/messages", Body::Nothing),
    ("POST", "/admin/brakes/lift", Body::Kept),
    ("GET", "/admin", Body::Nothing),
    ("GET", "/admin/find", Body::Nothing),
    ("POST", "/admin/find", Body::Kept),
    ("GET", "/admin/events", Body::Nothing),
    ("POST", "/admin/events", Body::Kept),
    ("GET", "/admin/events.csv", Body::Nothing),
    ("GET", "/admin/events.json", Body::Nothing),
    ("GET", "/admin/access", Body::Nothing),
    ("POST", "/admin/access", Body::Kept),
    ("POST", "/admin/access/end", Body::Kept),
    ("GET", "/admin/apps", Body::Nothing),
    ("GET", "/admin/apps/form", Body::Nothing),
    ("POST", "/admin/apps/form", Body::Kept),
    ("GET", "/admin/apps/edit", Body::Nothing),
    ("POST", "/admin/apps/edit", Body::Kept),
    ("GET", "/admin/factors", Body::Nothing),
    ("POST", "/admin/factors", Body::Kept),
    ("GET", "/admin/limits", Body::Nothing),
    ("GET", "/admin/limits/edit/{limit}", Body::Nothing),
    ("POST", "/admin/limits/edit/{limit}", Body::Kept),
    ("GET", "/admin/limits/toml", Body::Nothing),
    ("POST", "/admin/limits/toml", Body::Kept),
    ("GET", "/admin/limits/history", Body::Nothing),
    ("GET", "/admin/limits/history/{change}", Body::Nothing),
    ("POST", "/admin/limits/rollback", Body::Kept),
    ("GET", "/admin/lookup", Body::Nothing),
    ("POST", "/admin/lookup", Body::Kept),
    ("POST", "/admin/lookup/clear", Body::Kept),
    ("POST", "/admin/lookup/enable", Body::Kept),
    ("GET", "/admin/accounts", Body::Nothing),
    ("POST", "/admin/accounts", Body::Kept),
    ("POST", "/admin/accounts/chosen", Body::Kept),
    ("GET", "/admin/groups", Body::Nothing),
    ("GET", "/admin/groups/{name}", Body::Nothing),
    ("GET", "/admin/accounts/{id}", Body::Nothing),
    ("POST", "/admin/accounts/{id}/groups", Body::Kept),
    ("POST", "/admin/accounts/{id}/profile", Body::Kept),
    ("POST", "/admin/accounts/{id}/{act}", Body::Kept),
    ("GET", "/admin/tokens", Body::Nothing),
    ("POST", "/admin/tokens", Body::Form),
    ("GET", "/admin/tokens/revoke", Body::Nothing),
    ("POST", "/admin/tokens/revoke", Body::Form),
    ("POST", "/api/v1/admin/confirm", Body::Json(r#"{"password":"x"}"#)),
    ("GET", "/api/v1/admin/accounts", Body::Nothing),
    ("GET", "/api/v1/admin/accounts/{id}", Body::Nothing),
    ("GET", "/api/v1/admin/accounts/{id}/groups", Body::Nothing),
    ("PUT", "/api/v1/admin/accounts/{id}/groups", Body::Json(r#"{"groups":[],"reason":"x"}"#)),
    ("PUT", "/api/v1/admin/accounts/{id}/profile", Body::Json(r#"{"name":"x"}"#)),
    ("POST", "/api/v1/admin/accounts/{id}/{act}", Body::Json(r#"{"reason":"x"}"#)),
    ("GET", "/api/v1/admin/messages", Body::Nothing),
    ("GET", "/api/v1/admin/events", Body::Nothing),
    ("GET", "/api/v1/admin/limits", Body::Nothing),
    ("PUT", "/api/v1/admin/limits", Body::Json(r#"{"limits":{},"reason":"x"}"#)),
    ("GET", "/api/v1/admin/limits/history", Body::Nothing),
    ("POST", "/api/v1/admin/limits/preview", Body::Draft(r#"{"limits":{}}"#)),
    ("POST", "/api/v1/admin/limits/rollback", Body::Json(r#"{"change":"x","reason":"x"}"#)),
    ("GET", "/api/v1/admin/access", Body::Nothing),
    ("PUT", "/api/v1/admin/access", Body::Json(r#"{"reason":"x"}"#)),
    ("GET", "/api/v1/admin/apps", Body::Nothing),
    ("PUT", "/api/v1/admin/apps", Body::Json(r#"{"apps":[],"reason":"x"}"#)),
    ("POST", "/api/v1/admin/apps/preview", Body::Draft(r#"{"apps":[]}"#)),
    ("GET", "/api/v1/admin/brakes", Body::Nothing),
    ("DELETE", "/api/v1/admin/brakes/{prefix}", Body::Json("")),
    ("GET", "/api/v1/admin/tokens", Body::Nothing),
    ("POST", "/api/v1/admin/tokens", Body::Json(r#"{"name":"x","scopes":["*"]}"#)),
    ("DELETE", "/api/v1/admin/tokens/{id}", Body::Json("")),
    ("GET", "/api/v1/admin/subjects/{limit}/{subject}", Body::Nothing),
    ("DELETE", "/api/v1/admin/subjects/{limit}/{subject}", Body::Json("")),
    ("DELETE", "/api/v1/admin/disabled-passwords/{login}", Body::Json("")),
    ("DELETE", "/api/v1/admin/accounts/{id}/factors", Body::Json(r#"{"reason":"x"}"#)),
];

/// The paths of administrators in the URL table.
fn in_the_table() -> BTreeSet<(String, String)> {
    let of_theirs = |path: &str| {
        let path = path.strip_prefix(API).unwrap_or(path);
        path == "/admin" || path.starts_with("/admin/")
    };
    table().into_iter().filter(|(_, path)| of_theirs(path)).collect()
}

#[test]
fn every_path_of_administrators_is_tried_here() {
    let tried: BTreeSet<_> = WAYS.iter().map(|way| (way.0.to_owned(), way.1.to_owned())).collect();
    assert_eq!(tried, in_the_table());
}

/// Everybody who may not, or not in this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChallengeContext {
    NoSession,
    ExpiredSession,
    PlainUser,
    OneTimePassword,
    /// The password was entered too long ago.
    OldConfirmation,
    ForgedToken,
    OtherSite,
}

use ChallengeContext::*;

impl ChallengeContext {
    const ALL: [Self; 7] =
        [NoSession, ExpiredSession, PlainUser, OneTimePassword, OldConfirmation, ForgedToken, OtherSite];

    /// Whether they are refused this.
    fn is_refused(self, way: Way) -> bool {
        let (_, path, body) = way;
        match self {
            NoSession | ExpiredSession | PlainUser | OneTimePassword => true,
            OldConfirmation => matches!(body, Body::Form | Body::Json(_)) && !path.ends_with("/confirm"),
            ForgedToken => matches!(body, Body::Form | Body::Kept),
            OtherSite => body != Body::Nothing,
        }
    }

    /// The status, the problem's name or the start of the redirect target, and the recorded reason.
    fn answered(self, api: bool) -> (u16, &'static str, &'static str) {
        match (self, api) {
            (NoSession | ExpiredSession, true) => (401, "unauthenticated", "signed-out"),
            (NoSession | ExpiredSession, false) => (303, "/login?next=/admin", "signed-out"),
            (PlainUser, true) => (403, "forbidden", "not-admin"),
            (PlainUser, false) => (403, "", "not-admin"),
            (OneTimePassword, true) => (403, "password-change-required", "password-to-change"),
            (OneTimePassword, false) => (303, "/account", "password-to-change"),
            (OldConfirmation, true) => (403, "confirmation-required", "unconfirmed"),
            (OldConfirmation, false) => (303, "/admin/confirm?next=/admin", "unconfirmed"),
            (ForgedToken | OtherSite, true) => (403, "csrf", "foreign"),
            (ForgedToken | OtherSite, false) => (403, "", "foreign"),
        }
    }
}

/// A client for each kind, with the clock set so that the boss has just signed in.
struct Askers {
    expired: Client,
    user: Client,
    newcomer: Client,
    /// Signed in long ago.
    late: Client,
    boss: Client,
    token: String,
}

async fn askers(app: &TestApp) -> Askers {
    let expired = app.sign_in_admin("boss").await;
    app.advance(Duration::from_secs(15 * 24 * 3600));
    let sign_in = async |login: &str| {
        let client = app.client();
        assert_eq!(client.login(login, PASSWORD).await.status, 200);
        client
    };
    let late = sign_in("boss").await;
    app.advance(Duration::from_secs(3600));
    app.register("alice").await;
    let user = sign_in("alice").await;
    let newcomer = one_time(app).await;
    let boss = sign_in("boss").await;
    let token = boss.get("/account").await.csrf_token();
    Askers { expired, user, newcomer, late, boss, token }
}

/// An administrator with a one-time password.
async fn one_time(app: &TestApp) -> Client {
    let client = app.client();
    assert_eq!(client.login("first", PASSWORD).await.body["user"]["must_change_password"], true);
    client
}

async fn ask(app: &TestApp, askers: &Askers, asker: ChallengeContext, way: Way) -> Answer {
    let (method, pattern, body) = way;
    let client = match asker {
        NoSession => &app.client(),
        ExpiredSession => &askers.expired,
        PlainUser => &askers.user,
        OneTimePassword => &askers.newcomer,
        OldConfirmation => &askers.late,
        ForgedToken | OtherSite => &askers.boss,
    };
    let path = pattern.replace("{prefix}", "+861380013").replace("{id}", "x");
    let path =
        path.replace("{limit}", "login-account").replace("{subject}", "alice").replace("{change}", "x");
    let request =
        client.http.request(Method::from_bytes(method.as_bytes()).unwrap(), format!("{}{path}", app.url));
    let origin = if asker == OtherSite { "https://evil.example" } else { &app.url };
    let request = match body {
        Body::Nothing => request,
        Body::Json("") => request.header("origin", origin),
        Body::Json(text) | Body::Draft(text) => {
            request.header("origin", origin).header("content-type", "application/json").body(text)
        }
        Body::Form | Body::Kept => {
            // A token is valid in the browser that it was made for.
            let token = match asker {
                ForgedToken => "A".repeat(43),
                OtherSite => askers.token.clone(),
                OldConfirmation => client.get("/account").await.csrf_token(),
                _ => String::new(),
            };
            request.header("origin", origin).form(&[("csrf_token", token.as_str()), ("password", PASSWORD)])
        }
    };
    Answer::read(request.send().await.unwrap()).await
}

#[tokio::test]
async fn nobody_without_the_right_gets_in_anywhere_and_it_is_recorded() {
    let app = TestApp::start(Store::Memory).await;
    let login = Username::parse("first").unwrap();
    let hash = app.services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    app.services.accounts.create_first_admin(&login, &hash).await.unwrap().unwrap();
    let askers = askers(&app).await;
    for &way in WAYS {
        for asker in ChallengeContext::ALL.into_iter().filter(|asker| asker.is_refused(way)) {
            app.advance(Duration::from_millis(10));
            let what = format!("{asker:?}: {} {}", way.0, way.1);
            let answer = ask(&app, &askers, asker, way).await;
            let (status, told, why) = asker.answered(way.1.starts_with("/api/"));
            // The page of something that does not exist has nothing to show.
            let shows = ["{act}", "groups", "profile"].map(|end| format!("/admin/accounts/{{id}}/{end}"));
            let nothing_to_show = (way.1 == "/admin/limits/rollback"
                || shows.iter().any(|path| path == way.1))
                && answer.status == 404;
            assert!(answer.status == status || nothing_to_show, "{what}: {} {}", answer.status, answer.text);
            let said = if answer.status == 303 { answer.header("location") } else { answer.problem() };
            assert!(said.starts_with(told), "{what}: {said}");
            let acts = super::acts(&app).await;
            let newest = acts.first().unwrap_or_else(|| panic!("{what}: nothing is recorded"));
            assert_eq!(
                (newest.name.as_deref(), newest.outcome),
                (Some("access"), Outcome::Refused),
                "{what}"
            );
            let detail: Value = serde_json::from_str(newest.detail.as_deref().unwrap()).unwrap();
            assert_eq!((&detail["path"], &detail["why"]), (&way.1.into(), &why.into()), "{what}");
            let known = !matches!(asker, NoSession | ExpiredSession);
            assert_eq!((newest.actor.is_some(), newest.address.is_some()), (known, true), "{what}");
        }
    }
    let tokens = askers.boss.get("/api/v1/admin/tokens").await;
    assert_eq!(tokens.body["tokens"], serde_json::json!([]), "no account was created");
}

/// Too long, not JSON and not even declared as JSON: none of it is read.
#[tokio::test]
async fn nothing_is_read_of_what_somebody_without_the_right_sends() {
    let app = TestApp::start(Store::Memory).await;
    let stranger = app.client();
    let bodies = [("application/json", "{".to_owned()), ("text/plain", "x".repeat(300_000))];
    for (method, path, body) in WAYS.iter().copied() {
        let (Body::Json(sent) | Body::Draft(sent)) = body else { continue };
        for (kind, text) in bodies.iter().filter(|_| !sent.is_empty()) {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let request = stranger.http.request(method, format!("{}{path}", app.url));
            let answer = request.header("content-type", *kind).body(text.clone()).send().await.unwrap();
            assert_eq!(Answer::read(answer).await.problem(), "unauthenticated", "{path} with {kind}");
        }
    }
    for verb in ["reserve", "peek", "refund"] {
        for (kind, text) in &bodies {
            let request = stranger.http.post(format!("{}/api/v1/limits/reply/{verb}", app.url));
            let answer = request.header("content-type", *kind).body(text.clone()).send().await.unwrap();
            assert_eq!(Answer::read(answer).await.problem(), "invalid-token", "{verb} with {kind}");
        }
    }
}
