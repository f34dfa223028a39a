//! From a row to the subject behind it: by its hash, so that nobody types whom they do not know.

use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::sms::Phone;

use super::acts;
use crate::support::app::{Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const NUMBER: &str = "+8613800138000";

on_both_stores!(
    a_row_leads_to_the_account_behind_it_and_to_letting_it_in,
    a_number_and_an_address_stay_masked_and_are_let_in_all_the_same,
    a_name_without_an_account_has_its_events_and_no_more,
    two_addresses_of_one_network_are_told_apart,
);

/// The links to look-ups on a page.
fn leads(page: &str, kind: &str) -> Vec<String> {
    let lead = format!("/admin/lookup?{kind}=");
    let whole = format!("href=\"{lead}");
    let parts = page.split(&whole).skip(1);
    parts.map(|rest| format!("{lead}{}", rest.split('"').next().unwrap())).collect()
}

async fn unlock(boss: &Client, lead: &str, limit: &str) {
    let page = boss.get(lead).await;
    let (asked, token) = (page.text.rsplit_once("name=\"asked\" value=\"").unwrap().1, page.csrf_token());
    let asked = asked.split('"').next().unwrap().replace("&#35;", "#");
    let fields = [("asked", asked.as_str()), ("limit", limit), ("reason", "called"), ("csrf_token", &token)];
    let cleared = boss.post("/admin/lookup/clear", &fields).await;
    assert_eq!(
        (cleared.status, cleared.header("location")),
        (303, "/admin/lookup?typed"),
        "{}",
        cleared.text
    );
    let page = boss.get("/admin/lookup?typed").await.text;
    assert!(page.contains("Unlocked") && page.contains("called"), "{page}");
}

async fn a_row_leads_to_the_account_behind_it_and_to_letting_it_in(store: Store) {
    let app = TestApp::on(store).limit("login-account", &[max(3).per("1h")]).start().await;
    let boss = app.sign_in_admin("boss").await;
    for login in ["caroline", "carl", "alice"] {
        app.register(login).await;
    }
    let (accounts, login) = (&app.services.accounts, Username::parse("caroline").unwrap());
    let caroline = accounts.find(&login).await.unwrap().unwrap();
    accounts.set_phone(&caroline, &Phone::stored(NUMBER.to_owned())).await.unwrap();
    for _ in 0..9 {
        app.client().login("caroline", WRONG).await;
    }
    let overview = boss.get("/admin").await.text;
    let found = leads(&overview, "account");
    let first = found.first().unwrap();
    assert!(!overview.contains("caroline"), "masked until somebody asks");
    let page = boss.get(first).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("<bdi>caroline</bdi>") && page.text.contains("3 of 3 used"), "{}", page.text);
    assert!(page.text.contains("+861380013****") && !page.text.contains(NUMBER), "{}", page.text);
    let key = first.rsplit('=').next().unwrap();
    let decided = format!("/admin/events?limit=login-account&#38;account={key}");
    assert!(page.text.contains(&decided), "{}", page.text);
    let events = boss.get(&decided.replace("&#38;", "&")).await.text;
    assert!(events.contains("refused by a limit") && !events.contains("Registration</span>"), "{events}");
    assert!(leads(&events, "account").contains(first), "rows of events lead there, too");
    unlock(&boss, first, "login-account").await;
    assert_eq!(app.client().login("caroline", PASSWORD).await.status, 200);
}

async fn a_number_and_an_address_stay_masked_and_are_let_in_all_the_same(store: Store) {
    let app = TestApp::on(store)
        .behind_a_proxy()
        .set("sms.brake.enabled", false)
        .limit("sms-phone", &[max(1).per("1h")])
        .limit("login-address", &[max(1).per("1h")])
        .start()
        .await;
    let boss = app.sign_in_admin("boss").await;
    for address in ["203.0.113.77", "2001:db8:7:42::1"] {
        let client = app.client_at(address);
        client.ask_code(NUMBER, "login").await;
        client.login("nobody", WRONG).await;
        client.login("nobody", WRONG).await;
    }
    let page = boss.get("/admin/events").await.text;
    let phone = leads(&page, "phone").remove(0);
    let shown = boss.get(&phone).await.text;
    assert!(shown.contains("+861380013****") && shown.contains("1 of 1 used"), "{shown}");
    assert!(!shown.contains(NUMBER), "{shown}");
    unlock(&boss, &phone, "sms-phone").await;
    assert_eq!(app.client().ask_code(NUMBER, "login").await.status, 202);
    let mut addresses = leads(&page, "address");
    addresses.sort();
    addresses.dedup();
    for (mask, full) in [("203.0.113.0/24", "203.0.113.77"), ("2001:db8:7::/48", "2001:db8:7:42")] {
        let mut found = None;
        for address in &addresses {
            let shown = boss.get(address).await.text;
            if shown.contains(&format!("<bdi>{mask}")) {
                assert!(shown.contains("1 of 1 used") && !shown.contains(full), "{shown}");
                found = Some(address.clone());
            }
        }
        unlock(&boss, &found.unwrap(), "login-address").await;
    }
    let cleared = acts(&app).await.into_iter().filter(|event| event.name.as_deref() == Some("subject.clear"));
    assert_eq!(cleared.count(), 3);
}

async fn a_name_without_an_account_has_its_events_and_no_more(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.client().login("nobody-at-all", WRONG).await;
    let lead = leads(&boss.get("/admin/events").await.text, "account").remove(0);
    let page = boss.get(&lead).await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("<bdi>no… ") && page.text.contains("only how it begins is recorded"),
        "{}",
        page.text
    );
    assert!(page.text.contains("class=\"rows events\"") && !page.text.contains("class=\"limits one\"><li"));
    assert!(!page.text.contains("nobody-at-all"));
    // It has one now, and what is recorded of the name before is still nobody's.
    app.register("nobody-at-all").await;
    assert!(boss.get(&lead).await.text.contains("only how it begins is recorded"));
    let unknown = boss.get("/admin/lookup?account=00000000000000aa").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text.contains("No longer recorded"), "{}", unknown.text);
    assert_eq!(boss.get("/admin/lookup?account=aa").await.status, 200, "nothing is asked for");
    for lead in [lead.as_str(), "/admin/lookup?account=00000000000000aa"] {
        assert_eq!(app.client().get(lead).await.status, 303, "for administrators");
    }
}

async fn two_addresses_of_one_network_are_told_apart(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    for host in [1, 2, 1] {
        app.client_at(&format!("203.0.113.{host}")).login("nobody", WRONG).await;
        app.advance(Duration::from_secs(1));
    }
    let page = boss.get("/admin/events?action=sign-in&outcome=wrong").await.text;
    let tag = |lead: &String| format!("<code>{}</code>", &lead.rsplit('=').next().unwrap()[..4]);
    let addresses = leads(&page, "address");
    assert_eq!(addresses.len(), 3);
    assert_eq!((&addresses[0], addresses[1] == addresses[0]), (&addresses[2], false));
    assert!(addresses.iter().all(|lead| page.contains(&tag(lead))), "{page}");
    assert!(leads(&page, "account").iter().all(|lead| !page.contains(&tag(lead))), "one name needs no tag");
}
