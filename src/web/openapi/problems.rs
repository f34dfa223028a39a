//! Problems as the document shows them: an example of each, and its schema, which is what its examples carry.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::web::kit::problem::{CaptchaBody, CaptchaChallenge, InputError, Kind, Problem, ProblemBody};

/// One of each kind that carries more than its texts. Two of one kind: what only one carries is optional.
fn samples() -> [Problem; 10] {
    let captcha = CaptchaBody::Challenge(CaptchaChallenge::example());
    let (limit, retry_after) = ("login-account", Duration::from_secs(57));
    let message = "Use 15 characters or more.".into();
    let diff = "--- in force\n+++ draft\n@@ -1,2 +1,2 @@\n [limits.sms-phone]\n-rules = [{ max = 1, window = \"1m\" }]\n\
        +rules = [{ max = 2, window = \"1m\" }]\n";
    [
        Problem::InvalidCredentials { captcha_required: false },
        Problem::CaptchaRequired { captcha: captcha.clone() },
        Problem::CaptchaInvalid { captcha },
        Problem::Throttled { limit: limit.into(), retry_after },
        Problem::LimitFull { limit: limit.into(), retry_after },
        Problem::Busy { retry_after: Duration::from_secs(1) },
        Problem::BROKEN,
        Problem::InvalidInput { errors: vec![InputError { field: "password".into(), message }] },
        Problem::PreconditionFailed { version: "5d1f0c2a9b3e".into(), diff: diff.into() },
        Problem::NotSaved {
            reason: "the folder of gatehouse.toml cannot be written (Permission denied); let the server write there"
                .into(),
        },
    ]
}

/// What such a problem carries, in each of its forms.
fn forms(kind: Kind) -> Vec<Map<String, Value>> {
    let samples = samples();
    let mut forms: Vec<ProblemBody> =
        samples.iter().filter(|sample| sample.kind() == kind).map(Problem::body).collect();
    if forms.is_empty() {
        forms.push(ProblemBody::of(kind));
    }
    let fields = |form| match serde_json::to_value(form) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a problem is an object"),
    };
    forms.into_iter().map(fields).collect()
}

pub fn example(kind: Kind) -> Value {
    json!({ "summary": kind.title, "value": forms(kind).swap_remove(0) })
}

/// `all` is the schema of every field that a problem may carry.
pub fn schema(kind: Kind, all: &Value) -> Value {
    let forms = forms(kind);
    let mut properties = Map::new();
    for name in forms.iter().flat_map(Map::keys) {
        properties.insert(name.clone(), all["properties"][name].clone());
    }
    for name in ["type", "status"] {
        properties[name]["const"] = forms[0][name].clone();
    }
    let required: Vec<_> =
        forms[0].keys().filter(|name| forms.iter().all(|form| form.contains_key(*name))).collect();
    json!({
        "type": "object",
        "description": format!("{}.", kind.title),
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

/// The header fields of a refusal, by their names among the components.
pub fn headers(kind: Kind) -> Vec<&'static str> {
    let mut headers = Vec::new();
    if forms(kind)[0].contains_key("retry_after") {
        headers.push("RetryAfter");
    }
    if kind.status == 401 || kind.name == "insufficient-scope" {
        headers.push("WwwAuthenticate");
    }
    if ["throttled", "captcha-required", "invalid-credentials", "invalid-code"].contains(&kind.name) {
        headers.extend(["RateLimitPolicy", "RateLimit"]);
    }
    headers
}

/// `InvalidInputProblem`
pub fn schema_name(kind: Kind) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    kind.name.split('-').map(capital).collect::<String>() + "Problem"
}
