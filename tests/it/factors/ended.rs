//! What a factor has proved ends with it: every way in which one ends, at everything that believes it.

use gatehouse::accounts::{AccountAct, AccountId, DeviceId, Username};
use gatehouse::db::Db;
use serde_json::Value;
use sqlx::{AssertSqlSafe, query};

use super::*;
use crate::gate::Visitor;
use crate::oidc::{SECRET, VERIFIER, call, claims, request, secret_file, sent, start, userinfo};
use crate::support::app::{Store, on_both_stores};
use crate::support::authenticator::Credential;

on_both_stores! {
    what_a_factor_has_proved_ends_with_it_wherever_it_is_believed,
    a_session_that_a_passkey_alone_began_ends_with_it,
    the_session_whose_owner_removes_its_passkey_goes_on_unproved,
    what_other_factors_have_proved_goes_on,
    what_an_older_instance_noted_ends_with_any_factor,
    a_step_up_by_a_weaker_factor_takes_nothing_from_a_session,
}

/// Applications that ask for a second factor, for a passkey, and for nothing.
async fn apps(store: Store) -> TestApp {
    let app = |name: &str, factor: &str| {
        let (secret, host) = (secret_file(), format!("{name}.example"));
        format!(
            "[[apps]]\nname = '{name}'\nhosts = ['{host}']\nwho = ['everyone']\nfactor = '{factor}'
            [apps.oidc]\nsecret = 'file:{secret}'\nredirect_uris = ['https://{host}/callback']\n"
        )
    };
    let file = [app("second", "second"), app("passkey", "passkey"), app("none", "none")].concat();
    start(TestApp::on(store).at_localhost().behind_a_proxy().file(&file)).await
}

async fn run(app: &TestApp, sql: String) {
    let sql = AssertSqlSafe(sql);
    match &Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => drop(query(sql).execute(pools.reachable().unwrap()).await.unwrap()),
        Db::Postgres(pools) => drop(query(sql).execute(pools.reachable().unwrap()).await.unwrap()),
    }
}

/// An administrator with an app, two passkeys and recovery codes, and what a thief has of them.
struct Stolen<'a> {
    app: &'a TestApp,
    login: String,
    id: AccountId,
    owner: Client,
    secret: String,
    recovery: Vec<String>,
    passkey: Credential,
    passkey_id: String,
    other: Credential,
}

impl<'a> Stolen<'a> {
    async fn new(app: &'a TestApp, login: &str) -> Self {
        app.administrator(login).await;
        let id = app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap().id;
        let owner = app.client();
        assert_eq!(owner.login(login, PASSWORD).await.status, 200);
        let (secret, recovery) = set_up(app, &owner).await;
        let (passkey, added) = owner.add_passkey("Lost").await;
        let passkey_id = added.body["passkey"]["id"].as_str().unwrap().to_owned();
        let (other, _) = owner.add_passkey("Kept").await;
        Self { app, login: login.to_owned(), id, owner, secret, recovery, passkey, passkey_id, other }
    }

    /// Signs in by the password and a factor, in a browser that is trusted from then on.
    async fn sign_in(&mut self, method: &str) -> (Client, Answer) {
        let browser = self.app.client();
        first_step(&browser, &self.login).await;
        let mut shown = self.shown(&browser, "second-step", method).await;
        shown["trust"] = json!(true);
        let answer = browser.call("/login/factor", shown).await;
        assert_eq!(answer.status, 200, "{method}: {}", answer.text);
        (browser, answer)
    }

    async fn shown(&mut self, browser: &Client, purpose: &str, method: &str) -> Value {
        match method {
            "totp" => {
                self.app.advance(STEP);
                json!({ "totp": totp(self.app, &self.secret) })
            }
            "recovery" => json!({ "recovery": self.recovery.remove(0) }),
            _ => json!({ "passkey": browser.assert_passkey(purpose, &self.passkey).await }),
        }
    }
}

/// A way in which a factor ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    AppRemoved,
    AppRemovedOnThePage,
    AppReplaced,
    AppReplacedOnThePage,
    PasskeyRemoved,
    PasskeyRemovedOnThePage,
    CodesRenewed,
    CodesRenewedOnThePage,
    CodesOfANewApp,
    CodesOfANewPasskey,
    AllCleared,
    AccountDeleted,
}

impl Ending {
    const ALL: [Self; 12] = [
        Self::AppRemoved,
        Self::AppRemovedOnThePage,
        Self::AppReplaced,
        Self::AppReplacedOnThePage,
        Self::PasskeyRemoved,
        Self::PasskeyRemovedOnThePage,
        Self::CodesRenewed,
        Self::CodesRenewedOnThePage,
        Self::CodesOfANewApp,
        Self::CodesOfANewPasskey,
        Self::AllCleared,
        Self::AccountDeleted,
    ];

    fn of(self) -> &'static str {
        match self {
            Self::AppRemoved | Self::AppRemovedOnThePage | Self::AppReplaced | Self::AppReplacedOnThePage => {
                "totp"
            }
            Self::PasskeyRemoved
            | Self::PasskeyRemovedOnThePage
            | Self::AllCleared
            | Self::AccountDeleted => "passkey",
            Self::CodesRenewed
            | Self::CodesRenewedOnThePage
            | Self::CodesOfANewApp
            | Self::CodesOfANewPasskey => "recovery",
        }
    }

    async fn happen(self, stolen: &Stolen<'_>) {
        const PAGE: &str = "/account/factors";
        let Stolen { app, owner, id, passkey_id, .. } = stolen;
        let submit = async |fields: &[(&str, &str)]| owner.submit(PAGE, PAGE, fields).await.status;
        match self {
            Self::AppRemoved => assert_eq!(delete(owner, "/totp").await.status, 204),
            Self::AppRemovedOnThePage => assert_eq!(submit(&[("act", "remove-totp")]).await, 303),
            Self::AppReplaced | Self::CodesOfANewApp => drop(set_up(app, owner).await),
            Self::AppReplacedOnThePage => {
                let proposed = owner.call("/totp", json!({})).await;
                let code = totp(app, proposed.body["secret"].as_str().unwrap());
                assert_eq!(submit(&[("act", "use-totp"), ("code", &code)]).await, 201);
            }
            Self::PasskeyRemoved => {
                assert_eq!(delete(owner, &format!("/passkeys/{passkey_id}")).await.status, 204);
            }
            Self::PasskeyRemovedOnThePage => {
                let fields = [("act", "remove-passkey"), ("passkey_id", passkey_id.as_str())];
                assert_eq!(submit(&fields).await, 303);
            }
            Self::CodesRenewed => assert_eq!(owner.call("/recovery-codes", json!({})).await.status, 200),
            Self::CodesRenewedOnThePage => assert_eq!(submit(&[("act", "renew-codes")]).await, 201),
            Self::CodesOfANewPasskey => {
                let sql = "UPDATE recovery_codes SET used_at = 1 WHERE used_at IS NULL AND account = ";
                run(app, format!("{sql}'{id}'")).await;
                let (_, added) = owner.add_passkey("Another").await;
                assert!(added.body["recovery_codes"].is_array(), "{}", added.text);
            }
            Self::AllCleared => {
                let boss = app.sign_in_admin("boss").await;
                let path = format!("/api/v1/admin/accounts/{id}/factors");
                assert_eq!(boss.delete(&path, json!({ "reason": "lost" })).await.status, 204);
            }
            Self::AccountDeleted => {
                let changed = app.services.accounts.change(*id, AccountAct::Delete, false).await.unwrap();
                assert_eq!(changed, gatehouse::accounts::AccountChange::Done);
            }
        }
    }
}

/// What a client of an application has of somebody.
struct Granted {
    client: &'static str,
    access: String,
    refresh: String,
}

impl Granted {
    async fn token(app: &TestApp, client: &'static str, fields: &[(&str, &str)]) -> Option<(Self, Value)> {
        let answer = call(app, "/oauth/token", Some((client, SECRET)), fields).await;
        let text = |name: &str| answer.body[name].as_str().map(str::to_owned);
        let granted = Self { client, access: text("access_token")?, refresh: text("refresh_token")? };
        Some((granted, claims(&text("id_token")?)))
    }

    async fn by_code(app: &TestApp, client: &'static str, code: &str) -> Option<(Self, Value)> {
        let uri = format!("https://{client}.example/callback");
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &uri),
            ("code_verifier", VERIFIER),
        ];
        Self::token(app, client, &fields).await
    }

    /// What its next ID token tells.
    async fn refreshed(&mut self, app: &TestApp) -> Option<Value> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", &*self.refresh)];
        let (next, told) = Self::token(app, self.client, &fields).await?;
        *self = next;
        Some(told)
    }
}

async fn code(browser: &Client, client: &str) -> Option<String> {
    let uri = format!("https://{client}.example/callback");
    let answer = browser.get(&request(&[("client_id", client), ("redirect_uri", &uri)])).await;
    let told = answer.header("location").starts_with("https://").then(|| sent(&answer)("code"));
    told.flatten()
}

/// Somebody's session at the host of an application.
async fn visitor(app: &TestApp, host: &str, signed_in: &Answer) -> (Visitor, String) {
    let (mut visitor, page) = (Visitor::of(app), format!("http://{host}.example/"));
    let session = signed_in.cookie("gh_session").unwrap().split([';', '=']).nth(1).unwrap();
    visitor.set_cookie("", "gh_session", session);
    let first = visitor.ask("GET", &page).await;
    visitor.follow(first.header("location")).await;
    (visitor, page)
}

/// Everything that believes a factor, in the hands of somebody who has proved one.
struct Believers<'a> {
    app: &'a TestApp,
    account: AccountId,
    browser: Client,
    trusted: Client,
    device: DeviceId,
    visitor: (Visitor, String),
    client: &'static str,
    code: String,
    granted: Granted,
    plain: Granted,
}

impl<'a> Believers<'a> {
    async fn of(stolen: &mut Stolen<'a>, method: &str) -> Self {
        let client = if method == "passkey" { "passkey" } else { "second" };
        let (app, login) = (stolen.app, stolen.login.clone());
        let (trusted, _) = stolen.sign_in(method).await;
        let listed = trusted.get("/api/v1/factors").await.body["trusted"].clone();
        let device = DeviceId::parse(listed[0]["device"].as_str().unwrap()).unwrap();
        assert_eq!(trusted.call("/logout", json!({})).await.status, 204);
        let (browser, signed_in) = stolen.sign_in(method).await;
        let granted = code(&browser, client).await.expect("a code");
        let (granted, told) = Granted::by_code(app, client, &granted).await.expect("tokens");
        assert_eq!(told["acr"], client, "{login}");
        let plain = code(&browser, "none").await.expect("a code");
        let (plain, _) = Granted::by_code(app, "none", &plain).await.expect("tokens");
        let visitor = visitor(app, client, &signed_in).await;
        let code = code(&browser, client).await.expect("a code");
        Self { app, account: stolen.id, browser, trusted, device, visitor, client, code, granted, plain }
    }

    /// Those that do now.
    async fn believing(&mut self, login: &str) -> Vec<&'static str> {
        let Self { app, browser, client, .. } = &*self;
        let profile = format!("{}/api/v1/admin/accounts/{}/profile", app.url, self.account);
        let profile = browser.http.put(profile).json(&json!({ "name": "A" }));
        app.services.gate.follow_changes().await.unwrap();
        let by_client = Some((*client, SECRET));
        let known = call(app, "/oauth/introspect", by_client, &[("token", &self.granted.access)]).await;
        let factors = app.services.factor_verifier.factors();
        let mut all = vec![
            ("confirmed", browser.call("/totp", json!({})).await.status == 201),
            ("adds", browser.call("/passkeys/challenge", json!({ "for": "add" })).await.status == 200),
            ("console", profile.send().await.unwrap().status().is_success()),
            ("gate", self.visitor.0.ask("GET", &self.visitor.1).await.status == 200),
            ("userinfo", userinfo(&app.url, &self.granted.access).await.status == 200),
            ("introspection", known.body["active"] == true),
            ("guesses", factors.has_proved(self.account, self.device).await.unwrap()),
            ("trust", self.trusted.login(login, PASSWORD).await.status == 200),
            ("authorization", code(browser, client).await.is_some()),
            ("code", Granted::by_code(app, client, &self.code).await.is_some()),
        ];
        self.trusted.call("/logout", json!({})).await;
        let (app, told) = (*app, self.granted.refreshed(self.app).await);
        all.push(("refresh", told.is_some()));
        let told = self.plain.refreshed(app).await;
        all.push(("acr", told.is_some_and(|told| told["acr"] != "first" || told["amr"] != json!(["pwd"]))));
        all.retain(|(_, believes)| *believes);
        all.into_iter().map(|(name, _)| name).collect()
    }
}

async fn what_a_factor_has_proved_ends_with_it_wherever_it_is_believed(store: Store) {
    const ALL: [&str; 12] = [
        "confirmed",
        "adds",
        "console",
        "gate",
        "userinfo",
        "introspection",
        "guesses",
        "trust",
        "authorization",
        "code",
        "refresh",
        "acr",
    ];
    let app = apps(store).await;
    for (number, ending) in Ending::ALL.into_iter().enumerate() {
        let login = format!("user-{number}");
        let mut stolen = Stolen::new(&app, &login).await;
        let mut believers = Believers::of(&mut stolen, ending.of()).await;
        assert_eq!(believers.believing(&login).await, ALL, "{ending:?}");
        believers.code = code(&believers.browser, believers.client).await.expect("another code");
        ending.happen(&stolen).await;
        // Without a factor nobody is asked for one.
        let left: &[&str] = if ending == Ending::AllCleared { &["trust"] } else { &[] };
        assert_eq!(believers.believing(&login).await, left, "{ending:?}");
        if !matches!(ending, Ending::AllCleared | Ending::AccountDeleted) {
            assert!(is_signed_in(&stolen.owner).await, "{ending:?}");
            assert!(is_signed_in(&believers.browser).await, "{ending:?}: by the password it still is");
            let proposed = stolen.owner.call("/totp", json!({})).await;
            assert_eq!(proposed.status, 201, "the owner has proved others: {}", proposed.text);
        }
    }
}

async fn a_session_that_a_passkey_alone_began_ends_with_it(store: Store) {
    let app = apps(store).await;
    let stolen = Stolen::new(&app, "alice").await;
    let (thief, other) = (app.client(), app.client());
    let signed_in = thief.login_by_passkey(&stolen.passkey).await;
    assert_eq!(other.login_by_passkey(&stolen.other).await.status, 200);
    let granted = code(&thief, "none").await.expect("a code");
    let (mut granted, _) = Granted::by_code(&app, "none", &granted).await.expect("tokens");
    let (visitor, page) = visitor(&app, "none", &signed_in).await;
    assert_eq!(visitor.ask("GET", &page).await.status, 200);
    let shown = thief.assert_passkey("confirm", &stolen.passkey).await;
    assert_eq!(thief.call("/confirm", json!({ "passkey": shown })).await.status, 204);
    Ending::PasskeyRemoved.happen(&stolen).await;
    app.services.gate.follow_changes().await.unwrap();
    assert!(!is_signed_in(&thief).await);
    assert_eq!(visitor.ask("GET", &page).await.status, 302);
    assert!(granted.refreshed(&app).await.is_none());
    assert!(is_signed_in(&other).await && is_signed_in(&stolen.owner).await);
}

async fn the_session_whose_owner_removes_its_passkey_goes_on_unproved(store: Store) {
    let app = apps(store).await;
    let stolen = Stolen::new(&app, "alice").await;
    let owner = app.client();
    assert_eq!(owner.login_by_passkey(&stolen.passkey).await.status, 200);
    assert_eq!(delete(&owner, &format!("/passkeys/{}", stolen.passkey_id)).await.status, 204);
    assert!(is_signed_in(&owner).await);
    let next = owner.call("/totp", json!({})).await;
    assert_eq!(next.problem(), "step-up-required", "{}", next.text);
    let code = code(&owner, "none").await.expect("a code");
    let (_, told) = Granted::by_code(&app, "none", &code).await.expect("tokens");
    assert_eq!((&told["acr"], &told["amr"]), (&json!("first"), &json!([])), "no code was sent, either");
    let shown = owner.assert_passkey("confirm", &stolen.other).await;
    assert_eq!(owner.call("/confirm", json!({ "passkey": shown })).await.status, 204);
    assert_eq!(owner.call("/totp", json!({})).await.status, 201);
}

async fn what_other_factors_have_proved_goes_on(store: Store) {
    let app = apps(store).await;
    let mut stolen = Stolen::new(&app, "alice").await;
    let (browser, _) = stolen.sign_in("totp").await;
    let granted = code(&browser, "second").await.expect("a code");
    let (mut by_app, _) = Granted::by_code(&app, "second", &granted).await.expect("tokens");
    app.advance(Duration::from_secs(60));
    let shown = stolen.shown(&browser, "confirm", "passkey").await;
    assert_eq!(browser.call("/confirm", shown).await.status, 204);
    let granted = code(&browser, "none").await.expect("a code");
    let (mut by_both, told) = Granted::by_code(&app, "none", &granted).await.expect("tokens");
    assert_eq!(
        (&told["acr"], &told["amr"]),
        (&json!("passkey"), &json!(["pwd", "pop", "user", "otp", "mfa"]))
    );
    Ending::CodesRenewed.happen(&stolen).await;
    let later = by_both.refreshed(&app).await.expect("tokens");
    for claim in ["acr", "amr", "auth_time"] {
        assert_eq!(later[claim], told[claim], "{claim} stays");
    }
    Ending::PasskeyRemoved.happen(&stolen).await;
    assert_eq!(browser.call("/totp", json!({})).await.status, 201);
    assert!(by_app.refreshed(&app).await.is_some());
    let later = by_both.refreshed(&app).await.expect("tokens");
    assert_eq!((&later["acr"], &later["amr"]), (&json!("second"), &json!(["pwd", "otp", "mfa"])));
    let seconds = |told: &Value| told["auth_time"].as_i64().unwrap();
    assert_eq!(seconds(&told) - seconds(&later), 60, "when that was proved");
}

async fn what_an_older_instance_noted_ends_with_any_factor(store: Store) {
    let app = apps(store).await;
    let mut stolen = Stolen::new(&app, "alice").await;
    let (trusted, _) = stolen.sign_in("recovery").await;
    assert_eq!(trusted.call("/logout", json!({})).await.status, 204);
    let thief = app.client();
    assert_eq!(thief.login_by_passkey(&stolen.passkey).await.status, 200);
    // As a version wrote it that knew of no credentials.
    for sql in [
        "DELETE FROM factor_proofs",
        "UPDATE session_proofs SET noted_at = NULL, by_passkey = NULL",
        "UPDATE trusted_devices SET method = NULL, credential = NULL",
        "UPDATE factor_devices SET method = NULL, credential = NULL",
    ] {
        run(&app, sql.to_owned()).await;
    }
    assert_eq!(trusted.login("alice", PASSWORD).await.status, 200);
    assert_eq!(trusted.call("/logout", json!({})).await.status, 204);
    for browser in [&thief, &stolen.owner] {
        assert!(code(browser, "passkey").await.is_some());
        assert_eq!(browser.call("/totp", json!({})).await.status, 201);
    }
    let (by_password, _) = stolen.sign_in("passkey").await;
    for sql in ["DELETE FROM factor_proofs", "UPDATE session_proofs SET noted_at = NULL, by_passkey = NULL"] {
        run(&app, sql.to_owned()).await;
    }
    Ending::CodesRenewed.happen(&stolen).await;
    assert!(!is_signed_in(&thief).await, "nothing but a passkey began it, and nobody knows which");
    for browser in [&by_password, &stolen.owner] {
        assert!(is_signed_in(browser).await);
        assert_eq!(browser.call("/totp", json!({})).await.problem(), "step-up-required");
        assert!(code(browser, "passkey").await.is_none());
    }
    assert_eq!(trusted.login("alice", PASSWORD).await.problem(), "factor-required");
}

async fn a_step_up_by_a_weaker_factor_takes_nothing_from_a_session(store: Store) {
    let app = apps(store).await;
    let mut stolen = Stolen::new(&app, "alice").await;
    let browser = app.client();
    let signed_in = browser.login_by_passkey(&stolen.passkey).await;
    let (visitor, page) = visitor(&app, "passkey", &signed_in).await;
    assert_eq!(visitor.ask("GET", &page).await.status, 200);
    app.advance(Duration::from_secs(16 * 60));
    assert_eq!(browser.call("/totp", json!({})).await.problem(), "step-up-required");
    for method in ["totp", "recovery"] {
        let shown = stolen.shown(&browser, "confirm", method).await;
        assert_eq!(browser.call("/confirm", shown).await.status, 204);
        assert_eq!(browser.call("/totp", json!({})).await.status, 201, "{method}");
        app.services.gate.follow_changes().await.unwrap();
        assert_eq!(visitor.ask("GET", &page).await.status, 200, "{method}");
        let code = code(&browser, "passkey").await.expect("a code");
        let (_, told) = Granted::by_code(&app, "passkey", &code).await.expect("tokens");
        assert_eq!((&told["acr"], &told["amr"]), (&json!("passkey"), &json!(["pop", "user", "otp", "mfa"])));
    }
}
