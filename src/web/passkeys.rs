//! What an authenticator answered, in a call or in the field `passkey` of a form, into which the script puts it; and
//! `POST /api/v1/passkeys/login`: signing in with that alone.

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{Account, FirstFactor, Proof};
use crate::captcha::CaptchaForm;
use crate::login::PasskeyOutcome;
use crate::web::http::describe::{self, ATTEMPT};
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, CountedAs, Field, FieldErrors, Message, Problem,
    WebResult,
};
use crate::web::session::{UserBody, welcome_program};
use crate::webauthn::Assertion;

const FORM: CaptchaForm = CaptchaForm::Login;

/// What a form sent, if it is of an authenticator that has checked its user. Otherwise it says how to make it.
pub fn parse(text: &str, errors: &mut FieldErrors) -> Option<Assertion> {
    let read = serde_json::from_str::<Assertion>(text).map_err(|_| Message::PasskeyWrong);
    let shown = read.and_then(|shown| match shown.is_user_verified() {
        true => Ok(shown),
        false => Err(Message::PasskeyUnverified),
    });
    errors.take(Field::Passkey, shown)
}

/// The account of a passkey that signs in alone.
pub async fn sign_in(by: &Actor<'_>, shown: &Assertion) -> Result<(Account, Proof), ActionRefusal> {
    let (solved, browser) = (by.redeem().await?, by.browser());
    let from = (&by.origin, by.known());
    match by.services.factor_verifier.sign_in(by.live, shown, browser, from, solved).await? {
        PasskeyOutcome::SignedIn(account, _) if by.is_refused(&account) => Err(Problem::Denied.into()),
        PasskeyOutcome::SignedIn(account, proof) => {
            Ok((*account, Proof { first: FirstFactor::Passkey, second: vec![proof] }))
        }
        PasskeyOutcome::Wrong => Err(Problem::InvalidPasskey.into()),
        PasskeyOutcome::Denied(denied) => Err(Problem::denied(denied, CountedAs::Factor).into()),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PasskeyLogin, example = json!({ "passkey": describe::assertion_example() }))]
pub struct PasskeyLoginBody {
    #[schema(schema_with = describe::passkey_assertion)]
    passkey: Assertion,
    captcha: Option<CaptchaSolution>,
}

/// Sign in with a passkey
///
/// Without a name: the passkey tells whose it is. It counts as both factors, because its authenticator has checked its user.
/// A wrong one counts on the client's address and its network, or on the device if the cookie `gh_device` shows one that the
/// account in `userHandle` knows, and is answered the same whether anybody has it or not.
#[utoipa::path(
    post,
    path = "/api/v1/passkeys/login",
    operation_id = "loginByPasskey",
    tag = "sign-in",
    request_body = PasskeyLoginBody,
    responses((
        status = 200,
        description = "Signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, "invalid-passkey", "account-frozen", "not-found"])))
)]
pub async fn api_login(body: Json<PasskeyLoginBody>, call: ApiRequest) -> WebResult {
    if call.services.factor_verifier.passkeys().site().is_none() {
        return Err(Problem::NotFound.into());
    }
    let signed_in = sign_in(&call.actor(FORM, body.captcha.as_ref()), &body.passkey).await;
    let (account, proof) = call.told(FORM, signed_in).await?;
    let response = welcome_program(&call, &account, proof, HttpResponse::Ok()).await?;
    // The account was changed meanwhile.
    Ok(response.ok_or(Problem::InvalidPasskey)?)
}
