//! How much of what is allowed to fail a client's address and network have used up: what a proof of work is priced
//! by.

use super::path::BeforePasswords;
use super::request::GuardedLogin;
use super::{LoginGuard, RequestOrigin};
use crate::config::Limits;
use crate::throttle::{Limit, StoreError};

impl LoginGuard {
    /// From 0 to 1: that of the fullest rule. None while the store does not answer.
    pub async fn strain(&self, login: GuardedLogin, limits: &Limits, origin: &RequestOrigin) -> Option<f64> {
        let BeforePasswords { address, network, .. } = BeforePasswords::of(login, limits);
        let (address, network) =
            tokio::join!(self.used(address, &origin.address), self.used(network, &origin.network));
        Some(address.ok()?.max(network.ok()?))
    }

    async fn used(&self, limit: &Limit, subject: &[u8]) -> Result<f64, StoreError> {
        if limit.rules().is_empty() {
            return Ok(0.0);
        }
        let peek = self.limiter.peek(self.limiter.bucket(limit, subject)).await?;
        let rules = limit.rules().iter().zip(&peek.rules);
        let used = rules.map(|(rule, counted)| f64::from(counted.count) / f64::from(rule.max));
        Ok(used.fold(0.0, f64::max))
    }
}
