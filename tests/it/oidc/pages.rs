//! What the account's owner sees of clients: the list of them, and the pages on the way to one.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::*;
use crate::factors::{delete, set_up, totp};
use crate::support::app::on_both_stores;

on_both_stores! {
    the_owner_sees_which_clients_know_the_account_and_ends_that,
    what_ends_a_client_waits_for_nobody,
    the_grace_begins_for_who_only_refreshes,
}

/// The page to which an answer leads, and the one that this page leads to.
fn way(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 303, "{}", answer.text);
    let url = Url::parse("http://localhost").unwrap().join(answer.header("location")).unwrap();
    let next = url.query_pairs().find(|(name, _)| name == "next").expect("where it leads").1.into_owned();
    (url.path().to_owned(), next)
}

/// Follows the page that goes on to the client's request.
async fn go_on(browser: &Client, next: &str) -> Answer {
    assert!(next.starts_with("/oauth/continue?"), "{next}");
    assert!(browser.get(next).await.text.contains("http-equiv=\"refresh\""));
    browser.get(&next.replacen("/oauth/continue", "/oauth/authorize", 1)).await
}

async fn agree(browser: &Client, login: &str, path: &str) -> Answer {
    let account = browser.get("/api/v1/session").await.body["user"]["id"].as_str().unwrap().to_owned();
    let (_, query) = path.split_once('?').unwrap();
    let fields = [("request", query), ("account", &*account), ("agree", "yes")];
    let agreed = browser.submit(path, "/oauth/consent", &fields).await;
    assert!(agreed.text.contains("code="), "{login}: {}", agreed.text);
    agreed
}

async fn the_owner_sees_which_clients_know_the_account_and_ends_that(store: Store) {
    const REVOKE: &str = "/account/apps/revoke";
    const WIKI_ROW: &str = "<input type=\"hidden\" name=\"client\" value=\"wiki\">";
    let app = start(on(store)).await;
    let beside = app.beside(on(store).set("server.public_url", &app.url)).await;
    let (ada, access, token) = granted(&app, "ada").await;
    let (boris, of_boris, _) = granted(&app, "boris").await;
    let spa = request(&[("client_id", "spa"), ("redirect_uri", SPA), ("scope", "openid groups")]);
    agree(&ada, "ada", &spa).await;
    let page = ada.get("/account").await.text;
    for told in ["Applications that know your account", WIKI_ROW, "your groups", "your e-mail address"] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let listed = ada.get("/api/v1/account/apps").await.body["apps"].clone();
    assert_eq!((&listed[0]["client_id"], &listed[0]["scope"]), (&json!("spa"), &json!("openid groups")));
    // Nobody has fetched the code.
    assert!(listed[0]["agreed_at"].is_string() && listed[0]["used_at"].is_null(), "{listed}");
    let wiki = &listed[1];
    assert_eq!((&wiki["client_id"], &wiki["scope"]), (&json!("wiki"), &json!("openid profile email groups")));
    assert!(wiki["agreed_at"].is_null() && wiki["used_at"].is_string(), "{listed}");
    let exported = [("current_password", PASSWORD)];
    assert_eq!(ada.submit("/account/export", "/account/export", &exported).await.body["apps"], listed);

    // Not by anybody else, and not by another site.
    assert_eq!(delete(&boris, "/account/apps/spa").await.status, 404);
    assert_eq!(boris.submit("/account", REVOKE, &[("client", "wiki")]).await.status, 303);
    assert_eq!(userinfo(&app.url, &of_boris).await.status, 401);
    let forged = ada.post(REVOKE, &[("client", "wiki"), ("csrf_token", "x")]).await;
    assert_eq!(forged.status, 403, "{}", forged.text);
    assert_eq!(
        app.client().post(REVOKE, &[("client", "wiki")]).await.header("location"),
        "/login?next=/account"
    );
    assert_eq!(userinfo(&beside.url, &access).await.status, 200);

    let unused = code(&ada, &[]).await;
    let revoked = ada.submit("/account", REVOKE, &[("client", "wiki")]).await;
    assert_eq!((revoked.status, revoked.header("location")), (303, "/account"));
    let page = ada.get("/account").await.text;
    assert!(page.contains("The application is removed.") && !page.contains(WIKI_ROW), "{page}");
    for url in [&app.url, &beside.url] {
        assert_eq!(userinfo(url, &access).await.status, 401);
        let fields = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
        let refused = call_at(url, "/oauth/token", BY_WIKI, &fields).await;
        assert_eq!((refused.status, &refused.body["error"]), (400, &json!("invalid_grant")));
    }
    assert_eq!(exchange(&app, &unused).await.status, 400);
    // What was agreed to is forgotten.
    assert!(sent(&ada.get(&spa).await)("code").is_some());
    assert_eq!(delete(&ada, "/account/apps/spa").await.status, 204);
    assert_eq!(ada.get(&spa).await.status, 200, "it asks again");
    assert_eq!(delete(&ada, "/account/apps/spa").await.problem(), "not-found");
    assert_eq!(ada.get("/api/v1/account/apps").await.body, json!({ "apps": [] }));
    assert!(!ada.get("/account").await.text.contains("Applications that know your account"));
    assert_eq!(exchange(&app, &code(&ada, &[]).await).await.status, 200, "it may be used anew");
}

/// As many grants as a client may have, while it refreshes and its owner signs out.
async fn what_ends_a_client_waits_for_nobody(store: Store) {
    let app = start(on(store)).await;
    for round in 0..5 {
        let (browser, access, token) = granted(&app, &format!("ada-{round}")).await;
        for _ in 0..10 {
            exchange(&app, &code(&browser, &[]).await).await;
        }
        let csrf = browser.get("/account").await.csrf_token();
        let refreshes = join_all((0..8).map(|_| refresh(&app, &token)));
        let ends = join_all((0..4).map(|_| delete(&browser, "/account/apps/wiki")));
        let fields = [("csrf_token", &*csrf)];
        let (out, ends, answers) = tokio::join!(browser.post("/logout", &fields), ends, refreshes);
        assert_eq!(out.status, 303, "{}", out.text);
        assert!(ends.iter().all(|answer| [204, 401, 404].contains(&answer.status)));
        assert!(answers.iter().all(|answer| [200, 400].contains(&answer.status)));
        assert_eq!(refresh(&app, &token).await.status, 400);
        assert_eq!(userinfo(&app.url, &access).await.status, 401);
    }
}

async fn the_grace_begins_for_who_only_refreshes(store: Store) {
    let app = start(on(store)).await;
    let (_, _, token) = granted(&app, "ada").await;
    let strict = app
        .beside(
            on(store)
                .set("server.public_url", &app.url)
                .file(&format!("{}\n[factors]\nrequire = ['everyone']\ngrace = '1h'", clients())),
        )
        .await;
    let next = async |token: &str| {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        call_at(&strict.url, "/oauth/token", BY_WIKI, &fields).await
    };
    let (_, token) = tokens(&next(&token).await);
    app.advance(Duration::from_secs(3_599));
    let (_, token) = tokens(&next(&token).await);
    app.advance(Duration::from_secs(1));
    let refused = next(&token).await;
    assert_eq!((refused.status, &refused.body["error"]), (400, &json!("invalid_grant")), "{}", refused.text);
}

#[tokio::test]
async fn a_client_names_who_it_expects_and_nobody_learns_who_there_is() {
    let app = start(on(Store::Memory)).await;
    app.register("ada").await;
    let (visitor, long) = (app.client(), "a".repeat(65));
    let shown = async |browser: &Client, hint: &str| {
        let led = browser.get(&request(&[("login_hint", hint), ("prompt", "select_account")])).await;
        browser.get(led.header("location")).await
    };
    let field = |page: &Answer| {
        let (_, field) = page.text.split_once("<input id=\"login\"").expect("a field for the name");
        field.split('>').next().unwrap().to_owned()
    };
    for (hint, name) in [
        ("ada", "ada"),
        ("nobody", "nobody"),
        ("ＡＤＡ", "ada"),
        ("猫", "猫"),
        ("", ""),
        (&*long, ""),
        ("\"><script>alert(1)</script>", "&#34;&#62;&#60;script&#62;alert(1)&#60;/script&#62;"),
        ("ada\u{202e}nimda", ""),
        ("a\u{0}b", ""),
        ("Ada@example.com", "ada@example.com"),
        ("ada@b@example.com", ""),
        ("+8613800138000", ""),
    ] {
        let page = shown(&visitor, hint).await;
        assert_eq!(page.status, 200, "{hint:?}");
        let shown = field(&page);
        assert!(shown.contains(&format!("value=\"{name}\"")), "{hint:?}: {shown}");
    }
    let same = |page: Answer, name: &str| {
        let csrf = page.csrf_token();
        page.text.replace(&csrf, "").replace(name, "")
    };
    app.register("quixada").await;
    let (there, nobody) = (shown(&visitor, "quixada").await, shown(&visitor, "quixevo").await);
    assert_eq!(same(there, "quixada"), same(nobody, "quixevo"), "both pages are the same");

    // Somebody else is signed in, and proves that it is they.
    let boris = browser(&app, "boris").await;
    app.advance(Duration::from_secs(10));
    let led = boris.get(&request(&[("login_hint", "ada"), ("prompt", "login")])).await;
    assert_eq!(way(&led).0, "/confirm");
    let page = boris.get(led.header("location")).await.text;
    assert!(page.contains("value=\"boris\"") && !page.contains("value=\"ada\""), "{page}");
}

#[tokio::test]
async fn a_client_asks_for_the_language_of_the_sign_in_and_its_user_has_the_last_word() {
    let app = start(on(Store::Memory)).await;
    app.register("ada").await;
    for (asked, language) in [
        ("zh-CN", "zh-CN"),
        ("fr zh-Hans en", "zh-CN"),
        ("zh", "zh-CN"),
        ("en-GB zh", "en"),
        ("fr", "en"),
        ("", "en"),
    ] {
        let visitor = app.client();
        let led = visitor.get(&request(&[("ui_locales", asked)])).await;
        assert!(!led.header("location").contains("ui_locales"), "{}", led.header("location"));
        let page = visitor.get(led.header("location")).await;
        assert_eq!(page.header("content-language"), language, "{asked}");
    }
    let visitor = app.client();
    let spa = [("client_id", "spa"), ("redirect_uri", SPA), ("ui_locales", "zh-Hans")];
    let led = visitor.get(&request(&spa)).await;
    let (_, next) = way(&led);
    // On the page of the sign-in they choose another.
    let page = visitor.get(&format!("{}&lang=en", led.header("location"))).await;
    assert_eq!(page.header("content-language"), "en");
    let fields = [("login", "ada"), ("password", PASSWORD), ("next", &*next)];
    assert_eq!(visitor.submit("/login", "/login", &fields).await.header("location"), next);
    let consent = go_on(&visitor, &next).await;
    assert_eq!((consent.status, consent.header("content-language")), (200, "en"));
    let consent = visitor.get(&request(&spa)).await;
    assert_eq!((consent.status, consent.header("content-language")), (200, "zh-CN"));
    let consent = visitor.get(&format!("{}&lang=en", request(&spa))).await;
    assert_eq!(consent.header("content-language"), "en");
    // Where nothing is shown, nothing changes.
    let answer = visitor.get(&request(&[("ui_locales", "zh-CN")])).await;
    assert!(sent(&answer)("code").is_some() && answer.cookie("gh_lang").is_none());
    let described = visitor.get("/.well-known/openid-configuration").await.body;
    assert_eq!(described["ui_locales_supported"], json!(["en", "zh-CN"]));
}

/// Sets an app up by the forms of the page. The page that shows its recovery codes.
async fn set_up_by_forms(app: &TestApp, browser: &Client, page: &str, next: &str) -> Answer {
    let act = async |fields: &[(&str, &str)]| {
        browser.submit(page, "/account/factors", &[fields, &[("next", next)]].concat()).await
    };
    let shown = browser.get(page).await;
    assert!(
        shown.hidden("next").is_some_and(|kept| kept.replace("&#38;", "&").replace("&amp;", "&") == next)
    );
    let confirmed = act(&[("act", "confirm"), ("current_password", PASSWORD)]).await;
    assert_eq!(way(&confirmed), ("/account/factors".to_owned(), next.to_owned()));
    assert_eq!(way(&act(&[("act", "propose-totp")]).await), ("/account/factors".to_owned(), next.to_owned()));
    let shown = browser.get(page).await;
    let (_, secret) = shown.text.split_once("<code class=\"secret\">").expect("the key, to type");
    let secret = secret.split('<').next().unwrap().replace(' ', "");
    act(&[("act", "use-totp"), ("code", &totp(app, &secret))]).await
}

#[tokio::test]
async fn who_has_to_set_a_factor_up_is_led_back_to_the_client() {
    // By the policy, whose time has passed; or by the client.
    let strict = format!("[factors]\nrequire = ['everyone']\ngrace = '0s'\n{}", clients());
    let by_client = clients().replacen("who = ['everyone']", "who = ['everyone']\nfactor = 'second'", 1);
    for toml in [strict, by_client] {
        let app = start(TestApp::on(Store::Memory).file(&toml)).await;
        app.register("ada").await;
        let visitor = app.client();
        let led = visitor.get(&request(&[])).await;
        let (page, next) = way(&led);
        assert_eq!(page, "/login");
        let fields = [("login", "ada"), ("password", PASSWORD), ("next", &*next)];
        assert_eq!(visitor.submit(led.header("location"), "/login", &fields).await.header("location"), next);
        app.advance(Duration::from_secs(16 * 60));
        let led = go_on(&visitor, &next).await;
        let (page, next) = way(&led);
        assert_eq!(page, "/account/factors");
        let codes = set_up_by_forms(&app, &visitor, led.header("location"), &next).await;
        assert_eq!(codes.status, 201, "{}", codes.text);
        let on = codes.text.replace("&#38;", "&").replace("&amp;", "&");
        assert!(on.contains(&format!("href=\"{next}\"")), "the page with the codes leads on: {on}");
        assert!(sent(&go_on(&visitor, &next).await)("code").is_some());
        // Somebody who comes without a prompt is not led anywhere.
        let silent = app.client();
        silent.register("boris", PASSWORD).await;
        let told = sent(&silent.get(&request(&[("prompt", "none")])).await);
        assert_eq!(told("error").as_deref(), Some("interaction_required"));
    }
}

#[tokio::test]
async fn the_second_step_leads_back_to_the_client() {
    let app = start(on(Store::Memory)).await;
    let owner = browser(&app, "ada").await;
    let (secret, _) = set_up(&app, &owner).await;
    let visitor = app.client();
    let led = visitor.get(&request(&[])).await;
    let (_, next) = way(&led);
    let fields = [("login", "ada"), ("password", PASSWORD), ("next", &*next)];
    let half = visitor.submit(led.header("location"), "/login", &fields).await;
    assert_eq!(half.header("location"), "/login/factor");
    app.advance(Duration::from_secs(30));
    let right = visitor.submit("/login/factor", "/login/factor", &[("code", &totp(&app, &secret))]).await;
    assert_eq!(right.header("location"), next, "{}", right.text);
    assert!(sent(&go_on(&visitor, &next).await)("code").is_some());
}

#[tokio::test]
async fn a_request_that_is_too_long_to_carry_gets_a_page_that_says_what_helps() {
    let app = start(on(Store::Memory)).await;
    app.register("ada").await;
    let visitor = app.client();
    // All of the state that a client may have is carried.
    let state = "s".repeat(2_048);
    let led = visitor.get(&request(&[("state", &state)])).await;
    let (_, next) = way(&led);
    let fields = [("login", "ada"), ("password", PASSWORD), ("next", &*next)];
    assert_eq!(visitor.submit("/login", "/login", &fields).await.header("location"), next);
    assert_eq!(sent(&go_on(&visitor, &next).await)("state"), Some(state));

    let hint = "x".repeat(4_096);
    let long = [("login_hint", &*hint)];
    let stranger = app.client();
    let page = stranger.get(&request(&long)).await;
    assert_eq!((page.status, page.header("location")), (400, ""));
    assert!(page.text.contains("more than a sign-in can carry along"), "{}", page.text);
    let silent = sent(&stranger.get(&request(&[long[0], ("prompt", "none")])).await);
    assert_eq!(silent("error").as_deref(), Some("login_required"));
    // As the page says: who is signed in gets there.
    assert!(sent(&visitor.get(&request(&long)).await)("code").is_some());
}
