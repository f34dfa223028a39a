//! `/oauth/logout` (OpenID Connect RP-Initiated Logout 1.0): a client's user signs out here, and goes back to it.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Bytes;
use askama::Template;

use super::authorize::{onward, see};
use crate::config::LiveSettings;
use crate::oidc::{IdTokenHint, Parameters, redirect_with};
use crate::web::http::{Flash, Layout, PageRequest, Problem, Services, ServicesData, WebResult};
use crate::web::session::{end, signed_in};

const LOGOUT: &str = "/oauth/logout";

/// What is known of who asks: by a token that we gave to a client.
struct Asked {
    hint: Option<IdTokenHint>,
    /// Where the browser goes afterwards: an address of the client that the token was given to.
    back: Option<String>,
}

impl Asked {
    fn of(query: &str, services: &Services, live: &LiveSettings) -> Result<Self, Problem> {
        let parameters = Parameters::parse(query.as_bytes());
        let text = |name: &'static str| {
            parameters.get(name).map_err(|error| Problem::wrong(name, error.description))
        };
        let hint = text("id_token_hint")?.and_then(|token| services.token_keys.verify::<IdTokenHint>(token));
        // One that is not the token's has no say.
        let named = text("client_id")?;
        let hint = hint.filter(|hint| named.is_none_or(|named| named == hint.aud));
        let back = text("post_logout_redirect_uri")?.and_then(|uri| {
            let (_, client) = live.apps.client(&hint.as_ref()?.aud)?;
            client.post_logout_redirect(uri)?;
            let state = text("state").ok()?;
            Some(state.map_or_else(|| uri.to_owned(), |state| redirect_with(uri, &[("state", state)])))
        });
        Ok(Self { hint, back })
    }

    fn done(&self, visit: &PageRequest) -> HttpResponse {
        match &self.back {
            Some(back) => see(back),
            None => visit.see_other("/login", Some(Flash::SignedOut)),
        }
    }
}

/// Ends the session that the token is about; asks first where that is not the one here.
pub async fn show(visit: PageRequest, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let query = visit.request().query_string();
    let asked = Asked::of(query, &services, &live)?;
    let Some(who) = signed_in(&visit, &services).await? else { return Ok(asked.done(&visit)) };
    if asked.hint.as_ref().is_some_and(|hint| hint.sid == who.session.id.to_string()) {
        return Ok(end(&visit, &services, asked.done(&visit)).await?);
    }
    let login = who.account.login.as_str();
    let page = LogoutPage {
        layout: visit.layout(LOGOUT, Some(login)),
        login: login.to_owned(),
        request: query.to_owned(),
    };
    Ok(visit.page(StatusCode::OK, &page))
}

/// The button of the page; a client may also send its request as a form, which comes without our cookies.
pub async fn submit(visit: PageRequest, body: Bytes, services: ServicesData) -> WebResult {
    let parameters = Parameters::parse(&body);
    let Ok(Some(token)) = parameters.get("csrf_token") else {
        return Ok(see(&format!("{LOGOUT}?{}", parameters.without(&[], None))));
    };
    if !visit.admits_form(token) {
        return Err(Problem::Csrf.into());
    }
    let live = visit.live(&services);
    let query = parameters.get("request").ok().flatten().unwrap_or_default();
    let asked = Asked::of(query, &services, &live)?;
    let done = match asked.back {
        Some(back) => onward(&visit, back, None),
        None => asked.done(&visit),
    };
    Ok(end(&visit, &services, done).await?)
}

#[derive(Template)]
#[template(path = "pages/oidc_logout.html")]
struct LogoutPage {
    layout: Layout,
    login: String,
    request: String,
}
