//! Proofs of work at sign-in and in front of other forms: bound as images are, given to everyone who is asked for one,
//! and counted when they are answered.

use std::time::Duration;

use gatehouse::accounts::{Roles, Username};
use serde_json::{Value, json};

use super::challenged;
use crate::access::IN_AN_HOUR;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::proof::{encoded, solution, solve, solve_by_npm};
use crate::support::setup::{Setup, max};

const WRONG: &str = "a wrong password";

on_both_stores!(
    a_solution_is_good_once,
    of_two_hundred_parallel_uses_of_one_solution_one_gets_past,
    a_solution_is_good_for_its_address_browser_and_form_only,
    a_solution_that_was_changed_or_is_late_is_refused,
    a_wrong_key_counts_as_a_failure_of_the_address,
    a_solution_is_good_once_after_a_restart_too,
    a_thousand_challenges_taken_at_an_address_leave_its_neighbours_theirs,
    who_pays_for_all_of_an_address_makes_it_dear_and_shuts_nobody_out,
    a_page_takes_it_instead_of_the_letters,
);

fn offering(store: Store) -> Setup {
    TestApp::on(store).set("captcha.proof_of_work", true)
}

/// A fresh challenge of the login.
async fn challenge(client: &Client) -> Value {
    let answer = client.call("/captcha", json!({})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.body["altcha"].clone()
}

async fn with_proof(client: &Client, solution: &str) -> Answer {
    let captcha = json!({ "altcha": solution });
    client.call("/login", json!({ "login": "alice", "password": PASSWORD, "captcha": captcha })).await
}

fn assert_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.problem()), (403, "captcha-invalid"), "{}", answer.text);
    assert!(answer.body["captcha"]["altcha"]["signature"].is_string(), "with a fresh challenge");
}

async fn a_solution_is_good_once(store: Store) {
    let app = challenged(offering(store)).await;
    let client = app.client();
    let asked = client.login("alice", PASSWORD).await;
    assert_eq!(asked.problem(), "captcha-required");
    assert!(asked.body["captcha"]["image"].is_string(), "side by side");
    let solved = solve(&asked.body["captcha"]["altcha"]);
    assert_eq!(with_proof(&client, &solved).await.status, 200);
    let before = app.hashes();
    assert_refused(&with_proof(&client, &solved).await);
    // Its image took the same one answer.
    let id = asked.body["captcha"]["id"].as_str().unwrap();
    assert_refused(&client.login_with("alice", PASSWORD, id, ANSWER).await);
    assert_eq!(app.hashes(), before);
}

async fn of_two_hundred_parallel_uses_of_one_solution_one_gets_past(store: Store) {
    let app = challenged(offering(store)).await;
    // Whichever instance they come to.
    let other = match store {
        Store::Memory => None,
        Store::Redis => Some(app.beside(offering(store)).await),
    };
    let solved = solve(&challenge(&app.client()).await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let at = other.as_ref().filter(|_| number % 2 == 1).unwrap_or(&app);
        let (client, solved) = (at.client(), solved.clone());
        tasks.spawn(async move { with_proof(&client, &solved).await.status });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|status| **status == 200).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|status| **status == 403).count(), 199, "{all:?}");
}

async fn a_solution_is_good_for_its_address_browser_and_form_only(store: Store) {
    let app = challenged(offering(store).behind_a_proxy()).await;
    let (here, there) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.8"));
    let solved = solve(&challenge(&here).await);
    assert_refused(&with_proof(&there, &solved).await);
    let register = json!({ "login": "bob", "password": PASSWORD, "captcha": { "altcha": solved } });
    assert_eq!(here.call("/register", register).await.problem(), "captcha-invalid");
    assert_eq!(with_proof(&here, &solved).await.status, 200, "and none of it used it up");
    // A browser's cookie is part of what was signed.
    let browser = app.client_at("203.0.113.7");
    browser.get("/login").await;
    let solved = solve(&challenge(&browser).await);
    assert_refused(&with_proof(&app.client_at("203.0.113.7"), &solved).await);
    assert_eq!(with_proof(&browser, &solved).await.status, 200);
}

async fn a_solution_that_was_changed_or_is_late_is_refused(store: Store) {
    let app = challenged(offering(store)).await;
    let client = app.client();
    let right = solution(&challenge(&client).await);
    for (name, value) in [
        ("cost", json!(1)),
        ("cost", json!(u64::MAX)),
        ("keyPrefix", json!("0")),
        ("keyLength", json!(1)),
        ("nonce", json!("00")),
        ("salt", json!("00".repeat(1_000))),
        ("expiresAt", json!(4_000_000_000_u32)),
        ("algorithm", json!("SHA-256")),
        ("data", json!({ "id": client.challenge().await })),
    ] {
        let mut changed = right.clone();
        changed["challenge"]["parameters"][name] = value;
        assert_refused(&with_proof(&client, &encoded(&changed)).await);
    }
    for odd in ["x", "e30=", "é", &"A".repeat(9_000)] {
        assert_refused(&with_proof(&client, odd).await);
    }
    let late = solve(&challenge(&client).await);
    assert_eq!(with_proof(&client, &encoded(&right)).await.status, 200);
    app.advance(Duration::from_secs(181));
    for _ in 0..3 {
        client.login("alice", WRONG).await;
    }
    assert_refused(&with_proof(&client, &late).await);
}

async fn a_wrong_key_counts_as_a_failure_of_the_address(store: Store) {
    let setup = offering(store).limit("login-address", &[max(2).per("1h").captcha()]);
    let app = setup.start().await;
    let client = app.client();
    for _ in 0..2 {
        let mut guessed = json!({ "challenge": challenge(&client).await });
        guessed["solution"] = json!({ "counter": 1, "derivedKey": "00".repeat(32) });
        assert_refused(&with_proof(&client, &encoded(&guessed)).await);
    }
    assert_eq!(client.login("nobody", WRONG).await.problem(), "captcha-required");
}

async fn a_solution_is_good_once_after_a_restart_too(store: Store) {
    let app = challenged(offering(store)).await;
    let solved = solve(&challenge(&app.client()).await);
    assert_eq!(with_proof(&app.client(), &solved).await.status, 200);
    if store == Store::Redis {
        let restarted = app.beside(offering(store)).await;
        assert_refused(&with_proof(&restarted.client(), &solved).await);
    }
}

/// Everybody is challenged.
fn besieged(store: Store) -> Setup {
    let everybody = format!("[access]\nchallenge_everyone_until = \"{IN_AN_HOUR}\"\n");
    offering(store).behind_a_proxy().file(&everybody)
}

/// Registered before everybody was challenged.
async fn with_alice(setup: Setup) -> TestApp {
    let app = setup.start().await;
    let (login, services) = (Username::parse("alice").unwrap(), &app.services);
    let hash = services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    services.accounts.create(&login, &hash, Roles { admin: false }).await.unwrap();
    app
}

/// The challenge that comes with a refusal, and its solution.
async fn asked_and_solved(client: &Client) -> String {
    let asked = client.login("alice", PASSWORD).await;
    assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
    solve(&asked.body["captcha"]["altcha"])
}

async fn a_thousand_challenges_taken_at_an_address_leave_its_neighbours_theirs(store: Store) {
    let app = with_alice(besieged(store)).await;
    // Somebody at one address, and at thirty of a network.
    let (here, network) = ("203.0.113.7", |number: u32| format!("198.51.100.{}", number % 30));
    let takers: Vec<Client> = (0..30).map(|number| app.client_at(&network(number))).collect();
    let at_one = app.client_at(here);
    for number in 0..1_000 {
        for taker in [&at_one, &takers[number % 30]] {
            let taken = taker.call("/captcha", json!({})).await;
            assert!(taken.body["altcha"]["signature"].is_string(), "{}", taken.text);
            // Images are counted when they are drawn.
            if let Some(image) = taken.body["image"].as_str().filter(|_| number % 2 == 0) {
                taker.get(image).await;
            }
        }
    }
    for neighbour in 0..100 {
        for address in [here.to_owned(), network(neighbour)] {
            let client = app.client_at(&address);
            let asked = client.login("alice", PASSWORD).await;
            assert_eq!(asked.body["captcha"]["altcha"]["parameters"]["cost"], 5_000, "{}", asked.text);
            if neighbour % 20 == 0 {
                let solved = solve(&asked.body["captcha"]["altcha"]);
                assert_eq!(with_proof(&client, &solved).await.status, 200);
            }
        }
    }
}

async fn who_pays_for_all_of_an_address_makes_it_dear_and_shuts_nobody_out(store: Store) {
    let app = with_alice(besieged(store).limit("captcha-address", &[max(1).per("1h")])).await;
    let (payer, neighbour) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.7"));
    let cheap = asked_and_solved(&neighbour).await;
    // What was hoarded costs what it cost then.
    let mut hoard = Vec::new();
    for _ in 0..10 {
        hoard.push(asked_and_solved(&payer).await);
    }
    for solved in hoard {
        assert_eq!(with_proof(&app.client_at("203.0.113.7"), &solved).await.status, 200);
    }
    let refused = with_proof(&neighbour, &cheap).await;
    assert_refused(&refused);
    let dear = &refused.body["captcha"]["altcha"];
    assert_eq!(dear["parameters"]["cost"], 20_000);
    assert_eq!(with_proof(&neighbour, &solve(dear)).await.status, 200);
    let elsewhere = app.client_at("198.51.100.1");
    let solved = asked_and_solved(&elsewhere).await;
    assert_eq!(with_proof(&elsewhere, &solved).await.status, 200, "and elsewhere it is cheap");
    app.advance(Duration::from_secs(3_600));
    let asked = neighbour.call("/captcha", json!({})).await;
    assert_eq!(asked.body["altcha"]["parameters"]["cost"], 5_000, "for as long as the window says");
}

async fn a_page_takes_it_instead_of_the_letters(store: Store) {
    let app = challenged(offering(store)).await;
    let client = app.client();
    let page = client.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await;
    let shown = from_page(&page);
    let fields = |solved: &str| {
        let id = page.hidden("captcha_id").unwrap();
        [
            ("login", "alice".to_owned()),
            ("password", PASSWORD.to_owned()),
            ("captcha_id", id),
            ("captcha_answer", String::new()),
            ("captcha_altcha", solved.to_owned()),
        ]
    };
    let send = async |solved: &str| {
        let fields = fields(solved);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        client.submit("/login", "/login", &fields).await
    };
    let empty = send("").await;
    assert!(empty.text.contains("captcha_answer-error"), "{}", empty.text);
    let solved = send(&solve(&shown)).await;
    assert_eq!((solved.status, solved.header("location")), (303, "/account"), "{}", solved.text);
}

/// What a page asks for.
fn cost_of(page: &Answer) -> u64 {
    from_page(page)["parameters"]["cost"].as_u64().unwrap()
}

/// What a page's script is given.
fn from_page(page: &Answer) -> Value {
    let (_, rest) = page.text.split_once("data-proof=\"").unwrap_or_else(|| panic!("{}", page.text));
    let json = rest.split('"').next().unwrap().replace("&#34;", "\"");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[tokio::test]
async fn the_altcha_projects_own_solver_gets_past() {
    let app = challenged(offering(Store::Memory)).await;
    let client = app.client();
    let solved = solve_by_npm(&challenge(&client).await);
    assert_eq!(with_proof(&client, &solved).await.status, 200);
}

#[tokio::test]
async fn every_call_with_a_challenge_takes_it() {
    let setup = offering(Store::Memory)
        .limit("register-address", &[max(1).per("1h").captcha()])
        .limit("sms-address", &[max(1).per("1h").captcha()]);
    let app = challenged(setup).await;
    let client = app.client();
    let register = |captcha: Value| json!({ "login": "bob", "password": PASSWORD, "captcha": captcha });
    let asked = client.call("/register", register(Value::Null)).await;
    assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
    let solved = json!({ "altcha": solve(&asked.body["captcha"]["altcha"]) });
    assert_eq!(client.call("/register", register(solved)).await.status, 201);
    assert_eq!(client.ask_code("13900139000", "login").await.status, 202);
    let code = |captcha: Value| json!({ "phone": "13900139001", "purpose": "login", "captcha": captcha });
    let asked = client.call("/sms/codes", code(Value::Null)).await;
    let solved = json!({ "altcha": solve(&asked.body["captcha"]["altcha"]) });
    assert_eq!(client.call("/sms/codes", code(solved)).await.status, 202);
}

#[tokio::test]
async fn a_page_with_a_proof_and_no_image_says_from_when_there_is_one() {
    let setup = offering(Store::Memory).behind_a_proxy().limit("captcha-address", &[max(1).per("1m")]);
    let app = challenged(setup).await;
    let (here, there) = (app.client_at("203.0.113.7"), app.client_at("198.51.100.1"));
    let id = there.challenge().await;
    assert_eq!(here.image(&id).await.status, 200);
    let page = here.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await.text;
    assert!(page.contains("data-proof") && !page.contains("<img"), "{page}");
    let (_, rest) =
        page.split_once("There can be one from <time datetime=\"").unwrap_or_else(|| panic!("{page}"));
    assert!(rest.contains("data-clock>12:01:00 UTC</time>"), "{rest}");
}

#[tokio::test]
async fn proofs_and_images_are_counted_apart() {
    let app = challenged(offering(Store::Memory).limit("captcha-address", &[max(1).per("1m")])).await;
    let client = app.client();
    let id = client.challenge().await;
    assert_eq!(client.image(&id).await.status, 200);
    assert_eq!(client.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
    let solved = solve(&challenge(&client).await);
    assert_eq!(with_proof(&client, &solved).await.status, 200, "the image counts apart");
    assert_refused(&with_proof(&client, &solved).await);
    let metrics = client.get("/metrics").await.text;
    for (by, outcome, count) in
        [("proof", "solved", 1), ("proof", "spent", 1), ("image", "offered", 1), ("image", "solved", 1)]
    {
        let line = format!("gatehouse_captchas_total{{by=\"{by}\",outcome=\"{outcome}\"}} {count}");
        assert!(metrics.lines().any(|shown| shown == line), "no {line} in {metrics}");
    }
}

#[tokio::test]
async fn an_answer_without_its_parts_is_named() {
    let app = offering(Store::Memory).start().await;
    let client = app.client();
    for (captcha, field) in [
        (json!({}), "id"),
        (json!({ "id": "x" }), "answer"),
        (json!({ "answer": "x" }), "id"),
        (json!({ "altcha": 1 }), "body"),
    ] {
        let body = json!({ "login": "alice", "password": PASSWORD, "captcha": captcha });
        let answer = client.call("/login", body).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &json!(field)), "{captcha}");
    }
}

#[tokio::test]
async fn the_more_an_address_failed_the_dearer_it_is() {
    let everybody = format!("[access]\nchallenge_everyone_until = \"{IN_AN_HOUR}\"\n");
    let setup = offering(Store::Memory).file(&everybody);
    let app = setup.limit("login-address", &[max(3).per("1h").captcha()]).start().await;
    let client = app.client();
    let cost = async || {
        // What is known of an address is known for a second.
        app.advance(Duration::from_secs(1));
        cost_of(&client.submit("/login", "/login", &[("login", "eve"), ("password", WRONG)]).await)
    };
    let mut asked = vec![cost().await];
    for _ in 0..3 {
        let mut guessed = json!({ "challenge": challenge(&client).await });
        guessed["solution"] = json!({ "counter": 1, "derivedKey": "" });
        assert_refused(&with_proof(&client, &encoded(&guessed)).await);
        asked.push(cost().await);
    }
    assert_eq!(asked, [5_000, 10_000, 15_000, 20_000]);
}

/// Who pumps messages fails no password.
#[tokio::test]
async fn the_more_messages_an_address_asked_for_the_dearer_it_is() {
    let everybody = format!("[access]\nchallenge_everyone_until = \"{IN_AN_HOUR}\"\n");
    let setup = offering(Store::Memory).file(&everybody).without(&["sms-phone"]);
    let app = setup.limit("sms-address", &[max(3).per("1h")]).start().await;
    let client = app.client();
    let cost = async || {
        app.advance(Duration::from_secs(1));
        cost_of(&client.submit("/login/code", "/login/code", &[("phone", "+8613800138000")]).await)
    };
    assert_eq!(cost().await, 5_000);
    let body = json!({ "for": "sms" });
    let id = client.call("/captcha", body).await.body["id"].as_str().unwrap().to_owned();
    let ask =
        json!({ "phone": "+8613800138000", "purpose": "login", "captcha": { "id": id, "answer": ANSWER } });
    assert_eq!(client.call("/sms/codes", ask).await.status, 202);
    assert_eq!(cost().await, 10_000);
}

/// Images are counted when they are drawn: then a refusal brings a proof of work alone.
#[tokio::test]
async fn who_took_all_images_is_given_proofs_still() {
    let setup = offering(Store::Memory).limit("captcha-address", &[max(2).per("1m")]);
    let app = challenged(setup).await;
    let client = app.client();
    for id in [client.challenge().await, client.challenge().await] {
        assert_eq!(client.image(&id).await.status, 200);
    }
    let asked = client.login("alice", PASSWORD).await;
    assert!(asked.body["captcha"]["image"].is_null() && asked.body["captcha"]["altcha"].is_object());
    assert_eq!(client.call("/captcha", json!({})).await.status, 201);
}
