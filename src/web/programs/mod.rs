//! What other programs call, by token; the type of a handler's argument says what that must be for.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};

use crate::accounts::{Realm, TokenScopes};
use crate::web::http::{ClientAddress, Problem, ServicesData, WebContext, extract};

pub mod attempts;
pub mod limits;
pub mod relay;
pub mod verifications;
pub mod wforce;

/// A kind of scope that names one program.
pub trait ProgramScope {
    /// The name, if the token has such a scope.
    fn name(scopes: &TokenScopes) -> Option<&Realm>;
}

/// `guard:NAME`: it asks before it looks at passwords.
pub struct Guard;

/// `verify:NAME`: it may have codes sent, and checks them.
pub struct Verify;

impl ProgramScope for Guard {
    fn name(scopes: &TokenScopes) -> Option<&Realm> {
        scopes.realm()
    }
}

impl ProgramScope for Verify {
    fn name(scopes: &TokenScopes) -> Option<&Realm> {
        scopes.verify()
    }
}

/// Has a token with such a scope, or is refused.
pub struct Program<S> {
    /// As the scope says: its attempts, codes and challenges belong to it.
    pub name: Realm,
    pub services: ServicesData,
    pub edge: Data<WebContext>,
    scope: PhantomData<S>,
}

impl<S: ProgramScope> FromRequest for Program<S> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let parts = (request.app_data::<ServicesData>(), request.app_data::<Data<WebContext>>());
            let (Some(services), Some(edge)) = parts else { return Err(Problem::Internal) };
            let client = ClientAddress::of(&request, &edge.trusted);
            let bearer = extract::admit_token(&request, services, client).await?;
            let name = S::name(&bearer.scopes).ok_or(Problem::InsufficientScope)?.clone();
            Ok(Self { name, services: services.clone(), edge: edge.clone(), scope: PhantomData })
        })
    }
}
