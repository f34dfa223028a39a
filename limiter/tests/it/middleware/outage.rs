//! Requests while Redis does not answer, and the hits of clients that left meanwhile.

use std::time::Duration;

use actix_web::http::StatusCode;
use gatehouse_limiter::clock::Clock;
use gatehouse_limiter::middleware::RateLimit;
use gatehouse_limiter::middleware::{Outage, subject};
use gatehouse_limiter::{Limiter, RedisStore};

use super::{Site, a_minute};
use crate::support::redis::RedisServer;
use crate::throttle::rig::{limit, limiter};

async fn over(server: &RedisServer) -> Limiter<RedisStore> {
    let store = RedisStore::new(server.client(), Duration::from_secs(5), "t", Clock::System);
    assert!(store.link().ready(Duration::from_secs(60)).await);
    limiter(store)
}

#[tokio::test]
async fn while_the_store_is_out_nothing_passes_unless_it_is_said_to() {
    let mut server = RedisServer::start();
    let limiter = over(&server).await;
    let rate = RateLimit::new(limiter).limit(limit("ten", &[a_minute(10)]), subject::everyone());
    let failing = rate.clone().count_when(|response| response.status == StatusCode::UNAUTHORIZED);
    let closed = [Site::behind(rate.clone()), Site::behind(failing.clone())];
    let open = [rate.on_outage(Outage::Admit), failing.on_outage(Outage::Admit)].map(Site::behind);
    for site in closed.iter().chain(&open) {
        assert_eq!(site.get("/articles").await.status, 200);
    }
    server.kill();
    for site in &closed {
        let refused = site.get("/articles").await;
        assert_eq!((refused.status, refused.problem()), (503, "unavailable"));
        assert_eq!((refused.header("retry-after"), refused.header("ratelimit")), ("1", ""));
        assert_eq!(site.handled(), 1);
    }
    for site in &open {
        let admitted = site.get("/articles").await;
        assert_eq!((admitted.status, admitted.header("ratelimit")), (200, ""), "nothing is known of it");
    }
}

/// Time for a request, or the end of its connection, to reach the site while the stopped server shows
/// nothing.
async fn a_moment() {
    // Sockets carry it in real time, and there is nothing to check meanwhile.
    tokio::time::sleep(Duration::from_millis(150)).await;
}

#[tokio::test]
async fn who_hangs_up_before_the_handler_was_reached_is_not_counted() {
    let server = RedisServer::start();
    let limiter = over(&server).await;
    let rate = RateLimit::new(limiter).limit(limit("one", &[a_minute(1)]), subject::everyone());
    let site = Site::behind(rate);
    server.signal("STOP");
    let stream = site.send("/articles").await;
    a_moment().await;
    stream.set_zero_linger().unwrap();
    drop(stream);
    a_moment().await;
    server.signal("CONT");
    let given_back = async {
        while server.calls("evalsha") < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), given_back).await.expect("it had asked, and gives back");
    assert_eq!(site.handled(), 0);
    assert_eq!(site.get("/articles").await.status, 200);
}
