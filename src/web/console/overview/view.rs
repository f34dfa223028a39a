//! `/admin`: current activity, its busiest subjects, and the state of the dependencies.

use std::borrow::Cow;

use askama::Template;
use rust_i18n::t;

use crate::sms::SpentRule;
use crate::web::console::attack::AttackBanner;
use crate::web::console::chart::Chart;
use crate::web::console::subject_link::SubjectLink;
use crate::web::console::words::{grouped, share, title};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// The counts of the last hour or day.
#[derive(Debug, Clone, Copy, Default)]
pub struct Period {
    pub signed_in: u64,
    pub wrong: u64,
    /// Attempts that had to solve a CAPTCHA first.
    pub challenged: u64,
    pub refused: u64,
    pub images: u64,
    pub solved: u64,
    pub sent: u64,
    /// How many of the sent codes have been entered.
    pub entered: u64,
    pub wrong_codes: u64,
    /// Passwords disabled after too many wrong ones in a row.
    pub disabled: u64,
    /// Codes that were not sent because codes are rationed.
    pub withheld: u64,
}

/// The decisions of one limit.
pub struct Use {
    pub limit: String,
    pub challenged: [u64; 2],
    pub refused: [u64; 2],
    /// What it would have refused, but for monitor mode.
    pub noted: [u64; 2],
}

/// What became of the attempts at another program's login.
pub struct RealmUse {
    pub realm: String,
    pub let_through: [u64; 2],
    /// Of those.
    pub wrong: [u64; 2],
    pub challenged: [u64; 2],
    pub waiting: [u64; 2],
}

impl RealmUse {
    /// Locale keys and figures, as the columns are.
    fn columns(&self) -> [(&'static str, &[u64; 2]); 4] {
        [
            ("overview.let-through", &self.let_through),
            ("overview.wrong", &self.wrong),
            ("overview.challenged", &self.challenged),
            ("overview.told-to-wait", &self.waiting),
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

/// A dependency of this instance.
pub struct Part {
    pub key: &'static str,
    pub up: bool,
    pub text: String,
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
    note: Option<String>,
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
        let came_back = share(entered, sent).map(|share| self.number("overview.came-back", share));
        let answered = share(solved, images).map(|share| self.number("overview.solved", share));
        vec![
            tile("overview.signed-in", |of| of.signed_in, "ok", None),
            tile("overview.wrong", |of| of.wrong, "wrong", None),
            tile("overview.challenged", |of| of.challenged, "asked", answered),
            tile("overview.refused", |of| of.refused, "refused", None),
            tile("overview.sent", |of| of.sent, "ok", came_back),
            tile("overview.wrong-codes", |of| of.wrong_codes, "wrong", None),
        ]
    }

    fn number(&self, key: &'static str, number: u64) -> String {
        t!(key, locale = self.layout.locale.code(), count = number).into_owned()
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
