//! Wrong passwords in the database, as long as a window may count them: the windows of sign-ins are rebuilt
//! from them, and they decide while the window store is out. Each is written before its attempt is answered.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatehouse_limiter::{HitId, KeptHit, OwnedBucket, SubjectKey};
use sqlx::{query, query_as, query_scalar};

use super::counting::OWN;
use crate::login::guess::{Guess, REMEMBERED_FOR};

use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, execute, on_db, traced};

/// An instance without a sign of life for this long is not counted; it gives one every 5 s.
const LIVE_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

#[derive(Debug)]
pub struct FailureRecord {
    db: Db,
    clock: Clock,
}

/// A wrong password, and the logs that contain it. Keys are keyed hashes, also for names without an account.
pub struct RecordedFailure {
    pub kept: KeptHit,
    pub logs: Vec<(String, SubjectKey)>,
}

impl FailureRecord {
    pub const fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// This process's clock, for what is not counted.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Fails if the database is known to refuse writes.
    pub fn writable(&self) -> Result<(), DbError> {
        if self.db.is_writable() { Ok(()) } else { Err(sqlx::Error::PoolTimedOut.into()) }
    }

    pub async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    /// Writes a failure in these logs, its own first, with the database's time, and remembers the guess. Returns whether
    /// its source made the same one before: then it is in the others only. Once: a program may tell the end of an attempt
    /// again.
    pub async fn write(
        &self,
        hit: HitId,
        buckets: &[OwnedBucket],
        guess: Option<Guess>,
    ) -> Result<bool, DbError> {
        let own = text(&buckets[OWN].key.0);
        let log = |bucket: &OwnedBucket| format!("{}:{}", bucket.limit.name(), text(&bucket.key.0));
        let logs: Vec<_> = buckets.iter().map(log).collect();
        let now = self.clock.now().0;
        macro_rules! row {
            ($sql:expr, $now:expr) => {
                query_scalar($sql)
                    .bind($now)
                    .bind(text(&hit.0))
                    .bind(own)
                    .bind(logs.join(" "))
                    .bind(logs[OWN + 1..].join(" "))
                    .bind(guess.map(|guess| guess.source.slot()))
                    .bind(guess.map(|guess| guess.source.hash()))
                    .bind(guess.map(|guess| guess.tag.to_string()))
            };
        }
        let repeat: Vec<i64> = match &self.db {
            Db::Postgres(pools) => {
                let now = matches!(self.clock, Clock::Manual(_)).then_some(now);
                let pool = pools.reachable()?;
                traced!("postgresql", row!(POSTGRES, now).fetch_all(pool).await)?
            }
            Db::Sqlite(pools) => traced!("sqlite", pools.write(SQLITE_SETUP, row!(SQLITE, now)).await)?,
        };
        Ok(repeat.first().is_some_and(|repeat| *repeat != 0))
    }

    /// The times of the newest failures of an account's or a device's log after `from`, newest first, at most `most`: of
    /// new guesses, or also of those that came again.
    pub async fn newest(
        &self,
        own: SubjectKey,
        from: Micros,
        most: u32,
        again: bool,
    ) -> Result<Vec<Micros>, DbError> {
        const SQL: &str = "SELECT at FROM failed_attempts WHERE own = $1 AND at > $2 AND repeat <= $4
            ORDER BY at DESC LIMIT $3";
        let times: Vec<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(text(&own.0)).bind(from.0)
            .bind(i64::from(most)).bind(i64::from(again)).fetch_all(pool).await)?;
        Ok(times.into_iter().map(Micros).collect())
    }

    /// Failures later than `from`, newest first: those that follow `last`.
    pub async fn page(
        &self,
        from: Micros,
        last: Option<KeptHit>,
        most: u32,
    ) -> Result<Vec<RecordedFailure>, DbError> {
        const SQL: &str = "SELECT at, hit, logs FROM failed_attempts WHERE at > $1 AND (at, hit) < ($2, $3)
            ORDER BY at DESC, hit DESC LIMIT $4";
        let (at, hit) = last.map_or((i64::MAX, String::new()), |last| (last.at.0, text(&last.id.0)));
        let rows: Vec<(i64, String, String)> = on_db!(&self.db, pool => query_as(SQL).bind(from.0)
            .bind(at).bind(&hit).bind(i64::from(most)).fetch_all(pool).await)?;
        Ok(rows.into_iter().map(parse).collect::<Result<_, _>>()?)
    }

    /// Deletes the failures of an account's or a device's log: its owner has proved who they are, or was let
    /// in again.
    pub async fn forget(&self, own: SubjectKey) -> Result<(), DbError> {
        const SQL: &str = "DELETE FROM failed_attempts WHERE own = $1";
        execute!(&self.db => query(SQL).bind(text(&own.0)))?;
        Ok(())
    }

    /// Deletes the failures of a shared log that an administrator cleared.
    pub async fn forget_shared(&self, limit: &str, key: SubjectKey) -> Result<(), DbError> {
        const SQL: &str = "UPDATE failed_attempts SET logs = REPLACE(logs, $1, '') WHERE logs LIKE $2";
        // Neither a limit's name nor base64url contains %; a _ matches itself, too.
        let log = format!("{limit}:{}", text(&key.0));
        execute!(&self.db => query(SQL).bind(&log).bind(format!("%{log}%")))?;
        Ok(())
    }

    /// Deletes at most `batch` failures from before that time, those of second factors from before another; returns how
    /// many.
    pub async fn purge(&self, before: Micros, of_factors: Micros, batch: u32) -> Result<u64, DbError> {
        const SQL: &str =
            "DELETE FROM failed_attempts WHERE (at, hit) IN (SELECT at, hit FROM failed_attempts
            WHERE at <= $1 AND (at <= $2 OR logs NOT LIKE 'factor-%') ORDER BY at LIMIT $3)";
        Ok(execute!(&self.db => query(SQL).bind(before.0).bind(of_factors.0).bind(i64::from(batch)))?)
    }

    /// Deletes at most `batch` guesses that are remembered no longer, or beyond the most that are; returns how many.
    pub async fn purge_guesses(&self, batch: u32) -> Result<u64, DbError> {
        // Asked apart: SQLite has one writer, and this may look at a million rows.
        const BEYOND: &str = "SELECT at FROM guesses ORDER BY at DESC LIMIT 1 OFFSET $1";
        const SQL: &str = "DELETE FROM guesses WHERE (own, slot) IN (SELECT own, slot FROM guesses
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        let beyond: Option<i64> = on_db!(&self.db, pool => query_scalar(BEYOND).bind(MOST_GUESSES)
            .fetch_optional(pool).await)?;
        let before = self.now().await?.minus(REMEMBERED_FOR).0.max(beyond.unwrap_or(i64::MIN));
        Ok(execute!(&self.db => query(SQL).bind(before).bind(i64::from(batch)))?)
    }

    pub async fn live_instances(&self, now: Micros) -> Result<u32, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM instances WHERE seen_at > $1";
        let since = now.minus(LIVE_WITHIN).0;
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(since).fetch_one(pool).await)?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX).max(1))
    }
}

/// The most sources of guesses that are remembered, some 120 bytes each: whoever spends hashes on names without end must
/// not fill the database.
const MOST_GUESSES: i64 = 1_000_000;

const _: () = assert!(REMEMBERED_FOR.as_micros() == 2_592_000_000_000);

/// Whether the row of `guesses` belongs to the source of the new guess, which is still remembered.
macro_rules! is_of_source {
    () => {
        "guesses.source = excluded.source AND guesses.at > excluded.at - 2592000000000"
    };
}
/// Whether that row has the new guess already.
macro_rules! is_known {
    () => {
        concat!(is_of_source!(), " AND guesses.tags LIKE '%' || excluded.tags || '%'")
    };
}
/// Changes the row by the new guess: it keeps the last three of its source, in 18 letters.
macro_rules! remembered {
    () => {
        concat!(
            "ON CONFLICT (own, slot) DO UPDATE SET
            repeats = CASE WHEN guesses.hit = excluded.hit THEN guesses.repeats
                WHEN ",
            is_known!(),
            " THEN guesses.repeats + 1 ELSE 0 END,
            tags = CASE WHEN ",
            is_known!(),
            " THEN guesses.tags
                WHEN ",
            is_of_source!(),
            " THEN SUBSTR(excluded.tags || guesses.tags, 1, 18) ELSE excluded.tags END,
            source = excluded.source, at = excluded.at, hit = excluded.hit"
        )
    };
}

// $1 now, $2 hit, $3 own, $4 all logs, $5 those without its own, $6 slot, $7 source, $8 tag. They return whether it was the
// same guess again, as it was told first.
const POSTGRES: &str = concat!(
    "WITH failure AS (SELECT COALESCE($1, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)) AS at
        WHERE NOT EXISTS (SELECT 1 FROM failed_attempts WHERE own = $3 AND hit = $2)),
    guess AS (INSERT INTO guesses (own, slot, source, tags, repeats, at, hit)
        SELECT CAST($3 AS TEXT), CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($8 AS TEXT), 0, at,
            CAST($2 AS TEXT) FROM failure
        WHERE CAST($6 AS BIGINT) IS NOT NULL ",
    remembered!(),
    " RETURNING repeats),
    written AS (INSERT INTO failed_attempts (at, hit, own, logs, repeat)
        SELECT f.at, CAST($2 AS TEXT), CAST($3 AS TEXT),
            CASE WHEN g.repeats > 0 THEN CAST($5 AS TEXT) ELSE CAST($4 AS TEXT) END,
            CASE WHEN g.repeats > 0 THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END
        FROM failure f LEFT JOIN guess g ON TRUE ON CONFLICT DO NOTHING RETURNING repeat)
    SELECT repeat FROM written
    UNION ALL SELECT repeat FROM failed_attempts WHERE own = $3 AND hit = $2"
);
/// One insertion for two tables: SQLite's statements change one.
const SQLITE_SETUP: &str = concat!(
    "CREATE TEMP VIEW IF NOT EXISTS failure (at, hit, own, logs, others, slot, source, tags)
        AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
    CREATE TEMP TRIGGER IF NOT EXISTS do_fail INSTEAD OF INSERT ON failure
        WHEN NOT EXISTS (SELECT 1 FROM failed_attempts WHERE own = NEW.own AND hit = NEW.hit) BEGIN
        INSERT INTO guesses (own, slot, source, tags, repeats, at, hit)
            SELECT NEW.own, NEW.slot, NEW.source, NEW.tags, 0, NEW.at, NEW.hit WHERE NEW.slot IS NOT NULL ",
    remembered!(),
    ";
        INSERT INTO failed_attempts (at, hit, own, logs, repeat)
            SELECT NEW.at, NEW.hit, NEW.own, CASE WHEN repeat = 1 THEN NEW.others ELSE NEW.logs END, repeat
            FROM (SELECT EXISTS (SELECT 1 FROM guesses WHERE own = NEW.own AND slot = NEW.slot AND repeats > 0)
                AS repeat) WHERE TRUE ON CONFLICT DO NOTHING;
    END"
);
const SQLITE: &str = "INSERT INTO failure (at, hit, own, logs, others, slot, source, tags)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    RETURNING (SELECT repeat FROM failed_attempts WHERE own = $3 AND hit = $2)";

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], sqlx::Error> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| sqlx::Error::Decode("a column holds a key of the wrong length".into()))
}

fn parse((at, hit, logs): (i64, String, String)) -> Result<RecordedFailure, sqlx::Error> {
    let log = |log: &str| match log.split_once(':') {
        Some((limit, key)) => Ok((limit.to_owned(), SubjectKey(bytes(key)?))),
        None => Err(sqlx::Error::Decode("a column holds a log without a key".into())),
    };
    let logs = logs.split_whitespace().map(log).collect::<Result<_, _>>()?;
    Ok(RecordedFailure { kept: KeptHit { at: Micros(at), id: HitId(bytes(&hit)?) }, logs })
}

#[cfg(test)]
mod tests;
