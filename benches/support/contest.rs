//! Contestants measured in turn, A B A B, so that a slow moment of the machine affects all of them.

use std::time::{Duration, Instant};

/// Contestants that do the same job, and their bars.
pub struct Contest<'a> {
    title: String,
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    name: String,
    /// One round: how much was done, and how long it took.
    round: Box<dyn FnMut() -> Round + 'a>,
    /// The contestant to compare with, and the share of its speed that is required.
    rival: Option<(usize, Option<f64>)>,
}

pub struct Round {
    pub decisions: u64,
    pub took: Duration,
}

/// A contestant's position, for comparisons.
#[derive(Clone, Copy)]
pub struct Place(usize);

impl<'a> Contest<'a> {
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), entries: Vec::new() }
    }

    pub fn enter(&mut self, name: impl Into<String>, round: impl FnMut() -> Round + 'a) -> Place {
        self.entries.push(Entry { name: name.into(), round: Box::new(round), rival: None });
        Place(self.entries.len() - 1)
    }

    /// Prints the speed as a share of the rival's, and requires at least `bar` if given.
    pub fn compare(&mut self, one: Place, rival: Place, bar: Option<f64>) {
        self.entries[one.0].rival = Some((rival.0, bar));
    }

    /// Runs the rounds (after one that is discarded), prints the table, and returns whether every bar was
    /// met. A ratio is the median of the ratios within each round.
    pub fn run(mut self, rounds: usize) -> bool {
        let mut rates = vec![Vec::with_capacity(rounds); self.entries.len()];
        for round in 0..=rounds {
            for (entry, rates) in self.entries.iter_mut().zip(&mut rates) {
                let Round { decisions, took } = (entry.round)();
                if round > 0 {
                    rates.push(decisions as f64 / took.as_secs_f64());
                }
            }
        }
        println!("\n{}", self.title);
        let mut met = true;
        for (entry, own) in self.entries.iter().zip(&rates) {
            let versus = entry.rival.map_or(String::new(), |(rival, bar)| {
                let pairs = own.iter().zip(&rates[rival]);
                let ratio = median(pairs.map(|(own, other)| own / other).collect());
                let passed = bar.is_none_or(|bar| ratio >= bar);
                met &= passed;
                format!("{ratio:5.2} × {}{}", self.entries[rival].name, verdict(bar, passed, "≥"))
            });
            println!("  {:<44} {:>11}/s  {versus}", entry.name, thousands(median(own.clone())));
        }
        met
    }
}

/// One round of this many decisions on this thread.
#[expect(clippy::disallowed_methods, reason = "how long a round takes is what is measured")]
pub fn time(decisions: u64, decide: impl FnMut(u64)) -> Round {
    let start = Instant::now();
    (0..decisions).for_each(decide);
    Round { decisions, took: start.elapsed() }
}

/// The mark in a table for a bar that was met or missed.
pub fn verdict(bar: Option<f64>, passed: bool, sign: &str) -> String {
    bar.map_or(String::new(), |bar| {
        format!("  (bar {sign} {bar}: {})", if passed { "met" } else { "MISSED" })
    })
}

/// The median.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Ends the program, with status 1 if a bar was missed.
pub fn end(met: bool) {
    if !met {
        println!("\nA bar was missed. On a busy machine, look at it again on a quiet one.");
        std::process::exit(1);
    }
    println!("\nEvery bar was met.");
}
