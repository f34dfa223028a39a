use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::Executor as _;

use super::*;

#[path = "../../tests/it/support/database.rs"]
mod database;

pub(crate) use database::TestDatabase;

/// Creates the tables of a database; see [`TestDatabase`].
async fn migrate(url: &str) {
    Db::connect(url).await.unwrap().close().await;
}

impl TestDatabase {
    pub(crate) async fn open(&self) -> Db {
        Db::connect(&self.url).await.unwrap()
    }
}

/// Each function of a database becomes a test on SQLite and one on PostgreSQL, on two threads or on one.
macro_rules! on_both_databases {
    ($($test:ident),+ $(,)?) => {
        $crate::db::tests::on_both_databases!(@[flavor = "multi_thread", worker_threads = 2] $($test)+);
    };
    (one thread: $($test:ident),+ $(,)?) => {
        $crate::db::tests::on_both_databases!(@[flavor = "current_thread"] $($test)+);
    };
    (@$flavor:tt $($test:ident)+) => {
        mod on_sqlite {
            $($crate::db::tests::on_both_databases!(@$flavor $test, TestDatabase::sqlite());)+
        }

        mod on_postgres {
            $($crate::db::tests::on_both_databases!(@$flavor $test, TestDatabase::postgres().await);)+
        }
    };
    (@[$($flavor:tt)+] $test:ident, $database:expr) => {
        #[tokio::test($($flavor)+)]
        async fn $test() {
            use $crate::db::tests::TestDatabase;
            super::$test($database).await;
        }
    };
}
pub(crate) use on_both_databases;

fn scratch() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/made/on/demand/a.db", folder.path().display());
    (folder, url)
}

#[tokio::test]
async fn a_missing_file_is_made_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, url) = scratch();
    let db = Db::connect(&url).await.unwrap();
    db.ping().await.unwrap();
    for name in ["a.db", "a.db-wal", "a.db-shm"] {
        let file = folder.path().join("made/on/demand").join(name);
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

on_both_databases!(
    a_database_is_opened_again_with_what_it_held,
    a_database_of_every_schema_since_the_first_opens,
    instances_that_start_at_once_migrate_once,
    exclusive_transactions_neither_lock_out_nor_lose_writes,
    a_transaction_that_is_dropped_has_written_nothing,
    the_time_is_a_moved_clocks_or_the_one_that_instances_share,
    foreign_keys_are_kept,
    who_waits_for_the_exclusive_lock_keeps_nobody_from_reading,
    a_burst_for_one_lock_does_not_stand_in_front_of_another,
    who_has_waited_for_the_exclusive_lock_sees_what_was_written_meanwhile,
);

async fn a_database_is_opened_again_with_what_it_held(database: TestDatabase) {
    let db = database.open().await;
    let insert = "INSERT INTO accounts (id, login, created_at) VALUES ('1', 'a', 0)";
    on_db!(&db, pool => sqlx::query(insert).execute(pool).await.map(drop)).unwrap();
    db.close().await;
    let db = database.open().await;
    let rows: i64 =
        on_db!(&db, pool => sqlx::query_scalar("SELECT COUNT(*) FROM accounts").fetch_one(pool).await)
            .unwrap();
    assert_eq!(rows, 1);
}

/// Makes a database as the version with the first `count` migrations left it, with one account. Returns false if there
/// are no more than that.
async fn leave_at(url: &str, count: usize) -> bool {
    const ACCOUNT: &str = "INSERT INTO accounts (id, login, created_at) VALUES ('1', 'a', 0)";
    let first = |database: &str| migrations(database).iter().take(count).cloned().collect::<Vec<_>>();
    let reached = if url.starts_with("sqlite") {
        let options = SqliteConnectOptions::from_str(url).unwrap().create_if_missing(true);
        let _ = std::fs::remove_file(options.get_filename());
        let mut connection = options.connect().await.unwrap();
        let made = first("sqlite");
        let reached = made.len();
        Migrator::with_migrations(made).run_direct(None, &mut connection, false).await.unwrap();
        sqlx::query(ACCOUNT).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        reached
    } else {
        let mut connection = PgConnectOptions::from_str(url).unwrap().connect().await.unwrap();
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
        let made = first("postgres");
        let reached = made.len();
        Migrator::with_migrations(made).run_direct(None, &mut connection, false).await.unwrap();
        sqlx::query(ACCOUNT).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        reached
    };
    reached == count
}

/// On PostgreSQL, where each takes seconds, it is every fifth.
async fn a_database_of_every_schema_since_the_first_opens(database: TestDatabase) {
    let step = if database.url.starts_with("sqlite") { 1 } else { 5 };
    let mut count = 1;
    while leave_at(&database.url, count).await {
        let db = database.open().await;
        let sql = "SELECT COUNT(*) FROM accounts WHERE login = 'a' AND disabled_at IS NULL";
        let found: i64 = on_db!(&db, pool => sqlx::query_scalar(sql).fetch_one(pool).await).unwrap();
        assert_eq!(found, 1, "after {count} migrations");
        db.close().await;
        count += step;
    }
    assert!(count > 40, "{count}");
}

async fn instances_that_start_at_once_migrate_once(database: TestDatabase) {
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let url = database.url.clone();
            tokio::spawn(async move { Db::connect(&url).await.map(drop) })
        })
        .collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn each_database_in_memory_is_its_own() {
    let (one, other) =
        (Db::connect("sqlite::memory:").await.unwrap(), Db::connect("sqlite::memory:").await.unwrap());
    let insert = "INSERT INTO accounts (id, login, created_at) VALUES ('1', 'a', 0)";
    on_db!(&one, pool => sqlx::query(insert).execute(pool).await.map(drop)).unwrap();
    on_db!(&other, pool => sqlx::query(insert).execute(pool).await.map(drop)).unwrap();
}

async fn exclusive_transactions_neither_lock_out_nor_lose_writes(database: TestDatabase) {
    let db = database.open().await;
    let count = "SELECT COUNT(*) FROM accounts";
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut tx = db.begin_exclusive(DbLock::on("test")).await.unwrap();
                let rows: i64 =
                    on_tx!(&mut tx, connection => sqlx::query_scalar(count).fetch_one(connection).await)
                        .unwrap();
                let insert = "INSERT INTO accounts (id, login, created_at) VALUES ($1, $1, 0)";
                execute!(in &mut tx => sqlx::query(insert).bind(rows.to_string())).unwrap();
                tx.commit().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let rows: i64 = on_db!(&db, pool => sqlx::query_scalar(count).fetch_one(pool).await).unwrap();
    assert_eq!(rows, 100);
}

async fn a_transaction_that_is_dropped_has_written_nothing(database: TestDatabase) {
    let db = database.open().await;
    let insert = "INSERT INTO accounts (id, login, created_at) VALUES ('1', 'a', 0)";
    let mut tx = db.begin_exclusive(DbLock::on("test")).await.unwrap();
    execute!(in &mut tx => sqlx::query(insert)).unwrap();
    drop(tx);
    on_db!(&db, pool => sqlx::query(insert).execute(pool).await.map(drop)).unwrap();
    let again: Result<(), sqlx::Error> =
        on_db!(&db, pool => sqlx::query(insert).execute(pool).await.map(drop));
    assert!(DbError::from(again.unwrap_err()).is_unique_violation());
}

async fn the_time_is_a_moved_clocks_or_the_one_that_instances_share(database: TestDatabase) {
    let db = database.open().await;
    let mut tx = db.begin_exclusive(DbLock::on("test")).await.unwrap();
    let moved = Clock::manual(Micros(5));
    assert_eq!((tx.now(&moved).await.unwrap(), tx.now(&moved).await.unwrap()), (Micros(5), Micros(5)));
    let first = tx.now(&Clock::System).await.unwrap();
    let mut second = first;
    for _ in 0..1000 {
        second = tx.now(&Clock::System).await.unwrap();
    }
    assert!(first < second, "the moment of asking, not of the transaction: {first:?}");
    drop(tx);
    let (third, ours) = (db.now(&Clock::System).await.unwrap(), Clock::System.now());
    assert!(second <= third && ours.since(third).max(third.since(ours)) < Duration::from_secs(60));
    assert_eq!(db.now(&moved).await.unwrap(), Micros(5));
}

async fn foreign_keys_are_kept(database: TestDatabase) {
    let db = database.open().await;
    let orphan =
        "INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent) VALUES ('1', 'x', 0, '', '')";
    assert!(on_db!(&db, pool => sqlx::query(orphan).execute(pool).await.map(drop)).is_err());
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_repeating_it() {
    for url in ["mysql://gatehouse:hunter2@db/x", "data/gatehouse.db", "", "postgres://u:hunter2@:x/y"] {
        let error = Db::connect(url).await.unwrap_err().to_string();
        assert!(error.starts_with("database.url: "), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

async fn who_waits_for_the_exclusive_lock_keeps_nobody_from_reading(database: TestDatabase) {
    let db = database.open().await;
    let held = db.begin_exclusive(DbLock::on("test")).await.unwrap();
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let db = db.clone();
            tokio::spawn(async move {
                db.begin_exclusive(DbLock::on("test")).await.unwrap().commit().await.unwrap()
            })
        })
        .collect();
    for _ in 0..50 {
        tokio::task::yield_now().await;
        db.ping().await.unwrap();
    }
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    held.commit().await.unwrap();
    for waits in waiting {
        waits.await.unwrap();
    }
}

async fn a_burst_for_one_lock_does_not_stand_in_front_of_another(database: TestDatabase) {
    let db = database.open().await;
    let held = db.begin_exclusive(DbLock::on("burst")).await.unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let ask = |lock| {
        let (db, served) = (db.clone(), Arc::clone(&served));
        tokio::spawn(async move {
            let tx = db.begin_exclusive(lock).await.unwrap();
            let before = served.fetch_add(1, Ordering::SeqCst);
            tx.commit().await.unwrap();
            before
        })
    };
    let burst: Vec<_> = (0..30).map(|_| ask(DbLock::on("burst"))).collect();
    tokio::task::yield_now().await;
    let quiet = ask(DbLock::on("quiet"));
    // So that it has asked before the first of them is served: the pools wait by the clock of the machine.
    tokio::time::sleep(Duration::from_millis(200)).await;
    held.commit().await.unwrap();
    let before = quiet.await.unwrap();
    assert!(before < 10, "{before} of the burst came first");
    for one in burst {
        one.await.unwrap();
    }
}

async fn who_has_waited_for_the_exclusive_lock_sees_what_was_written_meanwhile(database: TestDatabase) {
    let one = database.open().await;
    if let Db::Postgres(pools) = &one {
        // The strictest default that an owner may have set; it applies to connections made later.
        let url = url::Url::parse(&database.url).unwrap();
        let name = url.path().trim_start_matches('/');
        let strict = format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'");
        sqlx::query(sqlx::AssertSqlSafe(strict)).execute(&pools.all).await.unwrap();
    }
    let (one, other) = (database.open().await, database.open().await);
    let mut first = one.begin_exclusive(DbLock::on("test")).await.unwrap();
    let second = tokio::spawn(async move {
        let mut second = other.begin_exclusive(DbLock::on("test")).await.unwrap();
        const COUNT: &str = "SELECT COUNT(*) FROM accounts";
        on_tx!(&mut second, connection => sqlx::query_scalar::<_, i64>(COUNT).fetch_one(connection).await)
            .unwrap()
    });
    tokio::task::yield_now().await;
    const INSERT: &str = "INSERT INTO accounts (id, login, created_at) VALUES ('1', 'a', 0)";
    execute!(in &mut first => sqlx::query(INSERT)).unwrap();
    // The other asks for the lock while this one has it: a separate process, which our clock does not move.
    tokio::time::sleep(Duration::from_millis(200)).await;
    first.commit().await.unwrap();
    assert_eq!(second.await.unwrap(), 1);
}

const SETUP: &str = "CREATE TEMP VIEW IF NOT EXISTS made (id, login) AS SELECT NULL, NULL;
    CREATE TEMP TRIGGER IF NOT EXISTS make INSTEAD OF INSERT ON made BEGIN
        INSERT INTO accounts (id, login, created_at) VALUES (NEW.id, NEW.login, 0);
        INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent) VALUES (NEW.login, NEW.id, 0, '', '');
    END";
const MAKE: &str = "INSERT INTO made VALUES ($1, $2) RETURNING (SELECT login FROM accounts WHERE id = $1)";

#[tokio::test]
async fn a_write_that_fails_half_way_undoes_what_it_did_and_the_next_one_goes_on() {
    for url in [scratch().1, "sqlite::memory:".to_owned()] {
        let db = Db::connect(&url).await.unwrap();
        let Db::Sqlite(pools) = &db else { unreachable!("opened as SQLite") };
        let make = |id, login| pools.write::<String>(SETUP, sqlx::query_scalar(MAKE).bind(id).bind(login));
        assert_eq!(make("1", "a").await.unwrap(), ["a"]);
        // The second table has this key already, so the first insertion is rolled back.
        const TAKEN: &str = "INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent)
            VALUES ('b', '1', 0, '', '')";
        sqlx::query(TAKEN).execute(&pools.all).await.unwrap();
        assert!(make("2", "b").await.unwrap_err().is_unique_violation());
        assert_eq!(make("3", "c").await.unwrap(), ["c"]);
        let login = sqlx::query_as::<_, (String,)>("SELECT login FROM accounts WHERE id = $1");
        assert_eq!(pools.read(login.bind("2")).await.unwrap(), None);
        let logins: Vec<String> =
            sqlx::query_scalar("SELECT login FROM accounts ORDER BY id").fetch_all(&pools.all).await.unwrap();
        assert_eq!(logins, ["a", "c"], "seen by other connections: committed");
    }
}

#[tokio::test]
async fn whoever_goes_away_leaves_a_write_whole_or_not_begun() {
    let (_folder, url) = scratch();
    let db = Db::connect(&url).await.unwrap();
    let Db::Sqlite(pools) = &db else { unreachable!("opened as SQLite") };
    let make =
        |name: String| pools.write::<String>(SETUP, sqlx::query_scalar(MAKE).bind(name.clone()).bind(name));
    for turn in 0..50 {
        let write = make(format!("gone {turn}"));
        let patience = async {
            for _ in 0..turn % 5 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            done = write => assert_eq!(done.unwrap().len(), 1),
            () = patience => {}
        }
    }
    assert_eq!(make("last".to_owned()).await.unwrap(), ["last"]);
    let count = |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&pools.all);
    let accounts = count("SELECT COUNT(*) FROM accounts").await.unwrap();
    assert_eq!(accounts, count("SELECT COUNT(*) FROM sign_ins").await.unwrap());
}

/// A reader whose caller was dropped must not answer the next caller with the earlier result.
#[tokio::test]
async fn whoever_goes_away_leaves_no_answer_to_the_next_question() {
    let (_folder, url) = scratch();
    let db = Db::connect(&url).await.unwrap();
    let Db::Sqlite(pools) = &db else { unreachable!("opened as SQLite") };
    for turn in 0..50i64 {
        let ask = |number: i64| pools.read(sqlx::query_as::<_, (i64,)>("SELECT $1").bind(number));
        tokio::select! {
            biased;
            _ = ask(-turn) => {}
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(ask(turn).await.unwrap(), Some((turn,)));
    }
}

/// What an administrator has set for everybody, or for our role: what we need is set when a session is opened, and what
/// is theirs remains.
#[tokio::test]
async fn an_administrators_defaults_spoil_no_session() {
    const HOSTILE: [(&str, &str); 13] = [
        ("default_transaction_isolation", "serializable"),
        ("standard_conforming_strings", "off"),
        ("lock_timeout", "1ms"),
        ("idle_in_transaction_session_timeout", "1ms"),
        ("synchronous_commit", "off"),
        ("DateStyle", "German"),
        ("IntervalStyle", "iso_8601"),
        ("TimeZone", "Asia/Shanghai"),
        ("client_encoding", "LATIN1"),
        ("extra_float_digits", "-15"),
        ("bytea_output", "escape"),
        ("statement_timeout", "20s"),
        ("idle_session_timeout", "20s"),
    ];
    let database = TestDatabase::postgres().await;
    let before = database.open().await;
    let Db::Postgres(pools) = &before else { unreachable!("it is PostgreSQL") };
    let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&pools.all).await.unwrap();
    for (setting, value) in HOSTILE {
        let sql = format!("ALTER DATABASE {name} SET {setting} = '{value}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pools.all).await.unwrap();
    }
    let db = database.open().await;
    let Db::Postgres(pools) = &db else { unreachable!("it is PostgreSQL") };
    let shown = async |pool: &Pool<Postgres>, setting: &str| -> String {
        sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting.to_owned())
            .fetch_one(pool)
            .await
            .unwrap()
    };
    for (pool, patience, durable) in [(&pools.all, "5s", "off"), (&pools.exclusive, "1s", "on")] {
        for (setting, value) in [
            ("default_transaction_isolation", "read committed"),
            ("standard_conforming_strings", "on"),
            ("lock_timeout", patience),
            ("idle_in_transaction_session_timeout", "5s"),
            ("synchronous_commit", durable),
            ("DateStyle", "ISO, MDY"),
            ("TimeZone", "UTC"),
            ("client_encoding", "UTF8"),
            ("extra_float_digits", "2"),
            ("statement_timeout", "20s"),
        ] {
            assert_eq!(shown(pool, setting).await, value, "{setting}");
        }
    }
    let mut tx = db.begin_exclusive(DbLock::on("test")).await.unwrap();
    assert!(tx.now(&Clock::System).await.unwrap() > Micros(0));
    tx.commit().await.unwrap();
    let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pools.all).await.unwrap();
    let refused = Db::connect(&database.url).await.unwrap_err().to_string();
    assert!(refused.contains("default_transaction_read_only is on"), "{refused}");
}
