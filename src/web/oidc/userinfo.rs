//! `GET` and `POST /oauth/userinfo`: what an access token tells of whose it is.

use actix_web::http::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};

use super::{admits, readable};
use crate::accounts::SessionToken;
use crate::oidc::Claims;
use crate::web::http::extract::bearer;
use crate::web::http::{ServicesData, WebResult};

pub async fn show(request: HttpRequest, services: ServicesData) -> WebResult {
    let live = services.live.snapshot();
    let answer = match bearer(request.headers()) {
        None => refused("Bearer realm=\"Gatehouse\""),
        Some(sent) => {
            let found = match SessionToken::parse(sent) {
                Some(token) => services.grants.holder(&token).await?,
                None => None,
            };
            let told = found.as_ref().and_then(|(holder, _)| {
                let (app, client) = live.apps.client(&holder.client)?;
                admits(app, holder, services.audit.now()).then(|| Claims::of(holder, client))
            });
            match told {
                Some(claims) => HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(claims),
                None => refused("Bearer realm=\"Gatehouse\", error=\"invalid_token\""),
            }
        }
    };
    Ok(readable(&request, &live, answer))
}

fn refused(why: &'static str) -> HttpResponse {
    HttpResponse::Unauthorized()
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((WWW_AUTHENTICATE, why))
        .finish()
}
