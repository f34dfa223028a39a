//! What sessions have proved by second factors, and by which: what a factor has proved ends with it. That is decided where
//! it is read, so that no way in which a factor ends can forget it; [`end_void`] clears up after each.

use sqlx::{Row, query};
use strum::{EnumString, IntoStaticStr};

use super::factor_sql::proof_holds;
use super::{AccountId, SessionId};
use crate::clock::Micros;
use crate::config::AppFactor;
use crate::db::{DbError, Tx, execute, from_row};

/// What somebody proves beside a password or a code; by these words in SQL, in events and in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, serde::Serialize)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    Totp,
    Recovery,
    /// With its user verified: a possession and what only its owner knows or is.
    Passkey,
}

crate::db::text_column!(Factor, text => text.parse::<Self>()?);

/// A factor that was proved, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactorProof {
    pub factor: Factor,
    /// Which of its kind: a passkey's id, since when an app is set up, the hash of a recovery code. None if nobody knows,
    /// as an older instance wrote it.
    pub credential: Option<String>,
    pub at: Micros,
}

impl FactorProof {
    pub(super) fn of(factor: Factor, credential: impl Into<String>, at: Micros) -> Self {
        Self { factor, credential: Some(credential.into()), at }
    }

    pub(super) fn method(&self) -> &'static str {
        self.factor.into()
    }
}

from_row!(FactorProof, row => FactorProof {
    factor: row.try_get("method")?,
    credential: row.try_get("credential")?,
    at: Micros(row.try_get("at")?),
});

/// When a session has last proved a factor, by its strength, as far as that factor is still there. Proofs add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProvedFactors {
    pub passkey: Option<Micros>,
    /// When an app or a recovery code proved it last.
    pub code: Option<Micros>,
    by_passkey: Option<bool>,
}

impl ProvedFactors {
    #[must_use]
    pub fn and(mut self, factor: Factor, at: Micros) -> Self {
        let proved = match factor {
            Factor::Passkey => &mut self.passkey,
            Factor::Totp | Factor::Recovery => &mut self.code,
        };
        *proved = (*proved).max(Some(at));
        self
    }

    pub fn newest(self) -> Option<Micros> {
        self.passkey.max(self.code)
    }

    /// The proofs whose time fits.
    #[must_use]
    pub fn filter(self, fits: impl Fn(Micros) -> bool) -> Self {
        let fits = |at: &Micros| fits(*at);
        Self { passkey: self.passkey.filter(fits), code: self.code.filter(fits), ..self }
    }

    pub const fn is_enough(self, needed: AppFactor) -> bool {
        match needed {
            AppFactor::None => true,
            AppFactor::Second => self.passkey.is_some() || self.code.is_some(),
            AppFactor::Passkey => self.passkey.is_some(),
        }
    }

    /// Whether a passkey was the first factor, too.
    pub const fn begun_by_passkey(self) -> bool {
        self.by_passkey.is_some()
    }

    /// Nothing is left of what began the session.
    pub const fn is_void(self) -> bool {
        matches!(self.by_passkey, Some(true)) && self.passkey.is_none()
    }
}

from_row!(ProvedFactors, row => {
    let proved = ProvedFactors {
        passkey: row.try_get::<Option<i64>, _>("passkey_at")?.map(Micros),
        code: row.try_get::<Option<i64>, _>("code_at")?.map(Micros),
        by_passkey: row.try_get::<Option<i64>, _>("by_passkey")?.map(|by| by == 1),
    };
    // Nothing where the browser was trusted instead.
    let word = row.try_get::<Option<&str>, _>("word")?.and_then(|word| word.parse().ok());
    let at = row.try_get::<Option<i64>, _>("factor_at")?.map(Micros);
    word.zip(at).into_iter().fold(proved, |proved, (factor, at)| proved.and(factor, at))
});

/// Notes in a session that a factor was proved in it.
pub(super) async fn prove(tx: &mut Tx, session: SessionId, proof: &FactorProof) -> Result<(), DbError> {
    const NOTE: &str = "INSERT INTO factor_proofs (session, method, credential, at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (session, method, credential) DO UPDATE SET at = excluded.at";
    const TELL: &str =
        "INSERT INTO session_proofs (session, methods, factor_at, noted_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (session) DO UPDATE SET methods = excluded.methods, factor_at = excluded.factor_at,
        noted_at = excluded.noted_at";
    let (session, method, at) = (session.to_string(), proof.method(), proof.at.0);
    if let Some(credential) = &proof.credential {
        execute!(in &mut *tx => query(NOTE).bind(&session).bind(method).bind(credential).bind(at))?;
    }
    let noted_at = proof.credential.as_ref().map(|_| at);
    execute!(in tx => query(TELL).bind(&session).bind(method).bind(at).bind(noted_at))?;
    Ok(())
}

/// Clears up after factors of an account that are gone: what they have proved, browsers whose trust or guesses they
/// earned, and sessions that began by nothing but them. What nobody knows the factor of ends, too. `changed_in`: the
/// session whose owner changes them goes on.
pub(super) async fn end_void(tx: &mut Tx, account: AccountId, changed_in: SessionId) -> Result<(), DbError> {
    // An older instance does not say what began a session: it ends if no password was shown in it.
    const END_BEGUN: &str = "DELETE FROM sessions WHERE account = $1 AND id <> $2
        AND (EXISTS (SELECT 1 FROM session_proofs WHERE session = sessions.id AND by_passkey = 1)
            AND NOT EXISTS (SELECT 1 FROM factor_proofs p JOIN passkeys k ON k.id = p.credential
            WHERE p.session = sessions.id AND p.method = 'passkey')
        OR verified_at = 0 AND EXISTS (SELECT 1 FROM session_proofs WHERE session = sessions.id
            AND by_passkey IS NULL AND methods = 'passkey' AND factor_at <> COALESCE(noted_at, -1)))";
    const END: [&str; 4] = [
        concat!(
            "DELETE FROM factor_proofs WHERE session IN (SELECT id FROM sessions WHERE account = $1) AND NOT ",
            proof_holds!("$1", "factor_proofs.method", "factor_proofs.credential")
        ),
        "UPDATE session_proofs SET by_passkey = CASE WHEN by_passkey IS NULL AND methods = 'passkey'
            AND factor_at <> COALESCE(noted_at, -1) THEN 0 ELSE by_passkey END,
            methods = COALESCE((SELECT p.method FROM factor_proofs p WHERE p.session = session_proofs.session
                ORDER BY p.at DESC, p.method LIMIT 1), 'trusted'),
            factor_at = COALESCE((SELECT MAX(p.at) FROM factor_proofs p WHERE p.session = session_proofs.session), 0),
            noted_at = COALESCE((SELECT MAX(p.at) FROM factor_proofs p WHERE p.session = session_proofs.session), 0)
            WHERE session IN (SELECT id FROM sessions WHERE account = $1)",
        concat!(
            "DELETE FROM trusted_devices WHERE account = $1 AND NOT ",
            proof_holds!("$1", "trusted_devices.method", "trusted_devices.credential")
        ),
        concat!(
            "DELETE FROM factor_devices WHERE account = $1 AND NOT ",
            proof_holds!("$1", "factor_devices.method", "factor_devices.credential")
        ),
    ];
    const KEEP: &str = "UPDATE session_proofs SET by_passkey = 0 WHERE session = $1 AND by_passkey = 1
        AND NOT EXISTS (SELECT 1 FROM factor_proofs p JOIN passkeys k ON k.id = p.credential
        WHERE p.session = $1 AND p.method = 'passkey')";
    let (account, changed_in) = (account.to_string(), changed_in.to_string());
    // Sessions before what hangs on them, as wherever they end, so that no two wait for each other.
    execute!(in &mut *tx => query(END_BEGUN).bind(&account).bind(&changed_in))?;
    for sql in END {
        execute!(in &mut *tx => query(sql).bind(&account))?;
    }
    execute!(in tx => query(KEEP).bind(changed_in))?;
    Ok(())
}
