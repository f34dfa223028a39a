//! `/admin/limits/history`: who changed the limits, when and why, and the rollback.

use askama::Template;

use crate::web::console::document::diff::{DiffKind, DiffLine};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// One set of limits that was in force.
pub struct ChangeRow {
    pub id: String,
    pub at: Moment,
    pub version: String,
    /// None if the document was edited by hand.
    pub login: Option<String>,
    pub reason: Option<String>,
    /// The difference from the previous set.
    pub diff: Vec<DiffLine>,
    /// In force now, so there is no rollback to it.
    pub current: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/history.html")]
pub struct HistoryPage {
    layout: Layout,
    changes: Vec<ChangeRow>,
    older: Option<String>,
    later: bool,
}

impl HistoryPage {
    /// `here` is the page with its query. `later`: the list does not begin with the newest change.
    pub fn new(
        visit: &Visit,
        user: &str,
        here: &str,
        changes: Vec<ChangeRow>,
        older: Option<String>,
        later: bool,
    ) -> Self {
        Self { layout: visit.layout(here, Some(user)), changes, older, later }
    }
}

/// Asks for a reason before a rollback to an earlier set.
#[derive(Template)]
#[template(path = "pages/admin/rollback.html")]
pub struct RollbackPage {
    layout: Layout,
    change: ChangeRow,
    /// The difference from the limits in force to that set.
    diff: Vec<DiffLine>,
    version: String,
    reason: String,
    problem: Option<RollbackProblem>,
}

pub enum RollbackProblem {
    ReasonMissing,
    /// The limits were changed since the page was opened.
    Stale,
    Expired,
    /// The set cannot be put in force; the text is the error.
    Refused(String),
}

impl RollbackPage {
    pub fn new(visit: &Visit, user: &str, change: ChangeRow, diff: Vec<DiffLine>, version: String) -> Self {
        let here = format!("/admin/limits/history/{}", change.id);
        let layout = visit.layout(here, Some(user));
        Self { layout, change, diff, version, reason: String::new(), problem: None }
    }

    pub fn problem(mut self, reason: &str, problem: RollbackProblem) -> Self {
        self.layout.mistaken = matches!(problem, RollbackProblem::ReasonMissing);
        (self.reason, self.problem) = (reason.to_owned(), Some(problem));
        self
    }
}
