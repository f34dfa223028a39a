//! The ledger for administrators, and what gateways report to it.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use sqlx::{Row, query, query_as, query_scalar};
use utoipa::ToSchema;

use super::{Ledger, LedgerPosition, MessageState, Micros, SubjectKey, hex, short, stored_key};
use crate::audit::words_of;
use crate::clock::{as_time, as_time_if};
use crate::codes::recipient::Channel;
use crate::db::{self, DbError, execute, from_row, on_db};
use crate::message::MessageId;
use crate::message::MessagePurpose;
use crate::sms::brake::HeldBrake;
use crate::sms::{DeliveryReport, ReportState, ReportedMessage};

/// Which part of the ledger to read. If all are None, everything.
#[derive(Debug, Clone, Default)]
pub struct LedgerFilter {
    pub state: Option<MessageState>,
    /// A dialling prefix: a block (a number without its last four digits) or an operator's range (without
    /// its last six), whole.
    pub prefix: Option<String>,
    /// A number or a mailbox, by [`CodeService::recipient_key`](crate::codes::CodeService::recipient_key).
    pub phone: Option<SubjectKey>,
    pub channel: Option<Channel>,
}

impl LedgerFilter {
    /// Reads `phone` from its hexadecimal digits.
    pub fn parse_key(text: &str) -> Option<SubjectKey> {
        stored_key(text).ok()
    }
}

pub type LedgerCursor = db::RowCursor<MessageId>;
pub type LedgerPage = db::RowPage<LedgerEntry, MessageId>;

// One message as an administrator sees it, and as it is in the API: it contains no number and no code.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SentMessage)]
pub struct LedgerEntry {
    #[schema(value_type = String)]
    pub id: MessageId,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Micros,
    #[schema(schema_with = words_of::<Channel>)]
    pub channel: Channel,
    /// Without its last four digits; by mail, the masked address.
    pub phone: String,
    #[serde(rename = "prefix")]
    pub block: String,
    /// `login`, `register`, `reset` or `verify`; of another program, `verify:` with its name and what it is for, or `relay:`
    /// with a name.
    #[schema(value_type = String)]
    pub purpose: MessagePurpose,
    /// The network that asked for it, a /24 of IPv4 or a /48 of IPv6. Left out of what was sent before this was kept, and
    /// where a program did not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_from: Option<String>,
    pub gateway: String,
    #[schema(schema_with = words_of::<MessageState>)]
    pub state: MessageState,
    /// The gateway's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Why it was refused, or why its state is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its code was entered.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub entered_at: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words_of::<ReportState>)]
    pub report: Option<ReportState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub reported_at: Option<Micros>,
    /// The number, as its limit counts it.
    #[serde(skip)]
    pub number: String,
}

impl LedgerCursor {
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_with(text, MessageId::parse)
    }
}

const COLUMNS: &str = "id, created_at, block, purpose, gateway, state, reference, reason, entered_at, report,
    report_detail, reported_at, asked_from, phone_key, scope";

impl Ledger {
    /// At most `limit` messages, newest first, after the cursor.
    pub async fn page(
        &self,
        filter: &LedgerFilter,
        after: Option<&LedgerCursor>,
        limit: u32,
    ) -> Result<LedgerPage, DbError> {
        let position = after
            .map_or(LedgerPosition::NEWEST, |last| LedgerPosition { at: last.at, id: last.id.to_string() });
        // PostgreSQL accepts no NUL in a text, and no prefix contains one.
        if filter.prefix.as_ref().is_some_and(|prefix| prefix.contains('\0')) {
            return Ok(LedgerPage::empty());
        }
        let mut wanted = Vec::new();
        let mut texts = Vec::new();
        let mut equal = |column: &str, value: String| {
            texts.push(value);
            wanted.push(format!("{column} = ${}", texts.len() + 3));
        };
        if let Some(state) = filter.state {
            equal("state", state.into_str().to_owned());
        }
        if let Some(prefix) = &filter.prefix {
            equal(self.prefix_column(prefix).await?, prefix.clone());
        }
        if let Some(phone) = filter.phone {
            equal("phone_key", hex(&phone.0));
        }
        // Mails have a scope of their own. Every other scope is sent by SMS.
        let of_channel = match filter.channel {
            Some(Channel::Mail) => " AND scope = 'mail'",
            Some(Channel::Sms) => " AND scope <> 'mail'",
            None => "",
        };
        let wanted: String = wanted.into_iter().map(|test| format!(" AND {test}")).collect();
        let rows = format!(
            "SELECT {COLUMNS} FROM sms_messages WHERE (created_at, id) < ($1, $2){of_channel}{wanted}"
        );
        const NEWEST: &str = "ORDER BY created_at DESC, id DESC LIMIT $3";
        let (counted, refused) = ("AND state <> 'refused'", "AND state = 'refused'");
        // Numbers and prefixes have one index for what counts and one for what was refused. Each is read no further than
        // the page, which PostgreSQL does not see by itself.
        let sql = match filter {
            LedgerFilter { prefix: None, phone: None, .. } => format!("{rows} {NEWEST}"),
            LedgerFilter { state: Some(MessageState::Refused), .. } => format!("{rows} {refused} {NEWEST}"),
            LedgerFilter { state: Some(_), .. } => format!("{rows} {counted} {NEWEST}"),
            LedgerFilter { state: None, .. } => format!(
                "SELECT * FROM ({rows} {counted} {NEWEST}) AS counted
                UNION ALL SELECT * FROM ({rows} {refused} {NEWEST}) AS refused {NEWEST}"
            ),
        };
        let rows: Vec<LedgerEntry> = on_db!(&self.db, pool => {
            let question = query_as(sqlx::AssertSqlSafe(sql)).bind(position.at.0).bind(&position.id);
            let question = question.bind(i64::from(limit) + 1);
            texts.iter().fold(question, |question, text| question.bind(text)).fetch_all(pool).await
        })?;
        let position = |last: &LedgerEntry| LedgerCursor { at: last.at, id: last.id };
        Ok(LedgerPage::of(rows.into_iter().map(Ok), limit, position)?)
    }

    /// How many messages after `start` the limit of each of these numbers counts, as [`LedgerEntry`] has them: what
    /// [`Ledger::sent_to`] has of one.
    pub async fn count_sent<'a>(
        &self,
        numbers: impl Iterator<Item = &'a String>,
        start: Micros,
    ) -> Result<HashMap<String, i64>, DbError> {
        let numbers: BTreeSet<&String> = numbers.collect();
        if numbers.is_empty() {
            return Ok(HashMap::new());
        }
        let places: Vec<String> = (2..numbers.len() + 2).map(|at| format!("${at}")).collect();
        let sql = format!(
            "SELECT phone_key, COUNT(*) FROM sms_messages m WHERE phone_key IN ({}) AND created_at > $1
            AND created_at > COALESCE((SELECT up_to FROM sms_excuses e WHERE e.phone_key = m.phone_key), 0)
            AND state <> 'refused' GROUP BY phone_key",
            places.join(", ")
        );
        let rows: Vec<(String, i64)> = on_db!(&self.db, pool => {
            let question = query_as(sqlx::AssertSqlSafe(sql)).bind(start.0);
            numbers.iter().fold(question, |question, number| question.bind(*number)).fetch_all(pool).await
        })?;
        Ok(rows.into_iter().collect())
    }

    /// The length of a prefix depends on its country, so the rows show which of the two it is.
    async fn prefix_column(&self, prefix: &str) -> Result<&'static str, DbError> {
        const SQL: &str = "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM sms_messages
            WHERE block = $1 AND state <> 'refused' LIMIT 1) AS counted) + (SELECT COUNT(*) FROM (SELECT 1
            FROM sms_messages WHERE block = $1 AND state = 'refused' LIMIT 1) AS others)";
        let rows: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(prefix).fetch_one(pool).await)?;
        Ok(if rows > 0 { "block" } else { "number_range" })
    }

    /// The brakes in force, newest first; at most 1000.
    pub async fn brakes(&self) -> Result<Vec<HeldBrake>, DbError> {
        const SQL: &str = "SELECT prefix, NULLIF(scope, '') AS program, began_at, ends_at, sent, entered
            FROM sms_brakes WHERE ends_at > $1 ORDER BY began_at DESC, id LIMIT 1000";
        let now = self.now().await?;
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(now.0).fetch_all(pool).await)?)
    }

    /// Lifts the brakes on a prefix: that of a program, that of our pages (empty), or all; false if there is none.
    /// `by` is the account id that the ledger records. Messages from before no longer count for any later brake.
    pub async fn lift(&self, prefix: &str, program: Option<&str>, by: &str) -> Result<bool, DbError> {
        const EVERY_SCOPE: &str = "*";
        const SQL: &str = "UPDATE sms_brakes SET ends_at = $1, lifted_by = $2
            WHERE prefix = $3 AND ends_at > $1 AND ($4 = '*' OR scope = $4) RETURNING scope";
        let scope = program.unwrap_or(EVERY_SCOPE);
        if prefix.contains('\0') || scope.contains('\0') {
            return Ok(false);
        }
        let now = self.now().await?;
        let lifted: Vec<String> = on_db!(&self.db, pool => query_scalar(SQL).bind(now.0).bind(by)
            .bind(prefix).bind(scope).fetch_all(pool).await)?;
        lifted.iter().for_each(|scope| self.brakes.forget(scope, prefix));
        Ok(!lifted.is_empty())
    }

    /// Writes what a gateway reports about its messages. Its report may come before the outcome is written, which says which
    /// gateway it was. A delivered message stays delivered, and a failed
    /// one does not become pending again. Returns how many rows changed; unknown ids change none.
    pub async fn report(&self, gateway: &str, reports: &[DeliveryReport]) -> Result<usize, DbError> {
        const SET: &str =
            "UPDATE sms_messages SET report = $1, report_detail = $2, reported_at = $3, gateway = $4
            WHERE (gateway = $4 OR state = 'pending') AND (report IS NULL OR report = 'pending'
            OR (report = 'failed' AND $1 <> 'pending'))";
        let now = self.now().await?;
        let mut changed = 0;
        for report in reports {
            let (column, name) = match &report.message {
                ReportedMessage::Id(id) => ("id", id.to_string()),
                ReportedMessage::Reference(reference) => ("reference", reference.clone()),
            };
            let sql = sqlx::AssertSqlSafe(format!("{SET} AND {column} = $5"));
            let detail = report.detail.as_deref().map(short);
            changed += execute!(&self.db => query(sql).bind(report.state.into_str()).bind(detail)
                .bind(now.0).bind(gateway).bind(name))?;
        }
        Ok(changed as usize)
    }
}

from_row!(HeldBrake, row => HeldBrake {
    prefix: row.try_get("prefix")?,
    program: row.try_get("program")?,
    began_at: Micros(row.try_get("began_at")?),
    ends_at: Micros(row.try_get("ends_at")?),
    sent: row.try_get("sent")?,
    entered: row.try_get("entered")?,
});

from_row!(LedgerEntry, row => {
    let time =
        |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, &'static str>(column)?.map(Micros));
    let (block, scope): (String, String) = (row.try_get("block")?, row.try_get("scope")?);
    let channel = if scope == Channel::Mail.into_str() { Channel::Mail } else { Channel::Sms };
        LedgerEntry {
        id: row.try_get("id")?,
        at: Micros(row.try_get("created_at")?),
        channel,
        phone: match channel {
            Channel::Sms => format!("{block}****"),
            Channel::Mail => block.clone(),
        },
        block,
        purpose: row.try_get("purpose")?,
        gateway: row.try_get("gateway")?,
        state: row.try_get("state")?,
        reference: row.try_get("reference")?,
        reason: row.try_get("reason")?,
        entered_at: time("entered_at")?,
        report: row.try_get("report")?,
        report_detail: row.try_get("report_detail")?,
        reported_at: time("reported_at")?,
        asked_from: row.try_get("asked_from")?,
        number: row.try_get("phone_key")?,
        }
});
