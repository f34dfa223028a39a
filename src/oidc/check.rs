//! `gatehouse apps check`, and *Test* on the page of a client: goes a client's whole way at the server that answers, and
//! names what does not match there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Display;
use std::iter::successors;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, COOKIE, DATE, HeaderMap, HeaderName, LOCATION, ORIGIN,
    SET_COOKIE,
};
use reqwest::{Client, Method, RequestBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};
use zeroize::Zeroizing;

use super::{Parameters, PublicKey, SCOPES, jws};
use crate::clock::{Clock, Micros, iso};
use crate::config::{OidcClient, SigningAlgorithm};
use crate::entropy::Entropy;
use crate::https;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Seconds by which clocks may differ.
const CLOCKS_DIFFER: i64 = 30;
/// Seconds in which a server makes its first key.
const KEY_WITHIN: u32 = 10;
const DISCOVERY: &str = "/.well-known/openid-configuration";
const USERINFO: &str = "/oauth/userinfo";
/// What the document names, below the issuer.
const NAMED: [(&str, &str); 8] = [
    ("issuer", ""),
    ("authorization_endpoint", "/oauth/authorize"),
    ("token_endpoint", "/oauth/token"),
    ("userinfo_endpoint", USERINFO),
    ("jwks_uri", "/oauth/keys"),
    ("revocation_endpoint", "/oauth/revoke"),
    ("introspection_endpoint", "/oauth/introspect"),
    ("end_session_endpoint", "/oauth/logout"),
];
const BASIC: &str = "client_secret_basic";
const POST: &str = "client_secret_post";
const NONE: &str = "none";

const PASS_ON: &str =
    "have the proxy pass /.well-known/openid-configuration and /oauth/ on, and the answers back as they are";
const SAVE: &str = "save [[apps]] where the server that answers reads them, and compare /admin/apps there";
const SET_CLOCKS: &str = "have both machines set their clocks by NTP, or tokens are refused";
const KEEPS_BACK: &str = "have the proxy pass the header Authorization on";

/// Asks for what a sign-in takes.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> Result<Zeroizing<String>, String>;
type Key = (String, SigningAlgorithm, PublicKey);
/// How the client proves itself: one of its ways, and the secret.
type Proven<'s> = (&'static str, Option<&'s SecretString>);

pub struct ClientCheck<'a> {
    client: &'a OidcClient,
    issuer: String,
    http: Client,
    clock: Clock,
    /// The verifier of PKCE; also a code that was never given out.
    random: String,
    /// The challenge, made of the random value; state and nonce, too.
    challenge: String,
    /// The cookies of the browser that signs in.
    cookies: RefCell<BTreeMap<String, String>>,
    stored: Option<SecretString>,
    tell: &'a dyn Fn(String),
    failed: Cell<usize>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
    access_token: String,
    refresh_token: String,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
    json: Value,
}

fn mismatch(received: impl Display, expected: impl Display, to_do: &str) -> String {
    format!("received {received}, expected {expected}: {to_do}")
}

impl Answer {
    fn header(&self, name: HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// On one line, whatever it is.
    fn shown(&self) -> String {
        let names = ["error_description", "detail", "error"];
        let told = names.into_iter().find_map(|name| self.json[name].as_str());
        // A redirect has what matters at its end.
        let (text, most) = match (self.header(LOCATION), told) {
            ("", told) => (told.unwrap_or(self.text.trim()), 100),
            (location, _) => (location, 1_000),
        };
        format!("{} {:?}", self.status, text.chars().take(most).collect::<String>())
    }
}

fn must(
    answer: Result<Answer, String>,
    is: impl FnOnce(&Answer) -> bool,
    expected: impl Display,
    to_do: &str,
) -> Result<Answer, String> {
    let answer = answer?;
    let to_do = if answer.status == 429 { "wait a minute" } else { to_do };
    if is(&answer) { Ok(answer) } else { Err(mismatch(answer.shown(), expected, to_do)) }
}

impl<'a> ClientCheck<'a> {
    /// At `public_url`, whose certificate may be of the `authorities` in a file. Each finding is told at once.
    pub fn new(
        client: &'a OidcClient,
        public_url: &str,
        authorities: Option<&Path>,
        tell: &'a dyn Fn(String),
    ) -> Result<Self, String> {
        let http = https::client(authorities).map_err(|wrong| match wrong {
            https::ClientError::Authorities(reason) | https::ClientError::Tls(reason) => reason,
        })?;
        let http = http.timeout(TIMEOUT).build().map_err(|wrong| wrong.without_url().to_string())?;
        let random = URL_SAFE_NO_PAD.encode(Entropy::Os.bytes::<32>());
        Ok(Self {
            client,
            issuer: public_url.trim_end_matches('/').to_owned(),
            http,
            clock: Clock::default(),
            challenge: URL_SAFE_NO_PAD.encode(Sha256::digest(&random)),
            random,
            cookies: RefCell::default(),
            stored: None,
            tell,
            failed: Cell::default(),
        })
    }

    /// The secret of a client whose secrets are kept in the database.
    pub fn with_stored(self, stored: Option<SecretString>) -> Self {
        Self { stored, ..self }
    }

    /// How much does not match. With somebody who signs in, also what comes after that.
    pub async fn run(self, sign_in: Option<(&str, Ask<'_>)>) -> usize {
        let client = self.client;
        let secret = client.secret.as_ref().map(|from| {
            let to_do = match client.has_stored_secret() {
                true => "generate one at /admin/apps, and give it to the application",
                false => "set it here as for the server",
            };
            let missing = || mismatch("none", format!("one in {from:?}"), to_do);
            from.value().or(self.stored.as_ref()).ok_or_else(missing)
        });
        let secret = secret.and_then(|read| self.told("secret", read));
        let is_document = |it: &Answer| it.status == 200 && it.json.is_object();
        let found = must(self.get(DISCOVERY).await, is_document, "a JSON document of Gatehouse", PASS_ON);
        let Some(Answer { json: document, .. }) = self.told(DISCOVERY, found) else {
            return self.failed.get();
        };
        for (name, path) in NAMED {
            let (named, expected) = (&document[name], format!("{}{path}", self.issuer));
            let to_do = "start the server with the server.public_url of this configuration, and have the proxy leave \
                the document as it is: clients compare it byte for byte";
            let same = if *named == expected { Ok(()) } else { Err(mismatch(named, &expected, to_do)) };
            self.told(format!("{name} {expected}"), same);
        }
        let keys = self.keys().await;
        let keys = self.told("keys", keys).unwrap_or_default();
        for uri in client.redirect_uris.iter().map(|uri| uri.as_str()) {
            // No session is there yet.
            let asked = self.get(&self.authorization(uri, "none")).await;
            let asked = self.sent_back(asked, uri, ("error", "login_required"));
            self.told(format!("redirect URI {uri}"), asked);
        }
        if client.is_public() || secret.is_some() {
            self.try_secret(secret).await;
        }
        for origin in client.origins().filter(|_| client.is_public()).collect::<BTreeSet<_>>() {
            self.told(format!("CORS for {origin}"), self.allows(origin).await);
        }
        if let Some(uri) = &client.backchannel_logout_uri {
            self.told(format!("backchannel_logout_uri {uri}"), self.reach(uri.clone()).await);
        }
        let logout = must(self.get("/oauth/logout").await, |it| it.status == 303, "a redirect", PASS_ON);
        self.told("end_session_endpoint answers", logout);
        match sign_in {
            // A stranger may answer, who gets no password.
            Some(_) if self.failed.get() > 0 => {
                (self.tell)("Nobody signs in until this is mended.".to_owned())
            }
            Some(login) => {
                self.sign_in_and_out(login, secret, &keys).await;
                let to_do = "end the session of this check on /account";
                let left = self.call("/api/v1/logout", String::new()).await;
                self.told("signed out", must(left, |it| it.status == 204, "204", to_do));
            }
            None => {}
        }
        self.failed.get()
    }

    fn told<T>(&self, what: impl Display, step: Result<T, String>) -> Option<T> {
        self.failed.update(|failed| failed + usize::from(step.is_err()));
        (self.tell)(match &step {
            Ok(_) => format!("ok   {what}"),
            Err(wrong) => format!("FAIL {what}: {wrong}"),
        });
        step.ok()
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.issuer))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer, String> {
        let read = async {
            let answer = request.send().await?;
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            let text = answer.text().await?;
            Ok(Answer { status, headers, json: serde_json::from_str(&text).unwrap_or_default(), text })
        };
        read.await.map_err(|wrong: reqwest::Error| {
            let to_do = "start the server, and see that server.public_url leads there from this machine; \
                for a certificate of your own authority run gatehouse apps check with --ca-file";
            mismatch(no_answer(&wrong), format!("one of {}", self.issuer), to_do)
        })
    }

    async fn get(&self, path: &str) -> Result<Answer, String> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends a request as a browser does, which keeps cookies.
    async fn browse(&self, request: RequestBuilder) -> Result<Answer, String> {
        let pair = |(name, value): (&String, &String)| format!("{name}={value}");
        let cookies: Vec<_> = self.cookies.borrow().iter().map(pair).collect();
        let answer = self.send(request.header(COOKIE, cookies.join("; "))).await?;
        for set in answer.headers.get_all(SET_COOKIE).iter().filter_map(|set| set.to_str().ok()) {
            let pair = set.split(';').next().and_then(|pair| pair.split_once('='));
            self.cookies.borrow_mut().extend(pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        Ok(answer)
    }

    async fn call(&self, path: &str, body: String) -> Result<Answer, String> {
        let request = self.request(Method::POST, path).header(CONTENT_TYPE, "application/json");
        self.browse(request.body(body)).await
    }

    async fn keys(&self) -> Result<Vec<Key>, String> {
        let mut answer = self.get("/oauth/keys").await?;
        for _ in 0..KEY_WITHIN {
            if answer.status == 503 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer = self.get("/oauth/keys").await?;
            }
        }
        let set = answer.json["keys"].as_array();
        let keys: Vec<_> = set.into_iter().flatten().filter_map(read_key).collect();
        must(Ok(answer), |_| !keys.is_empty(), "a JWK set with a key that signs", PASS_ON).map(|_| keys)
    }

    /// The path of a request for a code.
    fn authorization(&self, redirect_uri: &str, prompt: &str) -> String {
        let all = [
            ("client_id", self.client.client_id.as_str()),
            ("redirect_uri", redirect_uri),
            ("response_type", "code"),
            ("scope", &SCOPES.join(" ")),
            ("state", &self.challenge),
            ("nonce", &self.challenge),
            ("code_challenge", &self.challenge),
            ("code_challenge_method", "S256"),
            ("prompt", prompt),
        ];
        format!("/oauth/authorize?{}", Serializer::new(String::new()).extend_pairs(all).finish())
    }

    /// What a client is told at its redirect URI, if that is the answer to its request.
    fn sent_back(
        &self,
        answer: Result<Answer, String>,
        uri: &str,
        (name, value): (&str, &str),
    ) -> Result<String, String> {
        let answer = answer?;
        let location = answer.header(LOCATION);
        let query = location.strip_prefix(uri).and_then(|rest| rest.strip_prefix(['?', '&']));
        let sent = Parameters::parse(query.unwrap_or_default().as_bytes());
        let get = |name| sent.get(name).ok().flatten().unwrap_or_default();
        let is_ours = get("state") == self.challenge && get("iss") == self.issuer;
        if is_ours && !get(name).is_empty() && (value.is_empty() || get(name) == value) {
            return Ok(get(name).to_owned());
        }
        let to_do = match answer.status {
            400 => SAVE,
            303 if location.starts_with('/') => {
                "sign in as it in a browser, do what is asked there (a new password, a second factor), and run this again"
            }
            303 if is_ours && value.is_empty() => "take an account that may use the application",
            _ => PASS_ON,
        };
        let expected = format!("a redirect to {uri} with state, iss={} and {name} {value}", self.issuer);
        Err(mismatch(answer.shown(), expected.trim_end(), to_do))
    }

    async fn token(&self, (method, secret): Proven<'_>, fields: &[(&str, &str)]) -> Result<Answer, String> {
        let (id, secret) = (self.client.client_id.as_str(), secret.map_or("", |it| it.expose_secret()));
        let (mut request, mut fields) = (self.request(Method::POST, "/oauth/token"), fields.to_vec());
        match method {
            BASIC => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                request = request.basic_auth(encoded(id), Some(encoded(secret)));
            }
            POST => fields.extend([("client_id", id), ("client_secret", secret)]),
            _ => fields.push(("client_id", id)),
        }
        self.send(form(request, &fields)).await
    }

    async fn exchange(&self, proven: Proven<'_>, code: &str) -> Result<Answer, String> {
        let uri = self.client.redirect_uris[0].as_str();
        let grant = ("grant_type", "authorization_code");
        let fields = [grant, ("code", code), ("redirect_uri", uri), ("code_verifier", &self.random)];
        self.token(proven, &fields).await
    }

    /// A code that was never given out tells a right secret from a wrong one.
    async fn try_secret(&self, secret: Option<&SecretString>) {
        let mut before: Option<Answer> = None;
        for method in if self.client.is_public() { &[NONE][..] } else { &[POST, BASIC] } {
            let to_do = match before {
                Some(_) => KEEPS_BACK,
                None => {
                    "give the server, this command and the application the same secret, and restart the server"
                }
            };
            let answer = self.exchange((method, secret), &self.random).await;
            let expected = "invalid_grant for a code that is made up";
            let answer = must(answer, |it| it.json["error"] == "invalid_grant", expected, to_do);
            before = self.told(format!("token_endpoint by {method}"), answer).or(before);
        }
        let Some(answer) = before else { return };
        let at = DateTimeParser::new().parse_timestamp(answer.header(DATE)).map_or(0, |at| at.as_second());
        let (received, now) = (format!("Date {:?}", answer.header(DATE)), iso(self.clock.now()));
        let close = if self.is_now(at) { Ok(()) } else { Err(mismatch(received, now, SET_CLOCKS)) };
        self.told("clock", close);
    }

    fn is_now(&self, seconds: i64) -> bool {
        (seconds - self.clock.now().seconds()).abs() <= CLOCKS_DIFFER
    }

    /// Whether scripts of this site may call, and read the answers.
    async fn allows(&self, origin: &str) -> Result<(), String> {
        let (get, ask) = (Method::GET, Method::OPTIONS);
        for (method, path) in [
            (&ask, "/oauth/token"),
            (&ask, USERINFO),
            (&get, USERINFO),
            (&get, "/oauth/keys"),
            (&get, DISCOVERY),
        ] {
            let request = self.request(method.clone(), path).header("access-control-request-method", "POST");
            let answer = self.send(request.header(ORIGIN, origin)).await?;
            let allowed = answer.header(ACCESS_CONTROL_ALLOW_ORIGIN);
            if allowed != origin && allowed != "*" {
                let received = format!("Access-Control-Allow-Origin {allowed:?} of {method} {path}");
                return Err(mismatch(received, origin, PASS_ON));
            }
        }
        Ok(())
    }

    /// Reaches the address by the client that tells of sign-outs, and by its rule; nothing is posted.
    async fn reach(&self, uri: Url) -> Result<(), String> {
        let sender = https::checked_client(self.client.allow_private, TIMEOUT)?;
        let Err(wrong) = sender.head(uri).send().await else { return Ok(()) };
        Err(match causes(&wrong).any(|cause| cause.is::<https::PrivateAddress>()) {
            true => mismatch(
                "an address of this network only",
                "a public one",
                "set allow_private = true if that is meant",
            ),
            false => mismatch(no_answer(&wrong), "one", "see that this machine reaches it"),
        })
    }

    /// What needs somebody who signs in, until something does not match.
    async fn sign_in_and_out(
        &self,
        (login, ask): (&str, Ask<'_>),
        secret: Option<&SecretString>,
        keys: &[Key],
    ) -> Option<()> {
        let proven = (if self.client.is_public() { NONE } else { BASIC }, secret);
        self.told(format!("signed in as {login}"), self.enter(login, ask).await)?;
        let code = self.told("authorization_endpoint gives a code", self.fetch_code().await)?;
        let given = tokens(self.exchange(proven, &code).await);
        let TokenAnswer { id_token, access_token, refresh_token } = self.told("token_endpoint", given)?;
        let claims = self.told("ID token", self.verify(&id_token, keys))?;
        (self.tell)(format!("     {claims}"));
        let asked = self.send(self.request(Method::GET, USERINFO).bearer_auth(access_token)).await;
        let expected = format!("claims of sub {}", claims["sub"]);
        let asked = must(asked, |it| it.json["sub"] == claims["sub"], expected, KEEPS_BACK);
        (self.tell)(format!("     {}", self.told("userinfo_endpoint", asked)?.json));
        let refresh = async |token: &str| {
            self.token(proven, &[("grant_type", "refresh_token"), ("refresh_token", token)]).await
        };
        let refreshed = tokens(refresh(&refresh_token).await);
        let TokenAnswer { id_token, refresh_token, .. } = self.told("refresh token", refreshed)?;
        let logout = |more: Option<(&str, &str)>| {
            let mut query = Serializer::new(String::from("/oauth/logout?"));
            query.append_pair("id_token_hint", &id_token).extend_pairs(more).finish()
        };
        for uri in self.client.post_logout_redirect_uris.iter().map(|uri| uri.as_str()) {
            // Without a cookie nothing ends.
            let answer = self.get(&logout(Some(("post_logout_redirect_uri", uri)))).await;
            let answer = must(answer, |it| it.header(LOCATION) == uri, format!("a redirect to {uri}"), SAVE);
            self.told(format!("post-logout redirect URI {uri}"), answer);
        }
        let ended = self.browse(self.request(Method::GET, &logout(None))).await;
        self.told("end_session_endpoint", ended)?;
        let (ended, expected) = (refresh(&refresh_token).await, "invalid_grant once the session has ended");
        let ended = must(ended, |it| it.json["error"] == "invalid_grant", expected, PASS_ON);
        self.told("refresh token ends with the session", ended).map(drop)
    }

    /// Signs in as the owner of the account does in a browser.
    async fn enter(&self, login: &str, ask: Ask<'_>) -> Result<(), String> {
        let password = ask(&format!("Password of {login}: "))?;
        let credentials = json!({ "login": login, "password": *password }).to_string();
        let mut answer = self.call("/api/v1/login", credentials).await?;
        if answer.json["type"] == "/problems/factor-required" {
            let code = ask("Code of the authenticator app, or a recovery code: ")?;
            let field = if code.len() == 6 { "totp" } else { "recovery" };
            answer = self.call("/api/v1/login/factor", json!({ field: *code }).to_string()).await?;
        }
        let to_do = "sign in with a browser to see what is asked for";
        must(Ok(answer), |it| it.status == 200, "a session", to_do).map(drop)
    }

    /// At the first redirect URI. If the account is asked whether to sign in there, it agrees.
    async fn fetch_code(&self) -> Result<String, String> {
        let uri = self.client.redirect_uris[0].as_str();
        let path = self.authorization(uri, "");
        let mut answer = self.browse(self.request(Method::GET, &path)).await?;
        if answer.status == 200 {
            let hidden = |name| between(&answer.text, &format!("name=\"{name}\" value=\""));
            let (_, request) = path.split_once('?').unwrap_or_default();
            let (token, account) = (hidden("csrf_token"), hidden("account"));
            let fields =
                [("request", request), ("csrf_token", &token), ("account", &account), ("agree", "yes")];
            answer = self.browse(form(self.request(Method::POST, "/oauth/consent"), &fields)).await?;
            let to = between(&answer.text, "content=\"0; url=").replace("&#38;", "&");
            answer.headers.extend(to.parse().map(|to| (LOCATION, to)));
        }
        self.sent_back(Ok(answer), uri, ("code", ""))
    }

    fn verify(&self, token: &str, keys: &[Key]) -> Result<Value, String> {
        let key = |kid: &str| keys.iter().find(|(known, ..)| known == kid).map(|(_, alg, key)| (*alg, key));
        let unsigned =
            || mismatch("no signature of a key", "one of /oauth/keys", "have the proxy keep no old keys");
        let claims: Value = jws::verify(token, key).ok_or_else(unsigned)?;
        for (name, expected) in
            [("iss", &self.issuer), ("aud", &self.client.client_id), ("nonce", &self.challenge)]
        {
            if claims[name] != **expected {
                return Err(mismatch(format!("{name} {}", claims[name]), expected, PASS_ON));
            }
        }
        let time = |name: &str| claims[name].as_i64().unwrap_or_default();
        let (issued, now) = (iso(Micros::from_seconds(time("iat"))), self.clock.now());
        match self.is_now(time("iat")) && time("exp") > now.seconds() {
            true => Ok(claims),
            false => Err(mismatch(format!("iat {issued}"), iso(now), SET_CLOCKS)),
        }
    }
}

fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body)
}

fn causes(wrong: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(Some(wrong as &(dyn Error + 'static)), |wrong| (**wrong).source())
}

fn no_answer(wrong: &reqwest::Error) -> String {
    format!("no answer ({})", causes(wrong).last().map(ToString::to_string).unwrap_or_default())
}

/// What stands in a page after `begin`, up to the next quote.
fn between(page: &str, begin: &str) -> String {
    page.split_once(begin).and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default().to_owned()
}

fn tokens(answer: Result<Answer, String>) -> Result<TokenAnswer, String> {
    let answer = answer?;
    let wrong = |_| mismatch(answer.shown(), "an ID token, an access token and a refresh token", PASS_ON);
    TokenAnswer::deserialize(&answer.json).map_err(wrong)
}

fn read_key(jwk: &Value) -> Option<Key> {
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok();
    let key = match jwk["kty"].as_str()? {
        "RSA" => PublicKey::Rsa { n: bytes("n")?, e: bytes("e")? },
        _ => PublicKey::P256 { crv: "P-256", x: bytes("x")?, y: bytes("y")? },
    };
    Some((jwk["kid"].as_str()?.to_owned(), jwk["alg"].as_str()?.parse().ok()?, key))
}
