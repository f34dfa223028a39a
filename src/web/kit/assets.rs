//! The style sheet, the scripts and the icon: compiled in, each at a URL that contains its hash.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};

use crate::web::kit::problem::Problem;
use crate::web::kit::public_body::{PublicBody, short_hash};

struct Asset {
    url: String,
    stem: &'static str,
    extension: &'static str,
    body: PublicBody,
}

impl Asset {
    fn new(stem: &'static str, extension: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let url = format!("/static/{stem}.{}.{extension}", short_hash(bytes));
        Self { url, stem, extension, body: PublicBody::new(kind, bytes) }
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("app", "css", "text/css; charset=utf-8", include_bytes!("../../../static/app.css"))
});
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("app", "js", "text/javascript; charset=utf-8", include_bytes!("../../../static/app.js"))
});
static PROOF: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("proof", "js", "text/javascript; charset=utf-8", include_bytes!("../../../static/proof.js"))
});
static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("favicon", "svg", "image/svg+xml", include_bytes!("../../../static/favicon.svg"))
});

pub fn style_url() -> &'static str {
    &STYLE.url
}

pub fn script_url() -> &'static str {
    &SCRIPT.url
}

/// The worker that computes proofs of work.
pub fn proof_url() -> &'static str {
    &PROOF.url
}

pub fn icon_url() -> &'static str {
    &ICON.url
}

/// `GET /static/{file}`. A URL of another release gets the current file, marked as not cacheable. So every
/// page has its style while instances are replaced one by one.
pub async fn serve(request: HttpRequest, file: web::Path<String>) -> Result<HttpResponse, Problem> {
    let asked = file.into_inner();
    for asset in [&*STYLE, &*SCRIPT, &*PROOF, &*ICON] {
        if asset.url.strip_prefix("/static/") == Some(asked.as_str()) {
            return Ok(asset.body.respond(&request, "public, max-age=31536000, immutable"));
        }
        let middle = asked.strip_prefix(asset.stem).and_then(|rest| rest.strip_suffix(asset.extension));
        if middle.is_some_and(|hash| hash.starts_with('.') && hash.ends_with('.')) {
            return Ok(asset.body.respond(&request, "no-cache"));
        }
    }
    Err(Problem::NotFound)
}

/// `GET /favicon.ico`, which browsers request by themselves for an image or JSON.
pub async fn icon(request: HttpRequest) -> HttpResponse {
    ICON.body.respond(&request, "public, max-age=86400")
}

#[cfg(test)]
mod tests {
    use actix_web::App;
    use actix_web::test::{TestRequest, call_service, init_service};

    use super::*;

    async fn get(path: &str) -> (u16, String) {
        let app = init_service(App::new().route("/static/{file}", web::get().to(serve))).await;
        let response = call_service(&app, TestRequest::get().uri(path).to_request()).await;
        let caching = response.headers().get("cache-control").map(|v| v.to_str().unwrap().to_owned());
        (response.status().as_u16(), caching.unwrap_or_default())
    }

    #[actix_web::test]
    async fn an_asset_is_kept_for_ever_at_the_address_of_its_content() {
        for url in [style_url(), script_url(), proof_url(), icon_url()] {
            assert_eq!(get(url).await, (200, "public, max-age=31536000, immutable".into()));
        }
    }

    #[actix_web::test]
    async fn the_address_of_another_release_works_but_is_not_kept() {
        assert_eq!(get("/static/app.0123456789.css").await, (200, "no-cache".into()));
        assert_eq!(get("/static/app.css").await, (200, "no-cache".into()));
    }

    #[actix_web::test]
    async fn there_is_nothing_else() {
        assert_eq!(get("/static/secret.key").await.0, 404);
        assert_eq!(get("/static/..%2fCargo.toml").await.0, 404);
    }
}
