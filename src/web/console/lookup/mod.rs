//! `/admin/lookup`: a subject's counts, when they end, why it was refused, and how to let it in.

pub mod api;
pub mod subject;

use std::borrow::Cow;
use std::iter;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use gatehouse_limiter::{Rule, RuleAction, window};
use rust_i18n::t;

use crate::accounts::{Account, DeviceFailures};
use crate::audit::EventEntry;
use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::lookup::{
    LimitStatus, LookupActor, LookupError, LookupScope, LookupSubject, LookupValue, RecordedSubject,
    RuleStatus, hindrances_of,
};
use crate::mail::Mailbox;
use crate::origins::OriginKey;
use crate::web::console::access::AccessAnswer;
use crate::web::console::attack::AnswerLink;
use crate::web::console::confirm;
use crate::web::console::events::row::{self, EventRow};
use crate::web::console::figures::DAY;
use crate::web::console::guard::{Admin, AdminForm, AdminRequest};
use crate::web::console::limit_text::{grouped, sentence, title};
use crate::web::console::lookup::subject::AskedSubject;
use crate::web::console::standing::StandingRow;
use crate::web::console::{FormProblem, subject_link};
use crate::web::form::{FormPairs, value};
use crate::web::http::{Flash, Layout, Locale, Moment, PageRequest, Wait, WebError, WebResult};
use crate::web::http::{cookies, page};

const HERE: &str = "/admin/lookup";
/// With what was typed last, which a cookie keeps.
const TYPED: &str = "/admin/lookup?typed";
const LATEST: u32 = 20;
const DAYS: u32 = 7;
/// The longest valid subject in bytes: a realm, a name there, and a device id.
const LONGEST: usize = "guard:".len() + 64 + 1 + 256 + 1 + 32;

/// `GET /admin/lookup`
/// It opens empty. `?typed` shows what was asked for last. `?account=`, `?address=` or `?phone=` names a subject of the
/// record by its hash. What somebody typed is in a cookie.
pub async fn show(request: AdminRequest, sent: HttpRequest, query: Query<FormPairs>) -> WebResult {
    let has_typed = query.iter().any(|(name, _)| name == "typed");
    let kept = || cookies::typed(sent.headers(), request.visit.cookies().lookup_name).unwrap_or_default();
    let typed = || if has_typed { kept() } else { String::new() };
    let asked = subject::in_query(&query).map_or_else(typed, subject::text_of);
    page(&request, &asked, |page| page).await
}

/// `POST /admin/lookup`: the subject to look up. A cookie keeps it, not the URL.
pub async fn ask(posted: AdminForm) -> WebResult {
    let AdminRequest { visit, services, admin } = &posted.request;
    let asked = sent(&posted.pairs);
    let page = LookupPage::new(visit, admin.login(), asked);
    if !posted.is_ours() {
        return Ok(LookupPage { expired: true, ..page }.respond(visit));
    }
    if asked.is_empty() || subject::read(asked, &visit.settings(services)).is_none() {
        return Ok(LookupPage { unreadable: true, ..page }.respond(visit));
    }
    Ok(back_to(visit, asked, None))
}

/// `POST /admin/lookup/clear`
pub async fn clear(posted: AdminForm) -> WebResult {
    let AdminRequest { visit, services, admin } = &posted.request;
    let (asked, limit) = (sent(&posted.pairs), value(&posted.pairs, "limit"));
    let live = visit.settings(services);
    let (subject, by) = act_on(&posted, &live, limit).await?;
    // An e-mail address that is a name, too, is shown with the limits of both.
    let twin = subject.twin().filter(|twin| twin.is_counted_by(limit));
    let subject = twin.unwrap_or(subject);
    let act = Box::pin(async {
        match services.lookup.clear(&live, limit, &subject, by).await {
            Ok(cleared) => {
                let flash = cleared.then_some(Flash::CountCleared);
                Ok(back_about(visit, asked, flash, &title(limit, visit.locale)))
            }
            Err(LookupError::Db(error)) => Err(error.into()),
            Err(LookupError::Store(_)) => {
                let page = LookupPage::new(visit, admin.login(), asked);
                Ok(LookupPage { down: true, ..page }.respond(visit))
            }
        }
    });
    confirm::confirmed(&posted, act).await
}

/// `POST /admin/lookup/enable`
pub async fn enable(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let live = request.visit.settings(&request.services);
    let (subject, by) = act_on(&posted, &live, ENABLING).await?;
    let act = Box::pin(async {
        let enabled = request.services.lookup.enable_password(&subject, by).await?;
        let said = if enabled { Flash::PasswordEnabled } else { Flash::NothingEnabled };
        Ok(back_to(&request.visit, sent(pairs), Some(said)))
    });
    confirm::confirmed(&posted, act).await
}

/// `POST /admin/lookup/allow-mail`
pub async fn allow_mail(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let live = request.visit.settings(&request.services);
    let (subject, by) = act_on(&posted, &live, ALLOWING).await?;
    let act = Box::pin(async {
        let lookup = &request.services.lookup;
        let said = match lookup.mailbox(&subject).await? {
            Some(mailbox) if lookup.allow_mail(&mailbox, by).await? => Flash::MailAllowed,
            _ => Flash::NothingRefused,
        };
        Ok(back_to(&request.visit, sent(pairs), Some(said)))
    });
    confirm::confirmed(&posted, act).await
}

/// On whom a form acts, and who does so for what reason; otherwise the page to show. `what` is the object of the reason.
async fn act_on(
    posted: &AdminForm,
    live: &LiveSettings,
    what: &str,
) -> Result<(LookupSubject, LookupActor), WebError> {
    let AdminForm { request, pairs, .. } = posted;
    let AdminRequest { visit, services, admin } = request;
    let asked = sent(pairs);
    let reason = match posted.reason() {
        Ok(reason) => reason,
        Err(FormProblem::Expired) => {
            let expired = |page| LookupPage { expired: true, ..page };
            return Err(page(request, asked, expired).await?.into());
        }
        Err(_) => {
            let missing = Some(what.to_owned());
            let lacking = |page| LookupPage { reason_missing: missing, ..page };
            return Err(page(request, asked, lacking).await?.into());
        }
    };
    let found = subject::resolve(services, live, asked).await?;
    let Some(subject) = found.and_then(|found| found.subject) else {
        let page = LookupPage::new(visit, admin.login(), asked);
        return Err(LookupPage { unreadable: true, ..page }.respond(visit).into());
    };
    Ok((subject, actor(admin, reason)))
}

pub fn actor(admin: &Admin, reason: String) -> LookupActor {
    LookupActor {
        actor: admin.id(),
        account: admin.account.clone(),
        token: admin.token().map(str::to_owned),
        address: admin.subject().as_ref().to_vec(),
        reason,
    }
}

fn sent(pairs: &[(String, String)]) -> &str {
    let asked = value(pairs, "asked").trim();
    if asked.len() <= LONGEST { asked } else { "" }
}

/// To the look-up of what was typed.
pub fn back_to(visit: &PageRequest, asked: &str, flash: Option<Flash>) -> HttpResponse {
    back_about(visit, asked, flash, "")
}

fn back_about(visit: &PageRequest, asked: &str, flash: Option<Flash>, about: &str) -> HttpResponse {
    let mut response = visit.see_other_about(TYPED, flash, about);
    let jar = visit.cookies();
    page::set(&mut response, jar.typed(jar.lookup_name, asked));
    response
}

async fn page(
    request: &AdminRequest,
    asked: &str,
    dress: impl FnOnce(LookupPage) -> LookupPage,
) -> WebResult {
    let AdminRequest { visit, services, admin } = request;
    let live = services.live.snapshot();
    let page = LookupPage::new(visit, admin.login(), asked);
    let page = match subject::resolve(services, &live, asked).await? {
        None => LookupPage { gone: subject::recorded(asked).is_some(), ..page },
        Some(found) => match person(request, &live, &found, asked).await {
            Ok(person) => LookupPage { found: Some(person), ..page },
            Err(LookupError::Db(error)) => return Err(error.into()),
            Err(LookupError::Store(_)) => LookupPage { down: true, ..page },
        },
    };
    Ok(dress(page).respond(visit))
}

async fn person(
    request: &AdminRequest,
    live: &LiveSettings,
    found: &AskedSubject,
    asked: &str,
) -> Result<Person, LookupError> {
    let (visit, lookup) = (&request.visit, &request.services.lookup);
    let recorded = match (&found.masked, &found.subject) {
        (Some((recorded, _)), _) => Some(*recorded),
        (None, Some(subject)) => lookup.recorded(subject).await?,
        (None, None) => None,
    };
    let twin = found.subject.as_ref().filter(|_| found.masked.is_none()).and_then(LookupSubject::twin);
    let of_twin = match &twin {
        Some(twin) => lookup.recorded(twin).await?,
        None => None,
    };
    let (events, all_events) = latest(request, [recorded, of_twin]).await?;
    let person = Person {
        kind: kind(found),
        name: name(found, asked),
        facts: Vec::new(),
        origins: origins(request, live, found),
        standing: Vec::new(),
        disabled: None,
        refuses_mail: None,
        limits: Vec::new(),
        all_events,
        events: row::rows(events),
    };
    let Some(subject) = &found.subject else {
        let is_mailbox = found.masked.as_ref().is_some_and(|(_, mask)| subject_link::is_mailbox(mask));
        let only = if is_mailbox { "lookup.only-hash-mailbox" } else { "lookup.only-hash" };
        return Ok(Person { facts: vec![visit.locale.t(only).into_owned()], ..person });
    };
    let account = lookup.account(subject).await?;
    let device = lookup.device_failures(subject).await?;
    let mut limits = Vec::new();
    for (subject, recorded) in iter::once((subject, recorded)).chain(twin.as_ref().map(|it| (it, of_twin))) {
        let of_codes = matches!(subject.value, LookupValue::Phone(_) | LookupValue::Mailbox(_));
        limits.extend(lookup.all(live, subject).await?.into_iter().map(|it| (it, of_codes, recorded)));
    }
    // What is counted for a name that is somebody's address, too, hinders its own account alone.
    let is_of_account = match &twin {
        Some(twin) => lookup.account(twin).await?.map(|it| it.id) == account.as_ref().map(|it| it.id),
        None => true,
    };
    let counted = limits.iter().filter(|(_, _, whose)| is_of_account || *whose == recorded);
    let counted = counted.map(|(status, of_codes, _)| (status, *of_codes));
    let hindrances = hindrances_of(account.as_ref(), counted);
    let standing = hindrances.iter().map(|it| StandingRow::new(it, visit.locale)).collect();
    let state = |(status, _, recorded): (LimitStatus, bool, Option<RecordedSubject>)| {
        let events = recorded.map(|recorded| link(recorded, Some(status.limit.name())));
        LimitState::new(status, events)
    };
    let mut facts = facts(visit, live, (subject, found.masked.is_some()), account.as_ref(), device);
    let mailbox = subject.mailbox().or_else(|| twin.as_ref()?.mailbox());
    let named = account.as_ref().filter(|_| subject.username().is_some());
    facts.extend(mail_facts(request, mailbox, named).await?);
    let refuses_mail = match lookup.mailbox(subject).await? {
        Some(mailbox) => request.services.codes.mail_refused_until(&mailbox).await?,
        None => None,
    };
    Ok(Person {
        facts,
        standing,
        disabled: account.as_ref().and_then(|account| account.password_disabled_at).map(Moment),
        refuses_mail: refuses_mail.map(Moment),
        limits: limits.into_iter().map(state).collect(),
        ..person
    })
}

/// The newest events of a subject and its twin, and the link to all of the first that has any.
async fn latest(
    request: &AdminRequest,
    subjects: [Option<RecordedSubject>; 2],
) -> Result<(Vec<EventEntry>, Option<String>), DbError> {
    let since = request.visit.now().minus(DAY * DAYS);
    let (mut events, mut all) = (Vec::new(), None);
    for recorded in subjects.into_iter().flatten() {
        let found = request.services.lookup.events_of(recorded, since, LATEST).await?;
        all = all.or((!found.is_empty()).then(|| link(recorded, None)));
        events.extend(found);
    }
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    events.truncate(LATEST as usize);
    Ok((events, all))
}

fn link(recorded: RecordedSubject, limit: Option<&str>) -> String {
    subject_link::events_of(recorded.kind, recorded.key, limit)
}

/// Whose an e-mail address is, and which one the account has that was looked up by its name; confirmed by its owner.
async fn mail_facts(
    request: &AdminRequest,
    mailbox: Option<&Mailbox>,
    named: Option<&Account>,
) -> Result<Vec<String>, DbError> {
    let (emails, locale) = (&request.services.emails, request.visit.locale);
    let mut facts = Vec::new();
    if let Some(mailbox) = mailbox {
        let owner = emails.find(&mailbox.clone().into()).await?;
        let of = |owner: &Account| t!("lookup.email-of", locale = locale.code(), it = owner.login.as_str());
        facts.push(owner.as_ref().map_or_else(|| locale.t("lookup.email-of-nobody"), of).into_owned());
    }
    if let Some(account) = named
        && let Some(email) = emails.of(account.id).await?
    {
        facts.push(t!("lookup.has-email", locale = locale.code(), it = email.masked()).into_owned());
    }
    Ok(facts)
}

/// Whose the address is, each with the form that refuses it.
fn origins(request: &AdminRequest, live: &LiveSettings, found: &AskedSubject) -> Vec<AnswerLink> {
    let Some(network) = found.network() else { return Vec::new() };
    let (files, access) = (request.services.live.origins().in_use(), live.access.settings());
    let access = access.in_force(request.visit.now());
    let link =
        |key: OriginKey| AnswerLink::new(AccessAnswer::Deny, &key.to_string(), files.name(&key), &access);
    files.of_network(network).map(link).collect()
}

fn kind(found: &AskedSubject) -> &'static str {
    let Some(LookupSubject { scope, value }) = &found.subject else {
        let of_mask = |(it, mask): &(RecordedSubject, String)| subject_link::shown_key(it.kind, mask);
        return found.masked.as_ref().map_or("lookup.address", of_mask);
    };
    match (scope, value) {
        (LookupScope::Realm(_), LookupValue::Login(_)) => "lookup.realm-login",
        (_, LookupValue::Login(_)) => "lookup.login",
        (_, LookupValue::Device(..)) => "lookup.device",
        (LookupScope::Program(_), LookupValue::Phone(_)) => "lookup.program-phone",
        (_, LookupValue::Phone(_)) => "lookup.phone",
        (_, LookupValue::Mailbox(_)) => "lookup.mailbox",
        (LookupScope::Program(_), LookupValue::Everyone) => "lookup.program",
        _ => "lookup.address",
    }
}

/// The name as limits count it: a canonical login, or a number in E.164. Numbers and addresses that nobody
/// typed stay masked.
fn name(found: &AskedSubject, asked: &str) -> String {
    let value = found.subject.as_ref().filter(|it| it.scope == LookupScope::Pages).map(|it| &it.value);
    match (value, &found.masked) {
        (Some(LookupValue::Login(login)), _) => login.as_str().to_owned(),
        (_, Some((recorded, mask))) => format!("{mask} {}", subject_link::tag(recorded.key)),
        (Some(LookupValue::Phone(phone)), None) => phone.as_str().to_owned(),
        (Some(LookupValue::Mailbox(address)), None) => address.as_str().to_owned(),
        (_, None) => asked.to_owned(),
    }
}

fn facts(
    visit: &PageRequest,
    live: &LiveSettings,
    (subject, by_hash): (&LookupSubject, bool),
    account: Option<&Account>,
    device: Option<DeviceFailures>,
) -> Vec<String> {
    let locale = visit.locale;
    let Some(account) = account else {
        let unknown = subject.username().map(|_| locale.t("lookup.no-account").into_owned());
        return unknown.into_iter().collect();
    };
    let mut facts = Vec::new();
    if let (LookupValue::Login(_), Some(phone)) = (&subject.value, &account.phone) {
        // A reader who follows a row has not shown that they know this person.
        let phone = if by_hash { phone.ledger_mask() } else { phone.as_str().to_owned() };
        facts.push(t!("lookup.has-number", locale = locale.code(), it = phone).into_owned());
    }
    if let LookupValue::Phone(_) = subject.value {
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

const ACROSS: u64 = 1000;

/// Names the password if enabling it lacks a reason. No limit has this name.
pub const ENABLING: &str = "password";
/// Names the mailbox if allowing it mail again lacks a reason. No limit has this name.
pub const ALLOWING: &str = "mail";

pub struct Person {
    pub kind: &'static str,
    /// The name as limits count it: a canonical login, or a number in E.164.
    pub name: String,
    pub facts: Vec<String>,
    /// Whose the address is, if a file tells it.
    pub origins: Vec<AnswerLink>,
    /// What keeps them out; empty if nothing does.
    pub standing: Vec<StandingRow>,
    pub disabled: Option<Moment>,
    /// Until when nothing is sent to the mailbox, because it has refused mail.
    pub refuses_mail: Option<Moment>,
    pub limits: Vec<LimitState>,
    pub events: Vec<EventRow>,
    pub all_events: Option<String>,
}

pub struct LimitState {
    name: String,
    rules: Vec<RuleState>,
    /// Attempts in flight.
    holds: u32,
    empty: bool,
    /// Every instance counts separately.
    of_this_instance: bool,
    /// The link to what this limit decided about the subject.
    events: Option<String>,
}

struct RuleState {
    rule: Rule,
    used: u32,
    /// When the next hit is admitted; None if one is admitted now.
    frees: Option<Wait>,
    start: Moment,
    end: Moment,
    /// The position of each counted hit on the time line, newest last.
    marks: Vec<u64>,
}

impl LimitState {
    pub fn new(standing: LimitStatus, events: Option<String>) -> Self {
        let LimitStatus { limit, of_this_instance, at, holds, hits, rules } = standing;
        let state = |(rule, standing): (&Rule, RuleStatus)| RuleState::new(rule, at, &hits, standing);
        let empty = hits.is_empty() && holds == 0;
        let rules = limit.rules().iter().zip(rules).map(state).collect();
        Self { name: limit.name().to_owned(), rules, holds, empty, of_this_instance, events }
    }

    fn is_full(&self) -> bool {
        self.rules.iter().any(|rule| rule.frees.is_some())
    }
}

impl RuleState {
    fn new(rule: &Rule, now: Micros, hits: &[Micros], standing: RuleStatus) -> Self {
        let start = window::start(&rule.span, now);
        let whole = now.since(start).max(Duration::from_micros(1)).as_micros();
        let place = |at: &Micros| (at.since(start).as_micros() * u128::from(ACROSS) / whole) as u64;
        // Hits that a success has forgiven are older than every hit that a captcha rule counts.
        let most = if rule.then == RuleAction::Captcha { standing.count as usize } else { hits.len() };
        let counted = hits.iter().filter(|at| **at > start && **at <= now).take(most);
        let mut marks: Vec<u64> = counted.map(place).collect();
        marks.reverse();
        marks.dedup();
        let frees = standing.frees_at.map(|at| Wait::new(now, at.since(now)));
        Self {
            rule: rule.clone(),
            used: standing.count,
            frees,
            start: Moment(start),
            end: Moment(now),
            marks,
        }
    }
}

#[derive(Template)]
#[template(path = "pages/admin/lookup.html")]
pub struct LookupPage {
    layout: Layout,
    asked: String,
    pub found: Option<Person>,
    /// The input is not a subject that limits can count.
    pub unreadable: bool,
    /// The limit to clear without a reason given, or [`ENABLING`].
    pub reason_missing: Option<String>,
    pub down: bool,
    pub expired: bool,
    /// No event names the subject any more.
    pub gone: bool,
}

impl LookupPage {
    pub fn new(visit: &PageRequest, user: &str, asked: &str) -> Self {
        let by_hash = subject::recorded(asked).is_some() && visit.here().starts_with("/admin/lookup?");
        let here = if by_hash {
            visit.here()
        } else if asked.is_empty() {
            HERE
        } else {
            TYPED
        };
        let layout = visit.layout(here, Some(user));
        let asked = asked.to_owned();
        Self {
            layout,
            asked,
            found: None,
            unreadable: false,
            reason_missing: None,
            down: false,
            expired: false,
            gone: false,
        }
    }

    fn typed(&self) -> &str {
        subject::typed(&self.asked)
    }

    pub fn mark_mistaken(&mut self) {
        self.layout.mistaken = self.unreadable || self.reason_missing.is_some();
    }

    pub fn respond(mut self, visit: &PageRequest) -> HttpResponse {
        self.mark_mistaken();
        let status = match &self {
            Self { expired: true, .. } => StatusCode::FORBIDDEN,
            Self { down: true, .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self { gone: true, .. } => StatusCode::NOT_FOUND,
            _ if self.layout.mistaken => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::OK,
        };
        visit.page(status, &self)
    }

    fn title(&self, name: &str) -> Cow<'static, str> {
        title(name, self.layout.locale)
    }

    fn sentence(&self, limit: &LimitState, rule: &RuleState) -> String {
        sentence(&limit.name, &rule.rule, self.layout.locale)
    }

    fn used(&self, rule: &RuleState) -> Cow<'static, str> {
        let (used, max) = (grouped(u64::from(rule.used)), grouped(u64::from(rule.rule.max)));
        t!("lookup.used", locale = self.layout.locale.code(), used = used, max = max)
    }

    fn holds(&self, limit: &LimitState) -> Cow<'static, str> {
        t!("lookup.holds", locale = self.layout.locale.code(), count = limit.holds)
    }

    fn lacks_reason(&self, what: &str) -> bool {
        self.reason_missing.as_deref() == Some(what)
    }
}

#[cfg(test)]
mod tests {
    use gatehouse_limiter::{Limit, LimitMode, RuleAction};

    use super::*;

    fn state(hits: &[i64], frees: Option<i64>) -> LimitState {
        let rule = Rule::sliding(2, Duration::from_secs(60), RuleAction::Block);
        let limit = Limit::new("login-account", vec![rule], LimitMode::Enforce).unwrap();
        let at = Micros::from_seconds(100);
        let hits: Vec<Micros> = hits.iter().map(|second| Micros::from_seconds(*second)).collect();
        let frees_at = frees.map(Micros::from_seconds);
        let rules = vec![RuleStatus { count: hits.len() as u32, frees_at }];
        let status = LimitStatus { limit, of_this_instance: false, at, holds: 0, hits, rules };
        LimitState::new(status, None)
    }

    #[test]
    fn a_full_rule_says_how_long_until_the_next_place_frees() {
        let full = state(&[90, 70], Some(130));
        assert_eq!(full.rules[0].frees.unwrap().seconds(), 30);
        assert!(full.is_full() && !state(&[90], None).is_full());
    }

    #[test]
    fn hits_stand_on_the_line_where_they_were_in_the_window() {
        assert_eq!(
            state(&[100, 70, 55, 40, 12], None).rules[0].marks,
            [250, 500, 1000],
            "a window old has left"
        );
        assert!(state(&[], None).empty);
    }
}
