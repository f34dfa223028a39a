//! What a visit reads from its request, and the cookies that its answers set.

use actix_web::test::TestRequest;

use super::*;
use crate::clock::Micros;
use crate::web::http::assets;
use crate::web::http::error_page::ErrorPage;
use crate::web::http::problem::ErrorKind;

fn edge() -> web::Data<WebContext> {
    let url = Url::parse("http://127.0.0.1:8080").unwrap();
    let clock = Clock::manual(Micros(1_700_000_000_000_000));
    let master = MasterKey::from_bytes([3; 32]);
    web::Data::new(WebContext::new(&url, TrustedProxies::default(), &master, clock, Entropy::seeded(9)))
}

fn cookies_of(visit: &PageRequest) -> Vec<String> {
    let page = ErrorPage::new(visit.layout("/", None), ErrorKind::NotFound);
    visit.page(StatusCode::OK, &page).cookies().map(|cookie| cookie.to_string()).collect()
}

#[test]
fn a_choice_of_language_beats_the_cookie_and_the_cookie_beats_the_browser() {
    let ask = |uri: &str| TestRequest::get().uri(uri).insert_header(("accept-language", "zh-CN,en;q=0.5"));
    assert_eq!(PageRequest::of(&ask("/login").to_http_request(), edge()).locale, Locale::ZhCn);
    let kept = ask("/login").insert_header(("cookie", "x; gh_lang=en"));
    assert_eq!(PageRequest::of(&kept.to_http_request(), edge()).locale, Locale::En);
    let chosen = ask("/login?next=/a&lang=zh-CN").insert_header(("cookie", "gh_lang=en"));
    let visit = PageRequest::of(&chosen.to_http_request(), edge());
    assert_eq!(visit.locale, Locale::ZhCn);
    assert!(cookies_of(&visit).iter().any(|cookie| cookie.starts_with("gh_lang=zh-CN; ")));
}

#[test]
fn a_link_to_another_choice_replaces_the_earlier_one() {
    let visit = PageRequest::of(&TestRequest::get().uri("/").to_http_request(), edge());
    let hrefs = |here: &str| {
        visit.layout(here, None).languages().into_iter().map(|link| link.href).collect::<Vec<_>>()
    };
    assert_eq!(hrefs("/a"), ["/a?lang=en", "/a?lang=zh-CN"]);
    assert_eq!(hrefs("/a?lang=zh-CN&b=1")[0], "/a?b=1&lang=en");
    assert_eq!(visit.layout("/a?lang=en&theme=dark", None).themes()[1].href, "/a?lang=en&theme=light");
}

#[test]
fn a_theme_is_kept_in_a_cookie_and_loads_only_its_colours() {
    let ask = |uri: &str, cookie: &str| {
        let request = TestRequest::get().uri(uri).insert_header(("cookie", cookie.to_owned()));
        PageRequest::of(&request.to_http_request(), edge())
    };
    let chosen = ask("/login?theme=dark", "gh_theme=light");
    assert!(cookies_of(&chosen).iter().any(|cookie| cookie.starts_with("gh_theme=dark; ")));
    let html =
        |visit: &PageRequest| ErrorPage::new(visit.layout("/", None), ErrorKind::NotFound).render().unwrap();
    let dark = |html: &str| html.contains(assets::DARK.url.as_str());
    let (system, light) = (html(&ask("/", "gh_theme=pink")), html(&ask("/?theme=pink", "gh_theme=light")));
    assert!(dark(&html(&chosen)) && html(&chosen).contains("content=\"dark\""));
    assert!(dark(&system) && system.contains("content=\"light dark\""));
    assert!(!dark(&light) && light.contains("content=\"light\""));
}

#[test]
fn a_browser_is_named_once_and_its_form_is_then_admitted() {
    let edge = edge();
    let first = PageRequest::of(&TestRequest::get().uri("/login").to_http_request(), edge.clone());
    let cookies = cookies_of(&first);
    assert!(cookies[0].starts_with("gh_browser=") && cookies[0].contains("HttpOnly"), "{cookies:?}");
    let token = first.layout("/login", None).csrf_token;
    assert!(!first.admits_form(&token), "a browser that sent no cookie has no form of ours");

    let cookie = ("cookie", format!("gh_browser={}", first.browser.encode()));
    let second =
        PageRequest::of(&TestRequest::post().uri("/login").insert_header(cookie).to_http_request(), edge);
    assert!(second.admits_form(&token));
    assert!(!second.admits_form("x"));
    assert!(cookies_of(&second).is_empty());
}

#[test]
fn a_flash_is_said_once() {
    let edge = edge();
    let visit = PageRequest::of(&TestRequest::post().to_http_request(), edge.clone());
    let gone = visit.see_other("/login", Some(Flash::SignedOut));
    assert_eq!(
        (gone.status().as_u16(), gone.headers().get("location").unwrap().as_bytes()),
        (303, &b"/login"[..])
    );
    let cookie = gone.cookies().next().unwrap();
    let sent = ("cookie", format!("gh_flash={}", cookie.value()));
    let next = PageRequest::of(&TestRequest::get().insert_header(sent).to_http_request(), edge);
    assert_eq!(next.flash, Some(Flash::SignedOut));
    assert!(cookies_of(&next)[0].starts_with("gh_flash=; ") && cookies_of(&next)[0].contains("Max-Age=0"));
}

#[test]
fn a_cookie_of_another_app_does_not_hide_ours() {
    let sent = ("cookie", "garbage; a=%ff; gh_session=tok");
    let visit = PageRequest::of(&TestRequest::get().insert_header(sent).to_http_request(), edge());
    assert_eq!(visit.session_token(), Some("tok"));
}

#[test]
fn a_word_for_the_next_page_survives_an_error_on_the_way() {
    let edge = edge();
    let sent = ("cookie", format!("gh_flash={}", edge.flashes.sign(Flash::SignedOut, "")));
    let request = TestRequest::get().uri("/nothing.png").insert_header(sent).app_data(edge).to_http_request();
    let answer = crate::web::http::error_page::error_response(&request, ErrorKind::NotFound);
    assert!(!answer.cookies().any(|cookie| cookie.name() == "gh_flash"));
}

#[test]
fn a_call_from_a_foreign_page_is_refused_before_anything_else() {
    let edge = edge();
    let call = |origin| TestRequest::post().insert_header(("origin", origin)).to_http_request();
    assert_eq!(edge.caller(&call("https://evil.example")), Err(Problem::Csrf));
    assert!(edge.caller(&call("http://127.0.0.1:8080")).is_ok());
}
