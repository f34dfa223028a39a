//! The pages of codes by mail: where a mail's link leads to, and what is promised to whom.

use gatehouse::accounts::Username;
use serde_json::{Value, json};

use super::flows::{NEW, ask, code_of, codes, confirm, newest_code, newest_with_code, until_mails};
use crate::sms::http::{NUMBER, with_number};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, WRONG};
use crate::support::setup::{Setup, max};

const ADA: &str = "ada@example.org";
const REQUIRED: &str = "[registration]\nrequire = ['email']\n";

/// Nothing is delivered: what a test reads is in no mail.
pub fn by_mail_alone() -> Setup {
    TestApp::on(Store::Memory)
        .set("sms.gateway", "none")
        .set("mail.url", "smtp://127.0.0.1:9")
        .set("mail.from", "login@example.org")
}

/// Where the link of a mail leads to.
fn link_of(app: &TestApp, mail: &Value) -> String {
    let text = mail["text"].as_str().unwrap();
    let link = text.lines().find_map(|line| line.trim().strip_prefix(&app.url));
    link.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn has_field(page: &Answer, name: &str) -> bool {
    let inputs = page.text.split("<input ").skip(1).map(|rest| rest.split('>').next().unwrap());
    inputs
        .filter(|input| !input.contains("type=\"hidden\""))
        .any(|input| input.contains(&format!("name=\"{name}\"")))
}

/// The form of the page that was just shown, as a browser sends it.
async fn enter(client: &Client, path: &str, shown: &Answer, fields: &[(&str, &str)]) -> Answer {
    let mut all = vec![("csrf_token", shown.csrf_token())];
    all.extend(shown.hidden("in_hand").map(|value| ("in_hand", value)));
    let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    client.post(path, &[&all[..], fields].concat()).await
}

/// Follows a link as scanners and people do; returns the page.
async fn open(app: &TestApp, client: &Client, link: &str) -> Answer {
    let head = client.http.head(format!("{}{link}", app.url)).send().await.unwrap();
    assert!(head.status().is_success(), "{}", head.status());
    for again in [link.to_owned(), format!("{link}=")] {
        assert!(has_field(&client.get(&again).await, "code"), "{again}");
    }
    let page = client.get(link).await;
    let languages = format!("href=\"{link}&#38;lang=zh-CN\"");
    assert!(
        page.text.contains(&languages),
        "a reader who chooses the language keeps the page: {}",
        page.text
    );
    page
}

fn has_error(page: &Answer, field: &str) -> bool {
    page.text.contains(&format!("id=\"{field}-error\""))
}

#[tokio::test]
async fn the_link_of_a_mail_opens_a_page_on_which_its_code_sets_a_password() {
    let app = TestApp::on(Store::Memory).start().await;
    app.client().register("alice", PASSWORD).await;
    confirm(&app, &app.client(), ADA).await;
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    let mail = newest_with_code(&app, ADA, 2).await;
    let (link, code) = (link_of(&app, &mail), code_of(&mail));
    assert_eq!(link, "/password/reset?code");

    let phone = app.client();
    let page = open(&app, &phone, &link).await;
    assert!(has_field(&page, "phone") && has_field(&page, "new_password"), "{}", page.text);
    let enter =
        async |shown: &Answer, fields: &[(&str, &str)]| enter(&phone, "/password/reset", shown, fields).await;
    // Each mistake is told at its field, and what was typed is kept.
    let empty = enter(&page, &[("phone", ""), ("code", ""), ("new_password", "")]).await;
    assert_eq!(empty.status, 422, "{}", empty.text);
    for field in ["phone", "code", "new_password"] {
        assert!(has_field(&empty, field) && has_error(&empty, field), "{field}: {}", empty.text);
    }
    let half = enter(&empty, &[("phone", ADA), ("code", "12"), ("new_password", NEW)]).await;
    assert!(half.text.contains(&format!("value=\"{ADA}\"")) && has_error(&half, "code"), "{}", half.text);
    assert!(!has_error(&half, "phone"), "{}", half.text);
    let wrong = if code == "000000" { "000001" } else { "000000" };
    let wrong = enter(&half, &[("phone", ADA), ("code", wrong), ("new_password", NEW)]).await;
    assert!(wrong.status == 401 && has_field(&wrong, "phone") && has_field(&wrong, "code"), "{}", wrong.text);
    let forged = [("phone", ADA), ("code", code.as_str()), ("new_password", NEW), ("in_hand", "1")];
    assert_eq!(phone.post("/password/reset", &forged).await.status, 403, "no token");
    assert_eq!(codes(&app, ADA).await, 2, "no page has sent another");
    let set = enter(&wrong, &[("phone", ADA), ("code", &code), ("new_password", NEW)]).await;
    assert_eq!((set.status, set.header("location")), (303, "/login"), "{}", set.text);
    assert_eq!(phone.login("alice", NEW).await.status, 200);
}

#[tokio::test]
async fn the_link_of_a_mail_opens_a_page_on_which_its_code_makes_an_account() {
    let app = TestApp::on(Store::Memory).file_more(REQUIRED).start().await;
    let asked = json!({ "email": ADA, "purpose": "register" });
    assert_eq!(app.client().call("/email/codes", asked).await.status, 202);
    let mail = until_mails(&app, ADA, 1).await.remove(0);
    let link = link_of(&app, &mail);
    assert_eq!(link, "/register?code");
    let (phone, code) = (app.client(), newest_code(&app, ADA, 1).await);
    let page = open(&app, &phone, &link).await;
    let empty =
        enter(&phone, "/register", &page, &[("login", ""), ("email", ""), ("code", ""), ("password", "")])
            .await;
    for field in ["login", "email", "code", "password"] {
        assert!(has_field(&page, field), "{field}: {}", page.text);
        assert!(has_field(&empty, field) && has_error(&empty, field), "{field}: {}", empty.text);
    }
    let fields = [("login", "ada"), ("email", ADA), ("code", code.as_str()), ("password", PASSWORD)];
    let made = enter(&phone, "/register", &empty, &fields).await;
    assert_eq!((made.status, made.header("location")), (303, "/account"), "{}", made.text);
    assert!(phone.get("/account").await.text.contains(ADA));
}

#[tokio::test]
async fn the_link_of_a_mail_opens_a_page_on_which_its_code_confirms_an_address() {
    let app = TestApp::on(Store::Memory).start().await;
    let desk = app.client();
    assert_eq!(desk.register("alice", PASSWORD).await.status, 201);
    let asked = json!({ "email": ADA, "purpose": "verify" });
    assert_eq!(desk.call("/email/codes", asked).await.status, 202);
    let mail = until_mails(&app, ADA, 1).await.remove(0);
    let link = link_of(&app, &mail);
    assert_eq!(link, "/account/email?code");
    let phone = app.client();
    let first = phone.get(&link).await;
    assert_eq!(first.header("location"), "/login?next=/account/email%3Fcode", "who is not signed in");
    assert_eq!(phone.login("alice", PASSWORD).await.status, 200);
    let page = open(&app, &phone, &link).await;
    let code = newest_code(&app, ADA, 1).await;
    let wrong = [("email", ADA), ("code", ""), ("current_password", PASSWORD)];
    let wrong = enter(&phone, "/account/email", &page, &wrong).await;
    assert!(wrong.status == 422 && has_error(&wrong, "code"), "{}", wrong.text);
    assert!(has_field(&wrong, "email") && wrong.text.contains(&format!("value=\"{ADA}\"")), "{}", wrong.text);
    let fields = [("email", ADA), ("code", code.as_str()), ("current_password", PASSWORD)];
    let set = enter(&phone, "/account/email", &wrong, &fields).await;
    assert_eq!((set.status, set.header("location")), (303, "/account"), "{}", set.text);
    assert!(phone.get("/account").await.text.contains(ADA));
}

#[tokio::test]
async fn the_first_step_leads_to_a_code_that_somebody_has_and_back() {
    let app = TestApp::on(Store::Memory).file_more(REQUIRED).start().await;
    let (stranger, member) = (app.client(), app.sign_in_admin("boss").await);
    for (client, path) in
        [(&stranger, "/password/reset"), (&stranger, "/register"), (&member, "/account/email")]
    {
        let (first, entry) = (client.get(path).await, format!("{path}?code"));
        assert!(
            first.text.contains(&format!("<a href=\"{entry}\">I have a code already</a>")),
            "{}",
            first.text
        );
        assert!(!has_field(&first, "code"), "{}", first.text);
        let second = client.get(&entry).await.text;
        assert!(second.contains(&format!("<a href=\"{path}\">I have no code yet</a>")), "{second}");
    }
    // Where somebody goes on to is not lost on the way.
    let first = stranger.get("/register?next=/problems/busy").await.text;
    assert!(first.contains("href=\"/register?code&#38;next=/problems/busy\""), "{first}");
    let second = stranger.get("/register?code&next=/problems/busy").await;
    assert_eq!(second.hidden("next").as_deref(), Some("/problems/busy"));
    let no_mail = by_mail_alone().set("mail.reset", "no").set("sms.gateway", "outbox").start().await;
    assert!(!no_mail.client().get("/password/reset").await.text.contains("?code\""));
}

#[tokio::test]
async fn no_page_offers_a_reset_by_mail_where_none_is_made() {
    let app = TestApp::on(Store::Memory).set("mail.reset", "no").start().await;
    let page = app.client().get("/password/reset").await;
    assert!(page.text.contains("type=\"tel\"") && !page.text.contains("e-mail"), "{}", page.text);
    assert!(page.text.contains("sent to your account&#39;s number."), "{}", page.text);
    assert!(app.client().get("/login").await.text.contains("/password/reset"));
    // An address is for being told of changes.
    let owner = app.client();
    owner.register("alice", PASSWORD).await;
    let promised = "you can set a new password";
    let lead = owner.get("/account/email").await.text;
    assert!(!lead.contains(promised) && lead.contains("you are told of changes"), "{lead}");
    assert_eq!(owner.call("/email/codes", json!({ "email": ADA, "purpose": "verify" })).await.status, 202);
    let code = newest_code(&app, ADA, 1).await;
    let fields =
        [("email", ADA), ("code", code.as_str()), ("current_password", PASSWORD), ("good_until", "1")];
    let set = owner.submit("/account/email", "/account/email", &fields).await;
    assert_eq!(set.status, 303, "{}", set.text);
    let told = owner.get("/account").await.text;
    assert!(told.contains("Address saved.") && !told.contains("set a new password by it"), "{told}");
    let removal = owner.get("/account/email/remove").await.text;
    assert!(removal.contains("no longer told") && !removal.contains("set a new password by it"), "{removal}");
}

#[tokio::test]
async fn an_address_is_said_to_set_a_password_where_it_does() {
    let app = TestApp::on(Store::Memory).set("mail.reset", "without-number").start().await;
    let lead = async |client: &Client| client.get("/account/email").await.text;
    let promised = "you can set a new password";
    let without = app.client();
    without.register("alice", PASSWORD).await;
    assert!(lead(&without).await.contains(promised));
    assert!(!lead(&with_number(&app, "bob", NUMBER).await).await.contains(promised));
    // No code opens an administrator's account.
    assert!(!lead(&app.sign_in_admin("boss").await).await.contains(promised));
}

#[tokio::test]
async fn who_has_a_number_is_told_to_use_it_where_mail_is_for_accounts_without() {
    let app = TestApp::on(Store::Memory).set("mail.reset", "without-number").start().await;
    let client = app.client();
    let first = client.get("/password/reset").await.text;
    assert!(first.contains("to its address if it has no number"), "{first}");
    let second = client.submit("/password/reset", "/password/reset", &[("phone", ADA)]).await.text;
    assert!(second.contains("If an account has this address and no number, a code arrives"), "{second}");
    assert!(second.contains("An account with a number uses the number."), "{second}");
    let alone = by_mail_alone().set("mail.reset", "without-number").start().await;
    let first = alone.client().get("/password/reset").await.text;
    assert!(first.contains("if it has no number") && first.contains("ask an administrator"), "{first}");
    let page = alone.client().submit("/password/reset", "/password/reset", &[("email", ADA)]).await.text;
    assert!(page.contains("this address and no number") && !page.contains("uses the number"), "{page}");
}

#[tokio::test]
async fn where_no_code_sets_a_password_an_administrator_does() {
    let app = by_mail_alone().set("mail.reset", "no").start().await;
    let client = app.client();
    let page = client.get("/password/reset").await;
    assert!(page.status == 403 && page.text.contains("Ask an administrator"), "{}", page.text);
    assert!(!has_field(&page, "email") && !has_field(&page, "phone"), "{}", page.text);
    let token = client.get("/login").await.csrf_token();
    for field in ["email", "phone"] {
        let sent = client.post("/password/reset", &[(field, ADA), ("csrf_token", &token)]).await;
        assert!(sent.status == 403 && sent.text.contains("Ask an administrator"), "{}", sent.text);
    }
    assert!(!client.get("/login").await.text.contains("/password/reset"));
    // The other way round, with mail.
    let app = by_mail_alone().start().await;
    assert!(has_field(&app.client().get("/password/reset").await, "email"));
    assert!(app.client().get("/login").await.text.contains("/password/reset"));
}

#[tokio::test]
async fn a_wait_at_the_sign_in_is_ended_by_mail_too() {
    let throttled = async |setup: Setup| {
        let app = setup.limit("login-account", &[max(1).per("1h")]).start().await;
        let client = app.client();
        client.login("alice", WRONG).await;
        let fields = [("login", "alice"), ("password", WRONG)];
        let page = client.submit("/login", "/login", &fields).await;
        assert_eq!(page.status, 429, "{}", page.text);
        page.text.split("ways").nth(1).unwrap().split("</ul>").next().unwrap().to_owned()
    };
    let by_mail = throttled(by_mail_alone()).await;
    assert!(by_mail.contains("/password/reset") && !by_mail.contains("SMS"), "{by_mail}");
    assert!(!by_mail.contains("administrator") && !by_mail.contains("/login/code"), "{by_mail}");
    let none = throttled(by_mail_alone().set("mail.reset", "no")).await;
    assert!(!none.contains("/password/reset") && none.contains("administrator"), "{none}");
}

#[tokio::test]
async fn a_disabled_password_is_replaced_by_a_code_that_comes_by_mail() {
    let setup = |reset: &str| {
        TestApp::on(Store::Memory)
            .without(&["login-device", "login-account", "login-address"])
            .set("login.max_consecutive_failures", 2)
            .set("mail.reset", reset)
    };
    for (rule, with, by_code) in [
        ("yes", None, true),
        ("without-number", None, true),
        ("without-number", Some(NUMBER), true),
        ("no", None, false),
    ] {
        let app = setup(rule).start().await;
        match with {
            Some(phone) => drop(with_number(&app, "alice", phone).await),
            None => app.register("alice").await,
        }
        let owner = app.client();
        confirm(&app, &owner, ADA).await;
        for _ in 0..2 {
            assert_eq!(app.client().login("alice", WRONG).await.status, 401);
        }
        let login = Username::parse("alice").unwrap();
        let alice = app.services.accounts.find(&login).await.unwrap().unwrap();
        assert!(alice.password_disabled_at.is_some());
        let page = owner.get("/account").await.text;
        assert_eq!(page.contains("Set a new password with a code."), by_code, "{rule} {with:?}: {page}");
        assert_eq!(page.contains("href=\"/password/reset\""), by_code, "{rule} {with:?}: {page}");
        assert_eq!(
            page.contains("Ask an administrator to re-enable it."),
            !by_code,
            "{rule} {with:?}: {page}"
        );
    }
    // A code that reaches nobody replaces nothing.
    let app = setup("yes").start().await;
    app.register("alice").await;
    let owner = app.client();
    confirm(&app, &owner, ADA).await;
    for _ in 0..2 {
        assert_eq!(app.client().login("alice", WRONG).await.status, 401);
    }
    until_mails(&app, ADA, 2).await;
    app.services.codes.drain().await;
    super::console::refuse_mail(&app, ADA).await;
    assert!(owner.get("/account").await.text.contains("Ask an administrator to re-enable it."));
}
