//! The chart above a list of events: how many there were over time, by how they ended.

use std::time::Duration;

use crate::audit::{EventFilter, Fate, MINUTE};
use crate::clock::Micros;
use crate::db::DbError;
use crate::web::console::chart::{Chart, Series};
use crate::web::console::figures::{DAY, EVENTS, HOUR};
use crate::web::kit::services::Services;

/// Columns that are drawn at most.
const COLUMNS: u32 = 100;
/// The lengths of a column.
const STEPS: [Duration; 8] = [
    MINUTE,
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    HOUR,
    Duration::from_secs(3 * 60 * 60),
    Duration::from_secs(6 * 60 * 60),
    Duration::from_secs(12 * 60 * 60),
    DAY,
];

/// The span of a chart in steps of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChartSpan {
    start: Micros,
    step: Duration,
    steps: usize,
}

impl ChartSpan {
    /// A list without a beginning is drawn from a day before its end on.
    fn of(filter: &EventFilter, now: Micros) -> Self {
        let end = filter.until.unwrap_or(now).min(now.plus(MINUTE));
        let wanted = end.since(filter.since.unwrap_or(end.minus(DAY))).max(MINUTE);
        let step = STEPS.into_iter().find(|step| wanted <= *step * (COLUMNS - 2)).unwrap_or(DAY);
        let whole = |at: Micros| at.0 - at.0.rem_euclid(step.as_micros() as i64);
        let last = whole(Micros(end.0 - 1));
        let first = whole(end.minus(wanted)).max(last - step.as_micros() as i64 * i64::from(COLUMNS - 1));
        let steps = (last - first) / step.as_micros() as i64 + 1;
        Self { start: Micros(first), step, steps: usize::try_from(steps).unwrap_or(1) }
    }

    fn place(&self, at: Micros) -> Option<usize> {
        let place = (at.0 - self.start.0).div_euclid(self.step.as_micros() as i64);
        usize::try_from(place).ok().filter(|place| *place < self.steps)
    }
}

/// Sums of minutes serve most filters, whatever the traffic was. Those of a subject or of a limit count rows.
pub async fn chart(services: &Services, filter: &EventFilter, now: Micros) -> Result<Chart, DbError> {
    let span = ChartSpan::of(filter, now);
    let end = Micros(span.start.0 + span.step.as_micros() as i64 * span.steps as i64);
    let log = services.audit.log();
    let by_rows = filter.limit.is_some()
        || [filter.account, filter.address, filter.network, filter.phone].iter().any(Option::is_some);
    let counts: Vec<_> = if by_rows {
        let filter = EventFilter { since: Some(span.start), until: Some(end), ..filter.clone() };
        log.counts(&filter, span.step).await?
    } else {
        let steps = log.series(span.start, end, span.step).await?;
        let fits = |sum: &crate::audit::EventCount| {
            (filter.actions.is_empty() || filter.actions.contains(&sum.action))
                && (filter.outcomes.is_empty() || filter.outcomes.contains(&sum.outcome))
                && filter.realm.as_ref().is_none_or(|realm| *realm == sum.realm)
                && filter.noted.is_none_or(|noted| noted == sum.noted)
        };
        let of_step = |step: crate::audit::FiguresStep| {
            let at = step.at;
            step.sums.into_iter().filter(fits).map(move |sum| (at, sum.fate(), sum.count))
        };
        steps.into_iter().flat_map(of_step).collect()
    };
    Ok(draw(span, &counts))
}

fn draw(span: ChartSpan, counts: &[(Micros, Fate, i64)]) -> Chart {
    let series = EVENTS.map(|(key, tone, fates)| {
        let mut sums = vec![0; span.steps];
        for (at, _, count) in counts.iter().filter(|(_, fate, _)| fates.contains(fate)) {
            if let Some(place) = span.place(*at) {
                sums[place] += u64::try_from(*count).unwrap_or(0);
            }
        }
        Series { key, tone, counts: sums }
    });
    Chart::new("events-chart", "event.chart", span.start, span.step, series.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::console::figures::{MESSAGES, SIGN_INS};

    const NOON: Micros = Micros(1_772_366_400_000_000);

    #[test]
    fn every_outcome_is_in_one_series_of_each_chart() {
        for outcome in crate::audit::Outcome::ALL {
            for chart in [EVENTS, SIGN_INS, MESSAGES] {
                let of = chart.iter().filter(|(_, _, fates)| fates.contains(&outcome.fate(false)));
                assert_eq!(of.count(), 1, "{outcome:?}");
            }
        }
    }

    #[test]
    fn a_span_has_at_most_a_hundred_columns_and_ends_with_its_end() {
        for minutes in [0_u32, 1, 59, 60, 61, 1_440, 10_080, 43_200, 5_256_000] {
            let filter = EventFilter { since: Some(NOON.minus(MINUTE * minutes)), ..EventFilter::default() };
            let span = ChartSpan::of(&filter, NOON);
            assert!(span.steps >= 1 && span.steps <= 100, "{minutes}: {}", span.steps);
            assert_eq!(span.place(Micros(NOON.0 - 1)), Some(span.steps - 1), "{minutes}");
        }
        let day = ChartSpan::of(&EventFilter::default(), NOON);
        assert_eq!((day.step, day.steps), (MINUTE * 15, 96));
        let backwards =
            EventFilter { since: Some(NOON), until: Some(NOON.minus(HOUR)), ..EventFilter::default() };
        assert_eq!(ChartSpan::of(&backwards, NOON).steps, 1);
    }
}
