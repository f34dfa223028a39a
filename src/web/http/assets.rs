//! Public bodies that never change while the server runs: the style sheets, the scripts and the icon, compiled in, each at a
//! URL that contains its hash; and how such a body is compressed and cached.

use std::io::Write;
use std::sync::LazyLock;

use actix_web::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETag, EntityTag, Header, HeaderMap,
    HeaderValue, IfNoneMatch, VARY,
};
use actix_web::web::{self, Bytes};
use actix_web::{HttpRequest, HttpResponse};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::web::http::brand::{self, short_hash};
use crate::web::http::locale::weight;
use crate::web::http::problem::Problem;
use crate::web::http::services::ServicesData;

pub struct Asset {
    pub url: String,
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

pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("app", "css", "text/css; charset=utf-8", include_bytes!("../../../static/app.css"))
});
/// The dark colours, linked where the reader's theme has them.
pub static DARK: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("dark", "css", "text/css; charset=utf-8", include_bytes!("../../../static/dark.css"))
});
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("app", "js", "text/javascript; charset=utf-8", include_bytes!("../../../static/app.js"))
});
/// The worker that computes proofs of work.
pub static PROOF: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("proof", "js", "text/javascript; charset=utf-8", include_bytes!("../../../static/proof.js"))
});
/// Asks for passkeys, on pages whose forms take them.
pub static PASSKEYS: LazyLock<Asset> = LazyLock::new(|| {
    const BODY: &[u8] = include_bytes!("../../../static/passkeys.js");
    Asset::new("passkeys", "js", "text/javascript; charset=utf-8", BODY)
});
pub static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("favicon", "svg", "image/svg+xml", include_bytes!("../../../static/favicon.svg"))
});

/// `GET /static/{file}`. A URL of another release gets the current file, marked as not cacheable. So every
/// page has its style while instances are replaced one by one.
pub async fn serve(request: HttpRequest, file: web::Path<String>) -> Result<HttpResponse, Problem> {
    let asked = file.into_inner();
    for asset in [&*STYLE, &*DARK, &*SCRIPT, &*PROOF, &*PASSKEYS, &*ICON] {
        if asset.url.strip_prefix("/static/") == Some(asked.as_str()) {
            return Ok(asset.body.respond(&request, "public, max-age=31536000, immutable"));
        }
        let middle = asked.strip_prefix(asset.stem).and_then(|rest| rest.strip_suffix(asset.extension));
        if middle.is_some_and(|hash| hash.starts_with('.') && hash.ends_with('.')) {
            return Ok(asset.body.respond(&request, "no-cache"));
        }
    }
    let services = request.app_data::<ServicesData>();
    services
        .and_then(|services| brand::serve(&services.live.snapshot().brand, &asked))
        .ok_or(Problem::NotFound)
}

/// `GET /favicon.ico`, which browsers request by themselves for an image or JSON.
pub async fn icon(request: HttpRequest) -> HttpResponse {
    ICON.body.respond(&request, "public, max-age=86400")
}

/// A body, plain and compressed, each with its tag (RFC 9110, 8.8.3.3: the two are not the same bytes).
pub struct PublicBody {
    plain: (Bytes, EntityTag),
    gzip: (Bytes, EntityTag),
    kind: &'static str,
}

impl PublicBody {
    pub fn new(kind: &'static str, bytes: impl Into<Bytes>) -> Self {
        let plain = bytes.into();
        let hash = short_hash(&plain);
        let gzip = (gzip(&plain), EntityTag::new_strong(format!("{hash}-gzip")));
        Self { gzip, plain: (plain, EntityTag::new_strong(hash)), kind }
    }

    /// `caching` is its `Cache-Control`.
    pub fn respond(&self, request: &HttpRequest, caching: &'static str) -> HttpResponse {
        let compressed = accepts_gzip(request.headers());
        let (body, tag) = if compressed { &self.gzip } else { &self.plain };
        let known = has(request, tag);
        let mut response = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
        response
            .insert_header((CACHE_CONTROL, HeaderValue::from_static(caching)))
            .insert_header(ETag(tag.clone()))
            .insert_header((VARY, HeaderValue::from_static("accept-encoding")));
        if known {
            return response.finish();
        }
        if compressed {
            response.insert_header((CONTENT_ENCODING, HeaderValue::from_static("gzip")));
        }
        response.insert_header((CONTENT_TYPE, HeaderValue::from_static(self.kind))).body(body.clone())
    }
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes any bytes").into()
}

/// RFC 9110, 12.5.3: by its name, or else by `*`.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).filter_map(|line| line.to_str().ok());
    let mut any = None;
    // More than sixteen codings are an attempt to cost us time.
    for item in lines.flat_map(|line| line.split(',')).take(16) {
        let (coding, parameter) = item.split_once(';').unwrap_or((item, "q=1"));
        let wanted = weight(parameter).is_some_and(|weight| weight > 0);
        match coding.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => return wanted,
            "*" => any = Some(wanted),
            _ => {}
        }
    }
    any.unwrap_or(false)
}

/// Whether the client has this already (RFC 9110, 13.1.2: a weak comparison).
fn has(request: &HttpRequest, tag: &EntityTag) -> bool {
    match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(tag)),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    use actix_web::App;
    use actix_web::body::to_bytes;
    use actix_web::test::{TestRequest, call_service, init_service};

    async fn get(path: &str) -> (u16, String) {
        let app = init_service(App::new().route("/static/{file}", web::get().to(serve))).await;
        let response = call_service(&app, TestRequest::get().uri(path).to_request()).await;
        let caching = response.headers().get("cache-control").map(|v| v.to_str().unwrap().to_owned());
        (response.status().as_u16(), caching.unwrap_or_default())
    }

    #[actix_web::test]
    async fn an_asset_is_kept_for_ever_at_the_address_of_its_content() {
        for url in [&STYLE, &DARK, &SCRIPT, &PROOF, &ICON].map(|asset| asset.url.as_str()) {
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

    async fn get_body(headers: &[(&str, &str)]) -> (u16, HeaderMap, Vec<u8>) {
        let body = PublicBody::new("text/css", "a { color: red }\n".repeat(100));
        let request =
            headers.iter().fold(TestRequest::get(), |request, header| request.insert_header(*header));
        let response = body.respond(&request.to_http_request(), "no-cache");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, to_bytes(response.into_body()).await.unwrap().to_vec())
    }

    #[actix_web::test]
    async fn a_body_is_compressed_for_who_accepts_that() {
        let (_, headers, plain) = get_body(&[]).await;
        assert!(
            !headers.contains_key("content-encoding") && headers.get("vary").unwrap() == "accept-encoding"
        );
        for accepted in ["gzip", "br;q=1.0, gzip;q=0.8, *;q=0.1", "deflate, GZIP", "*", "br, x-gzip"] {
            let (status, headers, body) = get_body(&[("accept-encoding", accepted)]).await;
            assert_eq!((status, headers.get("content-encoding").unwrap()), (200, &"gzip".parse().unwrap()));
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut read).unwrap();
            assert!(read == plain && body.len() * 5 < plain.len(), "{accepted}");
        }
        for not in ["", "identity", "br", "gzip;q=0", "gzip;q=0, *", "*;q=0", "gzip;q=nonsense"] {
            let (_, headers, body) = get_body(&[("accept-encoding", not)]).await;
            assert!(!headers.contains_key("content-encoding") && body == plain, "{not}");
        }
    }

    #[actix_web::test]
    async fn who_has_a_body_does_not_get_it_again() {
        for encoding in ["identity", "gzip"] {
            let (_, headers, _) = get_body(&[("accept-encoding", encoding)]).await;
            let tag = headers.get("etag").unwrap().to_str().unwrap().to_owned();
            for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
                let (status, headers, body) =
                    get_body(&[("accept-encoding", encoding), ("if-none-match", &known)]).await;
                assert_eq!(
                    (status, body.len(), headers.get("etag").unwrap().to_str().unwrap()),
                    (304, 0, &*tag)
                );
            }
            let other = if encoding == "gzip" { "identity" } else { "gzip" };
            let (status, ..) = get_body(&[("accept-encoding", other), ("if-none-match", &tag)]).await;
            assert_eq!(status, 200, "the other bytes have another tag");
        }
    }
}
