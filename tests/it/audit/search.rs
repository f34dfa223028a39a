//! The search over the record: what it leads to, what it reads, and that nothing that is typed is in a URL.

use std::time::Duration;

use gatehouse::audit::{Action, AuditEvent, EventFilter, EventSubject, Outcome};

use crate::support::app::{Client, PASSWORD, Store, TestApp, on_both_stores};

const WRONG: &str = "a wrong password";
const NUMBER: &str = "+8613800138000";
const HERE: &str = "/admin/events";

on_both_stores!(
    a_search_leads_to_the_filter_that_it_means,
    a_text_is_found_where_events_say_it_and_is_in_no_url,
    a_page_reads_no_more_rows_than_it_may_and_the_next_reads_on,
    what_is_filtered_is_a_chip_that_its_link_removes,
);

/// Where a search leads to.
async fn search(boss: &Client, text: &str, filter: &str) -> String {
    let answer = boss.submit(HERE, HERE, &[("asked", text), ("filter", filter)]).await;
    assert_eq!(answer.status, 303, "{text}: {}", answer.text);
    answer.header("location").to_owned()
}

/// The lines of a list.
fn lines(page: &str) -> usize {
    page.matches("<div class=\"event-line\">").count()
}

async fn a_search_leads_to_the_filter_that_it_means(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    let client = app.client_at("203.0.113.7");
    client.register("caroline", PASSWORD).await;
    client.ask_code(NUMBER, "login").await;
    app.client_at("203.0.113.8").login("nobody", WRONG).await;
    let last = super::events(&app).await.pop().unwrap();
    let hash = format!("{:016x}", last.account.as_ref().unwrap().key);
    let request = last.request.clone().unwrap();
    for (text, field, shown) in [
        ("caroline", "account", 1),
        (" Caroline ", "account", 1),
        ("nobody", "account", 1),
        (NUMBER, "phone", 1),
        ("203.0.113.7", "address", 2),
        ("203.0.113.0/24", "network", 3),
        ("2001:db8::7", "address", 0),
        ("+8613900139000", "phone", 0),
        (&hash, "account", 1),
        (&hash[..9], "account", 1),
        (&format!("key:{hash}"), "account", 1),
        (&request, "request", 1),
    ] {
        let to = search(&boss, text, "").await;
        assert!(to.starts_with(&format!("{HERE}?{field}=")), "{text}: {to}");
        assert!(field == "request" || !to.contains(text.trim()) || hash.starts_with(text), "{text}: {to}");
        assert_eq!(lines(&boss.get(&to).await.text), shown, "{text}: {to}");
    }
    for (text, to) in [
        ("login-account", "limit=login-account"),
        ("failed sign-ins TO one account", "limit=login-account"),
        ("register", "action=register"),
        ("Code requested", "action=send"),
        ("throttled", "outcome=throttled"),
        ("guard:shop", "realm=shop"),
    ] {
        assert_eq!(search(&boss, text, "").await, format!("{HERE}?{to}"), "{text}");
    }
    assert_eq!(
        search(&boss, "wrong", "action=sign-in&span=1h").await,
        format!("{HERE}?action=sign-in&outcome=wrong&span=1h")
    );
    assert_eq!(search(&boss, &request, "action=send&span=1h").await, format!("{HERE}?request={request}"));
    assert_eq!(search(&boss, "", "action=sign-in").await, format!("{HERE}?action=sign-in"));
    let answer = boss.get(&format!("/api/v1{HERE}?request={request}")).await;
    assert_eq!(answer.body["events"][0]["request"], request.as_str(), "{}", answer.text);
    assert_eq!(answer.body["events"].as_array().unwrap().len(), 1);
    let foreign = boss.post(HERE, &[("asked", "caroline"), ("csrf_token", "x")]).await;
    assert!(foreign.status == 403 && foreign.text.contains("value=\"caroline\""), "{}", foreign.text);
}

async fn a_text_is_found_where_events_say_it_and_is_in_no_url(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    for detail in
        ["{\"reason\":\"Mallory called, 100%\"}", "{\"reason\":\"a_b\"}", "{\"reason\":\"a-b 1000\"}"]
    {
        let act = AuditEvent::new(app.clock.now(), Action::Admin, Outcome::Ok);
        app.services.audit.record(AuditEvent {
            name: Some("limits.save"),
            detail: Some(detail.into()),
            ..act
        });
        app.advance(Duration::from_secs(1));
    }
    for (text, shown) in [
        ("mallory", 1),
        ("MALLORY called", 1),
        ("100%", 1),
        ("a_b", 1),
        ("reason", 3),
        ("limits.s", 3),
        ("eve", 0),
    ] {
        let to = search(&boss, text, "").await;
        assert!(to.starts_with(&format!("{HERE}?text=")) && to.len() == HERE.len() + 22, "{text}: {to}");
        let page = boss.get(&to).await.text;
        assert_eq!(lines(&page), shown, "{text}: {page}");
        assert!(page.contains(&format!("<bdi>{text}</bdi>")) && !page.contains("events-chart"), "{page}");
        let lookup = page.contains("action=\"/admin/lookup\"");
        assert_eq!(lookup, shown == 0, "{text}");
    }
    let mallory = search(&boss, "mallory", "").await.replace(HERE, "/admin/events.csv");
    let file = boss.get(&mallory).await.text;
    assert_eq!(file.split_terminator("\r\n").count(), 2, "{file}");
    let other = search(&boss, "a-b", "action=send").await;
    assert!(other.starts_with(&format!("{HERE}?action=send&text=")), "{other}");
    // In another tab by now, or on another day: not a file of everything, and not one of what was not asked for.
    let later = app.client();
    later.login("boss", PASSWORD).await;
    for (client, path) in [(&boss, &mallory), (&later, &other)] {
        let ended = client.get(path).await;
        assert_eq!(ended.status, 303, "{path}");
        assert!(!ended.header("location").contains("text"), "{path}");
        assert!(client.get(ended.header("location")).await.text.contains("This search has ended"), "{path}");
    }
    let out = boss.submit("/account", "/logout", &[]).await;
    assert!(
        out.headers.get_all("set-cookie").iter().any(|set| set.to_str().unwrap().starts_with("gh_search=;"))
    );
}

async fn a_page_reads_no_more_rows_than_it_may_and_the_next_reads_on(store: Store) {
    let app = TestApp::start(store).await;
    for number in 0..50 {
        let login = EventSubject::Login(if number == 3 { "rare" } else { "usual" });
        let outcome = if number % 10 == 3 { Outcome::Failed } else { Outcome::Ok };
        let event = AuditEvent::new(app.clock.now(), Action::Register, outcome);
        let detail = Some(if number == 3 { "needle" } else { "hay" }.to_owned());
        app.services.audit.record(AuditEvent { account: Some(login), detail, ..event });
        app.advance(Duration::from_secs(1));
    }
    app.services.audit.flush().await;
    let log = app.services.audit.log();
    let read = async |filter: EventFilter| {
        let (mut pages, mut found, mut after) = (0, Vec::new(), None);
        loop {
            let page = log.page(&filter, after, 4).await.unwrap();
            (pages, after) = (pages + 1, page.next);
            found.extend(page.entries.into_iter().map(|entry| entry.id));
            if after.is_none() {
                return (pages, found.len());
            }
        }
    };
    let all = EventFilter { most: Some(10), actions: vec![Action::Register], ..EventFilter::default() };
    assert_eq!(read(all.clone()).await, (13, 50), "what an index finds is not bounded");
    assert_eq!(read(EventFilter { text: Some("needle".into()), ..all.clone() }).await, (5, 1));
    assert_eq!(read(EventFilter { text: Some("needle".into()), most: None, ..all.clone() }).await, (1, 1));
    let failed = EventFilter { outcomes: vec![Outcome::Failed], ..all.clone() };
    assert_eq!(read(failed).await, (2, 5), "the action is tested in what the outcome finds");
    let several = EventFilter { outcomes: vec![Outcome::Failed, Outcome::Busy], ..all };
    assert_eq!(read(several).await, (5, 5));
}

async fn what_is_filtered_is_a_chip_that_its_link_removes(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.client().login("nobody", WRONG).await;
    let page = boss
        .get(&format!("{HERE}?action=sign-in&outcome=wrong&outcome=ok&limit=login-account&span=24h"))
        .await
        .text;
    let chips: Vec<_> = page
        .split("class=\"filter-chip\" href=\"")
        .skip(1)
        .map(|chip| chip.split('"').next().unwrap())
        .collect();
    assert_eq!(chips.len(), 5, "{page}");
    let links = chips.iter().map(|chip| chip.replace("&#38;", "&")).collect::<Vec<_>>();
    assert_eq!(links[0], format!("{HERE}?outcome=ok&outcome=wrong&limit=login-account&span=24h"));
    assert_eq!(links[2], format!("{HERE}?action=sign-in&outcome=ok&limit=login-account&span=24h"));
    assert!(
        page.contains("Outcome <bdi>wrong</bdi>")
            && page.contains("Limit <bdi>Failed sign-ins to one account</bdi>")
    );
    let one = boss.get(&format!("{HERE}?noted=1")).await.text;
    assert!(
        one.contains("class=\"filter-chip\" href=\"/admin/events\"") && !one.contains("Clear all"),
        "{one}"
    );
}
