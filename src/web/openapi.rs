//! `/openapi.json`: the API described. Each call is annotated at its handler and each body at its type; here is
//! what they share, and what annotations cannot say or would repeat: what the row of a call asks for, its refusals from the
//! names of its problems, shared headers, closed objects, and examples where readers look for them. A test holds answers to
//! the document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::web::http::assets::PublicBody;
use crate::web::http::problem::{Kind, kind_named};
use crate::web::http::row::{AccessKind, Caller, DescribedCall, Origin, Row, RowFacts};
use crate::web::http::{CaptchaBody, CaptchaChallenge, InputError, Problem, ProblemBody};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Gatehouse",
        description = "Bodies are JSON, with `Content-Type: application/json`; a field that is not listed is \
            refused. Refusals are problem details (RFC 9457); the page at their `type` says more. The session is a \
            cookie, as on the pages. A call that changes something is refused if its Origin, Referer or \
            Sec-Fetch-Site names another site."
    ),
    servers((url = "/")),
    tags(
        (name = "sign-in", description = "With a password, a code by SMS or a passkey, and what leads there."),
        (name = "sms", description = "Codes by SMS."),
        (name = "mail", description = "Codes by e-mail."),
        (name = "session", description = "Who is signed in, and signing out."),
        (name = "account", description = "What users change of their own account."),
        (name = "limits", description = "Hits on custom limits, for other programs."),
        (name = "guard", description = "Attempts at the logins of other programs."),
        (name = "verify", description = "Codes by SMS, for other programs."),
        (name = "relay", description = "Codes by SMS that identity providers make themselves."),
        (name = "admin", description = "For administrators."),
        (name = "operations", description = "For operators and monitoring.")
    ),
    components(schemas(ProblemBody))
)]
struct Lead;

/// Describes the calls of the table.
pub fn describe(rows: Vec<Row>) -> Value {
    let mut api = Lead::openapi();
    let (mut asked, components) = (Vec::new(), api.components.get_or_insert_default());
    for Row { facts, call, .. } in rows {
        let Some(DescribedCall { method, tags, mut operation, schemas }) = call else { continue };
        operation.tags = Some(tags.into_iter().map(str::to_owned).collect());
        components.schemas.extend(schemas);
        api.paths.add_path_operation(facts.path.as_str(), vec![method], operation);
        asked.push(facts);
    }
    let mut document = serde_json::to_value(api).expect("strings and numbers are JSON");
    for facts in asked {
        let method = facts.methods[0].as_str().to_lowercase();
        ask(&mut document["paths"][facts.path.as_str()][method], &facts);
    }
    finish(document)
}

/// What a row asks for: the credentials of its caller, and the problems of those who lack them.
fn ask(operation: &mut Value, row: &RowFacts) {
    const SIGNED_OUT: [&str; 3] = ["unauthenticated", "factor-setup-required", "unavailable"];
    const PROGRAM: [&str; 4] = ["invalid-token", "insufficient-scope", "throttled", "unavailable"];
    let session = json!({ "session": [] });
    let (security, problems) = match row.caller {
        Caller::MaybeMember => {
            (json!([{}, session]), [&SIGNED_OUT[..], &["password-change-required"]].concat())
        }
        Caller::Session => (json!([session]), SIGNED_OUT.to_vec()),
        Caller::Member => (json!([session]), [&SIGNED_OUT[..], &["password-change-required"]].concat()),
        Caller::Admin(kind, scopes) => {
            let mut problems = [&SIGNED_OUT[..], &["password-change-required", "forbidden"]].concat();
            if kind == AccessKind::Change {
                problems.push("confirmation-required");
            }
            match scopes.first() {
                None => (json!([session]), problems),
                Some(scope) => {
                    problems.extend(&PROGRAM[..3]);
                    (json!([session, { "token": [scope.into_str()] }]), problems)
                }
            }
        }
        Caller::Program(_) => (json!([{ "token": [] }]), PROGRAM.to_vec()),
        Caller::LimitUser => (json!([{ "token": [] }]), [&PROGRAM[..], &["unknown-limit"]].concat()),
        _ => (json!([]), Vec::new()),
    };
    // Left out, it would not say whether a call needs nothing or was forgotten.
    operation["security"] = security;
    let csrf: &[&str] = if row.origin == Origin::Call { &["csrf"] } else { &[] };
    let body = &operation["requestBody"];
    let body: &[&str] = if body["required"] == true { &BODY } else { &[] };
    match operation["x-problems"].as_array_mut() {
        Some(named) => named.extend([json!(problems), json!(csrf), json!(body)]),
        None => operation["x-problems"] = json!([problems, csrf, body]),
    }
}

/// The description of the table, as data of the application.
#[derive(Clone, Copy)]
pub struct ApiDocument(pub &'static LazyLock<Value>);

impl ApiDocument {
    pub fn of(request: &HttpRequest) -> Result<&'static Value, Problem> {
        let Self(document) = *request.app_data::<Self>().ok_or(Problem::Internal)?;
        Ok(document)
    }
}

pub async fn serve(request: HttpRequest) -> Result<HttpResponse, Problem> {
    static BODY: OnceLock<PublicBody> = OnceLock::new();
    let document = ApiDocument::of(&request)?;
    let body = BODY.get_or_init(|| PublicBody::new("application/json", document.to_string()));
    Ok(body.respond(&request, "no-cache"))
}

/// What a call with a body may answer before anything else.
const BODY: [&str; 5] =
    ["malformed-json", "request-timeout", "payload-too-large", "unsupported-media-type", "invalid-input"];

/// A header field, by the name that answers use.
struct SharedHeader {
    name: &'static str,
    field: &'static str,
    required: bool,
    description: &'static str,
    example: &'static str,
}

const fn header(
    name: &'static str,
    field: &'static str,
    required: bool,
    description: &'static str,
    example: &'static str,
) -> SharedHeader {
    SharedHeader { name, field, required, description, example }
}

const HEADERS: [SharedHeader; 8] = [
    header("RetryAfter", "Retry-After", true, "Whole seconds, rounded up.", "57"),
    header(
        "WwwAuthenticate",
        "WWW-Authenticate",
        true,
        "No browser asks for a password because of it.",
        "Cookie realm=\"gatehouse\"",
    ),
    header(
        "SessionCookie",
        "Set-Cookie",
        true,
        "The session: `gh_session`, or `__Host-gh_session` on https; HttpOnly, SameSite=Lax.",
        "gh_session=…; HttpOnly; SameSite=Lax; Path=/",
    ),
    header(
        "SignInCookies",
        "Set-Cookie",
        true,
        "Two cookies. The session, or its end after a password reset. And `gh_device`, or `__Host-gh_device` on \
            https, by which the account knows this browser for 180 days: it signs nobody in, but failed passwords \
            from this browser count on login-device rather than on login-account, login-address and login-network.",
        "gh_device=…; HttpOnly; SameSite=Lax; Path=/",
    ),
    header(
        "BrowserCookie",
        "Set-Cookie",
        false,
        "`gh_browser`, or `__Host-gh_browser` on https: a random name of the browser. The first browser that asks \
            for a number's code has its wrong guesses counted apart. Left out if the call sent one.",
        "gh_browser=…; HttpOnly; SameSite=Lax; Path=/",
    ),
    header(
        "RateLimitPolicy",
        "RateLimit-Policy",
        false,
        "The rules that apply (draft-ietf-httpapi-ratelimit-headers-10). Left out if none is enforced.",
        "\"login-account\";q=3;w=60",
    ),
    header(
        "RateLimit",
        "RateLimit",
        false,
        "The rule that binds, what it has left (`r`), and in how many seconds there is more (`t`). Left out if there is \
            nothing to tell.",
        "\"login-account\";r=0;t=57",
    ),
    header("Version", "ETag", true, "The version of the limits, for If-Match.", "\"5d1f0c2a9b3e\""),
];

/// Schemas of bodies that need some of their optional fields, with the ways to send them. Of all but the solution of
/// a challenge, two ways at once are refused.
const CHOICES: [(&str, &[&[&str]]); 6] = [
    ("AppsPreviewRequest", &[&["apps"], &["toml"]]),
    ("AppsRequest", &[&["apps"], &["toml"]]),
    ("LimitsRequest", &[&["limits"], &["toml"]]),
    ("PreviewRequest", &[&["limits"], &["toml"]]),
    ("SecondFactor", &[&["totp"], &["recovery"], &["passkey"]]),
    (SOLUTION, &[&["id", "answer"], &["altcha"]]),
];
const SOLUTION: &str = "Solution";

fn finish(mut document: Value) -> Value {
    document["info"]["summary"] = "Exact login throttling, and protection of SMS codes against abuse.".into();
    let mut schemas = document["components"]["schemas"].take();
    let mut kinds = BTreeMap::new();
    for operation in fields_mut(&mut document["paths"]).flat_map(fields_mut) {
        for answer in fields_mut(&mut operation["responses"]) {
            share_headers(answer);
            show_example(answer, &schemas);
        }
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            never_null(&mut parameter["schema"]);
        }
        if operation.get("requestBody").is_some() {
            show_example(&mut operation["requestBody"], &schemas);
        }
        let says_when =
            operation.as_object_mut().is_none_or(|call| call.remove("x-never-says-when").is_none());
        for (status, refused) in refusals(operation) {
            operation["responses"][&status] = refusal(&refused);
            if let (false, Some(headers)) =
                (says_when, operation["responses"][&status]["headers"].as_object_mut())
            {
                headers.remove("Retry-After");
            }
            kinds.extend(refused.into_iter().map(|kind| (kind.name, kind)));
        }
    }
    flatten(&mut schemas);
    for schema in fields_mut(&mut schemas) {
        close(schema);
    }
    for (name, ways) in CHOICES {
        choose(&mut schemas[name], ways, if name == SOLUTION { "anyOf" } else { "oneOf" });
    }
    let problem =
        schemas.as_object_mut().and_then(|schemas| schemas.remove("ProblemBody")).unwrap_or_default();
    for kind in kinds.values().copied() {
        schemas[schema_name(kind)] = problem_schema(kind, &problem);
    }
    let examples: Value = kinds.values().map(|kind| (kind.name.to_owned(), problem_example(*kind))).collect();
    document["components"] = json!({
        "schemas": schemas,
        "examples": examples,
        "headers": headers(),
        "securitySchemes": {
            "session": {
                "type": "apiKey",
                "in": "cookie",
                "name": "gh_session",
                "description": "Set by signing in. On https its name is __Host-gh_session.",
            },
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "An administrator creates it at /admin/tokens.",
            },
        },
    });
    on_one_line(&mut document);
    document
}

fn fields_mut(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_object_mut().into_iter().flat_map(Map::values_mut)
}

fn headers() -> Value {
    let header = |SharedHeader { name, required, description, example, .. }| {
        let (kind, example) = match example.parse::<u64>() {
            Ok(number) => ("integer", number.into()),
            Err(_) => ("string", Value::from(example)),
        };
        let schema = json!({ "type": kind });
        let shown = json!({
            "description": description, "required": required, "schema": schema, "example": example,
        });
        (name.to_owned(), shown)
    };
    HEADERS.into_iter().map(header).collect()
}

/// Header fields by their names in `HEADERS`, as they stand in an answer.
fn header_references<'a>(names: impl IntoIterator<Item = &'a str>) -> Value {
    let reference = |name: &str| {
        let header = HEADERS.into_iter().find(|header| header.name == name).expect("one of HEADERS");
        (header.field.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))
    };
    names.into_iter().map(reference).collect()
}

fn share_headers(answer: &mut Value) {
    if let Some(named) = answer.get("headers").and_then(Value::as_object) {
        answer["headers"] = header_references(named.keys().map(String::as_str));
    }
}

/// The example of a type is one of each body of that type. A body that may be left out is not null.
fn show_example(body: &mut Value, schemas: &Value) {
    for content in body.get_mut("content").into_iter().flat_map(fields_mut) {
        never_null(&mut content["schema"]);
        let example = named(&content["schema"], schemas).and_then(|schema| schema.get("example"));
        if let (Some(example), None) = (example, content.get("example")) {
            content["example"] = example.clone();
        }
    }
}

fn refusals(operation: &mut Value) -> BTreeMap<String, Vec<Kind>> {
    let for_operators = operation["tags"] == json!(["operations"]);
    let named = operation.as_object_mut().and_then(|operation| operation.remove("x-problems"));
    let groups = named.as_ref().and_then(Value::as_array).into_iter().flatten();
    // Any call but those of operators may come from a network that is refused.
    let denied = (!for_operators).then_some("denied");
    let names: BTreeSet<&str> = groups
        .flat_map(|group| group.as_array().map_or(std::slice::from_ref(group), Vec::as_slice))
        .filter_map(Value::as_str)
        .chain(denied)
        .collect();
    let mut by_status = BTreeMap::<_, Vec<_>>::new();
    for name in names {
        let kind = kind_named(name).unwrap_or_else(|| panic!("{name} is no problem"));
        by_status.entry(kind.status.as_str().to_owned()).or_default().push(kind);
    }
    by_status
}

fn refusal(kinds: &[Kind]) -> Value {
    let references: Vec<_> = kinds
        .iter()
        .map(|kind| json!({ "$ref": format!("#/components/schemas/{}", schema_name(*kind)) }))
        .collect();
    let example = |kind: &Kind| {
        (kind.name.to_owned(), json!({ "$ref": format!("#/components/examples/{}", kind.name) }))
    };
    let titles: Vec<_> = kinds.iter().map(|kind| kind.title).collect();
    let schema = match references.as_slice() {
        [one] => one.clone(),
        _ => json!({ "oneOf": references }),
    };
    // What only some of them carry cannot be required of all.
    let in_all = |name: &&'static str| {
        *name != "WwwAuthenticate" || kinds.iter().all(|kind| problem_headers(*kind).contains(name))
    };
    let headers = header_references(kinds.iter().copied().flat_map(problem_headers).filter(in_all));
    json!({
        "description": titles.join(", or: "),
        "headers": headers,
        "content": {
            "application/problem+json": {
                "schema": schema,
                "examples": kinds.iter().map(example).collect::<Value>(),
            },
        },
    })
}

/// A struct within a struct, as `serde` writes it: its fields are among the others.
fn flatten(schemas: &mut Value) {
    let all = schemas.clone();
    for schema in fields_mut(schemas) {
        let Some(parts) = schema.get("allOf").and_then(Value::as_array) else { continue };
        let parts = parts.iter().map(|part| named(part, &all).unwrap_or(part));
        let (mut required, mut properties) = (Vec::new(), Map::new());
        for part in parts {
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
        }
        let description = schema["description"].take();
        *schema = json!({
            "type": "object", "description": description, "required": required, "properties": properties,
        });
    }
}

fn named<'a>(reference: &Value, schemas: &'a Value) -> Option<&'a Value> {
    schemas.get(reference.get("$ref")?.as_str()?.rsplit('/').next()?)
}

/// What is read is closed by its type. What is answered is closed here, and an optional field of it is left out
/// rather than null.
fn close(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("example");
    if fields.contains_key("additionalProperties") {
        return;
    }
    let required = fields.get("required").cloned().unwrap_or_default();
    let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        if !required.as_array().is_some_and(|required| required.contains(&name.as_str().into())) {
            never_null(property);
        }
    }
    fields.insert("additionalProperties".to_owned(), false.into());
}

/// A body has the fields of one of these ways, and null is none of them.
fn choose(schema: &mut Value, ways: &[&[&str]], how: &str) {
    for field in ways.iter().copied().flatten().copied() {
        never_null(&mut schema["properties"][field]);
    }
    let way = |fields: &&[&str]| {
        let properties: Value = fields.iter().map(|field| ((*field).to_owned(), json!({}))).collect();
        json!({ "required": fields, "properties": properties })
    };
    schema[how] = ways.iter().map(way).collect();
}

fn never_null(property: &mut Value) {
    if let Some(kinds) = property.get("type").and_then(Value::as_array) {
        property["type"] = kinds[0].clone();
    }
    if let Some(choices) = property.get("oneOf").and_then(Value::as_array) {
        let [value] = choices.iter().filter(|choice| choice["type"] != "null").collect::<Vec<_>>()[..] else {
            return;
        };
        let value = value.as_object().cloned().unwrap_or_default();
        let property = property.as_object_mut().expect("a schema");
        property.remove("oneOf");
        property.extend(value);
    }
}

/// Comments are broken into lines; texts are not.
fn on_one_line(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(on_one_line),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if ["summary", "description"].contains(&name.as_str()) => {
                        *text = text.replace("\n\n", "\u{0}").replace('\n', " ").replace('\u{0}', "\n\n");
                    }
                    field => on_one_line(field),
                }
            }
        }
        _ => {}
    }
}

/// One of each kind that carries more than its texts. Two of one kind: what only one carries is optional.
fn samples() -> [Problem; 10] {
    let (limit, retry_after) = ("login-account", Duration::from_secs(57));
    let message = "Use 15 characters or more.";
    let diff = "--- in force\n+++ draft\n@@ -1,2 +1,2 @@\n [limits.sms-phone]\n-rules = [{ max = 1, window = \"1m\" }]\n\
        +rules = [{ max = 2, window = \"1m\" }]\n";
    [
        Problem::WRONG_LOGIN,
        Problem::CaptchaRequired { limit: limit.into(), rule: None, retry_after },
        Problem::CaptchaInvalid,
        Problem::throttled(limit, retry_after),
        Problem::LimitFull { limit: limit.into(), retry_after },
        Problem::Busy { retry_after: Duration::from_secs(1) },
        Problem::Broken,
        Problem::InvalidInput { errors: vec![InputError::new("password", message)] },
        Problem::PreconditionFailed { version: "5d1f0c2a9b3e".into(), diff: diff.into() },
        Problem::NotSaved {
            reason: "the folder of gatehouse.toml cannot be written (Permission denied); let the server write there"
                .into(),
        },
    ]
}

/// What such a problem carries, in each of its forms.
fn forms(kind: Kind) -> Vec<Map<String, Value>> {
    let (samples, captcha) = (samples(), CaptchaBody::Challenge(CaptchaChallenge::example()));
    let of_kind = samples.iter().filter(|sample| sample.kind() == kind);
    let mut forms: Vec<ProblemBody> =
        of_kind.map(|sample| sample.body(sample.offers_challenge().then_some(&captcha))).collect();
    if forms.is_empty() {
        forms.push(ProblemBody::of(kind));
    }
    let fields = |form| match serde_json::to_value(form) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a problem is an object"),
    };
    forms.into_iter().map(fields).collect()
}

fn problem_example(kind: Kind) -> Value {
    json!({ "summary": kind.title, "value": forms(kind).swap_remove(0) })
}

/// `all` is the schema of every field that a problem may carry.
fn problem_schema(kind: Kind, all: &Value) -> Value {
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
fn problem_headers(kind: Kind) -> Vec<&'static str> {
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
fn schema_name(kind: Kind) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    kind.name.split('-').map(capital).collect::<String>() + "Problem"
}
