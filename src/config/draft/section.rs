//! The live sections that drafts are about: how each is read, on its own, and compared, part by part.

use std::sync::Arc;

use url::Url;

use super::{APPS, DraftError, Overridden, line, splice};
use crate::config::access::{AccessSettings, KEYS};
use crate::config::apps;
use crate::config::document::ConfigTable;
use crate::config::error::{ConfigError, ConfigProblem};
use crate::config::factors::FactorSettings;
use crate::config::limits::Limits;
use crate::config::reader::{self, ProblemList, SectionTable};
use crate::config::settings::LiveSettings;
use crate::config::source::ConfigSource;

#[derive(Debug, Clone)]
pub(super) enum Section {
    Limits,
    Access,
    /// With our own URL, whose host no application can have.
    Apps(Url),
    Factors,
}

impl Section {
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Access => "access",
            Self::Apps(_) => APPS,
            Self::Factors => FactorSettings::NAME,
        }
    }

    /// The form in which a document can take every draft.
    pub const fn usual_form(&self) -> &'static str {
        match self {
            Self::Limits => "write the limits as [limits.name] tables",
            Self::Access => "write it as an [access] table",
            Self::Apps(_) => "write it as [[apps]] tables",
            Self::Factors => "write it as a [factors] table",
        }
    }

    /// Reads a document that contains nothing else, without the variables; with its warnings. The other sections have
    /// their defaults.
    pub fn read(&self, root: ConfigTable) -> Result<(LiveSettings, Vec<ConfigProblem>), ConfigError> {
        let (problems, mut live) = (ProblemList::default(), LiveSettings::default());
        reader::read(root, &problems, |root| match self {
            Self::Limits => live.limits = root.section("limits", Limits::read),
            // Trusted proxies are those of the document that a draft is written into.
            Self::Access => {
                live.access = root.section("access", |section| AccessSettings::read(section, &[])).into();
            }
            Self::Apps(public_url) => live.apps = apps::read(root, public_url),
            Self::Factors => live.factors = Arc::new(root.table()),
        });
        let warnings = problems.take_warnings();
        problems.into_result((live, warnings))
    }

    /// What a document says without the variables; `None` if it has a mistake there.
    pub fn alone(&self, root: &ConfigTable) -> Option<LiveSettings> {
        let own = root.get_key_value(self.key()).map(|(key, entry)| (key.clone(), entry.clone()));
        self.read(own.into_iter().collect()).ok().map(|(live, _)| live)
    }

    /// The section of a document as text, for people to compare.
    pub fn text(&self, source: &ConfigSource, document: &str) -> String {
        match self {
            Self::Limits => splice::limits_toml(document),
            Self::Access => {
                let live = source.tree(document).ok().and_then(|root| self.alone(&root));
                live.map(|live| live.access.settings().toml()).unwrap_or_default()
            }
            Self::Apps(_) => splice::apps_toml(document),
            Self::Factors => splice::toml_of(document, FactorSettings::NAME),
        }
    }

    pub fn is_overridden(&self, overridden: &Overridden, part: &str) -> bool {
        match self {
            Self::Limits => overridden.limit(part),
            Self::Access => overridden.access.contains(&part),
            Self::Apps(_) => overridden.apps,
            Self::Factors => overridden.factors.contains(&part),
        }
    }

    /// How API and forms name a part.
    pub fn field(&self, part: &str) -> String {
        match self {
            Self::Limits => format!("limits.{part}"),
            Self::Factors => format!("factors.{part}"),
            Self::Access | Self::Apps(_) => part.to_owned(),
        }
    }

    /// With fields as API and forms name them: `limits.sms-phone.rules[0]`, `deny[0].until`, `apps[0].name`.
    pub fn errors(&self, error: &ConfigError) -> Vec<DraftError> {
        let draft_error = |ConfigProblem { place, field, reason }: &ConfigProblem| {
            let field = match self {
                Self::Access => field.strip_prefix("access.").unwrap_or(field),
                Self::Limits | Self::Apps(_) | Self::Factors => field.as_str(),
            };
            DraftError::at(field, reason.clone(), line(place))
        };
        error.problems().iter().map(draft_error).collect()
    }

    /// What variables set, and drafts change, one by one: limits, the keys of `[access]`, all applications.
    pub fn parts<'l>(&self, live: &'l LiveSettings) -> Vec<&'l str> {
        match self {
            Self::Limits => live.limits.iter().map(|limit| limit.name()).collect(),
            Self::Access => KEYS.to_vec(),
            Self::Apps(_) => vec![APPS],
            Self::Factors => FactorSettings::KEYS.to_vec(),
        }
    }

    pub fn same(&self, one: &LiveSettings, other: &LiveSettings, part: &str) -> bool {
        match self {
            Self::Limits => one.limits.get(part) == other.limits.get(part),
            Self::Access => one.access.settings().same(other.access.settings(), part),
            Self::Apps(_) => one.apps == other.apps,
            Self::Factors => one.factors.value(part).to_string() == other.factors.value(part).to_string(),
        }
    }

    /// Whether both have every part in common, except `ignored` ones.
    pub fn all_same(&self, one: &LiveSettings, other: &LiveSettings, ignored: &dyn Fn(&str) -> bool) -> bool {
        let mut parts = self.parts(one).into_iter().chain(self.parts(other));
        parts.all(|part| ignored(part) || self.same(one, other, part))
    }
}
