use actix_web::test::TestRequest;

use super::*;

fn trusted() -> TrustedProxies {
    TrustedProxies::new(["10.0.0.0/8".parse().unwrap()])
}

fn from_proxy(headers: &[(&'static str, &'static str)]) -> TestRequest {
    let request = TestRequest::get().peer_addr("10.0.0.1:1".parse().unwrap());
    headers.iter().fold(request, |request, header| request.append_header(*header))
}

const FORWARDED: [(&str, &str); 4] = [
    ("x-forwarded-method", "POST"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "wiki.example"),
    ("x-forwarded-uri", "/a?b=c"),
];

#[test]
fn a_request_is_what_the_proxy_says() {
    let asked = ProxiedRequest::forward_auth(&from_proxy(&FORWARDED).to_http_request(), &trusted()).unwrap();
    let at = AskedHost { scheme: Scheme::Https, host: "wiki.example".to_owned() };
    assert_eq!((asked.at, asked.method.as_str(), asked.target.as_str()), (at.clone(), "POST", "/a?b=c"));

    let original = [("x-original-url", "https://wiki.example/a?b=https://x/"), ("x-original-method", "GET")];
    let asked = ProxiedRequest::auth_request(&from_proxy(&original).to_http_request(), &trusted()).unwrap();
    assert_eq!((asked.at, asked.target.as_str()), (at.clone(), "/a?b=https://x/"));

    let envoy = from_proxy(&[("host", "wiki.example"), ("x-forwarded-proto", "https")]);
    let envoy = envoy.uri("/api/authz/ext-authz/a?b=c").to_http_request();
    let asked = ProxiedRequest::ext_authz(&envoy, &trusted()).unwrap();
    assert_eq!((asked.at, asked.method.as_str(), asked.target.as_str()), (at, "GET", "/a?b=c"));
}

#[test]
fn the_port_of_the_scheme_is_none() {
    let host = |proto: &'static str, host: &'static str| {
        let headers = from_proxy(&[("x-forwarded-proto", proto), ("x-forwarded-host", host)]);
        AskedHost::of(&headers.to_http_request(), &trusted()).unwrap().host
    };
    assert_eq!(host("https", "wiki.example:443"), "wiki.example");
    assert_eq!(host("http", "wiki.example:80"), "wiki.example");
    assert_eq!(host("https", "[2001:db8::443]:443"), "[2001:db8::443]");
    for (proto, other) in
        [("https", "wiki.example:80"), ("http", "wiki.example:443"), ("https", "wiki.example:4443")]
    {
        assert_eq!(host(proto, other), other);
    }
    let original = [("x-original-url", "https://wiki.example:443/a"), ("x-original-method", "GET")];
    let asked = ProxiedRequest::auth_request(&from_proxy(&original).to_http_request(), &trusted()).unwrap();
    assert_eq!(asked.at.host, "wiki.example");
}

#[test]
fn what_is_missing_or_there_twice_is_not_made_up() {
    for left_out in 0..FORWARDED.len() {
        let mut headers = FORWARDED.to_vec();
        let (name, value) = headers.remove(left_out);
        let asked = |headers: &[_]| {
            ProxiedRequest::forward_auth(&from_proxy(headers).to_http_request(), &trusted()).unwrap_err()
        };
        assert_eq!(asked(&headers), ProxyHeaderError::NotOnce(name));
        headers.extend([(name, value), (name, value)]);
        assert_eq!(asked(&headers), ProxyHeaderError::NotOnce(name));
    }
    for (name, value) in [
        ("x-forwarded-host", "wiki.example, public.example"),
        ("x-forwarded-host", "wiki.example,"),
        ("x-forwarded-host", ""),
        ("x-forwarded-proto", "ws"),
        ("x-forwarded-proto", "HTTPS"),
        ("x-forwarded-method", ""),
        ("x-forwarded-method", "GET, POST"),
        ("x-forwarded-uri", "a"),
        ("x-forwarded-uri", "http://wiki.example/a"),
        ("x-forwarded-uri", ""),
    ] {
        let headers: Vec<_> =
            FORWARDED.iter().map(|header| if header.0 == name { (name, value) } else { *header }).collect();
        let asked = ProxiedRequest::forward_auth(&from_proxy(&headers).to_http_request(), &trusted());
        assert_eq!(asked.unwrap_err(), ProxyHeaderError::Wrong(name), "{value:?}");
    }
    for url in ["", "/a", "https://wiki.example", "https:///a", "wiki.example/a", "ftp://wiki.example/a"] {
        let headers = [("x-original-url", url), ("x-original-method", "GET")];
        let asked = ProxiedRequest::auth_request(&from_proxy(&headers).to_http_request(), &trusted());
        assert_eq!(asked.unwrap_err(), ProxyHeaderError::Wrong(ORIGINAL_URL), "{url:?}");
    }
}

#[test]
fn only_a_trusted_proxy_is_believed() {
    for peer in ["11.0.0.1:1", "[::1]:1", "[::ffff:11.0.0.1]:1"] {
        let request = from_proxy(&FORWARDED).peer_addr(peer.parse().unwrap()).to_http_request();
        assert_eq!(
            ProxiedRequest::forward_auth(&request, &trusted()).unwrap_err(),
            ProxyHeaderError::NoProxy
        );
        assert_eq!(AskedHost::of(&request, &trusted()).unwrap_err(), ProxyHeaderError::NoProxy);
    }
    let mapped = from_proxy(&FORWARDED).peer_addr("[::ffff:10.0.0.1]:1".parse().unwrap()).to_http_request();
    assert!(ProxiedRequest::forward_auth(&mapped, &trusted()).is_ok());
}

#[test]
fn a_page_is_shown_to_who_asks_for_one() {
    let shows = |headers: &[(&'static str, &'static str)]| {
        ProxiedRequest::shows_pages(from_proxy(headers).to_http_request().headers())
    };
    for page in [
        &[][..],
        &[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")],
        &[("accept", "*/*")],
        &[("accept", "text/*")],
        &[("accept", "text/html"), ("sec-fetch-mode", "navigate")],
    ] {
        assert!(shows(page), "{page:?}");
    }
    for other in [
        &[("accept", "application/json")][..],
        &[("accept", "text/event-stream")],
        &[("accept", "text/event-stream, */*")],
        &[("accept", "text/html;q=0")],
        &[("accept", "text/html"), ("x-requested-with", "XMLHttpRequest")],
        &[("accept", "*/*"), ("sec-fetch-mode", "cors")],
        &[("accept", "image/avif,*/*;q=0.8"), ("sec-fetch-mode", "no-cors")],
        &[("upgrade", "websocket")],
    ] {
        assert!(!shows(other), "{other:?}");
    }
}
