//! The live sections: the parts of a document that apply without a restart, which drafts and the history are about; how
//! each is read on its own, and compared, part by part.

use std::sync::Arc;

use strum::{EnumString, IntoStaticStr, VariantArray};
use url::Url;

use super::access::{AccessSettings, KEYS};
use super::apps;
use super::brand::Brand;
use super::document::{ConfigTable, ConfigValue, TableEntry};
use super::error::{ConfigError, ConfigProblem};
use super::factors::FactorSettings;
use super::limits::Limits;
use super::mail::MailTunables;
use super::origins::OriginSettings;
use super::reader::{self, ProblemList, SectionTable};
use super::sections::{CaptchaTunables, LoginTunables, RegistrationSettings};
use super::settings::LiveSettings;
use super::sms::SmsTunables;

/// A live section. Its name is its key in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum LiveSection {
    Limits,
    Access,
    Apps,
    Factors,
    Brand,
    Login,
    Origins,
    Registration,
    /// Only some keys of it are live.
    Captcha,
    /// Only some keys of it are live.
    Sms,
    /// Only some keys of it are live.
    Mail,
}

impl LiveSection {
    pub const fn name(self) -> &'static str {
        self.into_str()
    }

    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// The keys that are live; empty if all are.
    pub const fn live_keys(self) -> &'static [&'static str] {
        match self {
            Self::Captcha => CaptchaTunables::KEYS,
            Self::Sms => SmsTunables::KEYS,
            Self::Mail => MailTunables::KEYS,
            Self::Limits | Self::Access | Self::Apps | Self::Factors => &[],
            Self::Brand | Self::Login | Self::Origins | Self::Registration => &[],
        }
    }

    /// The form in which a document can take every draft.
    pub(super) const fn usual_form(self) -> &'static str {
        match self {
            Self::Limits => "write the limits as [limits.name] tables",
            Self::Access => "write it as an [access] table",
            Self::Apps => "write it as [[apps]] tables",
            Self::Factors => "write it as a [factors] table",
            Self::Brand => "write it as a [brand] table",
            Self::Login => "write it as a [login] table",
            Self::Origins => "write it as an [origins] table",
            Self::Registration => "write it as a [registration] table",
            Self::Captcha => "write it as a [captcha] table",
            Self::Sms => "write it as an [sms] table",
            Self::Mail => "write it as a [mail] table",
        }
    }

    /// Reads a document that contains nothing else, without the variables; with its warnings. The other sections have
    /// their defaults. No application can have the host of `public_url`.
    pub(super) fn read(
        self,
        root: ConfigTable,
        public_url: &Url,
    ) -> Result<(LiveSettings, Vec<ConfigProblem>), ConfigError> {
        let (problems, mut live) = (ProblemList::default(), LiveSettings::default());
        reader::read(root, &problems, |root| match self {
            Self::Limits => live.limits = root.section(self.name(), Limits::read),
            // Trusted proxies and lists are those of the document that a draft is written into.
            Self::Access => {
                let read = |section: &mut _| AccessSettings::read(section, &[], None);
                live.access = root.section(self.name(), read).into();
            }
            Self::Apps => live.apps = apps::read(root, public_url),
            Self::Factors => live.factors = Arc::new(root.table()),
            Self::Brand => live.brand = Arc::new(root.table()),
            Self::Login => live.login = root.table(),
            Self::Origins => live.origins = root.table(),
            Self::Registration => live.registration = root.table(),
            Self::Captcha => live.captcha = root.table(),
            Self::Sms => live.sms = root.table(),
            Self::Mail => live.mail = root.table(),
        });
        let warnings = problems.take_warnings();
        problems.into_result((live, warnings))
    }

    /// What a document says without the variables; `None` if it has a mistake there.
    pub(super) fn alone(self, root: &ConfigTable, public_url: &Url) -> Option<LiveSettings> {
        let own = root.get_key_value(self.name()).map(|(key, entry)| (key.clone(), entry.clone()));
        let mut own: ConfigTable = own.into_iter().collect();
        if let Some(ConfigValue::Table(table)) = own.get_mut(self.name()).map(TableEntry::value_mut) {
            table.retain(|key, _| self.is_live(key));
        }
        self.read(own, public_url).ok().map(|(live, _)| live)
    }

    pub(super) fn is_live(self, key: &str) -> bool {
        let keys = self.live_keys();
        keys.is_empty() || keys.contains(&key)
    }

    /// The name of a part in API and forms.
    pub(super) fn field(self, part: &str) -> String {
        match self {
            Self::Access | Self::Apps => part.to_owned(),
            _ => format!("{}.{part}", self.name()),
        }
    }

    /// What variables set, and drafts change, one by one: limits, the keys of a table, all applications.
    pub(super) fn parts(self, live: &LiveSettings) -> Vec<&str> {
        match self {
            Self::Limits => live.limits.iter().map(|limit| limit.name()).collect(),
            _ => self.keys().to_vec(),
        }
    }

    /// The parts that have fixed names.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Limits => &[],
            Self::Access => &KEYS,
            Self::Apps => &["apps"],
            Self::Factors => FactorSettings::KEYS,
            Self::Brand => Brand::KEYS,
            Self::Login => LoginTunables::KEYS,
            Self::Origins => OriginSettings::KEYS,
            Self::Registration => RegistrationSettings::KEYS,
            Self::Captcha => CaptchaTunables::KEYS,
            Self::Sms => SmsTunables::KEYS,
            Self::Mail => MailTunables::KEYS,
        }
    }

    pub(super) fn same(self, one: &LiveSettings, other: &LiveSettings, part: &str) -> bool {
        let differences = match self {
            Self::Limits => return one.limits.get(part) == other.limits.get(part),
            Self::Access => return one.access.settings().same(other.access.settings(), part),
            Self::Apps => return one.apps == other.apps,
            Self::Factors => one.factors.differences(&other.factors),
            Self::Brand => one.brand.differences(&other.brand),
            Self::Login => one.login.differences(&other.login),
            Self::Origins => one.origins.differences(&other.origins),
            Self::Registration => one.registration.differences(&other.registration),
            Self::Captcha => one.captcha.differences(&other.captcha),
            Self::Sms => one.sms.differences(&other.sms),
            Self::Mail => one.mail.differences(&other.mail),
        };
        let key = |full: &&str| full.rsplit('.').next() == Some(part);
        !differences.iter().any(key)
    }
}
