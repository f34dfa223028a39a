//! The answers to a body that cannot be read.

use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::{App, HttpResponse, web};
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::web::http::problem::WebResult;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    #[expect(dead_code, reason = "only its presence is tested")]
    login: String,
}

async fn form(body: UnreadBody<Call>) -> WebResult {
    body.read_form().await.map(|_| HttpResponse::NoContent().finish())
}

async fn send(path: &str, kind: &'static str, body: impl Into<web::Bytes>) -> (u16, String) {
    let app = init_service(
        App::new()
            .wrap(actix_web::middleware::from_fn(refuse_with_pages))
            .configure(configure)
            .route("/api/v1/x", web::post().to(async |_: web::Json<Call>| HttpResponse::NoContent()))
            .route("/x", web::post().to(form)),
    )
    .await;
    let request = TestRequest::post().uri(path).insert_header(("content-type", kind)).set_payload(body);
    let response = call_service(&app, request.to_request()).await;
    let status = response.status().as_u16();
    (status, String::from_utf8(read_body(response).await.to_vec()).unwrap())
}

async fn api(kind: &'static str, body: impl Into<web::Bytes>) -> (u16, Value) {
    let (status, body) = send("/api/v1/x", kind, body).await;
    (status, serde_json::from_str(&body).unwrap_or_default())
}

#[actix_web::test]
async fn an_unknown_field_is_refused_by_name() {
    let (status, body) = api("application/json", r#"{"login":"ada","rolse":1}"#).await;
    assert_eq!((status, &body["errors"][0]["field"]), (422, &Value::from("rolse")));
}

#[actix_web::test]
async fn a_missing_or_repeated_field_is_refused_by_name() {
    assert_eq!(api("application/json", "{}").await.1["errors"][0]["field"], "login");
    assert_eq!(
        api("application/json", r#"{"login":"a","login":"b"}"#).await.1["errors"][0]["field"],
        "login"
    );
}

#[actix_web::test]
async fn what_was_sent_is_never_repeated() {
    for body in [r#"{"login":12345678}"#, r#"{"login":"a","<script>hunter2</script>":1}"#, r#""hunter2""#] {
        let (status, answer) = api("application/json", body).await;
        let text = answer.to_string();
        assert_eq!((status, &answer["errors"][0]["field"]), (422, &Value::from("body")));
        assert!(!text.contains("hunter2") && !text.contains("12345678"), "{text}");
    }
}

#[actix_web::test]
async fn each_bad_body_has_its_own_problem() {
    assert_eq!(api("application/json", "{\"login\":").await.1["type"], "/problems/malformed-json");
    assert_eq!(api("application/json", "").await.1["type"], "/problems/malformed-json");
    let large = format!("{{\"login\":\"{}\"}}", "a".repeat(BODY_LIMIT));
    assert_eq!(api("application/json", large).await.1["type"], "/problems/payload-too-large");
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        assert_eq!(api(kind, "{}").await.1["type"], "/problems/unsupported-media-type");
    }
    assert_eq!(api("application/json", r#"{"login":"ada"}"#).await.0, 204);
}

#[actix_web::test]
async fn a_page_answers_a_bad_form_with_a_page() {
    let (status, body) = send("/x", "application/x-www-form-urlencoded", "a".repeat(BODY_LIMIT + 1)).await;
    assert_eq!(status, 413);
    assert!(body.starts_with("<!doctype html>"), "{body}");
    assert_eq!(send("/x", "application/json", "{}").await.0, 415);
    assert_eq!(send("/x", "application/x-www-form-urlencoded", "nothing=1").await.0, 400);
}
