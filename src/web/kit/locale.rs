//! Which language a reader gets, and the words in it.

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

    /// As files, `lang` attributes and `Content-Language` have it (BCP 47).
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::ZhCn => "zh-CN",
        }
    }

    /// What its readers call it.
    pub const fn own_name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::ZhCn => "简体中文",
        }
    }

    /// A choice made by name, in `?lang=` or in the cookie: exactly one of ours.
    pub fn named(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|locale| locale.code().eq_ignore_ascii_case(code))
    }

    /// A language range of `Accept-Language` that one of ours can serve. Traditional Chinese readers
    /// are better served by simplified Chinese than by English.
    fn serving(range: &str) -> Option<Self> {
        let language = range.split('-').next().unwrap_or(range);
        match language.to_ascii_lowercase().as_str() {
            "en" | "*" => Some(Self::En),
            "zh" => Some(Self::ZhCn),
            _ => None,
        }
    }

    /// The best of `Accept-Language` (RFC 9110 §12.5.4): highest q first, then the order written.
    pub fn accepted(header: &str) -> Option<Self> {
        let mut best: Option<(u16, Self)> = None;
        // A reader with more than sixteen languages is a header made to cost us time.
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

    /// `key` must be one of `locales/en.toml`; a test reads every template and source for them.
    pub fn t(self, key: &'static str) -> Cow<'static, str> {
        t!(key, locale = self.code())
    }
}

/// `q=0.8` in thousandths; none where it is no weight.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.trim().split_once('=')?;
    let q: f32 = value.trim().parse().ok()?;
    (name.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&q)).then_some((q * 1000.0).round() as u16)
}

#[cfg(test)]
#[path = "locale_tests.rs"]
mod tests;
