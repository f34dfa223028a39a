//! `[origins]` and the entries of `deny` that name an origin: who is refused, what is told before and meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::{ELSEWHERE, IN_AN_HOUR, THERE, owner, with_cookies};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    an_origin_is_refused_and_a_known_device_of_it_is_not,
    the_form_says_whom_it_would_have_met_before_it_saves,
    an_attack_from_one_operator_is_told_with_the_form_that_refuses_it,
);

const PAGE: &str = "/admin/access";
const ACCESS: &str = "/api/v1/admin/access";
/// In the carrier's network of the test's database, as ELSEWHERE is.
const CARRIER: &str = "100.64.0.7";
const NOBODYS: &str = "192.0.2.1";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/origins").join(name)
}

/// `[origins]` with all kinds of files, and where the list is.
fn files() -> (String, tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("tor.txt");
    std::fs::write(&list, format!("# exits\n{THERE}\n")).unwrap();
    let toml = format!(
        "[origins]\nasn = {:?}\ncountry = {:?}\nlists = [{{ name = \"tor\", file = {list:?} }}]\n",
        fixture("asn.mmdb"),
        fixture("country.mmdb")
    );
    (toml, folder, list)
}

fn deny(origins: &[&str]) -> String {
    let entry =
        |origin: &&str| format!("{{ origin = \"{origin}\", until = \"{IN_AN_HOUR}\", reason = \"a test\" }}");
    format!("[access]\ndeny = [{}]\n", origins.iter().map(entry).collect::<Vec<_>>().join(", "))
}

fn entry(origin: &str) -> Value {
    json!({ "origin": origin, "until": IN_AN_HOUR, "reason": "a test" })
}

async fn start(store: Store, more: &str) -> (TestApp, tempfile::TempDir, PathBuf) {
    let (toml, folder, list) = files();
    (TestApp::on(store).behind_a_proxy().file_more(&format!("{toml}{more}")).start().await, folder, list)
}

fn follow(app: &TestApp) {
    app.services.live.origins().follow(&app.services.live.snapshot().origins.files());
}

fn of(answer: &Answer, wanted: &str) -> bool {
    answer.text.contains(wanted)
}

async fn version(client: &Client) -> String {
    client.get(ACCESS).await.body["version"].as_str().unwrap().to_owned()
}

async fn an_origin_is_refused_and_a_known_device_of_it_is_not(store: Store) {
    for (origin, refused, free) in [
        (
            "asn:64496",
            &[THERE, "203.0.113.200", "2001:db8:7::1"][..],
            &[ELSEWHERE, "2001:db8:8::1", NOBODYS][..],
        ),
        ("country:CN", &[ELSEWHERE, "2001:db8:8::1", "64:ff9b::198.51.100.1"], &[THERE, NOBODYS, CARRIER]),
        ("list:tor", &[THERE, "::ffff:203.0.113.7", "2002:cb00:7107::1"], &["203.0.113.8", ELSEWHERE]),
    ] {
        let (app, _folder, _) = start(store, &deny(&[origin])).await;
        for address in refused {
            assert_eq!(app.client_at(address).get("/login").await.status, 403, "{origin}: {address}");
        }
        for address in free {
            assert_eq!(app.client_at(address).get("/login").await.status, 200, "{origin}: {address}");
        }
        app.advance(Duration::from_secs(3600));
        assert_eq!(app.client_at(refused[0]).get("/login").await.status, 200, "it ends");
    }
    let (app, _folder, _) = start(store, &deny(&["asn:64496", "country:FR"])).await;
    let device = owner(&app, "alice").await;
    let known = with_cookies(&app, THERE, &device);
    assert_eq!(known.login("alice", PASSWORD).await.status, 200);
    assert_eq!(known.login("bob", PASSWORD).await.problem(), "denied");
    assert_eq!(app.client_at(THERE).login("alice", PASSWORD).await.problem(), "denied");
}

#[tokio::test]
async fn an_entry_without_its_file_refuses_nobody_and_is_told() {
    let file = format!("[origins]\nasn = \"/nowhere/asn.mmdb\"\n{}", deny(&["asn:64496", "country:DE"]));
    let app = TestApp::on(Store::Memory).behind_a_proxy().file_more(&file).start().await;
    assert_eq!(app.client_at(THERE).get("/login").await.status, 200);
    let boss = app.sign_in_admin_at("boss", ELSEWHERE).await;
    let overview = boss.get("/admin").await;
    for told in [
        "Answers to an attack refuse nobody",
        "asn:64496; country:DE",
        "A file of origins cannot be read",
        "origins.asn: /nowhere/asn.mmdb cannot be read",
    ] {
        assert!(of(&overview, told), "{told}: {}", overview.text);
    }
}

#[tokio::test]
async fn files_are_followed_and_old_ones_are_told() {
    let (app, _folder, list) = start(Store::Memory, &deny(&["list:tor"])).await;
    let boss = app.sign_in_admin_at("boss", ELSEWHERE).await;
    assert!(!of(&boss.get("/admin").await, "older than 45 days"));
    std::fs::write(&list, "203.0.113.8\n203.0.113.9\n").unwrap();
    follow(&app);
    assert_eq!(app.client_at(THERE).get("/login").await.status, 200);
    assert_eq!(app.client_at("203.0.113.8").get("/login").await.status, 403);
    std::fs::write(&list, "no network\n").unwrap();
    follow(&app);
    assert_eq!(app.client_at("203.0.113.8").get("/login").await.status, 403, "what was read before");
    assert!(of(&boss.get("/admin").await, "line 1: &#34;no network&#34; is no address"));
    app.advance(Duration::from_secs(46 * 24 * 3600));
    let boss = app.client_at(ELSEWHERE);
    assert_eq!(boss.login("boss", PASSWORD).await.status, 200);
    let overview = boss.get("/admin").await;
    assert!(of(&overview, "older than 45 days") && of(&overview, "origins.asn; origins.country"));
}

/// Signs in from the operator's network, so often, and from elsewhere.
async fn honest(app: &TestApp) {
    for (login, address) in [("ann", THERE), ("ben", ELSEWHERE), ("cid", CARRIER), ("dan", NOBODYS)] {
        assert_eq!(app.client_at(address).register(login, PASSWORD).await.status, 201);
        assert_eq!(app.client_at(address).login(login, PASSWORD).await.status, 200);
    }
}

async fn the_form_says_whom_it_would_have_met_before_it_saves(store: Store) {
    let (app, _folder, _) = start(store, "").await;
    honest(&app).await;
    let boss = app.sign_in_admin_at("boss", ELSEWHERE).await;
    let told = boss.get("/api/v1/admin/origins/asn:64496").await;
    assert_eq!(told.status, 200, "{}", told.text);
    let (met, all) = (told.body["met"].as_u64().unwrap(), told.body["signed_in"].as_u64().unwrap());
    assert!(met >= 1 && all >= 5 && met * 2 < all, "{}", told.text);
    assert_eq!(told.body["name"], "AS64496 Example Hosting & Söhne");
    let counted = async |path: &str| boss.get(path).await.body["met"].as_u64().unwrap();
    assert_eq!(counted("/api/v1/admin/origins/list:tor").await, met, "a network of which a part is there");
    assert_eq!(counted("/api/v1/admin/origins/country:FR").await, 0);
    assert_eq!(boss.get("/api/v1/admin/origins/list:vpn").await.body["known"], false);
    let wrong = boss.get("/api/v1/admin/origins/asn:0").await;
    assert_eq!((wrong.status, &wrong.body["errors"][0]["field"]), (422, &json!("origin")), "{}", wrong.text);
    let words = format!("of the {all} sign-ins that succeeded in the last 24 hours, at most {met} (");
    let link = boss.get(&format!("{PAGE}?do=deny&origin=asn:64496")).await;
    assert!(of(&link, "value=\"asn:64496\"") && of(&link, &words), "{}", link.text);
    // Who types it is told first, and saves by the form that says so.
    let fields = [("do", "deny"), ("network", "asn:64496"), ("span", "3600"), ("reason", "they guess")];
    let shown = boss.submit(PAGE, PAGE, &fields).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    assert!(of(&shown, &words) && of(&shown, "name=\"told\" value=\"asn:64496\""), "{}", shown.text);
    assert!(of(&shown, "value=\"they guess\""), "what was typed is kept");
    assert_eq!(boss.get(ACCESS).await.body["deny"], json!([]));
    let other = [&fields[..], &[("told", "asn:64497")]].concat();
    assert_eq!(boss.submit(PAGE, PAGE, &other).await.status, 200, "that was about another one");
    let confirmed = [&fields[..], &[("told", "asn:64496")]].concat();
    let saved = boss.submit(PAGE, PAGE, &confirmed).await;
    assert_eq!((saved.status, saved.header("location")), (303, PAGE), "{}", saved.text);
    assert_eq!(app.client_at(THERE).get("/login").await.status, 403);
    let page = boss.get(PAGE).await;
    assert!(of(&page, "Origin refused <code>asn:64496</code>"), "{}", page.text);
    assert!(of(&page, "/admin/access?do=deny&#38;origin=asn%3A64496"), "{}", page.text);
    assert_eq!(boss.get(ACCESS).await.body["deny"][0]["origin"], "asn:64496");
    let text = std::fs::read_to_string(app.file()).unwrap();
    assert!(text.contains("{ origin = \"asn:64496\", until = "), "{text}");
    let end = [("do", "deny"), ("subject", "asn:64496"), ("was", "they guess")];
    assert_eq!(boss.submit(PAGE, "/admin/access/end", &end).await.status, 303);
    assert_eq!(app.client_at(THERE).get("/login").await.status, 200);
}

#[tokio::test]
async fn what_may_not_be_refused_is_told_at_its_field() {
    let (app, _folder, _) = start(Store::Memory, "").await;
    let boss = app.sign_in_admin_at("boss", ELSEWHERE).await;
    let seen = version(&boss).await;
    let mut wide = entry("asn:64496");
    wide["network"] = json!("203.0.113.0/24");
    for (mut body, field, told) in [
        (json!({ "deny": [entry("asn:64497")] }), "deny[0].origin", "you would refuse yourself"),
        (json!({ "deny": [entry("country:FR"), entry("country:CN")] }), "deny[1].origin", "refuse yourself"),
        (json!({ "deny": [entry("country:XX")] }), "deny[0].origin", "is no country"),
        (json!({ "deny": [entry("asn:0")] }), "deny[0].origin", "is no number of an autonomous system"),
        (json!({ "deny": [entry("list:vpn")] }), "deny[0].origin", "names no list of origins.lists"),
        (json!({ "deny": [wide] }), "deny[0].origin", "stands beside a network"),
        (json!({ "allow": [entry("asn:64496")] }), "allow[0].origin", "is for deny alone"),
    ] {
        body["reason"] = json!("r");
        let answer = boss.put(ACCESS, &seen, body.clone()).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{body}: {}", answer.text);
        assert_eq!(answer.body["errors"].as_array().unwrap().len(), 1, "{}", answer.text);
        assert_eq!(answer.body["errors"][0]["field"], field, "{body}: {}", answer.text);
        assert!(of(&answer, told), "{body}: {}", answer.text);
    }
    let fields =
        |origin| [("do", "deny"), ("network", origin), ("span", "3600"), ("reason", "r"), ("told", origin)];
    let own = boss.submit(PAGE, PAGE, &fields("asn:64497")).await;
    assert!(
        own.status == 422 && of(&own, "refuse yourself") && of(&own, "not your own origin"),
        "{}",
        own.text
    );
    let unknown = boss.submit(PAGE, PAGE, &fields("list:vpn")).await;
    assert!(unknown.status == 422 && of(&unknown, "no file in use tells such origins"), "{}", unknown.text);
    assert_eq!(version(&boss).await, seen);
}

async fn an_attack_from_one_operator_is_told_with_the_form_that_refuses_it(store: Store) {
    let (app, _folder, _) = start(store, "").await;
    let boss = app.sign_in_admin_at("boss", NOBODYS).await;
    for host in 1..=60 {
        app.client_at(&format!("100.64.{host}.7")).login(&format!("victim-{host}"), "a wrong password").await;
    }
    let page = boss.get("/admin").await;
    assert!(of(&page, "100% come from AS64497 Carrier."), "{}", page.text);
    assert!(of(&page, "/admin/access?do=deny&#38;origin=asn%3A64497"), "{}", page.text);
    assert!(of(&page, "<span class=\"soft\"><bdi>AS64497 Carrier</bdi>"), "the networks, too: {}", page.text);
    let events = boss.get("/admin/events?each=1").await;
    assert!(of(&events, "<bdi>AS64497 Carrier</bdi>"), "{}", events.text);
    let asked = boss.submit("/admin/lookup", "/admin/lookup", &[("asked", THERE)]).await;
    let found = boss.get(asked.header("location")).await;
    for told in
        ["AS64496 Example Hosting &#38; Söhne", "<bdi>DE</bdi>", "<bdi>list:tor</bdi>", "origin=asn%3A64496"]
    {
        assert!(of(&found, told), "{told}: {}", found.text);
    }
}
