//! One request to a page: the client, the language, the browser, and the answer.

mod devices;

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::cookie::Cookie;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER, USER_AGENT,
};
use actix_web::{FromRequest, HttpRequest, HttpResponse, web};
use askama::Template;
use url::{Url, form_urlencoded};

use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;
use crate::login::{DeviceCookies, SessionToken};
use crate::request_id::RequestIds;
use crate::secret::MasterKey;
use crate::web::kit::client::{ClientAddress, TrustedProxies, is_here};
use crate::web::kit::cookies::{self, Cookies};
use crate::web::kit::csrf::{Browser, Csrf, Provenance};
use crate::web::kit::flash::{Flash, Flashes};
use crate::web::kit::layout::Layout;
use crate::web::kit::locale::Locale;
use crate::web::kit::next::Next;
use crate::web::kit::problem::Problem;
use crate::web::kit::wait::Wait;

/// What every page needs to know about this installation. One for each app, in its `web::Data`.
#[derive(Clone)]
pub struct Edge {
    pub trusted: TrustedProxies,
    pub cookies: Cookies,
    pub csrf: Csrf,
    pub flashes: Flashes,
    pub devices: DeviceCookies,
    pub clock: Clock,
    pub entropy: Entropy,
    pub request_ids: RequestIds,
    /// There is a gateway. Otherwise no page offers codes, and pages that need them do not exist.
    pub sends_codes: bool,
    /// Where the gateway for development, which sends nothing, shows its codes: on this machine, at this address.
    pub outbox: Option<SocketAddr>,
    /// Set while administrators should look at the overview.
    pub alarm: Arc<AtomicBool>,
}

impl Edge {
    pub fn new(
        public_url: &Url,
        trusted: TrustedProxies,
        master: &MasterKey,
        clock: Clock,
        entropy: Entropy,
    ) -> Self {
        Self {
            trusted,
            cookies: Cookies::new(public_url),
            csrf: Csrf::new(master.derive_signing("web.csrf"), public_url),
            flashes: Flashes::new(master.derive_signing("web.flash")),
            devices: DeviceCookies::new(master.derive_signing("web.device"), clock.clone(), entropy.clone()),
            request_ids: RequestIds::new(&entropy),
            sends_codes: true,
            outbox: None,
            alarm: Arc::default(),
            clock,
            entropy,
        }
    }
}

impl Edge {
    /// The client of an API call that changes something. Refuses calls from other sites.
    pub fn caller(&self, request: &HttpRequest) -> Result<ClientAddress, Problem> {
        if self.csrf.admits_call(request.headers()) {
            return Ok(ClientAddress::of(request, &self.trusted));
        }
        Err(Problem::Csrf)
    }

    /// The browser's id from its cookie, if it has one.
    pub fn browser(&self, headers: &HeaderMap) -> Option<Browser> {
        cookies::value(headers, self.cookies.browser_name()).and_then(Browser::parse)
    }

    pub fn session_token<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        cookies::value(headers, self.cookies.session_name())
    }
}

/// A handler's argument. Its answers set the necessary cookies.
#[derive(Clone)]
pub struct Visit {
    pub client: ClientAddress,
    pub locale: Locale,
    /// The id that the browser sent, or a new one that this answer sets.
    pub browser: Browser,
    pub flash: Option<Flash>,
    edge: web::Data<Edge>,
    provenance: Provenance,
    session: Option<String>,
    device: Option<String>,
    user_agent: String,
    here: String,
    pattern: String,
    is_new: bool,
    had_flash: bool,
    /// It wants to change something: a form.
    sends: bool,
    chose_language: bool,
    outbox: Option<String>,
}

impl Visit {
    pub fn of(request: &HttpRequest, edge: web::Data<Edge>) -> Self {
        let headers = request.headers();
        let sent = edge.browser(headers);
        let flash = cookies::value(headers, edge.cookies.flash_name());
        let chosen = form_urlencoded::parse(request.query_string().as_bytes())
            .find(|(name, _)| name == "lang")
            .and_then(|(_, code)| Locale::named(&code));
        Self {
            client: ClientAddress::of(request, &edge.trusted),
            locale: chosen.unwrap_or_else(|| language(headers, edge.cookies)),
            browser: sent.unwrap_or_else(|| Browser::random(&edge.entropy)),
            flash: flash.and_then(|signed| edge.flashes.read(signed)),
            here: request.uri().path_and_query().map(|here| here.as_str()).unwrap_or_default().to_owned(),
            pattern: request.match_pattern().unwrap_or_default(),
            is_new: sent.is_none(),
            had_flash: flash.is_some(),
            sends: !request.method().is_safe(),
            chose_language: chosen.is_some(),
            outbox: edge.outbox.map(|bind| match is_here(request) {
                true => "/dev/outbox".to_owned(),
                false => format!("http://{bind}/dev/outbox"),
            }),
            provenance: edge.csrf.provenance(headers),
            session: edge.session_token(headers).map(str::to_owned),
            device: cookies::only_value(headers, edge.cookies.device_name()).map(str::to_owned),
            user_agent: text_of(headers, USER_AGENT).unwrap_or_default().to_owned(),
            edge,
        }
    }

    /// Whether a submitted form is ours. If not, its action must not run.
    pub fn admits_form(&self, csrf_token: &str) -> bool {
        let sent = (!self.is_new).then_some(&self.browser);
        self.edge.csrf.admits_form(self.provenance, sent, csrf_token)
    }

    pub fn now(&self) -> Micros {
        self.edge.clock.now()
    }

    /// The token of the session cookie, as sent.
    pub fn session_token(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The path and query, as sent.
    pub fn here(&self) -> &str {
        &self.here
    }

    /// The path's pattern in the URL table.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    pub fn user_agent(&self) -> &str {
        &self.user_agent
    }

    /// Keeps the message for the next page, if this answer is not the page that it was meant for.
    pub const fn keep_flash(mut self) -> Self {
        (self.flash, self.had_flash) = (None, false);
        self
    }

    /// The message in a flash cookie of ours.
    pub fn read_flash(&self, cookie: &str) -> Option<Flash> {
        self.edge.flashes.read(cookie)
    }

    pub fn cookies(&self) -> Cookies {
        self.edge.cookies
    }

    pub fn trusted(&self) -> &TrustedProxies {
        &self.edge.trusted
    }

    pub fn new_token(&self) -> SessionToken {
        SessionToken::random(&self.edge.entropy)
    }

    pub fn sends_codes(&self) -> bool {
        self.edge.sends_codes
    }

    /// The page's layout. `here` is its path and query, for the links to other languages.
    pub fn layout(&self, here: impl Into<String>, user: Option<&str>) -> Layout {
        Layout {
            locale: self.locale,
            csrf_token: self.edge.csrf.token(&self.browser, &self.edge.entropy),
            here: here.into(),
            user: user.map(str::to_owned),
            flash: self.flash.filter(|flash| user.is_none() || !flash.is_for_the_signed_out()),
            sends_codes: self.edge.sends_codes,
            outbox: self.outbox.clone(),
            alarm: self.edge.alarm.load(Ordering::Relaxed),
            mistaken: false,
        }
    }

    /// A page with the necessary cookies.
    pub fn page(&self, status: StatusCode, page: &impl Template) -> HttpResponse {
        let mut response = self.bare_page(status, page);
        let jar = self.edge.cookies;
        if self.had_flash {
            set(&mut response, jar.end_flash());
        }
        if self.chose_language {
            set(&mut response, jar.language(self.locale));
        }
        if self.is_new {
            set(&mut response, jar.browser(self.browser.encode()));
        }
        response
    }

    /// A page that sets no cookies: at the host of an application none of ours belong.
    pub fn bare_page(&self, status: StatusCode, page: &impl Template) -> HttpResponse {
        match page.render() {
            Ok(html) => HttpResponse::build(status)
                .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")))
                .insert_header((CONTENT_LANGUAGE, HeaderValue::from_static(self.locale.code())))
                .body(html),
            Err(error) => {
                tracing::error!(%error, "a template cannot be rendered");
                HttpResponse::InternalServerError().finish()
            }
        }
    }

    /// 303 to one of our paths, with an optional message for that page.
    pub fn see_other(&self, path: &str, flash: Option<Flash>) -> HttpResponse {
        let mut response = HttpResponse::SeeOther().insert_header((LOCATION, path)).finish();
        if let Some(flash) = flash {
            set(&mut response, self.edge.cookies.flash(self.edge.flashes.sign(flash)));
        }
        response
    }
}

impl Visit {
    /// To the sign-in, and from there to `page`: of a reader who has no session, or no longer one. Says so, and
    /// that what was sent is not saved.
    pub fn sign_in_first(&self, page: &str) -> HttpResponse {
        let flash = match (self.sends, &self.session) {
            (true, _) => Some(Flash::NotSaved),
            (false, Some(_)) => Some(Flash::SessionEnded),
            (false, None) => None,
        };
        self.clone().keep_flash().see_other(&Next::after("/login", Next::parse(page).as_ref()), flash)
    }

    /// To the account page: a one-time password must be changed before `page` is shown.
    pub fn change_password_first(&self, page: &str) -> HttpResponse {
        self.clone().keep_flash().see_other(&Next::after("/account", Next::parse(page).as_ref()), None)
    }
}

pub fn with_wait(mut response: HttpResponse, wait: Option<&Wait>) -> HttpResponse {
    if let Some(wait) = wait {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.seconds()));
    }
    response
}

pub fn set(response: &mut HttpResponse, cookie: Cookie<'static>) {
    let added = response.add_cookie(&cookie);
    debug_assert!(added.is_ok(), "our cookies are plain ASCII");
}

/// The language that the reader chose, or the one that the browser prefers.
pub fn language(headers: &HeaderMap, jar: Cookies) -> Locale {
    let kept = cookies::value(headers, jar.language_name()).and_then(Locale::named);
    let accepted =
        || headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).and_then(Locale::accepted);
    kept.or_else(accepted).unwrap_or_default()
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

impl FromRequest for Visit {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let edge = request.app_data::<web::Data<Edge>>().cloned();
        let edge =
            edge.ok_or_else(|| actix_web::error::ErrorInternalServerError("no Edge in the app's data"));
        ready(edge.map(|edge| Self::of(request, edge)))
    }
}

#[cfg(test)]
#[path = "visit_tests.rs"]
mod tests;
