//! Which address counts, behind a proxy and without one.

use crate::support::app::{Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    a_claimed_address_changes_nothing_without_a_trusted_proxy,
    a_trusted_proxy_tells_clients_apart,
    what_a_client_claims_left_of_what_the_proxy_says_is_ignored,
    one_customer_of_ipv6_is_one_subject,
    spellings_of_an_address_are_one_subject,
    the_forwarded_header_is_not_believed,
    clients_behind_a_translator_are_told_apart_and_have_one_budget_each,
);

async fn fail(client: &Client, account: usize) -> u16 {
    client.login(&format!("guess{account}"), "a wrong password").await.status
}

async fn behind_a_proxy(store: Store) -> TestApp {
    let proxies = "['127.0.0.1/32', '10.0.0.0/8']";
    let setup = TestApp::on(store).set("server.trusted_proxies", proxies);
    let app = setup.limit("login-address", &[max(2).per("1h")]).start().await;
    app.register("alice").await;
    app
}

async fn a_claimed_address_changes_nothing_without_a_trusted_proxy(store: Store) {
    let app = TestApp::on(store).limit("login-address", &[max(2).per("1h")]).start().await;
    for account in 0..2 {
        assert_eq!(fail(&app.client_at(&format!("203.0.113.{account}")), account).await, 401);
    }
    for claimed in ["203.0.113.9", "127.0.0.1", "::1", "10.0.0.1, 10.0.0.2", "nonsense", ""] {
        assert_eq!(fail(&app.client_at(claimed), 9).await, 429, "{claimed}");
    }
    assert_eq!(fail(&app.client_that_says(&[("x-real-ip", "203.0.113.9")]), 9).await, 429);
}

async fn a_trusted_proxy_tells_clients_apart(store: Store) {
    let app = behind_a_proxy(store).await;
    let client = app.client_at("203.0.113.7");
    assert_eq!([fail(&client, 1).await, fail(&client, 2).await, fail(&client, 3).await], [401, 401, 429]);
    let other = app.client_at("203.0.113.8");
    assert_eq!(fail(&other, 4).await, 401);
    assert_eq!(other.login("alice", PASSWORD).await.status, 200);
    assert_eq!(fail(&app.client(), 5).await, 401, "the proxy itself is someone else again");
}

async fn what_a_client_claims_left_of_what_the_proxy_says_is_ignored(store: Store) {
    let app = behind_a_proxy(store).await;
    for (account, status) in [401, 401, 429].into_iter().enumerate() {
        // An inner proxy of ours is in between; the leftmost address is made up by the client.
        let told = format!("198.51.100.{account}, 203.0.113.7, 10.1.2.3");
        assert_eq!(fail(&app.client_at(&told), account).await, status);
    }
    for told in ["10.9.9.9, 203.0.113.7", "203.0.113.7", "garbage, 203.0.113.7", "127.0.0.1,203.0.113.7"] {
        assert_eq!(fail(&app.client_at(told), 9).await, 429, "{told}");
    }
}

async fn one_customer_of_ipv6_is_one_subject(store: Store) {
    let app = behind_a_proxy(store).await;
    for (told, status) in [
        ("2001:db8:0:1::1", 401),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", 401),
        ("2001:db8:0:1:aaaa::7", 429),
        ("[2001:db8:0:1::9]:4711", 429),
        ("2001:db8:0:2::1", 401),
    ] {
        assert_eq!(fail(&app.client_at(told), 1).await, status, "{told}");
    }
}

async fn spellings_of_an_address_are_one_subject(store: Store) {
    let app = behind_a_proxy(store).await;
    for (told, status) in [
        ("203.0.113.7", 401),
        ("::ffff:203.0.113.7", 401),
        ("203.0.113.7:4711", 429),
        ("[::ffff:203.0.113.7]:4711", 429),
        (" 203.0.113.7 ,", 429),
    ] {
        assert_eq!(fail(&app.client_at(told), 1).await, status, "{told}");
    }
}

async fn the_forwarded_header_is_not_believed(store: Store) {
    let app = behind_a_proxy(store).await;
    for (account, status) in [401, 401, 429].into_iter().enumerate() {
        let forwarded = format!("for=203.0.113.{account}");
        assert_eq!(fail(&app.client_that_says(&[("forwarded", &forwarded)]), account).await, status);
    }
}

/// NAT64 by the well-known prefix and by one of the installation, 6to4 and Teredo: each as the IPv4 address inside.
async fn clients_behind_a_translator_are_told_apart_and_have_one_budget_each(store: Store) {
    let setup = TestApp::on(store).behind_a_proxy().limit("login-address", &[max(2).per("1h")]);
    let prefixes = "['64:ff9b::/96', '2001:db8:64::/48']";
    let app = setup.set("server.nat64", prefixes).start().await;
    for (number, spelling) in ["64:ff9b::cb00:7109", "2002:cb00:7109:2::1"].into_iter().enumerate() {
        assert_eq!(fail(&app.client_at(spelling), number).await, 401, "{spelling}");
    }
    for spelling in [
        "203.0.113.9",
        "64:ff9b::203.0.113.9",
        "2001:db8:64:cb00:71:900::",
        "2002:cb00:7109::1",
        "2002:cb00:7109:ffff::1",
        "2001:0:4136:e378:8000:63bf:34ff:8ef6",
    ] {
        assert_eq!(fail(&app.client_at(spelling), 9).await, 429, "{spelling}");
    }
    let neighbours =
        ["64:ff9b::cb00:710a", "2001:db8:64:cb00:71:b00::", "2001:0:4136:e378:8000:63bf:34ff:8ef0"];
    // What is private is inside many.
    for (number, neighbour) in neighbours.into_iter().chain(["64:ff9b::a00:1"]).enumerate() {
        assert_eq!(fail(&app.client_at(neighbour), 10 + number).await, 401, "{neighbour}");
    }
}
