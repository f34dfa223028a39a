//! What callers of the API may rely on in a refusal.

use crate::web::http::challenge::{CaptchaChallenge, CaptchaLater};
use actix_web::body::to_bytes;
use rust_i18n::t;
use serde_json::{Value, json};

use super::*;

async fn answer(problem: &Problem) -> (HttpResponse<()>, Value) {
    parsed(problem.respond()).await
}

async fn parsed(answer: HttpResponse) -> (HttpResponse<()>, Value) {
    let (head, body) = answer.into_parts();
    let body = to_bytes(body).await.unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

#[actix_web::test]
async fn a_throttled_call_says_the_limit_and_the_wait_rounded_up_twice() {
    let wait = Duration::from_millis(56_001);
    let (head, body) = answer(&Problem::throttled("login-account", wait)).await;
    assert_eq!(head.status(), 429);
    assert_eq!(head.headers().get("retry-after").unwrap(), "57");
    assert_eq!(head.headers().get("content-type").unwrap(), "application/problem+json");
    assert_eq!(body["type"], "/problems/throttled");
    assert_eq!(
        (&body["limit"], &body["retry_after"], &body["status"]),
        (&json!("login-account"), &json!(57), &json!(429))
    );
}

#[actix_web::test]
async fn a_wait_is_never_told_as_nothing() {
    let (head, body) = answer(&Problem::Busy { retry_after: Duration::ZERO }).await;
    assert_eq!(
        (head.headers().get("retry-after").unwrap().as_bytes(), &body["retry_after"]),
        (&b"1"[..], &json!(1))
    );
}

#[actix_web::test]
async fn wrong_credentials_say_if_the_next_try_needs_a_captcha() {
    for captcha_required in [true, false] {
        let (head, body) = answer(&Problem::InvalidCredentials { captcha_required, field: None }).await;
        assert_eq!((head.status().as_u16(), &body["captcha_required"]), (401, &json!(captcha_required)));
    }
}

#[actix_web::test]
async fn a_captcha_refusal_carries_a_fresh_one() {
    let captcha = CaptchaBody::Challenge(CaptchaChallenge {
        id: "abc".into(),
        image: Some("/captcha/abc.png".into()),
        altcha: None,
        expires_in: 180,
    });
    let (limit, retry_after) = ("login-account".into(), Duration::from_secs(1));
    let problem = Problem::CaptchaRequired { limit, rule: None, retry_after };
    let (head, body) = parsed(problem.respond_with(Some(&captcha))).await;
    assert_eq!(head.status(), 403);
    assert_eq!(body["captcha"], json!({"id": "abc", "image": "/captcha/abc.png", "expires_in": 180}));
    let captcha = CaptchaBody::Later(CaptchaLater { retry_after: 7 });
    let (_, body) = parsed(Problem::CaptchaInvalid.respond_with(Some(&captcha))).await;
    assert_eq!(body["captcha"], json!({ "retry_after": 7 }));
}

#[actix_web::test]
async fn causes_never_leak_into_what_a_caller_sees() {
    let (_, body) = answer(&Problem::Internal).await;
    let members: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(members, ["type", "title", "status", "detail"]);
    assert_eq!(Problem::Internal.to_string(), "internal");
}

#[actix_web::test]
async fn a_refused_method_names_those_that_work() {
    let (head, _) = answer(&Problem::MethodNotAllowed { allow: "GET, HEAD".into() }).await;
    assert_eq!(head.headers().get("allow").unwrap(), "GET, HEAD");
}

#[test]
fn every_problem_has_its_page_in_every_language_and_the_same_title_in_english() {
    for kind in KINDS.iter().copied() {
        assert_eq!(kind_named(kind.name), Some(kind));
        for locale in Locale::ALL {
            for part in ["title", "about"] {
                let key = format!("problem.{}.{part}", kind.name);
                let text = t!(&key, locale = locale.code());
                assert!(!text.contains("problem."), "{key}");
                assert!(part != "title" || locale != Locale::En || text == kind.title, "{key}");
            }
        }
    }
    assert_eq!(kind_named("../etc"), None);
}

#[test]
fn the_documentation_lists_every_problem_at_its_status() {
    let page = include_str!("../../../docs/api.md");
    for kind in KINDS.iter() {
        let (row, name) = (format!("| {} |", kind.status.as_u16()), format!("`{}`", kind.name));
        let listed = page.lines().any(|line| line.starts_with(&row) && line.contains(&name));
        assert!(listed, "docs/api.md lists no {name} at {}", kind.status);
    }
}

#[test]
fn rows_of_one_name_have_one_status_and_one_title() {
    for kind in KIND_OF_ROWS {
        let first = kind_named(kind.name).unwrap();
        assert_eq!((first.status, first.title), (kind.status, kind.title), "{}", kind.name);
    }
}
