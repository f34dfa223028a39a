//! Attacks: when there is much more traffic of a kind than usual at that hour, since when, and from whom to
//! whom.
//!
//! `rule.rs` says what is unusual, `counts.rs` adds up what is known about the traffic and tells one attack from the next;
//! both are pure. Here they are applied to the record every few seconds, and the result is kept in a table, once for all
//! instances.

mod counts;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Row, query, query_as, query_scalar};

use crate::audit::event::{Action, AttackKind, AuditEvent, DEVICE_FIRST, Outcome};
use crate::audit::{Audit, EventCount, MINUTE};
use crate::clock::Micros;
use crate::db::{Db, DbError, execute, from_row, on_db};
use crate::denied::ACCESS;
use crate::origins::Origins;
use crate::stop::StopSignal;
use counts::{FigureRow, figures, origin_shares, turned};
use rule::{QUIET_TIME, USUAL_DAYS, WatchedTraffic};

pub use counts::{AttackFigures, AttackShare, AttackState, OriginShare};
pub use rule::recent_length;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttackEntry {
    pub id: String,
    pub kind: AttackKind,
    /// The realm whose login it is at; empty if it is here.
    pub realm: String,
    pub began_at: Micros,
    pub seen_at: Micros,
    pub ended_at: Option<Micros>,
    pub figures: AttackFigures,
}

impl AttackEntry {
    /// Its attempts in these sums.
    pub fn counted(&self, sums: &[EventCount]) -> u64 {
        WatchedTraffic::of(self).counted(sums)
    }
}

/// Between two checks by an instance.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Figures that are younger are not worked out again, by any instance.
const FIGURES_LAST: Duration = Duration::from_secs(9);
/// Rows that are read for figures; of a longer attack the newest.
const MOST_ROWS: i64 = 50_000;

#[derive(Clone)]
pub struct AttackWatch {
    audit: Audit,
    origins: Origins,
    alarm: Arc<AtomicBool>,
}

/// An attack's figures change while it goes on; these are of one moment.
#[derive(Clone, Copy)]
struct AttackMoment {
    now: Micros,
    recent: u64,
    usual: u64,
    unusual: bool,
}

impl AttackWatch {
    pub fn new(audit: Audit) -> Self {
        Self { audit, origins: Origins::default(), alarm: Arc::default() }
    }

    /// With the files that tell where it comes from.
    #[must_use]
    pub fn telling(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// Whether an attack went on when this process last checked.
    pub fn alarm(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.alarm)
    }

    /// Checks until it is stopped. Spawn it once.
    pub async fn keep_watch(self, mut stop: StopSignal) {
        while stop.pause(CHECK_EVERY).await {
            // An outage of the database is reported where requests meet it.
            if let Err(error) = self.check().await {
                tracing::debug!(%error, "attacks: the record could not be read");
            }
        }
    }

    /// Applies the rule to what is recorded now, and returns what goes on. Each attack begins and ends once, whichever
    /// instances check at the same time: each statement that changes one decides for all of them. While all is usual it reads
    /// the sums of an hour's minutes; beyond a floor also those of an hour of seven days; and for the figures, every ten
    /// seconds, at most 50,000 rows.
    pub async fn check(&self) -> Result<Vec<AttackEntry>, DbError> {
        let log = self.audit.log();
        let now = log.db.now(&self.audit.0.clock).await?;
        let span = rule::lately(now);
        let lately = log.series(&span).await?;
        let going_on = under_way(&log.db).await?;
        let mut days = None;
        for traffic in WatchedTraffic::all(&lately, &going_on) {
            let open = going_on.iter().find(|attack| WatchedTraffic::of(attack) == traffic);
            let minutes = traffic.minutes(span, &lately);
            let recent = minutes.recent();
            if open.is_none() && recent < traffic.kind.floor() {
                continue;
            }
            if days.is_none() {
                days = Some(self.earlier_days(now).await?);
            }
            let usual = days.as_ref().map_or(0, |days: &Vec<_>| traffic.usual(days));
            let unusual = rule::is_unusual(traffic.kind, recent, usual);
            let moment = AttackMoment { now, recent, usual, unusual };
            match open {
                None if unusual => {
                    let minute = minutes.began(traffic.kind, usual);
                    let began = rule::first_of(minute, &self.first_attempts(&traffic, minute).await?);
                    self.begin(traffic, began, &moment).await?;
                }
                None => {}
                Some(attack) => self.follow(attack, &moment).await?,
            }
        }
        let going_on = under_way(&log.db).await?;
        self.alarm.store(!going_on.is_empty(), Ordering::Relaxed);
        Ok(going_on)
    }

    pub async fn since(&self, since: Micros, most: u32) -> Result<Vec<AttackEntry>, DbError> {
        let sql =
            format!("SELECT {SHOWN} FROM attacks WHERE seen_at >= $1 ORDER BY seen_at DESC, id LIMIT $2");
        let rows: Vec<StoredAttack> = on_db!(&self.audit.log().db, pool => query_as(AssertSqlSafe(sql))
            .bind(since.0).bind(i64::from(most)).fetch_all(pool).await)?;
        Ok(rows.into_iter().filter_map(entry).collect())
    }

    async fn begin(
        &self,
        traffic: WatchedTraffic,
        began: Micros,
        moment: &AttackMoment,
    ) -> Result<(), DbError> {
        // One of this traffic goes on already: an index admits one.
        const SQL: &str = "INSERT INTO attacks (id, kind, realm, began_at, seen_at, figured_at, figures)
            VALUES ($1, $2, $3, $4, $5, 0, '{}') ON CONFLICT DO NOTHING";
        let id = format!("{:016x}", u64::from_be_bytes(self.audit.0.entropy.bytes()));
        let inserted = execute!(&self.audit.log().db => query(SQL).bind(&id).bind(traffic.kind.into_str())
            .bind(&traffic.realm).bind(began.0).bind(moment.now.0))?;
        if inserted == 0 {
            return Ok(());
        }
        let detail = json!({ "attack": id, "recent": moment.recent, "usual": moment.usual });
        self.record(&traffic, Outcome::Began, moment.now, detail);
        let (WatchedTraffic { kind, realm }, figures) = (traffic, AttackFigures::default());
        let began =
            AttackEntry { id, kind, realm, began_at: began, seen_at: moment.now, ended_at: None, figures };
        self.follow(&began, moment).await
    }

    /// Ends it after the quiet time; otherwise works the figures out again, if no instance did so just now.
    async fn follow(&self, attack: &AttackEntry, moment: &AttackMoment) -> Result<(), DbError> {
        const SQL: &str = "UPDATE attacks SET seen_at = $1, figured_at = $2
            WHERE id = $3 AND ended_at IS NULL AND (figured_at <= $4 OR figured_at > $2)";
        let (db, now) = (&self.audit.log().db, moment.now);
        if !moment.unusual && now.since(attack.seen_at) >= QUIET_TIME {
            return self.end(attack, attack.seen_at, attack.seen_at, now).await.map(drop);
        }
        let seen = if moment.unusual { now } else { attack.seen_at };
        let claimed = execute!(db => query(SQL).bind(seen.0).bind(now.0).bind(&attack.id)
            .bind(now.minus(FIGURES_LAST).0))?;
        if claimed == 0 {
            return Ok(());
        }
        let rows = self.rows(attack, now.plus(MINUTE)).await?;
        let Some(turned) = turned(attack.kind, &rows) else {
            let figures = self.figures_of(attack, moment, &rows).await?;
            return write_figures(db, &attack.id, &figures).await;
        };
        let old = rows.partition_point(|row| row.place.0 >= turned.0);
        let figures = self.figures_of(attack, &AttackMoment { now: turned, ..*moment }, &rows[old..]).await?;
        write_figures(db, &attack.id, &figures).await?;
        let attack = AttackEntry { figures, ..attack.clone() };
        if self.end(&attack, seen, turned, now).await? {
            Box::pin(self.begin(WatchedTraffic::of(&attack), turned, moment)).await?;
        }
        Ok(())
    }

    /// It was busy until `last`. False if another instance ended it, or saw it go on in the meantime.
    async fn end(
        &self,
        attack: &AttackEntry,
        seen: Micros,
        last: Micros,
        now: Micros,
    ) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE attacks SET ended_at = $1, seen_at = $4
            WHERE id = $2 AND ended_at IS NULL AND seen_at = $3";
        let ended = execute!(&self.audit.log().db => query(SQL).bind(now.0).bind(&attack.id).bind(seen.0)
            .bind(last.0))?;
        if ended > 0 {
            let detail = json!({ "attack": attack.id, "attempts": attack.figures.attempts });
            self.record(&WatchedTraffic::of(attack), Outcome::Ended, now, detail);
        }
        Ok(ended > 0)
    }

    fn record(&self, traffic: &WatchedTraffic, outcome: Outcome, at: Micros, mut detail: serde_json::Value) {
        if !traffic.realm.is_empty() {
            detail["realm"] = traffic.realm.as_str().into();
        }
        let event = AuditEvent::new(at, Action::Attack, outcome);
        self.audit.record(AuditEvent {
            name: Some(traffic.kind.into_str()),
            detail: Some(detail.to_string()),
            ..event
        });
    }

    async fn earlier_days(&self, now: Micros) -> Result<Vec<Vec<EventCount>>, DbError> {
        let mut days = Vec::new();
        for ago in 1..=USUAL_DAYS {
            let (from, until) = rule::usual_hour(now, ago);
            days.push(self.audit.log().totals(from, until).await?);
        }
        Ok(days)
    }

    async fn figures_of(
        &self,
        attack: &AttackEntry,
        moment: &AttackMoment,
        rows: &[FigureRow],
    ) -> Result<AttackFigures, DbError> {
        let (kind, soon) = (attack.kind, moment.now.plus(MINUTE));
        let entered = match kind {
            AttackKind::Messages => self.entered(Action::Guess, attack.began_at, soon).await?,
            AttackKind::Mails => self.entered(Action::MailGuess, attack.began_at, soon).await?,
            AttackKind::SignIns | AttackKind::Registrations | AttackKind::Attempts => HashSet::new(),
        };
        let mut figures = figures(kind, rows, &entered, moment.now);
        for (top, column) in [
            (&mut figures.top_address, "address_mask"),
            (&mut figures.top_network, "address_mask"),
            (&mut figures.top_prefix, "phone_mask"),
            (&mut figures.top_name, "account_mask"),
        ] {
            if let Some(top) = top {
                top.mask = self.mask(top.place, column).await?;
            }
        }
        for network in &mut figures.largest_networks {
            network.mask = self.mask(network.place, "address_mask").await?;
        }
        if !self.origins.in_use().is_empty() {
            let ended = (kind.action(), kind.outcomes());
            let networks = self.audit.log().networks(ended, &attack.realm, attack.began_at).await?;
            figures.origins = origin_shares(&self.origins.in_use(), &networks);
        }
        let partial = rows.len() as i64 == MOST_ROWS;
        let attempts = match partial {
            false => figures.attempts,
            true => {
                let totals = self.audit.log().totals(attack.began_at, soon).await?;
                WatchedTraffic::of(attack).counted(&totals).max(figures.attempts)
            }
        };
        Ok(AttackFigures {
            // Once it is quiet, those of the last unusual moment.
            recent: if moment.unusual { moment.recent } else { attack.figures.recent },
            usual: if moment.unusual { moment.usual } else { attack.figures.usual },
            // The sums are complete, the rows may not be.
            attempts,
            partial,
            ..figures
        })
    }

    /// The newest first.
    async fn rows(&self, attack: &AttackEntry, until: Micros) -> Result<Vec<FigureRow>, DbError> {
        const SQL: &str =
            "SELECT at, id, count, outcome, CAST(CASE WHEN detail LIKE $5 THEN 1 ELSE 0 END AS BIGINT),
            CAST(CASE WHEN limit_name = $7 THEN 1 ELSE 0 END AS BIGINT), account_key, address_key, network_key,
            phone_key, prefix_key FROM events
            WHERE action = $1 AND at >= $2 AND at < $3 AND ($6 = '' OR name = $6)
            ORDER BY at DESC, id DESC LIMIT $4";
        Ok(on_db!(&self.audit.log().db, pool => query_as(SQL).bind(attack.kind.action().into_str())
            .bind(attack.began_at.0).bind(until.0).bind(MOST_ROWS).bind(format!("{DEVICE_FIRST}%"))
            .bind(&attack.realm).bind(ACCESS).fetch_all(pool).await)?)
    }

    /// The attempts of one minute, oldest first.
    async fn first_attempts(
        &self,
        traffic: &WatchedTraffic,
        minute: Micros,
    ) -> Result<Vec<(Micros, u64)>, DbError> {
        const SQL: &str = "SELECT at, count, outcome FROM events
            WHERE action = $1 AND at >= $2 AND at < $3 AND ($4 = '' OR name = $4) ORDER BY at, id LIMIT $5";
        let action = traffic.kind.action();
        let rows: Vec<(i64, i64, Outcome)> = on_db!(&self.audit.log().db, pool => query_as(SQL)
            .bind(action.into_str()).bind(minute.0).bind(minute.plus(MINUTE).0).bind(&traffic.realm)
            .bind(MOST_ROWS).fetch_all(pool).await)?;
        let counted = rows.into_iter().filter(|(_, _, outcome)| traffic.kind.counts(action, *outcome));
        Ok(counted.map(|(at, count, _)| (Micros(at), count.unsigned_abs())).collect())
    }

    async fn entered(&self, action: Action, since: Micros, until: Micros) -> Result<HashSet<i64>, DbError> {
        const SQL: &str = "SELECT phone_key FROM events WHERE action = $4 AND at >= $1 AND at < $2
            AND outcome = 'ok' AND phone_key IS NOT NULL ORDER BY at DESC LIMIT $3";
        let keys: Vec<i64> = on_db!(&self.audit.log().db, pool => query_scalar(SQL).bind(since.0)
            .bind(until.0).bind(MOST_ROWS).bind(action.into_str()).fetch_all(pool).await)?;
        Ok(keys.into_iter().collect())
    }

    async fn mask(&self, (at, id): (i64, i64), column: &str) -> Result<String, DbError> {
        let sql = format!("SELECT {column} FROM events WHERE at = $1 AND id = $2");
        let mask: Option<Option<String>> = on_db!(&self.audit.log().db, pool => {
            query_scalar(AssertSqlSafe(sql)).bind(at).bind(id).fetch_optional(pool).await
        })?;
        Ok(mask.flatten().unwrap_or_default())
    }
}

from_row!(FigureRow, row => Self {
    place: (row.try_get(0)?, row.try_get(1)?),
    count: row.try_get::<i64, _>(2)?.unsigned_abs(),
    outcome: row.try_get(3)?,
    from_device: row.try_get::<i64, _>(4)? != 0,
    by_answer: row.try_get::<i64, _>(5)? != 0,
    account: row.try_get(6)?,
    address: row.try_get(7)?,
    network: row.try_get(8)?,
    phone: row.try_get(9)?,
    prefix: row.try_get(10)?,
});

const SHOWN: &str = "id, kind, realm, began_at, seen_at, ended_at, figures";
type StoredAttack = (String, String, String, i64, i64, Option<i64>, String);

/// The attacks that go on, oldest first: at most one of each kind, and one in each realm.
async fn under_way(db: &Db) -> Result<Vec<AttackEntry>, DbError> {
    let sql = format!("SELECT {SHOWN} FROM attacks WHERE ended_at IS NULL ORDER BY began_at, id");
    let rows: Vec<StoredAttack> = on_db!(db, pool => query_as(AssertSqlSafe(sql)).fetch_all(pool).await)?;
    Ok(rows.into_iter().filter_map(entry).collect())
}

async fn write_figures(db: &Db, id: &str, figures: &AttackFigures) -> Result<(), DbError> {
    const SQL: &str = "UPDATE attacks SET figures = $1 WHERE id = $2";
    let text = serde_json::to_string(figures).expect("numbers and texts");
    execute!(db => query(SQL).bind(text).bind(id))?;
    Ok(())
}

pub(super) async fn purge(db: &Db, before: Micros) -> Result<(), DbError> {
    const SQL: &str = "DELETE FROM attacks WHERE seen_at < $1 AND ended_at IS NOT NULL";
    execute!(db => query(SQL).bind(before.0))?;
    Ok(())
}

/// Reads an attack; None for a kind that only a newer version knows. Figures that cannot be read are zero.
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
