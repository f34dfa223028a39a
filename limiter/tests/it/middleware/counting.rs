//! Requests that count depending on their response.

use actix_web::http::StatusCode;
use gatehouse_limiter::WindowStore;
use gatehouse_limiter::middleware::RateLimit;
use gatehouse_limiter::middleware::subject;

use super::{MINUTE, Site, a_minute};
use crate::throttle::rig::*;

on_stores! {
    only_what_fails_counts
    no_more_fail_at_once_than_one_after_another
    any_number_succeed_at_once
    who_hangs_up_before_the_answer_is_counted
    who_waits_longer_than_may_be_is_told_to_come_back
    what_counts_at_once_does_not_wait_for_what_may_count
}

fn failures<S: WindowStore + 'static>(rig: &impl Rig<Store = S>, max: u32) -> RateLimit<S> {
    RateLimit::new(rig.limiter().clone())
        .limit(limit("failures", &[a_minute(max)]), subject::everyone())
        .count_when(|response| response.status == StatusCode::UNAUTHORIZED)
        // A request that waits in vain shows as a test that hangs.
        .patience(60 * MINUTE)
}

async fn only_what_fails_counts(rig: &impl Rig) {
    let site = Site::behind(failures(rig, 2));
    for status in [200, 401, 200, 404, 500, 401] {
        assert_eq!(site.get(&format!("/articles?status={status}")).await.status, status);
    }
    assert_eq!(site.get("/articles").await.status, 429, "it may fail; so it is not tried");
    assert_eq!(site.handled(), 6);
    rig.advance(MINUTE);
    assert_eq!(site.get("/articles").await.status, 200);
}

async fn no_more_fail_at_once_than_one_after_another(rig: &impl Rig) {
    let site = Site::behind(failures(rig, 3));
    let statuses = site.at_once(200, "/articles?status=401").await;
    assert_eq!(statuses, [[401; 3].as_slice(), [429; 197].as_slice()].concat());
    assert_eq!(site.handled(), 3);
}

async fn any_number_succeed_at_once(rig: &impl Rig) {
    let site = Site::behind(failures(rig, 3));
    assert_eq!(site.at_once(100, "/articles").await, [200; 100]);
    let bucket = limit("failures", &[a_minute(3)]);
    assert_eq!(rig.members(rig.limiter().bucket(&bucket, b"")), 0, "and leave nothing behind");
}

async fn who_hangs_up_before_the_answer_is_counted(rig: &impl Rig) {
    let site = Site::behind(failures(rig, 1));
    let stream = site.send("/slow").await;
    site.until_handled(1).await;
    let next = site.get("/articles");
    stream.set_zero_linger().unwrap(); // a reset, as whoever aborts sends
    drop(stream);
    assert_eq!(next.await.status, 429, "it waited for that one to end, and it ended as a failure");
    assert_eq!(site.handled(), 1);
}

async fn who_waits_longer_than_may_be_is_told_to_come_back(rig: &impl Rig) {
    let site = Site::behind(failures(rig, 1).patience(std::time::Duration::from_millis(20)));
    let _stream = site.send("/slow").await;
    site.until_handled(1).await;
    let told = site.get("/articles").await;
    assert_eq!((told.status, told.problem(), told.header("retry-after")), (503, "busy", "1"));
    site.state.let_go.add_permits(1);
}

async fn what_counts_at_once_does_not_wait_for_what_may_count(rig: &impl Rig) {
    let site = Site::behind(failures(rig, 1));
    let every = RateLimit::new(rig.limiter().clone());
    let beside = Site::behind(every.limit(limit("failures", &[a_minute(1)]), subject::everyone()));
    let _stream = site.send("/slow").await;
    site.until_handled(1).await;
    let told = beside.get("/articles").await;
    assert_eq!(
        (told.status, told.problem(), beside.handled()),
        (503, "busy", 0),
        "whether there is room is open"
    );
    site.state.let_go.add_permits(1);
}
