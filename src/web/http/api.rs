//! The JSON API: the same services as the pages, refusals as problems (RFC 9457).

use std::future::{Ready, ready};
use std::ops::Deref;
use std::sync::Arc;

use actix_web::cookie::Cookie;
use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::{CaptchaAnswer, CaptchaForm};
use crate::codes::Channel;
use crate::config::LiveSettings;
use crate::denied::DeniedRule;
use crate::web::http::action::{ActionRefusal, Actor};
use crate::web::http::challenge::{CaptchaBody, ChallengeContext};
use crate::web::http::csrf::Browser;
use crate::web::http::extract::SecretField;
use crate::web::http::message::FieldErrors;
use crate::web::http::page::{Requester, app_data};
use crate::web::http::problem::{CountedAs, Problem, WebError};
use crate::web::http::row::{Checks, HandlerArgument};
use crate::web::http::services::ServicesData;
use gatehouse_limiter::Limit;
use gatehouse_limiter::middleware::ratelimit_fields::{self, Standing};

/// 204 for what was done, and a refusal for what was not.
pub fn no_content_if(done: bool, refusal: Problem) -> Result<HttpResponse, Problem> {
    if done { Ok(HttpResponse::NoContent().finish()) } else { Err(refusal) }
}

/// A solved challenge: `id` and `answer`, or `altcha`. It can be used once, whether the answer is right or wrong.
#[derive(Deserialize, ToSchema)]
#[serde(try_from = "SolutionFields")]
#[schema(as = Solution)]
pub struct CaptchaSolution {
    /// The id of the challenge.
    #[serde(default)]
    pub id: String,
    /// What the image shows.
    #[serde(default)]
    #[schema(value_type = String)]
    pub answer: SecretField,
    /// The challenge of the proof of work with its solution, as the ALTCHA widget encodes them: JSON with `challenge`
    /// and `solution`, in base64. If it is sent, `id` and `answer` are passed over.
    #[serde(default)]
    #[schema(value_type = String)]
    pub altcha: SecretField,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SolutionFields {
    id: Option<String>,
    answer: Option<SecretField>,
    altcha: Option<SecretField>,
}

impl TryFrom<SolutionFields> for CaptchaSolution {
    /// The error as serde words it, so that the field is named.
    type Error = &'static str;

    fn try_from(SolutionFields { id, answer, altcha }: SolutionFields) -> Result<Self, Self::Error> {
        match (id, answer, altcha) {
            (None, _, None) => Err("missing field `id`"),
            (Some(_), None, None) => Err("missing field `answer`"),
            (id, answer, altcha) => Ok(Self {
                id: id.unwrap_or_default(),
                answer: answer.unwrap_or_default(),
                altcha: altcha.unwrap_or_default(),
            }),
        }
    }
}

impl CaptchaSolution {
    pub fn answer(&self) -> CaptchaAnswer<'_> {
        match self.altcha.expose() {
            "" => CaptchaAnswer::Letters { id: &self.id, typed: self.answer.expose() },
            solution => CaptchaAnswer::Proof(solution),
        }
    }
}

/// One call that changes something: who makes it, from which browser, if it is one, and what it is judged by. As a handler's
/// argument it is refused if a page of another site makes it.
pub struct ApiRequest {
    sender: Requester,
    /// Whose limits are shown, where it is about a code.
    channel: Channel,
    pub browser: Option<Browser>,
    pub services: ServicesData,
    pub live: Arc<LiveSettings>,
}

impl Deref for ApiRequest {
    type Target = Requester;

    fn deref(&self) -> &Requester {
        &self.sender
    }
}

impl HandlerArgument for ApiRequest {
    const CHECKS: &'static [Checks] = &[Checks::Call];
}

impl FromRequest for ApiRequest {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::admit(request))
    }
}

impl ApiRequest {
    pub fn admit(request: &HttpRequest) -> Result<Self, Problem> {
        let (services, edge) = app_data(request)?;
        edge.caller(request)?;
        let sender = Requester::of(request, edge.clone());
        let (browser, live) = (edge.browser(request.headers()), sender.live(services));
        Ok(Self { sender, channel: Channel::Sms, browser, services: services.clone(), live })
    }

    /// It is about a code of this channel.
    #[must_use]
    pub fn by(self, channel: Channel) -> Self {
        Self { channel, ..self }
    }

    pub fn actor<'a>(&'a self, form: CaptchaForm, solution: Option<&'a CaptchaSolution>) -> Actor<'a> {
        let answer = solution.map(CaptchaSolution::answer);
        Actor::new(&self.sender, &self.services, &self.live, self.asker(form), answer)
    }

    pub fn asker(&self, form: CaptchaForm) -> ChallengeContext<'_> {
        ChallengeContext { form, client: self.client, browser: self.browser.as_ref(), realm: None }
    }

    /// The browser's name; a new one, with the cookie that tells it, if it has none yet.
    pub fn named_browser(&self) -> (Browser, Option<Cookie<'static>>) {
        let new = || {
            let browser = Browser::random(&self.edge.entropy);
            (browser, Some(self.edge.cookies.browser(browser.encode())))
        };
        self.browser.map_or_else(new, |browser| (browser, None))
    }

    /// What came of an action; its refusal as a problem.
    pub async fn told<T>(
        &self,
        form: CaptchaForm,
        outcome: Result<T, impl Into<ActionRefusal>>,
    ) -> Result<T, WebError> {
        match outcome {
            Ok(done) => Ok(done),
            Err(refusal) => Err(self.refused(form, refusal.into().0).await),
        }
    }

    /// A refusal as its row says: with a challenge if one helps, and with the limits that decided.
    async fn refused(&self, form: CaptchaForm, problem: Problem) -> WebError {
        let captcha = match problem.offers_challenge() {
            true => Some(self.asker(form).challenge(&self.services, &self.live).await),
            false => None,
        };
        let answer = || problem.respond_with(captcha.as_ref());
        match problem.limits() {
            Some((counted, full)) => self.with_quota(counted, answer(), full).into(),
            None if captcha.is_some() => answer().into(),
            None => problem.into(),
        }
    }

    /// With the `RateLimit` fields of what was asked for. A device's limit is told to nobody else: that it has a say
    /// tells that the browser is known there.
    pub fn with_quota(
        &self,
        counted: CountedAs,
        response: HttpResponse,
        full: Option<DeniedRule<'_>>,
    ) -> HttpResponse {
        let limits = &self.live.limits;
        let own = match (counted, full) {
            (CountedAs::Password, Some(full)) if full.limit == limits.login_device.name() => {
                &limits.login_device
            }
            (CountedAs::Password, _) => &limits.login_account,
            (CountedAs::Guess, _) => match self.channel {
                Channel::Sms => &limits.sms_guess,
                Channel::Mail => &limits.mail_guess,
            },
            (CountedAs::Message, _) => {
                let own = match self.channel {
                    Channel::Sms => [&limits.sms_phone, &limits.sms_address, &limits.sms_network],
                    Channel::Mail => [&limits.mail_mailbox, &limits.mail_address, &limits.mail_network],
                };
                return limited(response, &own, full);
            }
            // The policy of a device, and that of the address for recovery codes, are told to nobody else.
            (CountedAs::Factor, Some(DeniedRule { limit: name, .. })) => {
                let own = [
                    &limits.factor_account,
                    &limits.factor_device,
                    &limits.login_address,
                    &limits.login_network,
                ];
                let own: Vec<&Limit> = own.into_iter().filter(|limit| limit.name() == name).collect();
                return limited(response, &own, full);
            }
            (CountedAs::Factor, None) => return limited(response, &[&limits.factor_account], None),
            (CountedAs::Account, _) => return response,
        };
        limited(response, &[own, &limits.login_address, &limits.login_network], full)
    }
}

pub fn invalid_unless<T>(parsed: Option<T>, errors: &FieldErrors) -> Result<T, Problem> {
    parsed.filter(|_| errors.is_empty()).ok_or_else(|| Problem::invalid(errors))
}

/// Adds the `RateLimit` fields: what the limits are, and, to who is refused, when the next slot frees.
pub fn limited(response: HttpResponse, limits: &[&Limit], full: Option<DeniedRule<'_>>) -> HttpResponse {
    let standing = full.map(|DeniedRule { limit, rule, retry_after }| Standing {
        name: limit,
        rule,
        remaining: 0,
        more_after: Some(retry_after),
    });
    quota(response, limits.iter().map(|limit| (limit.name(), *limit)), standing)
}

/// A refusal, with the challenge that it offers, and with the `RateLimit` fields if a limit decided.
pub fn refused(
    problem: &Problem,
    captcha: Option<&CaptchaBody>,
    limits: &[&Limit],
    full: Option<DeniedRule<'_>>,
) -> WebError {
    let answer = problem.respond_with(captcha);
    if full.is_some() { limited(answer, limits, full).into() } else { answer.into() }
}

/// Tells the quota of limits by what the caller knows them as, and for whoever is admitted too.
pub fn quota<'a>(
    mut response: HttpResponse,
    limits: impl IntoIterator<Item = (&'a str, &'a Limit)>,
    standing: Option<Standing<'_>>,
) -> HttpResponse {
    ratelimit_fields::add(response.headers_mut(), limits, standing);
    response
}
