//! `GET` and `POST /oauth/userinfo`: what an access token tells of whose it is.

use actix_web::http::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};

use super::token::holder;
use super::{admits, not_now, readable};
use crate::oidc::Claims;
use crate::web::http::ServicesData;
use crate::web::http::extract::bearer;

pub async fn show(request: HttpRequest, services: ServicesData) -> HttpResponse {
    let live = services.live.snapshot();
    let answer = match bearer(request.headers()) {
        None => refused("Bearer realm=\"Gatehouse\""),
        Some(sent) => {
            let Ok(found) = holder(&services, sent).await else {
                return readable(&request, &live, not_now());
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
    readable(&request, &live, answer)
}

fn refused(why: &'static str) -> HttpResponse {
    HttpResponse::Unauthorized()
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((WWW_AUTHENTICATE, why))
        .finish()
}
