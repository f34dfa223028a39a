use std::time::Duration;

use sqlx::query_as;

use super::*;
use crate::clock::Micros;
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
