//! Mail in the console: mailboxes that are looked up and unlocked, those that refuse mail, a server that takes nothing, and
//! the ledger.

use std::time::Duration;

use gatehouse::audit::{EventSubject, SubjectKind};
use gatehouse::clock::Micros;
use gatehouse::db::Db;
use gatehouse::mail::{MailQueue, MailSeal, Mailbox};
use serde_json::{Value, json};

use super::flows::{ask, confirm, confirm_as, newest_code, reset, set, until_mails};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores, subject_path};
use crate::support::ports::free_port;
use crate::support::setup::{Setup, max};
use crate::support::until;

/// No hint of a page names it.
const ADA: &str = "adele@example.org";
/// Another spelling of the mailbox.
const ALSO: &str = "Adele+console@Example.ORG";
const MASK: &str = "a***@example.org";

/// Only the mailbox's own limits.
fn mail(store: Store) -> Setup {
    TestApp::on(store).limit("mail-mailbox", &[max(3).per("1h")])
}

on_both_stores!(
    a_mailbox_gets_mail_again_though_the_ledger_remembers_it,
    wrong_codes_by_mail_are_forgiven_on_the_code_itself_too,
    a_mailbox_that_refuses_mail_is_shown_and_gets_mail_again,
    a_spelling_that_a_server_does_not_know_stops_no_mail_to_its_owner,
    mails_are_shown_with_their_own_limit_and_found_by_their_address,
);

async fn log(boss: &Client, limit: &str, subject: &str) -> Value {
    let answer = boss.get(&subject_path(limit, subject)).await;
    assert_eq!(answer.status, 200, "{limit} {subject}: {}", answer.text);
    answer.body
}

/// The look-up of what an administrator types.
async fn look(boss: &Client, typed: &str) -> String {
    let asked = boss.submit("/admin/lookup", "/admin/lookup", &[("asked", typed)]).await;
    assert_eq!((asked.status, asked.header("location")), (303, "/admin/lookup?typed"), "{}", asked.text);
    boss.get("/admin/lookup?typed").await.text
}

async fn app_with_ada(setup: Setup) -> (TestApp, Client, Client) {
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    confirm(&app, &owner, ADA).await;
    // The code, and the notice that the address is set: a mail that is taken later would end what refusals leave behind.
    until_mails(&app, ADA, 2).await;
    app.services.codes.drain().await;
    (app, boss, owner)
}

/// What two refusals for good at a mailbox leave behind.
pub async fn refuse_mail(app: &TestApp, email: &str) {
    let queue = MailQueue::new(Db::connect(&app.database).await.unwrap(), app.clock.clone());
    let key = MailSeal::new(&app.master_key()).key_of_spelling(&Mailbox::parse(email).unwrap());
    for _ in 0..2 {
        queue.note_bounce(&key, true).await.unwrap();
    }
}

async fn account_of(boss: &Client, login: &str) -> Value {
    let found = boss.get(&format!("/api/v1/admin/accounts?login={login}")).await;
    let id = found.body["accounts"][0]["id"].as_str().unwrap().to_owned();
    boss.get(&format!("/api/v1/admin/accounts/{id}")).await.body
}

async fn a_mailbox_gets_mail_again_though_the_ledger_remembers_it(store: Store) {
    let (app, boss, _) = app_with_ada(mail(store)).await;
    let send = async || ask(&app.client(), ADA).await.status;
    assert_eq!((send().await, send().await, send().await), (202, 202, 429));
    let found = log(&boss, "mail-mailbox", ALSO).await;
    assert_eq!((&found["rules"][0]["count"], &found["account"]["login"]), (&json!(3), &json!("alice")));
    let standing = account_of(&boss, "alice").await["standing"].clone();
    assert_eq!((&standing[0]["kind"], &standing[0]["limit"]), (&json!("codes"), &json!("mail-mailbox")));
    assert_eq!(boss.clear("mail-mailbox", ALSO).await.status, 204);
    assert_eq!(log(&boss, "mail-mailbox", ADA).await["rules"][0]["count"], 0);
    assert_eq!(account_of(&boss, "alice").await["standing"], json!([]));
    // A rebuild after a loss leaves out what was cleared, and nothing else.
    app.advance(Duration::from_secs(1));
    if let Some(redis) = &app.redis {
        redis::cmd("FLUSHALL").exec(&mut redis.connection()).unwrap();
    }
    assert_eq!((send().await, send().await, send().await, send().await), (202, 202, 202, 429));
    let id = account_of(&boss, "alice").await["id"].as_str().unwrap().to_owned();
    let unlocked =
        boss.call(&format!("/admin/accounts/{id}/unlock"), json!({ "reason": "She called." })).await;
    assert_eq!((unlocked.status, &unlocked.body["standing"]), (200, &json!([])), "{}", unlocked.text);
    for (limit, problem) in [("mail-mailbox", "unknown-subject"), ("mail-notice", "unknown-limit")] {
        assert_eq!(boss.clear(limit, "alice").await.problem(), problem);
    }
}

async fn wrong_codes_by_mail_are_forgiven_on_the_code_itself_too(store: Store) {
    let app = mail(store).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    // A code that confirms is bound to the spelling that it was sent to.
    assert_eq!(owner.call("/email/codes", json!({ "email": ALSO, "purpose": "verify" })).await.status, 202);
    let code = newest_code(&app, ALSO, 1).await;
    let wrong = if code == "111111" { "222222" } else { "111111" };
    for _ in 0..2 {
        for _ in 0..4 {
            assert_eq!(set(&owner, ALSO, wrong).await.problem(), "invalid-code");
        }
        assert_eq!(log(&boss, "mail-guess", ADA).await["rules"][0]["count"], 4);
        assert_eq!(boss.clear("mail-guess", ADA).await.status, 204);
        assert_eq!(log(&boss, "mail-guess", ADA).await["rules"][0]["count"], 0);
    }
    assert_eq!(set(&owner, ALSO, &code).await.status, 200);
}

async fn a_mailbox_that_refuses_mail_is_shown_and_gets_mail_again(store: Store) {
    let (app, boss, owner) = app_with_ada(mail(store)).await;
    assert_eq!(log(&boss, "mail-mailbox", ADA).await.get("mail_refused_until"), None);
    assert!(!owner.get("/account").await.text.contains("refuses mail"));
    refuse_mail(&app, ADA).await;
    assert!(log(&boss, "mail-mailbox", ALSO).await["mail_refused_until"].is_string());
    // Its owner and administrators see it.
    let own = owner.get("/account").await.text;
    assert!(own.contains(ADA) && own.contains("refuses mail; nothing is sent there until"), "{own}");
    let account = account_of(&boss, "alice").await;
    assert_eq!(account["confirmed_email"], MASK);
    assert!(account["mail_refused_until"].is_string(), "{account}");
    let page = boss.get(&format!("/admin/accounts/{}", account["id"].as_str().unwrap())).await.text;
    assert!(page.contains(MASK) && page.contains("refuses mail") && !page.contains(ADA), "{page}");
    // By the call, and by the page.
    let path = "/api/v1/admin/refused-mailboxes/adele%2Bx@example.org";
    let stranger = app.client();
    assert_eq!(stranger.delete(path, json!({})).await.status, 401);
    assert_eq!(boss.delete(path, json!({ "reason": "The server is back." })).await.status, 204);
    assert_eq!(boss.delete(path, json!({})).await.problem(), "not-found");
    assert_eq!(boss.delete("/api/v1/admin/refused-mailboxes/alice", json!({})).await.problem(), "not-found");
    assert_eq!(log(&boss, "mail-mailbox", ADA).await.get("mail_refused_until"), None);
    refuse_mail(&app, ADA).await;
    let page = look(&boss, ALSO).await;
    assert!(page.contains("Mailbox refuses mail") && page.contains("/admin/lookup/allow-mail"), "{page}");
    let send = async |reason: &str| {
        let fields = [("asked", ALSO), ("reason", reason)];
        boss.submit("/admin/lookup?typed", "/admin/lookup/allow-mail", &fields).await
    };
    let missing = send(" ").await;
    assert!(missing.status == 422 && missing.text.contains("reason-allow-mail-error"), "{}", missing.text);
    assert_eq!(send("Renewed").await.header("location"), "/admin/lookup?typed");
    let page = boss.get("/admin/lookup?typed").await.text;
    assert!(page.contains("Mail is sent to this mailbox again.") && page.contains("Renewed"), "{page}");
    assert!(!page.contains("/admin/lookup/allow-mail"), "{page}");
    send("Again").await;
    assert!(boss.get("/admin/lookup?typed").await.text.contains("Nothing changed: mail is sent"));
    // Also for whoever knows only whose it is.
    refuse_mail(&app, ADA).await;
    let page = look(&boss, "alice").await;
    assert!(page.contains("/admin/lookup/allow-mail"), "{page}");
    let by_name = [("asked", "alice"), ("reason", "By name")];
    boss.submit("/admin/lookup?typed", "/admin/lookup/allow-mail", &by_name).await;
    assert_eq!(log(&boss, "mail-mailbox", ADA).await.get("mail_refused_until"), None);
    // The record names the mailbox by its mask.
    let audit = &app.services.audit;
    audit.flush().await;
    let key = audit.subject(&EventSubject::Mailbox(ADA));
    let events = audit.log().by_subject(SubjectKind::Phone, key, Micros(0), 10).await.unwrap();
    let allowed: Vec<_> = events.iter().filter(|it| it.name.as_deref() == Some("mailbox.allow")).collect();
    assert_eq!(allowed.len(), 3, "{events:#?}");
    assert!(allowed.iter().all(|it| it.phone.as_ref().unwrap().mask == MASK && it.actor.is_some()));
    assert!(!format!("{events:?}").contains("adele@"), "{events:?}");
}

async fn a_spelling_that_a_server_does_not_know_stops_no_mail_to_its_owner(store: Store) {
    let (app, boss, owner) = app_with_ada(mail(store)).await;
    refuse_mail(&app, ALSO).await;
    assert_eq!(log(&boss, "mail-mailbox", ADA).await.get("mail_refused_until"), None);
    assert!(!owner.get("/account").await.text.contains("refuses mail"));
    assert_eq!(ask(&app.client(), ALSO).await.status, 202);
    until_mails(&app, ADA, 3).await;
    // The account's own spelling is what the console shows.
    refuse_mail(&app, ADA).await;
    assert!(log(&boss, "mail-mailbox", ALSO).await["mail_refused_until"].is_string());
}

async fn mails_are_shown_with_their_own_limit_and_found_by_their_address(store: Store) {
    let setup = mail(store).limit("sms-phone", &[max(9).per("1h")]).set("sms.brake.enabled", false);
    let (app, boss, owner) = app_with_ada(setup).await;
    assert_eq!(owner.ask_code("+8613800138000", "login").await.status, 202);
    app.advance(Duration::from_secs(1));
    assert_eq!(ask(&app.client(), ALSO).await.status, 202);
    app.advance(Duration::from_secs(1));
    assert_eq!(ask(&app.client(), "bob@example.org").await.status, 202);
    let cells = |page: &str| -> Vec<String> {
        let cells = page.split("<td class=\"used\">").skip(1);
        cells.map(|rest| rest.split('<').next().unwrap().to_owned()).collect()
    };
    let page = boss.get("/admin/messages").await.text;
    assert_eq!(cells(&page), ["1 of 3", "2 of 3", "1 of 9", "2 of 3"], "{page}");
    let channels = async |query: &str| -> Vec<String> {
        let found = boss.get(&format!("/api/v1/admin/messages?{query}")).await;
        let messages = found.body["messages"].as_array().unwrap_or_else(|| panic!("{}", found.text));
        messages.iter().map(|it| it["channel"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(channels("").await, ["mail", "mail", "sms", "mail"]);
    assert_eq!(channels("channel=sms").await, ["sms"]);
    assert_eq!(channels("channel=mail").await.len(), 3);
    assert_eq!(channels("prefix=adele%2By@EXAMPLE.org").await, ["mail", "mail"]);
    assert_eq!(channels("prefix=a***@example.org&channel=mail").await, ["mail", "mail"], "as it is shown");
    assert_eq!(channels("prefix=nobody@example.org").await.len(), 0);
    assert_eq!(boss.get("/api/v1/admin/messages?channel=post").await.status, 422);
    // On the page an address is in no URL.
    let long = format!("{}@{}.example.org", "a".repeat(60), "b".repeat(60));
    let nobody = boss.submit("/admin/messages", "/admin/messages", &[("prefix", &long)]).await;
    assert!(nobody.header("location").starts_with("/admin/messages?to="), "{}", nobody.header("location"));
    assert!(boss.get(nobody.header("location")).await.text.contains("No matching messages"));
    let fields = [("prefix", ALSO), ("channel", "mail"), ("state", "")];
    let found = boss.submit("/admin/messages", "/admin/messages", &fields).await;
    let href = found.header("location");
    assert!(found.status == 303 && !href.contains("dele") && !href.contains("example"), "{href}");
    let page = boss.get(href).await.text;
    assert_eq!(cells(&page), ["2 of 3", "2 of 3"], "{page}");
    assert!(page.contains(&format!("value=\"{MASK}\"")) && !page.contains(ALSO), "{page}");
    // What the page shows stands for the address, also where it found nothing.
    let key = href.split("to=").nth(1).unwrap().split('&').next().unwrap();
    for shown in [MASK, "***@"] {
        let again = [("prefix", shown), ("to", key), ("state", "accepted")];
        let again = boss.submit("/admin/messages", "/admin/messages", &again).await;
        let expected = format!("/admin/messages?state=accepted&to={key}");
        assert_eq!(again.header("location"), expected);
    }
    for typed in ["Adele <adele@example.org>", "a dele@example.org", "adele＠"] {
        let wrong = boss.submit("/admin/messages", "/admin/messages", &[("prefix", typed)]).await;
        assert!(wrong.status == 422 && wrong.text.contains("prefix-error"), "{typed}: {}", wrong.text);
    }
    let prefix = boss.submit("/admin/messages", "/admin/messages", &[("prefix", "+861380013")]).await;
    assert_eq!(prefix.header("location"), "/admin/messages?prefix=%2B861380013");
    assert_eq!(boss.post("/admin/messages", &[("prefix", ALSO)]).await.status, 403, "no token");
}

#[tokio::test]
async fn an_address_leads_to_its_counts_and_to_the_account_that_has_it() {
    let (app, boss, _) = app_with_ada(mail(Store::Memory)).await;
    let found = boss.submit("/admin/find", "/admin/find", &[("asked", ALSO)]).await;
    assert_eq!((found.status, found.header("location")), (303, "/admin/lookup?typed"), "{}", found.text);
    let page = boss.get("/admin/lookup?typed").await.text;
    for told in
        ["E-mail address", "The account alice has confirmed", "mail-mailbox", "mail-guess", "1 of 3 used"]
    {
        assert!(page.contains(told), "{told}: {page}");
    }
    let none = look(&boss, "bob@example.org").await;
    assert!(none.contains("No account has confirmed this e-mail address."), "{none}");
    let named = look(&boss, "alice").await;
    assert!(
        named.contains(&format!("confirmed e-mail address is {MASK}")) && !named.contains(ADA),
        "{named}"
    );
    let clear = [("asked", ALSO), ("limit", "mail-mailbox"), ("reason", "called")];
    assert_eq!(boss.submit("/admin/lookup?typed", "/admin/lookup/clear", &clear).await.status, 303);
    assert_eq!(log(&boss, "mail-mailbox", ADA).await["rules"][0]["count"], 0);
    // A row of its events leads there by a hash, from which no address follows.
    let audit = &app.services.audit;
    audit.flush().await;
    let key = audit.subject(&EventSubject::Mailbox(ADA));
    let hashed = boss.get(&format!("/admin/lookup?phone={key:016x}")).await.text;
    assert!(hashed.contains(MASK) && hashed.contains("Only how this e-mail address begins"), "{hashed}");
    assert!(!hashed.contains(ADA), "{hashed}");
    let searched = boss.submit("/admin/events", "/admin/events", &[("asked", ALSO)]).await;
    assert!(
        searched.header("location").contains(&format!("phone={key:016x}")),
        "{}",
        searched.header("location")
    );
}

#[tokio::test]
async fn a_name_that_is_an_address_is_looked_up_with_the_limits_of_both() {
    let app = mail(Store::Memory).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.client().login(ADA, "wrong").await;
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    let page = look(&boss, ADA).await;
    for limit in ["login-account", "factor-account", "mail-mailbox", "mail-guess"] {
        assert!(page.contains(&format!("<code>{limit}</code>")), "{limit}: {page}");
    }
    for limit in ["login-account", "mail-mailbox"] {
        assert_eq!(log(&boss, limit, ADA).await["rules"][0]["count"], 1, "{limit}");
        let clear = [("asked", ADA), ("limit", limit), ("reason", "called")];
        assert_eq!(boss.submit("/admin/lookup?typed", "/admin/lookup/clear", &clear).await.status, 303);
        assert_eq!(log(&boss, limit, ADA).await["rules"][0]["count"], 0, "{limit}");
    }
}

#[tokio::test]
async fn a_name_that_is_an_address_leads_to_the_mailbox_that_its_account_has_confirmed() {
    const OWN: &str = "own@example.net";
    let app = mail(Store::Memory).start().await;
    let boss = app.sign_in_admin("boss").await;
    // An account's name may be an address, and somebody else's.
    app.administrator(ADA).await;
    app.register("alice").await;
    confirm(&app, &app.client(), ADA).await;
    // The name has no mailbox of its own yet.
    until_mails(&app, ADA, 2).await;
    app.services.codes.drain().await;
    refuse_mail(&app, ADA).await;
    assert!(look(&boss, ADA).await.contains("/admin/lookup/allow-mail"));
    confirm_as(&app, ADA, OWN).await;
    assert!(!look(&boss, ADA).await.contains("/admin/lookup/allow-mail"), "the refusal is another account's");
    until_mails(&app, OWN, 2).await;
    app.services.codes.drain().await;
    refuse_mail(&app, OWN).await;
    assert!(look(&boss, ADA).await.contains("/admin/lookup/allow-mail"));
    let fields = [("asked", ADA), ("reason", "By name")];
    boss.submit("/admin/lookup?typed", "/admin/lookup/allow-mail", &fields).await;
    let refused =
        async |email: &str| log(&boss, "mail-mailbox", email).await["mail_refused_until"].is_string();
    assert_eq!((refused(OWN).await, refused(ADA).await), (false, true));
}

#[tokio::test]
async fn what_is_counted_for_a_mailbox_hinders_its_own_account() {
    let app = mail(Store::Memory).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.administrator(ADA).await;
    app.client().register("alice", PASSWORD).await;
    confirm(&app, &app.client(), ADA).await;
    for _ in 0..2 {
        assert_eq!(ask(&app.client(), ADA).await.status, 202);
    }
    let standing = account_of(&boss, "alice").await["standing"].clone();
    assert_eq!(standing[0]["limit"], "mail-mailbox", "the account that has confirmed it");
    let page = look(&boss, ADA).await;
    let standing = page.split("id=\"standing\"").nth(1).and_then(|rest| rest.split("<h").next());
    assert!(
        standing.is_some_and(|it| it.contains("nothing keeps them out")),
        "the account of that name: {page}"
    );
}

#[tokio::test]
async fn the_overview_says_since_when_the_mail_server_takes_nothing() {
    let toml = format!("[mail]\nurl = 'smtp://127.0.0.1:{}'\nfrom = 'login@example.org'\n", free_port());
    let app = TestApp::on(Store::Memory).file_more(&toml).start().await;
    let boss = app.sign_in_admin("boss").await;
    assert!(!boss.get("/admin").await.text.contains("takes no mail"));
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    assert_eq!(owner.call("/email/codes", json!({ "email": ADA, "purpose": "verify" })).await.status, 202);
    let is_told = async || boss.get("/admin").await.text.contains("The mail server takes no mail, since");
    until("the overview says so", is_told).await;
    let page = boss.get("/admin").await.text;
    assert!(page.contains("Tries in a row that failed: 1. The next one is at"), "{page}");
    let queue = MailQueue::new(Db::connect(&app.database).await.unwrap(), app.clock.clone());
    assert_eq!(queue.waiting().await.unwrap(), 1);
}

#[tokio::test]
async fn answers_to_codes_by_mail_name_the_limits_of_mail() {
    let (app, _, owner) = app_with_ada(mail(Store::Memory)).await;
    let policy = |answer: &Answer| answer.header("ratelimit-policy").to_owned();
    let wrong = reset(&app.client(), ADA, "012345").await;
    assert_eq!(wrong.problem(), "invalid-code");
    assert!(policy(&wrong).starts_with("\"mail-guess\""), "{}", policy(&wrong));
    let wrong = set(&owner, "bob@example.org", "012345").await;
    assert!(policy(&wrong).contains("mail-guess") && !policy(&wrong).contains("sms-"), "{}", policy(&wrong));
    for status in [202, 202, 429] {
        let asked = ask(&app.client(), ADA).await;
        assert_eq!(asked.status, status, "{}", asked.text);
        if status == 429 {
            assert!(policy(&asked).starts_with("\"mail-mailbox\""), "{}", policy(&asked));
        }
    }
    let by_number =
        app.client().call("/sms/login", json!({ "phone": "+8613800138000", "code": "012345" })).await;
    assert!(policy(&by_number).contains("sms-guess"), "{}", policy(&by_number));
}
