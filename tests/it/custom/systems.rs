//! Systems that people build on a counting store, without their usual flaws.

use std::time::Duration;

use super::start;
use crate::support::app::{Store, on_both_stores};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

on_both_stores!(
    three_a_calendar_month_start_afresh_with_the_month_and_three_in_a_month_do_not,
    five_replies_a_second_and_hammering_gets_all_that_is_due,
    a_user_and_an_action_are_limited_apart_from_every_other,
    participants_of_an_address_are_counted_and_told_when_the_next_place_frees,
);

/// A calendar month against a sliding one. It is noon of 1 March in London and 8 in the evening in Shanghai.
async fn three_a_calendar_month_start_afresh_with_the_month_and_three_in_a_month_do_not(store: Store) {
    let toml = "[limits.custom.leave-campus]\nrules = [{ max = 3, per = \"month\", timezone = \"Asia/Shanghai\" }]\n\
        [limits.custom.leave]\nrules = [{ max = 3, window = \"31d\" }]\n";
    let (app, _, program) = start(store, toml).await;
    // The last minute of March in Shanghai.
    app.advance(30 * DAY + 4 * 60 * MINUTE - MINUTE);
    for limit in ["leave-campus", "leave"] {
        for left in [2, 1, 0] {
            assert_eq!(program.reserve(limit, "zhang.san").await.body["remaining"], left, "{limit}");
        }
        assert_eq!(program.reserve(limit, "zhang.san").await.status, 429, "{limit}");
    }
    let full = program.peek("leave-campus", "zhang.san").await;
    assert_eq!((&full["allowed"], &full["retry_after_ms"]), (&false.into(), &60_000.into()));
    assert_eq!(full["rules"][0]["per"], "month");
    app.advance(MINUTE);
    for _ in 0..3 {
        assert_eq!(program.reserve("leave-campus", "zhang.san").await.status, 200, "another month");
    }
    assert_eq!(program.reserve("leave-campus", "zhang.san").await.status, 429);
    assert_eq!(program.reserve("leave", "zhang.san").await.status, 429, "not so where the window slides");
    app.advance(31 * DAY - MINUTE);
    assert_eq!(program.reserve("leave", "zhang.san").await.status, 200);
}

/// `isActionAllow`, which recorded refusals too, so that somebody who kept trying was never let in.
async fn five_replies_a_second_and_hammering_gets_all_that_is_due(store: Store) {
    let toml = "[limits.custom.reply]\nrules = [{ max = 5, window = \"1s\" }]\n";
    let (app, _, program) = start(store, toml).await;
    let mut admitted = Vec::new();
    for step in 0..150 {
        let answer = program.reserve("reply", "user 7").await;
        match answer.status {
            200 => admitted.push(step * 20),
            429 => {
                let due = admitted[admitted.len() - 5] + 1000 - step * 20;
                assert_eq!(answer.body["retry_after_ms"], due);
            }
            other => panic!("{other}: {}", answer.text),
        }
        app.advance(Duration::from_millis(20));
    }
    let due: Vec<i32> =
        [0, 1000, 2000].iter().flat_map(|second| (0..5).map(move |n| second + 20 * n)).collect();
    assert_eq!(admitted, due, "five in every second, at the moment they are due");
}

/// `@RateLimit(period, threshold)` per user and endpoint, checked and then added.
async fn a_user_and_an_action_are_limited_apart_from_every_other(store: Store) {
    let toml = "[limits.custom.endpoint]\nrules = [{ max = 10, window = \"1m\" }]\n";
    let (app, _, program) = start(store, toml).await;
    assert_eq!(program.admitted_at_once("endpoint", "user 7 POST /articles", 100).await, 10);
    for other in ["user 8 POST /articles", "user 7 POST /comments", "user 7 POST /articles "] {
        assert_eq!(program.reserve("endpoint", other).await.body["remaining"], 9, "{other}");
    }
    assert_eq!(program.reserve("endpoint", "user 7 POST /articles").await.status, 429);
    app.advance(MINUTE);
    assert_eq!(program.admitted_at_once("endpoint", "user 7 POST /articles", 100).await, 10);
}

/// Participations from one address: the count, and the true time until there is room again.
async fn participants_of_an_address_are_counted_and_told_when_the_next_place_frees(store: Store) {
    let toml = "[limits.custom.raffle]\nrules = [{ max = 3, window = \"1h\" }]\n";
    let (app, _, program) = start(store, toml).await;
    let address = "203.0.113.77";
    let told = async || {
        let peek = program.peek("raffle", address).await;
        let number = |name: &str| peek[name].as_i64().unwrap();
        (peek["allowed"] == true, number("count"), number("remaining"), number("retry_after_ms"))
    };
    assert_eq!(told().await, (true, 0, 3, 0));
    for count in 1..=3 {
        assert_eq!(program.reserve("raffle", address).await.status, 200);
        assert_eq!(told().await.1, count);
        app.advance(10 * MINUTE);
    }
    assert_eq!(told().await, (false, 3, 0, 30 * 60 * 1000), "until the first of them is an hour old");
    let refused = program.reserve("raffle", address).await;
    assert_eq!((refused.status, &refused.body["retry_after"]), (429, &1800.into()));
    app.advance(30 * MINUTE - Duration::from_micros(1));
    assert_eq!(told().await, (false, 3, 0, 1), "rounded up");
    app.advance(Duration::from_micros(1));
    assert_eq!(told().await, (true, 2, 1, 0));
    assert_eq!(program.reserve("raffle", address).await.status, 200);
    app.advance(10 * MINUTE - SECOND);
    assert_eq!(told().await, (false, 3, 0, 1000));
}
