//! Who may ask, and what a realm keeps to itself.

use serde_json::json;

use super::{Program, start, started};
use crate::support::app::{PASSWORD, Store, TestApp};

#[tokio::test]
async fn only_a_token_of_a_realm_may_ask() {
    let (app, boss, _) = start(Store::Memory).await;
    let ask = json!({ "login": "ada", "address": "203.0.113.7" });
    for scope in ["*", "verify:shop"] {
        let program = Program::of(&app, &boss, scope).await;
        for (path, body) in
            [("", &ask), ("/x", &json!({ "outcome": "failure" })), ("/forgive", &json!({ "login": "ada" }))]
        {
            let answer = program.call(path, body.clone()).await;
            assert_eq!((answer.status, answer.problem()), (403, "insufficient-scope"), "{scope} {path}");
        }
    }
    let nobody = Program { client: app.client(), token: "ght_x".to_owned() };
    assert_eq!(nobody.call("", ask.clone()).await.status, 401);
    let signed_in = boss.call("/attempts", ask).await;
    assert_eq!(signed_in.status, 401, "no cookie counts here");
}

#[tokio::test]
async fn a_token_speaks_for_one_realm_and_says_so_when_it_is_made() {
    let (_app, boss, _) = start(Store::Memory).await;
    let make =
        async |scopes: &[&str]| boss.call("/admin/tokens", json!({ "name": "x", "scopes": scopes })).await;
    for scopes in [&["guard:a", "guard:b"][..], &["guard:"], &["guard:*"], &["guard:A"]] {
        let answer = make(scopes).await;
        assert_eq!(
            (answer.status, &answer.body["errors"][0]["field"]),
            (422, &json!("scopes")),
            "{scopes:?}"
        );
    }
    assert_eq!(make(&["*", "guard:a"]).await.status, 201);
}

#[tokio::test]
async fn what_happens_in_a_realm_counts_nowhere_else() {
    let (app, boss, shop) = start(Store::Memory).await;
    let mail = Program::of(&app, &boss, "guard:mail").await;
    app.register("ada").await;
    let attempt = shop.go("ada").await;
    assert_eq!(mail.tell(&attempt, "failure").await.status, 404, "another realm's");
    assert_eq!(shop.tell(&attempt, "failure").await.status, 200);
    for _ in 0..2 {
        shop.fail("ada").await;
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    mail.go("ada").await;
    assert_eq!(app.client().login("ada", PASSWORD).await.status, 200);
    // Nor do our own failures count there.
    for _ in 0..3 {
        app.client().login("bob", "a wrong password").await;
    }
    shop.go("bob").await;
}

#[tokio::test]
async fn a_limit_that_only_monitors_says_what_it_would_have_refused() {
    use gatehouse::audit::EventFilter;
    let toml = "[limits.guard-account]\nmode = \"monitor\"\nrules = [{ max = 2, window = \"1m\" }]\n";
    let (app, _, shop) = started(TestApp::on(Store::Memory).file(toml)).await;
    for _ in 0..4 {
        shop.fail("ada").await;
    }
    let audit = &app.services.audit;
    audit.flush().await;
    let events = audit.log().page(&EventFilter::default(), None, 100).await.unwrap().entries;
    let noted = events.iter().filter(|event| event.noted && event.limit.as_deref() == Some("guard-account"));
    assert_eq!(noted.count(), 2, "{events:#?}");
}

#[tokio::test]
async fn an_attempt_is_recorded_by_its_realm_and_names_nobody() {
    use gatehouse::audit::{Action, EventFilter, Outcome};
    let (app, _, shop) = start(Store::Memory).await;
    shop.succeed("caroline@example.com").await;
    for _ in 0..3 {
        shop.fail("caroline@example.com").await;
    }
    for _ in 0..9 {
        assert_eq!(shop.ask("caroline@example.com").await["decision"], "challenge");
    }
    let audit = &app.services.audit;
    audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Attempt], ..EventFilter::default() };
    let events = audit.log().page(&filter, None, 100).await.unwrap().entries;
    let of = |outcome: Outcome| events.iter().filter(|event| event.outcome == outcome).collect::<Vec<_>>();
    assert_eq!((of(Outcome::Ok).len(), of(Outcome::Wrong).len(), of(Outcome::Challenged).len()), (1, 3, 1));
    for event in &events {
        assert_eq!(event.name.as_deref(), Some("shop"));
        let masks = [&event.account, &event.address].map(|subject| subject.as_ref().unwrap().mask.as_str());
        assert_eq!(masks, ["ca…", "203.0.113.0/24"]);
    }
    let one = |outcome| of(outcome)[0].account.as_ref().unwrap().key;
    assert_eq!(one(Outcome::Wrong), one(Outcome::Challenged), "found by one hash");
}
