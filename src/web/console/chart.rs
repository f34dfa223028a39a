//! Charts as SVG without a script: stacked bars over time, each with a text, and the same data as a table. A peak
//! far above the rest is drawn as a broken bar with its number.

use std::time::Duration;

use crate::audit::{StepSpan, floor};
use crate::clock::Micros;
use crate::web::console::limit_text::grouped;
use crate::web::http::{Locale, Moment};

/// The chart's height in units, as in `components/chart.html`. Its width is ten units a column.
const HEIGHT: u64 = 100;
const COLUMN: u64 = 10;
const BAR: u64 = 8;
/// A bar is broken if it is so many times as high as the highest whole one.
const PEAK: u64 = 4;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// What may lie between two ticks, in seconds. There are so few that their labels fit on a phone.
const TICKS: [u64; 14] = [
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
];

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
    /// Where its line is, if it is broken.
    pub broken: bool,
}

/// A text below or above the columns, at a share of the chart's width.
pub struct Label {
    pub place: String,
    pub at: Moment,
    pub text: String,
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
        (0..self.span.steps).all(|step| self.total(step) == 0)
    }

    /// The value of the upper line, which is round: no whole bar is higher. At most a sixth of the bars are broken.
    fn scale(&self) -> u64 {
        let mut totals: Vec<u64> = (0..self.span.steps).map(|step| self.total(step)).collect();
        totals.retain(|total| *total > 0);
        totals.sort_unstable_by(|one, other| other.cmp(one));
        let are_peaks = |number: &usize| totals[number - 1] >= totals[*number].saturating_mul(PEAK);
        let broken = (1..=(totals.len() + 2) / 6).rev().find(are_peaks).unwrap_or(0);
        round_up(totals.get(broken).copied().unwrap_or(0))
    }

    /// The values at the side: the scale, half of it, and the ground. Always at the same heights.
    pub fn levels(&self) -> [String; 3] {
        let scale = self.scale();
        [grouped(scale), grouped(scale / 2), "0".to_owned()]
    }

    pub fn from(&self) -> Moment {
        Moment(self.span.start)
    }

    pub fn until(&self) -> Moment {
        Moment(self.span.end())
    }

    /// Seconds between two ticks.
    pub fn tick_every(&self) -> u64 {
        let length = self.span.end().since(self.span.start).as_secs();
        TICKS.into_iter().find(|every| 2 * length <= every * 9).unwrap_or(28 * DAY)
    }

    /// Round times for below the chart. Where a day begins its date is told.
    pub fn ticks(&self) -> Vec<Label> {
        let every = Duration::from_secs(self.tick_every());
        let first = floor(self.span.start.plus(every), every);
        let length = self.span.end().since(self.span.start);
        let tick = |number: u32| {
            let at = first.plus(every * number);
            let place = at.since(self.span.start).as_secs_f64() / length.as_secs_f64();
            let begins_a_day = floor(at, Duration::from_secs(DAY)) == at;
            let text = if begins_a_day { Moment(at).day() } else { Moment(at).clock() };
            // Nothing of a label is cut at the end.
            (place < 0.97).then(|| Label { place: percent(place), at: Moment(at), text })
        };
        (0..).map_while(tick).collect()
    }

    /// The numbers of broken bars, with room between them: of those that are near each other the highest.
    pub fn peaks(&self) -> Vec<Label> {
        let (scale, steps) = (self.scale(), self.span.steps);
        let room = steps.div_ceil(6);
        let is_highest = |step: &usize| {
            let near = step.saturating_sub(room)..steps.min(step + room + 1);
            // The first goes before those that are as high.
            near.map(|other| (self.total(other), usize::MAX - other)).max()
                == Some((self.total(*step), usize::MAX - step))
        };
        let label = |step: usize| Label {
            place: percent((step as f64 + 0.5) / steps as f64),
            at: Moment(self.span.at(step)),
            text: grouped(self.total(step)),
        };
        (0..steps).filter(|step| self.total(*step) > scale).filter(is_highest).map(label).collect()
    }

    /// A time of day, with the date if it is not today's.
    pub fn told(&self, at: &Moment) -> String {
        let day = |at| floor(at, Duration::from_secs(DAY));
        if day(at.0) == day(self.now) { at.clock() } else { at.text() }
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
        let (scale, x) = (self.scale(), step as u64 * COLUMN);
        let broken = self.total(step) > scale;
        // A broken bar reaches the line, and shows its parts by their shares.
        let highest = if broken { self.total(step) } else { scale };
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
        Column { from, words: told.join(", "), bars, counts, x, running, broken }
    }
}

/// The next number up that is round, and whose half is, too.
fn round_up(count: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        let round = [2, 4, 6, 8, 10, 12, 16].map(|digits| power.saturating_mul(digits));
        if let Some(round) = round.into_iter().find(|round| *round >= count) {
            return round;
        }
        power = power.saturating_mul(10);
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A tenth above the scale stays free.
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
        assert_eq!(columns[1].bars.last().unwrap().y, 16, "908 of 1,000, and a tenth above that is free");
        assert_eq!(chart.levels(), ["1,000", "500", "0"]);
    }

    #[test]
    fn the_scale_is_round_and_so_is_its_half() {
        for (highest, levels) in [
            (1, ["2", "1", "0"]),
            (3, ["4", "2", "0"]),
            (11, ["12", "6", "0"]),
            (908, ["1,000", "500", "0"]),
            (1_700, ["2,000", "1,000", "0"]),
        ] {
            assert_eq!(chart(vec![vec![highest]]).levels(), levels);
        }
        assert_eq!(round_up(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_peak_is_broken_and_does_not_flatten_the_rest() {
        let told = |counts: Vec<u64>| {
            let chart = chart(vec![counts]);
            let columns = chart.columns(Locale::En);
            let broken: Vec<_> = columns.iter().map(|column| column.broken).collect();
            let peaks: Vec<_> = chart.peaks().into_iter().map(|peak| peak.text).collect();
            (chart.levels()[0].clone(), broken.iter().filter(|broken| **broken).count(), peaks.join(" "))
        };
        assert_eq!(told(vec![9, 7, 4_000, 8, 3]), ("10".into(), 1, "4,000".into()));
        assert_eq!(
            told(vec![9, 7, 35, 8, 3]),
            ("40".into(), 0, String::new()),
            "no more than four times as high"
        );
        assert_eq!(told(vec![0, 5, 4_000, 0]), ("4,000".into(), 0, String::new()), "there is no rest");
        let mut hour = vec![5; 60];
        hour[20..24].copy_from_slice(&[900, 1_200, 800, 1_200]);
        hour[50] = 300;
        assert_eq!(told(hour.clone()), ("6".into(), 5, "1,200 300".into()), "one number for those beside it");
        hour[..30].fill(900);
        assert_eq!(told(hour).1, 0, "half of the bars are no peak");
    }

    #[test]
    fn ticks_are_round_times_and_tell_the_date_where_a_day_begins() {
        let ticks = |now: &str, minutes: u64, steps| {
            let now = Micros(now.parse::<jiff::Timestamp>().unwrap().as_microsecond());
            let span = StepSpan::ending(now, Duration::from_secs(minutes * 60), steps);
            let ticks = Chart { span, now, ..chart(vec![vec![1]]) }.ticks();
            ticks.into_iter().map(|tick| tick.text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ticks("2026-03-02T00:17:12Z", 1, 61), "23:30 23:45 03-02 00:15");
        assert_eq!(ticks("2026-03-02T13:17:12Z", 15, 97), "18:00 03-02 06:00 12:00");
        assert_eq!(ticks("2026-03-02T13:17:12Z", 120, 85), "02-24 02-26 02-28 03-02");
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
