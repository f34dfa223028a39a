//! What was in force of each part of the live document, in SQL, whoever changed it and on any instance.

use serde::Serialize;
use sqlx::{Row, query, query_as, query_scalar};
use utoipa::ToSchema;

use super::{AccessOrigin, ChangeAuthor, Tuning, row_id, version_of};
use crate::clock::{Micros, as_time};
use crate::config::LiveTexts;
use crate::db::{self, DbError, DbLock, Tx, execute, from_row, on_db, on_tx};

// What was in force, and by whom; as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LimitChange)]
pub struct LimitsChange {
    pub id: String,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Micros,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The id of the account; left out if the document was edited by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Its name at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    // `[limits]` at that time.
    #[serde(rename = "toml")]
    pub document: String,
    /// `[access]` at that time; left out if nothing was set.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub access: String,
    /// `[[apps]]` at that time; left out if there were none.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub apps: String,
    /// The other live sections at that time, with the live keys of `[captcha]` and `[sms]`; left out if nothing was set,
    /// or if they were not recorded.
    #[serde(skip_serializing_if = "is_nothing")]
    #[schema(required = false)]
    pub others: Option<String>,
}

fn is_nothing(text: &Option<String>) -> bool {
    text.as_deref().is_none_or(str::is_empty)
}

from_row!(LimitsChange, row => LimitsChange {
    id: row.try_get("id")?,
    at: Micros(row.try_get("at")?),
    version: row.try_get("version")?,
    previous: row.try_get("previous")?,
    actor: row.try_get("actor")?,
    login: row.try_get("login")?,
    reason: row.try_get("reason")?,
    document: row.try_get("document")?,
    access: row.try_get("access")?,
    apps: row.try_get("apps")?,
    others: row.try_get("others")?,
});

/// A change's position among the others: `at` increases with each.
pub type ChangeCursor = db::RowCursor<String>;

/// The newest change that was in force here, and its version.
pub(super) type NewestChange = Option<(ChangeCursor, String)>;

impl LimitsChange {
    /// For the page after this one.
    pub fn cursor(&self) -> ChangeCursor {
        ChangeCursor { at: self.at, id: self.id.clone() }
    }

    /// What was in force.
    pub fn texts(&self) -> LiveTexts {
        let Self { document, access, apps, others, .. } = self.clone();
        LiveTexts { limits: document, access, apps, others }
    }
}

impl ChangeCursor {
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |letter: u8| letter.is_ascii_hexdigit();
        let fits = |id: &&str| !id.is_empty() && id.len() <= 32 && id.bytes().all(hex);
        Self::parse_with(text, |id| Some(id).filter(fits).map(str::to_owned))
    }
}

impl Tuning {
    /// At most `limit` changes, newest first, after the cursor.
    pub async fn history(
        &self,
        before: Option<ChangeCursor>,
        limit: u32,
    ) -> Result<Vec<LimitsChange>, DbError> {
        const SQL: &str = "SELECT id, at, version, previous, actor, login, reason, document, access, apps,
            others FROM limit_changes WHERE (at, id) < ($1, $2) ORDER BY at DESC, id DESC LIMIT $3";
        let newest = || ChangeCursor { at: Micros(i64::MAX), id: String::new() };
        let ChangeCursor { at, id } = before.unwrap_or_else(newest);
        Ok(on_db!(&self.0.db, pool => {
            query_as(SQL).bind(at.0).bind(id).bind(i64::from(limit)).fetch_all(pool).await
        })?)
    }

    /// What of `[access]` the newest changes had in force, and who put them there, newest first.
    pub(super) async fn access_history(&self, limit: u32) -> Result<Vec<(String, AccessOrigin)>, DbError> {
        const SQL: &str =
            "SELECT access, at, login, reason FROM limit_changes ORDER BY at DESC, id DESC LIMIT $1";
        let rows: Vec<(String, i64, Option<String>, Option<String>)> = on_db!(&self.0.db, pool => {
            query_as(SQL).bind(i64::from(limit)).fetch_all(pool).await
        })?;
        let origin = |(access, at, login, reason)| (access, AccessOrigin { at: Micros(at), login, reason });
        Ok(rows.into_iter().map(origin).collect())
    }

    /// Finds a change by its id. PostgreSQL accepts no NUL in a text, and no id contains
    /// one.
    pub async fn change(&self, id: &str) -> Result<Option<LimitsChange>, DbError> {
        const SQL: &str = "SELECT id, at, version, previous, actor, login, reason, document, access, apps,
            others FROM limit_changes WHERE id = $1";
        if id.contains('\0') {
            return Ok(None);
        }
        Ok(on_db!(&self.0.db, pool => query_as(SQL).bind(id).fetch_optional(pool).await)?)
    }

    /// When the limits last changed; None if they never did. A change of anything else in the document is none.
    pub(super) async fn changed_at(&self) -> Result<Option<Micros>, DbError> {
        const SQL: &str = "SELECT MAX(at) FROM
            (SELECT at, document, LAG(document) OVER (ORDER BY at, id) AS earlier FROM limit_changes) AS changes
            WHERE earlier IS NOT NULL AND earlier <> document";
        let at: Option<i64> = on_db!(&self.0.db, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(at.map(Micros))
    }

    /// Makes sure that the limits in force here are in the history, once across all instances. A record by
    /// another instance is recognised by its version among the changes since the last one in force here: the
    /// same version may come back later, and is then a new change.
    pub(super) async fn record(&self) -> Result<(), DbError> {
        let mut recorded = self.0.recorded.lock().await;
        let in_force = self.0.live.in_force();
        let version = version_of(&in_force);
        if in_force.fingerprint.is_none() || recorded.as_ref().is_some_and(|(_, known)| *known == version) {
            return Ok(());
        }
        let texts = LiveTexts::read(&in_force.document, in_force.live.access.settings());
        self.write(&mut recorded, &version, &texts, None).await
    }

    /// Writes what is in force here to the history; with the author, if it was just saved here.
    pub(super) async fn write(
        &self,
        recorded: &mut NewestChange,
        version: &str,
        texts: &LiveTexts,
        author: Option<&ChangeAuthor>,
    ) -> Result<(), DbError> {
        let id = row_id(&self.0.entropy);
        let mut tx = self.0.db.begin_exclusive(DbLock::on("limits.history")).await?;
        let now = tx.now(&self.0.clock).await?;
        let since = recorded.as_ref().map(|(place, _)| place.at.0);
        let place = match (known_change(&mut tx, since, version).await?, author) {
            (Some((place, _)), None) => place,
            (Some((place, false)), Some(author)) => {
                sign(&mut tx, &place.id, author, texts).await?;
                place
            }
            (Some((_, true)) | None, _) => {
                let newest: Option<(i64, String)> = on_tx!(&mut tx, connection => {
                    query_as(NEWEST).fetch_optional(connection).await
                })?;
                let at = newest.as_ref().map_or(now.0, |(at, _)| now.0.max(at + 1));
                execute!(in &mut tx => query(INSERT).bind(&id).bind(at).bind(version)
                    .bind(newest.map(|(_, version)| version)).bind(author.map(|author| &author.account))
                    .bind(author.map(|author| &author.login)).bind(author.map(|author| &author.reason))
                    .bind(&texts.limits).bind(&texts.access).bind(&texts.apps).bind(&texts.others))?;
                ChangeCursor { at: Micros(at), id }
            }
        };
        tx.commit().await?;
        *recorded = Some((place, version.to_owned()));
        Ok(())
    }
}

const NEWEST: &str = "SELECT at, version FROM limit_changes ORDER BY at DESC, id DESC LIMIT 1";
const INSERT: &str = "INSERT INTO limit_changes
    (id, at, version, previous, actor, login, reason, document, access, apps, others)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// The change that put this version in force, and whether it has an author: the first since the last one in
/// force here; if none was in force yet, the newest of all if it has this version.
async fn known_change(
    tx: &mut Tx,
    since: Option<i64>,
    version: &str,
) -> Result<Option<(ChangeCursor, bool)>, DbError> {
    const SINCE: &str = "SELECT id, at, actor FROM limit_changes WHERE at >= $1 AND version = $2
        ORDER BY at, id LIMIT 1";
    const AT_ALL: &str = "SELECT id, at, actor FROM limit_changes
        WHERE at = (SELECT MAX(at) FROM limit_changes) AND at >= $1 AND version = $2 LIMIT 1";
    let sql = if since.is_some() { SINCE } else { AT_ALL };
    let row: Option<(String, i64, Option<String>)> = on_tx!(tx, connection => {
        query_as(sql).bind(since.unwrap_or(i64::MIN)).bind(version).fetch_optional(connection).await
    })?;
    Ok(row.map(|(id, at, actor)| (ChangeCursor { at: Micros(at), id }, actor.is_some())))
}

/// Another instance has recorded it before its author was known.
async fn sign(tx: &mut Tx, id: &str, author: &ChangeAuthor, texts: &LiveTexts) -> Result<(), DbError> {
    // An older instance does not record the others.
    const SQL: &str =
        "UPDATE limit_changes SET actor = $2, login = $3, reason = $4, others = COALESCE(others, $5)
        WHERE id = $1 AND actor IS NULL";
    let ChangeAuthor { account, login, reason } = author;
    execute!(in tx => query(SQL).bind(id).bind(account).bind(login).bind(reason).bind(&texts.others))?;
    Ok(())
}
