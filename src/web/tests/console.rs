//! The console's pages in every state.

use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode, Rule, RuleAction};

use super::NOW;
use crate::audit::{
    Action, AttackEntry, AttackFigures, AttackKind, AttackShare, EventEntry, EventPage, MaskedSubject,
    OriginShare, Outcome, StepSpan, SubjectKind,
};
use crate::clock::Micros;
use crate::config::{AccessSettings, Limits, limits_toml};
use crate::lookup::{LimitStatus, RuleStatus};
use crate::tuning::{DraftError, Instance, LimitsChange, LiveSection};
use crate::web::console::access::AccessAnswer;
use crate::web::console::attack::{AnswerLink, AttackBanner};
use crate::web::console::chart::{Chart, Series};
use crate::web::console::document;
use crate::web::console::document::{APPS, Controls, DocumentPart, LIMITS, StalePage, TomlDraft, Trial};
use crate::web::console::events::{EventQuery, EventsPage};
use crate::web::console::figures::{LimitUse, NearestRule, Period};
use crate::web::console::first_steps::{FirstStep, StepPlace};
use crate::web::console::limits::editor::{EditorPage, LimitForm, RuleRow, TomlPage};
use crate::web::console::limits::history::{ChangeRow, HistoryPage, HistoryPart, RollbackPage};
use crate::web::console::limits::preview::{PreviewLine, PreviewView};
use crate::web::console::limits::{LimitRow, LimitsPage};
use crate::web::console::lookup::{ENABLING, LimitState, LookupPage, Person};
use crate::web::console::overview::{OverviewPage, Part, SPANS, Subject, SubjectList, UseRow, Warning};
use crate::web::console::subject_link::SubjectLink;
use crate::web::console::{FormProblem, RecordSpan};
use crate::web::http::{Flash, Layout, Moment, PageRequest};

const MINUTE: Duration = Duration::from_secs(60);

/// Every page by name, as HTML.
pub fn pages(visit: &PageRequest) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: &str, page: &dyn askama::DynTemplate| {
        all.push((format!("console-{name}"), page.dyn_render().unwrap()));
    };
    add("overview", &overview(visit, false));
    add("overview-warnings", &overview(visit, true));
    add("limits", &limits(visit));
    for (name, page) in editors(visit) {
        add(name, &page);
    }
    let part = &LIMITS;
    let toml = |controls, preview| {
        let page = TomlDraft { part, toml: "[limits.sms-total]\nrules = []\n".into(), controls };
        TomlPage { layout: page.layout(visit, "ada"), page, preview, all: limits_toml(&Limits::default()) }
    };
    add("toml", &toml(controls(), Trial::None));
    let mistakes = vec![mistake("limits.sms-total.rules[0].max")];
    add("toml-mistake", &toml(Controls { mistakes, ..controls() }, Trial::None));
    add("toml-preview", &toml(controls(), Trial::Done(preview(visit))));
    let diff = || document::between("rules = [{ max = 3 }]\n", "rules = [{ max = 5 }]\n# <b>\n");
    let layout = |here: &str| visit.layout(here, Some("ada"));
    let stale = |part: &'static DocumentPart| StalePage {
        layout: layout(part.page),
        part,
        was: controls().version,
        now: "0badcafe0bad".into(),
        diff: diff(),
        draft: "x = 1\n".into(),
        reason: controls().reason,
    };
    add("stale", &stale(part));
    add("apps-stale", &stale(&APPS));
    for (name, page) in super::console_apps::editors(visit) {
        add(name, &page);
    }
    for (name, page) in super::console_apps::lists(visit) {
        add(name, &page);
    }
    for (name, page) in super::console_apps::forms(visit) {
        add(name, &page);
    }
    let older = Some("?b=1".into());
    let here = layout("/admin/limits/history");
    add(
        "history",
        &HistoryPage { layout: here, part: HistoryPart::Settings, changes: changes(), older, later: true },
    );
    let rollback = |controls: Controls| RollbackPage {
        part: HistoryPart::Settings,
        layout: Layout { mistaken: controls.is_mistaken(), ..layout("/admin/limits/history/ab") },
        change: changes().remove(1).change,
        parts: vec![(LiveSection::Limits, diff()), (LiveSection::Factors, diff())],
        chosen: Some(LiveSection::Factors),
        lacks_section: controls.problem == Some(FormProblem::Expired),
        controls,
    };
    let current = || Controls::at("0badcafe0bad");
    add("rollback", &rollback(current()));
    for (name, problem) in [
        ("rollback-reason", FormProblem::ReasonMissing),
        ("rollback-stale", FormProblem::Stale),
        ("rollback-expired", FormProblem::Expired),
        ("rollback-refused", FormProblem::Refused("limits: no".into())),
    ] {
        let (reason, problem) = ("calm".into(), Some(problem));
        add(name, &rollback(Controls { reason, problem, ..current() }));
    }
    let events = |query: &str, entries, attacks: &[AttackEntry]| {
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let series = |key, tone| Series { key, tone, counts: vec![3, 0, 7, 12] };
        let all = vec![series("outcome.ok", "ok"), series("event.refused", "refused")];
        let span = StepSpan { start: NOW.minus(MINUTE * 5_760), step: MINUTE * 1_440, steps: 4 };
        let chart = Chart { id: "events-chart", title: "event.chart", span, series: all, now: NOW };
        let page = EventPage { entries, next: None };
        let layout = visit.layout(format!("/admin/events?{query}"), Some("ada"));
        EventsPage::new(layout, EventQuery::read(&pairs), page, attacks, Some(chart), &Limits::default())
    };
    add("events", &events("", entries(), &[attack(AttackKind::Messages, AttackFigures::default(), 3)]));
    add("events-of-one", &events("account=fffffffffffffff9&noted=1&action=send,register", entries(), &[]));
    add(
        "events-none",
        &events("span=24h&since=2026-03-01T12:00:30Z&until=2026-03-02T12:00:30Z", Vec::new(), &[]),
    );
    let lookup_where = |set: &dyn Fn(&mut LookupPage)| {
        let mut page = LookupPage::new(visit, "ada", "kim");
        set(&mut page);
        page.mark_mistaken();
        page
    };
    let found = || lookup_where(&|page| page.found = Some(person()));
    add("lookup", &LookupPage::new(visit, "ada", ""));
    add("lookup-found", &found());
    for (name, what) in [("lookup-reason", "login-account"), ("lookup-reason-enable", ENABLING)] {
        add(
            name,
            &lookup_where(&|page| (page.found, page.reason_missing) = (Some(person()), Some(what.into()))),
        );
    }
    add("lookup-unreadable", &lookup_where(&|page| page.unreadable = true));
    add("lookup-down", &lookup_where(&|page| page.down = true));
    add("lookup-expired", &lookup_where(&|page| page.expired = true));
    let mut gone = LookupPage::new(visit, "ada", "#account:00000000000000aa");
    gone.gone = true;
    add("lookup-gone", &gone);
    all
}

fn attack(kind: AttackKind, figures: AttackFigures, seen: u32) -> AttackEntry {
    let (id, began_at) = (kind.into_str().to_owned(), NOW.minus(MINUTE * 12));
    let realm = if kind == AttackKind::Attempts { "shop".to_owned() } else { String::new() };
    AttackEntry { id, kind, realm, began_at, seen_at: NOW.minus(MINUTE * seen), ended_at: None, figures }
}

fn attacks(visit: &PageRequest) -> Vec<AttackBanner> {
    let share =
        |mask: &str| Some(AttackShare { key: 7, mask: mask.into(), percent: 98, ..AttackShare::default() });
    let figures = AttackFigures {
        recent: 640,
        usual: 120,
        attempts: 12_345,
        addresses: 500,
        networks: 40,
        names: 1_260,
        numbers: 300,
        prefixes: 2,
        done: 812,
        entered: 3,
        honest: 2,
        answer_refused: 9_156,
        answer_challenged: 12,
        minute: 130,
        origins: [("asn:64496", "AS64496 Example Hosting & Sons", 82), ("country:DE", "DE", 61)]
            .map(|(key, name, percent)| OriginShare { key: key.into(), name: name.into(), percent })
            .into(),
        ..AttackFigures::default()
    };
    let single = AttackFigures {
        usual: 0,
        top_address: share("203.0.113.0/24"),
        top_network: share("203.0.113.0/24"),
        top_prefix: share("+861380013****"),
        largest_networks: ["203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24"]
            .map(share)
            .into_iter()
            .flatten()
            .collect(),
        partial: true,
        ..figures.clone()
    };
    let access = AccessSettings { challenge_everyone_until: Some(NOW), ..AccessSettings::default() };
    let banner = |kind, figures, seen| {
        AttackBanner::new(visit.locale, &access, &attack(kind, figures, seen), [0, 3, 130])
    };
    vec![
        banner(AttackKind::SignIns, figures.clone(), 0),
        banner(AttackKind::Messages, single, 3),
        banner(AttackKind::Mails, figures.clone(), 0),
        banner(AttackKind::Registrations, figures.clone(), 0),
        banner(AttackKind::Attempts, figures, 0),
    ]
}

fn overview(visit: &PageRequest, worried: bool) -> OverviewPage {
    let period = Period {
        withheld: 0,
        signed_in: 1_204,
        wrong: 92,
        challenged: 30,
        refused: 12,
        images: 40,
        solved: 25,
        sent: 77,
        entered: 60,
        wrong_codes: 3,
        disabled: 0,
    };
    let wave = |scale: u64| (0..61_u64).map(|step| (step * 7 + 3) % 11 * scale).collect();
    let series = |key, tone, scale| Series { key, tone, counts: wave(scale) };
    let all = vec![series("overview.signed-in", "ok", 5), series("overview.refused", "refused", 1)];
    let chart =
        |id, title, series| Chart { id, title, span: StepSpan::ending(NOW, MINUTE, 61), series, now: NOW };
    let busy = chart("a", "overview.sign-ins-hour", all);
    let quiet = chart("b", "overview.messages-hour", Vec::new());
    let row = |host: &str, current| Instance {
        id: host.into(),
        host: host.into(),
        version: if current { "0123456789ab" } else { "0badcafe0bad" }.into(),
        started_at: NOW.minus(MINUTE * 900),
        seen_at: NOW,
        applied_at: NOW,
        refused: (!current).then(|| "limits.sms-phone.rules[0].max: is 0".to_owned()),
        this: current,
    };
    let reason = "gatehouse.toml:3: limits.sms-phone.rules[0].max: is 0".to_owned();
    let locale = visit.locale;
    let access = Warning::counted(locale, ["warning.access-title", "warning.access-text"], 3);
    let document = Warning::new(locale, ["warning.document-title", "warning.document-text"]);
    let all = vec![
        Warning { page: Some(["/admin/access", "answers.title"]), ..access },
        Warning::new(locale, ["warning.store-title", "warning.store-text"]),
        Warning { said: Some(reason), ..document },
        Warning::shared(locale, 97, "203.0.113.0/24"),
    ];
    let subject = |kind, mask: &str| Subject {
        link: SubjectLink::new(kind, &MaskedSubject { key: -7, mask: mask.into() }),
        attempts: 1_234,
        deny: AnswerLink::deny(mask, &AccessSettings::default()),
    };
    let list = |id, title, subjects: Vec<Subject>| SubjectList {
        id,
        title,
        subjects: if worried { subjects } else { Vec::new() },
    };
    let realm = UseRow { name: "shop".into(), counts: [900, 80, 30, 1] };
    let used = UseRow { name: "login-account".into(), counts: [36, 12, 12] };
    let step = |key, place| FirstStep { key, place };
    let first_steps = vec![
        step("first-steps.factor", StepPlace::Page("/account/factors")),
        step("first-steps.url", StepPlace::Setting("[server] public_url")),
        step("first-steps.backup", StepPlace::Docs("docs/operations.md")),
    ];
    OverviewPage {
        first_steps,
        is_new: !worried,
        layout: visit.layout("/admin", Some("ada")),
        now: Moment(NOW),
        period,
        steps: vec![Period::default(), period, period],
        before: worried.then_some(Period { signed_in: 1_000, wrong: 92, refused: 400, ..Period::default() }),
        span: &SPANS[0],
        charts: vec![busy, quiet],
        realms: if worried { vec![realm] } else { Vec::new() },
        uses: if worried { vec![used] } else { Vec::new() },
        busiest: [
            list("networks", "overview.networks", vec![subject(SubjectKind::Network, "203.0.113.0/24")]),
            list(
                "subjects",
                "overview.subjects",
                vec![subject(SubjectKind::Account, "k**"), subject(SubjectKind::Phone, "+8613****8000")],
            ),
        ],
        parts: vec![Part { key: "overview.store", up: !worried, text: "memory".into() }],
        instances: if worried { vec![row("one:8080", true), row("two:8080", false)] } else { Vec::new() },
        attacks: if worried { attacks(visit) } else { Vec::new() },
        warnings: if worried { all } else { Vec::new() },
        version: "0123456789ab".into(),
        address: "203.0.113.77".into(),
    }
}

fn limits(visit: &PageRequest) -> LimitsPage {
    let default = Limits::default();
    let hour = LimitUse { counted: Some(1_204), challenged: 3, refused: 1, noted: 2 };
    let row = |limit: Limit, default, overridden, hour| {
        let rule = limit.rules().first().cloned();
        let nearest = rule.map(|rule| NearestRule { used: 1, rule });
        LimitRow { limit, default, overridden, hour, nearest }
    };
    let mut rows: Vec<LimitRow> = default.iter().map(|limit| row(limit.clone(), true, false, hour)).collect();
    let rule = Rule::sliding(5, Duration::from_millis(1_500), RuleAction::Block);
    let watching = Limit::new("custom.reply", vec![rule], LimitMode::Monitor).unwrap();
    rows.push(row(watching, false, true, LimitUse::default()));
    let off = Limit::new("custom.off", Vec::new(), LimitMode::Enforce).unwrap();
    rows.push(row(off, false, false, LimitUse::default()));
    let layout = Layout { flash: Some(Flash::LimitsSaved), ..visit.layout("/admin/limits", Some("ada")) };
    let saved = vec![("custom.reply".to_owned(), "5 → 4 in 1 second <b>".to_owned())];
    LimitsPage { layout, version: "0123456789ab".into(), backend: "file", rows, changes: changes(), saved }
}

fn editors(visit: &PageRequest) -> Vec<(&'static str, EditorPage)> {
    let default = Limits::default();
    let page = |name: &str, form: Option<LimitForm>, controls, preview| {
        let layout = visit.layout(format!("/admin/limits/edit/{name}"), Some("ada"));
        let layout = Layout { mistaken: Controls::is_mistaken(&controls), ..layout };
        let limit = default.get(name).unwrap().clone();
        let form = form.unwrap_or_else(|| LimitForm::from(&limit));
        EditorPage { layout, limit, overridden: false, form, controls, preview }
    };
    let account = |form, controls, preview| page("login-account", form, controls, preview);
    let (first, tried) =
        (|| Controls::at("0123456789ab"), |trial| account(None, Controls::at("0123456789ab"), trial));
    let again = |problem| account(None, Controls { problem: Some(problem), ..first() }, Trial::None);
    let row = RuleRow { max: "three".into(), window: "\"soon".into(), ..RuleRow::default() };
    let wrong = || LimitForm { monitor: true, rows: vec![row.clone()] };
    let mistakes =
        ["max", "window", "then"].map(|part| mistake(&format!("limits.login-account.rules[0].{part}")));
    let twin = mistake("limits.login-account.rules[0]");
    let mistakes = [&mistakes[..], &[twin]].concat();
    let lacking = Controls { problem: Some(FormProblem::ReasonMissing), mistakes, ..controls() };
    let too_much = || Trial::Unable { key: "preview.too-much", said: Some("<7d>".into()) };
    vec![
        ("editor", account(None, first(), Trial::None)),
        ("editor-guess", page("sms-guess", None, first(), Trial::None)),
        ("editor-mistakes", account(Some(wrong()), lacking, Trial::None)),
        ("editor-preview", tried(Trial::Done(preview(visit)))),
        ("editor-busy", tried(Trial::BUSY)),
        ("editor-too-much", tried(too_much())),
        ("editor-expired", again(FormProblem::Expired)),
        ("editor-home", again(FormProblem::NotSaved("gatehouse.toml cannot be written".into()))),
        ("editor-off", account(Some(LimitForm::default()), controls(), Trial::None)),
    ]
}

fn controls() -> Controls {
    Controls { version: "0123456789ab".into(), reason: "a \"flood\"".into(), ..Controls::default() }
}

fn mistake(field: &str) -> DraftError {
    DraftError { field: field.into(), message: "is <0>".into(), line: Some(2) }
}

fn preview(visit: &PageRequest) -> PreviewView {
    let line = |key, recorded, draft, more_is_better| PreviewLine {
        label: visit.locale.t(key),
        recorded,
        draft,
        more_is_better,
    };
    let lines = vec![
        line("preview.challenged", 12, 30, None),
        line("preview.bothered", 2, 5, Some(false)),
        line("preview.guesses", 200, 20, Some(false)),
        PreviewLine { label: "Only <sms-phone>".into(), ..line("preview.sent", 3, 4, None) },
    ];
    let caveats = vec!["preview.limits-changed"];
    PreviewView { stretch: RecordSpan::DAY, attempts: 1_234, unknown: 18, lines, caveats }
}

fn changes() -> Vec<ChangeRow> {
    let row = |id: &str, login: Option<&str>, current| ChangeRow {
        part: HistoryPart::Settings,
        change: LimitsChange {
            id: id.into(),
            at: NOW,
            version: "0123456789ab".into(),
            previous: None,
            actor: None,
            login: login.map(str::to_owned),
            reason: login.map(|_| "a <flood> at night".to_owned()),
            document: String::new(),
            access: String::new(),
            apps: String::new(),
            others: None,
        },
        diff: document::between("a\n", "b\n"),
        current,
    };
    vec![row("00000000000000aa", Some("ada"), true), row("00000000000000ab", None, false)]
}

fn entries() -> Vec<EventEntry> {
    let shown = |mask: &str| Some(MaskedSubject { key: -7, mask: mask.to_owned() });
    let entry = |id, action, outcome, count| EventEntry {
        at: NOW.minus(MINUTE),
        id,
        until: NOW,
        count,
        action,
        outcome,
        name: None,
        limit: None,
        rule: None,
        noted: false,
        solved: false,
        account: shown("k**"),
        address: shown("203.0.113.0/24"),
        network: None,
        phone: None,
        prefix: None,
        actor: None,
        detail: None,
        request: None,
        hits: None,
    };
    let refused = entry(1, Action::SignIn, Outcome::Throttled, 1_400);
    let refused = EventEntry { limit: Some("login-account".into()), rule: Some(1), noted: true, ..refused };
    let act = entry(2, Action::Admin, Outcome::Ok, 1);
    let detail = Some(r#"{"reason":"<calm>","version":"0badcafe0bad"}"#.to_owned());
    let act = EventEntry { name: Some("limits.save".into()), detail, ..act };
    let solved = EventEntry {
        solved: true,
        phone: shown("+8613****8000"),
        ..entry(3, Action::Send, Outcome::Unknown, 1)
    };
    let own = EventEntry { name: Some("reply".into()), ..entry(4, Action::Custom, Outcome::Ok, 1) };
    let broken =
        EventEntry { detail: Some("no <json>".into()), ..entry(5, Action::Reload, Outcome::Refused, 1) };
    vec![refused, act, solved, own, broken]
}

fn person() -> Person {
    let default = Limits::default();
    let hits: Vec<Micros> =
        [2_u64, 11, 40, 700].map(|seconds| NOW.minus(Duration::from_secs(seconds))).to_vec();
    let state = |name: &str, hits: &[Micros], holds, of_this_instance, events: Option<&str>| {
        let limit = default.get(name).unwrap().clone();
        let frees_at = (!hits.is_empty()).then(|| NOW.plus(Duration::from_secs(20)));
        let rules = limit.rules().iter().map(|_| RuleStatus { count: 3, frees_at }).collect();
        let hits = hits.to_vec();
        let status = LimitStatus { limit, of_this_instance, at: NOW, holds, hits, rules };
        LimitState::new(status, events.map(str::to_owned))
    };
    Person {
        kind: "lookup.login",
        name: "kim".into(),
        facts: vec!["Its <number>".into()],
        origins: ["asn:64496", "list:tor"]
            .map(|key| {
                let name = "AS64496 <Example>".to_owned();
                AnswerLink::new(AccessAnswer::Deny, key, name, &AccessSettings::default())
            })
            .into(),
        standing: Vec::new(),
        disabled: Some(Moment(NOW)),
        refuses_mail: Some(Moment(NOW)),
        limits: vec![
            state("login-account", &hits, 2, false, Some("/admin/events?limit=x")),
            state("captcha-address", &[], 0, true, None),
        ],
        events: entries().into_iter().map(Into::into).collect(),
        all_events: Some("/admin/events?account=-7".into()),
    }
}
