//! A draft of the applications compared with those in force, for the page and the call.

use super::check::{AppCheck, checks};
use crate::db::DbError;
use crate::gate::{AppsTrial, compare_apps};
use crate::tuning::DraftError;
use crate::web::console::document::call::{DraftBody, read_draft};
use crate::web::console::guard::Admin;
use crate::web::kit::problem::Problem;
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
pub async fn tried(services: &Services, admin: &Admin, body: DraftBody) -> Result<TrialOutcome, Problem> {
    let after = match read_draft(services, admin, move |live| live.parse_apps(body.draft())).await? {
        Ok(apps) => apps,
        Err(errors) => return Ok(TrialOutcome::Mistaken(errors)),
    };
    let (live, accounts) = (services.live.clone(), services.accounts.clone());
    let tried = services.gate.try_in_turn(async move {
        let trial = compare_apps(&accounts, &live.snapshot().apps, &after).await?;
        Ok::<_, DbError>(TrialOutcome::Tried(TriedApps { trial, checks: checks(&accounts, &after).await? }))
    });
    Ok(tried.await.unwrap_or(Ok(TrialOutcome::Busy))?)
}
