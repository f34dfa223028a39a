//! The live sections that drafts are about: how each is read and compared, on its own and part by part.

use url::Url;

use super::{APPS, DraftError, Overridden, draft_errors, splice};
use crate::config::access::{AccessSettings, KEYS};
use crate::config::apps::{self, Apps};
use crate::config::document::ConfigTable;
use crate::config::error::ConfigError;
use crate::config::limits::Limits;
use crate::config::reader::{self, ProblemList};
use crate::config::settings::LiveSettings;
use crate::config::source::ConfigSource;

#[derive(Debug, Clone)]
pub(super) enum Section {
    Limits,
    Access,
    /// With our own URL, whose host no application can have.
    Apps(Url),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SectionValue {
    Limits(Box<Limits>),
    Access(AccessSettings),
    Apps(Apps),
}

impl Section {
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Access => "access",
            Self::Apps(_) => APPS,
        }
    }

    /// The form in which a document can take every draft.
    pub const fn usual_form(&self) -> &'static str {
        match self {
            Self::Limits => "write the limits as [limits.name] tables",
            Self::Access => "write it as an [access] table",
            Self::Apps(_) => "write it as [[apps]] tables",
        }
    }

    /// Reads a document that contains nothing else, without the variables.
    pub fn read(&self, root: ConfigTable) -> Result<SectionValue, ConfigError> {
        let problems = ProblemList::default();
        let value = reader::read(root, &problems, |root| match self {
            Self::Limits => SectionValue::Limits(Box::new(root.section("limits", Limits::read))),
            // Trusted proxies are those of the document that a draft is written into.
            Self::Access => {
                SectionValue::Access(root.section("access", |section| AccessSettings::read(section, &[])))
            }
            Self::Apps(public_url) => SectionValue::Apps(apps::read(root, public_url)),
        });
        problems.into_result(value)
    }

    /// What a document says without the variables; `None` if it has a mistake there.
    pub fn alone(&self, root: &ConfigTable) -> Option<SectionValue> {
        let own = root.get_key_value(self.key()).map(|(key, entry)| (key.clone(), entry.clone()));
        self.read(own.into_iter().collect()).ok()
    }

    pub fn in_force(&self, live: &LiveSettings) -> SectionValue {
        match self {
            Self::Limits => SectionValue::Limits(Box::new(live.limits.clone())),
            Self::Access => SectionValue::Access(live.access.settings().clone()),
            Self::Apps(_) => SectionValue::Apps(live.apps.clone()),
        }
    }

    /// The section of a document as text, for people to compare.
    pub fn text(&self, source: &ConfigSource, document: &str) -> String {
        match self {
            Self::Limits => splice::limits_toml(document),
            Self::Access => match source.tree(document).ok().and_then(|root| self.alone(&root)) {
                Some(SectionValue::Access(settings)) => settings.toml(),
                _ => String::new(),
            },
            Self::Apps(_) => splice::apps_toml(document),
        }
    }

    pub fn is_overridden(&self, overridden: &Overridden, part: &str) -> bool {
        match self {
            Self::Limits => overridden.limit(part),
            Self::Access => overridden.access.contains(&part),
            Self::Apps(_) => overridden.apps,
        }
    }

    /// How API and forms name a part.
    pub fn field(&self, part: &str) -> String {
        match self {
            Self::Limits => format!("limits.{part}"),
            Self::Access | Self::Apps(_) => part.to_owned(),
        }
    }

    /// With fields as API and forms name them: `limits.sms-phone.rules[0]`, `deny[0].until`, `apps[0].name`.
    pub fn errors(&self, error: &ConfigError) -> Vec<DraftError> {
        let mut errors = draft_errors(error);
        if let Self::Access = self {
            for DraftError { field, .. } in &mut errors {
                *field = field.strip_prefix("access.").unwrap_or(field).to_owned();
            }
        }
        errors
    }
}

impl SectionValue {
    /// What variables set, and drafts change, one by one: limits, the keys of `[access]`, all applications.
    pub fn parts(&self) -> Vec<&str> {
        match self {
            Self::Limits(limits) => limits.iter().map(|limit| limit.name()).collect(),
            Self::Access(_) => KEYS.to_vec(),
            Self::Apps(_) => vec![APPS],
        }
    }

    pub fn same(&self, other: &Self, part: &str) -> bool {
        match (self, other) {
            (Self::Limits(one), Self::Limits(other)) => one.get(part) == other.get(part),
            (Self::Access(one), Self::Access(other)) => one.same(other, part),
            _ => self == other,
        }
    }
}
