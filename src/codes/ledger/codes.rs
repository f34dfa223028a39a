//! The valid codes: who may guess at them, how often, and the one guess that uses a code up.

use std::time::Duration;

use gatehouse_limiter::{HitId, SubjectKey};
use sqlx::{AssertSqlSafe, query, query_as};

use super::{KeptHit, Ledger, LedgerPosition, hex, stored_hit, stored_key};
use crate::clock::Micros;
use crate::codes::recipient::Channel;
use crate::db::{DbError, execute, on_db};
use crate::message::{MessageId, Purpose};
use crate::message::{ProgramPurpose, VERIFICATION};

pub struct CurrentCode {
    pub message: MessageId,
    pub code_hash: String,
}

pub struct StoredVerification {
    pub id: MessageId,
    pub phone: SubjectKey,
    /// The key of the number itself, to which the code is bound.
    pub number: SubjectKey,
    pub block: String,
    /// The key by which events name its number, and its mask; None for a code of an older version.
    pub recorded: Option<(i64, String)>,
    /// The purpose as stored.
    pub purpose: String,
    /// The code that it is compared with, the newest of its number and purpose, has not expired, and nor has it itself;
    /// and it was not approved.
    pub lives: bool,
    /// Its requester's address was the first to ask this program for codes to the number.
    pub guesser: Guesser,
}

/// Keys of phone and number, block, purpose, valid codes, whether its requester was the first, and the key in events.
type VerificationRow = (String, String, String, String, i64, i64, Option<i64>);

#[derive(Debug, Clone, Copy)]
pub struct FoundCode {
    pub code: bool,
    /// The browser is the one that requested it.
    pub asked: bool,
}

impl Ledger {
    /// What a guess would be compared with; reads the same rows whether or not there is a code.
    pub async fn find_code(
        &self,
        [phone, number]: [SubjectKey; 2],
        purpose: Purpose,
        asker: &str,
    ) -> Result<FoundCode, DbError> {
        const SQL: &str = "SELECT (SELECT COUNT(*) FROM sms_codes
                WHERE phone_key = $1 AND purpose = $2 AND expires_at > $3),
            (SELECT COUNT(*) FROM sms_askers WHERE phone_key = $5 AND asker = $4 AND acts_until > $3)";
        let now = self.now().await?;
        let (codes, askers): (i64, i64) = on_db!(&self.db, pool => query_as(SQL).bind(hex(&number.0))
            .bind(purpose.into_str()).bind(now.0).bind(asker).bind(hex(&phone.0)).fetch_one(pool).await)?;
        Ok(FoundCode { code: codes > 0, asked: askers > 0 })
    }

    /// The code to compare one guess with. It counts the guess first: the window store may forget guesses, and the code
    /// outlives it. None if there is none any more, or if this guesser has used up its guesses.
    pub async fn try_code(
        &self,
        number: SubjectKey,
        purpose: &str,
        guesser: Guesser,
        most: Option<u32>,
    ) -> Result<Option<CurrentCode>, DbError> {
        self.try_row(&hex(&number.0), purpose, guesser, most.map_or(i64::MAX, i64::from)).await
    }

    /// Does the work of a try if there is no code, on one of 256 rows, so that guesses at different numbers seldom
    /// collide. No guess matches it.
    pub async fn try_decoy(&self, number: SubjectKey) -> Result<Option<CurrentCode>, DbError> {
        let decoy = format!("decoy-{}", number.0[0]);
        self.try_row(&decoy, "decoy", Guesser::Anyone, i64::MAX).await
    }

    async fn try_row(
        &self,
        number: &str,
        purpose: &str,
        guesser: Guesser,
        most: i64,
    ) -> Result<Option<CurrentCode>, DbError> {
        let tries = match guesser {
            Guesser::Anyone => "tries",
            Guesser::Asker => "asker_tries",
            Guesser::Known => "known_tries",
        };
        let sql = format!(
            "UPDATE sms_codes SET {tries} = {tries} + 1 WHERE phone_key = $1 AND purpose = $2
            AND expires_at > $3 AND {tries} < $4 RETURNING message, code_hash"
        );
        let now = self.now().await?;
        let row: Option<(MessageId, String)> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(number)
            .bind(purpose).bind(now.0).bind(most).fetch_optional(pool).await)?;
        Ok(row.map(|(message, code_hash)| CurrentCode { message, code_hash }))
    }

    /// A verification of the program by its id; None if it is none of its. `since` is how far back the first to ask is
    /// looked for.
    pub async fn verification(
        &self,
        id: MessageId,
        program: &str,
        since: Duration,
    ) -> Result<Option<StoredVerification>, DbError> {
        const SQL: &str = "SELECT m.phone_key, COALESCE(m.number_key, m.phone_key), m.block, m.purpose,
            (SELECT COUNT(*) FROM sms_codes c WHERE c.phone_key = COALESCE(m.number_key, m.phone_key)
                AND c.purpose = m.purpose AND c.expires_at > $2
                AND m.expires_at > $2 AND m.entered_at IS NULL),
            CAST(CASE WHEN m.address_key = (SELECT f.address_key FROM sms_messages f
                WHERE f.phone_key = m.phone_key AND f.created_at > $3 AND f.state <> 'refused'
                AND substr(f.purpose, 1, CAST($5 AS INTEGER)) = $4 ORDER BY f.created_at, f.id LIMIT 1)
                THEN 1 ELSE 0 END AS BIGINT), m.event_key
            FROM sms_messages m WHERE m.id = $1 AND substr(m.purpose, 1, CAST($5 AS INTEGER)) = $4";
        let (now, program) = (self.now().await?, ProgramPurpose::stored_program(program));
        let row: Option<VerificationRow> = on_db!(&self.db, pool => query_as(SQL)
            .bind(id.to_string()).bind(now.0).bind(now.minus(since).0).bind(&program)
            .bind(program.len() as i64).fetch_optional(pool).await)?;
        let Some((phone, number, block, purpose, codes, first, event_key)) = row else { return Ok(None) };
        let (phone, number) = (stored_key(&phone)?, stored_key(&number)?);
        let guesser = if first == 1 { Guesser::Asker } else { Guesser::Anyone };
        let recorded = event_key.map(|key| (key, format!("{block}****")));
        Ok(Some(StoredVerification {
            id,
            phone,
            number,
            block,
            recorded,
            purpose,
            lives: codes > 0,
            guesser,
        }))
    }

    /// Uses a code up. If several callers show it at once, only one gets true.
    pub async fn redeem(
        &self,
        number: SubjectKey,
        purpose: &str,
        code: &CurrentCode,
    ) -> Result<bool, DbError> {
        const SQL: &str = "DELETE FROM sms_codes WHERE phone_key = $1 AND purpose = $2 AND message = $3
            AND code_hash = $4 AND expires_at > $5";
        let now = self.now().await?;
        let rows = execute!(&self.db => query(SQL).bind(hex(&number.0)).bind(purpose)
            .bind(code.message.to_string()).bind(&code.code_hash).bind(now.0))?;
        Ok(rows == 1)
    }

    pub async fn note_entered(&self, message: MessageId) -> Result<(), DbError> {
        const SQL: &str = "UPDATE sms_messages SET entered_at = $1 WHERE id = $2";
        let now = self.now().await?;
        execute!(&self.db => query(SQL).bind(now.0).bind(message.to_string()))?;
        Ok(())
    }

    /// Wrong guesses up to now no longer count for valid codes of that program, of ours if there is none, that went to
    /// this phone or mailbox; nor in these logs.
    pub async fn forget_guesses(
        &self,
        to: SubjectKey,
        program: Option<&str>,
        logs: &[SubjectKey],
    ) -> Result<(), DbError> {
        // A code is bound to a number of the phone, or to a spelling of the address: its message says where it went.
        const OURS: &str = "UPDATE sms_codes SET tries = 0, asker_tries = 0, known_tries = 0
            WHERE message IN (SELECT id FROM sms_messages WHERE phone_key = $1 AND state <> 'refused')
            AND substr(purpose, 1, CAST($3 AS INTEGER)) <> $2";
        const PROGRAMS: &str = "UPDATE sms_codes SET tries = 0, asker_tries = 0, known_tries = 0
            WHERE message IN (SELECT id FROM sms_messages WHERE phone_key = $1 AND state <> 'refused')
            AND substr(purpose, 1, CAST($3 AS INTEGER)) = $2";
        let (sql, lead) = match program {
            Some(program) => (PROGRAMS, ProgramPurpose::stored_program(program)),
            None => (OURS, VERIFICATION.to_owned()),
        };
        execute!(&self.db => query(sql).bind(hex(&to.0)).bind(&lead).bind(lead.len() as i64))?;
        for log in logs {
            execute!(&self.db => query("DELETE FROM sms_guesses WHERE log = $1").bind(hex(&log.0)))?;
        }
        Ok(())
    }
}

pub struct WrongGuess {
    pub position: LedgerPosition,
    pub log: SubjectKey,
    pub kept: KeptHit,
}

impl Ledger {
    pub async fn note_wrong(&self, channel: Channel, log: SubjectKey, hit: HitId) -> Result<(), DbError> {
        const SQL: &str =
            "INSERT INTO sms_guesses (at, hit, log, channel) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
        let now = self.now().await?;
        execute!(&self.db => query(SQL).bind(now.0).bind(hex(&hit.0)).bind(hex(&log.0)).bind(channel.into_str()))?;
        Ok(())
    }

    /// The wrong guesses later than `from` and after `position`, newest first.
    pub async fn wrong_guesses(
        &self,
        channel: Channel,
        from: Micros,
        position: &LedgerPosition,
        limit: u32,
    ) -> Result<Vec<WrongGuess>, DbError> {
        const SQL: &str =
            "SELECT at, hit, log FROM sms_guesses WHERE at > $1 AND (at, hit) < ($2, $3) AND channel = $5
            ORDER BY at DESC, hit DESC LIMIT $4";
        let rows: Vec<(i64, String, String)> = on_db!(&self.db, pool => query_as(SQL).bind(from.0)
            .bind(position.at.0).bind(&position.id).bind(i64::from(limit)).bind(channel.into_str()).fetch_all(pool).await)?;
        let read = |(at, hit, log): (i64, String, String)| {
            let (at, log) = (Micros(at), stored_key(&log)?);
            let kept = KeptHit { at, id: stored_hit(&hit)? };
            Ok(WrongGuess { position: LedgerPosition { at, id: hit }, log, kept })
        };
        Ok(rows.into_iter().map(read).collect::<Result<_, sqlx::Error>>()?)
    }
}

/// Each has a log of its own under the limit `sms-guess`, so that other people's guesses do not lock out the
/// owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guesser {
    Anyone,
    Asker,
    /// Browsers in which the number's account has signed in before; together, so that it is one bound.
    Known,
}

impl Guesser {
    pub const ALL: [Self; 3] = [Self::Anyone, Self::Asker, Self::Known];
    /// The counters of codes of other programs, which open no account.
    pub const IN_PROGRAMS: [Self; 2] = [Self::Anyone, Self::Asker];

    /// The subject for `sms-guess`. A guess that finds no code counts elsewhere: it uses up nothing of a
    /// later code, and gets the same answer.
    pub fn subject(self, recipient: &str, finds_code: bool) -> Vec<u8> {
        let lead = match (self, finds_code) {
            (Self::Anyone, true) => "",
            (Self::Asker, true) => "asker",
            (Self::Known, true) => "known",
            (Self::Anyone, false) => "no code",
            (Self::Asker, false) => "no code, asker",
            (Self::Known, false) => "no code, known",
        };
        [lead.as_bytes(), recipient.as_bytes()].concat()
    }

    /// The subject for `sms-guess` in another program, which sees what people type: none of its guesses counts anywhere
    /// else. `number` is the ledger's key of the number.
    pub fn subject_in(self, program: &str, number: SubjectKey) -> Vec<u8> {
        let lead: &[u8] = if self == Self::Asker { b"/asker/" } else { b"/" };
        [program.as_bytes(), lead, &number.0].concat()
    }

    /// What an event says about it, unless the number's own log counts it.
    pub const fn detail(self, finds_code: bool) -> Option<&'static str> {
        match (self, finds_code) {
            (Self::Known, _) => Some(r#"{"from":"known device"}"#),
            (_, false) => Some(r#"{"code":"none"}"#),
            (Self::Asker, true) => Some(r#"{"from":"asker"}"#),
            (Self::Anyone, true) => None,
        }
    }
}
