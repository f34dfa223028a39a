//! What the services are built on: the database, the clock, randomness and the keys.

use crate::clock::Clock;
use crate::db::Db;
use crate::entropy::Entropy;
use crate::secret::MasterKey;

/// Passed to the constructor of every service that needs the database and a key. A service keeps the handles and the keys
/// derived for its own purposes; the master key goes with the last foundation.
#[derive(Clone)]
pub struct Foundation {
    pub db: Db,
    pub clock: Clock,
    pub entropy: Entropy,
    pub secrets: MasterKey,
}

#[cfg(test)]
impl Foundation {
    /// A test's, under this master key.
    pub fn keyed(key: [u8; 32], db: &Db, clock: &Clock) -> Self {
        let (db, clock) = (db.clone(), clock.clone());
        Self { db, clock, entropy: Entropy::Os, secrets: MasterKey::from_bytes(key) }
    }
}
