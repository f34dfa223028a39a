//! `/admin`: current activity, its busiest subjects, and the state of the dependencies.

use std::borrow::Cow;

use askama::Template;
use rust_i18n::t;

use crate::audit::RankedSubject;
use crate::sms::SpentRule;
use crate::web::console::attack::AttackBanner;
use crate::web::console::chart::Chart;
use crate::web::console::figures::{LimitUse, Period, means};
use crate::web::console::subject_link::SubjectLink;
use crate::web::console::words::{grouped, share, title};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// What one limit did in the hour and in the day.
pub struct Use {
    pub limit: String,
    pub spans: [LimitUse; 2],
}

impl Use {
    /// Locale keys and figures, as the columns are.
    fn columns(&self) -> [(&'static str, [u64; 2]); 3] {
        let of = |figure: fn(&LimitUse) -> u64| [figure(&self.spans[0]), figure(&self.spans[1])];
        [
            ("overview.challenged", of(|it| it.challenged)),
            ("overview.refused", of(|it| it.refused)),
            ("overview.noted", of(|it| it.noted)),
        ]
    }
}

/// What became of the attempts at another program's login.
pub struct RealmUse {
    pub realm: String,
    pub let_through: [u64; 2],
    /// Of those.
    pub wrong: [u64; 2],
    pub challenged: [u64; 2],
    pub refused: [u64; 2],
}

impl RealmUse {
    /// Locale keys and figures, as the columns are.
    fn columns(&self) -> [(&'static str, &[u64; 2]); 4] {
        [
            ("overview.let-through", &self.let_through),
            ("overview.wrong", &self.wrong),
            ("overview.challenged", &self.challenged),
            ("overview.refused", &self.refused),
        ]
    }
}

/// The last hour and the last day of one kind.
pub struct Charts {
    pub key: &'static str,
    pub hour: Chart,
    pub day: Chart,
}

/// A masked subject with unusual activity.
pub struct Subject {
    pub link: SubjectLink,
    pub attempts: u64,
}

impl Subject {
    /// Whether it is the address from which all attempts of a network came; entered codes name no network.
    pub fn is_all_of(&self, network: &RankedSubject) -> bool {
        let RankedSubject { subject, count } = network;
        self.link.is_address() && self.link.mask == subject.mask && self.attempts >= count.unsigned_abs()
    }
}

/// A dependency of this instance.
pub struct Part {
    pub key: &'static str,
    pub up: bool,
    pub text: String,
}

impl Part {
    fn means(&self) -> Option<&'static str> {
        Some(means(self.key)).filter(|key| !key.is_empty())
    }
}

pub struct InstanceRow {
    pub host: String,
    pub version: String,
    /// The instance runs with the newest document.
    pub current: bool,
    pub started: Moment,
    pub seen: Moment,
    pub refused: Option<String>,
}

/// A problem that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    InstancesDiffer,
    /// The newest document is not in force here.
    Refused {
        reason: String,
    },
    BackendDown {
        reason: String,
    },
    StoreDown,
    Dropped {
        count: u64,
    },
    PasswordsDisabled {
        count: u64,
    },
    /// Half of the messages for everyone together are spent; or, with `short`, all that everyone may spend.
    MessagesSpent {
        spent: SpentRule,
        short: bool,
    },
    CodesWithheld {
        count: u64,
    },
    /// Answers to an attack are in force.
    AccessInForce {
        count: u64,
    },
    /// Most attempts come from one address.
    SharedAddress {
        percent: u64,
        mask: String,
    },
}

/// All data of the page.
pub struct Overview {
    pub now: Moment,
    pub hour: Period,
    pub day: Period,
    pub charts: Vec<Charts>,
    pub realms: Vec<RealmUse>,
    pub uses: Vec<Use>,
    pub subjects: Vec<Subject>,
    pub parts: Vec<Part>,
    pub instances: Vec<InstanceRow>,
    pub attacks: Vec<AttackBanner>,
    pub warnings: Vec<Warning>,
    /// The address of this request, as limits count it.
    pub address: String,
}

/// A figure for the hour, with the same figure for the day.
struct Tile {
    key: &'static str,
    hour: String,
    day: String,
    /// Locale key and text.
    note: Option<(&'static str, String)>,
    tone: &'static str,
}

#[derive(Template)]
#[template(path = "pages/admin/overview.html")]
pub struct OverviewPage {
    layout: Layout,
    it: Overview,
}

impl OverviewPage {
    pub fn new(visit: &Visit, user: &str, it: Overview) -> Self {
        Self { layout: visit.layout("/admin", Some(user)), it }
    }

    fn tiles(&self) -> Vec<Tile> {
        let Period { solved, images, sent, entered, .. } = self.it.hour;
        let tile = |key, of: fn(&Period) -> u64, tone, note| Tile {
            key,
            hour: grouped(of(&self.it.hour)),
            day: grouped(of(&self.it.day)),
            note,
            tone,
        };
        let came_back = self.percent("overview.came-back", share(entered, sent));
        let answered = self.percent("overview.solved", share(solved, images));
        vec![
            tile("overview.signed-in", |of| of.signed_in, "ok", None),
            tile("overview.wrong", |of| of.wrong, "wrong", None),
            tile("overview.challenged", |of| of.challenged, "asked", answered),
            tile("overview.refused", |of| of.refused, "refused", None),
            tile("overview.sent", |of| of.sent, "ok", came_back),
            tile("overview.wrong-codes", |of| of.wrong_codes, "wrong", None),
        ]
    }

    fn percent(&self, key: &'static str, share: Option<u64>) -> Option<(&'static str, String)> {
        Some((key, t!(key, locale = self.layout.locale.code(), count = share?).into_owned()))
    }

    fn limit_title(&self, name: &str) -> Cow<'static, str> {
        title(name, self.layout.locale)
    }

    fn count(&self, number: &u64) -> String {
        grouped(*number)
    }

    /// The warning in one line, and what to do about it.
    fn warning(&self, warning: &Warning) -> (Cow<'static, str>, Cow<'static, str>) {
        let code = self.layout.locale.code();
        let plain = |title, text| (self.layout.t(title), self.layout.t(text));
        match warning {
            Warning::InstancesDiffer => plain("warning.differ-title", "warning.differ-text"),
            Warning::Refused { .. } => plain("warning.document-title", "warning.document-text"),
            Warning::BackendDown { .. } => plain("warning.backend-title", "warning.backend-text"),
            Warning::StoreDown => plain("warning.store-title", "warning.store-text"),
            Warning::Dropped { count } => (
                t!("warning.dropped-title", locale = code, count = grouped(*count)),
                self.layout.t("warning.dropped-text"),
            ),
            Warning::PasswordsDisabled { count } => (
                t!("warning.disabled-title", locale = code, count = grouped(*count)),
                self.layout.t("warning.disabled-text"),
            ),
            Warning::MessagesSpent { spent: SpentRule { count, max, .. }, short } => {
                let (title, text) = if *short {
                    ("warning.short-title", "warning.short-text")
                } else {
                    ("warning.half-title", "warning.half-text")
                };
                let (count, max) = (grouped((*count).into()), grouped((*max).into()));
                (t!(title, locale = code, count = count, max = max), self.layout.t(text))
            }
            Warning::AccessInForce { count } => (
                t!("warning.access-title", locale = code, count = grouped(*count)),
                self.layout.t("warning.access-text"),
            ),
            Warning::CodesWithheld { count } => (
                t!("warning.withheld-title", locale = code, count = grouped(*count)),
                self.layout.t("warning.withheld-text"),
            ),
            Warning::SharedAddress { percent, mask } => (
                t!("warning.shared-title", locale = code, percent = percent, mask = mask),
                self.layout.t("warning.shared-text"),
            ),
        }
    }

    /// Where something can be done about it.
    fn leads_to(&self, warning: &Warning) -> Option<&'static str> {
        matches!(warning, Warning::AccessInForce { .. }).then_some("/admin/access")
    }

    /// The error's own text.
    fn said<'a>(&self, warning: &'a Warning) -> Option<&'a str> {
        match warning {
            Warning::Refused { reason } | Warning::BackendDown { reason } => Some(reason),
            _ => None,
        }
    }
}
