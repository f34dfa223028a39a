mod paced;

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use sqlx::{query, query_as};

use super::*;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::db::{Db, DbLock, execute, on_db};
use crate::foundation::Foundation;

const NOON: Micros = Micros(1_772_366_400_000_000);
const HERE: EventSubject<'static> = EventSubject::Address(&[4, 203, 0, 113, 77]);

struct Rig {
    audit: Audit,
    recorder: PrometheusRecorder,
    db: Db,
    clock: Clock,
    _database: TestDatabase,
}

async fn rig(database: TestDatabase) -> Rig {
    let (db, clock) = (database.open().await, Clock::manual(NOON));
    let settings = Settings { retention: Duration::from_secs(86_400), max_rows: 10_000 };
    let recorder = PrometheusBuilder::new().build_recorder();
    let make = || Audit::new(&Foundation::keyed([1; 32], &db, &clock), settings);
    let audit = metrics::with_local_recorder(&recorder, make);
    Rig { audit, recorder, db, clock, _database: database }
}

impl Rig {
    async fn rows(&self) -> Vec<(i64, i64, i64)> {
        self.audit.flush().await;
        const SQL: &str = "SELECT at, until_at, count FROM events ORDER BY at, count";
        on_db!(&self.db, pool => query_as(SQL).fetch_all(pool).await).unwrap()
    }

    fn fate(&self, fate: &str) -> i64 {
        let lead = format!("gatehouse_audit_events_total{{fate=\"{fate}\"}} ");
        let text = self.recorder.handle().render();
        let told = text.lines().find_map(|line| line.strip_prefix(&lead));
        told.map_or(0, |number| number.parse().unwrap())
    }

    async fn sql(&self, sql: &'static str) {
        execute!(&self.db => query(sql)).unwrap();
    }
}

fn sum(rows: &[(i64, i64, i64)]) -> i64 {
    rows.iter().map(|(_, _, count)| count).sum()
}

fn refused<'a>(at: Micros, limit: &'a str, frees_at: i64) -> AuditEvent<'a> {
    let why = Some(EventRule { limit, rule: 1, frees_at: Micros(frees_at), noted: false });
    let event = AuditEvent::new(at, Action::SignIn, Outcome::Throttled);
    AuditEvent { why, address: Some(HERE), ..event }
}

fn at(seconds: u64) -> Micros {
    NOON.plus(Duration::from_secs(seconds))
}

on_both_databases!(
    what_is_admitted_is_a_row_each_and_has_both_its_times,
    refusals_by_one_hit_are_one_episode_and_another_hit_begins_another,
    what_fell_into_one_microsecond_is_in_the_order_it_was_recorded_in,
    pages_are_newest_first_and_go_on_where_the_last_one_ended,
    figures_count_attempts_and_not_rows,
    what_is_older_than_it_is_kept_goes_and_so_does_what_there_is_no_room_for,
    an_episode_is_written_when_its_time_is_over_and_goes_on_in_a_new_row,
    a_flood_from_many_addresses_on_one_account_is_few_rows,
    a_flood_on_many_accounts_from_one_address_is_few_rows,
    a_flood_of_everyone_on_everyone_takes_bounded_memory_and_no_attempt_is_lost,
    what_a_database_does_not_take_waits_within_bounds_and_the_rest_is_counted,
    a_flood_on_the_console_by_whoever_is_signed_out_is_few_rows,
    a_flood_does_not_wash_away_what_administrators_did,
    a_row_that_the_database_refuses_does_not_keep_the_others_waiting,
    a_subject_of_any_letters_is_recorded,
    who_records_does_not_wait_for_who_writes,
    what_was_written_and_not_told_so_is_written_once,
    events_are_written_without_being_asked_for,
    the_word_of_a_watching_limit_is_found_by_it_and_by_nothing_else,
    who_asks_for_what_is_not_theirs_is_counted_by_what_they_ask_for,
);

async fn what_is_admitted_is_a_row_each_and_has_both_its_times(database: TestDatabase) {
    let rig = rig(database).await;
    for second in 0..3 {
        let event = AuditEvent::new(at(second), Action::SignIn, Outcome::Wrong);
        rig.audit.record(AuditEvent { settled: Some(at(second + 1)), ..event });
    }
    let row = |second| (at(second).0, at(second + 1).0, 1);
    assert_eq!(rig.rows().await, [row(0), row(1), row(2)]);
}

async fn refusals_by_one_hit_are_one_episode_and_another_hit_begins_another(database: TestDatabase) {
    let rig = rig(database).await;
    for second in 0..5 {
        rig.audit.record(refused(at(second), "login-account", 7));
    }
    for second in 5..7 {
        rig.audit.record(refused(at(second), "login-account", 8));
    }
    assert_eq!(rig.rows().await, [(at(0).0, at(4).0, 5), (at(5).0, at(6).0, 2)]);
}

async fn what_fell_into_one_microsecond_is_in_the_order_it_was_recorded_in(database: TestDatabase) {
    let rig = rig(database).await;
    let actions =
        [Action::SignIn, Action::Register, Action::Admin, Action::Send, Action::Guess, Action::Reload];
    for action in actions {
        rig.audit.record(AuditEvent::new(NOON, action, Outcome::Ok));
    }
    rig.audit.flush().await;
    let page = rig.audit.log().page(&EventFilter::default(), None, 9).await.unwrap();
    let told: Vec<_> = page.entries.iter().rev().map(|entry| entry.action).collect();
    assert_eq!(told, actions);
}

async fn pages_are_newest_first_and_go_on_where_the_last_one_ended(database: TestDatabase) {
    let rig = rig(database).await;
    for second in 0..5 {
        let event = AuditEvent::new(at(second), Action::SignIn, Outcome::Ok);
        rig.audit.record(AuditEvent { address: Some(HERE), ..event });
    }
    rig.audit.record(AuditEvent::new(at(9), Action::Send, Outcome::Ok));
    rig.audit.flush().await;
    let subjects = [(SubjectKind::Address, rig.audit.subject(&HERE))].into();
    let here = EventFilter { subjects, ..EventFilter::default() };
    let log = rig.audit.log();
    let first = log.page(&here, None, 3).await.unwrap();
    let times = |page: &EventPage| page.entries.iter().map(|entry| entry.at).collect::<Vec<_>>();
    assert_eq!(times(&first), [at(4), at(3), at(2)]);
    let cursor = EventCursor::parse(&first.next.unwrap().to_string()).unwrap();
    let second = log.page(&here, Some(cursor), 3).await.unwrap();
    assert_eq!(times(&second), [at(1), at(0)]);
    assert_eq!(second.next, None);
    let span = EventFilter { since: Some(at(1)), until: Some(at(3)), ..here };
    assert_eq!(times(&log.page(&span, None, 9).await.unwrap()), [at(2), at(1)]);
    let shown = second.entries[0].address.clone().unwrap();
    assert_eq!(shown.mask, "203.0.113.0/24");
}

async fn figures_count_attempts_and_not_rows(database: TestDatabase) {
    let rig = rig(database).await;
    for second in 0..50 {
        rig.audit.record(refused(at(second), "login-address", 7));
    }
    for (minute, name) in [(1, "one"), (1, "two"), (6, "two")] {
        let account = Some(EventSubject::Login(name));
        let address = Some(if minute == 6 { EventSubject::Address(&[4, 9, 9, 9, 9]) } else { HERE });
        let event = AuditEvent::new(at(minute * 60), Action::SignIn, Outcome::Wrong);
        rig.audit.record(AuditEvent { account, address, ..event });
    }
    rig.audit.flush().await;
    let (log, end) = (rig.audit.log(), at(3600));
    let counts = |sums: &[EventCount]| sums.iter().map(|sum| (sum.outcome, sum.count)).collect::<Vec<_>>();
    assert_eq!(
        counts(&log.totals(NOON, end).await.unwrap()),
        [(Outcome::Throttled, 50), (Outcome::Wrong, 3)]
    );
    let series = async |start, minutes: u32, steps| {
        let steps = log.series(&StepSpan { start, step: MINUTE * minutes, steps }).await.unwrap();
        steps.iter().map(|sums| counts(sums)).collect::<Vec<_>>()
    };
    let early = vec![(Outcome::Throttled, 50), (Outcome::Wrong, 2)];
    assert_eq!(series(NOON, 5, 3).await, [early, vec![(Outcome::Wrong, 1)], vec![]]);
    let all = vec![(Outcome::Throttled, 50), (Outcome::Wrong, 3)];
    assert_eq!(series(NOON, 15, 2).await, [all.clone(), vec![]], "whole quarters");
    assert_eq!(series(NOON.minus(MINUTE), 15, 2).await, [all, vec![]], "by minutes");
    let busiest = log.busiest(NOON, 9).await.unwrap();
    let top: Vec<_> = busiest.of(SubjectKind::Account).collect();
    assert_eq!(top.iter().map(|ranked| ranked.count).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(top[0].subject.mask, "t…");
    assert_eq!(busiest.of(SubjectKind::Phone).count(), 0);
    let shared = busiest.shared.unwrap();
    assert_eq!((shared.count, shared.of, shared.accounts), (52, 53, 2));
    assert_eq!(shared.address.key, rig.audit.subject(&HERE));
    assert_eq!(log.busiest(end, 9).await.unwrap(), BusiestSubjects::default());
    assert_eq!(log.began().await.unwrap(), Some(at(0)));
}

async fn what_is_older_than_it_is_kept_goes_and_so_does_what_there_is_no_room_for(database: TestDatabase) {
    let rig = rig(database).await;
    for second in 0..10_010 {
        rig.audit.record(AuditEvent::new(at(second), Action::SignIn, Outcome::Ok));
    }
    assert_eq!(rig.rows().await.len(), 10_010);
    assert_eq!(rig.audit.purge(7).await.unwrap(), 7, "no more than the batch");
    assert_eq!(rig.audit.purge(7).await.unwrap(), 3, "no more than there is no room for");
    assert_eq!(rig.audit.purge(7).await.unwrap(), 0);
    assert_eq!(rig.rows().await[0].0, at(10).0, "the oldest go first");
    rig.clock.set(at(86_400 + 12));
    assert_eq!(rig.audit.purge(7).await.unwrap(), 2);
    assert_eq!(rig.rows().await[0].0, at(12).0);
}

async fn an_episode_is_written_when_its_time_is_over_and_goes_on_in_a_new_row(database: TestDatabase) {
    let rig = rig(database).await;
    for second in 0..25 {
        rig.clock.set(at(second));
        rig.audit.end_episodes(false);
        rig.audit.record(refused(at(second), "login-account", 7));
    }
    let rows = rig.rows().await;
    assert_eq!(rows, [(at(0).0, at(9).0, 10), (at(10).0, at(19).0, 10), (at(20).0, at(24).0, 5)]);
    assert_eq!(rig.fate("folded"), 22);
    assert_eq!(rig.fate("written"), 3);
}

async fn a_flood_from_many_addresses_on_one_account_is_few_rows(database: TestDatabase) {
    let rig = rig(database).await;
    for number in 0..20_000_u32 {
        let bytes = [&[4][..], &number.to_be_bytes()].concat();
        let address = Some(EventSubject::Address(&bytes));
        let account = Some(EventSubject::Login("alice"));
        rig.audit.record(AuditEvent { account, address, ..refused(at(0), "login-account", 7) });
    }
    let rows = rig.rows().await;
    assert_eq!((rows.len(), sum(&rows)), (65, 20_000), "64 addresses, and all others in one");
    let alice = rig.audit.subject(&EventSubject::Login("alice"));
    let busiest = rig.audit.log().busiest(NOON, 9).await.unwrap();
    let top: Vec<_> = busiest.of(SubjectKind::Account).collect();
    assert_eq!((top.len(), top[0].subject.key, top[0].count), (1, alice, 20_000));
}

async fn a_flood_on_many_accounts_from_one_address_is_few_rows(database: TestDatabase) {
    let rig = rig(database).await;
    for number in 0..20_000 {
        let name = format!("user{number}");
        rig.audit.record(AuditEvent {
            account: Some(EventSubject::Login(&name)),
            ..refused(at(0), "login-address", 7)
        });
    }
    let rows = rig.rows().await;
    assert_eq!((rows.len(), sum(&rows)), (65, 20_000));
    let busiest = rig.audit.log().busiest(NOON, 9).await.unwrap();
    let top: Vec<_> = busiest.of(SubjectKind::Address).collect();
    assert_eq!((top.len(), top[0].count), (1, 20_000));
}

async fn a_flood_of_everyone_on_everyone_takes_bounded_memory_and_no_attempt_is_lost(database: TestDatabase) {
    let rig = rig(database).await;
    for number in 0..60_000_u32 {
        let (name, bytes) = (format!("user{number}"), [&[4][..], &number.to_be_bytes()].concat());
        let (account, address) = (Some(EventSubject::Login(&name)), Some(EventSubject::Address(&bytes)));
        rig.audit.record(AuditEvent { account, address, ..refused(at(0), "login-account", 7) });
        assert!(rig.audit.held().0 <= 16 * (1024 + 1));
    }
    assert_eq!(rig.audit.held().1, 0, "no episode is over");
    rig.clock.set(at(10));
    rig.audit.end_episodes(false);
    let rows = rig.rows().await;
    assert_eq!((sum(&rows), rig.fate("dropped")), (60_000, 0));
}

async fn what_a_database_does_not_take_waits_within_bounds_and_the_rest_is_counted(database: TestDatabase) {
    let rig = rig(database).await;
    rig.sql("ALTER TABLE events RENAME TO gone").await;
    for second in 0..40_000 {
        rig.audit.record(AuditEvent::new(at(second), Action::SignIn, Outcome::Wrong));
        if second % 5_000 == 0 {
            rig.audit.flush().await;
        }
    }
    let (_, waiting) = rig.audit.held();
    let dropped = rig.fate("dropped");
    assert!(waiting <= 32_768 && dropped > 0, "{waiting} wait, {dropped} are dropped");
    rig.sql("ALTER TABLE gone RENAME TO events").await;
    let rows = rig.rows().await;
    assert_eq!((rows.len() as i64 + dropped, rig.audit.held()), (40_000, (0, 0)));
    assert_eq!(rig.fate("written"), rows.len() as i64);
}

async fn a_flood_on_the_console_by_whoever_is_signed_out_is_few_rows(database: TestDatabase) {
    let rig = rig(database).await;
    for number in 0..20_000_u32 {
        let bytes = [&[4][..], &number.to_be_bytes()].concat();
        let who = ConsoleActor { address: Some(EventSubject::Address(&bytes)), ..ConsoleActor::default() };
        rig.audit.act(
            "access",
            Outcome::Refused,
            who,
            Some(format!("{{\"path\":\"/admin/{}\"}}", number % 9)),
        );
        rig.audit.record(AuditEvent {
            detail: Some(format!("{{\"error\":\"{number}\"}}")),
            ..AuditEvent::new(at(0), Action::Reload, Outcome::Refused)
        });
    }
    let rows = rig.rows().await;
    assert_eq!(sum(&rows), 40_000);
    assert!(rows.len() <= 2 * 65, "{} rows", rows.len());
}

async fn a_flood_does_not_wash_away_what_administrators_did(database: TestDatabase) {
    let rig = rig(database).await;
    let keep = |name| rig.audit.act(name, Outcome::Ok, ConsoleActor::default(), None);
    keep("token.create");
    keep("subject.clear");
    for own in ["access", "account-export", "account-delete"] {
        keep(own);
    }
    for second in 0..10_100 {
        rig.audit.record(AuditEvent::new(at(second), Action::SignIn, Outcome::Wrong));
    }
    rig.audit.flush().await;
    while rig.audit.purge(1000).await.unwrap() == 1000 {}
    assert_eq!(rig.rows().await.len(), 10_000);
    let filter = EventFilter { actions: vec![Action::Admin], ..EventFilter::default() };
    assert_eq!(rig.audit.log().page(&filter, None, 10).await.unwrap().entries.len(), 2);
}

async fn a_row_that_the_database_refuses_does_not_keep_the_others_waiting(database: TestDatabase) {
    let rig = rig(database).await;
    rig.sql("ALTER TABLE events ADD COLUMN strict BIGINT CHECK (name <> 'forbidden')").await;
    for name in ["before", "forbidden", "behind"] {
        rig.audit
            .record(AuditEvent { name: Some(name), ..AuditEvent::new(at(0), Action::Admin, Outcome::Ok) });
    }
    assert_eq!(rig.rows().await.len(), 2);
    assert_eq!((rig.audit.held(), rig.audit.lost()), ((0, 0), 1));
    assert_eq!((rig.fate("written"), rig.fate("dropped")), (2, 1));
}

async fn a_subject_of_any_letters_is_recorded(database: TestDatabase) {
    let rig = rig(database).await;
    for name in ["\0", "\0\0\0\0\0\0\0", "\u{202e}evil"] {
        let account = Some(EventSubject::Custom(name));
        rig.audit.record(AuditEvent { account, ..AuditEvent::new(at(0), Action::Custom, Outcome::Ok) });
    }
    assert_eq!(rig.rows().await.len(), 3);
    const SQL: &str = "SELECT account_mask FROM events";
    let masks: Vec<(String,)> = on_db!(&rig.db, pool => query_as(SQL).fetch_all(pool).await).unwrap();
    assert!(masks.iter().all(|(mask,)| mask.starts_with('\u{fffd}') && !mask.contains('\0')), "{masks:?}");
}

async fn who_records_does_not_wait_for_who_writes(database: TestDatabase) {
    let rig = rig(database).await;
    let tx = rig.db.begin_exclusive(DbLock::on("test")).await.unwrap();
    rig.audit.record(AuditEvent::new(at(0), Action::SignIn, Outcome::Ok));
    let audit = rig.audit.clone();
    let flushing = tokio::spawn(async move { audit.flush().await });
    tokio::task::yield_now().await;
    for second in 1..1000 {
        rig.audit.record(AuditEvent::new(at(second), Action::SignIn, Outcome::Ok));
    }
    drop(tx);
    flushing.await.unwrap();
    assert_eq!(rig.rows().await.len(), 1000);
}

async fn what_was_written_and_not_told_so_is_written_once(database: TestDatabase) {
    let rig = rig(database).await;
    let event = AuditEvent::new(at(0), Action::SignIn, Outcome::Ok);
    let row = EventEntry::of(&event, EventKeys::default(), 7);
    for _ in 0..2 {
        rig.audit.0.writer.push(row.clone());
        rig.audit.flush().await;
    }
    assert_eq!(rig.rows().await.len(), 1);
    assert_eq!(rig.audit.log().totals(NOON, at(60)).await.unwrap()[0].count, 1);
}

async fn events_are_written_without_being_asked_for(database: TestDatabase) {
    let rig = rig(database).await;
    rig.audit.record(AuditEvent::new(at(0), Action::SignIn, Outcome::Ok));
    let stopper = crate::stop::StopSender::new();
    let writing = tokio::spawn(rig.audit.clone().keep_writing(stopper.stop()));
    let written = async {
        while rig.audit.log().page(&EventFilter::default(), None, 1).await.unwrap().entries.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("it is written");
    writing.abort();
}

async fn the_word_of_a_watching_limit_is_found_by_it_and_by_nothing_else(database: TestDatabase) {
    let rig = rig(database).await;
    let why = Some(EventRule { limit: "login-account", rule: 0, frees_at: at(9), noted: true });
    rig.audit.record(AuditEvent { why, ..AuditEvent::new(at(0), Action::SignIn, Outcome::Ok) });
    rig.audit.record(AuditEvent::new(at(1), Action::SignIn, Outcome::Ok));
    rig.audit.flush().await;
    for (noted, second) in [(true, 0), (false, 1)] {
        let filter = EventFilter { noted: Some(noted), ..EventFilter::default() };
        let page = rig.audit.log().page(&filter, None, 9).await.unwrap();
        assert_eq!(page.entries.iter().map(|entry| entry.at).collect::<Vec<_>>(), [at(second)]);
    }
}

async fn who_asks_for_what_is_not_theirs_is_counted_by_what_they_ask_for(database: TestDatabase) {
    let rig = rig(database).await;
    for path in ["limits", "events", "limits"] {
        let who = ConsoleActor {
            actor: Some("mallory"),
            account: Some(EventSubject::Login("mallory")),
            address: Some(HERE),
        };
        rig.audit.act("access", Outcome::Refused, who, Some(path.to_owned()));
    }
    rig.audit.act("limits.save", Outcome::Refused, ConsoleActor::default(), None);
    rig.audit.flush().await;
    let page = rig.audit.log().page(&EventFilter::default(), None, 9).await.unwrap();
    let mut told: Vec<_> = page.entries.iter().map(|entry| (entry.detail.as_deref(), entry.count)).collect();
    told.sort();
    assert_eq!(told, [(None, 1), (Some("events"), 1), (Some("limits"), 2)]);
}
