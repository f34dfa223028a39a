//! Which requests may change something, by header and by token.

use actix_web::http::header::{HeaderName, HeaderValue};

use super::*;
use crate::secret::MasterKey;

fn csrf() -> Csrf {
    let key = MasterKey::from_bytes([7; 32]).derive_signing("web.csrf");
    Csrf::new(key, &Url::parse("https://id.example/").unwrap())
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
}

fn provenance(pairs: &[(&'static str, &'static str)]) -> Provenance {
    csrf().provenance(&headers(pairs))
}

#[test]
fn the_browsers_own_word_decides_before_origin() {
    assert_eq!(provenance(&[("sec-fetch-site", "same-origin"), ("origin", "null")]), Provenance::SameOrigin);
    for site in ["same-site", "cross-site", "none", "Same-Origin", ""] {
        assert_eq!(
            provenance(&[("sec-fetch-site", site), ("origin", "https://id.example")]),
            Provenance::Foreign
        );
    }
}

#[test]
fn origin_must_be_ours_to_the_letter() {
    assert_eq!(provenance(&[("origin", "https://id.example")]), Provenance::SameOrigin);
    for origin in [
        "null",
        "http://id.example",
        "https://id.example:8443",
        "https://id.example.evil.example",
        "https://evil.example",
        "",
    ] {
        assert_eq!(
            provenance(&[("origin", origin), ("referer", "https://id.example/")]),
            Provenance::Foreign,
            "{origin}"
        );
    }
}

#[test]
fn referer_stands_in_where_nothing_better_is_sent() {
    assert_eq!(provenance(&[("referer", "https://id.example/login?x=1")]), Provenance::SameOrigin);
    for referer in ["https://evil.example/https://id.example/", "https://id.example@evil.example/", "rubbish"]
    {
        assert_eq!(provenance(&[("referer", referer)]), Provenance::Foreign, "{referer}");
    }
    assert_eq!(provenance(&[]), Provenance::Untold);
}

#[test]
fn a_form_needs_its_token_even_from_our_own_pages() {
    let (csrf, entropy) = (csrf(), Entropy::seeded(1));
    let browser = Browser::random(&entropy);
    let token = csrf.token(&browser, &entropy);
    let ours = Provenance::SameOrigin;
    assert!(csrf.admits_form(ours, Some(&browser), &token));
    assert!(csrf.admits_form(Provenance::Untold, Some(&browser), &token));
    assert!(!csrf.admits_form(ours, Some(&browser), ""));
    assert!(!csrf.admits_form(ours, None, &token));
    assert!(!csrf.admits_form(Provenance::Foreign, Some(&browser), &token));
}

#[test]
fn a_token_is_good_for_its_browser_only_and_looks_new_each_time() {
    let (csrf, entropy) = (csrf(), Entropy::seeded(1));
    let (one, other) = (Browser::random(&entropy), Browser::random(&entropy));
    let (first, second) = (csrf.token(&one, &entropy), csrf.token(&one, &entropy));
    assert_ne!(first, second);
    assert!(csrf.verify(&one, &first) && csrf.verify(&one, &second));
    assert!(!csrf.verify(&other, &first));
    assert!(!csrf.verify(&one, &first[..42]));
    assert!(!csrf.verify(&one, &URL_SAFE_NO_PAD.encode([0; 32])));
}

#[test]
fn a_silent_client_may_call_with_json_or_with_nothing() {
    let csrf = csrf();
    assert!(csrf.admits_call(&headers(&[("content-type", "application/json; charset=utf-8")])));
    assert!(csrf.admits_call(&headers(&[])));
    assert!(csrf.admits_call(&headers(&[("sec-fetch-site", "same-origin")])));
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""]
    {
        assert!(!csrf.admits_call(&headers(&[("content-type", kind)])), "{kind}");
    }
    assert!(!csrf.admits_call(&headers(&[("content-length", "5")])));
    assert!(!csrf.admits_call(&headers(&[("transfer-encoding", "chunked")])));
}

#[test]
fn a_foreign_page_may_not_call_even_with_json() {
    let foreign = headers(&[("origin", "https://evil.example"), ("content-type", "application/json")]);
    assert!(!csrf().admits_call(&foreign));
}

#[test]
fn a_browser_cookie_that_is_not_ours_is_none() {
    let browser = Browser::random(&Entropy::seeded(3));
    assert_eq!(Browser::parse(&browser.encode()), Some(browser));
    for junk in ["", "x", "AAAA", &"A".repeat(400)] {
        assert_eq!(Browser::parse(junk), None);
    }
    assert_eq!(format!("{browser:?}"), "Browser(…)");
}
