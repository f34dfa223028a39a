//! The parts of the document that are edited as TOML, and what differs between them.

use crate::tuning::{DocumentDraft, DraftError, SaveError, SavedDraft};
use crate::web::console::guard::Admin;
use crate::web::kit::flash::Flash;
use crate::web::kit::services::Services;

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

    /// All mistakes of a draft.
    pub fn mistakes(self, services: &Services, draft: DocumentDraft<'_>) -> Vec<DraftError> {
        let parsed = match self {
            Self::Limits => services.live.parse(draft).map(drop),
            Self::Apps => services.live.parse_apps(draft).map(drop),
        };
        parsed.err().unwrap_or_default()
    }

    pub async fn save(
        self,
        services: &Services,
        admin: &Admin,
        draft: DocumentDraft<'_>,
        version: &str,
        reason: &str,
    ) -> Result<SavedDraft, SaveError> {
        let (account, tuning) = (admin.id(), &services.tuning);
        let by = admin.by(&account);
        match self {
            Self::Limits => tuning.save(draft, version, by, reason).await,
            Self::Apps => tuning.save_apps(draft, version, by, reason).await,
        }
    }
}
