//! Charts as SVG without a script: stacked bars over time, each with a text, and the same data as a table.

use std::time::Duration;

use crate::audit::StepSpan;
use crate::clock::Micros;
use crate::web::console::limit_text::grouped;
use crate::web::http::{Locale, Moment};

/// The chart's height in units, as in `components/chart.html`. Its width is ten units a column.
const HEIGHT: u64 = 100;
const COLUMN: u64 = 10;
const BAR: u64 = 8;

/// One counted kind. The first is lowest in the stack.
pub struct Series {
    /// The locale key of its name.
    pub key: &'static str,
    pub tone: &'static str,
    /// One of each step.
    pub counts: Vec<u64>,
}

pub struct Chart {
    pub id: &'static str,
    pub title: &'static str,
    pub span: StepSpan,
    pub series: Vec<Series>,
    /// The step of this moment is not over yet.
    pub now: Micros,
}

pub struct Column {
    pub from: Moment,
    pub words: String,
    pub bars: Vec<Bar>,
    pub counts: Vec<String>,
    /// The position of the strip that reacts to the pointer.
    pub x: u64,
    pub running: bool,
}

pub struct Bar {
    pub tone: &'static str,
    pub x: u64,
    pub y: u64,
    pub width: u64,
    pub height: u64,
}

impl Chart {
    fn total(&self, step: usize) -> u64 {
        self.series.iter().map(|series| series.counts[step]).sum()
    }

    pub fn width(&self) -> u64 {
        self.span.steps as u64 * COLUMN
    }

    pub fn is_empty(&self) -> bool {
        self.highest() == 0
    }

    /// The highest bar.
    fn highest(&self) -> u64 {
        (0..self.span.steps).map(|step| self.total(step)).max().unwrap_or(0)
    }

    /// The values at the side: the highest bar, half of it, and the ground. Always at the same heights.
    pub fn levels(&self) -> [String; 3] {
        let highest = self.highest();
        let half = if highest % 2 == 1 && highest < 100 { ".5" } else { "" };
        [grouped(highest), format!("{}{half}", grouped(highest / 2)), "0".to_owned()]
    }

    /// Start, middle and end, for below the chart.
    pub fn ticks(&self) -> [Moment; 3] {
        [0, self.span.steps / 2, self.span.steps].map(|step| Moment(self.span.at(step)))
    }

    /// A time of day alone would be ambiguous.
    pub fn is_long(&self) -> bool {
        self.span.end().since(self.span.start) > Duration::from_secs(25 * 60 * 60)
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
        let drawn = (0..self.span.steps).filter(|step| self.total(*step) > 0);
        drawn.map(|step| self.column(step, locale)).collect()
    }

    fn column(&self, step: usize, locale: Locale) -> Column {
        let (highest, x) = (self.highest(), step as u64 * COLUMN);
        let (mut bars, mut below, mut told) = (Vec::new(), 0, Vec::new());
        for series in &self.series {
            let count = series.counts[step];
            if count == 0 {
                continue;
            }
            told.push(format!("{} {}", locale.t(series.key), grouped(count)));
            // A count above zero is always visible, however small it is beside the others.
            let low = scaled(below, highest);
            let high = scaled(below + count, highest).max(low + 1);
            let (y, height) = (HEIGHT.saturating_sub(high), high - low);
            bars.push(Bar { tone: series.tone, x: x + (COLUMN - BAR) / 2, y, width: BAR, height });
            below += count;
        }
        let counts = self.series.iter().map(|series| grouped(series.counts[step])).collect();
        let (from, running) = (Moment(self.span.at(step)), self.span.place(self.now) == Some(step));
        Column { from, words: told.join(", "), bars, counts, x, running }
    }
}

/// A tenth above the highest bar stays free.
fn scaled(count: u64, highest: u64) -> u64 {
    (u128::from(count) * u128::from(HEIGHT) * 10).div_ceil(u128::from(highest.max(1)) * 11) as u64
}

/// The points of a line without a scale, each one unit beside the last, in a box 20 units high.
pub fn sparkline(counts: impl IntoIterator<Item = u64>) -> String {
    const SPARK: u64 = 20;
    let counts: Vec<u64> = counts.into_iter().collect();
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    let point = |(x, count): (usize, &u64)| {
        let y = SPARK - (u128::from(*count) * u128::from(SPARK) / u128::from(highest)) as u64;
        format!("{x},{y}")
    };
    counts.iter().enumerate().map(point).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(counts: Vec<Vec<u64>>) -> Chart {
        let span = StepSpan { start: Micros(0), step: Duration::from_secs(60), steps: counts[0].len() };
        let tones = ["ok", "wrong", "refused"];
        let series = counts.into_iter().zip(tones).map(|(counts, tone)| Series {
            key: "overview.wrong",
            tone,
            counts,
        });
        let now = span.end();
        Chart { id: "c", title: "overview.sign-ins-hour", span, series: series.collect(), now }
    }

    #[test]
    fn a_step_is_drawn_where_it_was_and_the_last_one_is_now() {
        let minutes = |minutes: i64| Micros::from_seconds(minutes * 60);
        let span = StepSpan::ending(Micros(minutes(6_000).0 + 59), Duration::from_secs(60), 60);
        let places = [70, 59, 0, -1].map(|ago| span.place(minutes(6_000 - ago)));
        assert_eq!(places, [None, Some(0), Some(59), None], "70 minutes ago is past");
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
        assert_eq!(columns[1].bars.last().unwrap().y, 8, "a tenth above the highest bar is free");
        assert_eq!(chart.levels(), ["908", "454", "0"]);
        assert_eq!(self::chart(vec![vec![3]]).levels(), ["3", "1.5", "0"]);
    }

    #[test]
    fn only_the_step_of_now_is_marked_as_running() {
        let of = |now| {
            let chart = Chart { now: Micros::from_seconds(now), ..chart(vec![vec![1, 2, 3]]) };
            let columns = chart.columns(Locale::En);
            columns.into_iter().map(|column| column.running).collect::<Vec<_>>()
        };
        assert_eq!(of(179), [false, false, true]);
        assert_eq!(of(180), [false; 3], "all are over");
    }

    #[test]
    fn a_sparkline_fills_its_height_and_lies_flat_without_counts() {
        assert_eq!(sparkline([0, 5, 10]), "0,20 1,10 2,0");
        assert_eq!(sparkline([0, 0]), "0,20 1,20");
        assert_eq!(sparkline([u64::MAX, 1]), "0,0 1,20");
    }

    #[test]
    fn an_empty_chart_says_so() {
        assert!(chart(vec![vec![0; 60]]).is_empty());
        assert!(!chart(vec![vec![0, 1]]).is_empty());
    }
}
