//! `[access]`: saved into the same document as the limits, with the same history.

use std::net::IpAddr;

use serde_json::Value as Json;

use super::{ChangeActor, DraftError, LimitsChange, NotWritten, SaveError, SavedDraft, Tuning};
use crate::clock::Micros;
use crate::config::{AccessEdit, AccessSaver, DocumentEdit};
use crate::db::DbError;

/// How many changes back the author of an entry is looked for.
const LOOKED_AT: u32 = 100;

/// The change that put an entry of `[access]` in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessOrigin {
    pub at: Micros,
    /// None if the document was edited by hand.
    pub login: Option<String>,
    pub reason: Option<String>,
}

impl From<&LimitsChange> for AccessOrigin {
    fn from(change: &LimitsChange) -> Self {
        Self { at: change.at, login: change.login.clone(), reason: change.reason.clone() }
    }
}

impl Tuning {
    /// Everything that is wrong with a draft of `[access]`, before it is saved. `from` is where its author is.
    pub fn check_access(&self, draft: &Json, from: IpAddr) -> Result<(), Vec<DraftError>> {
        self.0.live.check_access(&self.access_edit(draft, from)?)
    }

    /// Puts a draft of `[access]` in force, if `if_match` is the current version of the document. After `Ok` it is in
    /// force in this instance; the others follow within a second.
    pub async fn save_access(
        &self,
        draft: &Json,
        from: IpAddr,
        if_match: &str,
        by: ChangeActor<'_>,
        reason: &str,
    ) -> Result<SavedDraft, SaveError> {
        let edit = self.access_edit(draft, from).map_err(NotWritten::Invalid)?;
        self.put(DocumentEdit::Access(Box::new(edit)), if_match, by, reason).await
    }

    fn access_edit(&self, draft: &Json, from: IpAddr) -> Result<AccessEdit, Vec<DraftError>> {
        let live = self.0.live.snapshot();
        let current = live.access.settings();
        AccessEdit::read(draft, AccessSaver { current, address: from, now: self.0.clock.now() })
    }

    /// Who put each of these lines of `[access]` in force: the oldest of the changes that have had it without a break.
    /// None if that is not recorded yet.
    pub async fn access_origins(&self, lines: &[String]) -> Result<Vec<Option<AccessOrigin>>, DbError> {
        if lines.is_empty() {
            return Ok(Vec::new());
        }
        let changes = self.history(None, LOOKED_AT).await?;
        let origin = |line: &String| {
            changes.iter().take_while(|change| change.access.contains(line)).last().map(AccessOrigin::from)
        };
        Ok(lines.iter().map(origin).collect())
    }
}
