//! Warnings about the applications: who may enter, and names and groups that nobody has.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::{App, Apps, Who};
use crate::db::DbError;
use crate::login::{Accounts, ListedAccounts};

/// One application, and what the accounts say about it.
pub struct AppCheck {
    pub app: Arc<App>,
    /// How many accounts may enter today.
    pub entering: u64,
    /// Names and groups in a `who` that no account has that may sign in.
    pub missing: Vec<Who>,
}

impl AppCheck {
    /// Anyone who registers may enter.
    pub fn is_open(&self) -> bool {
        self.app.who.contains(&Who::Everyone)
    }

    pub fn warns(&self) -> bool {
        self.is_open() || self.entering == 0 || !self.missing.is_empty()
    }
}

/// Reads the accounts once, and once more those that are named.
pub async fn checks(accounts: &Accounts, apps: &Apps) -> Result<Vec<AppCheck>, DbError> {
    let lists: Vec<&[Who]> = apps.all().iter().map(|app| app.who.as_slice()).collect();
    let listed = apps.all().iter().flat_map(|app| app.listed());
    let ListedAccounts { entering, missing } = accounts.find_listed(&lists, listed).await?;
    let check = |(app, entering): (&Arc<App>, u64)| {
        let missing: BTreeSet<&Who> = app.listed().filter(|who| missing.contains(*who)).collect();
        AppCheck { app: Arc::clone(app), entering, missing: missing.into_iter().cloned().collect() }
    };
    Ok(apps.all().iter().zip(entering).map(check).collect())
}
