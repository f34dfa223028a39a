//! `GET` and `POST /oauth/userinfo`: what an access token tells of whose it is.

use actix_web::http::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};

use super::token::mark_unknown;
use super::{admits, answered, tell_address};
use crate::config::LiveSettings;
use crate::oidc::Claims;
use crate::web::http::extract::bearer;
use crate::web::http::{Requester, Services, ServicesData, WebResult};

pub async fn show(sender: Requester, services: ServicesData) -> HttpResponse {
    answered(&sender, &services, async |live| claims(sender.request(), &services, live).await).await
}

async fn claims(request: &HttpRequest, services: &Services, live: &LiveSettings) -> WebResult {
    let Some(sent) = bearer(request.headers()) else {
        return Ok(refused("Bearer realm=\"Gatehouse\""));
    };
    let mut found = services.grants.holder(sent).await?;
    let client = found.as_ref().and_then(|(holder, _)| live.apps.client(&holder.client));
    if let (Some((holder, _)), Some((_, client))) = (&mut found, client) {
        tell_address(services, client, holder).await?;
    }
    let told = found.as_ref().and_then(|(holder, _)| {
        let (app, client) = client?;
        admits(app, holder, services.audit.now()).then(|| Claims::of(holder, client))
    });
    Ok(match told {
        Some(claims) => HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(claims),
        None => mark_unknown(services, sent, refused("Bearer realm=\"Gatehouse\", error=\"invalid_token\"")),
    })
}

fn refused(why: &'static str) -> HttpResponse {
    HttpResponse::Unauthorized()
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((WWW_AUTHENTICATE, why))
        .finish()
}
