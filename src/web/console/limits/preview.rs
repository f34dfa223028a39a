//! What a draft would have done to recorded traffic, compared with the record.

use std::borrow::Cow;
use std::cmp::Ordering;

use rust_i18n::t;

use crate::web::console::document::draft::Stretch;
use crate::web::console::words::{grouped, title};
use crate::web::kit::locale::Locale;

/// A caveat: the draft also changes limits that cannot be replayed.
pub const NOT_REPLAYED: &str = "preview.not-replayed";

/// The result of a preview.
#[derive(Default)]
pub enum Trial {
    /// There was no preview.
    #[default]
    None,
    /// Why the preview failed; `said` is the error's own text.
    Unable {
        key: &'static str,
        said: Option<String>,
    },
    Done(PreviewView),
}

/// The subject of a line.
pub enum About {
    /// All replayed attempts; the value is the key of the label.
    All(&'static str),
    /// The challenges and refusals of one limit.
    Limit(String),
}

/// One compared figure.
pub struct PreviewLine {
    pub about: About,
    pub recorded: u64,
    /// The estimate for the draft.
    pub draft: u64,
    /// Whether a higher figure is better; None if that depends.
    pub more_is_better: Option<bool>,
}

impl PreviewLine {
    pub fn label(&self, locale: Locale) -> Cow<'static, str> {
        match &self.about {
            About::All(key) => locale.t(key),
            About::Limit(name) => {
                t!("preview.by-limit", locale = locale.code(), limit = title(name, locale))
            }
        }
    }

    /// The longest bar of the line has 100 units.
    pub fn bar(&self, count: &u64) -> u64 {
        let longest = self.recorded.max(self.draft).max(1);
        (u128::from(*count) * 100).div_ceil(u128::from(longest)) as u64
    }

    pub fn same(&self) -> bool {
        self.recorded == self.draft
    }

    pub fn figure(&self) -> String {
        grouped(self.recorded)
    }

    /// A figure is an estimate only if the draft changes it.
    pub fn estimate(&self, locale: Locale) -> Cow<'static, str> {
        let count = grouped(self.draft);
        if self.same() {
            Cow::Owned(count)
        } else {
            t!("preview.about", locale = locale.code(), count = count)
        }
    }

    /// The colour of the draft's figure.
    pub fn tone(&self) -> &'static str {
        match (self.more_is_better, self.draft.cmp(&self.recorded)) {
            (None, _) | (_, Ordering::Equal) => "",
            (Some(better), change) if better == change.is_gt() => "better",
            _ => "worse",
        }
    }
}

pub struct PreviewView {
    pub stretch: Stretch,
    /// How many recorded attempts were replayed.
    pub attempts: u64,
    /// How many of these attempts have an unknown outcome.
    pub unknown: u64,
    pub lines: Vec<PreviewLine>,
    /// What readers of the figures must know, as keys of sentences.
    pub caveats: Vec<&'static str>,
}

impl PreviewView {
    pub fn lead(&self, locale: Locale) -> Cow<'static, str> {
        let stretch = locale.t(self.stretch.key());
        let code = locale.code();
        t!("preview.lead", locale = code, stretch = stretch, count = grouped(self.attempts))
    }

    /// A note on what is estimated and what the record cannot show; None if nothing is estimated.
    pub fn estimated(&self, locale: Locale) -> Option<Cow<'static, str>> {
        let estimated = self.unknown > 0 || !self.lines.iter().all(PreviewLine::same);
        let unknown = grouped(self.unknown);
        estimated.then(|| t!("preview.estimated", locale = locale.code(), unknown = unknown))
    }

    /// True only if every changed limit could be replayed.
    pub fn changes_nothing(&self) -> bool {
        !self.caveats.contains(&NOT_REPLAYED) && self.lines.iter().all(PreviewLine::same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_of_the_draft_is_an_estimate_unless_it_is_as_recorded() {
        let line = |recorded, draft, better| PreviewLine {
            about: About::All("preview.challenged"),
            recorded,
            draft,
            more_is_better: Some(better),
        };
        assert_eq!(line(7, 9, true).tone(), "better");
        assert_eq!(line(7, 9, false).tone(), "worse");
        assert_eq!(line(9, 7, false).tone(), "better");
        assert_eq!(line(9, 9, false).tone(), "");
        assert_eq!(line(20, 1_900, false).estimate(Locale::En), "about 1,900");
        assert_eq!(line(1_900, 1_900, false).estimate(Locale::En), "1,900");
        assert_eq!(line(20, 8, false).bar(&8), 40);
    }
}
