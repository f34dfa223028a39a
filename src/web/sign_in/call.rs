//! `POST /api/v1/login`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{Password, SignInAttempt, SignInOutcome, Username};
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, UserBody, broken, invalid_unless, limited_as_password};
use crate::web::kit::message::Message;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Edge, set};
use crate::web::session::renew;

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
    let (login, password) = parse(&body)?;
    let live = services.live.snapshot();
    let solved = call.redeem(CaptchaForm::Login, &services, &live, body.captcha.as_ref()).await?;
    let attempt =
        SignInAttempt { login, password, origin: call.client.origin(), client: call.shown(), solved };
    let outcome = services.sign_in.attempt(&live, attempt).await.map_err(|error| broken(&error))?;
    let refused = |problem: &Problem, wait| limited_as_password(problem.respond(), &live.limits, wait);
    Ok(match outcome {
        SignInOutcome::SignedIn(owner) => {
            let old = edge.session_token(request.headers());
            let token = renew(&services, &owner, &call.shown(), old, owner.shown()).await;
            let Some(token) = token.map_err(|error| broken(&error))? else {
                // The password was changed while this one was verified.
                return Ok(refused(&Problem::InvalidCredentials { captcha_required: false }, None));
            };
            let mut response = HttpResponse::Ok().json(UserBody::from(&owner.account));
            set(&mut response, edge.cookies.session(&token.expose(), services.session_lasts));
            call.remember_device(&mut response, &owner);
            limited_as_password(response, &live.limits, None)
        }
        SignInOutcome::Rejected { captcha_required, .. } => {
            refused(&Problem::InvalidCredentials { captcha_required }, None)
        }
        SignInOutcome::Challenged { limit, retry_after } => {
            let captcha = call.challenge(CaptchaForm::Login, &services, &live).await;
            refused(&Problem::CaptchaRequired { captcha }, Some((limit, retry_after)))
        }
        SignInOutcome::Throttled { limit, retry_after } => {
            refused(&Problem::Throttled { limit: limit.into(), retry_after }, Some((limit, retry_after)))
        }
        SignInOutcome::Busy { retry_after } => Problem::Busy { retry_after }.respond(),
    })
}

fn parse(body: &Body) -> Result<(Username, Password), Problem> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&body.login).map_err(Message::from));
    let password = Password::attempt(body.password.expose()).map_err(Message::from);
    let password = errors.take(Field::Password, password);
    invalid_unless(login.zip(password), &errors)
}
