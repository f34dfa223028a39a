//! `[access]`: its drafts, and who put an entry in force.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value as Json;

use super::{DocumentEdit, DraftError, LimitsChange, Tuning};
use crate::clock::Micros;
use crate::config::{AccessEdit, AccessSaver};
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
    /// Reads a draft of `[access]`; `from` is where its author is.
    pub fn access_edit(&self, draft: &Json, from: IpAddr) -> Result<DocumentEdit, Vec<DraftError>> {
        let live = self.0.live.snapshot();
        let current = live.access.settings();
        let edit = AccessEdit::read(draft, AccessSaver { current, address: from, now: self.0.clock.now() })?;
        Ok(DocumentEdit::Access(Box::new(edit)))
    }

    /// Who put each of these lines of `[access]` in force: the oldest of the changes that have had it without a break.
    /// None if that is not recorded yet.
    pub async fn access_origins(&self, lines: &[String]) -> Result<Vec<Option<AccessOrigin>>, DbError> {
        if lines.is_empty() {
            return Ok(Vec::new());
        }
        let changes = self.history(None, LOOKED_AT).await?;
        let mut origins = vec![None; lines.len()];
        let mut followed: Vec<usize> = (0..lines.len()).collect();
        for change in &changes {
            let had: HashSet<&str> =
                change.access.lines().map(|line| line.trim().trim_end_matches(',')).collect();
            followed.retain(|&index| had.contains(lines[index].as_str()));
            followed.iter().for_each(|&index| origins[index] = Some(AccessOrigin::from(change)));
        }
        Ok(origins)
    }
}
