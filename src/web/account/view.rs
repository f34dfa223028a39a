//! `/account`: where its owner can go, the profile, the password, the active sessions, and who signed in or tried to.

use std::borrow::Cow;

use actix_web::HttpResponse;
use askama::Template;

use crate::audit::{FailedAttempts, FailureSummary};
use crate::clock::Micros;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::notice::Notice;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::locale::{Device, Moment};
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::visit::{Layout, Visit, with_wait};

/// An active session.
#[derive(Clone)]
pub struct SessionRow {
    pub id: String,
    device: Device,
    /// A network, not an address.
    address: String,
    signed_in: Moment,
    last_seen: Moment,
    current: bool,
    /// Hosts of applications at which it is used.
    hosts: Vec<String>,
}

/// An application that the reader may use.
#[derive(Clone)]
pub struct AppLink {
    pub name: String,
    pub url: String,
}

impl SessionRow {
    /// `address` is already masked, as by `ClientAddress::masked`.
    pub fn new(id: String, user_agent: &str, address: String, signed_in: Micros, last_seen: Micros) -> Self {
        let (signed_in, last_seen) = (Moment(signed_in), Moment(last_seen));
        let hosts = Vec::new();
        Self { id, device: Device::parse(user_agent), address, signed_in, last_seen, current: false, hosts }
    }

    /// Where else it is used.
    pub fn hosts(mut self, hosts: Vec<String>) -> Self {
        self.hosts = hosts;
        self
    }

    /// Marks the session that requested this page.
    pub fn current(mut self, current: bool) -> Self {
        self.current = current;
        self
    }
}

/// A sign-in.
#[derive(Clone)]
pub struct SignInRow {
    at: Moment,
    device: Device,
    address: String,
}

impl SignInRow {
    pub fn new(at: Micros, user_agent: &str, address: String) -> Self {
        Self { at: Moment(at), device: Device::parse(user_agent), address }
    }
}

/// What failed, from one network.
#[derive(Clone)]
pub struct FailureRow {
    first: Moment,
    last: Moment,
    network: Option<String>,
    /// What it was and how often, as keys and counts.
    counts: Vec<(&'static str, String)>,
}

impl From<FailedAttempts> for FailureRow {
    fn from(failed: FailedAttempts) -> Self {
        let counts = [
            ("account.wrong-passwords", failed.wrong_passwords),
            ("account.wrong-codes", failed.wrong_codes),
            ("account.refused", failed.refused),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        Self {
            first: Moment(failed.first),
            last: Moment(failed.last),
            network: failed.network,
            counts: counts.map(|(key, count)| (key, count.to_string())).collect(),
        }
    }
}

impl FailureRow {
    /// Whether its end is another minute than its beginning.
    fn lasts(&self) -> bool {
        self.first.text() != self.last.text()
    }
}

#[derive(Template, Clone)]
#[template(path = "pages/account.html")]
pub struct AccountPage {
    layout: Layout,
    login: String,
    phone: Option<String>,
    has_password: bool,
    admin: bool,
    created: Moment,
    password_min: usize,
    apps: Vec<AppLink>,
    sessions: Vec<SessionRow>,
    sign_ins: Vec<SignInRow>,
    failures: Vec<FailureRow>,
    /// How many networks are not among them.
    more_failures: i64,
    here_now: String,
    must_change: bool,
    /// Where the reader goes from here, after a change of the password that must come first.
    next: Option<Next>,
    /// Since when strangers cannot use the password.
    disabled: Option<Moment>,
    /// This browser cannot use the password either.
    closed: bool,
    notice: Notice,
    errors: FieldErrors,
    captcha: CaptchaBlock,
}

impl AccountPage {
    pub fn new(visit: &Visit, login: &str, created: Micros, password_min: usize) -> Self {
        Self {
            layout: visit.layout("/account", Some(login)),
            login: login.to_owned(),
            phone: None,
            has_password: true,
            admin: false,
            created: Moment(created),
            password_min,
            apps: Vec::new(),
            sessions: Vec::new(),
            sign_ins: Vec::new(),
            failures: Vec::new(),
            more_failures: 0,
            here_now: ClientAddress::masked(visit.client),
            must_change: false,
            next: None,
            disabled: None,
            closed: false,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
        }
    }

    /// Ways to sign in: the number in E.164, and whether there is a password.
    pub fn ways_in(mut self, phone: Option<&str>, has_password: bool) -> Self {
        (self.phone, self.has_password) = (phone.map(str::to_owned), has_password);
        self
    }

    /// Shows the links for administrators.
    pub fn admin(mut self, admin: bool) -> Self {
        self.admin = admin;
        self
    }

    pub fn apps(mut self, links: Vec<AppLink>) -> Self {
        self.apps = links;
        self
    }

    pub fn sessions(mut self, rows: Vec<SessionRow>) -> Self {
        self.sessions = rows;
        self
    }

    pub fn sign_ins(mut self, rows: Vec<SignInRow>) -> Self {
        self.sign_ins = rows;
        self
    }

    pub fn failures(mut self, failures: FailureSummary) -> Self {
        self.more_failures = (failures.of - failures.networks.len() as i64).max(0);
        self.failures = failures.networks.into_iter().map(FailureRow::from).collect();
        self
    }

    /// The password is a one-time password: nothing else works until it is changed.
    pub fn must_change(mut self, must: bool) -> Self {
        self.must_change = must;
        self
    }

    pub fn next(mut self, next: Option<Next>) -> Self {
        self.next = next.filter(|_| self.must_change);
        self
    }

    /// The password is disabled after too many wrong ones in a row. `open`: this browser may still use it.
    pub fn password_disabled(mut self, since: Option<Micros>, open: bool) -> Self {
        (self.disabled, self.closed) = (since.map(Moment), !open);
        self
    }

    /// The message about the password change.
    pub fn notice(mut self, notice: Notice) -> Self {
        self.layout.mistaken = notice.is_mistake();
        self.errors = notice.errors();
        self.notice = notice;
        self
    }

    pub fn captcha(mut self, captcha: CaptchaBlock) -> Self {
        self.captcha = captcha;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let mut response = visit.page(self.notice.status(), self);
        if let Some(next) = &self.next {
            next.open_forms(&mut response);
        }
        with_wait(response, self.notice.wait())
    }

    /// Whether a code can set a new password. Codes never open an administrator's account.
    fn takes_codes(&self) -> bool {
        self.phone.is_some() && !self.admin && self.layout.sends_codes
    }

    /// Setting a number takes a code, which proves that the number is theirs, and the password.
    fn offers_phone(&self) -> bool {
        self.layout.sends_codes && self.has_password && !self.closed
    }

    fn offers_removal(&self) -> bool {
        self.phone.is_some() && self.has_password && self.disabled.is_none()
    }

    /// How to get a password that works everywhere.
    fn way_back(&self) -> Cow<'static, str> {
        self.layout.t(match (self.closed, self.admin, self.takes_codes()) {
            (false, ..) => "account.disabled-here",
            (true, true, _) => "account.disabled-admin",
            (true, false, true) => "account.disabled-code",
            (true, false, false) => "account.disabled-ask",
        })
    }

    fn more(&self) -> Option<Cow<'static, str>> {
        let more = (self.more_failures > 0).then(|| self.more_failures.to_string())?;
        Some(self.layout.with("account.failures-more", &more))
    }

    fn others(&self) -> bool {
        self.sessions.iter().any(|session| !session.current)
    }

    fn focus(&self) -> &'static str {
        match self.errors.first() {
            Some(field) => field.name(),
            None if self.must_change && !self.closed => "current_password",
            None => "",
        }
    }

    fn password_hint(&self) -> String {
        self.layout.with("register.password-hint", &self.password_min.to_string()).into_owned()
    }
}
