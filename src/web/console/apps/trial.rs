//! A draft of the applications compared with those in force, for the page and the call.

use super::check::{AppCheck, checks};
use crate::db::DbError;
use crate::gate::{AppsTrial, compare_apps};
use crate::tuning::{DocumentDraft, DraftError};
use crate::web::kit::services::Services;

/// Who loses and gains what with a draft, and its warnings.
pub struct TriedApps {
    pub trial: AppsTrial,
    pub checks: Vec<AppCheck>,
}

/// What trying a draft comes to.
pub enum TrialOutcome {
    Tried(TriedApps),
    /// Another draft is being tried.
    Busy,
    Mistaken(Vec<DraftError>),
}

/// Compares what would be in force with the draft with what is, and changes nothing.
pub async fn tried(services: &Services, draft: DocumentDraft<'_>) -> Result<TrialOutcome, DbError> {
    let after = match services.live.parse_apps(draft) {
        Ok(apps) => apps,
        Err(errors) => return Ok(TrialOutcome::Mistaken(errors)),
    };
    let (live, accounts) = (services.live.clone(), services.accounts.clone());
    let tried = services.gate.try_in_turn(async move {
        let trial = compare_apps(&accounts, &live.snapshot().apps, &after).await?;
        Ok(TrialOutcome::Tried(TriedApps { trial, checks: checks(&accounts, &after).await? }))
    });
    tried.await.unwrap_or(Ok(TrialOutcome::Busy))
}
