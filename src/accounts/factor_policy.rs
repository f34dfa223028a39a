//! The accounts that are asked for a second factor, and those that have to set one up: by the owner's own wish, and
//! by `[factors]`.

use serde::Serialize;
use sqlx::{Row, query, query_as, query_scalar};
use utoipa::ToSchema;

use super::factor_sql::{asks_factor, has_factor, must_have_factor};
use super::factors::ASK;
use super::{
    AccountId, Accounts, DeviceId, EntryCount, Factor, FactorProof, Factors, MOST_NAMED, NamedAccount,
};
use crate::clock::{Micros, as_time};
use crate::config::FactorSettings;
use crate::db::{Db, DbError, DbLock, execute, from_row, on_db};

/// What is known of an account's factors where its session is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FactorState {
    pub has_factor: bool,
    must_have: bool,
    since: Option<Micros>,
}

from_row!(FactorState, row => FactorState {
    has_factor: row.try_get::<Option<Factor>, _>("strongest")?.is_some(),
    must_have: row.try_get::<i64, _>("must_have")? != 0,
    since: row.try_get::<Option<i64>, _>("since")?.map(Micros),
});

/// What an account has to do that has no second factor and must have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactorSetup {
    pub by: Micros,
    /// The time has passed: sessions of the account open nothing else.
    pub overdue: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactorPolicy {
    /// The owner has sign-ins asked for one.
    pub asks: bool,
    /// `[factors]` has sign-ins asked for one.
    pub required: bool,
}

impl FactorState {
    /// What is due. The time begins when the account is first seen under the policy, and is forgotten when it is seen
    /// without; a factor that comes and goes does not begin it anew.
    pub async fn setup(
        self,
        db: &Db,
        account: AccountId,
        now: Micros,
        settings: &FactorSettings,
    ) -> Result<Option<FactorSetup>, DbError> {
        const FORGET: &str = "UPDATE factor_policies SET since = NULL WHERE account = $1";
        let id = account.to_string();
        if !self.must_have {
            if self.since.is_some() {
                execute!(db => query(FORGET).bind(id))?;
            }
            return Ok(None);
        }
        if self.has_factor {
            return Ok(None);
        }
        if self.since.is_none() {
            begin_grace(db, account, now).await?;
        }
        Ok(self.due(now, settings))
    }

    /// Computes what is due, and writes nothing.
    pub fn due(self, now: Micros, settings: &FactorSettings) -> Option<FactorSetup> {
        let by = self.since.unwrap_or(now).plus(settings.grace);
        (self.must_have && !self.has_factor).then_some(FactorSetup { by, overdue: by <= now })
    }
}

/// From now on, unless it has begun.
pub(super) async fn begin_grace(db: &Db, account: AccountId, now: Micros) -> Result<(), DbError> {
    const SQL: &str = "INSERT INTO factor_policies (account, required, since) VALUES ($1, 0, $2)
        ON CONFLICT (account) DO UPDATE SET since = excluded.since WHERE factor_policies.since IS NULL";
    execute!(db => query(SQL).bind(account.to_string()).bind(now.0))?;
    Ok(())
}

impl Accounts {
    /// Whether it has an app or a passkey.
    pub async fn has_factor(&self, account: AccountId) -> Result<bool, DbError> {
        const SQL: &str = concat!("SELECT COUNT(*) FROM accounts WHERE id = $1 AND ", has_factor!("$1"));
        let has: i64 =
            on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string()).fetch_one(pool).await)?;
        Ok(has > 0)
    }

    /// Whether there is anything to clear.
    pub async fn has_factors(&self, account: AccountId) -> Result<bool, DbError> {
        const SQL: &str = concat!(
            "SELECT COUNT(*) FROM accounts WHERE id = $1 AND (",
            has_factor!("$1"),
            " OR EXISTS (SELECT 1 FROM factor_policies WHERE account = $1 AND required > 0))"
        );
        let has: i64 =
            on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string()).fetch_one(pool).await)?;
        Ok(has > 0)
    }
}

/// What other `[factors]` would mean today, for accounts that may sign in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactorsTrial {
    /// Without a factor, and with time left to set one up.
    pub enrol: EntryCount,
    /// Accounts whose time has passed, so that they could open nothing else.
    pub shut: EntryCount,
    /// With a factor that their sign-ins are not asked for today, and would be.
    pub asked: EntryCount,
}

impl Accounts {
    /// Counts what `after` would mean, and what it would change against `before`, in one pass over the accounts.
    pub async fn try_factors(
        &self,
        before: &FactorSettings,
        after: &FactorSettings,
    ) -> Result<FactorsTrial, DbError> {
        // Whose time has not begun has all of it, if there is any.
        const SQL: &str = concat!(
            "WITH had AS MATERIALIZED (SELECT a.id, a.login, CASE WHEN ",
            has_factor!("a.id"),
            " THEN 1 ELSE 0 END AS has, (SELECT since FROM factor_policies WHERE account = a.id) AS since,
                CASE WHEN ",
            asks_factor!("a.id", "$2"),
            " THEN 1 ELSE 0 END AS asked FROM accounts a
                WHERE a.disabled_at IS NULL AND a.deleted_at IS NULL AND ",
            must_have_factor!("a.id", "$1"),
            "),
            told AS (SELECT id, login, CASE WHEN has = 1 THEN 'asked'
                WHEN COALESCE(since, $3) + $4 <= $3 THEN 'shut' ELSE 'enrol' END AS what
                FROM had WHERE has = 0 OR asked = 0),
            placed AS (SELECT id, login, what, COUNT(*) OVER (PARTITION BY what) AS count,
                ROW_NUMBER() OVER (PARTITION BY what ORDER BY login) AS place FROM told)
            SELECT id, login, what, count FROM placed WHERE place <= $5 ORDER BY place"
        );
        let grace = i64::try_from(after.grace.as_micros()).unwrap_or(i64::MAX);
        let now = self.clock.now().0;
        let rows: Vec<(String, String, String, i64)> = on_db!(&self.db, pool => query_as(SQL)
            .bind(after.required_of()).bind(before.required_of()).bind(now).bind(grace).bind(MOST_NAMED as i64)
            .fetch_all(pool).await)?;
        let mut trial = FactorsTrial::default();
        for (id, login, what, count) in rows {
            let counted = match what.as_str() {
                "asked" => &mut trial.asked,
                "shut" => &mut trial.shut,
                _ => &mut trial.enrol,
            };
            counted.count = count.unsigned_abs();
            counted.first.push(NamedAccount { id, login });
        }
        Ok(trial)
    }
}

/// Browsers of an account that are trusted at once; of more, those whose trust ends first are forgotten.
const MOST_TRUSTED: i64 = 20;

/// A browser whose sign-ins are not asked for a second step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TrustedBrowser)]
pub struct TrustedDevice {
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    pub device: DeviceId,
    /// Its User-Agent.
    pub browser: String,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub until: Micros,
}

from_row!(TrustedDevice, row => TrustedDevice {
    device: row.try_get("device")?,
    browser: row.try_get("user_agent")?,
    until: Micros(row.try_get("until")?),
});

impl Factors {
    /// The owner's switch: whether sign-ins are asked for a second step. False if that changed nothing, as when it is
    /// turned on at an account without a factor.
    pub async fn ask(&self, account: AccountId, asks: bool) -> Result<bool, DbError> {
        const OFF: &str = "UPDATE factor_policies SET required = 0 WHERE account = $1 AND required > 0";
        let now = self.db.now(&self.clock).await?;
        let id = account.to_string();
        // With the lock under which factors come and go.
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let changed = execute!(in &mut tx =>
            if asks { query(ASK).bind(&id).bind(now.0) } else { query(OFF).bind(&id) })?;
        tx.commit().await?;
        Ok(changed > 0)
    }

    /// What an account's sign-ins are asked for, and why.
    pub async fn policy(&self, account: AccountId, required_of: &str) -> Result<FactorPolicy, DbError> {
        const SQL: &str = concat!(
            "SELECT (SELECT COUNT(*) FROM factor_policies WHERE account = $1 AND required > 0),
            (SELECT COUNT(*) FROM accounts WHERE id = $1 AND ",
            must_have_factor!("$1", "$2"),
            ")"
        );
        let (asks, required): (i64, i64) = on_db!(&self.db, pool => query_as(SQL).bind(account.to_string())
            .bind(required_of).fetch_one(pool).await)?;
        Ok(FactorPolicy { asks: asks > 0, required: required > 0 })
    }

    /// Sign-ins from this device are not asked for the second step from now on, while the factor is there that was proved.
    pub async fn trust(
        &self,
        account: AccountId,
        device: DeviceId,
        (settings, user_agent): (&FactorSettings, &str),
        proof: &FactorProof,
    ) -> Result<(), DbError> {
        const TRUST: &str =
            "INSERT INTO trusted_devices (account, device, until, user_agent, method, credential)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, device) DO UPDATE SET until = excluded.until,
            user_agent = excluded.user_agent, method = excluded.method, credential = excluded.credential";
        const FORGET: &str =
            "DELETE FROM trusted_devices WHERE account = $1 AND device <> $2 AND device NOT IN (SELECT device
            FROM trusted_devices WHERE account = $1 AND device <> $2 AND until > $3
            ORDER BY until DESC, device LIMIT $4)";
        if !settings.trusts_devices() {
            return Ok(());
        }
        let now = self.clock.now();
        let (id, device) = (account.to_string(), device.to_string());
        execute!(&self.db => query(TRUST).bind(&id).bind(&device).bind(now.plus(settings.trust_device).0)
            .bind(user_agent).bind(proof.method()).bind(&proof.credential))?;
        execute!(&self.db => query(FORGET).bind(&id).bind(&device).bind(now.0).bind(MOST_TRUSTED - 1))?;
        Ok(())
    }

    /// The newest first.
    pub async fn trusted(
        &self,
        account: AccountId,
        settings: &FactorSettings,
    ) -> Result<Vec<TrustedDevice>, DbError> {
        const SQL: &str = "SELECT device, until, user_agent FROM trusted_devices
            WHERE account = $1 AND until > $2 ORDER BY until DESC, device";
        if !settings.trusts_devices() {
            return Ok(Vec::new());
        }
        let now = self.clock.now().0;
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).bind(now).fetch_all(pool).await)?)
    }

    pub async fn distrust(&self, account: AccountId, device: DeviceId) -> Result<(), DbError> {
        const SQL: &str = "DELETE FROM trusted_devices WHERE account = $1 AND device = $2";
        execute!(&self.db => query(SQL).bind(account.to_string()).bind(device.to_string()))?;
        Ok(())
    }
}
