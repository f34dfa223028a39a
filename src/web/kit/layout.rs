//! The layout shared by all pages.

use std::borrow::Cow;

use rust_i18n::t;

use crate::web::kit::assets;
use crate::web::kit::flash::Flash;
use crate::web::kit::locale::Locale;
use crate::web::kit::message::{Field, FieldErrors};

/// The layout of a page. Made by `Visit::layout`.
#[derive(Debug, Clone)]
pub struct Layout {
    pub locale: Locale,
    pub csrf_token: String,
    /// Path and query of the page.
    pub here: String,
    /// The login of the signed-in user.
    pub user: Option<String>,
    pub flash: Option<Flash>,
    pub sends_codes: bool,
    /// Where codes are to be read that are not sent.
    pub outbox: Option<String>,
    /// Something goes on that the overview shows.
    pub alarm: bool,
    /// The page says what was wrong with what was sent: its title says so first.
    pub mistaken: bool,
}

/// A link to the same page in another language.
pub struct LanguageLink {
    pub code: &'static str,
    pub name: &'static str,
    pub href: String,
    pub current: bool,
}

impl Layout {
    pub fn t(&self, key: &'static str) -> Cow<'static, str> {
        self.locale.t(key)
    }

    pub fn lang(&self) -> &'static str {
        self.locale.code()
    }

    /// `t` with one placeholder, named `it`.
    pub fn with(&self, key: &'static str, it: &str) -> Cow<'static, str> {
        t!(key, locale = self.locale.code(), it = it)
    }

    pub fn languages(&self) -> Vec<LanguageLink> {
        let joint = if self.here.contains('?') { '&' } else { '?' };
        let link = |locale: Locale| LanguageLink {
            code: locale.code(),
            name: locale.own_name(),
            href: format!("{}{joint}lang={}", self.here, locale.code()),
            current: locale == self.locale,
        };
        Locale::ALL.into_iter().map(link).collect()
    }

    pub fn style(&self) -> &'static str {
        assets::style_url()
    }

    pub fn script(&self) -> &'static str {
        assets::script_url()
    }

    pub fn proof_worker(&self) -> &'static str {
        assets::proof_url()
    }

    pub fn icon(&self) -> &'static str {
        assets::icon_url()
    }

    /// The message beside a field, if any.
    pub fn error(&self, errors: &FieldErrors, field: Field) -> Option<Cow<'static, str>> {
        errors.of(field).map(|message| message.text(self.locale))
    }

    /// Every message with the id of its field, for the summary.
    pub fn summary(&self, errors: &FieldErrors) -> Vec<(&'static str, Cow<'static, str>)> {
        errors.iter().map(|(field, message)| (field.name(), message.text(self.locale))).collect()
    }
}
