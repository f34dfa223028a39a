//! The target after signing in: a path on this origin, or an address at an application.

use actix_web::HttpResponse;
use url::{Url, form_urlencoded};

use crate::gate::ReturnUrl;
use crate::web::http::headers;

/// A request of a client may have a state of 2 KiB.
const LONGEST: usize = 4_096;

/// A target that is safe to put into `Location` unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    path: String,
    app: Option<AppTarget>,
}

/// An address at an application, and what the sign-in was told of the browser's state there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppTarget {
    pub to: ReturnUrl,
    pub state: String,
    /// The application's name in the configuration.
    pub name: String,
}

impl Next {
    /// Parses a path; None for one that might leave this origin, however a browser or a proxy reads it. Also None for
    /// pages that would only lead back here.
    pub fn parse(text: &str) -> Option<Self> {
        let path = text.split(['?', '#']).next().unwrap_or_default();
        // Browsers drop tabs and newlines and read `\` as `/`. Proxies may decode or collapse paths. Plain
        // ASCII without these has only one reading.
        let plain =
            text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        let lower = path.to_ascii_lowercase();
        let hides = ["//", "%2f", "%5c", "%2e", "%25", "%0", "%1", "/./", "/../"]
            .iter()
            .any(|trick| lower.contains(trick));
        (text.starts_with('/') && plain && !hides && !comes_back(path) && stays(text))
            .then(|| Self { path: text.to_owned(), app: None })
    }

    /// To an application, by way of `/login`, which lets the browser in there.
    pub fn to_app(app: AppTarget) -> Self {
        let next = Self { path: String::new(), app: Some(app) };
        Self { path: next.by_way_of("/login"), ..next }
    }

    pub const fn app(&self) -> Option<&AppTarget> {
        self.app.as_ref()
    }

    /// The hidden fields with which a form keeps it.
    pub fn fields(&self) -> Vec<(&'static str, &str)> {
        match &self.app {
            Some(AppTarget { to, state, .. }) => vec![("rd", to.as_str()), ("state", state)],
            None => vec![("next", &self.path)],
        }
    }

    /// Lets the forms of a page end at the application: browsers hold each redirect of a form to `form-action`.
    pub fn open_forms(&self, response: &mut HttpResponse) {
        if let Some(app) = &self.app {
            headers::let_forms_end_at(&app.to.origin(), response.headers_mut());
        }
    }

    pub fn home() -> Self {
        Self { path: "/account".into(), app: None }
    }

    /// One of our pages that then leads to this target: `/login?next=/admin/messages`.
    pub fn by_way_of(&self, page: &str) -> String {
        let encoded = |text: &str| {
            let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
            // A query may contain a plain slash (RFC 3986, 3.4), which is easier to read.
            query.replace("%2F", "/")
        };
        let pairs = self.fields().into_iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let mark = if page.contains('?') { '&' } else { '?' };
        format!("{page}{mark}{}", pairs.collect::<Vec<_>>().join("&"))
    }

    pub fn after(page: &str, next: Option<&Self>) -> String {
        next.map_or_else(|| page.to_owned(), |next| next.by_way_of(page))
    }

    pub fn as_str(&self) -> &str {
        &self.path
    }
}

fn comes_back(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    ["login", "logout", "register", "password", "api", "captcha"].contains(&first)
}

/// Checks again with a URL parser that follows browsers.
fn stays(text: &str) -> bool {
    let here = Url::parse("https://gatehouse.invalid/").expect("a constant that parses");
    here.join(text).is_ok_and(|there| there.origin() == here.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_on_this_origin_is_kept_as_it_stands() {
        for path in ["/", "/account", "/a/b?c=d&e=https://x.example//y#f", "/%E4%B8%AD"] {
            assert_eq!(Next::parse(path).as_ref().map(Next::as_str), Some(path));
        }
    }

    #[test]
    fn nothing_leads_off_this_origin() {
        for trick in [
            "",
            "account",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "https:evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "/\t/evil.example",
            "/\n/evil.example",
            "\t//evil.example",
            " //evil.example",
            "/ /evil.example",
            "/%2fevil.example",
            "/%2F%2Fevil.example",
            "/%5cevil.example",
            "/%09/evil.example",
            "/%0d%0aSet-Cookie:x",
            "/.//evil.example",
            "/..//evil.example",
            "/%2e%2e//evil.example",
            "/%252fevil.example",
            "/a\r\nX: y",
            "/中",
            "/\u{202e}x",
            "/\0",
            "@evil.example",
            "/a//evil.example",
        ] {
            assert_eq!(Next::parse(trick), None, "{trick:?}");
        }
    }

    #[test]
    fn signing_in_never_leads_back_to_signing_in() {
        for path in ["/login", "/login?next=/login", "/logout", "/register", "/api/v1/logout"] {
            assert_eq!(Next::parse(path), None, "{path}");
        }
    }

    #[test]
    fn an_endless_path_is_dropped() {
        assert_eq!(Next::parse(&format!("/{}", "a".repeat(LONGEST))), None);
    }
}
