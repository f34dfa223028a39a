//! A country asks for challenges while too many of its codes do not come back. It is never shut: most of its traffic is
//! honest. Judged periodically for all countries at once, so that no message waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gatehouse_limiter::{Limit, LimitMode};
use parking_lot::Mutex;
use sqlx::query_as;

use super::ladder::{country_asks_from, most_of_a_network};
use super::{BrakedPrefix, DAY, is_fresh};
use crate::clock::Micros;
use crate::config::Brake;
use crate::db::{Db, DbError, on_db};
use crate::message::MAIL;

/// Among so many days, or as many as the ledger keeps, is a country's best.
const DAYS: u32 = 14;
/// How long the best day is not counted again.
const BEST_FOR: Duration = Duration::from_secs(60 * 60);

/// Codes of a country that were sent within a day and did not come back, weighed as for a brake, and from how many on a
/// challenge is asked for.
#[derive(Debug, Clone, Copy)]
pub struct CountryState {
    pub unreturned: u32,
    pub asks_from: u32,
    /// When the oldest of them was sent.
    oldest: Option<Micros>,
}

impl CountryState {
    pub const fn asks(&self) -> bool {
        self.unreturned >= self.asks_from
    }
}

/// A value for each scope and country.
type ByCountry<T> = HashMap<(String, String), T>;

/// The states as they were judged last.
#[derive(Default)]
pub struct CountryStates {
    now: ArcSwap<ByCountry<CountryState>>,
    /// Codes that came back on the best day, and when that was counted.
    best_days: Mutex<Option<(Micros, ByCountry<u32>)>>,
}

impl CountryStates {
    /// Returns the state of a country for our pages (an empty scope) or for a program.
    pub fn get(&self, scope: &str, country: &str) -> Option<CountryState> {
        self.now.load().get(&(scope.to_owned(), country.to_owned())).copied()
    }

    pub fn any_asks(&self) -> bool {
        self.now.load().values().any(CountryState::asks)
    }

    pub fn asks(&self, scope: &str, country: &str, now: Micros) -> Option<BrakedPrefix> {
        let state = self.get(scope, country).filter(CountryState::asks)?;
        let retry_after = state.oldest.map_or(DAY, |at| at.plus(DAY).since(now));
        Some(BrakedPrefix { retry_after, proven_before: None, tripped: false })
    }

    /// Domains of addresses are judged as countries are, by a floor of their own.
    pub async fn judge(
        &self,
        db: &Db,
        (brake, domains): (&Brake, &Limit),
        now: Micros,
    ) -> Result<(), DbError> {
        const SQL: &str = "SELECT scope, country, CAST(SUM(entered) AS BIGINT),
            CAST(SUM(CASE WHEN scope = $3 AND weight > $4 THEN $4 WHEN scope <> $3 AND weight > $2 THEN $2 ELSE weight END)
                AS BIGINT), MIN(oldest)
            FROM (SELECT scope, country, COUNT(entered_at) AS entered,
            SUM(CASE WHEN entered_at IS NOT NULL THEN 0 ELSE 2 - solved END) AS weight,
            MIN(CASE WHEN entered_at IS NULL THEN created_at END) AS oldest FROM sms_messages
            WHERE created_at > $1 AND state <> 'refused' AND share = 'open' AND judged = 1 AND country <> ''
            GROUP BY scope, country, network_key) AS networks GROUP BY scope, country";
        let domains = match domains.rules() {
            [rule] if domains.mode() == LimitMode::Enforce => rule.max,
            _ => u32::MAX,
        };
        let by_domain = Brake { min_sent_country: domains, ..brake.clone() };
        let most = |brake: &Brake| 2 * i64::from(most_of_a_network(brake.min_sent_country));
        let rows: Vec<(String, String, i64, i64, Option<i64>)> = on_db!(db, pool => query_as(SQL)
            .bind(now.minus(DAY).0).bind(most(brake)).bind(MAIL).bind(most(&by_domain)).fetch_all(pool).await)?;
        self.count_best_days(db, now).await?;
        let best_days = self.best_days.lock();
        let best_day = |key: &(String, String)| {
            best_days.as_ref().and_then(|(_, all)| all.get(key)).copied().unwrap_or_default()
        };
        let states = rows.into_iter().map(|(scope, country, entered, weight, oldest)| {
            let [entered, unreturned] =
                [entered, weight / 2].map(|some| u32::try_from(some).unwrap_or(u32::MAX));
            let floor = if scope == MAIL { &by_domain } else { brake };
            let key = (scope, country);
            let asks_from = country_asks_from(floor, best_day(&key).max(entered));
            (key, CountryState { unreturned, asks_from, oldest: oldest.map(Micros) })
        });
        self.now.store(Arc::new(states.collect()));
        Ok(())
    }

    async fn count_best_days(&self, db: &Db, now: Micros) -> Result<(), DbError> {
        const SQL: &str = "SELECT scope, country, CAST(MAX(entered) AS BIGINT) FROM (SELECT scope, country,
            COUNT(*) AS entered FROM sms_messages WHERE created_at > $1 AND created_at <= $2 AND share = 'open'
            AND entered_at IS NOT NULL AND country <> '' GROUP BY scope, country, ($2 - created_at) / $3) AS days
            GROUP BY scope, country";
        if self.best_days.lock().as_ref().is_some_and(|(at, _)| is_fresh(*at, now, BEST_FOR)) {
            return Ok(());
        }
        let yesterday = now.minus(DAY);
        let rows: Vec<(String, String, i64)> = on_db!(db, pool => query_as(SQL)
            .bind(yesterday.minus(DAY * DAYS).0).bind(yesterday.0).bind(DAY.as_micros() as i64)
            .fetch_all(pool).await)?;
        let counted = rows
            .into_iter()
            .map(|(scope, country, entered)| ((scope, country), u32::try_from(entered).unwrap_or(u32::MAX)));
        *self.best_days.lock() = Some((now, counted.collect()));
        Ok(())
    }
}
