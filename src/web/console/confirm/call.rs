//! `POST /api/v1/admin/confirm`: the password, shown again before something is changed.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;

use crate::login::{Password, SessionToken};
use crate::web::account::phone_call::{FORM, verify};
use crate::web::console::guard;
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, broken};
use crate::web::kit::extract::Unread;
use crate::web::kit::message::Message;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Edge, set};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    password: Typed,
    captcha: Option<Solution>,
}

pub async fn submit(
    request: HttpRequest,
    body: Unread<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let admin = guard::api::confirmation(&request, &services, &edge).await?;
    let body = body.read().await?;
    let call = Call::admit(&request, &edge)?;
    let live = services.live.snapshot();
    let about =
        |error| Problem::invalid(&FieldErrors::one(Field::Password, Message::of_current_password(error)));
    let password = Password::attempt(body.password.expose()).map_err(about)?;
    let solved = call.redeem(FORM, &services, &live, body.captcha.as_ref()).await?;
    if let Err(refusal) = verify(&call, &services, &live, &admin.who.account, password, solved).await? {
        return Ok(refusal);
    }
    let token = edge
        .session_token(request.headers())
        .and_then(SessionToken::parse)
        .ok_or(Problem::Unauthenticated)?;
    let fresh = services.sessions.confirm(&token).await.map_err(|error| broken(&error))?;
    // None where the password was changed meanwhile, which ended the session.
    let fresh = fresh.ok_or(Problem::Unauthenticated)?;
    admin.did(&services, "confirm", &json!({}));
    let mut response = HttpResponse::NoContent().finish();
    set(&mut response, edge.cookies.session(&fresh.expose(), services.session_lasts));
    Ok(response)
}
