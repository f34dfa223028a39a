//! The subjects of requests.

use actix_web::error::ErrorUnauthorized;
use actix_web::http::header::HeaderName;
use gatehouse_limiter::middleware::subject;
use gatehouse_limiter::middleware::{RateLimit, TrustedProxies};

use super::{Site, a_minute, user};
use crate::throttle::rig::*;

on_stores! {
    a_user_and_an_endpoint_are_limited_apart_from_every_other
    huge_and_odd_subjects_are_subjects_like_others
}

/// `@RateLimit(period, threshold)` per user and address of a handler.
async fn a_user_and_an_endpoint_are_limited_apart_from_every_other(rig: &impl Rig) {
    let subject = subject::both(user, subject::endpoint());
    let site =
        Site::behind(RateLimit::new(rig.limiter().clone()).limit(limit("each", &[a_minute(1)]), subject));
    assert_eq!(site.by("alice", "/articles").await.status, 200);
    assert_eq!(site.by("bob", "/articles").await.status, 200, "another user");
    assert_eq!(site.by("alice", "/articles/7").await.status, 200, "another endpoint");
    for again in ["/articles", "/%61rticles", "/articles?page=2", "/articles/8", "/articles/%37"] {
        assert_eq!(site.by("alice", again).await.status, 429, "{again}");
    }
    let request = site.http.request("BREW".parse().unwrap(), format!("{}/articles", site.url));
    let answer = request.header("x-user", "alice").send().await.unwrap();
    assert_eq!(answer.status(), 429, "the handler takes any method, and is one");
    assert_eq!(site.by("alice", "/no/where").await.status, 404);
    assert_eq!(site.by("alice", "/nor/here").await.status, 429, "what leads nowhere is one");
}

async fn huge_and_odd_subjects_are_subjects_like_others(rig: &impl Rig) {
    let header = subject::header(HeaderName::from_static("x-user"));
    let site =
        Site::behind(RateLimit::new(rig.limiter().clone()).limit(limit("each", &[a_minute(1)]), header));
    let huge = vec![b'x'; 30_000];
    let mut other = huge.clone();
    other[29_999] = b'y';
    let odd: [&[u8]; 6] = [&huge, &other, b"", b"\xff\xfe", "中文".as_bytes(), b"a\tb"];
    for subject in odd {
        assert_eq!(site.ask("/articles", &[("x-user", subject)]).await.status, 200, "{subject:?}");
        assert_eq!(site.ask("/articles", &[("x-user", subject)]).await.status, 429, "{subject:?}");
    }
    for status in [200, 429] {
        let two = site.ask("/articles", &[("x-user", b"ab"), ("x-user", b"c")]).await;
        assert_eq!(two.status, status);
        let other_two = site.ask("/articles", &[("x-user", b"a"), ("x-user", b"bc")]).await;
        assert_eq!(other_two.status, status, "no subject is spelt from the parts of another");
        assert_eq!(site.get("/articles").await.status, status, "all without it are one");
    }
}

#[tokio::test]
async fn a_path_is_the_same_however_it_is_spelt() {
    let rig = MemoryRig::new().await;
    let rate = RateLimit::new(rig.limiter().clone()).limit(limit("each", &[a_minute(1)]), subject::path());
    let site = Site::behind(rate);
    assert_eq!(site.get("/articles/7").await.status, 200);
    assert_eq!(site.get("/articles/8").await.status, 200);
    for again in ["/articles/%37", "/%61rticles/8", "/articles/7?x"] {
        assert_eq!(site.get(again).await.status, 429, "{again}");
    }
}

#[tokio::test]
async fn who_has_no_subject_is_not_limited_and_an_error_is_the_answer() {
    let rig = MemoryRig::new().await;
    let rate = RateLimit::new(rig.limiter().clone());
    let rate = rate.limit(limit("each", &[a_minute(1)]), |request| match user(request)? {
        Some(name) if name == b"banned" => Err(ErrorUnauthorized("sign in")),
        other => Ok(other),
    });
    let site = Site::behind(rate);
    for _ in 0..3 {
        let answer = site.get("/articles").await;
        assert_eq!((answer.status, answer.header("ratelimit-policy")), (200, ""));
        let answer = site.by("banned", "/articles").await;
        assert_eq!((answer.status, answer.text.as_str()), (401, "sign in"));
    }
    assert_eq!(site.handled(), 3);
}

#[tokio::test]
async fn an_address_is_believed_from_a_trusted_proxy_only() {
    let rig = MemoryRig::new().await;
    let behind = |name: &str, proxies: TrustedProxies| {
        let limit = limit(name, &[a_minute(1)]);
        Site::behind(RateLimit::new(rig.limiter().clone()).limit(limit, subject::client_address(proxies)))
    };
    let trusting = behind("trusting", TrustedProxies::new(["127.0.0.0/8".parse().unwrap()]));
    let from = async |site: &Site, address: &str| {
        site.ask("/articles", &[("x-forwarded-for", address.as_bytes())]).await.status
    };
    for (address, status) in [
        ("203.0.113.7", 200),
        ("203.0.113.8", 200),
        ("198.51.100.1, 203.0.113.7", 429),
        ("2001:db8::1", 200),
        ("2001:db8::2", 429),
    ] {
        assert_eq!(from(&trusting, address).await, status, "{address}");
    }
    let alone = behind("alone", TrustedProxies::default());
    assert_eq!((from(&alone, "203.0.113.7").await, from(&alone, "203.0.113.9").await), (200, 429));
}
