//! Who is asked for a second factor, who has to set one up, and which browsers are trusted.

use gatehouse::accounts::{AccountAct, Groups, Username};

use super::*;
use crate::support::app::{Store, on_both_stores};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PHONE: &str = "+8613800138000";
const NEW: &str = "another horse battery staple";

on_both_stores! {
    the_owner_turns_the_question_off_and_keeps_the_factors,
    every_route_that_makes_a_session_obeys_every_policy,
    past_the_grace_a_session_opens_nothing_but_the_setup,
    the_grace_begins_at_the_first_sign_in_and_a_factor_frees_at_once,
    a_trusted_browser_is_not_asked_until_the_password_changes,
    trust_is_of_one_browser_and_ends_where_its_owner_says,
}

async fn under(store: Store, factors: &str) -> TestApp {
    TestApp::with(store, &format!("[factors]\n{factors}")).await
}

async fn the_owner_turns_the_question_off_and_keeps_the_factors(store: Store) {
    let app = TestApp::start(store).await;
    let without = app.client();
    without.register("bob", PASSWORD).await;
    let refused = put(&without, "/factors", json!({ "ask": true })).await;
    assert_eq!((refused.status, refused.problem()), (422, "invalid-input"), "{}", refused.text);
    let owner = owner(&app, "alice").await;
    first_step(&app.client(), "alice").await;
    app.advance(Duration::from_secs(16 * 60));
    let refused = put(&owner.browser, "/factors", json!({ "ask": false })).await;
    assert_eq!(refused.problem(), "step-up-required");
    let code = totp(&app, &owner.secret);
    assert_eq!(owner.browser.call("/confirm", json!({ "totp": code })).await.status, 204);
    assert_eq!(put(&owner.browser, "/factors", json!({ "ask": false })).await.status, 204);
    let other = app.client();
    assert_eq!(other.login("alice", PASSWORD).await.status, 200);
    let shown = other.get("/api/v1/factors").await.body;
    assert_eq!((&shown["methods"], &shown["ask"]), (&json!(["totp", "recovery"]), &json!(false)));
    // The password alone changes nothing of them.
    let by_password = other.call("/confirm", json!({ "password": PASSWORD })).await;
    assert_eq!(by_password.problem(), "step-up-required");
    assert_eq!(delete(&other, "/totp").await.problem(), "step-up-required");
    app.advance(Duration::from_secs(1));
    let on = owner.browser.submit("/account/factors", "/account/factors/policy", &[("act", "ask")]).await;
    assert_eq!((on.status, on.header("location")), (303, "/account/factors"));
    first_step(&app.client(), "alice").await;
    assert!(is_signed_in(&other).await, "what was open before goes on");
}

/// What an account and a browser are, beside the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    NoFactor,
    SwitchOff,
    SwitchOn,
    RequiredWithFactor,
    RequiredInGrace,
    RequiredPastGrace,
    Trusted,
}

/// What a sign-in leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leads {
    In,
    ToSecondStep,
    ToSetup,
}

impl Case {
    const ALL: [Self; 7] = [
        Self::NoFactor,
        Self::SwitchOff,
        Self::SwitchOn,
        Self::RequiredWithFactor,
        Self::RequiredInGrace,
        Self::RequiredPastGrace,
        Self::Trusted,
    ];

    fn leads(self) -> Leads {
        match self {
            Self::NoFactor | Self::SwitchOff | Self::RequiredInGrace | Self::Trusted => Leads::In,
            Self::SwitchOn | Self::RequiredWithFactor => Leads::ToSecondStep,
            Self::RequiredPastGrace => Leads::ToSetup,
        }
    }

    /// An account with a number, and a browser in which nobody is signed in.
    async fn prepare(self, store: Store) -> (TestApp, Client) {
        let required = match self {
            Self::RequiredWithFactor | Self::RequiredInGrace | Self::RequiredPastGrace => "'everyone'",
            _ => "",
        };
        let app = under(store, &format!("require = [{required}]\ngrace = '2d'")).await;
        let owner = app.client();
        let code = owner.code(PHONE, "register").await;
        let body = json!({ "login": "alice", "password": PASSWORD, "phone": PHONE, "code": code });
        assert_eq!(owner.call("/register", body).await.status, 201);
        assert!(is_signed_in(&owner).await);
        let browser = app.client();
        if matches!(self, Self::SwitchOff | Self::SwitchOn | Self::RequiredWithFactor | Self::Trusted) {
            let (secret, _) = set_up(&app, &owner).await;
            if matches!(self, Self::SwitchOff | Self::RequiredWithFactor) {
                assert_eq!(put(&owner, "/factors", json!({ "ask": false })).await.status, 204);
            }
            if self == Self::Trusted {
                first_step(&browser, "alice").await;
                let code = totp(&app, &secret);
                let trusted = browser.call("/login/factor", json!({ "totp": code, "trust": true })).await;
                assert_eq!(trusted.status, 200, "{}", trusted.text);
                assert_eq!(browser.call("/logout", json!({})).await.status, 204);
            }
        }
        // Past the grace, and past the limit on messages to one number.
        app.advance(if self == Self::RequiredPastGrace { DAY * 2 } else { DAY });
        (app, browser)
    }
}

async fn reached(browser: &Client, answer: &Answer) -> Leads {
    let step = match (answer.status, answer.header("location"), answer.problem()) {
        (403, _, "factor-required") | (303, "/login/factor", _) => Some(Leads::ToSecondStep),
        _ => None,
    };
    let session = browser.get("/api/v1/session").await;
    let page = browser.get("/account").await;
    match (step, session.status, page.status) {
        (Some(step), 401, 303) => step,
        (None, 200, 200) => Leads::In,
        (None, 403, 303) => {
            assert_eq!(session.problem(), "factor-setup-required");
            assert_eq!(page.header("location"), "/account/factors");
            Leads::ToSetup
        }
        other => panic!("{other:?} after {}: {}", answer.status, answer.text),
    }
}

async fn every_route_that_makes_a_session_obeys_every_policy(store: Store) {
    for case in Case::ALL {
        let (app, browser) = case.prepare(store).await;
        let leads = case.leads();
        let again = async || assert_eq!(browser.call("/logout", json!({})).await.status, 204);
        let call = browser.login("alice", PASSWORD).await;
        assert_eq!(reached(&browser, &call).await, leads, "{case:?}: POST /api/v1/login");
        again().await;
        let fields = [("login", "alice"), ("password", PASSWORD)];
        let page = browser.submit("/login", "/login", &fields).await;
        assert_eq!(reached(&browser, &page).await, leads, "{case:?}: /login");
        again().await;
        let code = browser.code(PHONE, "login").await;
        let by_code = browser.call("/sms/login", json!({ "phone": PHONE, "code": code })).await;
        assert_eq!(reached(&browser, &by_code).await, leads, "{case:?}: POST /api/v1/sms/login");
        again().await;
        app.advance(Duration::from_secs(60));
        // A number that is stolen is not enough where there is a factor to ask for, in whatever browser.
        let code = browser.code(PHONE, "reset").await;
        let reset = json!({ "phone": PHONE, "code": code, "new_password": NEW });
        let reset = browser.call("/password/reset", reset).await;
        let asked = leads == Leads::ToSecondStep || matches!(case, Case::Trusted | Case::SwitchOff);
        assert_eq!(reset.problem(), if asked { "factor-required" } else { "" }, "{case:?}: reset");
        assert!(!is_signed_in(&browser).await);
        let password = if asked { PASSWORD } else { NEW };
        let call = app.client().login("alice", password).await;
        let stranger = if case == Case::Trusted { Leads::ToSecondStep } else { leads };
        assert_eq!(
            call.problem() == "factor-required",
            stranger == Leads::ToSecondStep,
            "{case:?}: elsewhere"
        );
        // A new account has all of its time.
        let fresh = app.client();
        let made = fresh.register("bob", PASSWORD).await;
        assert_eq!(reached(&fresh, &made).await, Leads::In, "{case:?}: registration");
    }
}

/// What anybody may open, signed in or not, and what sets a factor up. Everything else is shut.
const OPEN: [&str; 15] = [
    "/account/factors",
    "/confirm",
    "/api/v1/confirm",
    "/api/v1/factors",
    "/api/v1/totp",
    "/api/v1/passkeys",
    "/logout",
    "/api/v1/logout",
    "/oauth/logout",
    "/login",
    "/register",
    "/password/reset",
    "/captcha",
    "/static",
    // The first request has the first key made.
    "/oauth/keys",
];

async fn past_the_grace_a_session_opens_nothing_but_the_setup(store: Store) {
    let app = under(store, "require = ['admins']\ngrace = '0s'").await;
    let admin = app.client();
    admin.register("alice", PASSWORD).await;
    let alice = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(alice.id, AccountAct::MakeAdmin, false).await.unwrap();
    assert_eq!(admin.login("alice", PASSWORD).await.status, 200);
    let mut shut = 0;
    for (method, path) in crate::support::routes::table() {
        if method == "HEAD" || OPEN.iter().any(|open| path.starts_with(open)) {
            continue;
        }
        let filled = path.replace("{id}", &alice.id.to_string());
        let filled =
            filled.split(['{', '}']).enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "x" });
        let url = format!("{}{}", admin.url, filled.collect::<String>());
        let request = admin.http.request(method.parse().unwrap(), &url).header("origin", &admin.url);
        let request =
            if path.starts_with("/api/") { request.json(&json!({})) } else { request.form(&[("act", "")]) };
        let nobody = app.client();
        let as_nobody = nobody.http.request(method.parse().unwrap(), &url).header("origin", &admin.url);
        let as_nobody = if path.starts_with("/api/") {
            as_nobody.json(&json!({}))
        } else {
            as_nobody.form(&[("act", "")])
        };
        let (answer, without) = (
            Answer::read(request.send().await.unwrap()).await,
            Answer::read(as_nobody.send().await.unwrap()).await,
        );
        let told = (answer.status == 403 && answer.problem() == "factor-setup-required")
            || (answer.status == 303 && answer.header("location") == "/account/factors");
        // Where nobody gets in, this session is told why it does not either; elsewhere it is nobody.
        let closed = without.status == 401 && without.problem() == "unauthenticated"
            || without.status == 303 && without.header("location").starts_with("/login");
        if closed {
            assert!(told, "{method} {path}: {} {}", answer.status, answer.text);
            shut += 1;
        } else {
            assert!(
                told || answer.status == without.status,
                "{method} {path}: {} {}",
                answer.status,
                without.status
            );
        }
    }
    assert!(shut > 60, "{shut} of the routes need somebody signed in");
    let page = admin.get("/account/factors").await;
    assert!(page.status == 200 && page.text.contains("the time to set one up has passed"), "{}", page.text);
    assert_eq!(admin.get("/login?next=/admin").await.header("location"), "/account/factors");
    let (secret, _) = set_up(&app, &admin).await;
    assert_eq!(admin.get("/admin").await.status, 200, "with {secret} at once");
}

async fn the_grace_begins_at_the_first_sign_in_and_a_factor_frees_at_once(store: Store) {
    let app = under(store, "require = ['group:staff']\ngrace = '7d'").await;
    let (alice, bob) = (app.client(), app.client());
    alice.register("alice", PASSWORD).await;
    bob.register("bob", PASSWORD).await;
    let id = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap().id;
    let groups = async |names: &[&str]| {
        let groups = Groups::parse(names.iter().copied()).unwrap();
        app.services.accounts.change_groups(id, false, |_| groups).await.unwrap();
    };
    groups(&["others", "staff"]).await;
    app.advance(DAY * 6);
    let setup = async || {
        alice.login("alice", PASSWORD).await;
        alice.get("/api/v1/factors").await
    };
    let first = setup().await;
    assert_eq!(first.body["required"], true, "{}", first.text);
    let by = first.body["setup_by"].as_str().unwrap().to_owned();
    for page in ["/account", "/account/factors"] {
        let page = alice.get(page).await;
        assert!(page.status == 200 && page.text.contains(&by), "{by}: {}", page.text);
    }
    app.advance(DAY * 7 - Duration::from_secs(1));
    assert_eq!(setup().await.body["setup_by"], by.as_str(), "it does not begin anew");
    app.advance(Duration::from_secs(1));
    let late = setup().await;
    assert_eq!((late.status, &late.body["setup_by"]), (200, &json!(by)));
    assert_eq!(alice.get("/api/v1/session").await.problem(), "factor-setup-required");
    bob.login("bob", PASSWORD).await;
    assert!(is_signed_in(&bob).await, "bob is nobody of the staff");
    set_up(&app, &alice).await;
    assert!(is_signed_in(&alice).await);
    assert_eq!(delete(&alice, "/totp").await.status, 204);
    assert!(!is_signed_in(&alice).await, "a factor that comes and goes does not begin it anew");
    groups(&["others"]).await;
    assert!(is_signed_in(&alice).await);
    groups(&["staff"]).await;
    assert!(is_signed_in(&alice).await, "somebody who comes back has all of the time");
}

async fn a_trusted_browser_is_not_asked_until_the_password_changes(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let trusting = async |browser: &Client| {
        first_step(browser, "alice").await;
        let body = json!({ "totp": totp(&app, &owner.secret), "trust": true });
        let answer = browser.call("/login/factor", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        app.advance(STEP);
    };
    let browser = app.client();
    trusting(&browser).await;
    assert_eq!(browser.login("alice", PASSWORD).await.status, 200);
    // It has proved nothing: what asks for a factor still does.
    let refused = delete(&browser, "/totp").await;
    assert_eq!(
        (refused.problem(), &refused.body["methods"]),
        ("step-up-required", &json!(["totp", "recovery"]))
    );
    app.advance(DAY * 29);
    assert_eq!(browser.login("alice", PASSWORD).await.status, 200);
    app.advance(DAY);
    first_step(&browser, "alice").await;
    trusting(&browser).await;
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    let changed = browser.submit("/account", "/account/password", &fields).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    let again = browser.login("alice", NEW).await;
    assert_eq!(again.problem(), "factor-required", "{}", again.text);
    let other = app.client();
    assert_eq!(other.login("alice", NEW).await.problem(), "factor-required");
}

async fn trust_is_of_one_browser_and_ends_where_its_owner_says(store: Store) {
    let app = under(store, "trust_device = '10d'").await;
    let owner = owner(&app, "alice").await;
    let browser = app.client();
    let page = browser.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await;
    assert_eq!(page.header("location"), "/login/factor");
    assert!(browser.get("/login/factor").await.text.contains("Do not ask in this browser for 10 days"));
    let fields = [("code", totp(&app, &owner.secret)), ("trust", "on".to_owned())];
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let done = browser.submit("/login/factor", "/login/factor", &fields).await;
    assert_eq!((done.status, done.header("location")), (303, "/account"), "{}", done.text);
    app.advance(STEP);
    assert_eq!(browser.login("alice", PASSWORD).await.status, 200);
    first_step(&app.client(), "alice").await;
    first_step(&app.client(), "alice").await;
    let listed = owner.browser.get("/api/v1/factors").await.body["trusted"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let shown = owner.browser.get("/account/factors").await;
    assert!(shown.text.contains("Trusted browsers"), "{}", shown.text);
    let device = listed[0]["device"].as_str().unwrap();
    let act = [("act", "distrust"), ("device", device)];
    let ended = owner.browser.submit("/account/factors", "/account/factors/policy", &act).await;
    assert_eq!(ended.status, 303, "{}", ended.text);
    first_step(&browser, "alice").await;
    // Without any trust in the configuration the box is not there, and what there was does not count.
    let code = totp(&app, &owner.secret);
    let trusted = browser.call("/login/factor", json!({ "totp": code, "trust": true })).await;
    assert_eq!(trusted.status, 200, "{}", trusted.text);
    app.advance(STEP);
    let strict = app.beside(TestApp::on(store).file("[factors]\ntrust_device = '0s'")).await;
    let there = Client { url: strict.url.clone(), ..browser.clone() };
    first_step(&there, "alice").await;
    assert!(!there.get("/login/factor").await.text.contains("Do not ask in this browser"));
    assert_eq!(browser.login("alice", PASSWORD).await.status, 200);
}
