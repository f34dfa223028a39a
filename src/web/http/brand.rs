//! The files of `[brand]`: its logo and its colours, each at a URL that contains its hash, beside our own assets.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::Bytes;
use strum::VariantArray;

use crate::config::{Brand, Colour};

#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum BrandFile {
    Logo,
    Light,
    /// Linked where the reader's theme has dark colours.
    Dark,
}

impl BrandFile {
    /// Its name before and after the hash, and its type.
    const fn form(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Logo => ("logo.", ".png", "image/png"),
            Self::Light => ("brand.", ".css", "text/css; charset=utf-8"),
            Self::Dark => ("brand-dark.", ".css", "text/css; charset=utf-8"),
        }
    }

    fn body(self, brand: &Brand) -> Option<Bytes> {
        match self {
            Self::Logo => brand.logo.as_ref().map(|logo| Bytes::from_owner(Arc::clone(&logo.png))),
            Self::Light => brand.colour.map(|colour| style(colour.on_light())),
            Self::Dark => brand.colour.map(|colour| style(colour.on_dark())),
        }
    }

    /// The address of a file; None if the brand has no such file.
    pub fn url(self, brand: &Brand) -> Option<String> {
        let (begin, end, _) = self.form();
        Some(format!("/static/{begin}{}{end}", short_hash(&self.body(brand)?)))
    }
}

/// Forty bits are enough to tell releases and brands apart.
pub fn short_hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..10].to_owned()
}

fn style([colour, deep]: [Colour; 2]) -> Bytes {
    format!(":root {{ --pine: {colour}; --pine-deep: {deep}; }}\n").into()
}

/// The file with this name. One of another hash belongs to a page of another instance, or from before a change: it gets
/// the current one, marked as not cacheable.
pub fn serve(brand: &Brand, asked: &str) -> Option<HttpResponse> {
    BrandFile::VARIANTS.iter().find_map(|file| {
        let (begin, end, kind) = file.form();
        let hash = asked.strip_prefix(begin)?.strip_suffix(end)?;
        let body = file.body(brand)?;
        let current = hash == short_hash(&body);
        let caching = if current { "public, max-age=31536000, immutable" } else { "no-cache" };
        Some(HttpResponse::Ok().content_type(kind).insert_header((CACHE_CONTROL, caching)).body(body))
    })
}
