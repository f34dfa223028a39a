//! Charts as SVG without a script: stacked bars over time, each with a text, and the same data as a table.

use std::time::Duration;

use crate::clock::Micros;
use crate::web::console::limit_text::grouped;
use crate::web::http::{Locale, Moment};

/// The chart's height in units. Its width is ten units a column.
pub const HEIGHT: u64 = 100;
pub const COLUMN: u64 = 10;
const BAR: u64 = 8;

/// One counted kind. The first is lowest in the stack.
pub struct Series {
    /// The locale key of its name.
    pub key: &'static str,
    pub tone: &'static str,
    pub counts: Vec<u64>,
}

/// The span of a chart in steps of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChartSpan {
    pub start: Micros,
    pub step: Duration,
    pub steps: usize,
}

impl ChartSpan {
    /// The current step is the last one.
    pub fn ending(now: Micros, step: Duration, steps: usize) -> Self {
        let size = step.as_micros() as i64;
        let last = now.0 - now.0.rem_euclid(size);
        Self { start: Micros(last - size * (steps as i64 - 1)), step, steps }
    }

    pub fn place(&self, at: Micros) -> Option<usize> {
        let place = (at.0 - self.start.0).div_euclid(self.step.as_micros() as i64);
        usize::try_from(place).ok().filter(|place| *place < self.steps)
    }

    /// Sums by step, of what was in the span.
    pub fn counts(&self, all: impl IntoIterator<Item = (Micros, u64)>) -> Vec<u64> {
        let mut counts = vec![0; self.steps];
        for (at, count) in all {
            if let Some(place) = self.place(at) {
                counts[place] += count;
            }
        }
        counts
    }
}

pub struct Chart {
    pub id: &'static str,
    pub title: &'static str,
    start: Micros,
    step: Duration,
    series: Vec<Series>,
}

pub struct Column {
    pub from: Moment,
    pub words: String,
    pub bars: Vec<Bar>,
    pub counts: Vec<String>,
    /// The position of the strip that reacts to the pointer.
    pub x: u64,
}

pub struct Bar {
    pub tone: &'static str,
    pub x: u64,
    pub y: u64,
    pub width: u64,
    pub height: u64,
}

impl Chart {
    pub const fn new(
        id: &'static str,
        title: &'static str,
        start: Micros,
        step: Duration,
        series: Vec<Series>,
    ) -> Self {
        Self { id, title, start, step, series }
    }

    pub fn series(&self) -> &[Series] {
        &self.series
    }

    fn steps(&self) -> usize {
        self.series.iter().map(|series| series.counts.len()).max().unwrap_or(0)
    }

    fn count(&self, series: &Series, step: usize) -> u64 {
        series.counts.get(step).copied().unwrap_or(0)
    }

    fn total(&self, step: usize) -> u64 {
        self.series.iter().map(|series| self.count(series, step)).sum()
    }

    pub fn width(&self) -> u64 {
        self.steps() as u64 * COLUMN
    }

    pub fn height(&self) -> u64 {
        HEIGHT
    }

    pub fn is_empty(&self) -> bool {
        (0..self.steps()).all(|step| self.total(step) == 0)
    }

    /// The value at the top of the chart: a round number at least as high as the highest bar.
    pub fn top(&self) -> u64 {
        ceiling((0..self.steps()).map(|step| self.total(step)).max().unwrap_or(0))
    }

    pub fn top_text(&self) -> String {
        grouped(self.top())
    }

    /// Start, middle and end, for below the chart.
    pub fn ticks(&self) -> [Moment; 3] {
        let at = |step: usize| Moment(self.start.plus(self.step * u32::try_from(step).unwrap_or(u32::MAX)));
        [at(0), at(self.steps() / 2), at(self.steps())]
    }

    /// A time of day alone would be ambiguous.
    pub fn is_long(&self) -> bool {
        self.step * u32::try_from(self.steps()).unwrap_or(u32::MAX) > Duration::from_secs(25 * 60 * 60)
    }

    pub fn told(&self, at: &Moment) -> String {
        if self.is_long() { at.text() } else { at.clock() }
    }

    /// The sum of each kind as a sentence, for readers who do not see the bars.
    pub fn summary(&self, locale: Locale) -> String {
        let one = |series: &Series| {
            format!("{} {}", locale.t(series.key), grouped(series.counts.iter().sum::<u64>()))
        };
        self.series.iter().map(one).collect::<Vec<_>>().join(" · ")
    }

    pub fn columns(&self, locale: Locale) -> Vec<Column> {
        (0..self.steps()).filter(|step| self.total(*step) > 0).map(|step| self.column(step, locale)).collect()
    }

    fn column(&self, step: usize, locale: Locale) -> Column {
        let from = Moment(self.start.plus(self.step * u32::try_from(step).unwrap_or(u32::MAX)));
        let (top, x) = (self.top(), step as u64 * COLUMN);
        let (mut bars, mut below, mut told) = (Vec::new(), 0, Vec::new());
        for series in &self.series {
            let count = self.count(series, step);
            if count == 0 {
                continue;
            }
            told.push(format!("{} {}", locale.t(series.key), grouped(count)));
            // A count above zero is always visible, however small it is beside the others.
            let (low, high) = (scaled(below, top), scaled(below + count, top).max(scaled(below, top) + 1));
            let (y, height) = (HEIGHT.saturating_sub(high), high - low);
            bars.push(Bar { tone: series.tone, x: x + (COLUMN - BAR) / 2, y, width: BAR, height });
            below += count;
        }
        let counts = self.series.iter().map(|series| grouped(self.count(series, step))).collect();
        Column { from, words: told.join(", "), bars, counts, x }
    }
}

fn scaled(count: u64, top: u64) -> u64 {
    (count as u128 * u128::from(HEIGHT)).div_ceil(u128::from(top.max(1))) as u64
}

/// The next of 1, 2, 5, 10, 20, 50 …
fn ceiling(highest: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for step in [1, 2, 5] {
            if let Some(round) = power.checked_mul(step).filter(|round| *round >= highest) {
                return round;
            }
        }
        let Some(next) = power.checked_mul(10) else { return highest };
        power = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(counts: Vec<Vec<u64>>) -> Chart {
        let tones = ["ok", "wrong", "refused"];
        let series = counts.into_iter().zip(tones).map(|(counts, tone)| Series {
            key: "overview.wrong",
            tone,
            counts,
        });
        Chart::new("c", "overview.sign-ins", Micros(0), Duration::from_secs(60), series.collect())
    }

    #[test]
    fn a_step_is_drawn_where_it_was_and_the_last_one_is_now() {
        let minutes = |minutes: i64| Micros::from_seconds(minutes * 60);
        let span = ChartSpan::ending(Micros(minutes(6_000).0 + 59), Duration::from_secs(60), 60);
        let counts = span.counts([70, 59, 0].map(|ago| (minutes(6_000 - ago), 2)));
        assert_eq!((counts[0], counts[59], counts.iter().sum::<u64>()), (2, 2, 4), "70 minutes ago is past");
    }

    #[test]
    fn bars_stand_on_one_another_and_reach_no_higher_than_the_chart() {
        let chart = chart(vec![vec![3, 0, 7], vec![1, 0, 900], vec![0, 0, 1]]);
        let columns = chart.columns(Locale::En);
        assert_eq!(columns.len(), 2, "where nothing happened nothing is drawn");
        for column in &columns {
            let mut foot = HEIGHT;
            for bar in &column.bars {
                assert!(bar.y + bar.height <= foot + 1 && bar.height > 0, "{} {} {foot}", bar.y, bar.height);
                foot = bar.y;
            }
        }
        assert_eq!(chart.top(), 1000);
    }

    #[test]
    fn the_scale_ends_at_a_round_number_above_the_highest_bar() {
        for (highest, top) in [(0, 1), (1, 1), (3, 5), (5, 5), (6, 10), (11, 20), (999, 1000), (1001, 2000)] {
            assert_eq!(ceiling(highest), top);
        }
        assert!(ceiling(u64::MAX) >= u64::MAX / 2);
    }

    #[test]
    fn an_empty_chart_says_so() {
        assert!(chart(vec![vec![0; 60]]).is_empty());
        assert!(!chart(vec![vec![0, 1]]).is_empty());
    }
}
