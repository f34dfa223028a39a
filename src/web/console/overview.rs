//! `/admin`: recent activity from the record of events, its busiest subjects, and the state of this instance's
//! dependencies.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use askama::Template;
use rust_i18n::t;

use crate::audit::{
    Action, EventCount, Fate, FiguresStep, MINUTE, RankedSubject, SharedAddress, SubjectKind,
};
use crate::clock::Micros;
use crate::db::DbError;
use crate::sms::{BudgetLevel, SpentRule};
use crate::tuning::{CurrentLimits, Instance};
use crate::web::console::attack::AttackBanner;
use crate::web::console::chart::{Chart, ChartSpan, Series};
use crate::web::console::figures::{
    DAY, FateSeries, HOUR, LimitUse, MESSAGES, Period, SIGN_INS, means, period, total,
};
use crate::web::console::guard::AdminRequest;
use crate::web::console::limit_text::{self, grouped, share, title};
use crate::web::console::subject_link::{self, SubjectLink};
use crate::web::http::services::State;
use crate::web::http::{Layout, Locale, Moment, PageRequest, Services, WebResult};

/// How many subjects of each kind are shown, and how many in total.
const TOP: u32 = 5;
const MOST: usize = 8;
/// An address is suspicious from this many attempts, at this many accounts, and from this share of all
/// attempts.
const SHARED_ATTEMPTS: i64 = 50;
const SHARED_ACCOUNTS: i64 = 5;
const SHARED_PERCENT: i64 = 80;
/// Waits and sign-ins that take longer are told as a fault. A known device is to be signed in within 1.5 seconds.
const SLOW: Duration = Duration::from_secs(1);

/// `GET /admin`
pub async fn show(request: AdminRequest) -> WebResult {
    request.services.audit.flush().await;
    Ok(request.visit.page(StatusCode::OK, &overview(&request).await?))
}

async fn overview(request: &AdminRequest) -> Result<OverviewPage, DbError> {
    let AdminRequest { visit, services, .. } = request;
    let (log, now) = (services.audit.log(), visit.now());
    let attacks = services.attacks.check().await?;
    // Includes the current minute.
    let soon = now.plus(MINUTE);
    let (by_minute, by_quarter) = (by_minute(now), by_quarter(now));
    let hour = log.series(by_minute.start, soon, by_minute.step).await?;
    let day = log.series(by_quarter.start, soon, by_quarter.step).await?;
    let in_hour = log.totals(now.minus(HOUR), soon).await?;
    let in_day = log.totals(now.minus(DAY), soon).await?;
    let shared = log.shared_address(now.minus(HOUR)).await?;
    let current = services.tuning.current();
    let instances = services.tuning.instances().await?;
    let parts = parts(visit, services, &current).await?;
    let (hour_so_far, day_so_far) = (period(&in_hour), period(&in_day));
    let in_force = current.live.access.settings().in_force(now);
    let counted = |count: u64, warning: fn(u64) -> Warning| (count > 0).then(|| warning(count));
    let mut warnings = Vec::from_iter(counted(in_force.count() as u64, Warning::AccessInForce));
    warnings.extend(self::warnings(&current, &instances, shared, &parts));
    warnings.extend(counted(services.audit.lost(), Warning::Dropped));
    warnings.extend(counted(day_so_far.disabled, Warning::PasswordsDisabled));
    warnings.extend(messages_spent(services).await);
    warnings.extend(counted(hour_so_far.withheld, Warning::CodesWithheld));
    Ok(OverviewPage {
        layout: request.layout("/admin"),
        now: Moment(now),
        hour: hour_so_far,
        day: day_so_far,
        charts: charts(now, &hour, &day),
        realms: realms(&in_hour, &in_day),
        uses: uses(&in_hour, &in_day),
        subjects: subjects(services, now.minus(HOUR)).await?,
        attacks: attacks.iter().map(|attack| AttackBanner::new(visit.locale, &in_force, attack)).collect(),
        warnings,
        parts,
        version: current.version.clone(),
        instances,
        address: visit.client.ip().to_string(),
    })
}

/// None while the store is out, which another warning reports.
async fn messages_spent(services: &Services) -> Option<Warning> {
    let spent = services.codes.spent(&services.live.snapshot()).await.ok()??;
    let level = spent.level();
    (level != BudgetLevel::Calm)
        .then_some(Warning::MessagesSpent { spent, short: level == BudgetLevel::Short })
}

async fn subjects(services: &Services, since: Micros) -> Result<Vec<Subject>, DbError> {
    let mut subjects = Vec::new();
    for kind in [SubjectKind::Account, SubjectKind::Address, SubjectKind::Network, SubjectKind::Phone] {
        let mut found = services.audit.log().top(kind, since, TOP).await?;
        // Of a network in which one address made all attempts, the address says more.
        if kind == SubjectKind::Network {
            found.retain(|network| !subjects.iter().any(|it: &Subject| it.is_all_of(network)));
        }
        subjects.extend(found.into_iter().map(|RankedSubject { subject, count }| Subject {
            link: SubjectLink::new(kind, &subject),
            attempts: u64::try_from(count).unwrap_or(0),
        }));
    }
    subjects.sort_by_key(|subject| std::cmp::Reverse(subject.attempts));
    subjects.truncate(MOST);
    subject_link::tell_apart(subjects.iter_mut().map(|subject| &mut subject.link));
    Ok(subjects)
}

async fn parts(
    visit: &PageRequest,
    services: &Services,
    current: &CurrentLimits,
) -> Result<Vec<Part>, DbError> {
    let locale = visit.locale;
    let state = |up: bool| locale.t(if up { "overview.up" } else { "overview.down" }).into_owned();
    let health = services.health.report().await;
    let braked = services.codes.ledger().brakes().await?.len();
    let gateway = limit_text::gateway(services.codes.gateway().name(), locale).into_owned();
    let gateway = match braked {
        0 => gateway,
        count => format!("{gateway}, {}", t!("overview.braked", locale = locale.code(), count = count)),
    };
    let (database, store) = (health.database == State::Up, health.store == State::Up);
    let backend_up = current.backend_down.is_none();
    let backend = match backend_up {
        true => limit_text::backend(current.backend, locale).into_owned(),
        false => format!("{}: {}", limit_text::backend(current.backend, locale), state(false)),
    };
    let paces = [
        ("overview.queue-wait", services.hasher.waited()),
        ("overview.sign-in-time", services.sign_in.took()),
    ];
    let pace = |(key, took): (&'static str, Option<Duration>)| Part {
        key,
        up: took.is_none_or(|took| took <= SLOW),
        text: pace_words(took, locale),
    };
    Ok([
        Part { key: "overview.database", up: database, text: state(database) },
        Part { key: "overview.store", up: store, text: state(store) },
        Part { key: "overview.gateway", up: braked == 0, text: gateway },
        Part { key: "overview.backend", up: backend_up, text: backend },
    ]
    .into_iter()
    .chain(paces.map(pace))
    .collect())
}

/// `95 of 100 within 1.8 s`
fn pace_words(took: Option<Duration>, locale: Locale) -> String {
    let Some(took) = took else { return locale.t("overview.no-sign-ins").into_owned() };
    // In whole milliseconds below a second, so that nothing is told as none.
    let it = match took.as_secs() {
        0 => format!("{} ms", took.as_millis().max(1)),
        _ => format!("{:.1} s", took.as_secs_f64()),
    };
    t!("overview.of-a-hundred", locale = locale.code(), it = it).into_owned()
}

fn warnings(
    current: &CurrentLimits,
    instances: &[Instance],
    shared: Option<SharedAddress>,
    parts: &[Part],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if parts.iter().any(|part| part.key == "overview.store" && !part.up) {
        warnings.push(Warning::StoreDown);
    }
    if let Some(reason) = &current.backend_down {
        warnings.push(Warning::BackendDown(reason.clone()));
    }
    if let Some(refused) = &current.refused {
        warnings.push(Warning::Refused(refused.error.to_string()));
    }
    if instances.iter().any(|instance| instance.version != current.version) {
        warnings.push(Warning::InstancesDiffer);
    }
    if let Some(SharedAddress { address, count, of, accounts }) = shared
        && of >= SHARED_ATTEMPTS
        && accounts >= SHARED_ACCOUNTS
        && count * 100 >= of * SHARED_PERCENT
    {
        let percent = u64::try_from(count * 100 / of).unwrap_or(0);
        warnings.push(Warning::SharedAddress { percent, mask: address.mask });
    }
    warnings
}

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

pub struct Charts {
    pub key: &'static str,
    pub hour: Chart,
    pub day: Chart,
}

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    InstancesDiffer,
    /// The newest document is not in force here, and why.
    Refused(String),
    BackendDown(String),
    StoreDown,
    Dropped(u64),
    PasswordsDisabled(u64),
    /// Half of the messages for everyone together are spent; or, with `short`, all that everyone may spend.
    MessagesSpent {
        spent: SpentRule,
        short: bool,
    },
    CodesWithheld(u64),
    AccessInForce(u64),
    SharedAddress {
        percent: u64,
        mask: String,
    },
}

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
    pub layout: Layout,
    pub now: Moment,
    pub hour: Period,
    pub day: Period,
    pub charts: Vec<Charts>,
    pub realms: Vec<RealmUse>,
    pub uses: Vec<Use>,
    pub subjects: Vec<Subject>,
    pub parts: Vec<Part>,
    pub instances: Vec<Instance>,
    /// Of the newest document, with which instances should run.
    pub version: String,
    pub attacks: Vec<AttackBanner>,
    pub warnings: Vec<Warning>,
    /// The address of this request, as limits count it.
    pub address: String,
}

impl OverviewPage {
    fn tiles(&self) -> Vec<Tile> {
        let Period { solved, images, sent, entered, .. } = self.hour;
        let tile = |key, of: fn(&Period) -> u64, tone, note| Tile {
            key,
            hour: grouped(of(&self.hour)),
            day: grouped(of(&self.day)),
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

    fn is_current(&self, instance: &Instance) -> bool {
        instance.version == self.version
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
        let counted = |title: &'static str, text, count: u64| {
            (t!(title, locale = code, count = grouped(count)), self.layout.t(text))
        };
        match warning {
            Warning::InstancesDiffer => plain("warning.differ-title", "warning.differ-text"),
            Warning::Refused(_) => plain("warning.document-title", "warning.document-text"),
            Warning::BackendDown(_) => plain("warning.backend-title", "warning.backend-text"),
            Warning::StoreDown => plain("warning.store-title", "warning.store-text"),
            Warning::Dropped(count) => counted("warning.dropped-title", "warning.dropped-text", *count),
            Warning::PasswordsDisabled(count) => {
                counted("warning.disabled-title", "warning.disabled-text", *count)
            }
            Warning::AccessInForce(count) => counted("warning.access-title", "warning.access-text", *count),
            Warning::CodesWithheld(count) => {
                counted("warning.withheld-title", "warning.withheld-text", *count)
            }
            Warning::MessagesSpent { spent: SpentRule { count, max, .. }, short } => {
                let (title, text) = if *short {
                    ("warning.short-title", "warning.short-text")
                } else {
                    ("warning.half-title", "warning.half-text")
                };
                let (count, max) = (grouped((*count).into()), grouped((*max).into()));
                (t!(title, locale = code, count = count, max = max), self.layout.t(text))
            }
            Warning::SharedAddress { percent, mask } => (
                t!("warning.shared-title", locale = code, percent = percent, mask = mask),
                self.layout.t("warning.shared-text"),
            ),
        }
    }

    fn leads_to(&self, warning: &Warning) -> Option<&'static str> {
        matches!(warning, Warning::AccessInForce(_)).then_some("/admin/access")
    }

    fn said<'a>(&self, warning: &'a Warning) -> Option<&'a str> {
        match warning {
            Warning::Refused(reason) | Warning::BackendDown(reason) => Some(reason),
            _ => None,
        }
    }
}

fn by_minute(now: Micros) -> ChartSpan {
    ChartSpan::ending(now, MINUTE, 60)
}

fn by_quarter(now: Micros) -> ChartSpan {
    ChartSpan::ending(now, MINUTE * 15, 96)
}

pub fn charts(now: Micros, hour: &[FiguresStep], day: &[FiguresStep]) -> Vec<Charts> {
    let (by_minute, by_quarter) = (by_minute(now), by_quarter(now));
    let draw = |id, title, span: ChartSpan, steps: &[FiguresStep], action, kinds: &[FateSeries]| {
        let counts = |fates: &[Fate]| {
            let counted = |sum: &EventCount| sum.action == action && fates.contains(&sum.fate());
            span.counts(steps.iter().map(|step| (step.at, total(&step.sums, counted))))
        };
        let series = |(key, tone, fates): &FateSeries| Series { key, tone, counts: counts(fates) };
        Chart::new(id, title, span.start, span.step, kinds.iter().map(series).collect())
    };
    let (sign_in, send) = (Action::SignIn, Action::Send);
    vec![
        Charts {
            key: "overview.sign-ins",
            hour: draw("sign-ins-hour", "overview.sign-ins-hour", by_minute, hour, sign_in, &SIGN_INS),
            day: draw("sign-ins-day", "overview.sign-ins-day", by_quarter, day, sign_in, &SIGN_INS),
        },
        Charts {
            key: "overview.messages",
            hour: draw("messages-hour", "overview.messages-hour", by_minute, hour, send, &MESSAGES),
            day: draw("messages-day", "overview.messages-day", by_quarter, day, send, &MESSAGES),
        },
    ]
}

/// What each limit did in the hour and in the day, busiest first. Omits those that decided nothing.
pub fn uses(hour: &[EventCount], day: &[EventCount]) -> Vec<Use> {
    let names: BTreeSet<&str> = day.iter().chain(hour).map(|sum| sum.limit.as_str()).collect();
    let mut uses: Vec<Use> = names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| Use { limit: name.to_owned(), spans: [hour, day].map(|sums| LimitUse::of(name, sums)) })
        .filter(|it| it.spans[1].challenged + it.spans[1].refused + it.spans[1].noted > 0)
        .collect();
    uses.sort_by_key(|Use { spans: [hour, day], .. }| {
        std::cmp::Reverse((hour.challenged + hour.refused, day.refused))
    });
    uses
}

/// What became of attempts at the logins of other programs in the hour and in the day, busiest first.
pub fn realms(hour: &[EventCount], day: &[EventCount]) -> Vec<RealmUse> {
    let names: BTreeSet<&str> = day.iter().chain(hour).map(|sum| sum.realm.as_str()).collect();
    let of = |realm: &str, fates: &[Fate]| {
        [hour, day].map(|sums| total(sums, |sum| sum.realm == realm && fates.contains(&sum.fate())))
    };
    let mut realms: Vec<RealmUse> = names
        .into_iter()
        .filter(|realm| !realm.is_empty())
        .map(|realm| RealmUse {
            realm: realm.to_owned(),
            let_through: of(realm, &[Fate::Done, Fate::Wrong]),
            wrong: of(realm, &[Fate::Wrong]),
            challenged: of(realm, &[Fate::Challenged]),
            refused: of(realm, &[Fate::Refused]),
        })
        .collect();
    realms.sort_by_key(|it| {
        std::cmp::Reverse([0, 1].map(|span| it.let_through[span] + it.challenged[span] + it.refused[span]))
    });
    realms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Outcome;
    use crate::web::console::figures::period;

    fn sum(action: Action, outcome: Outcome, limit: &str, noted: bool, count: i64) -> EventCount {
        let (limit, counted_by) = (limit.to_owned(), if noted { "" } else { limit }.to_owned());
        EventCount { action, realm: String::new(), outcome, limit, counted_by, noted, count }
    }

    #[test]
    fn each_realm_has_figures_of_its_own_and_our_sign_in_is_none() {
        let at = |realm: &str, outcome, count| EventCount {
            realm: realm.to_owned(),
            ..sum(Action::Attempt, outcome, "", false, count)
        };
        let own = sum(Action::SignIn, Outcome::Wrong, "", false, 100);
        let hour = [at("mail", Outcome::Wrong, 2), at("mail", Outcome::Ok, 1), own.clone()];
        let day = [
            at("mail", Outcome::Wrong, 2),
            at("mail", Outcome::Ok, 1),
            at("shop", Outcome::Challenged, 5),
            at("shop", Outcome::Throttled, 3),
            at("shop", Outcome::Busy, 1),
            own.clone(),
        ];
        let found = realms(&hour, &day);
        let names: Vec<_> = found.iter().map(|it| it.realm.as_str()).collect();
        assert_eq!(names, ["mail", "shop"], "busiest in the hour first");
        assert_eq!((found[0].let_through, found[0].wrong), ([3, 3], [2, 2]));
        assert_eq!((found[1].challenged, found[1].refused), ([0, 5], [0, 4]));
        let here = period(&day);
        assert_eq!((here.wrong, here.challenged, here.refused), (100, 0, 0), "nothing is told twice");
        assert!(realms(std::slice::from_ref(&own), std::slice::from_ref(&own)).is_empty());
    }

    #[test]
    fn what_a_watching_limit_notes_is_no_refusal() {
        let sums = [
            sum(Action::SignIn, Outcome::Wrong, "login-address", true, 5),
            sum(Action::SignIn, Outcome::Throttled, "login-account", false, 7),
            sum(Action::SignIn, Outcome::Ok, "", false, 3),
        ];
        let uses = uses(&sums, &sums);
        assert_eq!(uses.len(), 2);
        let of = |limit| LimitUse::of(limit, &sums);
        assert_eq!((uses[0].limit.as_str(), uses[0].spans), ("login-account", [of("login-account"); 2]));
        assert_eq!((of("login-address").refused, of("login-address").noted), (0, 5));
        let period = period(&sums);
        assert_eq!((period.signed_in, period.wrong, period.refused), (3, 5, 7));
        let account = of("login-account");
        assert_eq!((account.counted, account.refused), (Some(5), 7), "a success is no hit");
    }
}
