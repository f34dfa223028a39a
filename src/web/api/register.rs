//! `POST /api/v1/register`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::Form;
use crate::login::{Registered, Username};
use crate::web::api::{Call, Solution, UserBody, broken, invalid_unless};
use crate::web::handlers::session::renew;
use crate::web::handlers::{about_login, about_password};
use crate::web::message::{Field, FieldErrors, Message};
use crate::web::pages::forms::Typed;
use crate::web::problem::Problem;
use crate::web::services::Shared;
use crate::web::visit::{Edge, set};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    login: String,
    password: Typed,
    captcha: Option<Solution>,
}

pub async fn submit(
    request: HttpRequest,
    body: Json<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let login = parse(&body)?;
    let live = services.live.snapshot();
    let solved = call.redeem(Form::Register, &services, &live, body.captcha.as_ref()).await?;
    let address = call.client.subject();
    let password = body.password.expose();
    let registered = services.registration.register(&live, &login, password, address.as_ref(), solved).await;
    match registered.map_err(|error| broken(&error))? {
        Registered::Made(account) => {
            let old = edge.session_token(request.headers());
            let token =
                renew(&services, &account, &call.shown(), old).await.map_err(|error| broken(&error))?;
            let mut response = HttpResponse::Created().json(UserBody::from(&*account));
            set(&mut response, edge.cookies.session(&token.expose(), services.session_lasts));
            Ok(response)
        }
        Registered::LoginTaken => Err(Problem::LoginTaken),
        Registered::Unfit(unfit) => {
            Err(Problem::invalid(&FieldErrors::one(Field::Password, about_password(unfit))))
        }
        Registered::Challenged { .. } => {
            let captcha = call.challenge(Form::Register, &services, &live).await;
            Err(Problem::CaptchaRequired { captcha })
        }
        Registered::Throttled { limit, retry_after } => {
            Err(Problem::Throttled { limit: limit.into(), retry_after })
        }
        Registered::Busy { retry_after } => Err(Problem::Busy { retry_after }),
    }
}

fn parse(body: &Body) -> Result<Username, Problem> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&body.login).map_err(about_login));
    if body.password.expose().is_empty() {
        errors.add(Field::Password, Message::PasswordMissing);
    }
    invalid_unless(login, &errors)
}
