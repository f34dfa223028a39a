//! `/account`: where its owner can go, the profile, the password, the active sessions, and who signed in or tried to.

pub mod apps;
pub mod confirm;
pub mod data;
pub mod email;
pub mod factor_code;
pub mod factor_policy;
pub mod factors;
pub mod passkeys;
pub mod phone;
mod with_password;

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Query;
use askama::Template;
use serde::Deserialize;

use crate::accounts::{Account, AuthenticatedSession, FirstFactor, Profile, Proof, SessionId};
use crate::audit::{EventSubject, FailedAttempts, FailureSummary};
use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::gate::may_use;
use crate::login::{HashCaller, Password, PasswordChangeOutcome, resets_by_mail};
use crate::web::account::apps::ClientRow;
use crate::web::account::with_password::require_open;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::{FormPage, FormReply, GuardedFields, NextFields, NoFields, Notice, form_page};
use crate::web::http::action::parse_current;
use crate::web::http::{
    CountedAs, Device, Field, FieldErrors, Flash, Message, Moment, Next, PageRequest, Problem, SecretField,
    Services, ServicesData, WebError, WebResult,
};
use crate::web::session::{MemberForm, OwnersForm, SignedIn, welcome};

/// How far back the account page shows what failed, and from how many networks.
const FAILURES_SHOWN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const FAILED_NETWORKS: u32 = 8;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    pub current_password: SecretField,
    pub new_password: SecretField,
    /// Where a reader wanted to go who first had to change a one-time password.
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeForm {
    pub session_id: String,
}

/// Whether a code to the address that the account has confirmed, or is to have, sets its password. Codes never open an
/// administrator's account.
fn sets_password(live: &LiveSettings, account: &Account) -> bool {
    !account.roles.admin && resets_by_mail(live, account)
}

pub async fn show(
    visit: PageRequest,
    who: SignedIn,
    query: Query<NextFields>,
    services: ServicesData,
) -> WebResult {
    let next = query.target(&visit, &visit.live(&services));
    Ok(page(&visit, &services, &who.0, next).await?.respond(&visit))
}

/// `GET /.well-known/change-password` (<https://www.w3.org/TR/change-password-url/>), for password managers.
pub async fn change_here(visit: PageRequest) -> HttpResponse {
    visit.see_other("/account#password", None)
}

/// `POST /account/password`. The same limits count the current password as at sign-in.
pub async fn change_password(visit: PageRequest, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, set_password).await
}

async fn set_password(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: PasswordForm,
    services: ServicesData,
) -> WebResult {
    require_open(&visit, &services, &who, "/account").await?;
    let live = visit.live(&services);
    let page = page(&visit, &services, &who, form.to.target(&visit, &live)).await?;
    let show = |notice, captcha| page.clone().again(notice, captcha).respond(&visit);
    let challenge = CaptchaForm::PasswordChange;
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: challenge, show: &show };
    let current = reply.read(&form.guarded, |errors| parse(&form, errors)).await?;
    let verified = reply.actor(&form.guarded).verify(&who.account, current, Field::CurrentPassword).await;
    let (owner, solved) = reply.told(verified).await?;
    let caller = HashCaller::stranger(visit.client.network().as_ref(), solved);
    let new = form.new_password.expose();
    let second = services.sessions.proofs(&who.session).await?;
    let problem = match services.registration.change_password(&caller, &owner, new).await? {
        PasswordChangeOutcome::Done(account) => {
            // Every session has ended. This browser gets a new one.
            let (next, flash) = (form.to.target(&visit, &live), Some(Flash::PasswordChanged));
            let proof = Proof { first: FirstFactor::Password, second };
            let response = welcome(&visit, &services, &account, next, flash, proof).await?;
            return Ok(response.unwrap_or_else(|| visit.see_other("/login", flash)));
        }
        PasswordChangeOutcome::Stale => Problem::at(Field::CurrentPassword, Message::CurrentPasswordWrong),
        PasswordChangeOutcome::Unfit(unfit) => Problem::at(Field::NewPassword, unfit.into()),
        PasswordChangeOutcome::Denied(denied) => Problem::denied(denied, CountedAs::Password),
    };
    Err(reply.refused(problem).await)
}

fn parse(form: &PasswordForm, errors: &mut FieldErrors) -> Option<Password> {
    let current = errors.take(Field::CurrentPassword, parse_current(&form.current_password));
    if form.new_password.expose().is_empty() {
        errors.add(Field::NewPassword, Message::PasswordMissing);
    } else if form.new_password.expose() == form.current_password.expose() {
        errors.add(Field::NewPassword, Message::PasswordUnchanged);
    }
    current
}

pub async fn revoke(
    visit: PageRequest,
    MemberForm { who, form }: MemberForm<RevokeForm>,
    services: ServicesData,
) -> WebResult {
    // If the session has already ended, there is nothing to revoke.
    if let Some(id) = SessionId::parse(&form.session_id) {
        services.sessions.revoke(who.account.id, id).await?;
    }
    Ok(visit.see_other("/account", Some(Flash::SessionRevoked)))
}

pub async fn revoke_others(
    visit: PageRequest,
    MemberForm { who, .. }: MemberForm<NoFields>,
    services: ServicesData,
) -> WebResult {
    services.sessions.end_others(who.account.id, who.session.id).await?;
    Ok(visit.see_other("/account", Some(Flash::OthersRevoked)))
}

async fn page(
    visit: &PageRequest,
    services: &Services,
    who: &AuthenticatedSession,
    next: Option<Next>,
) -> Result<AccountPage, WebError> {
    let AuthenticatedSession { account, session: current } = who;
    let mut sessions = services.sessions.list(account.id).await?;
    // The current session first, then the newest first.
    sessions.sort_by_key(|session| session.id != current.id);
    let live = visit.live(services);
    let (apps, hosts) = apps(visit, services, &live, account).await?;
    let clients = services.grants.clients(account.id).await?.into_iter();
    let sessions = sessions.into_iter().map(|session| SessionRow {
        id: session.id.to_string(),
        device: Device::parse(&session.user_agent),
        address: session.network,
        signed_in: Moment(session.created_at),
        last_seen: Moment(session.last_seen),
        current: session.id == current.id,
        hosts: hosts.iter().filter(|(id, _)| *id == session.id).map(|(_, host)| host.clone()).collect(),
    });
    let sign_ins = services.accounts.last_sign_ins(account.id).await?.into_iter();
    let sign_ins = sign_ins.map(|past| SignInRow {
        at: Moment(past.at),
        device: Device::parse(&past.user_agent),
        address: past.network,
    });
    let failures = failures(visit, services, account).await?;
    let open = services.sign_in.is_open_to(&live, account, &visit.known_devices()).await?;
    let email = services.emails.of(account.id).await?;
    let refuses_mail = match &email {
        Some(mailbox) => services.codes.mail_refused_until(mailbox).await?.map(Moment),
        None => None,
    };
    let resets_by_mail = email.is_some() && refuses_mail.is_none() && sets_password(&live, account);
    let login = account.login.as_str();
    // After a change of the password that must come first, the reader goes on from here.
    let next = next.filter(|_| account.must_change_password);
    let form = FormPage { next, ..FormPage::new(visit, "/account", Some(login), None) };
    Ok(AccountPage {
        form,
        login: login.to_owned(),
        profile: services.profiles.of(account.id).await?,
        phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
        email: email.map(|mailbox| mailbox.as_str().to_owned()),
        refuses_mail,
        resets_by_mail,
        has_password: account.password_hash.is_some(),
        admin: account.roles.admin,
        created: Moment(account.created_at),
        apps,
        clients: clients.map(|granted| ClientRow::of(granted, &live.apps)).collect(),
        sessions: sessions.collect(),
        sign_ins: sign_ins.collect(),
        more_failures: (failures.of - failures.networks.len() as i64).max(0),
        failures: failures.networks.into_iter().map(FailureRow::from).collect(),
        here_now: visit.client.masked(),
        must_change: account.must_change_password,
        breached: account.password_breached,
        disabled: account.password_disabled_at.map(Moment),
        closed: !open,
        asks_factor: current.strongest.is_some(),
        confirm_first: services.sessions.lacks_factor(current),
        setup_by: current.setup.map(|setup| Moment(setup.by)),
    })
}

async fn apps(
    visit: &PageRequest,
    services: &Services,
    live: &LiveSettings,
    account: &Account,
) -> Result<(Vec<AppLink>, Vec<(SessionId, String)>), DbError> {
    if live.apps.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let groups = services.accounts.groups(account.id).await?;
    let scheme = if visit.cookies().secure { "https" } else { "http" };
    let open = live.apps.all().iter().filter(|app| may_use(app, account.login.as_str(), &groups));
    let links = open.map(|app| {
        let url = app.hosts.first().map(|host| format!("{scheme}://{host}/"));
        AppLink { name: app.name.clone(), url }
    });
    Ok((links.collect(), services.gate.hosts(account.id).await?))
}

/// What failed at the account lately. Strangers can fill this list, so it is apart from the sign-ins.
async fn failures(
    visit: &PageRequest,
    services: &Services,
    account: &Account,
) -> Result<FailureSummary, DbError> {
    let audit = &services.audit;
    let phone = account.phone.as_ref().map(|phone| audit.subject(&EventSubject::Phone(phone.as_str())));
    // A number may have belonged to somebody else before.
    let since = visit.now().minus(FAILURES_SHOWN).max(account.created_at);
    audit.log().failures(audit.subject(&account.recorded()), phone, since, FAILED_NETWORKS).await
}

#[derive(Clone)]
pub struct SessionRow {
    pub id: String,
    pub device: Device,
    /// A network, not an address.
    pub address: String,
    pub signed_in: Moment,
    pub last_seen: Moment,
    pub current: bool,
    pub hosts: Vec<String>,
}

#[derive(Clone)]
pub struct AppLink {
    pub name: String,
    /// Where it begins; None for a client of OpenID Connect without a host, where nothing says where it begins.
    pub url: Option<String>,
}

#[derive(Clone)]
pub struct SignInRow {
    pub at: Moment,
    pub device: Device,
    pub address: String,
}

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
            ("account.wrong-factors", failed.wrong_factors),
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
    fn lasts(&self) -> bool {
        self.first.text() != self.last.text()
    }
}

#[derive(Template, Clone)]
#[template(path = "pages/account.html")]
pub struct AccountPage {
    pub form: FormPage,
    pub login: String,
    pub profile: Profile,
    pub phone: Option<String>,
    /// Confirmed by its owner.
    pub email: Option<String>,
    /// Until when nothing is sent there, because it has refused mail.
    pub refuses_mail: Option<Moment>,
    /// A code sent there sets a new password.
    pub resets_by_mail: bool,
    pub has_password: bool,
    pub admin: bool,
    pub created: Moment,
    pub apps: Vec<AppLink>,
    pub clients: Vec<ClientRow>,
    pub sessions: Vec<SessionRow>,
    pub sign_ins: Vec<SignInRow>,
    pub failures: Vec<FailureRow>,
    pub more_failures: i64,
    pub here_now: String,
    /// The password is a one-time password: nothing else works until it is changed.
    pub must_change: bool,
    /// The password is in the list of lost ones.
    pub breached: bool,
    /// Since when strangers cannot use the password, after too many wrong ones in a row.
    pub disabled: Option<Moment>,
    /// This browser cannot use the password either.
    pub closed: bool,
    /// It has a second factor.
    pub asks_factor: bool,
    /// Which is to be proved before the password is changed.
    pub confirm_first: bool,
    /// The time by which it has to have one.
    pub setup_by: Option<Moment>,
}

form_page!(AccountPage);

impl AccountPage {
    /// Whether a code can set a new password. Codes never open an administrator's account.
    fn takes_codes(&self) -> bool {
        let by_number = self.phone.is_some() && !self.admin && self.layout.sends_codes;
        by_number || self.resets_by_mail && self.layout.sends_mail
    }

    /// Setting a number takes a code, which proves that the number is theirs, and the password.
    fn offers_phone(&self) -> bool {
        self.layout.sends_codes && self.has_password && !self.closed
    }

    fn offers_email(&self) -> bool {
        self.layout.sends_mail && self.has_password && !self.closed
    }

    fn offers_email_removal(&self) -> bool {
        self.email.is_some() && self.has_password && self.disabled.is_none()
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
}
