//! `/.gatehouse/` at the host of an application: the way to the sign-in and back, and signing out.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::http::header::{HeaderMap, LOCATION, ORIGIN};
use actix_web::web::{Path, Query};
use serde::Deserialize;
use url::form_urlencoded;

use crate::accounts::{AppVisitor, RedeemedCode, SessionToken, second_try};
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::gate::{ReturnUrl, Scheme};
use crate::web::gate::authz::{allows_http, app_cookie, start_url};
use crate::web::gate::proxied::AskedHost;
use crate::web::gate::{GatePage, GatePageKind};
use crate::web::http::client::only_line;
use crate::web::http::page;
use crate::web::http::{PageRequest, Problem, Services, ServicesData, WebResult, assets, cookies};

/// How long a browser may take to sign in. Tabs that begin meanwhile share one state; of tabs that begin at once before
/// there is one, the last to be answered sets it, and the others begin again.
const STATE_LASTS: std::time::Duration = std::time::Duration::from_secs(60 * 60);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StartQuery {
    rd: String,
    /// Present where the state of the first time was lost.
    again: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CallbackQuery {
    code: String,
}

struct AppHost {
    at: AskedHost,
    /// The host as it is listed.
    host: String,
    app: String,
}

impl AppHost {
    fn of(visit: &PageRequest, live: &LiveSettings) -> Result<Self, Problem> {
        let at = AskedHost::of(visit.request(), &visit.edge.trusted).map_err(|unclear| {
            tracing::debug!(%unclear, "no application's host");
            Problem::NotFound
        })?;
        let (host, app) = live.apps.at(&at.host).ok_or(Problem::NotFound)?;
        if !at.is_allowed(visit) {
            return Err(Problem::NotFound);
        }
        let (host, app) = (host.to_owned(), app.name.clone());
        Ok(Self { at, host, app })
    }

    fn cookie(&self, name: &'static str, value: String) -> Cookie<'static> {
        let secure = self.at.scheme == Scheme::Https;
        Cookie::build(name, value).path("/").http_only(true).secure(secure).same_site(SameSite::Lax).finish()
    }

    const fn state_name(&self) -> &'static str {
        match self.at.scheme {
            Scheme::Https => "__Host-gh_state",
            Scheme::Http => "gh_state",
        }
    }

    fn session(&self, headers: &HeaderMap) -> Option<SessionToken> {
        cookies::only_value(headers, app_cookie(self.at.scheme)).and_then(SessionToken::parse)
    }

    fn state(&self, headers: &HeaderMap) -> Option<SessionToken> {
        cookies::only_value(headers, self.state_name()).and_then(SessionToken::parse)
    }

    async fn visitor(
        &self,
        headers: &HeaderMap,
        services: &Services,
    ) -> Result<Option<Arc<AppVisitor>>, DbError> {
        match self.session(headers) {
            Some(token) => services.gate.visitor(&self.host, &token).await,
            None => Ok(None),
        }
    }

    fn origin(&self) -> String {
        format!("{}://{}", self.at.scheme.into_str(), self.host)
    }
}

/// `GET /.gatehouse/start?rd=…`: gives the browser a state, and leads it to the sign-in.
pub async fn start(visit: PageRequest, query: Query<StartQuery>, services: ServicesData) -> WebResult {
    let live = visit.settings(&services);
    let here = AppHost::of(&visit, &live)?;
    let back = ReturnUrl::parse(&query.rd, &live.apps, allows_http(&visit))
        .filter(|back| back.host() == here.host)
        .or_else(|| here.at.url("/", &live.apps, &visit));
    let Some(back) = back else { return Err(Problem::NotFound.into()) };
    let known = here.state(visit.request().headers());
    let state = known.unwrap_or_else(|| SessionToken::random(&visit.edge.entropy));
    let hash = services.gate.state_hash(&here.host, &state);
    let hash = if query.again.is_some() { second_try(&hash) } else { hash };
    let rd: String = form_urlencoded::byte_serialize(back.as_str().as_bytes()).collect();
    let sign_in = format!("{}/login?rd={rd}&state={hash}", services.public_url);
    let mut response = found(&sign_in);
    let mut cookie = here.cookie(here.state_name(), state.expose());
    cookie.set_max_age(cookies::seconds(STATE_LASTS));
    page::set(&mut response, cookie);
    Ok(response)
}

/// `GET /.gatehouse/callback?code=…`: the browser that began here gets its session, once.
pub async fn callback(visit: PageRequest, query: Query<CallbackQuery>, services: ServicesData) -> WebResult {
    let live = visit.settings(&services);
    let here = AppHost::of(&visit, &live)?;
    let redeemed = match SessionToken::parse(&query.code) {
        Some(code) => {
            let state = here.state(visit.request().headers());
            services.gate.redeem(&here.host, &code, state.as_ref()).await?
        }
        None => RedeemedCode::Nothing,
    };
    let back = |target: String| ReturnUrl::parse(&target, &live.apps, allows_http(&visit));
    let leads = match redeemed {
        RedeemedCode::Session { token, target } => back(target).map(|back| {
            let mut response = found(back.as_str());
            let mut cookie = here.cookie(app_cookie(here.at.scheme), token.expose());
            cookie.set_max_age(cookies::seconds(services.session_lasts));
            page::set(&mut response, cookie);
            response
        }),
        RedeemedCode::BeginAgain { target } => {
            back(target).map(|back| found(&format!("{}&again=1", start_url(&here.origin(), back.as_str()))))
        }
        RedeemedCode::Nothing => None,
    };
    Ok(leads.unwrap_or_else(|| {
        GatePage::new(&visit, GatePageKind::Expired, &here.app, None, &services).respond(&visit)
    }))
}

fn found(to: &str) -> HttpResponse {
    HttpResponse::Found().insert_header((LOCATION, to)).finish()
}

/// `GET /.gatehouse/logout`: asks, or says that nobody is signed in here.
pub async fn show_logout(visit: PageRequest, services: ServicesData) -> WebResult {
    let live = visit.settings(&services);
    let here = AppHost::of(&visit, &live)?;
    let visitor = here.visitor(visit.request().headers(), &services).await?;
    let user = visitor.as_ref().map(|visitor| visitor.login.as_str());
    let kind = if user.is_some() { GatePageKind::SignOut } else { GatePageKind::NotSignedIn };
    Ok(GatePage::new(&visit, kind, &here.app, user, &services).respond(&visit))
}

/// `POST /.gatehouse/logout`: signs out here, at the sign-in and at all applications.
pub async fn logout(visit: PageRequest, services: ServicesData) -> WebResult {
    let live = visit.settings(&services);
    let here = AppHost::of(&visit, &live)?;
    if !is_from(&here, visit.request().headers()) {
        return Err(Problem::Csrf.into());
    }
    let mut kind = GatePageKind::NotSignedIn;
    if let Some(token) = here.session(visit.request().headers())
        && let Some((account, session)) = services.gate.parent(&here.host, &token).await?
    {
        services.sessions.revoke(account, session).await?;
        services.gate.forget(account);
        kind = GatePageKind::SignedOut;
    }
    let mut response = GatePage::new(&visit, kind, &here.app, None, &services).respond(&visit);
    let mut cookie = here.cookie(app_cookie(here.at.scheme), String::new());
    cookie.make_removal();
    page::set(&mut response, cookie);
    Ok(response)
}

/// `GET /.gatehouse/forbidden`: the page behind a 403 of a proxy that drops ours.
pub async fn forbidden(visit: PageRequest, services: ServicesData) -> WebResult {
    let live = visit.settings(&services);
    let here = AppHost::of(&visit, &live)?;
    let visitor = here.visitor(visit.request().headers(), &services).await?;
    let user = visitor.as_ref().map(|visitor| visitor.login.as_str());
    Ok(GatePage::new(&visit, GatePageKind::Forbidden, &here.app, user, &services).respond(&visit))
}

/// `GET /.gatehouse/static/{file}`: what its pages are made of.
pub async fn asset(
    visit: PageRequest,
    file: Path<String>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    AppHost::of(&visit, &visit.settings(&services))?;
    assets::serve(visit.request().clone(), file).await
}

/// Whether a page of the same host sends it.
fn is_from(here: &AppHost, headers: &HeaderMap) -> bool {
    let only = |name: &str| only_line(headers, name)?.to_str().ok();
    match only("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => only(ORIGIN.as_str()) == Some(here.origin().as_str()),
    }
}
