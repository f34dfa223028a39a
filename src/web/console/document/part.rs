//! The parts of the document that are edited as TOML, and what differs between them.

use crate::config::{DraftEdit, LiveHandle};
use crate::tuning::{DocumentDraft, DocumentEdit, DraftError};
use crate::web::kit::flash::Flash;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentPart {
    Limits,
    Apps,
}

/// The words of its editor, as keys.
pub struct PartWords {
    pub title: &'static str,
    pub back: &'static str,
    pub lead: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub attempt: &'static str,
}

impl DocumentPart {
    /// Its key in the document.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Apps => "apps",
        }
    }

    /// Its page, where a saved draft leads to.
    pub const fn page(self) -> &'static str {
        match self {
            Self::Limits => "/admin/limits",
            Self::Apps => "/admin/apps",
        }
    }

    /// Where all of it is edited.
    pub const fn editor(self) -> &'static str {
        match self {
            Self::Limits => "/admin/limits/toml",
            Self::Apps => "/admin/apps/edit",
        }
    }

    /// The name of a save in the record of events.
    pub const fn act(self) -> &'static str {
        match self {
            Self::Limits => "limits.save",
            Self::Apps => "apps.save",
        }
    }

    pub const fn saved(self) -> Flash {
        match self {
            Self::Limits => Flash::LimitsSaved,
            Self::Apps => Flash::AppsSaved,
        }
    }

    pub const fn words(self) -> PartWords {
        match self {
            Self::Limits => PartWords {
                title: "limit-page.as-toml",
                back: "limit-page.back",
                lead: "draft.toml-lead",
                label: "draft.toml",
                hint: "draft.toml-hint",
                attempt: "draft.try",
            },
            Self::Apps => PartWords {
                title: "apps-page.edit-title",
                back: "apps-page.back",
                lead: "apps-page.edit-lead",
                label: "apps-page.toml",
                hint: "apps-page.toml-hint",
                attempt: "apps-page.try",
            },
        }
    }

    /// Returns all mistakes of a draft.
    pub fn read(self, live: &LiveHandle, draft: DocumentDraft<'_>) -> Result<DocumentEdit, Vec<DraftError>> {
        Ok(match self {
            Self::Limits => DocumentEdit::Limits(Box::new(DraftEdit::read(draft)?)),
            Self::Apps => DocumentEdit::Apps(Box::new(live.read_apps(draft)?)),
        })
    }
}
