//! The reader's language, and the texts in it.

use std::borrow::Cow;

use rust_i18n::t;

/// The languages of `locales/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locale {
    #[default]
    En,
    ZhCn,
}

impl Locale {
    pub const ALL: [Self; 2] = [Self::En, Self::ZhCn];

    /// The code used in file names, `lang` attributes and `Content-Language` (BCP 47).
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::ZhCn => "zh-CN",
        }
    }

    /// The language's name for itself.
    pub const fn own_name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::ZhCn => "简体中文",
        }
    }

    /// An explicit choice, by `?lang=` or by the cookie. It must be exactly one of our codes.
    pub fn named(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|locale| locale.code().eq_ignore_ascii_case(code))
    }

    /// The locale that serves a language range of `Accept-Language`. Readers of Traditional Chinese are
    /// served better by Simplified Chinese than by English.
    fn serving(range: &str) -> Option<Self> {
        let language = range.split('-').next().unwrap_or(range);
        match language.to_ascii_lowercase().as_str() {
            "en" | "*" => Some(Self::En),
            "zh" => Some(Self::ZhCn),
            _ => None,
        }
    }

    /// The best match of `Accept-Language` (RFC 9110 §12.5.4): highest q first, then in order of appearance.
    pub fn accepted(header: &str) -> Option<Self> {
        let mut best: Option<(u16, Self)> = None;
        // More than sixteen languages are an attempt to cost us time.
        for item in header.split(',').take(16) {
            let mut parts = item.split(';');
            let range = parts.next().unwrap_or_default().trim();
            let Some(weight) = parts.next().map_or(Some(1000), weight) else { continue };
            let Some(locale) = Self::serving(range).filter(|_| weight > 0) else { continue };
            if best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, locale));
            }
        }
        best.map(|(_, locale)| locale)
    }

    /// `key` must be in `locales/en.toml`. A test checks every template and source for this.
    pub fn t(self, key: &'static str) -> Cow<'static, str> {
        t!(key, locale = self.code())
    }
}

/// `q=0.8` in thousandths; None if it is not a weight.
pub(super) fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.trim().split_once('=')?;
    let q: f32 = value.trim().parse().ok()?;
    (name.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&q)).then_some((q * 1000.0).round() as u16)
}

#[cfg(test)]
#[path = "locale_tests.rs"]
mod tests;
