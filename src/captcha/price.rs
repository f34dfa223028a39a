//! What is known of how much a client has used up, for a second: each refusal carries a proof of work, and must not
//! ask the store for its price.

use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::Effort;
use crate::clock::Micros;

/// By what a price is known: a hash of the form and the address.
pub type PriceKey = [u8; 16];

const KEPT: Duration = Duration::from_secs(1);
const CLIENTS: usize = 4_096;
/// How often the store is asked in [`KEPT`], whoever the clients are. Beyond it the price is that of an outage.
const MOST_ASKED: u32 = 500;

pub struct Prices {
    known: Cache<PriceKey, (Micros, Effort)>,
    /// Since when, and how often, the store was asked.
    asked: Mutex<(Micros, u32)>,
}

impl Default for Prices {
    fn default() -> Self {
        Self { known: Cache::new(CLIENTS), asked: Mutex::new((Micros(0), 0)) }
    }
}

impl Prices {
    pub async fn of(&self, key: PriceKey, now: Micros, ask: impl AsyncFnOnce() -> Option<f64>) -> Effort {
        if let Some((_, effort)) = self.known.get(&key).filter(|(at, _)| now.since(*at) < KEPT) {
            return effort;
        }
        if !self.may_ask(now) {
            return Effort::after(None);
        }
        // Boxed, because few get this far, and it would make the future of every refusal larger.
        let effort = Effort::after(Box::pin(ask()).await);
        self.known.insert(key, (now, effort));
        effort
    }

    fn may_ask(&self, now: Micros) -> bool {
        let mut asked = self.asked.lock();
        if now.since(asked.0) >= KEPT {
            *asked = (now, 0);
        }
        asked.1 += 1;
        asked.1 <= MOST_ASKED
    }
}
