//! How much of what is allowed a client's address and network have used up: what a proof of work is priced by.

use super::path::BeforePasswords;
use super::request::GuardedLogin;
use super::{LoginGuard, RequestOrigin};
use crate::config::Limits;
use crate::throttle::{Limit, LimitMode, StoreError};

/// The most that a network counts for: strangers share it, and one of them must not set the price of all others to the
/// highest.
const MOST_OF_NETWORK: f64 = 0.5;

impl LoginGuard {
    /// Of the failures at a login.
    pub async fn strain(&self, login: GuardedLogin, limits: &Limits, origin: &RequestOrigin) -> Option<f64> {
        let BeforePasswords { address, network, .. } = BeforePasswords::of(login, limits);
        self.strain_on([address, network], origin).await
    }

    /// From 0 to 1: that of the fullest rule of a limit of addresses and one of networks. None while the store does not
    /// answer.
    pub async fn strain_on(&self, [address, network]: [&Limit; 2], origin: &RequestOrigin) -> Option<f64> {
        let (address, network) =
            tokio::join!(self.used(address, &origin.address), self.used(network, &origin.network));
        Some(address.ok()?.max(network.ok()?.min(MOST_OF_NETWORK)))
    }

    async fn used(&self, limit: &Limit, subject: &[u8]) -> Result<f64, StoreError> {
        if limit.rules().is_empty() || limit.mode() == LimitMode::Monitor {
            return Ok(0.0);
        }
        let peek = self.limiter.peek(self.limiter.bucket(limit, subject)).await?;
        let rules = limit.rules().iter().zip(&peek.rules);
        let used = rules.map(|(rule, counted)| f64::from(counted.count) / f64::from(rule.max));
        Ok(used.fold(0.0, f64::max))
    }
}
