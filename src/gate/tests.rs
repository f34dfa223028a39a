//! Who may do what, and where the way back leads.

use std::time::Duration;

use super::*;
use crate::accounts::{Factor, FactorSetup, Groups, Profile, ProvedFactors, Username};
use crate::clock::Micros;
use crate::config::{App, AppFactor, AppPart, Apps, PathPattern, Who};
use crate::entropy::Entropy;

const NOW: Micros = Micros(1_800_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn path(text: &str) -> PathPattern {
    PathPattern::parse(text).unwrap()
}

fn wiki() -> App {
    App {
        name: "wiki".to_owned(),
        hosts: vec!["wiki.example".to_owned(), "wiki.example:8443".to_owned()],
        who: vec![Who::Group("staff".to_owned()), Who::Name("ada".to_owned())],
        public: vec![path("/health"), path("/static/*"), path("/admin/health")],
        parts: vec![
            AppPart {
                path: path("/admin/*"),
                who: Some(vec![Who::Group("on-call".to_owned())]),
                signed_in_within: Some(HOUR),
                ..AppPart::default()
            },
            AppPart { path: path("/keys"), password_within: Some(HOUR), ..AppPart::default() },
        ],
        ..App::default()
    }
}

fn visitor(login: &str, groups: &[&str]) -> AppVisitor {
    AppVisitor {
        session: SessionId::random(&Entropy::Os),
        account: AccountId::random(&Entropy::Os),
        login: Username::parse(login).unwrap(),
        groups: Groups::parse(groups.iter().copied()).unwrap(),
        profile: Profile::default(),
        must_change_password: false,
        signed_in_at: NOW,
        verified_at: NOW,
        proved_at: NOW,
        proved: ProvedFactors::default(),
        setup: None,
        idle_until: NOW.plus(HOUR),
    }
}

fn asked<'a>(method: &'a str, target: &'a str) -> AppRequest<'a> {
    AppRequest { method, target }
}

fn stranger(method: &str, target: &str) -> Verdict {
    authorize(&wiki(), asked(method, target), None, NOW)
}

#[test]
fn what_is_public_is_read_by_everybody_and_changed_by_nobody() {
    for open in ["/health", "/health?deep=1", "/static/", "/static/a/b.css", "/static/a?x=/../y"] {
        for method in ["GET", "HEAD"] {
            assert_eq!(stranger(method, open), Verdict::Public, "{method} {open}");
        }
        for method in ["POST", "PUT", "OPTIONS", "get", "PROPFIND"] {
            assert_eq!(stranger(method, open), Verdict::SignInFirst, "{method} {open}");
        }
    }
}

#[test]
fn an_odd_path_is_not_public() {
    for odd in [
        "/static/../admin",
        "/static/%2e%2e/admin",
        "/static/..%2fadmin",
        "/static/..;/admin",
        "/static/a;b",
        "/static//a",
        "//static/a",
        "/static/./a",
        "/static/..",
        "/static\\..\\admin",
        "/static/a%00",
        "/static/a\u{1}",
        "/static/é",
        "/static/a#b",
        "/static/...",
        "/static/..::$DATA/admin",
        "/static/::$INDEX_ALLOCATION",
        "/static/ADMINI~1",
        "/STATIC/a",
        "/static",
        "/health/",
        "/health%20",
        "/",
        "",
        "*",
        "http://wiki.example/static/a",
    ] {
        assert_eq!(stranger("GET", odd), Verdict::SignInFirst, "{odd:?}");
    }
}

#[test]
fn a_part_applies_to_every_path_that_some_server_takes_for_its_own() {
    let bob = visitor("bob", &["staff"]);
    let verdict = |target| authorize(&wiki(), asked("GET", target), Some(&bob), NOW);
    for free in ["/", "/page", "/administration", "/keys/1", "/admin.html", "/~1/admin", "/a:b"] {
        assert_eq!(verdict(free), Verdict::Allowed, "{free}");
    }
    for guarded in [
        "/admin",
        "/admin/",
        "/admin/users?x",
        "/ADMIN/users",
        "/Admin",
        "/admin/health",
        "/%61dmin/users",
        "/x/../admin/",
        "//admin/",
        "/admin;x/users",
        "/admin.",
        "/admin./",
        "/admin.../users",
        "/admin::$DATA",
        "/Admin.:$I30:$INDEX_ALLOCATION/users",
        "/admin:x",
        "/.../admin",
        "/::$INDEX_ALLOCATION/admin",
        "/:/admin",
        "/.:x/admin",
        "/ADMIN~1/users",
        "/admin%2e",
        "/admin%20",
        "/admin/.",
        "/x\\..\\admin",
        "/page%20two",
    ] {
        assert_eq!(verdict(guarded), Verdict::Forbidden, "{guarded}");
    }
    let both = visitor("eve", &["staff", "on-call"]);
    assert_eq!(authorize(&wiki(), asked("GET", "/admin"), Some(&both), NOW), Verdict::Allowed);
    let only_the_part = visitor("joe", &["on-call"]);
    let verdict = authorize(&wiki(), asked("GET", "/admin"), Some(&only_the_part), NOW);
    assert_eq!(verdict, Verdict::Forbidden, "a part narrows the application");
}

#[test]
fn a_part_may_ask_for_a_recent_sign_in_or_password() {
    let on_call = ["staff", "on-call"];
    let old = AppVisitor { signed_in_at: NOW.minus(HOUR), ..visitor("ada", &on_call) };
    let verdict = |who: &AppVisitor, target| authorize(&wiki(), asked("GET", target), Some(who), NOW);
    assert_eq!(verdict(&old, "/admin"), Verdict::SignInFirst);
    assert_eq!(verdict(&old, "/keys"), Verdict::Allowed);
    let by_code = AppVisitor { verified_at: Micros(0), ..visitor("ada", &on_call) };
    assert_eq!(verdict(&by_code, "/admin"), Verdict::Allowed);
    assert_eq!(verdict(&by_code, "/keys"), Verdict::SignInFirst);
    let later = AppVisitor { signed_in_at: NOW.plus(HOUR), ..visitor("ada", &on_call) };
    assert_eq!(verdict(&later, "/admin"), Verdict::SignInFirst, "no clock is that far ahead");
    assert_eq!(too_old(&wiki(), "/", Micros(0), Micros(0), NOW), None);
    assert_eq!(too_old(&wiki(), "/admin", Micros(0), NOW, NOW), Some(TooOld::SignIn));
    assert_eq!(too_old(&wiki(), "/%6beys", NOW, Micros(0), NOW), Some(TooOld::Password));
    assert_eq!(too_old(&wiki(), "/%6beys", Micros(0), Micros(0), NOW), Some(TooOld::Password), "is both");
}

#[test]
fn who_is_not_named_is_refused_and_who_must_change_the_password_does_that_first() {
    let verdict = |who: &AppVisitor| authorize(&wiki(), asked("GET", "/"), Some(who), NOW);
    assert_eq!(verdict(&visitor("ada", &[])), Verdict::Allowed);
    assert_eq!(verdict(&visitor("mallory", &["staffs"])), Verdict::Forbidden);
    let first = AppVisitor { must_change_password: true, ..visitor("ada", &[]) };
    assert_eq!(verdict(&first), Verdict::SignInFirst);
    let nobody = App { who: Vec::new(), ..wiki() };
    assert_eq!(authorize(&nobody, asked("GET", "/"), Some(&visitor("ada", &[])), NOW), Verdict::Forbidden);
    let all = App { who: vec![Who::Everyone], ..wiki() };
    assert_eq!(authorize(&all, asked("GET", "/"), Some(&visitor("mallory", &[])), NOW), Verdict::Allowed);
}

#[test]
fn the_way_back_leads_to_the_host_of_an_application_and_nowhere_else() {
    let apps = Apps::new(vec![wiki()]);
    let parse = |text: &str| ReturnUrl::parse(text, &apps, false);
    for kept in [
        "https://wiki.example/",
        "https://wiki.example/a/b?c=d&e=https://x.example//y",
        "https://wiki.example:8443/%E4%B8%AD",
        "https://wiki.example//evil.example/",
        "https://wiki.example/@evil.example",
    ] {
        let to = parse(kept).unwrap_or_else(|| panic!("{kept}"));
        assert_eq!((to.as_str(), format!("{}{}", to.origin(), to.target())), (kept, kept.to_owned()));
    }
    let tricks = [
        "",
        "/",
        "//wiki.example/",
        "wiki.example/",
        "https://wiki.example",
        "https:wiki.example/",
        "https:/wiki.example/",
        "https:///wiki.example/",
        "http://wiki.example/",
        "HTTPS://wiki.example/",
        "https://WIKI.example/",
        "https://wiki.example./",
        "https://wiki.example:443/",
        "https://wiki.example:8443:/",
        "https://wiki.example:08443/",
        "https://evil.example/",
        "https://wiki.example.evil.example/",
        "https://evil.example/https://wiki.example/",
        "https://wiki.example@evil.example/",
        "https://evil.example@wiki.example/",
        "https://:@wiki.example/",
        "https://wiki.example\\@evil.example/",
        "https://evil.example\\.wiki.example/",
        "https://evil.example#.wiki.example/",
        "https://evil.example?.wiki.example/",
        "https://wiki.example#/",
        "https://wiki.example/#x",
        "https://wiki.example/\n",
        "https://wiki.example/\u{202e}",
        "https://ｗiki.example/",
        "https://wiki。example/",
        "https://wiki%2eexample/",
        "javascript://wiki.example/%0aalert(1)",
        "ftp://wiki.example/",
        " https://wiki.example/",
        "https://wiki.example/ ",
        "\thttps://wiki.example/",
    ];
    for trick in tricks {
        assert_eq!(parse(trick), None, "{trick:?}");
    }
    assert!(ReturnUrl::parse("http://wiki.example/", &apps, true).is_some());
    assert_eq!(parse(&format!("https://wiki.example/{}", "a".repeat(2_048))), None);
    let to = |target: &str| ReturnUrl::of(Scheme::Https, "wiki.example", target, &apps, false);
    assert_eq!(to("/a").unwrap().as_str(), "https://wiki.example/a");
    assert_eq!(to("/?q={a|b}\\").unwrap().as_str(), "https://wiki.example/?q=%7Ba%7Cb%7D%5C");
    assert_eq!(to("/é\r\nX: y").unwrap().as_str(), "https://wiki.example/%C3%A9%0D%0AX:%20y");
    assert_eq!(to(&format!("/{}", "a".repeat(2_048))).unwrap().as_str(), "https://wiki.example/");
}

proptest::proptest! {
    /// Whatever is accepted, a browser finds it at the application's host.
    #[test]
    fn no_spelling_leads_elsewhere(
        lead in "(https|http|HTTPS)?:?[/\\\\\t]{0,3}",
        user in "([a-z:%@]{0,4}@)?",
        host in "(wiki\\.example|WIKI\\.example|evil\\.example|wiki\\.example\\.evil\\.example|[.:0-9%@#?\\\\]{0,3}){1,2}",
        rest in "(:[0-9]{0,5})?[/?#\\\\@.a-z%]{0,12}",
    ) {
        let apps = Apps::new(vec![wiki()]);
        if let Some(to) = ReturnUrl::parse(&format!("{lead}{user}{host}{rest}"), &apps, true) {
            let there = url::Url::parse("https://id.example/").unwrap().join(to.as_str()).unwrap();
            proptest::prop_assert_eq!(there.host_str(), Some("wiki.example"));
            proptest::prop_assert!(matches!(there.port(), None | Some(8443)));
            proptest::prop_assert_eq!(there.username(), "");
        }
    }
}

#[test]
fn an_application_gets_the_factor_that_it_asks_for() {
    let part = |factor, factor_within| AppPart {
        path: path("/keys/*"),
        factor,
        factor_within,
        ..AppPart::default()
    };
    let app = |factor, parts| App { who: vec![Who::Everyone], parts, factor, ..wiki() };
    let (none, second, passkey) = (AppFactor::None, AppFactor::Second, AppFactor::Passkey);
    let before = NOW.minus(HOUR - Duration::from_secs(1));
    let lacks = |app: &App, target: &str, proved| lacks_factor(app, target, proved, NOW);
    let nothing = ProvedFactors::default();
    let by = |factor, at| nothing.and(factor, at);
    assert_eq!(lacks(&app(none, Vec::new()), "/", nothing), None);
    for enough in [Factor::Totp, Factor::Recovery, Factor::Passkey] {
        let proved = by(enough, Micros(0));
        assert_eq!(lacks(&app(second, Vec::new()), "/", proved), None);
        let least = (enough != Factor::Passkey).then_some(passkey);
        assert_eq!(lacks(&app(passkey, Vec::new()), "/", proved), least, "{enough:?}");
    }
    assert_eq!(lacks(&app(second, Vec::new()), "/", nothing), Some(second));
    let aged = app(none, vec![part(none, Some(HOUR))]);
    assert_eq!(lacks(&aged, "/", nothing), None);
    assert_eq!(lacks(&aged, "/keys/1", by(Factor::Totp, before)), None);
    assert_eq!(lacks(&aged, "/keys/1", by(Factor::Totp, NOW.minus(HOUR))), Some(second));
    // Every part applies to what may be it, and the strictest of all counts.
    assert_eq!(lacks(&aged, "/%6beys/1", nothing), Some(second));
    let both = app(second, vec![part(passkey, None), part(none, Some(HOUR))]);
    assert_eq!(lacks(&both, "/keys/1", by(Factor::Totp, NOW)), Some(passkey));
    let late = by(Factor::Passkey, NOW.minus(HOUR));
    assert_eq!(lacks(&both, "/keys/1", late), Some(passkey));
    assert_eq!(lacks(&both, "/keys/1", by(Factor::Passkey, before)), None);
    // Proofs add up, each with its time: a code takes nothing from a passkey, and lends it no time.
    assert_eq!(lacks(&app(passkey, Vec::new()), "/", late.and(Factor::Totp, NOW)), None);
    assert_eq!(lacks(&aged, "/keys/1", late.and(Factor::Totp, before)), None);
    assert_eq!(lacks(&both, "/keys/1", late.and(Factor::Totp, NOW)), Some(passkey));
    // Who may not use it is not told what it asks for; who has to set a factor up is told that first.
    let mut ada = visitor("ada", &[]);
    let get = asked("GET", "/keys/1");
    assert_eq!(authorize(&both, get, Some(&ada), NOW), Verdict::FactorFirst(passkey));
    let nobodys = App { who: Vec::new(), ..both.clone() };
    assert_eq!(authorize(&nobodys, get, Some(&ada), NOW), Verdict::Forbidden);
    ada.setup = Some(FactorSetup { by: NOW, overdue: false });
    assert_eq!(
        authorize(&both, get, Some(&ada), NOW),
        Verdict::SetupFirst,
        "by the clock, also if remembered"
    );
    assert_eq!(authorize(&both, asked("GET", "/health"), Some(&ada), NOW), Verdict::Public);
}
