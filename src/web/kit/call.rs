//! The JSON API: the same services as the pages, refusals as problems (RFC 9457).

use std::time::Duration;

use actix_web::cookie::Cookie;
use actix_web::http::header::USER_AGENT;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};

use crate::captcha::CaptchaForm;
use crate::config::{Limits, LiveSettings};
use crate::login::{Account, AuthenticatedSession, BUSY, KnownDevices, SessionToken, SignInClient};
use crate::throttle::Limit;
use crate::web::captcha::challenge::{Answered, Asker};
use crate::web::form::fields::Typed;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::csrf::Browser;
use crate::web::kit::message::FieldErrors;
use crate::web::kit::problem::{CaptchaBody, Problem};
use crate::web::kit::ratelimit_fields::{self, Standing};
use crate::web::kit::services::Services;
use crate::web::kit::visit::Edge;
use crate::web::kit::wait::Moment;

/// A solved challenge, as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solution {
    pub id: String,
    pub answer: Typed,
}

/// `{user: {…}}`
#[derive(Serialize)]
pub struct UserBody {
    user: User,
}

#[derive(Serialize)]
struct User {
    id: String,
    login: String,
    /// In E.164.
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    roles: Vec<&'static str>,
    /// The password was given out once: nothing but changing it is of use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    must_change_password: bool,
    /// The password had too many wrong ones in a row, and opens nothing to strangers since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    password_disabled_since: Option<String>,
}

impl From<&Account> for UserBody {
    fn from(account: &Account) -> Self {
        Self {
            user: User {
                id: account.id.to_string(),
                login: account.login.as_str().to_owned(),
                phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
                roles: account.roles.names(),
                must_change_password: account.must_change_password,
                password_disabled_since: account.password_disabled_at.map(|at| Moment(at).iso()),
            },
        }
    }
}

/// One call: who makes it, and from which browser, if it is one.
pub struct Call<'a> {
    pub client: ClientAddress,
    pub browser: Option<Browser>,
    request: &'a HttpRequest,
    edge: &'a Edge,
}

impl<'a> Call<'a> {
    /// Refused where a foreign page makes it.
    pub fn admit(request: &'a HttpRequest, edge: &'a Edge) -> Result<Self, Problem> {
        let client = edge.caller(request)?;
        Ok(Self { client, browser: edge.browser(request.headers()), request, edge })
    }

    /// Who is signed in, with a password of their own choice.
    pub async fn member(&self, services: &Services, edge: &Edge) -> Result<AuthenticatedSession, Problem> {
        member(self.request, services, edge).await
    }

    pub fn asker(&self, form: CaptchaForm) -> Asker<'_> {
        Asker { form, client: self.client, browser: self.browser.as_ref() }
    }

    /// The browser's name; a new one, with the cookie that tells it, where it has none yet.
    pub fn named_browser(&self) -> (Browser, Option<Cookie<'static>>) {
        let new = || {
            let browser = Browser::random(&self.edge.entropy);
            (browser, Some(self.edge.cookies.browser(browser.encode())))
        };
        self.browser.map_or_else(new, |browser| (browser, None))
    }

    /// As what the browser is known where somebody signed in from it.
    pub fn known_devices(&self) -> KnownDevices {
        self.edge.known_devices(self.request.headers())
    }

    /// What the account's owner is shown of it, and as what it is known there.
    pub fn shown(&self) -> SignInClient {
        let headers = self.request.headers();
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        let client = SignInClient::new(self.client.ip(), agent.unwrap_or_default());
        client.known_as(self.known_devices())
    }

    /// Somebody has shown just now that the account is theirs: from here on the browser is known there.
    pub fn remember_device(&self, response: &mut HttpResponse, account: &Account) {
        self.edge.remember_device(response, &self.known_devices(), account);
    }

    /// Whether a challenge was solved with this call.
    pub async fn redeem(
        &self,
        form: CaptchaForm,
        services: &Services,
        live: &LiveSettings,
        solution: Option<&Solution>,
    ) -> Result<bool, Problem> {
        let Some(Solution { id, answer }) = solution else { return Ok(false) };
        match self.asker(form).redeem(services, live, id, answer.expose()).await {
            Answered::Solved => Ok(true),
            Answered::Nothing | Answered::Wrong => {
                Err(Problem::CaptchaInvalid { captcha: self.challenge(form, services, live).await })
            }
        }
    }

    /// A fresh challenge; while its image would not be drawn, when it would.
    pub async fn challenge(
        &self,
        form: CaptchaForm,
        services: &Services,
        live: &LiveSettings,
    ) -> CaptchaBody {
        match self.asker(form).issue(services, live).await {
            Ok(challenge) => challenge.into(),
            Err(later) => later.into(),
        }
    }
}

/// For a call that changes nothing, and may come from anywhere.
pub async fn member(
    request: &HttpRequest,
    services: &Services,
    edge: &Edge,
) -> Result<AuthenticatedSession, Problem> {
    let who = signed_in(request, services, edge).await?;
    if who.account.must_change_password { Err(Problem::PasswordChangeRequired) } else { Ok(who) }
}

/// Who is signed in, whatever they may do.
pub async fn signed_in(
    request: &HttpRequest,
    services: &Services,
    edge: &Edge,
) -> Result<AuthenticatedSession, Problem> {
    let token = edge
        .session_token(request.headers())
        .and_then(SessionToken::parse)
        .ok_or(Problem::Unauthenticated)?;
    let found = services.sessions.find(&token).await.map_err(|error| broken(&error))?;
    found.ok_or(Problem::Unauthenticated)
}

/// Something is broken: logged here, once, and told without its cause.
pub fn broken(error: &impl std::fmt::Display) -> Problem {
    crate::web::kit::error_page::failed(error);
    Problem::BROKEN
}

pub fn invalid_unless<T>(parsed: Option<T>, errors: &FieldErrors) -> Result<T, Problem> {
    parsed.filter(|_| errors.is_empty()).ok_or_else(|| Problem::invalid(errors))
}

/// Adds the `RateLimit` fields: what the limits are, and, to who is refused, when the next slot frees.
pub fn limited(response: HttpResponse, limits: &[&Limit], full: Option<(&str, Duration)>) -> HttpResponse {
    let standing = full.map(|(name, wait)| Standing { name, remaining: 0, reset: Some(wait) });
    quota(response, limits.iter().map(|limit| (limit.name(), *limit)), standing)
}

/// The same for a password. A device's limit is told to nobody else: that it has a say tells that the browser
/// is known there.
pub fn limited_as_password(
    response: HttpResponse,
    limits: &Limits,
    full: Option<(&str, Duration)>,
) -> HttpResponse {
    let own = match full {
        Some((name, _)) if name == limits.login_device.name() => &limits.login_device,
        _ => &limits.login_account,
    };
    // No limit refuses a caller for whom there is no room.
    let full = full.filter(|(name, _)| *name != BUSY);
    limited(response, &[own, &limits.login_address, &limits.login_network], full)
}

/// The same for limits by what the caller knows them as, and for whoever is admitted too.
pub fn quota<'a>(
    mut response: HttpResponse,
    limits: impl IntoIterator<Item = (&'a str, &'a Limit)>,
    standing: Option<Standing<'_>>,
) -> HttpResponse {
    ratelimit_fields::add(response.headers_mut(), limits, standing);
    response
}
