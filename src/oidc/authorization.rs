//! Whether somebody may get a code for a client, and what they have to do first: pure questions about a request, the
//! settings and a session.

use std::sync::Arc;

use super::claims::Authentication;
use super::request::{AuthorizationRequest, FORM_POST, OAuthError, Parameters, TWICE};
use crate::accounts::{AuthenticatedSession, Factor};
use crate::clock::Micros;
use crate::config::{App, AppFactor, Apps, OidcClient};

/// A request of a client that is known, to be answered at an address of it.
#[derive(Debug)]
pub struct ClientRequest<'a> {
    pub parameters: Parameters,
    pub app: &'a Arc<App>,
    pub client: &'a OidcClient,
    pub redirect_uri: String,
    /// The browser posts the answer (OAuth 2.0 Form Post Response Mode 1.0).
    pub by_form: bool,
    state: Option<String>,
}

/// Where forms lead that end at a client, with the query of its request: Chrome holds all redirects after a form to
/// `form-action` of its page, and this page ends them.
pub const CONTINUE: &str = "/oauth/continue";

fn is_http(uri: &str) -> bool {
    ["https://", "http://"].iter().any(|scheme| uri.starts_with(scheme))
}

/// The request to which one of our pages leads.
pub fn request_at<'a>(target: &str, apps: &'a Apps) -> Option<(ClientRequest<'a>, AuthorizationRequest)> {
    let query = target.strip_prefix(CONTINUE)?.strip_prefix('?')?;
    let asked = ClientRequest::of(query, apps).ok()?;
    let request = asked.read().ok()?;
    Some((asked, request))
}

/// Why a request must not be answered at the address that it names: that may not be the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswerable {
    pub parameter: &'static str,
    pub fault: ParameterFault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterFault {
    Missing,
    Twice,
    /// It has a character that no parameter has.
    Unfit,
    /// No client has this id.
    Unknown,
    /// It is no address of the client.
    Unregistered,
}

/// What is to be proved first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking {
    pub factor: AppFactor,
    /// The application's own rules ask for it, not only by this request.
    pub is_asked_of_all: bool,
}

impl<'a> ClientRequest<'a> {
    pub fn of(query: &str, apps: &'a Apps) -> Result<Self, Unanswerable> {
        let parameters = Parameters::parse(query.as_bytes());
        let text = |parameter| match parameters.get(parameter) {
            Ok(value) => Ok(value.map(str::to_owned)),
            Err(TWICE) => Err(Unanswerable { parameter, fault: ParameterFault::Twice }),
            Err(_) => Err(Unanswerable { parameter, fault: ParameterFault::Unfit }),
        };
        let missing = |parameter| Unanswerable { parameter, fault: ParameterFault::Missing };
        let id = text("client_id")?.ok_or_else(|| missing("client_id"))?;
        let unknown = Unanswerable { parameter: "client_id", fault: ParameterFault::Unknown };
        let (app, client) = apps.client(&id).ok_or(unknown)?;
        let redirect_uri = text("redirect_uri")?.ok_or_else(|| missing("redirect_uri"))?;
        if client.redirect(&redirect_uri).is_none() {
            return Err(Unanswerable { parameter: "redirect_uri", fault: ParameterFault::Unregistered });
        }
        let state = text("state")?;
        // A program that takes what its scheme opens takes no form.
        let by_form = parameters.get("response_mode") == Ok(Some(FORM_POST)) && is_http(&redirect_uri);
        Ok(Self { parameters, app, client, redirect_uri, by_form, state })
    }

    /// What the client is told beside an answer (RFC 6749, 4.1.2; RFC 9207).
    pub fn answer<'b>(&'b self, issuer: &'b str, answer: &[(&'b str, &'b str)]) -> Vec<(&'b str, &'b str)> {
        let state = self.state.as_deref().map(|state| ("state", state));
        answer.iter().copied().chain(state).chain([("iss", issuer)]).collect()
    }

    pub fn read(&self) -> Result<AuthorizationRequest, OAuthError> {
        let request = AuthorizationRequest::read(&self.parameters, self.client)?;
        match self.parameters.get("response_mode")? == Some(FORM_POST) && !self.by_form {
            true => Err(OAuthError::invalid(
                "response_mode form_post takes a redirect_uri of https; leave it out.",
            )),
            false => Ok(request),
        }
    }
}

impl AuthorizationRequest {
    /// Whether who is signed in has to sign in anew: where another may, or where the account has nothing to confirm by.
    pub fn wants_sign_in(&self, who: &AuthenticatedSession, now: Micros) -> bool {
        let begun = who.session.created_at;
        let may_confirm = who.account.password_hash.is_some() || who.session.strongest.is_some();
        self.prompt.select_account && begun < self.proved_since.unwrap_or(now).min(now)
            || !may_confirm && self.proof_since(now).is_some_and(|since| begun < since)
    }

    pub fn lacks(&self, who: &AuthenticatedSession, app: &App, now: Micros) -> Option<Lacking> {
        let session = &who.session;
        if !session.proved.is_enough(app.factor) {
            return Some(Lacking { factor: app.factor, is_asked_of_all: true });
        }
        // What a client would like is asked of those who have it.
        let has = match self.class {
            AppFactor::Passkey => session.strongest == Some(Factor::Passkey),
            _ => session.strongest.is_some(),
        };
        if has && !session.proved.is_enough(self.class) {
            return Some(Lacking { factor: self.class, is_asked_of_all: false });
        }
        let since = self.proof_since(now)?;
        let proved = Authentication::of(session).at >= since;
        (!proved).then_some(Lacking { factor: AppFactor::Second, is_asked_of_all: false })
    }
}
