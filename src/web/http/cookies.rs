//! Every cookie that Gatehouse sets: its name and its attributes.

use std::time::Duration;

use actix_web::cookie::{Cookie, SameSite};
use actix_web::http::header::{COOKIE, HeaderMap};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::Url;

use crate::accounts::DEVICE_LIFE;
use crate::web::http::locale::Locale;
use crate::web::http::theme::Theme;

/// The cookies' attributes on this origin. On https they are Secure. Those that carry authority are `__Host-`
/// cookies, which neither a sibling site nor a plain-http page can set (RFC 6265bis §4.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookies {
    pub secure: bool,
    pub session_name: &'static str,
    pub half_name: &'static str,
    pub browser_name: &'static str,
    pub device_name: &'static str,
    pub flash_name: &'static str,
    pub lookup_name: &'static str,
    pub search_name: &'static str,
}

pub const LANGUAGE_NAME: &str = "gh_lang";
pub const THEME_NAME: &str = "gh_theme";
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Cookies {
    pub fn new(public_url: &Url) -> Self {
        let secure = public_url.scheme() == "https";
        let name = |host_bound, plain| if secure { host_bound } else { plain };
        Self {
            secure,
            session_name: name("__Host-gh_session", "gh_session"),
            half_name: name("__Host-gh_half", "gh_half"),
            browser_name: name("__Host-gh_browser", "gh_browser"),
            device_name: name("__Host-gh_device", "gh_device"),
            flash_name: name("__Host-gh_flash", "gh_flash"),
            lookup_name: name("__Host-gh_lookup", "gh_lookup"),
            search_name: name("__Host-gh_search", "gh_search"),
        }
    }

    /// The session's token. The browser keeps it no longer than the session can last.
    pub fn session(self, token: &str, longest: Duration) -> Cookie<'static> {
        self.lasting(self.session_name, token.to_owned(), longest)
    }

    /// The token of a sign-in that lacks its second step.
    pub fn half(self, token: &str, lasts: Duration) -> Cookie<'static> {
        self.lasting(self.half_name, token.to_owned(), lasts)
    }

    pub fn end_half(self) -> Cookie<'static> {
        self.removal(self.half_name)
    }

    /// With what an administrator looked up or searched for, which the next user of this browser must not see.
    pub fn end_session(self) -> [Cookie<'static>; 3] {
        [self.session_name, self.lookup_name, self.search_name].map(|name| self.removal(name))
    }

    /// Identifies the browser to accounts that have signed in from it. Signing out keeps it: it opens
    /// nothing, and serves the next sign-in.
    pub fn device(self, entries: String) -> Cookie<'static> {
        self.lasting(self.device_name, entries, DEVICE_LIFE)
    }

    /// Kept until the browser closes. It need only outlive a form that is being filled in.
    pub fn browser(self, id: String) -> Cookie<'static> {
        self.fenced(self.browser_name, id)
    }

    /// Five minutes: older news is of no use.
    pub fn flash(self, signed: String) -> Cookie<'static> {
        self.lasting(self.flash_name, signed, Duration::from_secs(300))
    }

    pub fn end_flash(self) -> Cookie<'static> {
        self.removal(self.flash_name)
    }

    /// What an administrator looks up or searches the record for, so that no URL, log or history holds it. Kept for 15
    /// minutes, about as long as one case takes.
    pub fn typed(self, name: &'static str, text: &str) -> Cookie<'static> {
        self.lasting(name, URL_SAFE_NO_PAD.encode(text), Duration::from_secs(15 * 60))
    }

    pub fn language(self, locale: Locale) -> Cookie<'static> {
        self.lasting(LANGUAGE_NAME, locale.code().to_owned(), YEAR)
    }

    pub fn theme(self, theme: Theme) -> Cookie<'static> {
        self.lasting(THEME_NAME, theme.code().to_owned(), YEAR)
    }

    fn lasting(self, name: &'static str, value: String, span: Duration) -> Cookie<'static> {
        let mut cookie = self.fenced(name, value);
        cookie.set_max_age(seconds(span));
        cookie
    }

    fn removal(self, name: &'static str) -> Cookie<'static> {
        let mut cookie = self.fenced(name, String::new());
        cookie.make_removal();
        cookie
    }

    /// Lax, not Strict: a user who follows a link from a mail to `/account` is still signed in there.
    fn fenced(self, name: &'static str, value: String) -> Cookie<'static> {
        Cookie::build(name, value)
            .path("/")
            .http_only(true)
            .secure(self.secure)
            .same_site(SameSite::Lax)
            .finish()
    }
}

/// What somebody typed, by [`Cookies::typed`].
pub fn typed(headers: &HeaderMap, name: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(value(headers, name)?).ok()?).ok()
}

/// The value of a cookie as sent, the first if there are several. Ours need no decoding.
pub fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    values(headers, name).next()
}

/// The value of a cookie that was sent exactly once. If there are several, it is unknown which one is ours.
pub fn only_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = values(headers, name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Pairs are found by their bytes, each alone: other applications of a parent domain set cookies in any encoding, and
/// none may hide ours. Only spaces and tabs surround a pair (RFC 6265, 4.2.1). If white space of Unicode were cut off as
/// well, a sibling's `\u{2000}__Host-gh_session`, which browsers let it set, would be read as ours.
fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let pairs = headers.get_all(COOKIE).flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let named = pairs.filter_map(move |pair| trimmed(pair).strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    named.filter_map(|value| std::str::from_utf8(value).ok())
}

fn trimmed(mut pair: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = pair {
        pair = rest;
    }
    pair
}

pub fn seconds(span: Duration) -> actix_web::cookie::time::Duration {
    actix_web::cookie::time::Duration::seconds(i64::try_from(span.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn on(url: &str) -> Cookies {
        Cookies::new(&Url::parse(url).unwrap())
    }

    #[test]
    fn on_https_cookies_are_host_bound_and_secure() {
        let text = on("https://id.example").session("t", Duration::from_secs(60)).to_string();
        assert_eq!(text, "__Host-gh_session=t; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=60");
    }

    #[test]
    fn on_plain_http_cookies_still_work() {
        let text = on("http://127.0.0.1:8080").session("t", Duration::from_secs(60)).to_string();
        assert_eq!(text, "gh_session=t; HttpOnly; SameSite=Lax; Path=/; Max-Age=60");
    }

    #[test]
    fn whoever_is_looked_up_is_carried_in_a_cookie_as_it_was_typed() {
        let jar = on("https://id.example");
        let sent = jar.typed(jar.lookup_name, "+86 138; 龍").to_string();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, sent.split("; ").next().unwrap().parse().unwrap());
        assert_eq!(typed(&headers, jar.lookup_name).as_deref(), Some("+86 138; 龍"));
        headers.insert(COOKIE, "__Host-gh_lookup=*".parse().unwrap());
        assert_eq!(typed(&headers, jar.lookup_name), None);
    }

    #[test]
    fn no_other_pair_hides_ours_and_none_is_taken_for_it() {
        let read = |lines: &[&[u8]], only: bool| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE, HeaderValue::from_bytes(line).unwrap());
            }
            let read = if only { only_value } else { value };
            read(&headers, "__Host-gh_session").map(str::to_owned)
        };
        for lines in [
            &[&b"__Host-gh_session=ours"[..]][..],
            &[b"campaign=Unders\xc3\xb8gelse; __Host-gh_session=ours"],
            &[b"campaign=Unders\xf8gelse; __Host-gh_session=ours; b=\xff"],
            &[b"\xff\xfe;=;;=x; x;\t__Host-gh_session=ours \t;"],
            &[b"a=\xf8", b"b=1; __Host-gh_session=ours", b"c=\xf8"],
            &[b"\xe2\x80\x80__Host-gh_session=evil; __Host-gh_session=ours"],
            &[b"\xc2\xa0__Host-gh_session=evil;\xa0__Host-gh_session=evil; __Host-gh_session=ours"],
            &[b"__Host-gh_session=\xff; __Host-gh_session=ours"],
            &[b"__Host-gh_session; __host-gh_session=evil; x__Host-gh_session=evil; __Host-gh_session=ours"],
        ] {
            for only in [false, true] {
                assert_eq!(read(lines, only).as_deref(), Some("ours"), "{lines:?}");
            }
        }
        assert_eq!(read(&[b"\xe2\x80\x80__Host-gh_session=evil; __Host-gh_session =evil"], false), None);
        let twice: [&[u8]; 2] = [b"__Host-gh_session=ours", b"__Host-gh_session=evil"];
        assert_eq!((read(&twice, false).as_deref(), read(&twice, true)), (Some("ours"), None));
    }

    #[test]
    fn a_removed_cookie_names_the_same_fence() {
        let text = on("https://id.example").end_session()[0].to_string();
        assert!(
            text.starts_with("__Host-gh_session=; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=0"),
            "{text}"
        );
    }
}
