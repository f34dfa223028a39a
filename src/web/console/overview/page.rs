//! `/admin`: recent activity from the record of events, and the state of this instance's dependencies.

use std::time::Duration;

use actix_web::http::StatusCode;
use rust_i18n::t;

use crate::audit::{RankedSubject, SharedAddress, SubjectKind};
use crate::clock::Micros;
use crate::db::DbError;
use crate::sms::BudgetLevel;
use crate::tuning::{CurrentLimits, Instance};
use crate::web::console::attack::AttackBanner;
use crate::web::console::figures::{DAY, HOUR, period};
use crate::web::console::guard::Admin;
use crate::web::console::overview::figures::{self, Grid};
use crate::web::console::overview::view::{InstanceRow, Overview, OverviewPage, Part, Subject, Warning};
use crate::web::console::subject_link::{self, SubjectLink};
use crate::web::console::words;
use crate::web::kit::health::State;
use crate::web::kit::locale::Locale;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;
use crate::web::kit::web_error::WebResult;

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
pub async fn show(visit: Visit, admin: Admin, services: Shared) -> WebResult {
    services.audit.flush().await;
    let overview = overview(&visit, &services).await?;
    Ok(visit.page(StatusCode::OK, &OverviewPage::new(&visit, admin.login(), overview)))
}

async fn overview(visit: &Visit, services: &Services) -> Result<Overview, DbError> {
    let (log, now) = (services.audit.log(), visit.now());
    let attacks = services.attacks.check().await?;
    // Includes the current minute.
    let soon = now.plus(crate::audit::MINUTE);
    let (by_minute, by_quarter) = (Grid::hour(now), Grid::day(now));
    let hour = log.series(by_minute.start, soon, by_minute.step).await?;
    let day = log.series(by_quarter.start, soon, by_quarter.step).await?;
    let in_hour = log.totals(now.minus(HOUR), soon).await?;
    let in_day = log.totals(now.minus(DAY), soon).await?;
    let shared = log.shared_address(now.minus(HOUR)).await?;
    let current = services.tuning.current();
    let instances = services.tuning.instances().await?;
    let parts = parts(visit, services, &current).await?;
    let day_so_far = period(&in_day);
    let mut warnings = warnings(services, &current, &instances, shared, &parts);
    if day_so_far.disabled > 0 {
        warnings.push(Warning::PasswordsDisabled { count: day_so_far.disabled });
    }
    let in_force = current.live.access.settings().in_force(now);
    if !in_force.is_empty() {
        warnings.insert(0, Warning::AccessInForce { count: in_force.count() as u64 });
    }
    let hour_so_far = period(&in_hour);
    warnings.extend(messages_spent(services).await);
    if hour_so_far.withheld > 0 {
        warnings.push(Warning::CodesWithheld { count: hour_so_far.withheld });
    }
    Ok(Overview {
        now: Moment(now),
        hour: hour_so_far,
        day: day_so_far,
        charts: figures::charts(now, &hour, &day),
        realms: figures::realms(&in_hour, &in_day),
        uses: figures::uses(&in_hour, &in_day),
        subjects: subjects(services, now.minus(HOUR)).await?,
        attacks: attacks.iter().map(|attack| AttackBanner::new(visit.locale, &in_force, attack)).collect(),
        warnings,
        parts,
        instances: instances.into_iter().map(|instance| row(instance, &current.version)).collect(),
        address: visit.client.ip().to_string(),
    })
}

/// None while the store is out, which another warning reports.
async fn messages_spent(services: &Services) -> Option<Warning> {
    let spent = services.codes.spent(&services.live.snapshot()).await.ok()??;
    match spent.level() {
        BudgetLevel::Calm => None,
        BudgetLevel::Half => Some(Warning::MessagesSpent { spent, short: false }),
        BudgetLevel::Short => Some(Warning::MessagesSpent { spent, short: true }),
    }
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

async fn parts(visit: &Visit, services: &Services, current: &CurrentLimits) -> Result<Vec<Part>, DbError> {
    let locale = visit.locale;
    let state = |up: bool| locale.t(if up { "overview.up" } else { "overview.down" }).into_owned();
    let health = services.health.report().await;
    let braked = services.codes.ledger().brakes().await?.len();
    let gateway = words::gateway(services.codes.gateway().name(), locale).into_owned();
    let gateway = match braked {
        0 => gateway,
        count => format!("{gateway}, {}", t!("overview.braked", locale = locale.code(), count = count)),
    };
    let (database, store) = (health.database == State::Up, health.store == State::Up);
    let backend_up = current.backend_down.is_none();
    let backend = match backend_up {
        true => words::backend(current.backend, locale).into_owned(),
        false => format!("{}: {}", words::backend(current.backend, locale), state(false)),
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
    services: &Services,
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
        warnings.push(Warning::BackendDown { reason: reason.clone() });
    }
    if let Some(refused) = &current.refused {
        warnings.push(Warning::Refused { reason: refused.error.to_string() });
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
    match services.audit.lost() {
        0 => {}
        count => warnings.push(Warning::Dropped { count }),
    }
    warnings
}

fn row(instance: Instance, version: &str) -> InstanceRow {
    InstanceRow {
        host: instance.host,
        current: instance.version == version,
        version: instance.version,
        started: Moment(instance.started_at),
        seen: Moment(instance.seen_at),
        refused: instance.refused,
    }
}
