//! What the descriptions of calls share: lists of problems, and types that say more of a field than `String`.

use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::Type;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder};

// A call names its problems under `x-problems`; `web::openapi` makes the refusing answers of them.

/// What is limited, and goes on with a solved challenge.
pub const ATTEMPT: [&str; 4] = ["captcha-required", "captcha-invalid", "throttled", "unavailable"];
/// The problems of what verifies the password of who is signed in.
pub const PASSWORD: [&str; 3] = ["invalid-credentials", "password-disabled", "busy"];
pub const NUMBER: [&str; 2] = ["invalid-phone", "country-not-allowed"];

/// A user name (RFC 8265, case folded).
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 254)]
pub struct UserName(pub String);

#[derive(ToSchema)]
#[schema(format = Password, min_length = 1, max_length = 256)]
pub struct CurrentPassword(pub String);

/// At least 15 characters, and not among the passwords that attackers try first.
#[derive(ToSchema)]
#[schema(format = Password, min_length = 15, max_length = 256)]
pub struct NewPassword(pub String);

/// A mobile number in any notation. Without a country code it belongs to `sms.default_region`.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 64)]
pub struct MobileNumber(pub String);

/// One address, as people type it: without a name, quotes or comments.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 254)]
pub struct EmailAddress(pub String);

/// Six digits. Spaces and dashes are ignored.
#[derive(ToSchema)]
#[schema(min_length = 6)]
pub struct CodeDigits(pub String);

/// Why, for the record.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 500)]
pub struct ChangeReason(pub String);

pub fn one_of(words: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words))
}

pub fn roles() -> ArrayBuilder {
    ArrayBuilder::new().items(one_of(["user", "admin"]))
}

pub fn calendar_units() -> ObjectBuilder {
    one_of(["minute", "hour", "day", "week", "month", "year"])
}

pub fn consequences() -> ObjectBuilder {
    one_of(["captcha", "block"])
}

pub fn modes() -> ObjectBuilder {
    one_of(["enforce", "monitor"])
}

/// The challenge of a proof of work, as the ALTCHA protocol (version 2) has it.
pub fn proof_of_work() -> ObjectBuilder {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let number = || ObjectBuilder::new().schema_type(Type::Integer);
    let data = ObjectBuilder::new().schema_type(Type::Object).property("id", text()).required("id");
    let mut parameters =
        ObjectBuilder::new().schema_type(Type::Object).property("data", data).required("data");
    for name in ["algorithm", "keyPrefix", "nonce", "salt"] {
        parameters = parameters.property(name, text()).required(name);
    }
    for name in ["cost", "expiresAt", "keyLength"] {
        parameters = parameters.property(name, number()).required(name);
    }
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "The challenge of a proof of work (ALTCHA, version 2) to solve instead. Left out if none are offered.",
        ))
        .property("parameters", parameters)
        .required("parameters")
        .property("signature", text())
        .required("signature")
}

/// What a challenge for a passkey is for.
pub fn passkey_purposes() -> ObjectBuilder {
    one_of(["sign-in", "second-step", "confirm", "add"])
}

/// `PublicKeyCredential.toJSON()` of an answer. Browsers add fields to it.
pub fn passkey_assertion() -> ObjectBuilder {
    let fields = ["clientDataJSON", "authenticatorData", "signature"];
    credential("get", &fields, |response| response.property("userHandle", text()))
}

pub fn passkey_attestation() -> ObjectBuilder {
    let transports = || ArrayBuilder::new().items(text());
    let fields = ["clientDataJSON", "attestationObject"];
    credential("create", &fields, |response| response.property("transports", transports()))
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn credential(
    call: &str,
    required: &[&str],
    optional: impl Fn(ObjectBuilder) -> ObjectBuilder,
) -> ObjectBuilder {
    let open = Some(AdditionalProperties::FreeForm(true));
    let object = || ObjectBuilder::new().schema_type(Type::Object).additional_properties(open.clone());
    let response = required
        .iter()
        .fold(optional(object()), |response, name| response.property(*name, text()).required(*name));
    object()
        .property("id", text())
        .required("id")
        .property("type", text())
        .property("response", response)
        .required("response")
        .description(Some(format!(
            "What `navigator.credentials.{call}()` answered, as `toJSON()` writes it: binary values in base64url. Other fields of it are passed over."
        )))
}

pub fn assertion_example() -> Value {
    json!({
        "id": "lm3mWWMeAkJ5uIVnl3JX_g", "type": "public-key",
        "response": {
            "clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4uZ2V0Iiwi4oCm",
            "authenticatorData": "SZYN5YgOjGh0NBcPZHZgW4_krrmihjLHmVzzuoMdl2MFAAAAAA",
            "signature": "MEUCIQDv2dqe3wkQ",
            "userHandle": "sZu7UdV7QBFg3pX3RI2a7w",
        },
    })
}

pub fn attestation_example() -> Value {
    json!({
        "id": "lm3mWWMeAkJ5uIVnl3JX_g", "type": "public-key",
        "response": {
            "clientDataJSON": "eyJ0eXBlIjoid2ViYXV0aG4uY3JlYXRlIiwi4oCm",
            "attestationObject": "o2NmbXRkbm9uZWdhdHRTdG10oGhhdXRoRGF0YQ",
            "transports": ["internal"],
        },
    })
}

pub fn purposes() -> ObjectBuilder {
    one_of(crate::message::Purpose::ALL.map(|purpose| purpose.into_str()))
}
