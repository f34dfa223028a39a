//! What a draft would have done to recorded traffic, beside what was recorded.

use std::borrow::Cow;
use std::cmp::Ordering;

use rust_i18n::t;

use crate::web::console::limits::draft::Stretch;
use crate::web::console::words::{grouped, title};
use crate::web::kit::locale::Locale;

/// That the draft changes limits that cannot be replayed, too.
pub const NOT_REPLAYED: &str = "preview.not-replayed";

/// What came of trying a draft.
#[derive(Default)]
pub enum Trial {
    /// It was not tried.
    #[default]
    None,
    /// Why it could not be; `said` in the words of what refused it.
    Unable {
        key: &'static str,
        said: Option<String>,
    },
    Done(PreviewView),
}

/// What a line is about.
pub enum About {
    /// Everything that was tried, by the key of its words.
    All(&'static str),
    /// What one limit asked for or refused.
    Limit(String),
}

/// One thing that is compared.
pub struct PreviewLine {
    pub about: About,
    pub recorded: u64,
    /// As the draft is estimated.
    pub draft: u64,
    /// Whether more of it is what one wants; none where that depends.
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

    /// The longest bar of the line has a hundred units.
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

    /// Only what the draft changes is an estimate.
    pub fn estimate(&self, locale: Locale) -> Cow<'static, str> {
        let count = grouped(self.draft);
        if self.same() {
            Cow::Owned(count)
        } else {
            t!("preview.about", locale = locale.code(), count = count)
        }
    }

    /// Of the figure of the draft.
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
    /// How many recorded attempts it was tried on.
    pub attempts: u64,
    /// Of how many the record cannot know how they would have ended.
    pub unknown: u64,
    pub lines: Vec<PreviewLine>,
    /// What has to be known to read the figures, by the keys of its sentences.
    pub caveats: Vec<&'static str>,
}

impl PreviewView {
    pub fn lead(&self, locale: Locale) -> Cow<'static, str> {
        let stretch = locale.t(self.stretch.key());
        let code = locale.code();
        t!("preview.lead", locale = code, stretch = stretch, count = grouped(self.attempts))
    }

    /// What the figures of the draft are, and what the record cannot know; none if nothing is estimated.
    pub fn estimated(&self, locale: Locale) -> Option<Cow<'static, str>> {
        let estimated = self.unknown > 0 || !self.lines.iter().all(PreviewLine::same);
        let unknown = grouped(self.unknown);
        estimated.then(|| t!("preview.estimated", locale = locale.code(), unknown = unknown))
    }

    /// As far as it could be tried, which is all of it.
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
