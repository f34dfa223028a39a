//! Secrets of clients that Gatehouse makes and keeps (`secret = "stored"`): sealed in the database, shown once, and two good
//! at a time while one replaces the other.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use serde::Serialize;
use sqlx::{query, query_as, query_scalar};
use subtle::ConstantTimeEq;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::ResealedKeys;
use crate::clock::{Clock, Micros, as_time};
use crate::db::{Db, DbError, DbLock, execute, on_db, on_tx, random_id};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::{MasterKey, Seal};

/// The most that a client has: the one in use, and the one that replaces it.
pub const MOST_SECRETS: i64 = 2;
/// The start of every secret, so that one in a log or a repository is recognised.
const MARK: &str = "ghc_";

random_id! {
    /// A secret's id, for listing and dropping it. It proves nothing: the secret does.
    ClientSecretId
}

/// A secret as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ClientSecret)]
pub struct StoredSecret {
    #[schema(value_type = String)]
    pub id: ClientSecretId,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Micros,
    /// False if it was sealed under a key file that this server does not have: it is refused.
    pub opens: bool,
}

#[derive(Clone)]
pub struct ClientSecrets {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    seal: Seal,
}

impl ClientSecrets {
    pub fn new(foundation: &Foundation) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, seal: seal_of(&secrets) }
    }

    /// Makes a secret, which is returned only here. None if the client has two already.
    pub async fn generate(
        &self,
        client: &str,
    ) -> Result<Option<(ClientSecretId, Zeroizing<String>)>, DbError> {
        const COUNT: &str = "SELECT COUNT(*) FROM client_secrets WHERE client = $1";
        const INSERT: &str =
            "INSERT INTO client_secrets (id, client, sealed, created_at) VALUES ($1, $2, $3, $4)";
        let (id, random) = (ClientSecretId::random(&self.entropy), self.entropy.bytes::<32>());
        let secret = Zeroizing::new(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(random)));
        let sealed = self.seal.seal(&owner(id, client), secret.as_bytes(), &self.entropy);
        // Two at once must not both find the last place free.
        let mut tx = self.db.begin_exclusive(DbLock::on("oidc.secrets")).await?;
        let count: i64 =
            on_tx!(&mut tx, connection => query_scalar(COUNT).bind(client).fetch_one(connection).await)?;
        if count >= MOST_SECRETS {
            return Ok(None);
        }
        execute!(in &mut tx => query(INSERT).bind(id.to_string()).bind(client).bind(sealed)
            .bind(self.clock.now().0))?;
        tx.commit().await?;
        Ok(Some((id, secret)))
    }

    /// The secrets of a client, the newest first.
    pub async fn list(&self, client: &str) -> Result<Vec<StoredSecret>, DbError> {
        const SQL: &str = "SELECT id, sealed, created_at FROM client_secrets WHERE client = $1
            ORDER BY created_at DESC, id";
        let rows: Vec<(ClientSecretId, String, i64)> =
            on_db!(&self.db, pool => query_as(SQL).bind(client).fetch_all(pool).await)?;
        let shown = |(id, sealed, at): (ClientSecretId, String, i64)| {
            let opens = self.seal.open(&owner(id, client), &sealed).is_some();
            StoredSecret { id, created_at: Micros(at), opens }
        };
        Ok(rows.into_iter().map(shown).collect())
    }

    /// The ids of the clients that have a secret.
    pub async fn clients(&self) -> Result<BTreeSet<String>, DbError> {
        const SQL: &str = "SELECT DISTINCT client FROM client_secrets";
        let ids: Vec<String> = on_db!(&self.db, pool => query_scalar(SQL).fetch_all(pool).await)?;
        Ok(ids.into_iter().collect())
    }

    /// Drops a secret for good, on every instance at once. False if the client has none with this id.
    pub async fn drop(&self, client: &str, id: ClientSecretId) -> Result<bool, DbError> {
        const SQL: &str = "DELETE FROM client_secrets WHERE client = $1 AND id = $2";
        let dropped: u64 = execute!(&self.db => query(SQL).bind(client).bind(id.to_string()))?;
        Ok(dropped > 0)
    }

    /// Whether one of those that were given is a secret of the client, in constant time.
    pub async fn match_any(&self, client: &str, given: &[&str]) -> Result<bool, DbError> {
        let known = self.opened(client).await?;
        let equal = |one: &Zeroizing<Vec<u8>>| {
            given.iter().any(|given| bool::from(one.as_slice().ct_eq(given.as_bytes())))
        };
        Ok(known.iter().any(equal))
    }

    /// The newest secret, for a check of the client; None if it has none, or none opens under this key.
    pub async fn newest(&self, client: &str) -> Result<Option<SecretString>, DbError> {
        let newest = self.opened(client).await?.into_iter().next();
        Ok(newest.and_then(|bytes| std::str::from_utf8(&bytes).ok().map(SecretString::from)))
    }

    /// The newest first. One that was sealed under another key file is none.
    async fn opened(&self, client: &str) -> Result<Vec<Zeroizing<Vec<u8>>>, DbError> {
        const SQL: &str =
            "SELECT id, sealed FROM client_secrets WHERE client = $1 ORDER BY created_at DESC, id";
        let rows: Vec<(ClientSecretId, String)> =
            on_db!(&self.db, pool => query_as(SQL).bind(client).fetch_all(pool).await)?;
        Ok(rows.iter().filter_map(|(id, sealed)| self.seal.open(&owner(*id, client), sealed)).collect())
    }

    /// Opens secrets under `old` and seals them under the key of this one.
    pub async fn reseal(&self, old: &MasterKey) -> Result<ResealedKeys, DbError> {
        const ALL: &str = "SELECT id, client, sealed FROM client_secrets ORDER BY id";
        const SEAL: &str = "UPDATE client_secrets SET sealed = $1 WHERE id = $2 AND sealed = $3";
        let rows: Vec<(ClientSecretId, String, String)> =
            on_db!(&self.db, pool => query_as(ALL).fetch_all(pool).await)?;
        let (old, mut done) = (seal_of(old), ResealedKeys::default());
        for (id, client, before) in rows {
            let owner = owner(id, &client);
            if self.seal.open(&owner, &before).is_some() {
                done.kept += 1;
            } else if let Some(secret) = old.open(&owner, &before) {
                let sealed = self.seal.seal(&owner, &secret, &self.entropy);
                done.sealed +=
                    execute!(&self.db => query(SEAL).bind(&sealed).bind(id.to_string()).bind(&before))?;
            } else {
                done.lost += 1;
            }
        }
        Ok(done)
    }
}

/// What a sealed secret belongs to: it opens for no other client.
fn owner(id: ClientSecretId, client: &str) -> Vec<u8> {
    [id.as_bytes(), client.as_bytes()].concat()
}

fn seal_of(master: &MasterKey) -> Seal {
    Seal::new(master.derive("oidc.client-secret"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn under(key: u8, db: &Db) -> ClientSecrets {
        ClientSecrets::new(&Foundation::keyed([key; 32], db, &Clock::manual(Micros::from_seconds(1))))
    }

    #[tokio::test]
    async fn a_secret_is_carried_over_to_another_key_and_belongs_to_one_client() {
        let db = Db::connect("sqlite::memory:").await.unwrap();
        let (old, new) = (under(1, &db).await, under(2, &db).await);
        let (_, secret) = old.generate("wiki").await.unwrap().unwrap();
        assert!(old.match_any("wiki", &["wrong", &secret]).await.unwrap());
        for (client, given) in [("wiki", &[][..]), ("wiki", &["", "wrong"]), ("files", &[secret.as_str()])] {
            assert!(!old.match_any(client, given).await.unwrap(), "{client}");
        }
        assert!(!new.match_any("wiki", &[&secret]).await.unwrap(), "under another key it opens nothing");
        let done = new.reseal(&MasterKey::from_bytes([1; 32])).await.unwrap();
        assert_eq!((done.sealed, done.kept, done.lost), (1, 0, 0));
        assert!(new.match_any("wiki", &[&secret]).await.unwrap());
        let again = new.reseal(&MasterKey::from_bytes([1; 32])).await.unwrap();
        assert_eq!((again.sealed, again.kept, again.lost), (0, 1, 0));
        let lost = under(3, &db).await.reseal(&MasterKey::from_bytes([1; 32])).await.unwrap();
        assert_eq!((lost.sealed, lost.kept, lost.lost), (0, 0, 1));
        let stored: Vec<String> =
            on_db!(&db, pool => query_scalar("SELECT sealed FROM client_secrets").fetch_all(pool).await)
                .unwrap();
        assert!(!stored[0].contains(secret.trim_start_matches(MARK)));
    }
}
