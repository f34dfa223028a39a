//! `/oauth/authorize`: somebody's browser gets a code for a client, once they are signed in and have proved and agreed to
//! what that takes.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use actix_web::web::Bytes;
use askama::Template;
use serde::Deserialize;

use crate::accounts::{AuthenticatedSession, Factor, NewGrant};
use crate::audit::{Action, AuditEvent, EventSubject, Outcome};
use crate::clock::Micros;
use crate::config::AppFactor;
use crate::gate::may_use;
use crate::oidc::{
    Authentication, AuthorizationRequest, CONTINUE, ClientRequest, IdTokenHint, NO_PKCE, OAuthError,
    PROVED_SINCE, ParameterFault, Parameters, Unanswerable, redirect_with,
};
use crate::web::form::OwnForm;
use crate::web::http::headers::let_forms_end_at;
use crate::web::http::{Flash, Layout, Next, PageRequest, Services, ServicesData, WebError, WebResult};
use crate::web::session::{self, CONFIRM, SET_UP};

const AUTHORIZE: &str = "/oauth/authorize";

/// The client that sent the browser here has to mend it: nobody is sent back to an address that may not be theirs.
fn unanswerable(visit: &PageRequest, services: &Services, query: &str, wrong: Unanswerable) -> WebError {
    let Unanswerable { parameter, fault } = wrong;
    if fault == ParameterFault::Unregistered {
        services.refused_requests.note_redirect(query, &visit.live(services).apps, visit.now());
    }
    let reason = match fault {
        ParameterFault::Missing => "client-request.missing",
        ParameterFault::Twice => "client-request.twice",
        ParameterFault::Unfit => "client-request.unfit",
        ParameterFault::Unknown => "client-request.unknown",
        ParameterFault::Unregistered => "client-request.unregistered",
    };
    refused(visit, Some(parameter), reason)
}

fn refused(visit: &PageRequest, parameter: Option<&'static str>, reason: &'static str) -> WebError {
    let page = RefusedRequestPage { layout: visit.layout("/account", None), parameter, reason };
    visit.page(StatusCode::BAD_REQUEST, &page).into()
}

#[derive(Template)]
#[template(path = "pages/refused_request.html")]
struct RefusedRequestPage {
    layout: Layout,
    /// The parameter at fault; None for the request as a whole.
    parameter: Option<&'static str>,
    reason: &'static str,
}

/// To an address that is registered.
pub(super) fn see(location: &str) -> HttpResponse {
    HttpResponse::SeeOther()
        .insert_header((LOCATION, location))
        .insert_header((CACHE_CONTROL, "no-store"))
        .finish()
}

pub async fn show(visit: PageRequest, services: ServicesData) -> WebResult {
    let query = visit.request().query_string().to_owned();
    answer(&visit, &services, &query, None).await
}

/// A request may be a form (OpenID Connect Core 1.0, 3.1.2.1). It comes from another site, so without our cookies.
pub async fn take(body: Bytes) -> HttpResponse {
    see(&format!("{AUTHORIZE}?{}", Parameters::parse(&body).without(&[], None)))
}

const CLOCKS_DIFFER: Duration = Duration::from_secs(5);
const NOBODY: OAuthError = OAuthError::new("login_required", "Nobody is signed in, or not recently enough.");
const NOT_ALONE: OAuthError = OAuthError::new(
    "interaction_required",
    "The account has something to do first: ask without prompt=none.",
);

/// The answer to a request, to which the account `agreed` has just agreed.
async fn answer(visit: &PageRequest, services: &Services, query: &str, agreed: Option<&str>) -> WebResult {
    let live = visit.live(services);
    let asked =
        ClientRequest::of(query, &live.apps).map_err(|wrong| unanswerable(visit, services, query, wrong))?;
    let send = |answer: &[(&str, &str)]| send(visit, &asked, &asked.answer(&services.public_url, answer));
    let refuse =
        |OAuthError { code, description }| Ok(send(&[("error", code), ("error_description", description)]));
    let request = match asked.read() {
        Ok(request) => request,
        Err(error) => {
            if error == NO_PKCE {
                services.refused_requests.note_without_pkce(asked.client, visit.now());
            }
            return refuse(error);
        }
    };
    let now = visit.now();
    let who = session::signed_in(visit, services).await?;
    let proved = who.as_ref().map_or(Micros(0), |who| Authentication::of(&who.session).at);
    let lead = |page: &str, why: OAuthError, flash: Option<Flash>| {
        // What is asked for now is asked for once: later than what was proved. Clocks of instances differ a little.
        let next = || now.minus(CLOCKS_DIFFER).max(proved.plus(Duration::from_micros(1)));
        let since = request.proved_since.map_or_else(next, |since| since.min(now)).0.to_string();
        // On the pages that follow, the language is what their reader chooses.
        let again = asked.parameters.without(&[PROVED_SINCE, "ui_locales"], Some((PROVED_SINCE, &since)));
        match Next::parse(&format!("{CONTINUE}?{again}")) {
            _ if request.prompt.none => refuse(why),
            Some(back) => Ok(visit.see_other_about(&back.by_way_of(page), flash, &asked.app.name)),
            None => Err(refused(visit, None, "client-request.long")),
        }
    };
    let Some(who) = who else { return lead("/login", NOBODY, None) };
    if who.account.must_change_password {
        return lead("/account", NOT_ALONE, None);
    }
    if who.opens_only_setup() {
        return lead(SET_UP, NOT_ALONE, None);
    }
    let is_hinted = |hint: &str| {
        let known = services.token_keys.verify::<IdTokenHint>(hint);
        known.is_some_and(|known| known.sub == who.account.id.to_string())
    };
    // It is about somebody else, or nobody can tell.
    if !request.id_token_hint.as_deref().is_none_or(is_hinted) {
        return refuse(NOBODY);
    }
    if request.wants_sign_in(&who, now) {
        return lead("/login", NOBODY, None);
    }
    let groups = services.accounts.groups(who.account.id).await?;
    if !may_use(asked.app, who.account.login.as_str(), &groups) {
        return refuse(OAuthError::new("access_denied", "The account may not use this application."));
    }
    if let Some(lacking) = request.lacks(&who, asked.app, now) {
        let strongest = who.session.strongest;
        let has =
            strongest == Some(Factor::Passkey) || strongest.is_some() && lacking.factor != AppFactor::Passkey;
        let asks = match lacking.factor {
            AppFactor::Passkey => Flash::AppAsksPasskey,
            _ => Flash::AppAsksFactor,
        };
        return match (lacking.is_asked_of_all, has) {
            (true, false) => lead(SET_UP, NOT_ALONE, Some(asks)),
            (true, true) => lead(CONFIRM, NOT_ALONE, None),
            (false, _) => lead(CONFIRM, NOBODY, None),
        };
    }
    let (account, client) = (who.account.id, &asked.client.client_id);
    // Somebody else may have signed in in another tab.
    let agreed = agreed.is_some_and(|agreed| agreed == account.to_string());
    let asks_always = asked.client.is_native() || request.prompt.consent;
    let has_agreed = agreed
        || !asks_always
            && (asked.client.consent.is_none()
                || services.grants.has_consented(account, client, &request.scope).await?);
    if !has_agreed && request.prompt.none {
        return refuse(OAuthError::new("consent_required", "The account has not agreed to this client."));
    }
    if !has_agreed {
        return Ok(visit.page(StatusCode::OK, &ConsentPage::new(visit, &who, &asked, &request, query)));
    }
    // To agree to the same again changes nothing, so that is no event.
    if agreed && !services.grants.has_consented(account, client, &request.scope).await? {
        services.grants.consent(account, client, &request.scope).await?;
        let (audit, address) = (&services.audit, visit.client.subject());
        audit.record(AuditEvent {
            name: Some(&asked.app.name),
            account: Some(who.account.recorded()),
            address: Some(EventSubject::Address(address.as_ref())),
            ..AuditEvent::new(audit.now(), Action::ConsentGiven, Outcome::Ok)
        });
    }
    let authentication = Authentication::of(&who.session);
    let begun = services.grants.begin(NewGrant {
        client,
        session: who.session.id,
        scope: &request.scope,
        methods: &authentication.methods,
        auth_time: authentication.at,
        redirect_uri: &asked.redirect_uri,
        challenge: &request.challenge,
        nonce: request.nonce.as_deref(),
    });
    match begun.await? {
        Some(code) => Ok(send(&[("code", &code.expose())])),
        None => lead("/login", NOBODY, None),
    }
}

/// `GET /oauth/continue`
pub async fn go_on(visit: PageRequest) -> HttpResponse {
    let to = format!("{AUTHORIZE}?{}", visit.request().query_string());
    onward(&visit, to, None)
}

/// A page that leads on: to the client of this name, if there is one.
pub(super) fn onward(visit: &PageRequest, to: String, app: Option<String>) -> HttpResponse {
    let mut response =
        visit.page(StatusCode::OK, &ContinuePage { layout: visit.layout("/account", None), to, app });
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[derive(Debug, Deserialize)]
pub struct ConsentForm {
    /// The query of the request.
    request: String,
    /// The account that was asked.
    account: String,
    /// Not empty: yes.
    #[serde(default)]
    agree: String,
}

/// `POST /oauth/consent`
pub async fn decide(
    visit: PageRequest,
    OwnForm(form): OwnForm<ConsentForm>,
    services: ServicesData,
) -> WebResult {
    let live = visit.live(&services);
    let asked = ClientRequest::of(&form.request, &live.apps)
        .map_err(|wrong| unanswerable(&visit, &services, &form.request, wrong))?;
    if form.agree.is_empty() {
        let denied = [("error", "access_denied"), ("error_description", "The account has not agreed.")];
        return Ok(led_on(
            &visit,
            &asked,
            send(&visit, &asked, &asked.answer(&services.public_url, &denied)),
        ));
    }
    let answered = answer(&visit, &services, &form.request, Some(&form.account)).await?;
    Ok(led_on(&visit, &asked, answered))
}

/// What ends this form: a page in place of a redirect to the client.
fn led_on(visit: &PageRequest, asked: &ClientRequest<'_>, answered: HttpResponse) -> HttpResponse {
    match answered.headers().get(LOCATION).and_then(|to| to.to_str().ok()) {
        Some(to) => onward(visit, to.to_owned(), Some(asked.app.name.clone())),
        None => answered,
    }
}

/// Sends the browser to the client with an answer.
fn send(visit: &PageRequest, asked: &ClientRequest<'_>, fields: &[(&str, &str)]) -> HttpResponse {
    if !asked.by_form {
        return see(&redirect_with(&asked.redirect_uri, fields));
    }
    let page = FormPostPage {
        layout: visit.layout("/account", None),
        to: &asked.redirect_uri,
        fields,
        app: &asked.app.name,
    };
    let mut response = visit.page(StatusCode::OK, &page);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Browsers hold what the client leads on to, which may be any host, to this policy, too.
    let_forms_end_at("https: http:", response.headers_mut());
    response
}

/// A form with the answer, which a script submits.
#[derive(Template)]
#[template(path = "pages/form_post.html")]
struct FormPostPage<'a> {
    layout: Layout,
    to: &'a str,
    fields: &'a [(&'a str, &'a str)],
    app: &'a str,
}

#[derive(Template)]
#[template(path = "pages/continue.html")]
struct ContinuePage {
    layout: Layout,
    to: String,
    app: Option<String>,
}

/// What a scope tells of an account, by the keys of its words.
pub fn told_by(scope: &str) -> Vec<&'static str> {
    let told = scope.split(' ').filter_map(|scope| match scope {
        "openid" => Some("consent.id"),
        "profile" => Some("consent.profile"),
        "email" => Some("consent.email"),
        "groups" => Some("consent.groups"),
        _ => None,
    });
    told.collect()
}

#[derive(Template)]
#[template(path = "pages/consent.html")]
struct ConsentPage {
    layout: Layout,
    login: String,
    account: String,
    app: String,
    /// What the client is told, by the keys of their words.
    told: Vec<&'static str>,
    request: String,
    /// A program on this device, for which another could pass itself off.
    native: bool,
    /// To where the code goes.
    host: String,
}

impl ConsentPage {
    fn new(
        visit: &PageRequest,
        who: &AuthenticatedSession,
        asked: &ClientRequest<'_>,
        request: &AuthorizationRequest,
        query: &str,
    ) -> Self {
        let login = who.account.login.as_str();
        let uri = asked.redirect_uri.as_str();
        let host =
            uri.split_once("://").map_or(uri, |(_, rest)| rest.split(['/', '?']).next().unwrap_or(rest));
        Self {
            layout: visit.layout(format!("{AUTHORIZE}?{query}"), Some(login)),
            login: login.to_owned(),
            account: who.account.id.to_string(),
            app: asked.app.name.clone(),
            told: told_by(&request.scope),
            request: query.to_owned(),
            native: asked.client.is_native(),
            host: host.to_owned(),
        }
    }
}
