//! What is admitted, what is not, and what each response says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix_web::dev::{ServiceRequest, Transform, fn_service};
use actix_web::{Error, HttpResponse};
use gatehouse_limiter::clock::Clock;
use gatehouse_limiter::entropy::Entropy;
use gatehouse_limiter::middleware::RateLimit;
use gatehouse_limiter::middleware::{Denied, Outage, subject};
use gatehouse_limiter::{Limit, LimitMode, Limiter, MemoryStore, Rule, RuleAction, SubKey};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::{MINUTE, Site, a_minute, user};
use crate::throttle::rig::*;

on_stores! {
    of_two_hundred_at_once_exactly_max_pass
    a_refusal_says_how_long_and_writes_nothing
    several_limits_count_together_or_not_at_all
    two_limits_share_no_log
    the_policy_that_binds_is_told_with_when_there_is_more
    limits_that_get_one_name_later_refuse_whatever_an_outage_means
}

async fn of_two_hundred_at_once_exactly_max_pass(rig: &impl Rig) {
    let limit = limit("ten", &[a_minute(10)]);
    let site = Site::behind(RateLimit::new(rig.limiter().clone()).limit(limit, subject::everyone()));
    for round in 1..=2 {
        let statuses = site.at_once(200, "/articles").await;
        assert_eq!(statuses, [[200; 10].as_slice(), [429; 190].as_slice()].concat());
        assert_eq!(site.handled(), 10 * round, "who is refused meets no handler");
        rig.advance(MINUTE);
    }
}

async fn a_refusal_says_how_long_and_writes_nothing(rig: &impl Rig) {
    let hour = Rule::sliding(3, 60 * MINUTE, RuleAction::Block);
    let limit = limit("two", &[a_minute(2), hour]);
    let rate = RateLimit::new(rig.limiter().clone()).limit(limit.clone(), subject::everyone());
    let site = Site::behind(rate);
    let first = site.get("/articles").await;
    assert_eq!((first.status, first.header("ratelimit")), (200, "\"two\";r=1;t=60"));
    assert_eq!(first.header("ratelimit-policy"), "\"two\";q=2;w=60, \"two-2\";q=3;w=3600");
    rig.advance(Duration::from_millis(1500));
    assert_eq!(
        site.get("/articles").await.header("ratelimit"),
        "\"two\";r=0;t=59",
        "when the first one leaves"
    );
    let bucket = rig.limiter().bucket(&limit, b"");
    for _ in 0..5 {
        let refused = site.get("/articles").await;
        assert_eq!((refused.status, refused.problem()), (429, "throttled"));
        assert_eq!(refused.header("content-type"), "application/problem+json");
        assert_eq!(refused.header("retry-after"), "59", "58.5 s rounded up");
        assert_eq!(
            (&refused.body["limit"], &refused.body["retry_after_ms"]),
            (&"two".into(), &58_500.into())
        );
        assert_eq!(refused.header("ratelimit"), "\"two\";r=0;t=59");
        assert_eq!(refused.header("ratelimit-policy"), "\"two\";q=2;w=60, \"two-2\";q=3;w=3600");
        assert_eq!(rig.members(bucket), 2);
    }
    rig.advance(Duration::from_millis(58_500));
    assert_eq!(site.get("/articles").await.status, 200, "when it was told");
}

async fn several_limits_count_together_or_not_at_all(rig: &impl Rig) {
    let (each, all) = (limit("each", &[a_minute(1)]), limit("all", &[a_minute(3)]));
    let rate = RateLimit::new(rig.limiter().clone()).limit(each, user).limit(all, subject::everyone());
    let site = Site::behind(rate);
    assert_eq!(site.by("alice", "/articles").await.status, 200);
    for _ in 0..5 {
        let refused = site.by("alice", "/articles").await;
        assert_eq!((refused.status, &refused.body["limit"]), (429, &"each".into()));
    }
    assert_eq!(site.by("bob", "/articles").await.status, 200);
    assert_eq!(site.by("carol", "/articles").await.status, 200, "alice's refusals took nothing");
    let refused = site.by("dave", "/articles").await;
    assert_eq!((refused.status, &refused.body["limit"]), (429, &"all".into()));
    rig.advance(MINUTE);
    assert_eq!(site.by("dave", "/articles").await.status, 200);
}

async fn two_limits_share_no_log(rig: &impl Rig) {
    let behind = |name: &str| {
        let limit = limit(name, &[a_minute(1)]);
        Site::behind(RateLimit::new(rig.limiter().clone()).limit(limit, subject::everyone()))
    };
    let (read, write, also_write) = (behind("read"), behind("write"), behind("write"));
    assert_eq!(read.get("/articles").await.status, 200);
    assert_eq!(write.get("/articles").await.status, 200);
    assert_eq!(also_write.get("/articles").await.status, 429, "by the same name it is the same log");
}

async fn the_policy_that_binds_is_told_with_when_there_is_more(rig: &impl Rig) {
    let hour = Rule::sliding(3, 60 * MINUTE, RuleAction::Block);
    let (two, all) = (limit("two", &[a_minute(2), hour]), limit("all", &[a_minute(9)]));
    let rate = RateLimit::new(rig.limiter().clone()).limit(all, subject::everyone());
    let site = Site::behind(rate.limit(two, subject::everyone()));
    let mut told = Vec::new();
    for wait in [0, 1500, 60_000, 500, 1_000] {
        rig.advance(Duration::from_millis(wait));
        let answer = site.get("/articles").await;
        assert!(answer.header("ratelimit-policy").ends_with("\"two\";q=2;w=60, \"two-2\";q=3;w=3600"));
        told.push(answer.header("ratelimit").to_owned());
    }
    let expected = [
        "\"two\";r=1;t=60",
        "\"two\";r=0;t=59",
        // 61.5 s: both of before have left the minute, but not the hour.
        "\"two-2\";r=0;t=3539",
        "\"two-2\";r=0;t=3538",
        "\"two-2\";r=0;t=3537",
    ];
    assert_eq!(told, expected);
}

/// A mistake of the program is no outage.
async fn limits_that_get_one_name_later_refuse_whatever_an_outage_means(rig: &impl Rig) {
    let later = Arc::new(AtomicU32::new(0));
    let now = Arc::clone(&later);
    let other = move || match now.load(Ordering::SeqCst) {
        0 => limit("other", &[a_minute(2)]),
        _ => limit("two", &[a_minute(9)]),
    };
    let two = limit("two", &[a_minute(2)]);
    let rate = RateLimit::new(rig.limiter().clone()).limit(two.clone(), subject::everyone());
    let rate = rate.limit(other, subject::everyone()).on_outage(Outage::Admit);
    let sites = [rate.clone(), rate.count_when(|_| true)].map(Site::behind);
    assert_eq!(sites[0].get("/articles").await.status, 200);
    later.store(1, Ordering::SeqCst);
    for site in &sites {
        let refused = site.get("/articles").await;
        assert_eq!((refused.status, refused.problem()), (503, "unavailable"));
    }
    assert_eq!(rig.members(rig.limiter().bucket(&two, b"")), 1);
}

#[tokio::test]
#[should_panic(expected = "two limits are named \"api\"")]
async fn two_limits_of_one_name_are_refused_at_once() {
    let rig = MemoryRig::new().await;
    let rate =
        RateLimit::new(rig.limiter().clone()).limit(limit("api", &[a_minute(10)]), subject::everyone());
    let hour = Rule::sliding(100, 60 * MINUTE, RuleAction::Block);
    let _ = rate.limit(limit("api", &[hour]), subject::everyone());
}

#[tokio::test]
async fn a_rule_that_leads_to_a_captcha_refuses_too() {
    let rig = MemoryRig::new().await;
    let asks = Rule::sliding(1, MINUTE, RuleAction::Captcha);
    let rate = RateLimit::new(rig.limiter().clone());
    let site = Site::behind(rate.limit(limit("asks", &[asks, a_minute(5)]), subject::everyone()));
    assert_eq!(site.get("/articles").await.status, 200);
    let refused = site.get("/articles").await;
    assert_eq!((refused.status, refused.problem(), refused.header("retry-after")), (429, "throttled", "60"));
}

#[tokio::test]
async fn a_limit_that_watches_or_has_no_rules_refuses_nobody() {
    let rig = MemoryRig::new().await;
    let watching = Limit::new("watching", vec![a_minute(1)], LimitMode::Monitor).unwrap();
    let rate = RateLimit::new(rig.limiter().clone()).limit(watching, subject::everyone());
    let site = Site::behind(rate.limit(limit("off", &[]), subject::everyone()));
    for _ in 0..3 {
        let answer = site.get("/articles").await;
        assert_eq!((answer.status, answer.header("ratelimit-policy")), (200, ""), "nothing is enforced");
    }
}

/// As if the limits were reloaded while the application runs.
#[tokio::test]
async fn a_limit_that_changes_is_in_force_at_the_next_request_and_keeps_its_hits() {
    let rig = MemoryRig::new().await;
    let max = Arc::new(AtomicU32::new(2));
    let now = Arc::clone(&max);
    let in_force = move || limit("changing", &[a_minute(now.load(Ordering::SeqCst))]);
    let site = Site::behind(RateLimit::new(rig.limiter().clone()).limit(in_force, subject::everyone()));
    assert_eq!(site.at_once(3, "/articles").await, [200, 200, 429]);
    max.store(3, Ordering::SeqCst);
    assert_eq!(site.at_once(3, "/articles").await, [200, 429, 429]);
    max.store(1, Ordering::SeqCst);
    assert_eq!(site.get("/articles").await.status, 429);
}

#[tokio::test]
async fn an_answer_of_ones_own_is_told_with_how_long_to_wait() {
    let rig = MemoryRig::new().await;
    let rate = RateLimit::new(rig.limiter().clone()).limit(limit("one", &[a_minute(1)]), subject::everyone());
    let rate = rate.denied_response(|request, denied| match denied {
        Denied::Full { limit, .. } => {
            HttpResponse::Found().insert_header(("location", format!("/wait-for-{}", limit.name()))).finish()
        }
        Denied::Busy | Denied::Unavailable => panic!("{} at {}", "in memory", request.path()),
    });
    let site = Site::behind(rate);
    site.get("/articles").await;
    let http = crate::support::answer::http().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let refused = http.get(format!("{}/articles", site.url)).send().await.unwrap();
    let header = |name: &str| refused.headers()[name].to_str().unwrap();
    assert_eq!((refused.status().as_u16(), header("location")), (302, "/wait-for-one"));
    assert_eq!((header("retry-after"), header("ratelimit")), ("60", "\"one\";r=0;t=60"));
}

#[tokio::test]
#[should_panic(expected = "at most 8 limits")]
async fn more_limits_than_one_step_spans_are_refused_at_once() {
    let rig = MemoryRig::new().await;
    let mut rate = RateLimit::new(rig.limiter().clone());
    for number in 0..9 {
        rate = rate.limit(limit(&format!("limit-{number}"), &[a_minute(1)]), subject::everyone());
    }
}

#[test]
fn a_middleware_says_what_its_metrics_are() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (key, store) = (SubKey::random(&Entropy::Os), MemoryStore::new(Clock::System));
    let rate = RateLimit::new(Limiter::new(store, key, &Entropy::Os));
    let service = fn_service(|request: ServiceRequest| async move {
        Ok::<_, Error>(request.into_response(HttpResponse::Ok().finish()))
    });
    let names = ["gatehouse_rate_limit_refusals_total", "gatehouse_store_errors_total"];
    metrics::with_local_recorder(&recorder, || {
        drop(rate.new_transform(service));
        names.into_iter().for_each(|name| metrics::counter!(name).increment(0));
    });
    let shown = recorder.handle().render();
    assert!(names.iter().all(|name| shown.contains(&format!("# HELP {name} "))), "{shown}");
}
