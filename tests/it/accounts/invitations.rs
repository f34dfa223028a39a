//! Who may have an account: registration that is closed, and the links of those who are invited.

use serde_json::{Value, json};

use crate::sms::http::{NUMBER, OTHER, bare, enter, with_number};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    strangers_make_no_account_where_registration_is_not_open,
    the_answer_tells_nothing_about_names,
    codes_go_to_numbers_of_accounts_alone,
    past_the_open_part_a_challenge_leads_to_the_reserve,
    a_code_from_before_makes_no_account_once_it_is_closed,
    a_created_account_is_entered_by_its_link_once,
    a_link_ends_with_its_account_and_with_any_other_password,
    what_only_looks_at_a_link_uses_nothing_up,
    of_many_at_once_a_link_lets_in_one,
    a_link_for_many_makes_as_many_as_it_says,
    a_link_for_many_makes_none_where_it_is_closed,
    a_link_is_revoked_and_expires,
    accounts_are_created_all_or_none,
    an_account_is_invited_again_until_it_has_a_password,
    a_link_is_no_way_past_a_number_or_a_second_factor,
    no_token_creates_a_reserved_name,
    invitations_take_the_scope_of_accounts,
    the_pages_do_the_same,
    the_mode_is_saved_on_the_page,
    whoever_saves_the_mode_leaves_what_strangers_have_to_prove,
);

async fn closed(store: Store) -> TestApp {
    mode(store, "closed").await
}

async fn mode(store: Store, mode: &str) -> TestApp {
    TestApp::on(store)
        .file_more(&format!("[registration]\nmode = \"{mode}\"\n"))
        .without(&["sms-address", "sms-phone", "register-address", "login-address"])
        .start()
        .await
}

async fn create(boss: &Client, body: Value) -> Answer {
    boss.call("/admin/accounts", body).await
}

/// The link's end.
fn token(made: &Answer) -> String {
    assert_eq!(made.status, 201, "{}", made.text);
    let link = made.body["link"].as_str().unwrap();
    link.split_once("/welcome/").unwrap().1.to_owned()
}

async fn invited(boss: &Client, name: &str) -> String {
    token(&create(boss, json!({ "login": name })).await)
}

async fn accept(client: &Client, token: &str, login: Option<&str>) -> Answer {
    let mut body = json!({ "token": token, "new_password": PASSWORD });
    if let Some(login) = login {
        body["login"] = login.into();
    }
    client.call("/welcome", body).await
}

async fn strangers_make_no_account_where_registration_is_not_open(store: Store) {
    for word in ["invite", "closed"] {
        let app = mode(store, word).await;
        let client = app.client();
        let refused = client.register("alice", PASSWORD).await;
        assert_eq!((refused.status, refused.problem()), (403, "registration-closed"), "{}", refused.text);
        let asked = client.ask_code(NUMBER, "register").await;
        assert_eq!((asked.status, asked.problem()), (403, "registration-closed"));
        let page = client.get("/register").await;
        assert!(page.status == 403 && page.hidden("csrf_token").is_none(), "{}", page.text);
        let login = client.get("/login").await;
        assert!(!login.text.contains("/register"), "nothing leads there");
        let fields = [("login", "alice"), ("password", PASSWORD)];
        assert_eq!(client.submit("/login", "/register", &fields).await.status, 403);
        let numbered = [("login", "alice"), ("phone", NUMBER), ("send", "1")];
        assert_eq!(client.submit("/login", "/register", &numbered).await.status, 403);
        assert!(client.codes("").await.is_empty());
        assert_eq!(app.hashes(), 0, "refused before anything is hashed");
    }
}

async fn the_answer_tells_nothing_about_names(store: Store) {
    let app = closed(store).await;
    app.administrator("boss").await;
    let client = app.client();
    let mut told = Vec::new();
    for login in ["boss", "nobody", "admin", "not a name", ""] {
        let refused = client.register(login, "short").await;
        told.push((refused.status, refused.text));
    }
    assert!(told.iter().all(|it| *it == told[0] && it.0 == 403), "{told:?}");
}

async fn codes_go_to_numbers_of_accounts_alone(store: Store) {
    let app = TestApp::on(store)
        .without(&["sms-address", "sms-phone", "register-address", "login-address", "sms-network"])
        .start()
        .await;
    with_number(&app, "alice", NUMBER).await;
    close(&app).await;
    for purpose in ["login", "reset"] {
        let client = app.client();
        assert_eq!(client.get("/login").await.status, 200, "it has its cookie");
        let before = client.codes("").await.len();
        let (known, unknown) =
            (client.ask_code(NUMBER, purpose).await, client.ask_code(OTHER, purpose).await);
        assert_eq!(known.status, 202, "{}", known.text);
        assert_eq!(bare(&known), bare(&unknown));
        crate::support::until("the message", async || client.codes("").await.len() > before).await;
        assert_eq!(client.codes("").await.len(), before + 1);
        assert!(client.codes(OTHER).await.is_empty());
    }
    // What was withheld used up nothing of the shared budget.
    let boss = app.sign_in_admin("boss").await;
    let total = boss.get("/api/v1/admin/subjects/sms-total/everyone").await;
    assert_eq!(total.body["rules"][0]["count"], 3, "{}", total.text);
    // Verify is not concerned: a number proves itself to a session.
    let boss_number = "+8613900139009";
    let body = json!({ "phone": boss_number, "purpose": "verify" });
    assert_eq!(boss.call("/sms/codes", body).await.status, 202);
    assert_eq!(boss.codes(boss_number).await.len(), 1);
}

/// For numbers with and without accounts alike.
async fn past_the_open_part_a_challenge_leads_to_the_reserve(store: Store) {
    let app = TestApp::on(store)
        .limit("sms-total", &[crate::support::setup::max(5).per("24h")])
        .without(&["sms-phone", "sms-address", "sms-network", "login-address", "login-network"])
        .start()
        .await;
    with_number(&app, "alice", NUMBER).await;
    close(&app).await;
    let client = app.client();
    assert_eq!(client.get("/login").await.status, 200);
    // Of five messages three are open at our own pages; registration has used one.
    for sent in 2..=3 {
        assert_eq!(client.ask_code(OTHER, "login").await.status, 202, "spends nothing");
        assert_eq!(client.ask_code(NUMBER, "login").await.status, 202);
        crate::support::until("the message", async || client.codes("").await.len() == sent).await;
    }
    for phone in [NUMBER, OTHER] {
        let asked = client.ask_code(phone, "login").await;
        assert_eq!((asked.status, asked.problem()), (403, "captcha-required"), "{}", asked.text);
        let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": crate::support::app::ANSWER });
        let body = json!({ "phone": phone, "purpose": "login", "captcha": captcha });
        assert_eq!(client.call("/sms/codes", body).await.status, 202);
    }
    crate::support::until("the reserve's", async || client.codes("").await.len() == 4).await;
    assert!(client.codes(OTHER).await.is_empty());
}

/// As an administrator does on the page.
async fn close(app: &TestApp) -> Client {
    let boss = app.sign_in_admin("closer").await;
    let fields = [("do", "mode"), ("mode", "closed"), ("reason", "a test")];
    let saved = boss.submit("/admin/invitations", "/admin/invitations", &fields).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    boss
}

async fn a_code_from_before_makes_no_account_once_it_is_closed(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    close(&app).await;
    let refused = enter(&client, NUMBER, &code).await;
    assert_eq!((refused.status, refused.problem()), (403, "registration-closed"), "{}", refused.text);
    let boss = app.sign_in_admin("boss").await;
    let all = boss.get("/api/v1/admin/accounts?role=user").await;
    assert_eq!(all.body["accounts"], json!([]));
}

async fn a_created_account_is_entered_by_its_link_once(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    let profile = json!({ "email": "ada@example.org", "email_verified": true, "name": "Ada" });
    let body = json!({ "login": "Ada", "groups": ["staff"], "phone": NUMBER, "profile": profile });
    let made = create(&boss, body).await;
    let token = token(&made);
    assert!(made.body["link"].as_str().unwrap().starts_with(&app.url), "{}", made.text);
    let shown = boss.get(&format!("/api/v1/admin/accounts/{}", made.body["id"].as_str().unwrap())).await;
    assert_eq!(
        [&shown.body["login"], &shown.body["email"], &shown.body["name"], &shown.body["has_password"]],
        [&json!("ada"), &json!("ada@example.org"), &json!("Ada"), &json!(false)]
    );
    let list = boss.get("/api/v1/admin/invitations").await;
    assert_eq!(list.body["invitations"][0]["login"], "ada");
    assert!(!list.text.contains(&token), "the link is shown once");
    assert_eq!(app.client().login("ada", PASSWORD).await.status, 401);
    let named = accept(&app.client(), &token, Some("eve")).await;
    assert_eq!((named.status, &named.body["errors"][0]["field"]), (422, &json!("login")), "{}", named.text);
    let client = app.client();
    let entered = accept(&client, &token, None).await;
    assert_eq!((entered.status, &entered.body["user"]["login"]), (200, &json!("ada")), "{}", entered.text);
    assert_eq!(client.get("/api/v1/session").await.status, 200);
    assert_eq!(app.client().login("ada", PASSWORD).await.status, 200);
    let again = accept(&app.client(), &token, None).await;
    assert_eq!((again.status, again.problem()), (404, "invitation-ended"));
    let unknown = accept(&app.client(), &"A".repeat(43), None).await;
    assert_eq!((unknown.status, &unknown.text), (404, &again.text), "one answer");
    assert_eq!(boss.get("/api/v1/admin/invitations").await.body["invitations"], json!([]));
    let taken = create(&boss, json!({ "login": "ada" })).await;
    assert_eq!((taken.status, taken.problem()), (409, "login-taken"));
    let phone = create(&boss, json!({ "login": "eve", "phone": NUMBER })).await;
    assert_eq!((phone.status, phone.problem()), (409, "phone-taken"));
}

async fn a_link_ends_with_its_account_and_with_any_other_password(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    for act in ["delete", "disable", "end-sessions"] {
        let made = create(&boss, json!({ "login": format!("for-{act}") })).await;
        let (token, id) = (token(&made), made.body["id"].as_str().unwrap().to_owned());
        let done = boss.call(&format!("/admin/accounts/{id}/{act}"), json!({ "reason": "a test" })).await;
        assert_eq!(done.status, 204, "{}", done.text);
        assert_eq!(accept(&app.client(), &token, None).await.problem(), "invitation-ended", "{act}");
        assert_eq!(app.client().get(&format!("/welcome/{token}")).await.status, 404);
    }
    let token = token(&create(&boss, json!({ "login": "alice", "phone": NUMBER })).await);
    let client = app.client();
    client.ask_code(NUMBER, "reset").await;
    crate::support::until("the code", async || !client.codes(NUMBER).await.is_empty()).await;
    let code = client.codes(NUMBER).await.remove(0);
    let body = json!({ "phone": NUMBER, "code": code, "new_password": "another horse battery staple" });
    assert_eq!(client.call("/password/reset", body).await.status, 204);
    assert_eq!(accept(&app.client(), &token, None).await.problem(), "invitation-ended");
    assert_eq!(app.client().login("alice", "another horse battery staple").await.status, 200);
}

async fn what_only_looks_at_a_link_uses_nothing_up(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    let token = invited(&boss, "alice").await;
    let path = format!("/welcome/{token}");
    for _ in 0..3 {
        assert_eq!(app.client().get(&path).await.status, 200);
        let head = crate::support::app::http().build().unwrap().head(format!("{}{path}", app.url));
        assert_eq!(head.send().await.unwrap().status(), 200);
    }
    let client = app.client();
    assert_eq!(client.submit(&path, &path, &[("login", "alice"), ("password", "")]).await.status, 422);
    assert_eq!(client.submit(&path, &path, &[("password", "short")]).await.status, 422);
    assert_eq!(client.post(&path, &[("password", PASSWORD)]).await.status, 403, "without a token of ours");
    assert_eq!(accept(&client, &token, None).await.status, 200);
}

async fn of_many_at_once_a_link_lets_in_one(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    let token = invited(&boss, "alice").await;
    let tries = (0..12).map(|_| async { accept(&app.client(), &token, None).await.status });
    let answers = futures_util::future::join_all(tries).await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
}

async fn a_link_for_many_makes_as_many_as_it_says(store: Store) {
    let app = mode(store, "invite").await;
    let boss = app.sign_in_admin("boss").await;
    let wanted = json!({ "count": 3, "expires_in": 3600, "groups": ["class-7b"] });
    let made = boss.call("/admin/invitations", wanted).await;
    let token = token(&made);
    let missing = accept(&app.client(), &token, None).await;
    assert_eq!((missing.status, &missing.body["errors"][0]["field"]), (422, &json!("login")));
    for taken in ["boss", "root"] {
        assert_eq!(accept(&app.client(), &token, Some(taken)).await.problem(), "login-taken", "{taken}");
    }
    let tries = (0..9).map(|n| {
        let (app, token) = (&app, &token);
        async move { accept(&app.client(), token, Some(&format!("pupil-{n}"))).await.status }
    });
    let answers = futures_util::future::join_all(tries).await;
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 3, "{answers:?}");
    let all = boss.get("/api/v1/admin/accounts?group=class-7b").await;
    assert_eq!(all.body["accounts"].as_array().unwrap().len(), 3);
    assert_eq!(boss.get("/api/v1/admin/invitations").await.body["invitations"], json!([]), "it is used up");
}

async fn a_link_for_many_makes_none_where_it_is_closed(store: Store) {
    let app = mode(store, "invite").await;
    let boss = app.sign_in_admin("boss").await;
    let token = token(&boss.call("/admin/invitations", json!({ "count": 3, "expires_in": 3600 })).await);
    close(&app).await;
    let refused = accept(&app.client(), &token, Some("alice")).await;
    assert_eq!((refused.status, refused.problem()), (403, "registration-closed"));
    assert_eq!(app.client().get(&format!("/welcome/{token}")).await.status, 403);
    let more = boss.call("/admin/invitations", json!({ "count": 3, "expires_in": 3600 })).await;
    assert_eq!(more.status, 422, "{}", more.text);
}

async fn a_link_is_revoked_and_expires(store: Store) {
    let app = mode(store, "invite").await;
    let boss = app.sign_in_admin("boss").await;
    let made = boss.call("/admin/invitations", json!({ "count": 3, "expires_in": 3600 })).await;
    let (id, first) = (made.body["id"].as_str().unwrap().to_owned(), token(&made));
    assert_eq!(boss.delete(&format!("/api/v1/admin/invitations/{id}"), json!({})).await.status, 204);
    assert_eq!(boss.delete(&format!("/api/v1/admin/invitations/{id}"), json!({})).await.status, 404);
    assert_eq!(accept(&app.client(), &first, Some("alice")).await.problem(), "invitation-ended");
    let second = invited(&boss, "alice").await;
    app.advance(std::time::Duration::from_secs(72 * 3600 - 1));
    assert_eq!(app.client().get(&format!("/welcome/{second}")).await.status, 200);
    app.advance(std::time::Duration::from_secs(1));
    assert_eq!(accept(&app.client(), &second, None).await.problem(), "invitation-ended");
}

async fn accounts_are_created_all_or_none(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    let page = "/admin/invitations";
    let names = "carol\nboss\ndave";
    let refused = boss.submit(page, page, &[("do", "create"), ("login", names)]).await;
    assert!(refused.status == 409 && refused.text.contains("twice: boss"), "{}", refused.text);
    assert!(refused.text.contains("carol"), "what was typed is still there");
    let all = boss.get("/api/v1/admin/accounts").await;
    assert_eq!(all.body["accounts"].as_array().unwrap().len(), 1);
    let fields = [("do", "create"), ("login", "carol\r\n dave \r\n"), ("groups", "staff")];
    let made = boss.submit(page, page, &fields).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.text.matches("/welcome/").count(), 2);
    let wrong = [
        ("login", "a b\nerin"),
        ("login", "erin\nerin"),
        ("login", ""),
        ("groups", "No Group!"),
        ("phone", "12"),
        ("email", "nobody"),
    ];
    for (field, value) in wrong {
        let mut fields = vec![("do", "create"), (field, value)];
        if field != "login" {
            fields.push(("login", "erin"));
        }
        let refused = boss.submit(page, page, &fields).await;
        assert!([409, 422].contains(&refused.status), "{field} {value}: {}", refused.status);
        assert!(refused.text.contains(&format!("id=\"{field}-error\"")), "{field} {value}");
    }
    let two = [("do", "create"), ("login", "erin\nfrank"), ("phone", NUMBER)];
    assert_eq!(boss.submit(page, page, &two).await.status, 422, "whose number would it be?");
}

async fn an_account_is_invited_again_until_it_has_a_password(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    let made = create(&boss, json!({ "login": "alice" })).await;
    let (first, id) = (token(&made), made.body["id"].as_str().unwrap().to_owned());
    let path = format!("/admin/accounts/{id}/invite");
    let second = token(&boss.call(&path, json!({})).await);
    assert_eq!(accept(&app.client(), &first, None).await.problem(), "invitation-ended");
    assert_eq!(accept(&app.client(), &second, None).await.status, 200);
    let refused = boss.call(&path, json!({})).await;
    assert_eq!((refused.status, refused.problem()), (409, "has-password"), "{}", refused.text);
}

/// Whoever may make links is not let into accounts that others use without a password.
async fn a_link_is_no_way_past_a_number_or_a_second_factor(store: Store) {
    let app = mode(store, "open").await;
    let boss = app.sign_in_admin("boss").await;
    let owner = app.client();
    let code = owner.code(NUMBER, "login").await;
    let id = enter(&owner, NUMBER, &code).await.body["user"]["id"].as_str().unwrap().to_owned();
    let refused = boss.call(&format!("/admin/accounts/{id}/invite"), json!({})).await;
    assert_eq!((refused.status, refused.problem()), (409, "has-password"), "{}", refused.text);
    let made = create(&boss, json!({ "login": "carol", "phone": OTHER })).await;
    let unused = token(&made);
    assert_eq!(app.client().get(&format!("/welcome/{unused}")).await.status, 200);
    let carol = app.client();
    let code = carol.code(OTHER, "login").await;
    assert_eq!(enter(&carol, OTHER, &code).await.status, 200);
    let ended = accept(&app.client(), &unused, None).await;
    assert_eq!((ended.status, ended.problem()), (404, "invitation-ended"), "its owner came in by the number");
    assert_eq!(carol.get("/api/v1/session").await.status, 200, "and stays in");
}

async fn no_token_creates_a_reserved_name(store: Store) {
    let app = closed(store).await;
    let boss = app.sign_in_admin("boss").await;
    let body = json!({ "name": "script", "scopes": ["accounts:write"], "expires_in": 3600 });
    let token = boss.call("/admin/tokens", body).await.body["token"].as_str().unwrap().to_owned();
    let header: &'static str = Box::leak(format!("Bearer {token}").into_boxed_str());
    let script = app.client_that_says(&[("authorization", header)]);
    let refused = create(&script, json!({ "login": "root" })).await;
    assert_eq!((refused.status, refused.problem()), (403, "insufficient-scope"), "{}", refused.text);
    assert_eq!(create(&boss, json!({ "login": "root" })).await.status, 201, "an administrator may");
}

async fn invitations_take_the_scope_of_accounts(store: Store) {
    let app = mode(store, "invite").await;
    let boss = app.sign_in_admin("boss").await;
    let with = async |scope: &str| {
        let body = json!({ "name": "script", "scopes": [scope], "expires_in": 3600 });
        let token = boss.call("/admin/tokens", body).await.body["token"].as_str().unwrap().to_owned();
        let header: &'static str = Box::leak(format!("Bearer {token}").into_boxed_str());
        app.client_that_says(&[("authorization", header)])
    };
    let (may, may_not) = (with("accounts:write").await, with("events:read").await);
    assert_eq!(create(&may, json!({ "login": "alice" })).await.status, 201);
    for (path, body) in [
        ("/admin/accounts", json!({ "login": "eve" })),
        ("/admin/invitations", json!({ "count": 1, "expires_in": 3600 })),
    ] {
        let refused = may_not.call(path, body).await;
        assert_eq!((refused.status, refused.problem()), (403, "insufficient-scope"), "{path}");
        assert_eq!(app.client().call(path, json!({})).await.status, 401, "{path}");
    }
}

async fn the_pages_do_the_same(store: Store) {
    let app = mode(store, "invite").await;
    let boss = app.sign_in_admin("boss").await;
    let page = "/admin/invitations";
    let made = boss.submit(page, page, &[("do", "create"), ("login", "alice")]).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let path = link_on(&made);
    let client = app.client();
    let shown = client.get(&path).await;
    assert!(shown.text.contains("value=\"alice\" readonly"), "{}", shown.text);
    let entered = client.submit(&path, &path, &[("login", "eve"), ("password", PASSWORD)]).await;
    assert_eq!((entered.status, entered.header("location")), (303, "/account"), "{}", entered.text);
    let session = client.get("/api/v1/session").await;
    assert_eq!(session.body["user"]["login"], "alice", "whatever name was sent");
    assert!(client.get("/account").await.text.contains("Welcome. You are signed in."));
    let ended = app.client().get(&path).await;
    assert!(ended.status == 404 && ended.text.contains("This invitation is not valid"), "{}", ended.text);
    let fields = [("do", "invite"), ("count", "2"), ("hours", "24"), ("groups", "staff")];
    let many = boss.submit(page, page, &fields).await;
    let path = link_on(&many);
    let fields = [("login", "bob"), ("password", PASSWORD)];
    assert_eq!(app.client().submit(&path, &path, &fields).await.status, 303);
    let list = boss.get(page).await;
    assert!(list.text.contains("Accounts left: 1 of 2"), "{}", list.text);
    let id = list.hidden("id").unwrap();
    assert_eq!(boss.submit(page, "/admin/invitations/revoke", &[("id", &id)]).await.status, 303);
    assert_eq!(app.client().get(&path).await.status, 404);
}

fn link_on(page: &Answer) -> String {
    let (_, rest) = page.text.split_once("/welcome/").unwrap();
    format!("/welcome/{}", &rest[..43])
}

async fn the_mode_is_saved_on_the_page(store: Store) {
    let app = TestApp::start(store).await;
    assert_eq!(app.client().register("alice", PASSWORD).await.status, 201);
    close(&app).await;
    assert_eq!(app.client().register("bob", PASSWORD).await.problem(), "registration-closed");
    let boss = app.sign_in_admin("boss").await;
    let page = "/admin/invitations";
    let fields = [("do", "mode"), ("mode", "ajar"), ("reason", "a test")];
    assert_eq!(boss.submit(page, page, &fields).await.status, 422);
    assert_eq!(boss.submit(page, page, &[("do", "mode"), ("mode", "open")]).await.status, 422, "no reason");
    let history = boss.get("/api/v1/admin/limits/history").await;
    assert!(history.text.contains("registration"), "{}", history.text);
    let fields = [("do", "mode"), ("mode", "open"), ("reason", "a test")];
    assert_eq!(boss.submit(page, page, &fields).await.status, 303);
    assert_eq!(app.client().register("bob", PASSWORD).await.status, 201);
}

async fn whoever_saves_the_mode_leaves_what_strangers_have_to_prove(store: Store) {
    let app = TestApp::on(store).file_more("[registration]\nrequire = [\"email\"]\n").start().await;
    let boss = close(&app).await;
    let fields = [("do", "mode"), ("mode", "open"), ("reason", "a test")];
    assert_eq!(boss.submit("/admin/invitations", "/admin/invitations", &fields).await.status, 303);
    let refused = app.client().register("alice", PASSWORD).await;
    assert_eq!(
        (refused.status, &refused.body["errors"][0]["field"]),
        (422, &json!("email")),
        "{}",
        refused.text
    );
}

mod addresses {
    use super::*;

    on_both_stores!(an_address_is_a_name_that_administrators_give, nobody_chooses_an_address);

    async fn an_address_is_a_name_that_administrators_give(store: Store) {
        let app = closed(store).await;
        let boss = app.sign_in_admin("boss").await;
        let made = create(&boss, json!({ "login": "Ada@Example.org" })).await;
        let token = token(&made);
        assert_eq!(made.body["login"], "ada@example.org");
        assert_eq!(accept(&app.client(), &token, None).await.status, 200);
        for typed in ["ada@example.org", " ADA@EXAMPLE.ORG ", "ａｄａ＠example.org"] {
            let entered = app.client().login(typed, PASSWORD).await;
            assert_eq!((entered.status, &entered.body["user"]["login"]), (200, &json!("ada@example.org")));
        }
        // Counted, looked up and let in again as any other name; the same at another program is somebody else.
        for name in ["ada@example.org", "nobody@example.org"] {
            for _ in 0..4 {
                app.client().login(name, "a wrong password here").await;
            }
            let refused = app.client().login(name, "a wrong password here").await;
            assert_eq!(refused.problem(), "captcha-required", "{name}: {}", refused.text);
            let counted = boss.get(&format!("/api/v1/admin/subjects/login-account/{name}")).await;
            assert_eq!(counted.body["rules"][0]["count"], 3, "{}", counted.text);
        }
        let guard = boss.get("/api/v1/admin/subjects/guard-account/guard:shop:ada@example.org").await;
        assert_eq!((guard.status, &guard.body["rules"][0]["count"]), (200, &json!(0)), "{}", guard.text);
        let events = boss.get("/api/v1/admin/events?action=sign-in").await;
        assert!(!events.text.contains("example.org"), "masked in the record: {}", events.text);
        boss.submit("/admin/lookup", "/admin/lookup", &[("asked", "ada@example.org")]).await;
        let found = boss.get("/admin/lookup?typed").await;
        assert!(found.text.contains("ada@example.org"), "{}", found.text);
        assert_eq!(boss.clear("login-account", "ada@example.org").await.status, 204);
        assert_eq!(app.client().login("ada@example.org", PASSWORD).await.status, 200);
    }

    async fn nobody_chooses_an_address(store: Store) {
        let app = mode(store, "open").await;
        for name in ["ada@example.org", "ada＠example.org"] {
            let refused = app.client().register(name, PASSWORD).await;
            assert_eq!(
                (refused.status, &refused.body["errors"][0]["field"]),
                (422, &json!("login")),
                "{name}"
            );
        }
        let boss = app.sign_in_admin("boss").await;
        let many = token(&boss.call("/admin/invitations", json!({ "count": 2, "expires_in": 3600 })).await);
        assert_eq!(accept(&app.client(), &many, Some("ada@example.org")).await.status, 422);
        for name in ["ada@", "a@b@c", &format!("{}@example.org", "a".repeat(254))] {
            assert_eq!(create(&boss, json!({ "login": name })).await.status, 422, "{name}");
        }
    }
}
