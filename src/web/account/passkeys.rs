//! `/api/v1/passkeys`: the passkeys of who is signed in, for the page of the factors, too; and the challenges that
//! authenticators answer, whatever for.

use actix_web::web::{Json, Path};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::accounts::{
    AddRefusal, Attestation, AuthenticatedSession, CHALLENGE_LASTS, ChallengePurpose, Factor, MOST_PASSKEYS,
    Passkey, PasskeyId, PasskeyLabel, RecoveryCode,
};
use crate::audit::Action;
use crate::web::http::describe::{self, BODY, MEMBER};
use crate::web::http::page::{Requester, set};
use crate::web::http::{
    ApiRequest, Field, Message, Moment, Problem, Services, ServicesData, WebError, WebResult,
};
use crate::web::passkeys::Base64Bytes;
use crate::web::second_step::{note_browser, record_factor, refuse_while_upgrading, require_confirmed};
use crate::web::session::{Member, member};
use crate::webauthn::{ALGORITHMS, PasskeyFault};

/// What one is called that its owner did not name.
const UNNAMED: &str = "Passkey";

/// `PublicKeyCredential.toJSON()` of a new passkey; browsers add fields to it.
#[derive(Deserialize)]
pub struct AttestationJson {
    response: AttestationFields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttestationFields {
    #[serde(rename = "clientDataJSON")]
    client_data: Base64Bytes,
    attestation_object: Base64Bytes,
    #[serde(default)]
    transports: Vec<String>,
}

/// Adds one, and records that.
async fn add(
    sender: &Requester,
    services: &Services,
    who: &AuthenticatedSession,
    (made, browser): (AttestationJson, Option<[u8; 16]>),
    label: &PasskeyLabel,
) -> Result<Result<(Passkey, Vec<RecoveryCode>), AddRefusal>, WebError> {
    refuse_while_upgrading(services).await?;
    let AttestationFields { client_data, attestation_object, transports } = made.response;
    let made = Attestation {
        browser,
        client_data: client_data.0,
        attestation_object: attestation_object.0,
        transports,
    };
    let passkeys = services.factor_verifier.passkeys();
    let added = passkeys.add(who.account.id, who.session.id, &made, label).await?;
    if added.is_ok() {
        note_browser(sender, services, &who.account).await?;
        record_factor(sender, services, who, Action::FactorAdded, Factor::Passkey);
    }
    Ok(added)
}

/// The recovery codes that come with it, often none; or what is wrong at which field.
pub async fn add_by_form(
    sender: &Requester,
    services: &Services,
    who: &AuthenticatedSession,
    (made, browser): (&str, [u8; 16]),
    label: &str,
) -> Result<Result<Vec<RecoveryCode>, (Field, Message)>, WebError> {
    let Some(label) = PasskeyLabel::parse(label) else {
        return Ok(Err((Field::Label, Message::PasskeyLabelUnfit)));
    };
    let Ok(made) = serde_json::from_str::<AttestationJson>(made) else {
        return Ok(Err((Field::Passkey, Message::PasskeyWrong)));
    };
    let added = add(sender, services, who, (made, Some(browser)), &label).await?;
    Ok(added.map(|(_, codes)| codes).map_err(|refusal| (Field::Passkey, (&refusal).into())))
}

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

pub async fn remove(
    sender: &Requester,
    services: &Services,
    who: &AuthenticatedSession,
    id: &str,
) -> Result<bool, WebError> {
    let Some(id) = PasskeyId::parse(id) else { return Ok(false) };
    let removed = services.factor_verifier.passkeys().remove(who.account.id, id).await?;
    if removed {
        record_factor(sender, services, who, Action::FactorRemoved, Factor::Passkey);
    }
    Ok(removed)
}

// The calls.

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

/// Of an answer. Never with names of passkeys.
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

/// Of a new passkey.
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
    security((), ("session" = [])),
    extensions(("x-problems" = json!([BODY, MEMBER, "csrf", "step-up-required", "not-found"])))
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
#[schema(as = Passkey)]
struct PasskeyBody {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    label: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// Left out if it was not used yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    last_used_at: Option<String>,
    /// It is kept by a password manager or a cloud, too.
    backed_up: bool,
    /// The domain that it is for: it works nowhere else.
    rp_id: String,
}

impl From<Passkey> for PasskeyBody {
    fn from(passkey: Passkey) -> Self {
        Self {
            id: passkey.id.to_string(),
            label: passkey.label,
            created_at: Moment(passkey.created_at).iso(),
            last_used_at: passkey.last_used_at.map(|at| Moment(at).iso()),
            backed_up: passkey.backed_up,
            rp_id: passkey.rp_id,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Passkeys)]
struct PasskeyList {
    /// The oldest first.
    passkeys: Vec<PasskeyBody>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPasskey, example = json!({ "label": "Phone", "passkey": describe::attestation_example() }))]
pub struct AddBody {
    #[schema(schema_with = describe::passkey_attestation)]
    passkey: AttestationJson,
    /// What its owner calls it.
    #[schema(min_length = 1, max_length = 64, default = "Passkey")]
    label: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AddedPasskey)]
struct AddedBody {
    passkey: PasskeyBody,
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
    security(("session" = [])),
    extensions(("x-problems" = json!([MEMBER])))
)]
pub async fn api_list(Member(who): Member, services: ServicesData) -> WebResult {
    let passkeys = services.factor_verifier.passkeys().list(who.account.id).await?;
    let passkeys = passkeys.into_iter().map(PasskeyBody::from).collect();
    Ok(HttpResponse::Ok().json(PasskeyList { passkeys }))
}

/// Add a passkey
///
/// What `navigator.credentials.create()` answered to a challenge with `add`. Its authenticator has to check its user. Sign-ins
/// by password go on as before.
#[utoipa::path(
    post,
    path = "/api/v1/passkeys",
    operation_id = "addPasskey",
    tag = "session",
    request_body = AddBody,
    responses((status = 201, description = "Added.", body = AddedBody)),
    security(("session" = [])),
    extensions(("x-problems" = json!([BODY, MEMBER, "csrf", "step-up-required", "upgrade-unfinished"])))
)]
pub async fn api_add(body: Json<AddBody>, Member(who): Member, call: ApiRequest) -> WebResult {
    let AddBody { passkey, label } = body.into_inner();
    let label = PasskeyLabel::parse(label.as_deref().unwrap_or(UNNAMED));
    let label = label.ok_or_else(|| Problem::at(Field::Label, Message::PasskeyLabelUnfit))?;
    require_confirmed(&call.services, &who).await?;
    let browser = call.browser.map(|browser| *browser.bytes());
    let (passkey, codes) = add(&call, &call.services, &who, (passkey, browser), &label).await?.map_err(
        |refusal| match &refusal {
            AddRefusal::Fault(fault) => Problem::wrong("passkey", format!("Not accepted: {fault}.")),
            other => Problem::at(Field::Passkey, other.into()),
        },
    )?;
    Ok(HttpResponse::Created().json(AddedBody {
        passkey: passkey.into(),
        recovery_codes: codes.iter().map(RecoveryCode::expose).collect(),
    }))
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
    security(("session" = [])),
    extensions(("x-problems" = json!([MEMBER, "csrf", "step-up-required", "not-found"])))
)]
pub async fn api_remove(Member(who): Member, id: Path<String>, call: ApiRequest) -> WebResult {
    require_confirmed(&call.services, &who).await?;
    match remove(&call, &call.services, &who, &id).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::NotFound.into()),
    }
}
