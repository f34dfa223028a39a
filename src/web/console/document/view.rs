//! What the editors of parts of the document show, and the page of a draft that came too late.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;

use super::diff::{DiffKind, DiffLine};
use super::draft::Controls;
use super::part::{DocumentPart, PartWords};
use crate::tuning::DraftError;
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;

/// Why a draft is shown again.
#[derive(Debug, Clone, Default)]
pub enum EditorNotice {
    #[default]
    None,
    /// The form is not ours, or too old.
    Expired,
    /// Saving failed; the text is the backend's error.
    NotSaved(String),
}

/// All of a part of the document as TOML, as in the file.
#[derive(Debug, Clone)]
pub struct TomlDraft {
    pub part: DocumentPart,
    pub toml: String,
    pub controls: Controls,
    pub mistakes: Vec<DraftError>,
    pub notice: EditorNotice,
}

impl TomlDraft {
    pub const fn new(part: DocumentPart, toml: String, controls: Controls) -> Self {
        Self { part, toml, controls, mistakes: Vec::new(), notice: EditorNotice::None }
    }

    /// Its page has a mistake to show.
    pub fn is_mistaken(&self) -> bool {
        self.controls.reason_missing || !self.mistakes.is_empty()
    }

    pub fn status(&self) -> StatusCode {
        status(&self.controls, &self.mistakes, &self.notice)
    }

    pub const fn words(&self) -> PartWords {
        self.part.words()
    }

    pub fn lines(&self) -> usize {
        self.toml.lines().count().clamp(12, 40)
    }
}

pub fn status(controls: &Controls, mistakes: &[DraftError], notice: &EditorNotice) -> StatusCode {
    match notice {
        EditorNotice::Expired => StatusCode::FORBIDDEN,
        EditorNotice::NotSaved(_) => StatusCode::SERVICE_UNAVAILABLE,
        EditorNotice::None if mistakes.is_empty() && !controls.reason_missing => StatusCode::OK,
        EditorNotice::None => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Somebody else saved meanwhile: shows what is in force, the draft, and how to go on.
#[derive(Template)]
#[template(path = "pages/admin/stale.html")]
pub struct StalePage {
    layout: Layout,
    part: DocumentPart,
    was: String,
    now: String,
    diff: Vec<DiffLine>,
    draft: String,
    reason: String,
}

impl StalePage {
    /// `diff` leads from what is in force to the draft.
    pub fn new(
        visit: &Visit,
        user: &str,
        part: DocumentPart,
        controls: &Controls,
        now: String,
        diff: Vec<DiffLine>,
        draft: String,
    ) -> Self {
        let layout = visit.layout(part.page(), Some(user));
        let Controls { version, reason, .. } = controls;
        Self { layout, part, was: version.clone(), now, diff, draft, reason: reason.clone() }
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        visit.page(StatusCode::PRECONDITION_FAILED, self)
    }
}
