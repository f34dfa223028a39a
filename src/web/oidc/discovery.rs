//! `GET /.well-known/openid-configuration` (OpenID Connect Discovery 1.0).

use actix_web::HttpResponse;
use actix_web::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL};
use serde_json::json;

use crate::oidc::{CLASSES, SCOPES};
use crate::web::http::{Locale, ServicesData};

pub async fn show(services: ServicesData) -> HttpResponse {
    // A client that reads this needs a key soon.
    services.token_keys.want();
    let issuer = services.public_url.as_str();
    let at = |path: &str| format!("{issuer}{path}");
    let by_secret = ["client_secret_basic", "client_secret_post"];
    let by_any = ["client_secret_basic", "client_secret_post", "none"];
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "public, max-age=300"))
        .insert_header((ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .json(json!({
            "issuer": issuer,
            "authorization_endpoint": at("/oauth/authorize"),
            "token_endpoint": at("/oauth/token"),
            "userinfo_endpoint": at("/oauth/userinfo"),
            "jwks_uri": at("/oauth/keys"),
            "revocation_endpoint": at("/oauth/revoke"),
            "introspection_endpoint": at("/oauth/introspect"),
            "end_session_endpoint": at("/oauth/logout"),
            "scopes_supported": SCOPES,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query", "form_post"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "acr_values_supported": CLASSES.map(|(name, _)| name),
            "subject_types_supported": ["public"],
            // Whichever signs now: the other one did, or will. RS256 has to be among them (Discovery, 3).
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "token_endpoint_auth_methods_supported": by_any,
            "revocation_endpoint_auth_methods_supported": by_any,
            "introspection_endpoint_auth_methods_supported": by_secret,
            "claims_supported": [
                "sub", "iss", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "sid", "at_hash", "preferred_username",
                "name", "email", "email_verified", "groups"
            ],
            "prompt_values_supported": ["none", "login", "consent", "select_account"],
            "ui_locales_supported": Locale::ALL.map(Locale::code),
            "code_challenge_methods_supported": ["S256"],
            "claims_parameter_supported": false,
            "request_parameter_supported": false,
            "request_uri_parameter_supported": false,
            "authorization_response_iss_parameter_supported": true,
            "backchannel_logout_supported": true,
            "backchannel_logout_session_supported": true,
        }))
}
