//! Fills a new database as a large installation would have left it: the same for the same seed, but for the time at
//! which it ends. How to run it: benches/README.md.
#![expect(clippy::disallowed_methods, reason = "how long it takes is printed, and it ends now")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gatehouse::db::Db;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection, query, query_as};

/// Rows of one statement.
const BATCH: i64 = 100_000;
const DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// `$1` to `$2` are the numbers of the rows, `$3` is the time at which it ends, `$4` the seed, `$5` the number of accounts
/// and `$6` that of the table's rows. `a` to `d` are below 999,983, and look like chance. Both databases read this alike.
const NUMBERS: &str = "WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2),
    chance AS (SELECT i, CAST($3 AS BIGINT) AS ends, CAST($5 AS BIGINT) AS people, CAST($6 AS BIGINT) AS rows_all,
        (i * 7919 + CAST($4 AS BIGINT) * 15485863 + 1) % 1000003 * 48271 % 999983 AS a,
        (i * 104729 + CAST($4 AS BIGINT) * 32452843 + 2) % 1000003 * 69621 % 999983 AS b,
        (i * 15487 + CAST($4 AS BIGINT) * 49979687 + 3) % 1000003 * 40692 % 999983 AS c,
        (i * 86028 + CAST($4 AS BIGINT) * 67867967 + 4) % 1000003 * 16807 % 999983 AS d FROM n)";

/// 32 digits, which look like an id.
macro_rules! id {
    ($number:literal) => {
        concat!(
            "CAST(1000000000000000 + (",
            $number,
            ") * 48271000003 % 999999999989 AS TEXT)
            || CAST(2000000000000000 + (",
            $number,
            ") AS TEXT)"
        )
    };
}
/// A name of three syllables and a number.
const LOGIN: &str =
    "substr('adabelcaldandorelafayginhalivajoekimleamaxnoaolaperquiroysue', CAST(a % 20 * 3 + 1 AS INTEGER), 3)
    || substr('linsonleytonmanwaykerbertanainaoraeliuraetanilus', CAST(b % 16 * 3 + 1 AS INTEGER), 3)
    || substr('linsonleytonmanwaykerbertanainaoraeliuraetanilus', CAST(c % 16 * 3 + 1 AS INTEGER), 3) || CAST(i AS TEXT)";

struct Table {
    name: &'static str,
    columns: &'static str,
    /// Of each number; `WHERE` included.
    rows: String,
    count: i64,
}

/// A tenth of the accounts is in one to three of 60 groups; one of 50 is disabled, one of 500 deleted; 20 administrate.
fn tables(accounts: i64, events: i64, messages: i64) -> Vec<Table> {
    let table = |name, columns, rows: String, count| Table { name, columns, rows, count };
    vec![
        table(
            "accounts",
            "id, login, password_hash, admin, must_change_password, created_at, phone, phone_since, disabled_at, deleted_at",
            format!(
                "SELECT {}, {LOGIN}, CASE WHEN d % 500 = 1 THEN NULL ELSE '$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g' END,
                CASE WHEN i * 20 / people <> (i + 1) * 20 / people AND d % 500 <> 1 THEN 1 ELSE 0 END,
                CASE WHEN d % 97 = 2 THEN 1 ELSE 0 END, ends - {DAY} * 730 / rows_all * (rows_all - i),
                CASE WHEN b % 3 = 0 AND d % 500 <> 1 THEN '+861' || CAST(3000000000 + i AS TEXT) END,
                CASE WHEN b % 3 = 0 AND d % 500 <> 1 THEN ends - {DAY} * 730 / rows_all * (rows_all - i) END,
                CASE WHEN d % 500 = 1 OR d % 50 = 3 THEN ends - {DAY} * (a % 30) END,
                CASE WHEN d % 500 = 1 THEN ends - {DAY} * (a % 30) END FROM chance",
                id!("i")
            ),
            accounts,
        ),
        table(
            "account_groups",
            "account, names",
            format!(
                "SELECT {}, CASE b % 3 WHEN 0 THEN 'staff' WHEN 1 THEN 'g-' || CAST(10 + a % 20 AS TEXT) || ',staff'
                ELSE 'g-' || CAST(10 + a % 20 AS TEXT) || ',g-' || CAST(30 + c % 40 AS TEXT) || ',staff' END
                FROM chance WHERE i % 10 = 7 AND d % 500 <> 1",
                id!("i")
            ),
            accounts,
        ),
        table(
            "sign_ins",
            "id, account, signed_in_at, network, user_agent",
            format!(
                "SELECT {}, {}, ends - {DAY} * 90 / rows_all * (rows_all - i), '198.51.100.0/24',
                'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' FROM chance",
                id!("i"),
                id!("a * 1009 % people")
            ),
            accounts * 3 / 2,
        ),
        table(
            "events",
            "at, id, until_at, count, action, outcome, name, limit_name, rule, noted, solved, account_key, address_key,
            network_key, phone_key, prefix_key, account_mask, address_mask, phone_mask, request",
            format!(
                "SELECT at, i, at + CASE WHEN k < 70 THEN 90000 ELSE 0 END, CASE WHEN k BETWEEN 85 AND 89 THEN 20 ELSE 1 END,
                CASE WHEN k < 90 THEN 'sign-in' WHEN k < 95 THEN 'send' WHEN k < 99 THEN 'guess' ELSE 'register' END,
                CASE WHEN k < 55 THEN 'ok' WHEN k < 85 THEN 'wrong' WHEN k < 90 THEN 'challenged' WHEN k < 95 THEN 'ok'
                    WHEN k < 97 THEN 'wrong' ELSE 'ok' END, CASE WHEN k BETWEEN 90 AND 98 THEN 'login' END,
                CASE WHEN k BETWEEN 85 AND 89 THEN 'login-account' END, CASE WHEN k BETWEEN 85 AND 89 THEN 0 END,
                CASE WHEN i % 1000 = 5 THEN 1 ELSE 0 END, CASE WHEN i % 9 = 0 THEN 1 ELSE 0 END,
                CASE WHEN k < 90 THEN CASE WHEN k >= 80 THEN b % 100 ELSE b * 1009 % people END * 2654435761 END,
                (c % 50000) * 2246822519, (c % 50000 / 16) * 3266489917, CASE WHEN k BETWEEN 90 AND 98 THEN b * 668265263 END,
                CASE WHEN k BETWEEN 90 AND 94 THEN b / 500 * 374761393 END, CASE WHEN k < 90 THEN 'ad…' END,
                '198.51.' || CAST(c % 50000 / 256 AS TEXT) || '.0/24',
                CASE WHEN k BETWEEN 90 AND 98 THEN '+86138' || CAST(1000 + b % 9000 AS TEXT) || '****' END, {}
                FROM (SELECT chance.*, ends - {DAY} * 30 / rows_all * (rows_all - i) AS at, a % 100 AS k FROM chance) AS it",
                id!("i")
            ),
            events,
        ),
        table(
            "sms_messages",
            "id, created_at, phone_key, address_key, network_key, hit, block, number_range, purpose, gateway, state,
            settled_at, expires_at, entered_at, report, reported_at",
            format!(
                "SELECT {}, at, {}, {}, {}, CAST(100000000000 + i AS TEXT), '+86138' || CAST(1000 + b % 9000 AS TEXT),
                '+86138' || CAST(10 + b % 9000 / 100 AS TEXT), CASE c % 3 WHEN 0 THEN 'login' WHEN 1 THEN 'register' ELSE 'reset' END,
                'primary', CASE WHEN d % 50 = 0 THEN 'refused' WHEN d % 50 = 1 THEN 'unknown' ELSE 'accepted' END,
                at + 400000, at + 300000000, CASE WHEN d % 50 > 9 THEN at + 20000000 END,
                CASE WHEN d % 50 > 2 THEN 'delivered' END, CASE WHEN d % 50 > 2 THEN at + 5000000 END
                FROM (SELECT chance.*, ends - {DAY} * 30 / rows_all * (rows_all - i) AS at FROM chance) AS it",
                id!("i"),
                id!("b"),
                id!("c % 50000"),
                id!("c % 5000")
            ),
            messages,
        ),
    ]
}

/// What the record of events adds up as it goes: in which table, by spans of how many microseconds.
const COUNTS: [(&str, u64); 2] = [("event_counts", 60_000_000), ("event_quarters", 15 * 60_000_000)];

/// Without its indexes a table is filled in a fraction of the time; afterwards each is made from sorted rows.
macro_rules! fill {
    ($connection:expr, $indexes:expr, $tables:expr, $seed:expr, $accounts:expr) => {{
        let ends = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as i64;
        for Table { name, columns, rows, count } in $tables {
            let begun = Instant::now();
            let indexes: Vec<(String, String)> =
                query_as($indexes).bind(name).fetch_all(&mut $connection).await.expect("indexes");
            for (index, _) in &indexes {
                let drop = format!("DROP INDEX {index}");
                query(AssertSqlSafe(drop)).execute(&mut $connection).await.expect("dropped");
            }
            let sql = format!("INSERT INTO {name} ({columns}) {NUMBERS} {rows}");
            for first in (0..count).step_by(BATCH as usize) {
                let insert = query(AssertSqlSafe(sql.as_str())).bind(first).bind(count.min(first + BATCH));
                let insert = insert.bind(ends).bind($seed).bind($accounts).bind(count);
                insert.execute(&mut $connection).await.expect("rows");
            }
            for (_, index) in indexes {
                query(AssertSqlSafe(index)).execute(&mut $connection).await.expect("indexed");
            }
            println!("{name:<16} {count:>10}   {:>6.1} s", begun.elapsed().as_secs_f64());
        }
        for (table, span) in COUNTS {
            let what = "action, outcome, COALESCE(limit_name, ''), noted";
            let sql = format!(
                "INSERT INTO {table} (minute, action, outcome, limit_name, noted, count)
                SELECT at - at % {span}, {what}, SUM(count) FROM events GROUP BY at - at % {span}, {what}"
            );
            query(AssertSqlSafe(sql)).execute(&mut $connection).await.expect("counts");
        }
        // As the autovacuum of PostgreSQL would have; SQLite gets no statistics, as in operation.
        if $indexes == POSTGRES_INDEXES {
            query("VACUUM ANALYZE").execute(&mut $connection).await.expect("analysed");
        }
    }};
}

const SQLITE_INDEXES: &str =
    "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = $1 AND sql IS NOT NULL";
const POSTGRES_INDEXES: &str = "SELECT CAST(indexname AS TEXT), indexdef FROM pg_indexes
    WHERE tablename = $1 AND indexdef NOT LIKE 'CREATE UNIQUE%'";

#[tokio::main]
async fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(url) = given.first() else {
        println!(
            "cargo bench --bench database -- URL [seed=7] [accounts=1000000] [events=10000000] [messages=1000000]"
        );
        return;
    };
    let number = |name: &str, default: i64| {
        let value = given.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.map_or(default, |value| value.parse().expect("a number"))
    };
    let (seed, accounts) = (number("seed", 7), number("accounts", 1_000_000));
    let tables = tables(accounts, number("events", 10_000_000), number("messages", 1_000_000));
    Db::connect(url).await.expect("a database").close().await;
    if url.starts_with("sqlite") {
        let mut own = SqliteConnection::connect(url).await.expect("a connection");
        for fast in
            ["synchronous = OFF", "cache_size = -1000000", "foreign_keys = OFF", "temp_store = MEMORY"]
        {
            let pragma = format!("PRAGMA {fast}");
            query(AssertSqlSafe(pragma)).execute(&mut own).await.expect("set");
        }
        fill!(own, SQLITE_INDEXES, tables, seed, accounts);
        own.close().await.expect("closed");
    } else {
        let mut own = PgConnection::connect(url).await.expect("a connection");
        fill!(own, POSTGRES_INDEXES, tables, seed, accounts);
        own.close().await.expect("closed");
    }
}
