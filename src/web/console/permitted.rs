//! Who may make a call of the admin API: an administrator with a session, or a program with a token that names
//! the call's scope. The type of a handler's argument says which.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{Error, FromRequest, HttpRequest};

use crate::login::AdminScope;
use crate::web::console::guard::{self, AccessKind, Admin};
use crate::web::kit::client::ClientAddress;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::token;
use crate::web::kit::visit::Edge;
use crate::web::kit::web_error::WebError;

/// A part of the admin API.
pub trait AdminPart {
    /// A token needs one of these.
    const SCOPES: &'static [AdminScope];
    /// What a session needs for it, of a request that is ours or another site's.
    const KIND: fn(bool) -> AccessKind;
}

const READ: fn(bool) -> AccessKind = |_| AccessKind::Read;
const TRY: fn(bool) -> AccessKind = |ours| AccessKind::Try { ours };
const CHANGE: fn(bool) -> AccessKind = |ours| AccessKind::Change { ours };

macro_rules! admin_parts {
    ($($(#[$doc:meta])* $part:ident = $kind:ident, [$($scope:ident),+];)+) => {
        $($(#[$doc])* pub struct $part;

        impl AdminPart for $part {
            const SCOPES: &'static [AdminScope] = &[$(AdminScope::$scope),+];
            const KIND: fn(bool) -> AccessKind = $kind;
        })+
    };
}

admin_parts! {
    ReadLimits = READ, [LimitsRead, LimitsWrite];
    TryLimits = TRY, [LimitsRead, LimitsWrite];
    SaveLimits = CHANGE, [LimitsWrite];
    ReadAccess = READ, [LimitsRead, AccessWrite];
    SaveAccess = CHANGE, [AccessWrite];
    ReadApps = READ, [LimitsRead, AppsWrite];
    SaveApps = CHANGE, [AppsWrite];
    /// It names accounts.
    TryApps = TRY, [AppsWrite];
    ReadEvents = READ, [EventsRead];
    ReadSubjects = READ, [EventsRead, SubjectsClear];
    /// What lets somebody in again, or messages through.
    ClearSubjects = CHANGE, [SubjectsClear];
    ReadAccounts = READ, [AccountsWrite];
    ChangeAccounts = CHANGE, [AccountsWrite];
}

/// May make this call, or is refused.
pub struct Permitted<P> {
    pub admin: Admin,
    part: PhantomData<P>,
}

impl<P: AdminPart> FromRequest for Permitted<P> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let admin = if token::is_sent(&request) {
                by_token(&request, P::SCOPES).await
            } else {
                guard::guard_request(&request, P::KIND).await
            };
            Ok(Self { admin: admin?, part: PhantomData })
        })
    }
}

/// A token is as good as its maker: it ends when they are no administrator any more.
async fn by_token(request: &HttpRequest, scopes: &[AdminScope]) -> Result<Admin, WebError> {
    let parts = (request.app_data::<Shared>(), request.app_data::<Data<Edge>>());
    let (Some(services), Some(edge)) = parts else { return Err(Problem::Internal.into()) };
    let client = ClientAddress::of(request, &edge.trusted);
    let bearer = token::admit(request, services, client).await?;
    let maker = services.accounts.by_id(bearer.made_by).await?;
    let maker =
        maker.filter(|maker| maker.roles.admin && !maker.must_change_password && maker.disabled_at.is_none());
    let admin = Admin::by_token(maker.ok_or(Problem::InvalidToken)?, &bearer, client);
    if scopes.iter().any(|scope| bearer.scopes.open(*scope)) {
        return Ok(admin);
    }
    let path = request.match_pattern().unwrap_or_default();
    Err(guard::out_of_scope(services, &admin, &path).into())
}
