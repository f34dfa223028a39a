//! `/account`: who I am here, my password, where I am signed in, and who tried lately.

use std::borrow::Cow;

use actix_web::HttpResponse;
use askama::Template;

use crate::clock::Micros;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::form::notice::Notice;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::device::Device;
use crate::web::kit::layout::Layout;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::visit::Visit;
use crate::web::kit::visit::with_wait;
use crate::web::kit::wait::Moment;

/// What came of an attempt to sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptKind {
    SignedIn,
    WrongPassword,
    /// Refused before the password was looked at.
    Refused,
}

/// Where somebody is signed in.
#[derive(Clone)]
pub struct SessionRow {
    pub id: String,
    device: Device,
    /// A network, not an address.
    address: String,
    signed_in: Moment,
    last_seen: Moment,
    current: bool,
}

impl SessionRow {
    /// `address` is as `ClientAddress::masked` gives it, kept so or made so.
    pub fn new(id: String, user_agent: &str, address: String, signed_in: Micros, last_seen: Micros) -> Self {
        let (signed_in, last_seen) = (Moment(signed_in), Moment(last_seen));
        Self { id, device: Device::parse(user_agent), address, signed_in, last_seen, current: false }
    }

    /// The one that this page was asked for with.
    pub fn current(mut self, current: bool) -> Self {
        self.current = current;
        self
    }
}

/// A sign-in, or an attempt at one.
#[derive(Clone)]
pub struct AttemptRow {
    at: Moment,
    outcome: AttemptKind,
    device: Device,
    address: String,
}

impl AttemptRow {
    pub fn new(at: Micros, outcome: AttemptKind, user_agent: &str, address: String) -> Self {
        Self { at: Moment(at), outcome, device: Device::parse(user_agent), address }
    }

    fn key(&self) -> &'static str {
        match self.outcome {
            AttemptKind::SignedIn => "account.attempt-signed-in",
            AttemptKind::WrongPassword => "account.attempt-wrong",
            AttemptKind::Refused => "account.attempt-refused",
        }
    }

    fn tone(&self) -> &'static str {
        match self.outcome {
            AttemptKind::SignedIn => "good",
            AttemptKind::WrongPassword | AttemptKind::Refused => "warn",
        }
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
    sessions: Vec<SessionRow>,
    attempts: Vec<AttemptRow>,
    here_now: String,
    must_change: bool,
    /// Since when the password opens nothing to strangers.
    disabled: Option<Moment>,
    /// Nor to this browser.
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
            sessions: Vec::new(),
            attempts: Vec::new(),
            here_now: ClientAddress::masked(visit.client),
            must_change: false,
            disabled: None,
            closed: false,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
        }
    }

    /// The ways in: the number in E.164, and whether there is a password.
    pub fn ways_in(mut self, phone: Option<&str>, has_password: bool) -> Self {
        (self.phone, self.has_password) = (phone.map(str::to_owned), has_password);
        self
    }

    /// With the links to what is theirs alone.
    pub fn admin(mut self, admin: bool) -> Self {
        self.admin = admin;
        self
    }

    pub fn sessions(mut self, rows: Vec<SessionRow>) -> Self {
        self.sessions = rows;
        self
    }

    pub fn attempts(mut self, rows: Vec<AttemptRow>) -> Self {
        self.attempts = rows;
        self
    }

    /// The password is a one-time one: nothing else works until it is changed.
    pub fn must_change(mut self, must: bool) -> Self {
        self.must_change = must;
        self
    }

    /// The password had too many wrong ones in a row; `open`: it can be shown from this browser.
    pub fn password_disabled(mut self, since: Option<Micros>, open: bool) -> Self {
        (self.disabled, self.closed) = (since.map(Moment), !open);
        self
    }

    /// What is said of the change of password.
    pub fn notice(mut self, notice: Notice) -> Self {
        self.errors = notice.errors();
        self.notice = notice;
        self
    }

    pub fn captcha(mut self, captcha: CaptchaBlock) -> Self {
        self.captcha = captcha;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        with_wait(visit.page(self.notice.status(), self), self.notice.wait())
    }

    /// Whether a code sets a new password: an administrator's account is opened by none.
    fn takes_codes(&self) -> bool {
        self.phone.is_some() && !self.admin && self.layout.sends_codes
    }

    /// A number is shown to be theirs by a code, and set with the password.
    fn offers_phone(&self) -> bool {
        self.layout.sends_codes && self.has_password && !self.closed
    }

    fn offers_removal(&self) -> bool {
        self.phone.is_some() && self.has_password && self.disabled.is_none()
    }

    /// How to come by a password that is good everywhere.
    fn way_back(&self) -> Cow<'static, str> {
        self.layout.t(match (self.closed, self.admin, self.takes_codes()) {
            (false, ..) => "account.disabled-here",
            (true, true, _) => "account.disabled-admin",
            (true, false, true) => "account.disabled-code",
            (true, false, false) => "account.disabled-ask",
        })
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
