//! U+0000, which PostgreSQL stores in no text: in any field of any call, form, query or path it is the caller's mistake.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::fits::{document, resolved};
use crate::admin::tokens::make;
use crate::oidc;
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};
use crate::support::routes::{API, table};

const ODD: &str = "a\0b";

/// What is sent in a field that is not the one in question: good enough to get as far as possible.
fn sample(name: &str) -> Value {
    match name {
        "login" | "account_name" | "asked" | "login_hint" => json!("alice"),
        "password" | "current_password" => json!(PASSWORD),
        "new_password" => json!("another horse battery staple"),
        "phone" | "to" => json!("+8613800138000"),
        "prefix" => json!("+861380"),
        "code" | "otp" => json!("012345"),
        "purpose" | "for" => json!("login"),
        "address" | "remote" => json!("203.0.113.7"),
        "outcome" => json!("success"),
        "scopes" => json!("*"),
        "expires_days" | "limit" => json!("7"),
        "subject" => json!("203.0.113.0/24"),
        "answer" => json!("deny"),
        "span" | "until" => json!("1h"),
        "group" | "groups" | "name" => json!("staff"),
        "email" => json!("ada@example.org"),
        _ => json!("x"),
    }
}

/// A body that fits, without what may be left out unless it is text.
pub fn body(document: &Value, schema: &Value, name: &str) -> Value {
    let schema = resolved(document, schema);
    if let Some(fields) = schema["properties"].as_object() {
        // Of several ways to send it, the first.
        let others = schema["oneOf"].as_array().or(schema["anyOf"].as_array()).into_iter().flatten().skip(1);
        let others: Vec<_> =
            others.flat_map(|way| way["required"].as_array().into_iter().flatten()).collect();
        let ours = fields.iter().filter(|(key, _)| !others.iter().any(|other| *other == key.as_str()));
        return Value::Object(ours.map(|(key, inner)| (key.clone(), body(document, inner, key))).collect());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choice = choices.iter().find(|choice| choice["type"] != "null").unwrap();
        return body(document, choice, name);
    }
    if let Some(word) = schema.get("const").or_else(|| schema["enum"].get(0)) {
        return word.clone();
    }
    let kind = schema["type"].as_array().map_or(&schema["type"], |kinds| &kinds[0]);
    match kind.as_str() {
        Some("string") => sample(name),
        Some("integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([body(document, &schema["items"], name)]),
        Some("object") | None => json!({}),
        other => panic!("{name} is {other:?}"),
    }
}

/// The body once for each text in it, with `odd` in its place, and once for each object, with a field of that name.
fn spoilt(value: &Value, odd: &str) -> Vec<Value> {
    match value {
        Value::String(_) => vec![json!(odd)],
        Value::Array(items) => {
            let items = items.iter().flat_map(|item| spoilt(item, odd));
            items.map(|item| json!([item])).collect()
        }
        Value::Object(fields) => {
            let with = |key: &str, inner: Value| {
                let mut all: Map<String, Value> = fields.clone();
                all.insert(key.to_owned(), inner);
                Value::Object(all)
            };
            let each = fields.iter().flat_map(|(key, inner)| {
                spoilt(inner, odd).into_iter().map(|inner| with(key, inner)).collect::<Vec<_>>()
            });
            each.chain([with(odd, json!("x"))]).collect()
        }
        _ => Vec::new(),
    }
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The path once for each place in it, with `odd` there; and once as it is.
pub fn paths(path: &str, odd: &str) -> Vec<String> {
    let names: Vec<&str> = path.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
    let filled = |spoilt: Option<&str>| {
        names.iter().fold(path.to_owned(), |path, name| {
            let known = match *name {
                "limit" => "login-account".to_owned(),
                "name" => "reply".to_owned(),
                "act" => "revoke".to_owned(),
                "id" | "device" | "attempt" | "change" => "0123456789abcdef0123456789abcdef".to_owned(),
                name => sample(name).as_str().unwrap().to_owned(),
            };
            let text = if spoilt == Some(name) { odd } else { &known };
            path.replace(&format!("{{{name}}}"), &encoded(text))
        })
    };
    std::iter::once(filled(None)).chain(names.iter().map(|name| filled(Some(name)))).collect()
}

/// What is read of the query of a page.
const IN_QUERIES: [&str; 5] = ["lang", "theme", "ui_locales", "next", "rd"];

/// Every name of a field in a form, and in a query: in the templates, and in what handlers read.
fn field_names() -> [BTreeSet<String>; 2] {
    fn texts(folder: &str, ending: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(texts(path.to_str().unwrap(), ending));
            } else if path.extension().is_some_and(|kind| kind == ending) {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
        found
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let (mut forms, mut queries) = (BTreeSet::new(), BTreeSet::from(IN_QUERIES.map(str::to_owned)));
    for text in texts(&format!("{root}/templates"), "html") {
        let quoted = text.split("name=\"").skip(1).filter_map(|rest| rest.split('"').next());
        forms.extend(quoted.filter(|name| is_name(name)).map(str::to_owned));
    }
    for text in texts(&format!("{root}/src/web"), "rs") {
        for (names, lead, block) in [
            (&mut forms, "pairs, \"", ["Form {", "Fields {"]),
            (&mut queries, "query, \"", ["Query {", "Query {"]),
        ] {
            let quoted = text.split(lead).skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(quoted.filter(|name| is_name(name)).map(str::to_owned));
            let blocks = block.into_iter().flat_map(|lead| text.split(lead).skip(1));
            for fields in blocks.filter_map(|rest| rest.split("\n}").next()) {
                let fields =
                    fields.lines().filter_map(|line| line.trim().trim_start_matches("pub ").split_once(':'));
                names.extend(fields.map(|(name, _)| name).filter(|name| is_name(name)).map(str::to_owned));
            }
        }
    }
    // These are in all forms alike, and tried in one.
    for common in ["csrf_token", "captcha_id", "captcha_answer", "captcha_altcha", "captcha_refresh"] {
        assert!(forms.remove(common), "{common}");
    }
    assert!(forms.len() > 50 && forms.contains("reason"), "{forms:?}");
    assert!(queries.len() > 15 && queries.contains("after"), "{queries:?}");
    [forms, queries]
}

/// An administrator, who is signed in again where a request has ended that.
struct Asker {
    app: Arc<TestApp>,
    client: Client,
    csrf: String,
    made: u32,
    route: usize,
}

impl Asker {
    async fn new(app: &Arc<TestApp>, route: usize) -> Self {
        let client = app.client();
        let mut asker = Self { app: app.clone(), client, csrf: String::new(), made: 0, route };
        asker.sign_in().await;
        asker
    }

    async fn sign_in(&mut self) {
        self.made += 1;
        self.client = self.app.sign_in_admin(&format!("boss-{}-{}", self.route, self.made)).await;
        self.csrf = self.client.get("/account").await.csrf_token();
    }

    async fn ask(&mut self, what: &str, request: impl Fn(&Self) -> reqwest::RequestBuilder) {
        for last in [false, true] {
            let answer = Answer::read(request(self).send().await.unwrap()).await;
            assert!(answer.status < 500, "{what:?}: {} {}", answer.status, answer.text);
            let out = answer.status == 401 || answer.header("location").starts_with("/login");
            if last || !out {
                return;
            }
            if self.client.get("/api/v1/session").await.status == 200 {
                return;
            }
            self.sign_in().await;
        }
    }
}

pub async fn start() -> Arc<TestApp> {
    let limits: Vec<_> = gatehouse::config::LimitName::ALL.iter().map(|name| name.as_str()).collect();
    let custom = "[limits.custom.reply]\nrules = [{ max = 1000000, window = '1h' }]\n";
    let setup = oidc::on(Store::Redis).file_more(custom).without(&limits).at_localhost();
    Arc::new(oidc::start(setup).await)
}

/// Every route at once, some at a time.
async fn each_route<R: Send + 'static>(
    routes: Vec<R>,
    app: &Arc<TestApp>,
    ask: impl AsyncFn(R, Asker) + Clone,
) {
    let permits = Arc::new(Semaphore::new(8));
    let asked = routes.into_iter().enumerate().map(|(index, route)| {
        let (permits, app, ask) = (permits.clone(), app.clone(), ask.clone());
        async move {
            let _permit = permits.acquire().await.unwrap();
            ask(route, Asker::new(&app, index).await).await;
        }
    });
    futures_util::future::join_all(asked).await;
}

#[tokio::test]
async fn no_field_of_a_call_takes_down_what_answers_it() {
    let app = start().await;
    let boss = app.sign_in_admin("boss").await;
    let mut tokens = Vec::new();
    for (under, scope) in [
        ("/api/v1/attempts", "guard:mail"),
        ("/api/v1/verifications", "verify:shop"),
        ("/api/v1/relay", "relay:idp"),
        ("/api/v1/limits", "reply"),
    ] {
        tokens.push((under, make(&boss, &[scope]).await));
    }
    let document = Arc::new(document());
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            calls.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    assert!(calls.len() > 60, "{}", calls.len());
    let (document, tokens) = (&document, &tokens);
    each_route(calls, &app, async |(method, path, operation), mut asker| {
        let token = tokens.iter().find(|(under, _)| path.starts_with(under)).map(|(_, token)| token.as_str());
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let whole = if schema.is_null() { Value::Null } else { body(document, schema, "") };
        let queries = operation["parameters"].as_array().into_iter().flatten();
        let queries = queries.map(|parameter| resolved(document, parameter)).filter(|it| it["in"] == "query");
        let queries: Vec<&str> = queries.map(|parameter| parameter["name"].as_str().unwrap()).collect();
        let odd = ODD;
        let mut all: Vec<(String, Value)> =
            paths(&path, odd).into_iter().map(|path| (path, whole.clone())).collect();
        let path = all[0].0.clone();
        all.extend(queries.iter().map(|name| (format!("{path}?{name}={}", encoded(odd)), whole.clone())));
        all.extend(spoilt(&whole, odd).into_iter().map(|body| (path.clone(), body)));
        for (path, body) in all {
            let what = format!("{method} {path} {body}");
            // What is changed is named by its version.
            let tag = match method == "PUT" {
                true => asker.client.get(&path).await.header("etag").to_owned(),
                false => String::new(),
            };
            asker
                .ask(&what, |asker| {
                    let url = format!("{}{path}", asker.client.url);
                    let request = asker.client.http.request(method.parse().unwrap(), url);
                    let request = if body.is_null() { request } else { request.json(&body) };
                    let request = if tag.is_empty() { request } else { request.header("if-match", &tag) };
                    match token {
                        Some(token) => request.bearer_auth(token),
                        None => request,
                    }
                })
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn no_field_of_a_page_takes_down_what_answers_it() {
    let app = start().await;
    let [forms, queries] = field_names();
    let is_page = |path: &str| !path.starts_with(API) && !path.starts_with("/static") && path != "/metrics";
    let pages: Vec<_> = table().into_iter().filter(|(_, path)| is_page(path)).collect();
    let (forms, queries) = (&forms, &queries);
    each_route(pages, &app, async |(method, path), mut asker| {
        let odd = ODD;
        for path in paths(&path, odd) {
            let what = format!("{method} {path}");
            asker
                .ask(&what, |asker| {
                    asker.client.http.request(method.parse().unwrap(), format!("{}{path}", asker.client.url))
                })
                .await;
        }
        let path = paths(&path, odd).remove(0);
        let names = if method == "POST" { forms } else { queries };
        for name in names {
            let what = format!("{method} {path} {name}");
            asker
                .ask(&what, |asker| {
                    let url = format!("{}{path}", asker.client.url);
                    if method != "POST" {
                        let url = format!("{url}?{name}={}", encoded(odd));
                        return asker.client.http.request(method.parse().unwrap(), url);
                    }
                    let fields = names.iter().filter(|other| *other != name);
                    let mut fields: Vec<(String, String)> = fields
                        .map(|name| (name.clone(), sample(name).as_str().unwrap().to_owned()))
                        .collect();
                    fields.push((name.clone(), odd.to_owned()));
                    fields.push(("csrf_token".to_owned(), asker.csrf.clone()));
                    asker.client.http.post(url).header("origin", &asker.client.url).form(&fields)
                })
                .await;
        }
    })
    .await;
}

/// Parameters of OpenID Connect, by their own names and errors.
#[tokio::test]
async fn a_client_is_told_that_its_parameter_is_wrong() {
    let app = start().await;
    let user = app.sign_in_admin("ada").await;
    for name in [
        "nonce",
        "scope",
        "prompt",
        "max_age",
        "acr_values",
        "id_token_hint",
        "code_challenge",
        "response_mode",
        "proved_since",
    ] {
        let answer = user.get(&oidc::request(&[(name, ODD)])).await;
        let to = answer.header("location");
        assert!(answer.status == 303 && to.starts_with(oidc::WIKI), "{name}: {} {to}", answer.status);
        assert!(to.contains("error=invalid_request"), "{name}: {to}");
    }
    for name in ["client_id", "redirect_uri", "state"] {
        let answer = user.get(&oidc::request(&[(name, ODD)])).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text);
    }
    let client = app.client();
    let good = |grant: &'static str| {
        vec![
            ("client_id", "wiki"),
            ("client_secret", oidc::SECRET),
            ("grant_type", grant),
            ("code", "x"),
            ("redirect_uri", oidc::WIKI),
            ("code_verifier", oidc::VERIFIER),
            ("refresh_token", "x"),
            ("token", "x"),
            ("token_type_hint", "access_token"),
        ]
    };
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/introspect"] {
        for grant in ["authorization_code", "refresh_token"] {
            for index in 0..good(grant).len() {
                let mut fields = good(grant);
                // What a call does not read it ignores.
                let is_read = ["client_id", "client_secret", "token"].contains(&fields[index].0);
                if path != "/oauth/token" && !is_read {
                    continue;
                }
                fields[index].1 = ODD;
                let answer = client.post(path, &fields).await;
                let error = answer.body["error"].as_str().unwrap_or_default();
                let told = ["invalid_request", "invalid_grant", "invalid_client"].contains(&error);
                let (name, _) = fields[index];
                assert!(
                    matches!(answer.status, 400 | 401) && told,
                    "{path} {name}: {} {}",
                    answer.status,
                    answer.text
                );
            }
        }
    }
    let token = client.get("/login").await.csrf_token();
    for name in ["captcha_id", "captcha_answer", "captcha_altcha", "captcha_refresh", "csrf_token"] {
        let fields = [("login", "ada"), ("password", "x"), ("csrf_token", &*token)];
        let fields: Vec<_> =
            fields.into_iter().filter(|field| field.0 != name).chain([(name, ODD)]).collect();
        let answer = client.post("/login", &fields).await;
        assert!(answer.status < 500, "{name}: {}", answer.status);
    }
    for name in ["id_token_hint", "logout_hint", "client_id", "post_logout_redirect_uri", "state"] {
        let answer = user.get(&format!("/oauth/logout?{name}=a%00b")).await;
        assert!(answer.status < 500, "{name}: {}", answer.status);
    }
}
