//! The table of attacks: each statement decides for all instances at once.

use sqlx::{query, query_as};

use super::AttackEntry;
use super::figures::AttackFigures;
use super::traffic::WatchedTraffic;
use crate::clock::Micros;
use crate::db::{Db, DbError, on_db};

const SHOWN: &str = "id, kind, realm, began_at, seen_at, ended_at, figures";
type StoredAttack = (String, String, String, i64, i64, Option<i64>, String);

/// Those that go on, oldest first: at most one of each kind, and one in each realm.
pub async fn under_way(db: &Db) -> Result<Vec<AttackEntry>, DbError> {
    let sql = format!("SELECT {SHOWN} FROM attacks WHERE ended_at IS NULL ORDER BY began_at, id");
    let rows: Vec<StoredAttack> =
        on_db!(db, pool => query_as(sqlx::AssertSqlSafe(sql)).fetch_all(pool).await)?;
    Ok(rows.into_iter().filter_map(entry).collect())
}

/// Those that lasted into a time, newest first.
pub async fn since(db: &Db, since: Micros, most: u32) -> Result<Vec<AttackEntry>, DbError> {
    let sql = format!("SELECT {SHOWN} FROM attacks WHERE seen_at >= $1 ORDER BY seen_at DESC, id LIMIT $2");
    let rows: Vec<StoredAttack> = on_db!(db, pool => query_as(sqlx::AssertSqlSafe(sql)).bind(since.0)
        .bind(i64::from(most)).fetch_all(pool).await)?;
    Ok(rows.into_iter().filter_map(entry).collect())
}

/// False if one of this traffic goes on already: an index admits one.
pub async fn begin(
    db: &Db,
    id: &str,
    traffic: &WatchedTraffic,
    began: Micros,
    now: Micros,
) -> Result<bool, DbError> {
    const SQL: &str = "INSERT INTO attacks (id, kind, realm, began_at, seen_at, figured_at, figures)
        VALUES ($1, $2, $3, $4, $5, 0, '{}') ON CONFLICT DO NOTHING";
    let rows = on_db!(db, pool => query(SQL).bind(id).bind(traffic.kind.into_str()).bind(&traffic.realm)
        .bind(began.0).bind(now.0).execute(pool).await.map(|done| done.rows_affected()))?;
    Ok(rows > 0)
}

/// Whether this instance works out the figures now. False if another did so after `before`, or if it ended.
pub async fn claim(db: &Db, id: &str, seen: Micros, now: Micros, before: Micros) -> Result<bool, DbError> {
    const SQL: &str = "UPDATE attacks SET seen_at = $1, figured_at = $2
        WHERE id = $3 AND ended_at IS NULL AND (figured_at <= $4 OR figured_at > $2)";
    let rows = on_db!(db, pool => query(SQL).bind(seen.0).bind(now.0).bind(id).bind(before.0)
        .execute(pool).await.map(|done| done.rows_affected()))?;
    Ok(rows > 0)
}

pub async fn write(db: &Db, id: &str, figures: &AttackFigures) -> Result<(), DbError> {
    const SQL: &str = "UPDATE attacks SET figures = $1 WHERE id = $2";
    let text = serde_json::to_string(figures).expect("numbers and texts");
    Ok(on_db!(db, pool => query(SQL).bind(text).bind(id).execute(pool).await.map(drop))?)
}

/// It was busy until `last`. False if another instance ended it, or saw it go on in the meantime.
pub async fn end(db: &Db, id: &str, seen: Micros, last: Micros, now: Micros) -> Result<bool, DbError> {
    const SQL: &str = "UPDATE attacks SET ended_at = $1, seen_at = $4
        WHERE id = $2 AND ended_at IS NULL AND seen_at = $3";
    let rows = on_db!(db, pool => query(SQL).bind(now.0).bind(id).bind(seen.0).bind(last.0).execute(pool).await
        .map(|done| done.rows_affected()))?;
    Ok(rows > 0)
}

pub async fn purge(db: &Db, before: Micros) -> Result<(), DbError> {
    const SQL: &str = "DELETE FROM attacks WHERE seen_at < $1 AND ended_at IS NOT NULL";
    Ok(on_db!(db, pool => query(SQL).bind(before.0).execute(pool).await.map(drop))?)
}

/// None for a kind that only a newer version knows. Figures that cannot be read are zero.
fn entry((id, kind, realm, began, seen, ended, figures): StoredAttack) -> Option<AttackEntry> {
    Some(AttackEntry {
        id,
        kind: kind.parse().ok()?,
        realm,
        began_at: Micros(began),
        seen_at: Micros(seen),
        ended_at: ended.map(Micros),
        figures: serde_json::from_str(&figures).unwrap_or_default(),
    })
}
