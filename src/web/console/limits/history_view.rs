//! `/admin/limits/history`: who changed the limits, when, why, and the way back.

use askama::Template;

use crate::web::console::limits::diff::{DiffKind, DiffLine};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// One set of limits that was in force.
pub struct ChangeRow {
    pub id: String,
    pub at: Moment,
    pub version: String,
    /// Nobody, where the document was edited by hand.
    pub login: Option<String>,
    pub reason: Option<String>,
    /// From what was in force before it.
    pub diff: Vec<DiffLine>,
    /// In force now: there is no way back to it.
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
    /// `here` is the page with its query; `later`: it does not begin with the newest.
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

/// Asks for the reason before an earlier set is put in force again.
#[derive(Template)]
#[template(path = "pages/admin/rollback.html")]
pub struct RollbackPage {
    layout: Layout,
    change: ChangeRow,
    /// From what is in force to that set.
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
    /// It cannot be put in force; in the words of what refused it.
    Refused(String),
}

impl RollbackPage {
    pub fn new(visit: &Visit, user: &str, change: ChangeRow, diff: Vec<DiffLine>, version: String) -> Self {
        let here = format!("/admin/limits/history/{}", change.id);
        let layout = visit.layout(here, Some(user));
        Self { layout, change, diff, version, reason: String::new(), problem: None }
    }

    pub fn problem(mut self, reason: &str, problem: RollbackProblem) -> Self {
        (self.reason, self.problem) = (reason.to_owned(), Some(problem));
        self
    }
}
