//! Rules that follow the calendar. Each case runs on each store.

use std::time::Duration;

use gatehouse_limiter::clock::Micros;
use gatehouse_limiter::*;
use jiff::tz::TimeZone;

use super::acts::*;
use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MICRO: Duration = Duration::from_micros(1);

on_stores! {
    calendar_units_start_afresh
    calendar_units_follow_their_time_zone
    an_hour_that_begins_anew_ends_at_the_next_full_one
    a_month_is_as_long_as_it_is
    a_hit_of_the_next_unit_counts_in_this_one_if_the_clock_steps_back
}

fn calendar(max: u32, unit: CalendarUnit, zone: &str) -> Rule {
    Rule {
        max,
        span: RuleSpan::Calendar { unit, zone: TimeZone::get(zone).unwrap() },
        then: RuleAction::Block,
    }
}

fn at(text: &str) -> Micros {
    Micros(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
}

async fn calendar_units_start_afresh(rig: &impl Rig) {
    let limit = limit("hourly", &[calendar(3, CalendarUnit::Hour, "UTC")]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    rig.set(at("2026-03-01T13:59:00Z"));
    for _ in 0..3 {
        assert!(admitted(hit(rig, &[bucket]).await));
    }
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MINUTE);
    rig.set(at("2026-03-01T13:59:59.999999Z"));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MICRO);
    rig.set(at("2026-03-01T14:00:00Z"));
    for _ in 0..3 {
        assert!(admitted(hit(rig, &[bucket]).await), "a calendar window starts afresh");
    }
    refusal(hit(rig, &[bucket]).await);
}

async fn calendar_units_follow_their_time_zone(rig: &impl Rig) {
    let limit = limit("daily", &[calendar(1, CalendarUnit::Day, "Asia/Shanghai")]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    rig.set(at("2026-03-02T15:59:59Z"));
    assert!(admitted(hit(rig, &[bucket]).await));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, SECOND);
    rig.set(at("2026-03-02T16:00:00Z"));
    assert!(admitted(hit(rig, &[bucket]).await), "midnight in Shanghai");
}

/// Lord Howe Island puts its clocks back by half an hour.
async fn an_hour_that_begins_anew_ends_at_the_next_full_one(rig: &impl Rig) {
    let limit = limit("hourly", &[calendar(1, CalendarUnit::Hour, "Australia/Lord_Howe")]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    rig.set(at("2026-04-04T15:14:50Z"));
    assert!(admitted(hit(rig, &[bucket]).await));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, 910 * SECOND);
    rig.set(at("2026-04-04T15:30:00Z"));
    assert!(admitted(hit(rig, &[bucket]).await));
}

async fn a_month_is_as_long_as_it_is(rig: &impl Rig) {
    let limit = limit("monthly", &[calendar(3, CalendarUnit::Month, "Asia/Shanghai")]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    rig.set(at("2026-03-31T15:59:00Z"));
    for _ in 0..3 {
        assert!(admitted(hit(rig, &[bucket]).await));
    }
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MINUTE);
    rig.set(at("2026-03-31T16:00:00Z"));
    assert!(admitted(hit(rig, &[bucket]).await));
    assert_eq!(rig.limiter().peek(bucket).await.unwrap().rules[0].count, 1);
}

async fn a_hit_of_the_next_unit_counts_in_this_one_if_the_clock_steps_back(rig: &impl Rig) {
    let limit = limit("hourly", &[calendar(1, CalendarUnit::Hour, "UTC")]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    rig.set(at("2026-03-01T14:00:02Z"));
    assert!(admitted(hit(rig, &[bucket]).await));
    rig.set(at("2026-03-01T13:59:58Z"));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, 2 * SECOND);
    rig.set(at("2026-03-01T14:00:00Z"));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, 60 * MINUTE);
}

/// Otherwise the log would be deleted earlier by as much.
#[tokio::test]
async fn a_caller_whose_clock_is_ahead_has_its_hits_kept_for_the_whole_unit() {
    let rig = RedisRig::new().await;
    let limit = limit("hourly", &[calendar(2, CalendarUnit::Hour, "UTC")]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    rig.set(at("2026-03-01T13:55:00Z"));
    rig.set_server(at("2026-03-01T13:50:00Z"));
    assert!(admitted(hit(&rig, &[bucket]).await) && admitted(hit(&rig, &[bucket]).await));
    rig.set_server(at("2026-03-01T13:59:59Z"));
    assert_eq!(refusal(hit(&rig, &[bucket]).await).retry_after, SECOND);
}

/// The server is asked again with the unit that it is in.
#[tokio::test]
async fn a_caller_whose_clock_is_wrong_is_told_the_servers_unit() {
    let rig = RedisRig::new().await;
    let limit = limit("hourly", &[calendar(2, CalendarUnit::Hour, "UTC"), sliding(9, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let counts =
        |state: &LogPeek| (state.holds, state.rules.iter().map(|rule| rule.count).collect::<Vec<_>>());
    rig.set(at("2026-03-01T13:59:59Z"));
    for hour in 0..3 {
        let id = hold(&rig, bucket).await;
        // It is the next hour, and only the server knows.
        rig.set_server(at("2026-03-01T14:00:00Z").plus(60 * MINUTE * hour));
        let told = rig.store().settle(&[bucket], id, &[HoldOutcome::Keep], true).await.unwrap();
        let states = told.states.unwrap();
        assert_eq!((told.at, states.len(), counts(&states[0])), (rig.now(), 1, (0, vec![1, 1])), "{hour}");
        rig.set_server(rig.now().plus(60 * MINUTE).minus(SECOND));
        assert_eq!(counts(&rig.limiter().peek(bucket).await.unwrap()), (0, vec![1, 0]), "{hour}");
    }
}
