//! One request to a page: the client, the language, the browser, the layout, the message for the next page, and the answer.

use std::borrow::Cow;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::cookie::Cookie;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
    USER_AGENT,
};
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, web};
use askama::Template;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rust_i18n::t;
use strum::{EnumString, IntoStaticStr, VariantArray};
use url::{Url, form_urlencoded};

use crate::accounts::{
    Account, DeviceCookies, DeviceId, HalfToken, KnownDevices, SessionToken, SignInClient,
};
use crate::clock::{Clock, Micros};
use crate::config::{Brand, InForceConfig, LiveSettings, ResetByMail};
use crate::entropy::Entropy;
use crate::request_id::RequestIds;
use crate::secret::{MasterKey, SigningKeys, SubKey};
use crate::web::http::client::{ClientAddress, TrustedProxies, is_here};
use crate::web::http::cookies::{self, Cookies};
use crate::web::http::csrf::{Browser, Csrf};
use crate::web::http::locale::{Locale, Wait};
use crate::web::http::message::{Field, FieldErrors};
use crate::web::http::next::Next;
use crate::web::http::problem::Problem;
use crate::web::http::services::{Services, ServicesData};
use crate::web::http::theme::Theme;

/// What every page needs to know about this installation. One for each app, in its `web::Data`.
#[derive(Clone)]
pub struct WebContext {
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
    pub sends_mail: bool,
    /// Browsers have passkeys at this address.
    pub passkeys: bool,
    /// Where the gateway for development, which sends nothing, shows its codes: on this machine, at this address.
    pub outbox: Option<SocketAddr>,
    /// Set while administrators should look at the overview.
    pub alarm: Arc<AtomicBool>,
}

impl WebContext {
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
            sends_mail: true,
            passkeys: false,
            outbox: None,
            alarm: Arc::default(),
            clock,
            entropy,
        }
    }

    pub fn of(request: &HttpRequest) -> Result<&web::Data<Self>, Problem> {
        request.app_data::<web::Data<Self>>().ok_or(Problem::Internal)
    }

    /// The client of an API call that changes something. Refuses calls from other sites.
    pub fn caller(&self, request: &HttpRequest) -> Result<ClientAddress, Problem> {
        if self.csrf.admits_call(request.headers()) {
            return Ok(ClientAddress::of(request, &self.trusted));
        }
        Err(Problem::Csrf)
    }

    pub fn browser(&self, headers: &HeaderMap) -> Option<Browser> {
        cookies::value(headers, self.cookies.browser_name).and_then(Browser::parse)
    }

    pub fn session_token<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        cookies::value(headers, self.cookies.session_name)
    }

    /// What identifies this browser to accounts that have signed in from it.
    pub fn known_devices(&self, headers: &HeaderMap) -> KnownDevices {
        let sent = cookies::only_value(headers, self.cookies.device_name);
        sent.map(|cookie| self.devices.recognise(cookie)).unwrap_or_default()
    }
}

/// Returns the data of the app that answers the request.
pub fn app_data(request: &HttpRequest) -> Result<(&ServicesData, &web::Data<WebContext>), Problem> {
    let services = request.app_data::<ServicesData>().ok_or(Problem::Internal)?;
    Ok((services, WebContext::of(request)?))
}

/// The configuration that a request is judged by. Whoever asks first takes it, for all that the request passes until its body
/// is there: who keeps a body back is judged by what is in force then.
pub fn in_force(request: &HttpRequest, services: &Services) -> Arc<InForceConfig> {
    if let Some(taken) = request.extensions().get::<Arc<InForceConfig>>() {
        return Arc::clone(taken);
    }
    let taken = services.live.in_force();
    request.extensions_mut().insert(Arc::clone(&taken));
    taken
}

/// Has the configuration taken anew.
pub fn judge_anew(request: &HttpRequest) {
    request.extensions_mut().remove::<Arc<InForceConfig>>();
}

/// A request and who sends it, as pages and calls of the API read it alike. Also a handler's argument.
#[derive(Clone)]
pub struct Requester {
    pub client: ClientAddress,
    pub edge: web::Data<WebContext>,
    request: HttpRequest,
}

impl Requester {
    pub fn of(request: &HttpRequest, edge: web::Data<WebContext>) -> Self {
        Self { client: ClientAddress::of(request, &edge.trusted), edge, request: request.clone() }
    }

    pub const fn request(&self) -> &HttpRequest {
        &self.request
    }

    pub fn now(&self) -> Micros {
        self.edge.clock.now()
    }

    /// The settings that this client is judged by: with lifted limits if `[access] allow` covers it.
    pub fn live(&self, services: &Services) -> Arc<LiveSettings> {
        self.live_for(services, self.client)
    }

    /// The settings that a client of another program is judged by.
    pub fn live_for(&self, services: &Services, client: ClientAddress) -> Arc<LiveSettings> {
        in_force(&self.request, services).for_client(client.ip(), self.now())
    }

    /// The settings that everybody else is judged by.
    pub fn settings(&self, services: &Services) -> Arc<LiveSettings> {
        Arc::clone(&in_force(&self.request, services).live)
    }

    /// Whether its network is refused, so that only known devices get in.
    pub fn is_denied(&self, live: &LiveSettings) -> bool {
        live.access.is_denied(self.client, self.now())
    }

    pub fn session_token(&self) -> Option<&str> {
        self.edge.session_token(self.request.headers())
    }

    /// What identifies this browser to accounts that have signed in from it.
    pub fn known_devices(&self) -> KnownDevices {
        self.edge.known_devices(self.request.headers())
    }

    /// What the account's owner sees of this client, and what identifies its browser to the account.
    pub fn sign_in_client(&self) -> SignInClient {
        let agent = self.request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok());
        SignInClient::new(self.client.counted_ip(), agent.unwrap_or_default()).known_as(self.known_devices())
    }

    /// Call this only after somebody has proved that the account is theirs: the account then knows the browser.
    pub fn remember_device(&self, response: &mut HttpResponse, account: &Account) -> DeviceId {
        let (device, cookie) = self.edge.devices.renew(&self.known_devices(), account);
        set(response, self.edge.cookies.device(cookie));
        device
    }

    /// The token of a sign-in that lacks its second step.
    pub fn half_token(&self) -> Option<HalfToken> {
        let name = self.edge.cookies.half_name;
        cookies::only_value(self.request.headers(), name).and_then(HalfToken::parse)
    }

    pub fn begin_half(&self, response: &mut HttpResponse, token: &HalfToken, lasts: Duration) {
        set(response, self.edge.cookies.half(&token.expose(), lasts));
    }

    pub fn begin_session(&self, response: &mut HttpResponse, token: &SessionToken, lasts: Duration) {
        set(response, self.edge.cookies.session(&token.expose(), lasts));
    }
}

/// A handler's argument. Its answers set the necessary cookies.
#[derive(Clone)]
pub struct PageRequest {
    sender: Requester,
    pub locale: Locale,
    theme: Theme,
    /// The id that the browser sent, or a new one that this answer sets.
    pub browser: Browser,
    pub flash: Option<Flash>,
    /// What the message is about, by the name that its owner gave it; often nothing.
    flash_about: String,
    is_new: bool,
    had_flash: bool,
    chose_language: bool,
    chose_theme: bool,
}

impl Deref for PageRequest {
    type Target = Requester;

    fn deref(&self) -> &Requester {
        &self.sender
    }
}

impl PageRequest {
    pub fn of(request: &HttpRequest, edge: web::Data<WebContext>) -> Self {
        let headers = request.headers();
        let sent = edge.browser(headers);
        let cookie = cookies::value(headers, edge.cookies.flash_name);
        let flash = cookie.and_then(|signed| edge.flashes.read(signed));
        let in_query = |name| {
            let mut pairs = form_urlencoded::parse(request.query_string().as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, code)| code)
        };
        let chosen = in_query("lang").and_then(|code| Locale::named(&code));
        // A client of OpenID Connect may ask for a language, which its user overrides.
        let chosen = chosen.or_else(|| in_query("ui_locales").and_then(|tags| Locale::asked(&tags)));
        let theme: Option<Theme> = in_query("theme").and_then(|code| code.parse().ok());
        let kept = || cookies::value(headers, cookies::THEME_NAME).and_then(|code| code.parse().ok());
        Self {
            locale: chosen.unwrap_or_else(|| language(headers)),
            theme: theme.or_else(kept).unwrap_or_default(),
            browser: sent.unwrap_or_else(|| Browser::random(&edge.entropy)),
            flash: flash.as_ref().map(|(flash, _)| *flash),
            flash_about: flash.map(|(_, about)| about).unwrap_or_default(),
            is_new: sent.is_none(),
            had_flash: cookie.is_some(),
            chose_language: chosen.is_some(),
            chose_theme: theme.is_some(),
            sender: Requester::of(request, edge),
        }
    }

    /// Whether a submitted form is ours. If not, its action must not run.
    pub fn admits_form(&self, csrf_token: &str) -> bool {
        let sent = (!self.is_new).then_some(&self.browser);
        let provenance = self.edge.csrf.provenance(self.request().headers());
        self.edge.csrf.admits_form(provenance, sent, csrf_token)
    }

    pub fn here(&self) -> &str {
        self.request().uri().path_and_query().map_or("", |here| here.as_str())
    }

    pub fn pattern(&self) -> String {
        self.request().match_pattern().unwrap_or_default()
    }

    /// Keeps the message for the next page, if this answer is not the page that it was meant for.
    pub const fn keep_flash(mut self) -> Self {
        (self.flash, self.had_flash) = (None, false);
        self
    }

    pub fn cookies(&self) -> Cookies {
        self.edge.cookies
    }

    /// The page's layout. `here` is its path and query, for the links to other languages and themes.
    pub fn layout(&self, here: impl Into<String>, user: Option<&str>) -> Layout {
        let services = self.request().app_data::<ServicesData>();
        let live = services.map(|services| self.settings(services));
        Layout {
            locale: self.locale,
            theme: self.theme,
            brand: live.as_ref().map(|live| Arc::clone(&live.brand)).unwrap_or_default(),
            registers: live.as_ref().is_none_or(|live| live.registration.mode.is_open()),
            takes_new_numbers: live.as_ref().is_none_or(|live| live.registration.takes_new_numbers()),
            csrf_token: self.edge.csrf.token(&self.browser, &self.edge.entropy),
            here: here.into(),
            user: user.map(str::to_owned),
            flash: self.flash.filter(|flash| user.is_none() || !flash.is_for_the_signed_out()),
            flash_about: self.flash_about.clone(),
            sends_codes: self.edge.sends_codes,
            sends_mail: self.edge.sends_mail,
            resets_by_mail: match live {
                Some(live) if self.edge.sends_mail => live.mail.reset,
                _ => ResetByMail::No,
            },
            passkeys: self.edge.passkeys,
            outbox: self.outbox(),
            alarm: self.edge.alarm.load(Ordering::Relaxed),
            mistaken: false,
        }
    }

    fn outbox(&self) -> Option<String> {
        let bind = self.edge.outbox?;
        Some(match is_here(self.request()) {
            true => "/dev/outbox".to_owned(),
            false => format!("http://{bind}/dev/outbox"),
        })
    }

    pub fn page(&self, status: StatusCode, page: &impl Template) -> HttpResponse {
        let mut response = self.bare_page(status, page);
        let jar = self.edge.cookies;
        if self.had_flash {
            set(&mut response, jar.end_flash());
        }
        if self.chose_language {
            set(&mut response, jar.language(self.locale));
        }
        if self.chose_theme {
            set(&mut response, jar.theme(self.theme));
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
        self.see_other_about(path, flash, "")
    }

    /// Redirects with a message, and the name of what the message is about.
    pub fn see_other_about(&self, path: &str, flash: Option<Flash>, about: &str) -> HttpResponse {
        let mut response = HttpResponse::SeeOther().insert_header((LOCATION, path)).finish();
        if let Some(flash) = flash {
            set(&mut response, self.edge.cookies.flash(self.edge.flashes.sign(flash, about)));
        }
        if self.chose_language {
            set(&mut response, self.edge.cookies.language(self.locale));
        }
        response
    }

    /// To the sign-in, and from there to `page`: of a reader who has no session, or no longer one. Says so, and
    /// that what was sent is not saved.
    pub fn sign_in_first(&self, page: &str) -> HttpResponse {
        let flash = match (self.request().method().is_safe(), self.session_token()) {
            (false, _) => Some(Flash::NotSaved),
            (true, Some(_)) => Some(Flash::SessionEnded),
            (true, None) => None,
        };
        self.see_other(&Next::after("/login", Next::parse(page).as_ref()), flash)
    }

    /// To the page on which a second factor is set up: nothing else opens before.
    pub fn set_factor_up_first(&self) -> HttpResponse {
        self.see_other("/account/factors", None)
    }

    /// To the account page: a one-time password must be changed before `page` is shown.
    pub fn change_password_first(&self, page: &str) -> HttpResponse {
        let next = Next::parse(page).filter(|next| next.as_str() != ACCOUNT);
        self.see_other(&Next::after(ACCOUNT, next.as_ref()), None)
    }
}

/// The page of the account, where its password is changed.
const ACCOUNT: &str = "/account";

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

pub fn set_all<const N: usize>(response: &mut HttpResponse, cookies: [Cookie<'static>; N]) {
    cookies.into_iter().for_each(|cookie| set(response, cookie));
}

/// The language that the reader chose, or the one that the browser prefers.
pub fn language(headers: &HeaderMap) -> Locale {
    let kept = cookies::value(headers, cookies::LANGUAGE_NAME).and_then(Locale::named);
    let accepted =
        || headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).and_then(Locale::accepted);
    kept.or_else(accepted).unwrap_or_default()
}

impl FromRequest for Requester {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(WebContext::of(request).map(|edge| Self::of(request, edge.clone())))
    }
}

impl FromRequest for PageRequest {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(WebContext::of(request).map(|edge| Self::of(request, edge.clone())))
    }
}

#[derive(Debug, Clone)]
pub struct Layout {
    pub locale: Locale,
    pub theme: Theme,
    pub brand: Arc<Brand>,
    /// Strangers may register.
    pub registers: bool,
    /// A sign-in with a new number makes an account.
    pub takes_new_numbers: bool,
    pub csrf_token: String,
    pub here: String,
    pub user: Option<String>,
    pub flash: Option<Flash>,
    pub flash_about: String,
    pub sends_codes: bool,
    pub sends_mail: bool,
    /// At which accounts a code by mail sets a new password.
    pub resets_by_mail: ResetByMail,
    pub passkeys: bool,
    pub outbox: Option<String>,
    pub alarm: bool,
    /// The page says what was wrong with what was sent: its title says so first.
    pub mistaken: bool,
}

/// This page in another language or theme.
pub struct ChoiceLink {
    pub code: &'static str,
    pub name: Cow<'static, str>,
    pub href: String,
    pub current: bool,
}

impl Layout {
    pub fn t(&self, key: &'static str) -> Cow<'static, str> {
        self.locale.t(key)
    }

    /// Whether there are accounts whose password a code by mail sets.
    pub fn mail_resets(&self) -> bool {
        self.resets_by_mail != ResetByMail::No
    }

    /// The same, by any code.
    pub fn code_resets(&self) -> bool {
        self.sends_codes || self.mail_resets()
    }

    pub fn lang(&self) -> &'static str {
        self.locale.code()
    }

    /// `t` with one placeholder, named `it`.
    pub fn with(&self, key: &'static str, it: &str) -> Cow<'static, str> {
        t!(key, locale = self.locale.code(), it = it)
    }

    pub fn languages(&self) -> Vec<ChoiceLink> {
        let link = |locale: Locale| ChoiceLink {
            code: locale.code(),
            name: Cow::Borrowed(locale.own_name()),
            href: self.here_with("lang", locale.code()),
            current: locale == self.locale,
        };
        Locale::ALL.into_iter().map(link).collect()
    }

    pub fn themes(&self) -> Vec<ChoiceLink> {
        let link = |theme: &Theme| ChoiceLink {
            code: theme.code(),
            name: self.t(theme.into_str()),
            href: self.here_with("theme", theme.code()),
            current: *theme == self.theme,
        };
        Theme::VARIANTS.iter().map(link).collect()
    }

    fn here_with(&self, name: &str, code: &str) -> String {
        let (path, query) = self.here.split_once('?').unwrap_or((&self.here, ""));
        // The first of a name counts: an earlier choice goes.
        let others = query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(name));
        let kept: String = others.map(|pair| format!("{pair}&")).collect();
        format!("{path}?{kept}{name}={code}")
    }

    pub fn error(&self, errors: &FieldErrors, field: Field) -> Option<Cow<'static, str>> {
        errors.of(field).map(|message| message.text(self.locale))
    }

    /// Every message with the id of its field, for the summary.
    pub fn summary(&self, errors: &FieldErrors) -> Vec<(&'static str, Cow<'static, str>)> {
        errors.iter().map(|(field, message)| (field.name(), message.text(self.locale))).collect()
    }
}

/// Messages, by the keys of their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(prefix = "flash.", serialize_all = "kebab-case", const_into_str)]
pub enum Flash {
    SignedOut,
    SessionEnded,
    /// Nothing has changed, and what was sent with it was dropped.
    NotSaved,
    /// The text that events were searched for is not known any more.
    SearchEnded,
    Registered,
    /// The account was entered by an invitation.
    Invited,
    PasswordChanged,
    SessionRevoked,
    OthersRevoked,
    PasswordReset,
    /// Too much time went by since the first step of a sign-in.
    SecondStepLapsed,
    /// What was sent takes the second factor, too, and was dropped.
    ConfirmFirst,
    TotpRemoved,
    PasskeyAdded,
    PasskeyRemoved,
    SecondStepOn,
    AppAsksFactor,
    AppAsksPasskey,
    AppRevoked,
    SecondStepOff,
    BrowserDistrusted,
    PhoneSet,
    PhoneRemoved,
    EmailSet,
    /// It sets no password at this account.
    EmailSetForNotices,
    EmailRemoved,
    Frozen,
    BrakeLifted,
    TokenRevoked,
    /// What the same form has just made, and was shown once.
    AlreadyMade,
    /// What was saved was in force already.
    NothingChanged,
    LimitsSaved,
    LimitsRestored,
    CountCleared,
    PasswordEnabled,
    MailAllowed,
    NothingRefused,
    NothingEnabled,
    AccessSaved,
    AccessEnded,
    AppsSaved,
    FactorsSaved,
    AccountDisabled,
    AccountEnabled,
    AccountSignedOut,
    AccountMustChange,
    AccountFactorsCleared,
    AccountMadeAdmin,
    AccountUnmadeAdmin,
    AccountGroupsSet,
    AccountProfileSet,
    AccountDeleted,
    AccountsDisabled,
    AccountsAdded,
    ClientSecretDropped,
    AccountUnlocked,
    NothingLocked,
    InvitationRevoked,
    RegistrationSaved,
}

impl Flash {
    pub fn code(self) -> &'static str {
        self.into_str().split_once('.').map_or("", |(_, name)| name)
    }

    pub const fn tone(self) -> &'static str {
        if self.is_for_the_signed_out()
            || matches!(
                self,
                Self::AlreadyMade
                    | Self::SearchEnded
                    | Self::AppAsksFactor
                    | Self::AppAsksPasskey
                    | Self::ConfirmFirst
            )
        {
            "warn"
        } else {
            "good"
        }
    }

    /// A live section was saved, so that what it was before can be restored.
    pub const fn can_be_undone(self) -> bool {
        matches!(
            self,
            Self::LimitsSaved
                | Self::AccessSaved
                | Self::AppsSaved
                | Self::FactorsSaved
                | Self::RegistrationSaved
        )
    }

    /// Not true any more once somebody is signed in.
    pub const fn is_for_the_signed_out(self) -> bool {
        matches!(self, Self::SessionEnded | Self::NotSaved)
    }
}

/// Signs and verifies flash cookies; the keys are `web.flash`.
#[derive(Clone)]
pub struct Flashes(SigningKeys);

impl Flashes {
    pub const fn new(keys: SigningKeys) -> Self {
        Self(keys)
    }

    pub fn sign(&self, flash: Flash, about: &str) -> String {
        let [told, about] = [&mac(self.0.signing(), flash, about)[..], about.as_bytes()]
            .map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        format!("{}.{told}.{about}", flash.code())
    }

    /// The message, and what it is about.
    pub fn read(&self, cookie: &str) -> Option<(Flash, String)> {
        let mut parts = cookie.splitn(3, '.');
        let flash: Flash = parts.next()?.parse().ok()?;
        let mut bytes = || URL_SAFE_NO_PAD.decode(parts.next()?).ok();
        let (told, about) = (bytes()?, String::from_utf8(bytes()?).ok()?);
        self.0.signer(&told, |key| mac(key, flash, &about))?;
        Some((flash, about))
    }
}

fn mac(key: &SubKey, flash: Flash, about: &str) -> [u8; 16] {
    *key.hash(&[flash.code().as_bytes(), about.as_bytes()]).first_chunk().expect("a hash of 32 bytes")
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod request_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::MasterKey;

    fn flashes(byte: u8) -> Flashes {
        Flashes::new(MasterKey::from_bytes([byte; 32]).derive_signing("web.flash"))
    }

    #[test]
    fn what_was_signed_is_read_back() {
        for flash in Flash::VARIANTS.iter().copied() {
            let about = "+861380013, 「猫」".to_owned();
            assert_eq!(flashes(1).read(&flashes(1).sign(flash, &about)), Some((flash, about)));
        }
    }

    #[test]
    fn nobody_else_can_put_words_on_a_page() {
        let signed = flashes(1).sign(Flash::SignedOut, "");
        assert_eq!(flashes(2).read(&signed), None);
        assert_eq!(flashes(1).read(&signed.replace("signed-out", "password-changed")), None);
        assert_eq!(flashes(1).read(&format!("{signed}Zm9ydW0")), None);
        assert_eq!(flashes(1).read("signed-out."), None);
        assert_eq!(flashes(1).read("<b>hello</b>"), None);
    }
}
