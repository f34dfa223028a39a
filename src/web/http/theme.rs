//! The colours that the reader chose for this browser: light, dark, or as the system says.

use strum::{EnumString, IntoStaticStr, VariantArray};

/// The themes, by the keys of their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(prefix = "theme.", serialize_all = "kebab-case", const_into_str)]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    /// In `?theme=` and in the cookie.
    pub fn code(self) -> &'static str {
        self.into_str().trim_start_matches("theme.")
    }

    /// The page's `color-scheme`: browsers draw scroll bars and fields by it.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::System => "light dark",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The media query of the dark colours; None where they are never used.
    pub const fn dark_when(self) -> Option<&'static str> {
        match self {
            Self::System => Some("(prefers-color-scheme: dark)"),
            Self::Light => None,
            Self::Dark => Some("all"),
        }
    }
}
