//! A client by the crate openidconnect, as Proxmox uses it: it reads the provider's description and keys anew each time. It
//! tells a test what it learns: see tests/clients/oidc/talk.mjs.

use std::error::Error;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;

use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim,
    CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata,
    CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken, EmptyExtraTokenFields,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IdTokenFields, IssuerUrl,
    JsonWebKey, Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken,
    RequestTokenError, Scope, StandardErrorResponse, StandardTokenResponse, TokenResponse, UserInfoClaims,
    http,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Failure = Box<dyn Error>;

#[derive(Debug, Deserialize, Serialize)]
struct Groups {
    groups: Vec<String>,
}
impl AdditionalClaims for Groups {}

type Fields = IdTokenFields<
    Groups,
    EmptyExtraTokenFields,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;
type CodeTokens = StandardTokenResponse<Fields, CoreTokenType>;
type Provider = Client<
    Groups,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    CodeTokens,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

fn fetch(request: HttpRequest) -> std::io::Result<HttpResponse> {
    exchange(request).map_err(|error| std::io::Error::other(error.to_string()))
}

/// Without TLS, which there is none of between the processes of a test.
fn exchange(request: HttpRequest) -> Result<HttpResponse, Failure> {
    let uri = request.uri().clone();
    let authority = uri.authority().ok_or("no host")?;
    let mut stream = TcpStream::connect(authority.as_str())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    write!(stream, "{} {path} HTTP/1.0\r\nHost: {authority}\r\n", request.method())?;
    for (name, value) in request.headers() {
        write!(stream, "{name}: {}\r\n", value.to_str()?)?;
    }
    write!(stream, "Content-Length: {}\r\n\r\n", request.body().len())?;
    stream.write_all(request.body())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no head")?;
    let head = std::str::from_utf8(&answer[..end])?;
    let status = head.split(' ').nth(1).ok_or("no status")?;
    let mut response = http::Response::builder().status(status);
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    Ok(response.body(answer[end + 4..].to_vec())?)
}

struct Settings {
    issuer: String,
    id: String,
    redirect_uri: String,
}

impl Settings {
    fn provider(&self) -> Result<Provider, Failure> {
        let metadata = CoreProviderMetadata::discover(&IssuerUrl::new(self.issuer.clone())?, &fetch)?;
        let secret = std::env::var("PROXMOX_SECRET").ok().map(ClientSecret::new);
        let client = Client::from_provider_metadata(metadata, ClientId::new(self.id.clone()), secret);
        Ok(client.set_redirect_uri(RedirectUrl::new(self.redirect_uri.clone())?))
    }
}

/// What is kept of a sign-in.
struct SignIn {
    state: CsrfToken,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
}

fn begin(settings: &Settings) -> Result<(Value, SignIn), Failure> {
    let provider = settings.provider()?;
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let mut request = provider.authorize_url(
        CoreAuthenticationFlow::AuthorizationCode,
        CsrfToken::new_random,
        Nonce::new_random,
    );
    for scope in ["profile", "email", "groups"] {
        request = request.add_scope(Scope::new(scope.to_owned()));
    }
    let request = request.set_display(CoreAuthDisplay::Page).set_pkce_challenge(challenge);
    let (to, state, nonce) = request.url();
    Ok((json!({ "to": to }), SignIn { state, nonce, verifier }))
}

/// The claims of the ID token, whose signature is checked, and the key that signed it.
fn told(provider: &Provider, tokens: &CodeTokens, nonce: Option<&Nonce>) -> Result<Value, Failure> {
    let token = tokens.id_token().ok_or("no ID token")?;
    let fits = |sent: Option<&Nonce>| match (nonce, sent) {
        (Some(nonce), Some(sent)) if nonce.secret() == sent.secret() => Ok(()),
        (None, None) => Ok(()),
        _ => Err("another nonce".to_owned()),
    };
    let verifier = provider.id_token_verifier();
    let claims = token.claims(&verifier, fits)?;
    let kid = token.signing_key(&verifier)?.key_id();
    Ok(json!({ "claims": claims, "kid": kid }))
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("ISSUER ID REDIRECT_URI");
    let settings = Settings { issuer: next()?, id: next()?, redirect_uri: next()? };
    let (to, mut sign_in) = begin(&settings)?;
    println!("{to}");
    let mut kept: Option<CodeTokens> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (word, value) = line.split_once(' ').unwrap_or((&line, ""));
        let provider = settings.provider()?;
        let said = match word {
            "again" => {
                let (to, next) = begin(&settings)?;
                sign_in = next;
                to
            }
            "back" => {
                let (_, query) = value.split_once('?').ok_or("no answer")?;
                let sent = |name: &str| {
                    query
                        .split('&')
                        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                        .unwrap_or_default()
                };
                assert_eq!(sent("state"), sign_in.state.secret());
                let verifier = PkceCodeVerifier::new(sign_in.verifier.secret().clone());
                let code = AuthorizationCode::new(sent("code").to_owned());
                let tokens = provider.exchange_code(code)?.set_pkce_verifier(verifier).request(&fetch)?;
                let mut said = told(&provider, &tokens, Some(&sign_in.nonce))?;
                let user: UserInfoClaims<Groups, CoreGenderClaim> =
                    provider.user_info(tokens.access_token().clone(), None)?.request(&fetch)?;
                said["user"] = json!(user);
                kept = Some(tokens);
                said
            }
            "refresh" => {
                let token = kept.as_ref().and_then(|tokens| tokens.refresh_token()).ok_or("no token")?;
                let token = RefreshToken::new(token.secret().clone());
                match provider.exchange_refresh_token(&token)?.request(&fetch) {
                    Ok(tokens) => {
                        let said = told(&provider, &tokens, None)?;
                        kept = Some(tokens);
                        said
                    }
                    Err(RequestTokenError::ServerResponse(refused)) => json!({ "refused": refused.error() }),
                    Err(error) => return Err(error.into()),
                }
            }
            _ => json!({}),
        };
        println!("{said}");
    }
    Ok(())
}
