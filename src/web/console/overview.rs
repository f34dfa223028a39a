//! `/admin`: recent activity from the record of events, its busiest subjects, and the state of this instance's
//! dependencies.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use askama::Template;
use rust_i18n::t;

use crate::audit::{
    Action, AttackEntry, BusiestSubjects, EventCount, Fate, MINUTE, RankedSubject, SharedAddress, StepSpan,
    SubjectKind, TOP_ROWS,
};
use crate::clock::Micros;
use crate::codes::{BudgetLevel, MailServerState};
use crate::config::AccessSettings;
use crate::db::DbError;
use crate::login::Spray;
use crate::origins::OriginFiles;
use crate::sms::gateway::GatewayOutage;
use crate::tuning::{CurrentLimits, Instance};
use crate::web::console::attack::{AnswerLink, AttackBanner};
use crate::web::console::chart::{Chart, sparkline};
use crate::web::console::figures::{
    CODES_SENT, DAY, FateSeries, HOUR, LimitUse, MESSAGES, Period, SIGN_INS, period, stacked, total,
};
use crate::web::console::first_steps::{FirstStep, StepPlace, first_steps};
use crate::web::console::guard::AdminRequest;
use crate::web::console::limit_text::{self, grouped, share, title};
use crate::web::console::subject_link::{self, SubjectLink};
use crate::web::form::{FormPairs, value};
use crate::web::http::services::{Report, State};
use crate::web::http::{Layout, Locale, Moment, PageRequest, Services, WebResult};

/// Subjects in each list.
const MOST: usize = 6;
/// Limits that are listed; the others unfold.
const FIRST: usize = 6;
/// An address is suspicious from this many attempts, at this many accounts, and from this share of all
/// attempts.
const SHARED_ATTEMPTS: i64 = 50;
const SHARED_ACCOUNTS: i64 = 5;
const SHARED_PERCENT: i64 = 80;
/// Waits and sign-ins that take longer are told as a fault. A known device is to be signed in within 1.5 seconds.
const SLOW: Duration = Duration::from_secs(1);

/// While the reader's account is this young, the list of what is not done yet is open.
const NEW_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The time that the page is about, to choose from.
#[derive(Debug, PartialEq, Eq)]
pub struct TrafficSpan {
    /// In the URL.
    word: &'static str,
    key: &'static str,
    step: Duration,
    /// The last one is not over yet.
    steps: usize,
    titles: [&'static str; 2],
    /// How long ago the time was that it is compared with, and its locale key.
    before: (Duration, &'static str),
}

const LAST_HOUR: TrafficSpan = TrafficSpan {
    word: "1h",
    key: "overview.hour",
    step: MINUTE,
    steps: 61,
    titles: ["overview.sign-ins-hour", "overview.messages-hour"],
    before: (DAY, "overview.yesterday"),
};
pub const SPANS: [TrafficSpan; 3] = [
    LAST_HOUR,
    TrafficSpan {
        word: "24h",
        key: "overview.day",
        step: Duration::from_secs(15 * 60),
        steps: 97,
        titles: ["overview.sign-ins-day", "overview.messages-day"],
        before: (DAY, "overview.day-before"),
    },
    TrafficSpan {
        word: "7d",
        key: "overview.week",
        step: Duration::from_secs(2 * 60 * 60),
        steps: 85,
        titles: ["overview.sign-ins-week", "overview.messages-week"],
        before: (Duration::from_secs(7 * 24 * 60 * 60), "overview.week-before"),
    },
];

/// `GET /admin`. `?span=24h` is about a day.
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let asked = value(&query, "span");
    let span = SPANS.iter().find(|span| span.word == asked).unwrap_or(&SPANS[0]);
    request.services.audit.flush().await;
    Ok(request.visit.page(StatusCode::OK, &overview(&request, span).await?))
}

async fn overview(request: &AdminRequest, span: &'static TrafficSpan) -> Result<OverviewPage, DbError> {
    let AdminRequest { visit, services, .. } = request;
    let (log, now) = (services.audit.log(), visit.now());
    let attacks = services.attacks.check().await?;
    let minutes = log.series(&StepSpan::ending(now, LAST_HOUR.step, LAST_HOUR.steps)).await?;
    let drawn = StepSpan::ending(now, span.step, span.steps);
    let lately = log.busiest(now.minus(HOUR), MOST as u32).await?;
    let (in_day, before, busiest, steps) = tokio::try_join!(
        log.totals(now.minus(DAY), now.plus(MINUTE)),
        before(services, &drawn, span.before.0),
        async {
            match span == &LAST_HOUR {
                true => Ok(lately.clone()),
                false => log.busiest(drawn.start, MOST as u32).await,
            }
        },
        log.series(&drawn),
    )?;
    let sums = steps.concat();
    let current = services.tuning.current();
    let instances = services.tuning.instances().await?;
    let health = services.health.report().await;
    let parts = parts(visit, services, &health, &current).await?;
    let in_force = current.live.access.settings().in_force(now);
    let counted = |keys, count| (count > 0).then(|| Warning::counted(visit.locale, keys, count));
    let active = counted(["warning.access-title", "warning.access-text"], in_force.count() as u64);
    let mut warnings = Vec::from_iter(active.map(|warning| Warning { page: Some(ANSWERS_PAGE), ..warning }));
    warnings.extend(self::warnings(visit.locale, &current, &instances, lately.shared.as_ref(), &parts));
    if health.counts_alone {
        let others = services.tuning.others().await?;
        warnings.extend((!others.is_empty()).then(|| Warning {
            said: Some(others.join(", ")),
            ..Warning::new(visit.locale, ["warning.others-title", "warning.others-text"])
        }));
    }
    warnings.extend(services.sign_in.spray().map(|Spray { names, networks }| {
        let keys @ [title, _] = ["warning.spray-title", "warning.spray-text"];
        let title = t!(title, locale = visit.locale.code(), names = names, networks = networks);
        Warning { title, ..Warning::new(visit.locale, keys) }
    }));
    warnings.extend(services.hasher.breached().refused().map(|reason| Warning {
        said: Some(reason),
        ..Warning::new(visit.locale, ["warning.breached-title", "warning.breached-text"])
    }));
    warnings.extend(origins(services, now, visit.locale));
    warnings.extend(health.eviction.map(|policy| Warning {
        said: Some(policy),
        ..Warning::new(visit.locale, ["warning.evicts-title", "warning.evicts-text"])
    }));
    warnings.extend(services.codes.gateways().outages().iter().map(|out| gateway_out(visit.locale, out)));
    let mail_server = services.codes.mail_server();
    warnings.extend(mail_server.as_ref().and_then(|state| mail_out(visit.locale, state)));
    let ahead = health.store_clock_ahead.unwrap_or_default();
    warnings.extend(counted(["warning.store-clock-title", "warning.store-clock-text"], ahead));
    warnings.extend(counted(["warning.dropped-title", "warning.dropped-text"], services.audit.lost()));
    warnings.extend(counted(["warning.disabled-title", "warning.disabled-text"], period(&in_day).disabled));
    warnings.extend(messages_spent(visit.locale, services).await);
    warnings.extend(money_spent(visit.locale, services));
    warnings.extend(countries_short(visit.locale, services));
    // Where new numbers make no account, codes to them are withheld as a rule.
    let takes_new_numbers = services.live.snapshot().registration.takes_new_numbers();
    let withheld = if takes_new_numbers { period(&minutes.concat()).withheld } else { 0 };
    warnings.extend(counted(["warning.withheld-title", "warning.withheld-text"], withheld));
    let banner = |attack: &AttackEntry| {
        let counts = minutes.iter().map(|sums| attack.counted(sums));
        AttackBanner::new(visit.locale, &in_force, attack, counts)
    };
    Ok(OverviewPage {
        layout: request.layout(span.href()),
        now: Moment(now),
        period: period(&sums),
        steps: steps.iter().map(|sums| period(sums)).collect(),
        before,
        span,
        first_steps: first_steps(request).await?,
        is_new: request.admin.account.created_at > now.minus(NEW_FOR),
        charts: charts(now, span.titles, drawn, &steps),
        realms: realms(&sums),
        uses: uses(&sums),
        busiest: subjects(&busiest, &in_force, &services.live.origins().in_use()),
        attacks: attacks.iter().map(banner).collect(),
        warnings,
        parts,
        version: current.version.clone(),
        instances,
        address: visit.client.ip().to_string(),
    })
}

/// The figures of as long a time before; None if the record began later.
async fn before(services: &Services, drawn: &StepSpan, ago: Duration) -> Result<Option<Period>, DbError> {
    let (log, start) = (services.audit.log(), drawn.start.minus(ago));
    if log.began().await?.is_none_or(|began| began > start) {
        return Ok(None);
    }
    Ok(Some(period(&log.series(&StepSpan { start, ..*drawn }).await?.concat())))
}

const ANSWERS_PAGE: [&str; 2] = ["/admin/access", "answers.title"];
const MESSAGES_PAGE: [&str; 2] = ["/admin/messages", "messages.title"];

/// How much of the SMS budget is spent; None while the store is out, which another warning reports.
async fn messages_spent(locale: Locale, services: &Services) -> Option<Warning> {
    let spent = services.codes.spent(&services.live.snapshot()).await.ok()??;
    let keys @ [title, _] = match spent.level() {
        BudgetLevel::Calm => return None,
        BudgetLevel::Short => ["warning.short-title", "warning.short-text"],
        BudgetLevel::Half => ["warning.half-title", "warning.half-text"],
    };
    let [count, max] = [spent.count, spent.max].map(|number| grouped(u64::from(number)));
    let title = t!(title, locale = locale.code(), count = count, max = max);
    Some(Warning { title, ..Warning::new(locale, keys) })
}

/// How much of what messages may cost is spent.
fn money_spent(locale: Locale, services: &Services) -> Option<Warning> {
    let live = services.live.snapshot();
    let (spent, budget) = (services.codes.money_spent(&live)?, live.sms.budget.as_ref()?);
    if spent.level == BudgetLevel::Calm {
        return None;
    }
    let text = if live.sms.budget_blocks { "warning.money-blocks-text" } else { "warning.money-text" };
    let (title, code) = ("warning.money-title", locale.code());
    let (cost, amount) = (spent.spent.to_string(), budget.amount.to_string());
    let currency = budget.currency.as_str();
    let filled = t!(title, locale = code, spent = cost, budget = amount, currency = currency);
    Some(Warning { title: filled, page: Some(MESSAGES_PAGE), ..Warning::new(locale, [title, text]) })
}

/// Countries to which no codes go any more but to accounts.
fn countries_short(locale: Locale, services: &Services) -> Option<Warning> {
    let live = services.live.snapshot();
    let spent = services.codes.money_spent(&live).filter(|_| live.sms.budget_blocks)?;
    let full = Vec::from_iter(spent.full(&live.sms)).join(", ");
    let title = t!("warning.money-country-title", locale = locale.code(), countries = full);
    let keys = ["warning.money-country-title", "warning.money-country-text"];
    (!full.is_empty()).then(|| Warning { title, page: Some(MESSAGES_PAGE), ..Warning::new(locale, keys) })
}

/// Which gateway sends nothing, since when and why, and what to do.
fn gateway_out(locale: Locale, outage: &GatewayOutage) -> Warning {
    let (gateway, since) = (limit_text::gateway(outage.gateway, locale), Moment(outage.since).text());
    let title = match &outage.country {
        None => t!("warning.gateway-title", locale = locale.code(), gateway = gateway, since = since),
        Some(country) => t!(
            "warning.gateway-country-title",
            locale = locale.code(),
            gateway = gateway,
            country = country,
            since = since
        ),
    };
    let text = locale.named_word("warning", &format!("gateway-{}", outage.why.into_str()));
    Warning { title, text, said: Some(outage.reason.clone()), page: None }
}

/// Since when the mail server takes nothing, how often it was tried, and when it is tried next.
fn mail_out(locale: Locale, state: &MailServerState) -> Option<Warning> {
    let keys @ [title, text] = ["warning.mail-title", "warning.mail-text"];
    let (since, next) = (Moment(state.since).text(), Moment(state.again_at).text());
    let (code, tries) = (locale.code(), grouped(u64::from(state.failures)));
    let warning = || Warning {
        title: t!(title, locale = code, since = since),
        text: t!(text, locale = code, tries = tries, next = next),
        said: state.reason.clone(),
        ..Warning::new(locale, keys)
    };
    (state.failures > 0).then(warning)
}

/// What is wrong with the files of origins, and with the answers that need them.
fn origins(services: &Services, now: Micros, locale: Locale) -> Vec<Warning> {
    let files = services.live.origins().in_use();
    let warn = |keys, said: Vec<String>| {
        (!said.is_empty()).then(|| Warning { said: Some(said.join("; ")), ..Warning::new(locale, keys) })
    };
    let idle = services.live.snapshot().access.idle_origins(now);
    let idle = warn(["warning.idle-origins-title", "warning.idle-origins-text"], idle);
    let told = [
        warn(["warning.origins-title", "warning.origins-text"], files.refused()),
        idle.map(|warning| Warning { page: Some(ANSWERS_PAGE), ..warning }),
        warn(["warning.old-origins-title", "warning.old-origins-text"], files.old(now)),
    ];
    told.into_iter().flatten().collect()
}

fn subjects(found: &BusiestSubjects, access: &AccessSettings, files: &OriginFiles) -> [SubjectList; 2] {
    let list = |id, title, kinds: &[SubjectKind]| {
        let subject = |RankedSubject { kind, subject, count }: &RankedSubject| Subject {
            link: SubjectLink::new(*kind, subject),
            attempts: count.unsigned_abs(),
            deny: AnswerLink::deny(&subject.mask, access),
        };
        let mut subjects: Vec<_> = kinds.iter().flat_map(|kind| found.of(*kind)).map(subject).collect();
        subjects.sort_by_key(|subject| std::cmp::Reverse(subject.attempts));
        subjects.truncate(MOST);
        subject_link::tell_apart(subjects.iter_mut().map(|subject| &mut subject.link));
        subject_link::tell_origins(subjects.iter_mut().map(|subject| &mut subject.link), files);
        SubjectList { id, title, subjects }
    };
    let others = [SubjectKind::Account, SubjectKind::Address, SubjectKind::Phone];
    [
        list("networks", "overview.networks", &[SubjectKind::Network]),
        list("subjects", "overview.subjects", &others),
    ]
}

async fn parts(
    visit: &PageRequest,
    services: &Services,
    health: &Report,
    current: &CurrentLimits,
) -> Result<Vec<Part>, DbError> {
    let locale = visit.locale;
    let state = |up: bool| locale.t(if up { "overview.up" } else { "overview.down" }).into_owned();
    let braked = services.codes.ledger().brakes().await?.len();
    let gateways = services.codes.gateways();
    let names: Vec<_> = gateways.iter().map(|slot| limit_text::gateway(slot.name(), locale)).collect();
    let gateway = names.join(", ");
    let sends = braked == 0 && services.outbox.is_none() && gateways.outages().is_empty();
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
    let mail_server = services.codes.mail_server().map(|server| {
        let up = server.failures == 0;
        Part { key: "overview.mail-server", up, text: state(up) }
    });
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
        Part { key: "overview.gateway", up: sends, text: gateway },
        Part { key: "overview.backend", up: backend_up, text: backend },
    ]
    .into_iter()
    .chain(mail_server)
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
    locale: Locale,
    current: &CurrentLimits,
    instances: &[Instance],
    shared: Option<&SharedAddress>,
    parts: &[Part],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |keys, said| warnings.push(Warning { said, ..Warning::new(locale, keys) });
    if parts.iter().any(|part| part.key == "overview.store" && !part.up) {
        warn(["warning.store-title", "warning.store-text"], None);
    }
    if let Some(reason) = &current.backend_down {
        warn(["warning.backend-title", "warning.backend-text"], Some(reason.clone()));
    }
    if let Some(refused) = &current.refused {
        warn(["warning.document-title", "warning.document-text"], Some(refused.error.to_string()));
    }
    if instances.iter().any(|instance| instance.version != current.version) {
        warn(["warning.differ-title", "warning.differ-text"], None);
    }
    if let Some(SharedAddress { address, count, of, accounts }) = shared
        && *of >= SHARED_ATTEMPTS
        && *accounts >= SHARED_ACCOUNTS
        && count * 100 >= of * SHARED_PERCENT
    {
        warnings.push(Warning::shared(locale, count * 100 / of, &address.mask));
    }
    warnings
}

/// In one line, and what to do about it.
pub struct Warning {
    pub title: Cow<'static, str>,
    pub text: Cow<'static, str>,
    /// The error, which is in English.
    pub said: Option<String>,
    /// The page that shows more, and its title.
    pub page: Option<[&'static str; 2]>,
}

impl Warning {
    pub fn new(locale: Locale, [title, text]: [&'static str; 2]) -> Self {
        Self { title: locale.t(title), text: locale.t(text), said: None, page: None }
    }

    pub fn counted(locale: Locale, keys: [&'static str; 2], count: u64) -> Self {
        Self { title: t!(keys[0], locale = locale.code(), count = grouped(count)), ..Self::new(locale, keys) }
    }

    pub fn shared(locale: Locale, percent: i64, mask: &str) -> Self {
        let title = t!("warning.shared-title", locale = locale.code(), percent = percent, mask = mask);
        Self { title, ..Self::new(locale, ["warning.shared-title", "warning.shared-text"]) }
    }
}

/// What became of attempts, as the columns are.
pub struct UseRow<const COLUMNS: usize> {
    /// The name of a limit, or of another program's login.
    pub name: String,
    pub counts: [u64; COLUMNS],
}

pub type LimitRow = UseRow<3>;
pub type RealmRow = UseRow<4>;

/// Locale keys.
const LIMIT_COLUMNS: [&str; 3] = ["overview.challenged", "overview.refused", "overview.noted"];
/// The columns of a login of another program. Attempts that were let through are told with the wrong ones among them.
const REALM_COLUMNS: [&str; 4] =
    ["overview.let-through", "overview.wrong", "overview.challenged", "overview.refused"];

pub struct SubjectList {
    pub id: &'static str,
    /// A locale key.
    pub title: &'static str,
    /// The busiest first.
    pub subjects: Vec<Subject>,
}

pub struct Subject {
    pub link: SubjectLink,
    pub attempts: u64,
    /// The link that refuses a network, or an address.
    pub deny: Option<AnswerLink>,
}

pub struct Part {
    pub key: &'static str,
    pub up: bool,
    pub text: String,
}

struct Tile {
    key: &'static str,
    count: String,
    /// Locale key and text.
    note: Option<(&'static str, String)>,
    tone: &'static str,
    spark: String,
    change: Option<String>,
}

#[derive(Template)]
#[template(path = "pages/admin/overview.html")]
pub struct OverviewPage {
    pub layout: Layout,
    pub now: Moment,
    pub span: &'static TrafficSpan,
    pub first_steps: Vec<FirstStep>,
    pub is_new: bool,
    pub period: Period,
    /// The period by its steps.
    pub steps: Vec<Period>,
    /// The figures of an equally long time before; None if the record began later.
    pub before: Option<Period>,
    pub charts: Vec<Chart>,
    pub realms: Vec<RealmRow>,
    pub uses: Vec<LimitRow>,
    pub busiest: [SubjectList; 2],
    pub parts: Vec<Part>,
    pub instances: Vec<Instance>,
    /// The version of the newest document, with which instances should run.
    pub version: String,
    pub attacks: Vec<AttackBanner>,
    pub warnings: Vec<Warning>,
    /// The address of this request, as limits count it.
    pub address: String,
}

impl OverviewPage {
    fn tiles(&self) -> Vec<Tile> {
        let Period { solved, images, sent, entered, .. } = self.period;
        let tile = |key, of: fn(&Period) -> u64, tone, note| Tile {
            key,
            count: grouped(of(&self.period)),
            note,
            tone,
            spark: sparkline(self.steps.iter().map(of)),
            change: self.change(of),
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

    /// Against as long a time before. Of a few then, no share is told.
    fn change(&self, of: fn(&Period) -> u64) -> Option<String> {
        let (now, then) = (of(&self.period), of(self.before.as_ref()?));
        let when = self.layout.t(self.span.before.1);
        let told = |key, it| t!(key, locale = self.layout.locale.code(), it = it, when = when).into_owned();
        let percent = (now as f64 / then as f64 * 100.0 - 100.0).round();
        Some(match percent {
            _ if then < 10 => told("overview.then", grouped(then)),
            900.0.. => told("overview.times-then", grouped(now / then)),
            1.0.. => told("overview.change", format!("+{percent}")),
            ..-0.5 => told("overview.change", format!("\u{2212}{}", -percent)),
            _ => told("overview.as-then", String::new()),
        })
    }

    /// The busiest limits; then the others, which unfold.
    fn use_parts(&self) -> impl Iterator<Item = &[LimitRow]> {
        let (first, others) = self.uses.split_at(self.uses.len().min(FIRST));
        [first, others].into_iter().filter(|part| !part.is_empty())
    }

    fn top_rows(&self) -> String {
        grouped(TOP_ROWS.unsigned_abs())
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
}

impl TrafficSpan {
    /// The place of its last step.
    fn last(&self) -> usize {
        self.steps - 1
    }

    pub fn href(&self) -> String {
        if *self == SPANS[0] { "/admin".to_owned() } else { format!("/admin?span={}", self.word) }
    }
}

fn charts(now: Micros, titles: [&'static str; 2], span: StepSpan, steps: &[Vec<EventCount>]) -> Vec<Chart> {
    let draw = |title: &'static str, actions: &[Action], kinds: &[FateSeries]| {
        let series = stacked(kinds, steps, |sum| actions.contains(&sum.action));
        Chart { id: title.trim_start_matches("overview."), title, span, series, now }
    };
    let [sign_ins, messages] = titles;
    vec![draw(sign_ins, &[Action::SignIn], &SIGN_INS), draw(messages, &CODES_SENT, &MESSAGES)]
}

/// A row for each name in the sums.
fn use_rows<const COLUMNS: usize>(
    sums: &[EventCount],
    name: fn(&EventCount) -> &str,
    figures: impl Fn(&str) -> [u64; COLUMNS],
) -> Vec<UseRow<COLUMNS>> {
    let names: BTreeSet<&str> = sums.iter().map(name).collect();
    let row = |name: &str| UseRow { name: name.to_owned(), counts: figures(name) };
    names.into_iter().filter(|name| !name.is_empty()).map(row).collect()
}

/// What each limit did, busiest first. Omits those that decided nothing.
pub fn uses(sums: &[EventCount]) -> Vec<LimitRow> {
    let figures = |limit: &str| {
        let LimitUse { challenged, refused, noted, .. } = LimitUse::of(limit, sums);
        [challenged, refused, noted]
    };
    let mut rows = use_rows(sums, |sum| &sum.limit, figures);
    rows.retain(|row| row.counts != [0; 3]);
    rows.sort_by_key(|row| std::cmp::Reverse((row.counts[0] + row.counts[1], row.counts[2])));
    rows
}

/// What became of attempts at the logins of other programs, busiest first.
pub fn realms(sums: &[EventCount]) -> Vec<RealmRow> {
    let figures = |realm: &str| {
        let columns = [&[Fate::Done, Fate::Wrong][..], &[Fate::Wrong], &[Fate::Challenged], &[Fate::Refused]];
        columns.map(|fates| total(sums, |sum| sum.realm == realm && fates.contains(&sum.fate())))
    };
    let mut rows = use_rows(sums, |sum| &sum.realm, figures);
    let all = |[let_through, _, challenged, refused]: [u64; 4]| let_through + challenged + refused;
    rows.sort_by_key(|row| std::cmp::Reverse(all(row.counts)));
    rows
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
        let sums = [
            at("mail", Outcome::Wrong, 2),
            at("mail", Outcome::Ok, 1),
            at("shop", Outcome::Challenged, 5),
            at("shop", Outcome::Throttled, 3),
            at("shop", Outcome::Busy, 1),
            own.clone(),
        ];
        let found = realms(&sums);
        let told: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.counts)).collect();
        assert_eq!(told, [("shop", [0, 0, 5, 4]), ("mail", [3, 2, 0, 0])], "busiest first");
        let here = period(&sums);
        assert_eq!((here.wrong, here.challenged, here.refused), (100, 0, 0), "nothing is told twice");
        assert!(realms(std::slice::from_ref(&own)).is_empty());
    }

    #[test]
    fn a_mail_that_goes_to_nobody_counts_for_its_mailbox_and_not_in_the_total() {
        let sums = [
            sum(Action::Mail, Outcome::Ok, "", false, 3),
            sum(Action::Mail, Outcome::Withheld, "", false, 500),
            sum(Action::MailGuess, Outcome::Wrong, "", false, 2),
        ];
        let counted = |limit| LimitUse::of(limit, &sums).counted;
        assert_eq!([counted("mail-total"), counted("mail-mailbox")], [Some(3), Some(503)]);
        let period = period(&sums);
        assert_eq!((period.sent, period.wrong_codes, period.withheld), (3, 2, 0));
    }

    #[test]
    fn what_a_watching_limit_notes_is_no_refusal() {
        let sums = [
            sum(Action::SignIn, Outcome::Wrong, "login-address", true, 5),
            sum(Action::SignIn, Outcome::Throttled, "login-account", false, 7),
            sum(Action::SignIn, Outcome::Ok, "", false, 3),
        ];
        let uses = uses(&sums);
        assert_eq!(uses.len(), 2);
        let of = |limit| LimitUse::of(limit, &sums);
        assert_eq!((uses[0].name.as_str(), uses[0].counts), ("login-account", [0, 7, 0]));
        assert_eq!((of("login-address").refused, of("login-address").noted), (0, 5));
        let period = period(&sums);
        assert_eq!((period.signed_in, period.wrong, period.refused), (3, 5, 7));
        let account = of("login-account");
        assert_eq!((account.counted, account.refused), (Some(5), 7), "a success is no hit");
    }
}
