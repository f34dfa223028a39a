//! `POST` and `DELETE /api/v1/account/phone`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::Form;
use crate::login::{CodeEntry, Given};
use crate::web::api::sms::{not_opened, parse_code, parse_phone};
use crate::web::api::{Call, Solution, broken};
use crate::web::pages::forms::Typed;
use crate::web::problem::Problem;
use crate::web::services::Shared;
use crate::web::visit::Edge;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    phone: Typed,
    code: Typed,
    captcha: Option<Solution>,
}

/// Gives the account the number, in place of the one that it may have.
pub async fn set_phone(
    request: HttpRequest,
    body: Json<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let who = call.member(&services, &edge).await?;
    let live = services.live.snapshot();
    let (phone, code) = (parse_phone(&live, &body.phone)?, parse_code(&body.code)?);
    let solved = call.redeem(Form::SmsCode, &services, &live, body.captcha.as_ref()).await?;
    let address = call.client.subject();
    let entry = CodeEntry { phone: &phone, code: &code, address: address.as_ref(), solved };
    match services.by_code.give(&live, &who.account, entry).await.map_err(|error| broken(&error))? {
        Given::Done => Ok(HttpResponse::NoContent().finish()),
        Given::PhoneTaken => Err(Problem::PhoneTaken),
        Given::Not(not) => Ok(not_opened(&call, Form::SmsCode, &services, &live, not).await),
    }
}

/// 204 also where there is none.
pub async fn remove_phone(
    request: HttpRequest,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let who = call.member(&services, &edge).await?;
    match services.by_code.take_away(&who.account).await.map_err(|error| broken(&error))? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::OnlyWayIn),
    }
}
