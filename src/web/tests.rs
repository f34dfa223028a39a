//! Every page in every state and language: labelled, without secrets and without unknown keys. With
//! `GATEHOUSE_PAGES_TO=<folder>` the pages are written there, with the style inlined, for inspection.

mod access;
mod accounts;
mod console;
mod console_apps;
mod tokens;

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::test::TestRequest;
use actix_web::web;
use askama::Template;
use strum::VariantArray;
use url::Url;

use super::api_page::ApiPage;
use super::captcha::{CaptchaBlock, ChallengeView, HelpContact, LaterView};
use super::code::{self, CodePage, CodeStep, SecondStep};
use super::console::FormProblem;
use super::console::messages::{KeptBrake, MessageCountries, MessageRow, MessagesPage, NumberHour};
use super::console::subject_link::SubjectLink;
use super::form::{FormPage, Notice};
use super::http::error_page::{ErrorPage, ProblemPage};
use super::outbox::{OutboxPage, OutboxRow};
use super::register::RegisterPage;
use super::sign_in::LoginPage;
use crate::audit::{MaskedSubject, SubjectKind};
use crate::clock::{Clock, Micros};
use crate::codes::{Channel, CountryFigures, LedgerEntry, LedgerFilter, MessageState};
use crate::config::Money;
use crate::entropy::Entropy;
use crate::message::{MessageId, Purpose};
use crate::secret::MasterKey;
use crate::sms::{HeldBrake, ReportState};
use crate::web::http::problem::{ErrorKind, InForm, KINDS, Kind};
use crate::web::http::{Layout, Moment, PageRequest, Problem, TrustedProxies, WebContext};
use crate::web::{Field, FieldErrors, Flash, Locale, Message, Next, Wait};

const NOW: Micros = Micros(1_795_220_052_000_000);
const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0.0.0 Safari/537.36";
const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/604.1";

fn visit(locale: Locale) -> PageRequest {
    let url = Url::parse("http://127.0.0.1:8080").unwrap();
    let master = MasterKey::from_bytes([3; 32]);
    let edge =
        WebContext::new(&url, TrustedProxies::default(), &master, Clock::manual(NOW), Entropy::seeded(9));
    let edge = WebContext { outbox: Some(([127, 0, 0, 1], 8080).into()), ..edge };
    let request = TestRequest::get().uri(&format!("/?lang={}", locale.code()));
    let request = request.peer_addr("203.0.113.77:4711".parse().unwrap());
    PageRequest::of(&request.to_http_request(), web::Data::new(edge))
}

/// The notice of a refusal, as its row says.
fn refused(problem: &Problem) -> Notice {
    match problem.in_form() {
        InForm::Notice(notice) => notice,
        InForm::Words(words) => problem.notice(words, NOW),
        InForm::Page | InForm::ErrorPage | InForm::Redirect(_) => panic!("{problem} shows no form"),
    }
}

fn throttled(seconds: u64) -> Notice {
    refused(&Problem::throttled("login-account", Duration::from_secs(seconds)))
}

fn wait(seconds: u64) -> Wait {
    Wait::new(NOW, Duration::from_secs(seconds))
}

fn challenge() -> CaptchaBlock {
    CaptchaBlock::Challenge(ChallengeView {
        id: "q7Xk".into(),
        expires_in: Duration::from_secs(180),
        image_wait: None,
        proof: Some(r#"{"parameters":{}}"#.into()),
        help: HelpContact::of("mailto:help@example.com"),
    })
}

/// The image has to wait.
fn proof_alone() -> CaptchaBlock {
    match challenge() {
        CaptchaBlock::Challenge(view) => {
            CaptchaBlock::Challenge(ChallengeView { image_wait: Some(wait(41)), ..view })
        }
        other => other,
    }
}

fn later() -> CaptchaBlock {
    let help = HelpContact::of("the front desk");
    CaptchaBlock::Later(LaterView { wait: wait(41), form: crate::captcha::CaptchaForm::Login, help })
}

fn logins(visit: &PageRequest) -> Vec<(&'static str, LoginPage)> {
    let mut missing = FieldErrors::one(Field::Login, Message::LoginMissing);
    missing.add(Field::Password, Message::PasswordMissing);
    let form = |visit: &PageRequest, next| FormPage::new(visit, "/login", None, next);
    let first = |visit: &PageRequest| LoginPage { form: form(visit, None), login: String::new() };
    let again = |notice, captcha| {
        let form = form(visit, Next::parse("/account?a=1&b=2")).again(notice, captcha);
        LoginPage { form, login: "ada".into() }
    };
    let plain = |notice| again(notice, CaptchaBlock::Absent);
    let invalid = form(visit, None).again(Notice::Invalid(missing), CaptchaBlock::Absent);
    let mut flashed = visit.clone();
    flashed.flash = Some(Flash::SignedOut);
    vec![
        ("login", first(visit)),
        ("login-signed-out", first(&flashed)),
        ("login-rejected", plain(refused(&Problem::WRONG_LOGIN))),
        ("login-rejected-captcha", again(refused(&Problem::WRONG_LOGIN), challenge())),
        ("login-captcha", again(Notice::CaptchaNeeded, challenge())),
        ("login-captcha-wrong", again(Notice::CaptchaWrong, challenge())),
        ("login-refreshed", again(Notice::Refreshed, challenge())),
        ("login-captcha-proof", again(Notice::CaptchaNeeded, proof_alone())),
        ("login-captcha-later", again(Notice::CaptchaNeeded, later())),
        ("login-wrong-later", again(Notice::CaptchaWrong, later())),
        ("login-throttled", plain(throttled(252))),
        ("login-throttled-long", plain(throttled(90_000))),
        ("login-busy", plain(refused(&Problem::Busy { retry_after: Duration::from_secs(2) }))),
        ("login-invalid", LoginPage { form: invalid, login: String::new() }),
        ("login-expired", plain(refused(&Problem::Csrf))),
    ]
}

fn registers(visit: &PageRequest) -> Vec<(&'static str, RegisterPage)> {
    let first = || FormPage::new(visit, "/register", None, None);
    let page = |form, login: &str, step| RegisterPage { form, login: login.to_owned(), step };
    let again = |notice, captcha| page(first().again(notice, captcha), "ada", CodeStep::asking(""));
    let mut bad = FieldErrors::one(Field::Login, Message::LoginTaken);
    bad.add(Field::Password, Message::PasswordTooShort { min: 15 });
    vec![
        ("register", page(first(), "", CodeStep::asking(""))),
        ("register-invalid", again(Notice::Invalid(bad), CaptchaBlock::Absent)),
        ("register-code", page(first(), "ada", sent(60, true))),
        ("register-captcha", again(Notice::CaptchaNeeded, challenge())),
        ("register-throttled", again(throttled(1860), CaptchaBlock::Absent)),
    ]
}

fn sent(next_code: u64, confirmed: bool) -> CodeStep {
    let later = |seconds| NOW.plus(Duration::from_secs(seconds));
    let (good_until, next_code) = (later(300), later(next_code));
    let second = SecondStep { now: NOW, good_until, next_code, confirmed, short: false };
    CodeStep { second: Some(second), ..CodeStep::asking("+8613800138000") }
}

fn codes(visit: &PageRequest) -> Vec<(&'static str, CodePage)> {
    let login = || CodePage::new(visit, &code::LOGIN, None, Next::parse("/account?a=1&b=2"));
    let wrong = |field, message| Notice::Invalid(FieldErrors::one(field, message));
    let no_mobile = wrong(Field::Phone, Message::PhoneNotMobile);
    let reset = || CodePage::new(visit, &code::RESET, None, None);
    vec![
        ("code", login()),
        ("code-invalid", login().at(CodeStep::asking("12")).again(no_mobile, CaptchaBlock::Absent)),
        ("code-captcha", login().at(CodeStep::asking("138")).again(Notice::CaptchaNeeded, challenge())),
        (
            "code-too-many",
            login()
                .at(CodeStep::asking("138"))
                .again(Notice::too_many_codes(wait(1860)), CaptchaBlock::Absent),
        ),
        (
            "code-no-codes",
            login().again(
                refused(&Problem::Unavailable { retry_after: Duration::from_secs(5) }),
                CaptchaBlock::Absent,
            ),
        ),
        (
            "code-not-sent",
            login().at(CodeStep::asking("138")).again(refused(&Problem::NotSent), CaptchaBlock::Absent),
        ),
        ("code-sent", login().at(sent(60, true))),
        ("code-unknown", login().at(sent(60, false))),
        (
            "code-wrong",
            login().at(sent(0, true)).again(wrong(Field::Code, Message::CodeWrong), CaptchaBlock::Absent),
        ),
        ("code-guessed", login().at(sent(60, true)).again(throttled(540), CaptchaBlock::Absent)),
        ("reset", reset()),
        ("reset-sent", reset().at(sent(60, true))),
        ("reset-captcha", reset().at(sent(60, true)).again(Notice::CaptchaNeeded, challenge())),
        ("reset-no-account", reset().again(wrong(Field::Phone, Message::NoAccount), CaptchaBlock::Absent)),
        ("phone", CodePage::new(visit, &code::PHONE, Some("ada"), None)),
        ("phone-sent", CodePage::new(visit, &code::PHONE, Some("ada"), None).at(sent(60, true))),
    ]
}

fn messages(visit: &PageRequest) -> Vec<(&'static str, MessagesPage)> {
    let entry = |state, report, entered_at: Option<Micros>| LedgerEntry {
        id: MessageId::random(&Entropy::seeded(1)),
        at: NOW,
        channel: Channel::Sms,
        phone: "+861380013****".into(),
        block: "+861380013".into(),
        purpose: Purpose::Login.into(),
        gateway: "http".into(),
        state,
        reference: None,
        reason: (state == MessageState::Refused).then(|| "status 403".to_owned()),
        entered_at,
        report,
        report_detail: report.map(|_| "DELIVRD".to_owned()),
        reported_at: report.map(|_| NOW),
        asked_from: report.map(|_| "203.0.113.0/24".to_owned()),
        number: "0f".into(),
    };
    let row = |entry: LedgerEntry| {
        let link = |mask| SubjectLink::new(SubjectKind::Network, &MaskedSubject { key: 1, mask });
        MessageRow { asker: entry.asked_from.clone().map(link), entry }
    };
    let hour = || {
        let sent = [("0f".to_owned(), 3)].into();
        NumberHour { channel: Channel::Sms, sent, max: 5, window: Duration::from_secs(3600) }
    };
    let entries = vec![
        entry(MessageState::Pending, None, None),
        entry(MessageState::Accepted, Some(ReportState::Delivered), Some(NOW)),
        entry(MessageState::Accepted, Some(ReportState::Failed), None),
        entry(MessageState::Refused, None, None),
        entry(MessageState::Unknown, Some(ReportState::Pending), None),
    ];
    let brake = HeldBrake {
        prefix: "+861380013".into(),
        program: Some("verify:shop".into()),
        began_at: NOW,
        ends_at: NOW.plus(Duration::from_secs(3600)),
        sent: 20,
        entered: 1,
    };
    let countries = || {
        let figures = |country: &str, asks| CountryFigures {
            country: country.to_owned(),
            sent: 1_200,
            entered: 1_056,
            unreturned: 612,
            asks_from: 500,
            asks,
            cost: Money(60_000_000),
        };
        let (countries, spent) = (vec![figures("CN", true), figures("", false)], Money(120_000_000));
        MessageCountries { countries, spent, budget: Some("200.00".into()), currency: Some("EUR".into()) }
    };
    let state = Some(MessageState::Unknown);
    let asked = LedgerFilter { state, prefix: Some("+861380013".into()), ..LedgerFilter::default() };
    let page = |asked, rows: Vec<LedgerEntry>, brakes, kept: Option<KeptBrake>| {
        let layout = Layout { mistaken: kept.is_some(), ..visit.layout("/admin/messages", Some("ada")) };
        let (rows, hours) = (rows.into_iter().map(row).collect(), vec![hour()]);
        let (older, is_first, countries) = (None, true, countries());
        MessagesPage { layout, asked, rows, hours, brakes, countries, older, is_first, kept }
    };
    let none = LedgerFilter::default;
    let kept = (["+861380013", "verify:shop"].map(str::to_owned), FormProblem::ReasonMissing);
    vec![
        ("messages-reason", page(none(), Vec::new(), vec![brake.clone()], Some(kept))),
        ("messages", page(asked, entries, vec![brake], None)),
        ("messages-none", page(none(), Vec::new(), Vec::new(), None)),
    ]
}

fn outboxes(visit: &PageRequest) -> Vec<(&'static str, OutboxPage)> {
    let row = || OutboxRow {
        id: "b19b".into(),
        at: Moment(NOW),
        channel: Channel::Sms,
        phone: Some("+8613800138000".into()),
        code: Some("012345".into()),
        email: None,
        subject: None,
        text: "012345 is your code.".into(),
        html: None,
    };
    let mail = || OutboxRow {
        channel: Channel::Mail,
        phone: None,
        code: None,
        email: Some("ada@example.org".into()),
        subject: Some("Gatehouse: your code".into()),
        ..row()
    };
    vec![
        ("outbox", OutboxPage::new(visit, "138", vec![row(), mail()])),
        ("outbox-none", OutboxPage::new(visit, "", Vec::new())),
    ]
}

/// Every page by name, as HTML.
fn all(locale: Locale) -> Vec<(String, String)> {
    fn html<T: Template>(pages: Vec<(&'static str, T)>) -> impl Iterator<Item = (String, String)> {
        pages.into_iter().map(|(name, page)| (name.to_owned(), page.render().unwrap()))
    }
    let visit = visit(locale);
    let error = |kind: ErrorKind| {
        let page = ErrorPage::new(visit.layout("/login", None), kind);
        (format!("error-{kind:?}").to_lowercase(), page.render().unwrap())
    };
    let problem =
        |kind: Kind| (format!("problem-{}", kind.name), ProblemPage::new(&visit, kind).render().unwrap());
    let forms = html(logins(&visit)).chain(html(registers(&visit))).chain(html(accounts::pages(&visit)));
    let forms = forms.chain(html(tokens::confirms(&visit))).chain(html(tokens::pages(&visit)));
    let forms = forms.chain(html(tokens::revocations(&visit)));
    let forms = forms.chain(html(access::accesses(&visit)));
    let forms = forms.chain(html(codes(&visit))).chain(html(messages(&visit))).chain(html(outboxes(&visit)));
    let forms = forms
        .chain(html(vec![("api", ApiPage::new(&visit, &crate::routes::DOCUMENT))]))
        .chain(console::pages(&visit));
    forms
        .chain(ErrorKind::VARIANTS.iter().copied().map(error))
        .chain(KINDS.iter().copied().map(problem))
        .collect()
}

fn each(check: impl Fn(&str, &str)) {
    for locale in Locale::ALL {
        for (name, html) in all(locale) {
            check(&format!("{name} in {}", locale.code()), &html);
        }
    }
}

/// The values of an attribute, in order.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let lead = format!(" {attribute}=\"");
    html.split(lead.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_field_has_a_label_and_every_reference_a_target() {
    each(|name, html| {
        let ids = values(html, "id");
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "an id twice: {name}");
        let labels = values(html, "for");
        for input in html.split("<input ").skip(1).map(|rest| rest.split('>').next().unwrap()) {
            let unseen = input.contains("type=\"hidden\"") || input.contains("aria-hidden");
            let spaced = format!(" {input}");
            let id = values(&spaced, "id").pop();
            assert!(unseen || id.is_some_and(|id| labels.contains(&id)), "{input} has no label: {name}");
        }
        let described = values(html, "aria-describedby").into_iter().flat_map(|list| list.split(' '));
        for id in described.chain(values(html, "aria-labelledby")).chain(labels.iter().copied()) {
            assert!(ids.contains(&id), "{id} is nowhere: {name}");
        }
        for link in values(html, "href").into_iter().filter_map(|href| href.strip_prefix('#')) {
            assert!(ids.contains(&link), "#{link} leads nowhere: {name}");
        }
    });
}

#[test]
fn every_post_carries_a_csrf_token() {
    each(|name, html| {
        for form in html.split("<form ").skip(1).map(|rest| rest.split("</form>").next().unwrap()) {
            // A form that only looks something up changes nothing.
            let looks = form.starts_with("class=\"filter\" method=\"get\"");
            let posts = form.contains("method=\"post\"") && form.contains("name=\"csrf_token\" value=\"");
            assert!(looks && !form.contains("csrf_token") || posts, "{name}");
        }
    });
}

#[test]
fn a_page_has_one_title_one_heading_and_at_most_one_focus() {
    each(|name, html| {
        assert_eq!(html.matches("<h1").count(), 1, "{name}");
        assert!(html.matches(" autofocus").count() <= 1, "{name}");
        assert!(html.contains("<title>"), "{name}");
        assert!(!html.contains("%{"), "{name}");
    });
}

#[test]
fn a_page_with_a_mistake_says_so_first_in_its_title() {
    each(|name, html| {
        let title = html.split("<title>").nth(1).unwrap();
        let told = title.starts_with("Error: ") || title.starts_with("错误：");
        assert!(told || !html.contains("aria-invalid=\"true\""), "{name}");
    });
}

#[test]
fn a_title_says_something() {
    each(|name, html| assert!(!values(html, "title").contains(&""), "{name}"));
}

#[test]
fn nothing_inline_that_the_content_security_policy_would_stop() {
    each(|name, html| {
        let bare = html.contains("<style") || html.contains(" style=") || html.contains("<script>");
        assert!(!bare && !html.contains(" onclick="), "{name}");
    });
}

#[test]
fn what_was_typed_is_kept_escaped_and_passwords_have_no_value() {
    let visit = visit(Locale::En);
    let html = LoginPage {
        form: FormPage::new(&visit, "/login", None, None),
        login: "\"><script>alert(1)</script>".into(),
    };
    let html = html.render().unwrap();
    assert!(html.contains("value=\"&#34;&#62;&#60;script&#62;") && !html.contains("<script>"));
    each(|name, html| {
        for input in html.split("<input ").skip(1).map(|rest| rest.split('>').next().unwrap()) {
            assert!(!input.contains("type=\"password\"") || !input.contains(" value="), "{name}");
        }
    });
}

#[test]
fn who_has_to_give_the_password_is_offered_no_other_way() {
    for (notice, others) in
        [(Notice::PasswordAgain, false), (Notice::PasswordForPart, false), (Notice::SignInAgain, true)]
    {
        let visit = visit(Locale::En);
        let mut form =
            FormPage::new(&visit, "/login", None, None).again(notice.clone(), CaptchaBlock::Absent);
        (form.layout.passkeys, form.layout.sends_codes) = (true, true);
        let html = LoginPage { form, login: String::new() }.render().unwrap();
        for way in ["data-passkey=\"sign-in\"", "href=\"/login/code\""] {
            assert_eq!(html.contains(way), others, "{notice:?} {way}");
        }
    }
}

#[test]
fn a_wait_is_told_as_a_moment_that_stays_true() {
    let (_, page) =
        logins(&visit(Locale::En)).into_iter().find(|(name, _)| *name == "login-throttled").unwrap();
    let html = page.render().unwrap();
    assert!(
        html.contains("<time datetime=\"2026-11-21T00:18:24Z\" data-clock>00:18:24 UTC</time>"),
        "{html}"
    );
    assert!(html.contains("4 minutes 20 seconds") && html.contains("data-wait=\"252\""));
}

/// The moment was already rounded up in the form.
#[test]
fn a_code_that_lasts_five_minutes_is_never_said_to_last_longer() {
    let good_until = Micros::from_seconds(NOW.seconds() + 301);
    for micros in [1, 300_000, 999_999] {
        let now = Micros::from_seconds(NOW.seconds()).plus(Duration::from_micros(micros));
        let second = SecondStep { now, good_until, next_code: NOW, confirmed: true, short: false };
        assert_eq!(second.lasts(Locale::En).as_deref(), Some("5 minutes"), "{micros}");
    }
}

#[test]
fn a_status_fits_what_the_page_says() {
    let visit = visit(Locale::En);
    let answers: Vec<(&str, u16, bool)> = logins(&visit)
        .into_iter()
        .map(|(name, page)| (name, page.form.respond(&visit, &page)))
        .map(|(name, answer)| (name, answer.status().as_u16(), answer.headers().contains_key("retry-after")))
        .collect();
    for expected in [
        ("login", 200, false),
        ("login-rejected", 401, false),
        ("login-captcha", 403, false),
        ("login-throttled", 429, true),
        ("login-busy", 503, true),
        ("login-invalid", 422, false),
        ("login-expired", 403, false),
    ] {
        assert!(answers.contains(&expected), "{expected:?} is not among {answers:?}");
    }
}

/// Its first button is what Enter presses.
#[test]
fn enter_sends_the_form_or_saves_and_does_nothing_else() {
    each(|name, html| {
        for form in html.split("<form ").skip(1) {
            let form = form.split("</form>").next().unwrap();
            let first = form.split("<button").nth(1).unwrap().split('>').next().unwrap();
            let saves = form.contains("name=\"do\" value=\"save\"");
            let sends = !first.contains("name=")
                || first.contains(r#"name="do" value="save""#)
                || first.contains(r#"name="do" value="enter""#);
            let tries = !saves && first.contains(r#"name="do" value="try""#);
            assert!(sends || tries, "{name}: {first}");
            assert!(
                !form.contains("id=\"reason\"")
                    || !saves
                    || first.contains("enter")
                    || first.contains("save"),
                "{name}: {first}"
            );
        }
    });
}

#[test]
fn pages_can_be_looked_at() {
    let Some(folder) = std::env::var_os("GATEHOUSE_PAGES_TO").map(std::path::PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).unwrap();
    let style = format!("<style>{}</style></head>", include_str!("../../static/app.css"));
    let script = format!("<script>{}</script></body>", include_str!("../../static/app.js"));
    for locale in Locale::ALL {
        for (name, html) in all(locale) {
            let html = html.replace("</head>", &style).replace("</body>", &script);
            let html = html.replace("/captcha/q7Xk.png", "captcha.png");
            std::fs::write(folder.join(format!("{name}.{}.html", locale.code())), html).unwrap();
        }
    }
}
