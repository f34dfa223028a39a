use std::time::Duration;

use sqlx::query_as;

use super::*;
use crate::db::on_db;
use crate::db::tests::TestDatabase;
use crate::secret::MasterKey;

const NOON: Micros = Micros(1_772_366_400_000_000);
const HERE: Subject<'static> = Subject::Address(&[4, 203, 0, 113, 77]);

struct Rig {
    audit: Audit,
    db: Db,
    clock: Clock,
    _database: TestDatabase,
}

async fn rig() -> Rig {
    let database = TestDatabase::new().await;
    let (db, clock) = (database.open().await, Clock::manual(NOON));
    let key = MasterKey::from_bytes([1; 32]).derive("audit.subject");
    let settings = Settings { retention: Duration::from_secs(86_400), max_rows: 10_000 };
    Rig {
        audit: Audit::new(db.clone(), clock.clone(), Entropy::Os, key, settings),
        db,
        clock,
        _database: database,
    }
}

impl Rig {
    async fn rows(&self) -> Vec<(i64, i64, i64)> {
        self.audit.flush().await;
        const SQL: &str = "SELECT at, until_at, count FROM events ORDER BY at, count";
        on_db!(&self.db, pool => query_as(SQL).fetch_all(pool).await).unwrap()
    }
}

fn refused<'a>(at: Micros, limit: &'a str, frees_at: i64) -> Event<'a> {
    let why = Why { limit, rule: 1, frees_at: Micros(frees_at), noted: false };
    Event { why: Some(why), address: Some(HERE), ..Event::new(at, Action::SignIn, Outcome::Throttled) }
}

fn at(seconds: u64) -> Micros {
    NOON.plus(Duration::from_secs(seconds))
}

#[tokio::test]
async fn what_is_admitted_is_a_row_each_and_has_both_its_times() {
    let rig = rig().await;
    for second in 0..3 {
        let settled = Some(at(second + 1));
        rig.audit.record(Event { settled, ..Event::new(at(second), Action::SignIn, Outcome::Wrong) });
    }
    let row = |second| (at(second).0, at(second + 1).0, 1);
    assert_eq!(rig.rows().await, [row(0), row(1), row(2)]);
}

#[tokio::test]
async fn refusals_by_one_hit_are_one_episode_and_another_hit_begins_another() {
    let rig = rig().await;
    for second in 0..5 {
        rig.audit.record(refused(at(second), "login-account", 7));
    }
    for second in 5..7 {
        rig.audit.record(refused(at(second), "login-account", 8));
    }
    assert_eq!(rig.rows().await, [(at(0).0, at(4).0, 5), (at(5).0, at(6).0, 2)]);
}

#[tokio::test]
async fn pages_are_newest_first_and_go_on_where_the_last_one_ended() {
    let rig = rig().await;
    for second in 0..5 {
        rig.audit
            .record(Event { address: Some(HERE), ..Event::new(at(second), Action::SignIn, Outcome::Ok) });
    }
    rig.audit.record(Event::new(at(9), Action::Send, Outcome::Ok));
    rig.audit.flush().await;
    let here = Filter { address: Some(rig.audit.subject(&HERE)), ..Filter::default() };
    let log = rig.audit.log();
    let first = log.page(&here, None, 3).await.unwrap();
    let times = |page: &Page| page.entries.iter().map(|entry| entry.at).collect::<Vec<_>>();
    assert_eq!(times(&first), [at(4), at(3), at(2)]);
    let cursor = Cursor::parse(&first.next.unwrap().to_string()).unwrap();
    let second = log.page(&here, Some(cursor), 3).await.unwrap();
    assert_eq!(times(&second), [at(1), at(0)]);
    assert_eq!(second.next, None);
    let span = Filter { since: Some(at(1)), until: Some(at(3)), ..here };
    assert_eq!(times(&log.page(&span, None, 9).await.unwrap()), [at(2), at(1)]);
    let shown = second.entries[0].address.clone().unwrap();
    assert_eq!(shown.mask, "203.0.113.0/24");
}

#[tokio::test]
async fn figures_count_attempts_and_not_rows() {
    let rig = rig().await;
    for second in 0..50 {
        rig.audit.record(refused(at(second), "login-address", 7));
    }
    for (minute, name) in [(1, "one"), (1, "two"), (6, "two")] {
        let account = Some(Subject::Login(name));
        let address = Some(if minute == 6 { Subject::Address(&[4, 9, 9, 9, 9]) } else { HERE });
        let event = Event::new(at(minute * 60), Action::SignIn, Outcome::Wrong);
        rig.audit.record(Event { account, address, ..event });
    }
    rig.audit.flush().await;
    let (log, end) = (rig.audit.log(), at(3600));
    let counts = |sums: &[Sum]| sums.iter().map(|sum| (sum.outcome, sum.count)).collect::<Vec<_>>();
    assert_eq!(
        counts(&log.totals(NOON, end).await.unwrap()),
        [(Outcome::Throttled, 50), (Outcome::Wrong, 3)]
    );
    let steps = log.series(NOON, end, 5 * MINUTE).await.unwrap();
    let told: Vec<_> = steps.iter().map(|step| (step.at, counts(&step.sums))).collect();
    assert_eq!(
        told,
        [(at(0), vec![(Outcome::Throttled, 50), (Outcome::Wrong, 2)]), (at(300), vec![(Outcome::Wrong, 1)])]
    );
    let top = log.top(SubjectKind::Account, NOON, 9).await.unwrap();
    assert_eq!(top.iter().map(|ranked| ranked.count).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(top[0].subject.mask, "t…");
    let shared = log.shared_address(NOON).await.unwrap().unwrap();
    assert_eq!((shared.count, shared.of, shared.accounts), (52, 53, 2));
    assert_eq!(shared.address.key, rig.audit.subject(&HERE));
    assert_eq!(log.shared_address(end).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_older_than_it_is_kept_goes_and_so_does_what_there_is_no_room_for() {
    let rig = rig().await;
    for second in 0..10_010 {
        rig.audit.record(Event::new(at(second), Action::SignIn, Outcome::Ok));
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
