//! The gate: who may use an application behind a reverse proxy, asked for each of its requests.

mod authorize;
mod proxy_file;
mod remembered;
mod return_url;
#[cfg(test)]
mod tests;
mod trial;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::accounts::{
    AccountId, AppSessions, AppVisitor, RedeemedCode, SessionChanges, SessionId, SessionToken,
};
use crate::clock::Uptime;
use crate::db::DbError;
use crate::foundation::Foundation;
use crate::request_id;

pub use authorize::{
    AppRequest, TooOld, Verdict, authorize, authorize_client, lacks_factor, may_use, too_old,
};
pub use proxy_file::{ProxyFile, ProxyFileError};
pub use remembered::READ_EVERY;
use remembered::RememberedVisitors;
pub use return_url::{ReturnUrl, Scheme};
pub use trial::{
    AgeChange, AppsComparison, ClientPreview, FactorChange, HostPreview, PathPreview, UriChange, compare_apps,
};

/// Clones share everything.
#[derive(Clone)]
pub struct Gate {
    sessions: AppSessions,
    remembered: Arc<RememberedVisitors>,
    changes: SessionChanges,
    /// Held while a draft is tried, which occupies the database for seconds.
    trial_turn: Arc<Mutex<()>>,
}

impl Gate {
    pub fn new(foundation: &Foundation, sessions: AppSessions) -> Self {
        let Foundation { db, clock, .. } = foundation.clone();
        let changes = SessionChanges::new(db, clock.clone());
        let remembered = RememberedVisitors::new(changes.clone(), clock, Uptime::begin());
        Self { sessions, remembered: Arc::new(remembered), changes, trial_turn: Arc::default() }
    }

    /// Finds who is signed in at a host, by its cookie. Costs no SQL while nothing about them has changed, but for
    /// one read and one write a minute. Once the changes could not be read for five seconds, it asks the database
    /// each time.
    pub async fn visitor(
        &self,
        host: &str,
        token: &SessionToken,
    ) -> Result<Option<Arc<AppVisitor>>, DbError> {
        let Some(hash) = self.sessions.hash(host, token) else { return Ok(None) };
        self.remembered.get(hash, || self.sessions.find(hash)).await
    }

    /// Tries a draft when no other is tried, and to its end, even if the caller hangs up: the database does not stop
    /// either. None if another one is still tried after a while.
    pub async fn try_in_turn<T>(&self, trial: impl Future<Output = T> + Send + 'static) -> Option<T>
    where
        T: Send + 'static,
    {
        request_id::in_turn(&self.trial_turn, trial::PATIENCE, trial).await
    }

    /// Reads what has changed since the last call; call it each [`READ_EVERY`].
    pub async fn follow_changes(&self) -> Result<(), DbError> {
        self.remembered.follow().await
    }

    /// What the sign-in gets to know of the state of a browser at a host.
    pub fn state_hash(&self, host: &str, state: &SessionToken) -> String {
        self.sessions.state_hash(host, state)
    }

    /// A code with which the browser of a session gets one at the host of `to`.
    pub async fn permit(
        &self,
        session: SessionId,
        to: &ReturnUrl,
        state: &str,
    ) -> Result<SessionToken, DbError> {
        self.sessions.permit(session, to.host(), state, to.as_str()).await
    }

    /// What a code gets at a host. `state` is what the browser was given there: without one it gets no session. Whatever
    /// it is, the code is used up.
    pub async fn redeem(
        &self,
        host: &str,
        code: &SessionToken,
        state: Option<&SessionToken>,
    ) -> Result<RedeemedCode, DbError> {
        let hash = state.map(|state| self.state_hash(host, state));
        self.sessions.redeem(code, host, hash.as_deref()).await
    }

    /// The session here behind the cookie of a host, with which it ends.
    pub async fn parent(
        &self,
        host: &str,
        token: &SessionToken,
    ) -> Result<Option<(AccountId, SessionId)>, DbError> {
        match self.sessions.hash(host, token) {
            Some(hash) => self.sessions.parent(hash).await,
            None => Ok(None),
        }
    }

    /// Forgets who has just signed out, before the change is read.
    pub fn forget(&self, account: AccountId) {
        self.remembered.forget(account);
    }

    /// The hosts at which each of an account's sessions is used.
    pub async fn hosts(&self, account: AccountId) -> Result<Vec<(SessionId, String)>, DbError> {
        self.sessions.hosts(account).await
    }

    /// Deletes codes that nobody brought, and changes that everybody has read; returns the larger count.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        Ok(self.changes.purge(batch).await?.max(self.sessions.purge_codes(batch).await?))
    }
}
