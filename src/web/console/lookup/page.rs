//! `/admin/lookup`: a subject's counts, when they end, why it was refused, and how to let it in.

use std::sync::Arc;

use actix_web::web::{Form, Query};
use actix_web::{HttpRequest, HttpResponse};
use rust_i18n::t;

use crate::config::LiveSettings;
use crate::login::{Account, DeviceFailures};
use crate::lookup::{LimitStatus, LookupActor, LookupError, LookupKind, LookupSubject};
use crate::web::console::LONGEST_REASON;
use crate::web::console::confirm::carried::{self, Confirmed, FormPairs};
use crate::web::console::events::row;
use crate::web::console::figures::DAY;
use crate::web::console::guard::Admin;
use crate::web::console::lookup::asked::{self, AskedSubject, MaskedAsked};
use crate::web::console::lookup::subject;
use crate::web::console::lookup::view::{ENABLING, LimitState, LookupPage, Person};
use crate::web::console::subject_link;
use crate::web::kit::flash::Flash;
use crate::web::kit::locale::Locale;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{self, Visit};
use crate::web::kit::wait::Moment;
use crate::web::kit::web_error::WebError;
use crate::web::kit::web_error::WebResult;

const HERE: &str = "/admin/lookup";
const CLEAR: &str = "/admin/lookup/clear";
const ENABLE: &str = "/admin/lookup/enable";
/// How many recent events are shown, and from how many days.
const LATEST: u32 = 20;
const DAYS: u32 = 7;
/// The longest valid subject in bytes: a realm, a name there, and a device id.
const LONGEST: usize = "guard:".len() + 64 + 1 + 256 + 1 + 32;

/// `GET /admin/lookup`
/// `?account=`, `?address=` or `?phone=` names a subject of the record by its hash. What somebody typed is in
/// a cookie.
pub async fn show(
    visit: Visit,
    admin: Admin,
    request: HttpRequest,
    query: Query<FormPairs>,
    services: Shared,
) -> WebResult {
    let typed = || visit.cookies().looked_up(request.headers()).unwrap_or_default();
    let asked = asked::in_query(&query).map_or_else(typed, asked::text_of);
    page(&visit, &services, &admin, &asked, |page| page).await
}

/// `POST /admin/lookup`: the subject to look up. A cookie keeps it, not the URL.
pub async fn ask(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let asked = sent(&pairs);
    if !visit.admits_form(carried::value(&pairs, "csrf_token")) {
        admin.was_foreign(&services, visit.pattern());
        return Ok(LookupPage::new(&visit, admin.login(), asked).expired().respond(&visit));
    }
    if asked.is_empty() || subject::read(asked, &services.live.snapshot()).is_none() {
        return Ok(LookupPage::new(&visit, admin.login(), asked).unreadable().respond(&visit));
    }
    Ok(back_to(&visit, asked, None))
}

/// `POST /admin/lookup/clear`
pub async fn clear(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let (asked, limit) = (sent(&pairs), carried::value(&pairs, "limit"));
    let act = LookupAct::read(&visit, &services, admin, &pairs, CLEAR, limit).await?;
    let (actor, address) = (act.admin.id(), visit.client.subject());
    let cleared =
        services.lookup.clear(&act.live, limit, &act.subject, act.by(&actor, address.as_ref())).await;
    let answer = match cleared {
        Ok(cleared) => Ok(back_to(&visit, asked, cleared.then_some(Flash::CountCleared))),
        Err(LookupError::Db(error)) => Err(error.into()),
        Err(LookupError::Store(_) | LookupError::Sms(_)) => {
            Ok(LookupPage::new(&visit, act.admin.login(), asked).down().respond(&visit))
        }
    };
    act.confirmed.finish(&visit, services.session_lasts, answer)
}

/// `POST /admin/lookup/enable`
pub async fn enable(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let act = LookupAct::read(&visit, &services, admin, &pairs, ENABLE, ENABLING).await?;
    let (actor, address) = (act.admin.id(), visit.client.subject());
    let by = act.by(&actor, address.as_ref());
    let said = |enabled| if enabled { Flash::PasswordEnabled } else { Flash::NothingEnabled };
    let enabled = services.lookup.enable_password(&act.subject, by).await;
    let answer = enabled.map(|enabled| back_to(&visit, sent(&pairs), Some(said(enabled))));
    act.confirmed.finish(&visit, services.session_lasts, answer.map_err(WebError::from))
}

/// An action on the looked-up subject.
struct LookupAct {
    admin: Admin,
    live: Arc<LiveSettings>,
    subject: LookupSubject,
    reason: String,
    confirmed: Confirmed,
}

impl LookupAct {
    /// Parses the form at `action`, which needs a reason and a confirmed password; otherwise returns the page
    /// to show. `what` is the object of the reason.
    async fn read(
        visit: &Visit,
        services: &Services,
        admin: Admin,
        pairs: &[(String, String)],
        action: &str,
        what: &str,
    ) -> Result<Self, WebError> {
        let asked = sent(pairs);
        let reason: String = carried::value(pairs, "reason").trim().chars().take(LONGEST_REASON).collect();
        if !visit.admits_form(carried::value(pairs, "csrf_token")) {
            admin.was_foreign(services, visit.pattern());
            return Err(page(visit, services, &admin, asked, LookupPage::expired).await?.into());
        }
        if reason.is_empty() {
            return Err(page(visit, services, &admin, asked, |page| page.reason_missing(what)).await?.into());
        }
        let live = services.live.snapshot();
        let found = asked::resolve(services, &live, asked).await?;
        let Some(subject) = found.and_then(|found| found.subject) else {
            return Err(LookupPage::new(visit, admin.login(), asked).unreadable().respond(visit).into());
        };
        let confirmed = carried::require(visit, services, &admin, action, pairs).await?;
        Ok(Self { admin, live, subject, reason, confirmed })
    }

    fn by<'a>(&'a self, actor: &'a str, address: &'a [u8]) -> LookupActor<'a> {
        LookupActor { actor, account: &self.admin.who.account, token: None, address, reason: &self.reason }
    }
}

fn sent(pairs: &[(String, String)]) -> &str {
    let asked = carried::value(pairs, "asked").trim();
    if asked.len() <= LONGEST { asked } else { "" }
}

fn back_to(visit: &Visit, asked: &str, flash: Option<Flash>) -> HttpResponse {
    let mut response = visit.see_other(HERE, flash);
    visit::set(&mut response, visit.cookies().lookup(asked));
    response
}

async fn page(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    asked: &str,
    dress: impl FnOnce(LookupPage) -> LookupPage,
) -> WebResult {
    let live = services.live.snapshot();
    let page = LookupPage::new(visit, admin.login(), asked);
    let Some(found) = asked::resolve(services, &live, asked).await? else {
        let page = if asked::recorded(asked).is_some() { page.gone() } else { page };
        return Ok(dress(page).respond(visit));
    };
    match person(visit, services, &live, &found, asked).await {
        Ok(person) => Ok(dress(page.found(person)).respond(visit)),
        Err(LookupError::Db(error)) => Err(error.into()),
        Err(LookupError::Store(_) | LookupError::Sms(_)) => Ok(dress(page.down()).respond(visit)),
    }
}

async fn person(
    visit: &Visit,
    services: &Services,
    live: &LiveSettings,
    found: &AskedSubject,
    asked: &str,
) -> Result<Person, LookupError> {
    let lookup = &services.lookup;
    let recorded = match (&found.masked, &found.subject) {
        (Some(masked), _) => Some(masked.recorded),
        (None, Some(subject)) => lookup.recorded(subject).await?,
        (None, None) => None,
    };
    let events = match recorded {
        Some(recorded) => lookup.events_of(recorded, visit.now().minus(DAY * DAYS), LATEST).await?,
        None => Vec::new(),
    };
    let events_of = |limit: Option<&str>| recorded.map(|it| subject_link::events_of(it.kind, it.key, limit));
    let person = Person {
        kind: kind(found),
        name: name(found, asked),
        facts: Vec::new(),
        disabled: None,
        limits: Vec::new(),
        all_events: (!events.is_empty()).then(|| events_of(None)).flatten(),
        events: row::rows(events),
    };
    let Some(subject) = &found.subject else {
        return Ok(Person { facts: vec![visit.locale.t("lookup.only-hash").into_owned()], ..person });
    };
    let account = lookup.account(subject).await?;
    let device = lookup.device_failures(subject).await?;
    let limits = lookup.all(live, subject).await?;
    let state = |status: LimitStatus| {
        let events = events_of(Some(status.limit.name()));
        LimitState::new(status).with_events(events)
    };
    Ok(Person {
        facts: facts(visit, live, (subject, found.masked.is_some()), account.as_ref(), device),
        disabled: account.as_ref().and_then(|account| account.password_disabled_at).map(Moment),
        limits: limits.into_iter().map(state).collect(),
        ..person
    })
}

fn kind(found: &AskedSubject) -> &'static str {
    match (found.subject.as_ref().map(LookupSubject::kind), &found.masked) {
        (Some(LookupKind::Login), _) => "lookup.login",
        (Some(LookupKind::Device), _) => "lookup.device",
        (Some(LookupKind::Phone), _) => "lookup.phone",
        (Some(LookupKind::RealmLogin), _) => "lookup.realm-login",
        (Some(LookupKind::RealmDevice), _) => "lookup.device",
        (Some(LookupKind::Program), _) => "lookup.program",
        (Some(LookupKind::ProgramPhone), _) => "lookup.program-phone",
        (Some(_), _) | (None, None) => "lookup.address",
        (None, Some(masked)) => subject_link::kind_key(masked.recorded.kind),
    }
}

/// The name as limits count it: a canonical login, or a number in E.164. Numbers and addresses that nobody
/// typed stay masked.
fn name(found: &AskedSubject, asked: &str) -> String {
    match (&found.subject, &found.masked) {
        (Some(LookupSubject::Login(login)), _) => login.as_str().to_owned(),
        (_, Some(MaskedAsked { recorded, mask })) => format!("{mask} {}", subject_link::tag(recorded.key)),
        (Some(LookupSubject::Phone(phone)), None) => phone.as_str().to_owned(),
        (_, None) => asked.to_owned(),
    }
}

fn facts(
    visit: &Visit,
    live: &LiveSettings,
    (subject, by_hash): (&LookupSubject, bool),
    account: Option<&Account>,
    device: Option<DeviceFailures>,
) -> Vec<String> {
    let locale = visit.locale;
    let Some(account) = account else {
        let unknown = matches!(subject, LookupSubject::Login(_) | LookupSubject::Device { .. })
            .then(|| locale.t("lookup.no-account").into_owned());
        return unknown.into_iter().collect();
    };
    let mut facts = Vec::new();
    if let (LookupSubject::Login(_), Some(phone)) = (subject, &account.phone) {
        // Whoever follows a row has not shown that they know this person.
        let phone = if by_hash { phone.ledger_mask() } else { phone.as_str().to_owned() };
        facts.push(t!("lookup.has-number", locale = locale.code(), it = phone).into_owned());
    }
    if let LookupSubject::Phone(_) = subject {
        facts.push(t!("lookup.number-of", locale = locale.code(), it = account.login.as_str()).into_owned());
    }
    let (count, max) = (account.password_failures, live.login.max_consecutive_failures);
    if count > 0 && max > 0 && account.open_hash().is_some() {
        facts.push(t!("lookup.failures", locale = locale.code(), count = count, max = max).into_owned());
    }
    facts.extend(device.and_then(|device| device_fact(locale, device, max)));
    facts
}

fn device_fact(locale: Locale, device: DeviceFailures, max: u32) -> Option<String> {
    if device.spent {
        return Some(locale.t("lookup.device-disabled").into_owned());
    }
    let count = device.failures;
    let told = || t!("lookup.device-failures", locale = locale.code(), count = count, max = max).into_owned();
    (count > 0 && max > 0).then(told)
}
