//! What a sign-in writes, in one step: the new session, the end of what it replaces, the entry in the
//! account's recent sign-ins, and what both lists have too many of.

use sqlx::query_scalar;

use super::{Sessions, SignedInBy, Token};
use crate::clock::Micros;
use crate::db::{Db, DbError};
use crate::login::{Account, Client, SessionId};

/// What is bound, alike in both: $1 hash of the token, $2 the session's id, $3 now, $4 `idle_until`, $5 `ends_at`,
/// $6 network, $7 user agent, $8 account, $9 its password's version, $10 `verified_at`, $11 hash of the old
/// token, $12 the sign-in's id, $13 whether it was signed in by the password. Every statement does nothing
/// where no session was inserted.
///
/// Inserts only where the password or the number that was verified is the account's still, and opens it still.
macro_rules! insert {
    () => {
        "INSERT INTO sessions (token_hash, id, account, created_at, last_seen, idle_until, ends_at,
        network, user_agent, verified_at) SELECT $1, $2, id, $3, $3, $4, $5, $6, $7, $10 FROM accounts
        WHERE id = $8 AND password_version = $9 AND ($13 = 0 OR password_disabled_at IS NULL)"
    };
}

macro_rules! record {
    ($started:literal) => {
        concat!(
            "INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent)
            SELECT $12, account, created_at, network, user_agent FROM ",
            $started
        )
    };
}

/// One transaction in one trip to the connection's thread. The numbers are written out: SQLite plans a
/// statement anew whenever a number is bound to its LIMIT. 100 sessions are kept, the new one and the 99
/// others that were used last; few accounts have more, and a count tells.
const SQLITE: &str = concat!(
    "BEGIN IMMEDIATE;",
    insert!(),
    " RETURNING id;
    DELETE FROM sessions WHERE token_hash = $11 AND EXISTS (SELECT 1 FROM sessions WHERE token_hash = $1);
    DELETE FROM sessions WHERE id IN (SELECT id FROM sessions
        WHERE account = (SELECT account FROM sessions WHERE token_hash = $1) AND id <> $2 AND idle_until > $3
        AND (SELECT COUNT(*) FROM sessions WHERE account = $8) > 100
        ORDER BY last_seen DESC, id LIMIT -1 OFFSET 99);",
    record!("sessions WHERE token_hash = $1"),
    ";
    DELETE FROM sign_ins WHERE id IN (SELECT id FROM sign_ins WHERE account = $8
        ORDER BY signed_in_at DESC, id LIMIT -1 OFFSET 20);
    COMMIT"
);

/// One statement, whose parts all see the tables as they were before it. The account's row is locked: a
/// change of the password at the same time is waited for, or waits and ends this session; another sign-in
/// of this account waits. One that waited may leave a row too many, which the next one removes.
const POSTGRES: &str = concat!(
    "WITH started AS (",
    insert!(),
    " FOR NO KEY UPDATE RETURNING account, created_at, network, user_agent),
    replaced AS (DELETE FROM sessions WHERE token_hash = $11 AND EXISTS (SELECT 1 FROM started)),
    past_the_most AS (DELETE FROM sessions WHERE id IN (SELECT id FROM sessions
        WHERE account = (SELECT account FROM started) AND idle_until > $3 AND token_hash IS DISTINCT FROM $11
        ORDER BY last_seen DESC, id OFFSET 99)),
    recorded AS (",
    record!("started"),
    "),
    forgotten AS (DELETE FROM sign_ins WHERE id IN (SELECT id FROM sign_ins
        WHERE account = (SELECT account FROM started) ORDER BY signed_in_at DESC, id OFFSET 19))
    SELECT account FROM started"
);

macro_rules! bind {
    ($query:expr, $($value:expr),+) => { $query$(.bind($value))+ };
}

impl Sessions {
    /// Starts a session for an account as it was when it was verified; None where its password or its
    /// number was changed since, or the password disabled that it was verified by. Always with a new token, so that none from before the sign-in carries over.
    /// Of the account's sessions the 100 used last go on, of its sign-ins the newest 20 are remembered.
    pub async fn start(
        &self,
        account: &Account,
        client: &Client,
        by: SignedInBy,
    ) -> Result<Option<Token>, DbError> {
        self.renew(account, client, by, None).await
    }

    /// The same, and the session that the browser came with ends, whosever it is.
    pub async fn renew(
        &self,
        account: &Account,
        client: &Client,
        by: SignedInBy,
        old: Option<&Token>,
    ) -> Result<Option<Token>, DbError> {
        let token = Token(self.entropy.bytes());
        let session = SessionId::random(&self.entropy).to_string();
        let sign_in = format!("{:032x}", u128::from_be_bytes(self.entropy.bytes()));
        let now = self.clock.now();
        let ends_at = now.plus(self.settings.absolute);
        let idle_until = now.plus(self.settings.idle).min(ends_at);
        let (verified_at, by_password) = match by {
            SignedInBy::Password => (now, 1_i64),
            SignedInBy::Code => (Micros(0), 0),
        };
        let (hash, old) = (self.hash(&token), old.map(|old| self.hash(old)));
        let (network, agent) = (client.network.clone(), client.user_agent.clone());
        let (id, version) = (account.id.to_string(), account.password_version);
        macro_rules! bound {
            ($sql:expr) => {
                bind!(
                    query_scalar($sql),
                    hash,
                    session,
                    now.0,
                    idle_until.0,
                    ends_at.0,
                    network,
                    agent,
                    id,
                    version,
                    verified_at.0,
                    old,
                    sign_in,
                    by_password
                )
            };
        }
        let started: Vec<String> = match &self.db {
            Db::Sqlite(pools) => pools.in_one_trip(bound!(SQLITE)).await?,
            Db::Postgres(pools) => bound!(POSTGRES).fetch_all(&pools.all).await?,
        };
        Ok((!started.is_empty()).then_some(token))
    }
}
