//! What SMS pumpers are sent, and what honest people lose to them, in made-up months. A simulation: the ladder of the
//! brake and the rules of the limits are the product's, and every figure follows from the seed.
//!
//!     cargo bench --bench pumping -- [seed=1] [honest=10000] [before] [FOLDER]
//!
//! `before`: the brake as it was before it learnt. The folder gets `pumping-days.svg` and `pumping-ranges.svg`.

#[path = "support/chance.rs"]
#[allow(dead_code, reason = "each bench uses its own part of this")]
mod chance;
#[path = "pumping/house.rs"]
mod house;
#[path = "support/picture.rs"]
mod picture;
#[path = "support/table.rs"]
mod table;
#[path = "pumping/town.rs"]
mod town;

use std::path::PathBuf;
use std::process::ExitCode;

use gatehouse::config::Limits;

use house::{House, Way};
use picture::{Picture, Series};
use table::{Table, count, per_cent};
use town::{ALL_RANGES, DAYS, Day, Pumper, QUIET, RANGES, month, sum};

/// Where the default of `sms-total` leaves room for honest people.
const HONEST_WITHIN_LIMITS: u64 = 500;

/// In a range of the middle: 0.6 % of the honest requests, as in the 20 others around it.
const FAST: Pumper = Pumper {
    name: "fast, one range",
    first: 20,
    ranges: 1,
    asks_a_day: 28_800,
    networks: 1_000,
    entered: 0.0,
    numbers: 1_000_000,
    solves: true,
};

fn pumpers() -> Vec<Pumper> {
    vec![
        FAST,
        Pumper { name: "fast, ten networks", networks: 10, ..FAST },
        Pumper { name: "slow, one range", asks_a_day: 2_400, ..FAST },
        Pumper { name: "a hundred ranges", ranges: 100, ..FAST },
        Pumper { name: "a hundred ranges, solves nothing", ranges: 100, solves: false, ..FAST },
        Pumper {
            name: "spread, one to each of 10,000 ranges",
            first: 0,
            ranges: ALL_RANGES,
            asks_a_day: 10_000,
            ..FAST
        },
        Pumper {
            name: "spread, ranges that nobody else has",
            first: RANGES,
            ranges: ALL_RANGES - RANGES,
            asks_a_day: 10_000,
            ..FAST
        },
        Pumper { name: "framing, 200 networks", networks: 200, ..FAST },
        Pumper { name: "converting, 60 % entered", entered: 0.6, numbers: 10_000, ..FAST },
    ]
}

const BEFORE: &str = "before";

struct Runs {
    /// False: the brake as it was before it learnt.
    learns: bool,
    seed: u64,
    honest: u64,
}

impl Runs {
    fn days(&self, way: Way, pumper: Option<&Pumper>) -> Vec<Day> {
        month(self.seed, House::new(way, self.learns, None), self.honest, pumper)
    }
}

fn main() -> std::io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number =
        |name: &str| arguments.iter().find_map(|it| it.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    let learns = !arguments.iter().any(|argument| argument == BEFORE);
    let folder = arguments.iter().find(|argument| !argument.contains('=') && *argument != BEFORE);
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let runs = Runs { learns, seed: number("seed").unwrap_or(1), honest: number("honest").unwrap_or(10_000) };
    println!(
        "seed {}, {} honest requests a day, {DAYS} days, a pumper from day {}\n",
        runs.seed,
        runs.honest,
        QUIET + 1
    );
    let mut missed = quiet(&runs);
    missed.extend(each_pumper(&runs, &folder)?);
    within_limits(&runs);
    over_ranges(&runs, &folder)?;
    just_under(&runs);
    for bar in &missed {
        println!("\nmissed: {bar}");
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Honest people alone, from 1,000 to 100,000 requests a day.
fn quiet(runs: &Runs) -> Vec<String> {
    let mut table = Table::new(&["honest requests a day, nobody pumps", "challenged", "refused"]);
    let mut missed = Vec::new();
    for honest in [1_000, 10_000, 100_000] {
        let days = Runs { honest, ..*runs }.days(Way::Pages, None);
        let all = sum(&days).elsewhere;
        let [challenged, refused] =
            [all.challenged, all.asked - all.sent].map(|some| some as f64 / all.asked as f64);
        table.row([count(honest as f64), per_cent(challenged), per_cent(refused)]);
        if refused > 0.001 || challenged > 0.01 {
            missed.push(format!("{honest} honest requests a day: ≤ 0.1 % refused, ≤ 1 % challenged"));
        }
    }
    table.print();
    missed
}

fn each_pumper(runs: &Runs, folder: &std::path::Path) -> std::io::Result<Vec<String>> {
    let (mut missed, mut series) = (Vec::new(), Vec::new());
    for way in [Way::Pages, Way::Verify, Way::Relay] {
        println!("\n{}\n", title(way));
        let mut table = pumper_table();
        for pumper in pumpers() {
            let days = runs.days(way, Some(&pumper));
            let share = row(&mut table, &pumper, &days);
            if way != Way::Pages {
                continue;
            }
            let values = days.iter().map(|day| day.pumper.sent as f64).collect();
            series.push(Series { name: pumper.name.to_owned(), values });
            missed.extend(bar(&pumper, share));
        }
        table.print();
    }
    let picture = Picture {
        title: "Messages that a pumper is sent a day, no other limit in force".to_owned(),
        x: "day".to_owned(),
        y: "messages".to_owned(),
        logarithmic: true,
        below: Vec::new(),
        series,
    };
    picture.write(&folder.join("pumping-days.svg"))?;
    Ok(missed)
}

/// The bars of the contract: what a pumper may be sent on an average day.
fn bar(pumper: &Pumper, sent_a_day: f64) -> Option<String> {
    let most = match pumper.name {
        "fast, one range" => 1_000.0,
        name if name.starts_with("spread") => 0.02 * f64::from(pumper.asks_a_day),
        _ => return None,
    };
    (sent_a_day > most).then(|| format!("{}: at most {} messages a day", pumper.name, count(most)))
}

fn title(way: Way) -> &'static str {
    match way {
        Way::Pages => "Our pages, no limit in force but the brake",
        Way::Verify => "Verify, no limit in force but the brake",
        Way::Relay => "A relay, no limit in force but the brake",
    }
}

fn pumper_table() -> Table {
    Table::new(&[
        "pumper",
        "asks a day",
        "is sent a day",
        "of what it asks",
        "on its first day",
        "costs a day",
        "honest challenged",
        "honest refused, elsewhere",
        "in the ranges that it pumps",
    ])
}

/// Returns what the pumper is sent on an average day.
fn row(table: &mut Table, pumper: &Pumper, days: &[Day]) -> f64 {
    let pumped = &days[QUIET..];
    let all = sum(pumped);
    let a_day = |value: f64| value / pumped.len() as f64;
    let honest = all.elsewhere.and(&all.beside);
    let part =
        |some: u64, of: u64| if of == 0 { "–".to_owned() } else { per_cent(some as f64 / of as f64) };
    let sent = a_day(all.pumper.sent as f64);
    table.row([
        pumper.name.to_owned(),
        count(f64::from(pumper.asks_a_day)),
        count(sent.round()),
        part(all.pumper.sent, all.pumper.asked),
        count(pumped[0].pumper.sent as f64),
        format!("{} €", count(a_day(all.pumper.money).round())),
        part(honest.challenged, honest.asked),
        part(all.elsewhere.asked - all.elsewhere.sent, honest.asked),
        part(all.beside.asked - all.beside.sent, honest.asked),
    ]);
    sent
}

fn within_limits(runs: &Runs) {
    println!("\nOur pages, the default limits in force, {HONEST_WITHIN_LIMITS} honest requests a day\n");
    let mut table = pumper_table();
    for pumper in pumpers() {
        let house = House::new(Way::Pages, runs.learns, Some(&Limits::default()));
        row(&mut table, &pumper, &month(runs.seed, house, HONEST_WITHIN_LIMITS, Some(&pumper)));
    }
    table.print();
}

/// 28,800 requests a day to 48 ranges are just what a range takes in a day without a brake.
const RANGES_OF_THE_CURVE: [u32; 9] = [1, 3, 10, 30, 48, 100, 300, 1_000, 10_000];

/// The same 28,800 requests a day, to more and more ranges.
fn over_ranges(runs: &Runs, folder: &std::path::Path) -> std::io::Result<()> {
    println!("\n28,800 requests a day, by how many ranges they go to: sent on an average day\n");
    let mut table = Table::new(&["ranges", "our pages", "Verify", "a relay", "costs a day, our pages"]);
    let ways = [Way::Pages, Way::Verify, Way::Relay];
    let mut curves: [Vec<f64>; 3] = Default::default();
    for ranges in RANGES_OF_THE_CURVE {
        let pumper = Pumper { ranges, first: if ranges > 1_900 { 0 } else { 20 }, ..FAST };
        let mut cells = vec![count(f64::from(ranges))];
        let mut money = String::new();
        for (way, curve) in ways.into_iter().zip(&mut curves) {
            let all = sum(&runs.days(way, Some(&pumper))[QUIET..]).pumper;
            let sent = all.sent as f64 / (DAYS - QUIET) as f64;
            curve.push(sent);
            cells.push(count(sent.round()));
            if way == Way::Pages {
                money = format!("{} €", count((all.money / (DAYS - QUIET) as f64).round()));
            }
        }
        cells.push(money);
        table.row(cells);
    }
    table.print();
    let named = ["our pages", "Verify", "a relay"].into_iter().zip(curves);
    let picture = Picture {
        title: "28,800 requests a day, all challenges solved: messages sent a day".to_owned(),
        x: "ranges".to_owned(),
        y: "messages".to_owned(),
        logarithmic: true,
        below: RANGES_OF_THE_CURVE.iter().map(|ranges| count(f64::from(*ranges))).collect(),
        series: named.map(|(name, values)| Series { name: name.to_owned(), values }).collect(),
    };
    picture.write(&folder.join("pumping-ranges.svg"))
}

/// What is the most that one range is sent, by who knows every threshold and stays below?
fn just_under(runs: &Runs) {
    println!("\nOne range, our pages, by how fast it is asked for\n");
    let mut table = pumper_table();
    for an_hour in [9, 19, 49, 99, 199, 399, 499, 599, 699, 1_199, 3_600] {
        let pumper = Pumper { name: "one range", asks_a_day: 24 * an_hour, ..FAST };
        row(&mut table, &pumper, &runs.days(Way::Pages, Some(&pumper)));
    }
    table.print();
}
