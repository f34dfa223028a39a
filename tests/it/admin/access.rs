//! Every path of administrators, requested by everybody who may not: refused, and recorded.

use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::audit::Outcome;
use gatehouse::routes::DOCUMENT;
use gatehouse::web::http::row::{AccessKind, Caller, Origin, RowFacts};
use reqwest::Method;
use serde_json::Value;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};
use crate::support::routes::{API, rows};

/// The rows of administrators.
fn ways() -> Vec<(&'static str, RowFacts)> {
    let ways = rows().into_iter().filter(|(_, row)| matches!(row.caller, Caller::Admin(..)));
    let ways: Vec<_> = ways.collect();
    assert!(ways.len() > 70, "{ways:?}");
    ways
}

/// What an administrator does by a row.
fn kind(row: &RowFacts) -> AccessKind {
    match row.caller {
        Caller::Admin(kind, _) => kind,
        other => panic!("{other:?}"),
    }
}

/// A console has no page or call that a row leaves to others.
#[test]
fn every_path_of_administrators_is_theirs() {
    for (method, row) in rows() {
        let path = row.path.strip_prefix(API).unwrap_or(&row.path);
        let of_theirs = path == "/admin" || path.starts_with("/admin/");
        assert_eq!(matches!(row.caller, Caller::Admin(..)), of_theirs, "{method} {}", row.path);
    }
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
    fn is_refused(self, row: &RowFacts) -> bool {
        match self {
            NoSession | ExpiredSession | PlainUser | OneTimePassword => true,
            OldConfirmation => kind(row) == AccessKind::Change,
            ForgedToken => row.origin == Origin::Form,
            OtherSite => row.origin != Origin::Harmless,
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

async fn ask(
    app: &TestApp,
    askers: &Askers,
    asker: ChallengeContext,
    (method, row): &(&str, RowFacts),
) -> Answer {
    let client = match asker {
        NoSession => &app.client(),
        ExpiredSession => &askers.expired,
        PlainUser => &askers.user,
        OneTimePassword => &askers.newcomer,
        OldConfirmation => &askers.late,
        ForgedToken | OtherSite => &askers.boss,
    };
    let path = row.path.replace("{prefix}", "+861380013").replace("{id}", "x");
    let path =
        path.replace("{limit}", "login-account").replace("{subject}", "alice").replace("{change}", "x");
    let request =
        client.http.request(Method::from_bytes(method.as_bytes()).unwrap(), format!("{}{path}", app.url));
    let origin = if asker == OtherSite { "https://evil.example" } else { &app.url };
    let request = match row.origin {
        Origin::Harmless => request,
        Origin::Form => {
            // A token is valid in the browser that it was made for.
            let token = match asker {
                ForgedToken => "A".repeat(43),
                OtherSite => askers.token.clone(),
                OldConfirmation => client.get("/account").await.csrf_token(),
                _ => String::new(),
            };
            request.header("origin", origin).form(&[("csrf_token", token.as_str()), ("password", PASSWORD)])
        }
        _ => match example(method, &row.path) {
            Some(body) => request.header("origin", origin).json(&body),
            None => request.header("origin", origin),
        },
    };
    Answer::read(request.send().await.unwrap()).await
}

/// The body of a call, as the document shows it.
fn example(method: &str, path: &str) -> Option<Value> {
    let pointer = format!(
        "/paths/{}/{}/requestBody/content/application~1json/example",
        path.replace('/', "~1"),
        method.to_lowercase()
    );
    DOCUMENT.pointer(&pointer).cloned()
}

#[tokio::test]
async fn nobody_without_the_right_gets_in_anywhere_and_it_is_recorded() {
    let app = TestApp::start(Store::Memory).await;
    let login = Username::parse("first").unwrap();
    let hash = app.services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    app.services.accounts.create_first_admin(&login, &hash).await.unwrap().unwrap();
    let askers = askers(&app).await;
    for way in &ways() {
        let path = &way.1.path;
        for asker in ChallengeContext::ALL.into_iter().filter(|asker| asker.is_refused(&way.1)) {
            app.advance(Duration::from_millis(10));
            let what = format!("{asker:?}: {} {path}", way.0);
            let answer = ask(&app, &askers, asker, way).await;
            let (status, told, why) = asker.answered(path.starts_with("/api/"));
            // The page of something that does not exist has nothing to show.
            let shows = ["{act}", "groups", "profile"].map(|end| format!("/admin/accounts/{{id}}/{end}"));
            let nothing_to_show = (path == "/admin/limits/rollback"
                || shows.iter().any(|shown| shown == path))
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
            assert_eq!((&detail["path"], &detail["why"]), (&path.as_str().into(), &why.into()), "{what}");
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
    let mut tried = 0;
    for (method, RowFacts { path, .. }) in ways() {
        if !path.starts_with(API) || example(method, &path).is_none() {
            continue;
        }
        for (kind, text) in &bodies {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let request = stranger.http.request(method, format!("{}{path}", app.url));
            let answer = request.header("content-type", *kind).body(text.clone()).send().await.unwrap();
            assert_eq!(Answer::read(answer).await.problem(), "unauthenticated", "{path} with {kind}");
            tried += 1;
        }
    }
    assert!(tried > 20, "only {tried}");
    for verb in ["reserve", "peek", "refund"] {
        for (kind, text) in &bodies {
            let request = stranger.http.post(format!("{}/api/v1/limits/reply/{verb}", app.url));
            let answer = request.header("content-type", *kind).body(text.clone()).send().await.unwrap();
            assert_eq!(Answer::read(answer).await.problem(), "invalid-token", "{verb} with {kind}");
        }
    }
}
