//! `/api/v1/passkeys`: the passkeys of who is signed in; and the challenges that authenticators answer, whatever for.

use actix_web::web::{Json, Path};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::factors::{FactorOwner, exposed};
use crate::accounts::{AddRefusal, CHALLENGE_LASTS, ChallengePurpose, MOST_PASSKEYS, Passkey, PasskeyLabel};
use crate::web::http::describe::{self};
use crate::web::http::page::set;
use crate::web::http::{ApiRequest, Field, Message, Problem, ServicesData, WebResult, no_content_if};
use crate::web::second_step::require_confirmed;
use crate::web::session::{Member, MemberCall, member};
use crate::webauthn::{ALGORITHMS, Attestation, PasskeyFault};

/// What one is called that its owner did not name.
const UNNAMED: &str = "Passkey";

impl From<&AddRefusal> for Message {
    fn from(refusal: &AddRefusal) -> Self {
        match refusal {
            AddRefusal::Fault(PasskeyFault::NotVerified) => Self::PasskeyUnverified,
            AddRefusal::Fault(_) => Self::PasskeyWrong,
            AddRefusal::Known => Self::PasskeyKnown,
            AddRefusal::TooMany => Self::PasskeysTooMany { max: MOST_PASSKEYS },
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PasskeyPurpose, example = json!({ "for": "sign-in" }))]
pub struct PasskeyChallengeBody {
    /// What the answer is for; it is right for nothing else.
    #[serde(default, rename = "for")]
    #[schema(schema_with = describe::passkey_purposes, required = false)]
    purpose: ChallengePurpose,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum PasskeyOptions {
    Get(RequestOptions),
    Create(Box<CreationOptions>),
}

/// The options of an answer. Never with names of passkeys.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PasskeyRequestOptions)]
struct RequestOptions {
    challenge: String,
    /// Milliseconds.
    timeout: u64,
    rp_id: String,
    #[schema(value_type = Vec<Object>)]
    allow_credentials: Vec<Value>,
    user_verification: &'static str,
}

/// The options of a new passkey.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PasskeyCreationOptions)]
struct CreationOptions {
    #[schema(value_type = Object)]
    rp: Value,
    /// The account: its id is the user handle of its passkeys.
    #[schema(value_type = Object)]
    user: Value,
    challenge: String,
    #[schema(value_type = Vec<Object>)]
    pub_key_cred_params: Vec<Value>,
    /// Milliseconds.
    timeout: u64,
    /// The account's own passkeys, so that no authenticator gets a second one.
    #[schema(value_type = Vec<Object>)]
    exclude_credentials: Vec<Value>,
    #[schema(value_type = Object)]
    authenticator_selection: Value,
    attestation: &'static str,
    #[schema(value_type = Object)]
    extensions: Value,
}

/// Get a challenge for a passkey
///
/// The options for `navigator.credentials.get()`, or with `add`, for who is signed in and has confirmed that lately, those
/// for `create()`; binary values in base64url, as `PublicKeyCredential.parseRequestOptionsFromJSON()` reads them. They are
/// bound to the browser that asks, by the cookie `gh_browser`, and answered within five minutes, once. They name no
/// passkeys, so that nobody learns who has one. 404 where passkeys do not work: see `[passkeys]`.
#[utoipa::path(
    post,
    path = "/api/v1/passkeys/challenge",
    operation_id = "challengePasskey",
    tag = "sign-in",
    request_body = PasskeyChallengeBody,
    responses((
        status = 200,
        description = "The options.",
        body = PasskeyOptions,
        headers(("BrowserCookie"))
    )),
    extensions(("x-problems" = json!(["step-up-required", "not-found"])))
)]
pub async fn api_challenge(
    request: HttpRequest,
    body: Json<PasskeyChallengeBody>,
    call: ApiRequest,
) -> WebResult {
    let passkeys = call.services.factor_verifier.passkeys();
    let site = passkeys.site().ok_or(Problem::NotFound)?;
    let (browser, cookie) = call.named_browser();
    let challenge = URL_SAFE_NO_PAD.encode(passkeys.challenge(body.purpose, browser.bytes()));
    let timeout = CHALLENGE_LASTS.as_millis() as u64;
    let options = if body.purpose == ChallengePurpose::Add {
        let Member(who) = member(&request).await?;
        require_confirmed(&call.services, &who).await?;
        let own = passkeys.list(who.account.id).await?;
        PasskeyOptions::Create(Box::new(CreationOptions {
            rp: json!({ "id": site.id, "name": call.live.brand.name }),
            user: json!({
                "id": URL_SAFE_NO_PAD.encode(who.account.id.as_bytes()),
                "name": who.account.login.as_str(),
                "displayName": who.account.login.as_str(),
            }),
            challenge,
            pub_key_cred_params: ALGORITHMS
                .map(|number| json!({ "type": "public-key", "alg": number }))
                .to_vec(),
            timeout,
            exclude_credentials: own
                .iter()
                .map(|passkey| json!({ "type": "public-key", "id": passkey.credential }))
                .collect(),
            authenticator_selection: json!({
                "residentKey": "required", "requireResidentKey": true, "userVerification": "required"
            }),
            attestation: "none",
            extensions: json!({ "credProps": true }),
        }))
    } else {
        PasskeyOptions::Get(RequestOptions {
            challenge,
            timeout,
            rp_id: site.id.clone(),
            allow_credentials: Vec::new(),
            user_verification: "required",
        })
    };
    let mut response = HttpResponse::Ok().json(options);
    if let Some(cookie) = cookie {
        set(&mut response, cookie);
    }
    Ok(response)
}

#[derive(Serialize, ToSchema)]
#[schema(as = Passkeys)]
struct PasskeyList {
    /// The oldest first.
    passkeys: Vec<Passkey>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPasskey, example = json!({ "label": "Phone", "passkey": describe::attestation_example() }))]
pub struct AddBody {
    #[schema(schema_with = describe::passkey_attestation)]
    passkey: Attestation,
    /// What its owner calls it.
    #[schema(min_length = 1, max_length = 64, default = "Passkey")]
    label: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AddedPasskey)]
struct AddedBody {
    passkey: Passkey,
    /// Present if the account had none: each is right once. They are not told again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recovery_codes: Vec<String>,
}

/// The passkeys of the account
#[utoipa::path(
    get,
    path = "/api/v1/passkeys",
    operation_id = "listPasskeys",
    tag = "session",
    responses((status = 200, description = "At most 20.", body = PasskeyList)),
)]
pub async fn api_list(Member(who): Member, services: ServicesData) -> WebResult {
    let passkeys = services.factor_verifier.passkeys().list(who.account.id).await?;
    Ok(HttpResponse::Ok().json(PasskeyList { passkeys }))
}

/// Add a passkey
///
/// What `navigator.credentials.create()` answered to a challenge with `add`. Its authenticator has to check its user.
/// Sign-ins by password go on as before.
#[utoipa::path(
    post,
    path = "/api/v1/passkeys",
    operation_id = "addPasskey",
    tag = "session",
    request_body = AddBody,
    responses((status = 201, description = "Added.", body = AddedBody)),
    extensions(("x-problems" = json!(["step-up-required", "upgrade-unfinished"])))
)]
pub async fn api_add(MemberCall { who, call, body }: MemberCall<AddBody>) -> WebResult {
    let AddBody { passkey, label } = body;
    let label = PasskeyLabel::parse(label.as_deref().unwrap_or(UNNAMED));
    let label = label.ok_or_else(|| Problem::at(Field::Label, Message::PasskeyLabelUnfit))?;
    let owner = FactorOwner::confirmed(&call, &call.services, &who).await?;
    let added = owner.add_passkey(&passkey, &label).await?;
    let (passkey, codes) = added.map_err(|refusal| match &refusal {
        AddRefusal::Fault(fault) => Problem::wrong("passkey", format!("Not accepted: {fault}.")),
        other => Problem::at(Field::Passkey, other.into()),
    })?;
    Ok(HttpResponse::Created().json(AddedBody { passkey, recovery_codes: exposed(&codes) }))
}

/// Remove a passkey
///
/// With the account's last factor go its recovery codes, and sign-ins are not asked for a second step any more.
#[utoipa::path(
    delete,
    path = "/api/v1/passkeys/{id}",
    operation_id = "removePasskey",
    tag = "session",
    params(("id" = String, Path, example = "b19bb51d57b40116de95f7448daf9aef")),
    responses((status = 204, description = "Removed.")),
    extensions(("x-problems" = json!(["step-up-required", "not-found"])))
)]
pub async fn api_remove(Member(who): Member, id: Path<String>, call: ApiRequest) -> WebResult {
    let removed = FactorOwner::confirmed(&call, &call.services, &who).await?.remove_passkey(&id).await?;
    Ok(no_content_if(removed, Problem::NotFound)?)
}
