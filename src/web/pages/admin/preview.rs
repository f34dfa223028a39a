//! What a draft would have done to recorded traffic, beside what is in force.

use std::borrow::Cow;

use rust_i18n::t;

use crate::tuning::replay::Bounds;
use crate::web::locale::Locale;
use crate::web::pages::admin::draft::Stretch;
use crate::web::pages::admin::words::{grouped, title};

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

/// A figure in the words of the reader's language.
pub trait Figure {
    fn text(self, locale: Locale) -> Cow<'static, str>;
}

impl Figure for Bounds {
    fn text(self, locale: Locale) -> Cow<'static, str> {
        if self.low == self.high {
            return Cow::Owned(grouped(self.low));
        }
        let (low, high, about) = (grouped(self.low), grouped(self.high), grouped(self.estimate));
        t!("preview.between", locale = locale.code(), low = low, high = high, about = about)
    }
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
    pub old: Bounds,
    pub new: Bounds,
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
    fn scale(&self, count: u64) -> u64 {
        let longest = self.old.high.max(self.new.high).max(1);
        (u128::from(count) * 100).div_ceil(u128::from(longest)) as u64
    }

    /// The sure part of a bar and all that it may be.
    pub fn bar(&self, bounds: &Bounds) -> (u64, u64) {
        (self.scale(bounds.low), self.scale(bounds.high))
    }

    pub fn same(&self) -> bool {
        self.old == self.new
    }

    /// Of the figure of the draft: only where it is better or worse for sure.
    pub fn tone(&self) -> &'static str {
        let more = self.new.low > self.old.high;
        let less = self.new.high < self.old.low;
        match self.more_is_better {
            Some(better) if (more && better) || (less && !better) => "better",
            Some(better) if (more && !better) || (less && better) => "worse",
            _ => "",
        }
    }
}

pub struct PreviewView {
    pub stretch: Stretch,
    /// How many recorded attempts it was tried on.
    pub attempts: u64,
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

    /// As far as it could be tried, which is all of it.
    pub fn changes_nothing(&self) -> bool {
        !self.caveats.contains(&NOT_REPLAYED) && self.lines.iter().all(PreviewLine::same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_better_or_worse_only_where_that_is_sure() {
        let line = |old, new, better| PreviewLine {
            about: About::All("preview.challenged"),
            old: Bounds::exactly(old),
            new,
            more_is_better: Some(better),
        };
        let between = Bounds { low: 8, estimate: 9, high: 12 };
        assert_eq!(line(10, between, true).tone(), "");
        assert_eq!(line(7, between, true).tone(), "better");
        assert_eq!(line(7, between, false).tone(), "worse");
        assert_eq!(line(20, between, false).tone(), "better");
        assert_eq!(between.text(Locale::En), "about 9 (8 to 12)");
        assert_eq!(line(20, between, false).bar(&between), (40, 60));
    }
}
