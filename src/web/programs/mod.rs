//! What other programs call, by token; a handler asks by name for what the token must be for.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};

use crate::accounts::{ProgramScope, Realm, TokenBearer};
use crate::captcha::RedeemResult;
use crate::config::LiveSettings;
use crate::web::http::row::{Caller, Checks, HandlerArgument, RowFacts};
use crate::web::http::{
    CaptchaSolution, ChallengeContext, ClientAddress, Problem, Requester, SecretField, Services,
    ServicesData, TrustedProxies, app_data, extract,
};
use gatehouse_limiter::Limit;

pub mod attempts;
pub mod limits;
pub mod relay;
pub mod verifications;
pub mod wforce;

/// A program whose token opens the row of its call, or it is refused before anything is read of what it sends. As a handler's
/// argument.
pub struct Program {
    pub sender: Requester,
    pub services: ServicesData,
    bearer: Arc<TokenBearer>,
}

impl Program {
    async fn of(request: &HttpRequest) -> Result<Self, Problem> {
        let (services, edge) = app_data(request)?;
        let sender = Requester::of(request, edge.clone());
        let caller = RowFacts::of(request).ok_or(Problem::Internal)?.caller;
        let bearer = match caller {
            Caller::MailServer => extract::admit_program(request, services, sender.client).await?,
            _ => extract::admit_token(request, services, sender.client).await?,
        };
        let opens = match caller {
            Caller::Program(kind) => bearer.scopes.program(kind).is_some(),
            Caller::MailServer => bearer.scopes.program(ProgramScope::Guard).is_some(),
            // What limits there are is nobody else's to know.
            Caller::LimitUser => {
                request.match_info().get("name").is_some_and(|name| bearer.scopes.hold(name))
            }
            _ => return Err(Problem::Internal),
        };
        if opens {
            Ok(Self { sender, services: services.clone(), bearer })
        } else {
            Err(Problem::InsufficientScope)
        }
    }

    /// `guard:NAME`: it asks before it looks at passwords.
    pub fn guard(&self) -> Result<&Realm, Problem> {
        self.realm(ProgramScope::Guard)
    }

    /// `verify:NAME`: it may have codes sent, and checks them.
    pub fn verify(&self) -> Result<&Realm, Problem> {
        self.realm(ProgramScope::Verify)
    }

    /// `relay:NAME`: an identity provider whose codes are sent.
    pub fn relay(&self) -> Result<&Realm, Problem> {
        self.realm(ProgramScope::Relay)
    }

    fn realm(&self, kind: ProgramScope) -> Result<&Realm, Problem> {
        self.bearer.scopes.program(kind).ok_or(Problem::InsufficientScope)
    }

    /// A custom limit that the program may use.
    pub fn limit(&self, name: &str) -> Result<Limit, Problem> {
        if !self.bearer.scopes.hold(name) {
            return Err(Problem::InsufficientScope);
        }
        self.sender.settings(&self.services).limits.custom.get(name).cloned().ok_or(Problem::UnknownLimit)
    }
}

impl HandlerArgument for Program {
    const CHECKS: &'static [Checks] = &[Checks::Program];
}

/// For a handler with its own answer to a refusal.
impl HandlerArgument for Result<Program, Problem> {
    const CHECKS: &'static [Checks] = &[Checks::Program];
}

impl FromRequest for Program {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { Self::of(&request).await })
    }
}

/// The client that a program serves.
fn parse_client(address: &SecretField, trusted: &TrustedProxies) -> Result<ClientAddress, &'static str> {
    let address = address.expose().parse::<IpAddr>();
    address
        .map(|address| ClientAddress::at(address, trusted))
        .map_err(|_| "Send an IPv4 or IPv6 address, without a port.")
}

/// Whether a challenge was solved with a request for such a client; None if the answer was wrong. A form may pass its
/// empty fields on, too.
async fn redeem(
    asker: ChallengeContext<'_>,
    services: &Services,
    live: &LiveSettings,
    solution: Option<&CaptchaSolution>,
) -> Result<Option<bool>, Problem> {
    let Some(solution) = solution else { return Ok(Some(false)) };
    match asker.redeem(services, live, solution.answer()).await {
        Some(RedeemResult::Solved) => Ok(Some(true)),
        None => Ok(Some(false)),
        Some(RedeemResult::Busy) => Err(Problem::CaptchaBusy),
        Some(_) => Ok(None),
    }
}
