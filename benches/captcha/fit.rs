//! The search: where each letterform fits best, with any rotation, slant, stretch and wave.

use std::cmp::Ordering;
use std::time::Duration;

use crate::forms::{Sheet, Template};

pub struct Matcher {
    pub templates: Vec<Template>,
    patience: Duration,
}

/// The position and shape of a letterform on the sheet.
#[derive(Clone, Copy, Default)]
struct Pose {
    x: f32,
    y: f32,
    turn: f32,
    lean: f32,
    wide: f32,
    high: f32,
    /// How far a wave moves its rows and its columns, and its phases.
    wave: (f32, f32),
    phase: (f32, f32),
}

#[derive(Clone, Copy)]
struct Fit {
    template: usize,
    score: f32,
    pose: Pose,
}

/// The ink, the distance of each pixel from it, and the ink that each letter would explain.
struct Field<'a> {
    sheet: &'a Sheet,
    /// Chamfer distance to the nearest ink, in pixels.
    to_ink: Vec<f32>,
}

/// The starting rotations for one letterform at one position.
const TURNS: [f32; 7] = [-0.5, -0.33, -0.16, 0.0, 0.16, 0.33, 0.5];
const LEANS: [f32; 3] = [-0.2, 0.0, 0.2];
/// The number of poses that are improved for each letterform.
const KEPT: usize = 10;
const STEP: usize = 4;

impl Matcher {
    pub const fn new(templates: Vec<Template>, patience: Duration) -> Self {
        Self { templates, patience }
    }

    /// The letters that fit best, from left to right.
    pub fn read(&self, sheet: &Sheet, count: usize) -> String {
        let start = spent();
        let field = Field::of(sheet);
        let mut fits = self.coarse(&field);
        self.improve(&field, &mut fits, start + self.patience);
        self.line(&fits, count)
    }

    /// Each letterform at each position, in a few poses.
    fn coarse(&self, field: &Field<'_>) -> Vec<Fit> {
        let mut found = Vec::new();
        for (template, form) in self.templates.iter().enumerate() {
            let mut mine: Vec<Fit> = Vec::new();
            for (turn, lean) in TURNS.iter().flat_map(|turn| LEANS.map(|lean| (*turn, lean))) {
                for x in (15..field.sheet.width - 15).step_by(STEP) {
                    for y in (30..field.sheet.height - 28).step_by(STEP) {
                        let pose = Pose {
                            x: x as f32,
                            y: y as f32,
                            turn,
                            lean,
                            wide: 1.0,
                            high: 1.0,
                            ..Pose::default()
                        };
                        mine.push(Fit { template, score: field.misses(form, &pose, 5), pose });
                    }
                }
            }
            mine.sort_by(|a, b| a.score.partial_cmp(&b.score).unwrap_or(Ordering::Equal));
            // One of several equal ones.
            let mut kept: Vec<Fit> = Vec::new();
            for fit in mine {
                if kept.len() == KEPT {
                    break;
                }
                if kept.iter().all(|other| (other.pose.x - fit.pose.x).abs() > 7.0) {
                    kept.push(fit);
                }
            }
            found.extend(kept);
        }
        found
    }

    /// Moves every pose a little as long as that improves it and there is time.
    fn improve(&self, field: &Field<'_>, fits: &mut [Fit], until: Duration) {
        for fit in fits.iter_mut() {
            fit.score = field.score(&self.templates[fit.template], &fit.pose);
        }
        let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
        let mut round = 0u32;
        while spent() < until {
            // The whole width at first, smaller steps later.
            let size = 1.0 / (1.0 + (round % 40) as f32 / 8.0);
            for fit in fits.iter_mut() {
                let mut pose = fit.pose;
                let mut next = || {
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    ((dice >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 2.0 * size
                };
                pose.x += next() * 4.0;
                pose.y += next() * 4.0;
                pose.turn = (pose.turn + next() * 0.15).clamp(-0.65, 0.65);
                pose.lean = (pose.lean + next() * 0.15).clamp(-0.4, 0.4);
                pose.wide = (pose.wide + next() * 0.12).clamp(0.75, 1.25);
                pose.high = (pose.high + next() * 0.12).clamp(0.75, 1.25);
                pose.wave = (
                    (pose.wave.0 + next() * 1.5).clamp(-6.0, 6.0),
                    (pose.wave.1 + next() * 1.5).clamp(-6.0, 6.0),
                );
                pose.phase = (pose.phase.0 + next() * 2.0, pose.phase.1 + next() * 2.0);
                let score = field.score(&self.templates[fit.template], &pose);
                if score > fit.score {
                    (fit.score, fit.pose) = (score, pose);
                }
            }
            round += 1;
        }
    }

    /// The chain of letters with the best total fit, in which neighbours have the usual distance.
    fn line(&self, fits: &[Fit], count: usize) -> String {
        let mut order: Vec<&Fit> = fits.iter().collect();
        order.sort_by(|a, b| a.pose.x.partial_cmp(&b.pose.x).unwrap_or(Ordering::Equal));
        let mut best: Vec<Vec<(f32, usize)>> =
            vec![order.iter().map(|fit| (fit.score, usize::MAX)).collect()];
        for length in 1..count {
            let last = &best[length - 1];
            let row = order.iter().enumerate().map(|(index, fit)| {
                let before = order[..index]
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| (22.0..75.0).contains(&(fit.pose.x - other.pose.x)));
                before
                    .map(|(from, _)| (last[from].0 + fit.score, from))
                    .fold((f32::MIN, usize::MAX), |best, it| if it.0 > best.0 { it } else { best })
            });
            let row = row.collect();
            best.push(row);
        }
        let last = best.last().expect("a text has letters");
        let mut at =
            (0..order.len()).max_by(|a, b| last[*a].0.partial_cmp(&last[*b].0).unwrap_or(Ordering::Equal));
        let mut text = String::new();
        for length in (0..count).rev() {
            let Some(index) = at.filter(|index| *index < order.len()) else { break };
            text.insert(0, self.templates[order[index].template].letter);
            at = Some(best[length][index].1);
        }
        text
    }
}

impl<'a> Field<'a> {
    fn of(sheet: &'a Sheet) -> Self {
        let mut to_ink: Vec<f32> = sheet.ink.iter().map(|ink| if *ink > 0.5 { 0.0 } else { 1e3 }).collect();
        let (width, height) = (sheet.width, sheet.height);
        for y in 0..height {
            for x in 0..width {
                let at = y * width + x;
                if x > 0 {
                    to_ink[at] = to_ink[at].min(to_ink[at - 1] + 1.0);
                }
                if y > 0 {
                    to_ink[at] = to_ink[at].min(to_ink[at - width] + 1.0);
                }
            }
        }
        for y in (0..height).rev() {
            for x in (0..width).rev() {
                let at = y * width + x;
                if x + 1 < width {
                    to_ink[at] = to_ink[at].min(to_ink[at + 1] + 1.0);
                }
                if y + 1 < height {
                    to_ink[at] = to_ink[at].min(to_ink[at + width] + 1.0);
                }
            }
        }
        Self { sheet, to_ink }
    }

    /// The mean distance of the letterform's dots from ink, using every `skip`-th dot.
    fn misses(&self, form: &Template, pose: &Pose, skip: usize) -> f32 {
        let (sin, cos) = pose.turn.sin_cos();
        let (mut sum, mut count) = (0.0, 0);
        for point in form.points.iter().step_by(skip) {
            sum += self.away(pose.place(*point, sin, cos)).min(6.0);
            count += 1;
        }
        sum / count.max(1) as f32
    }

    /// How much ink it explains, minus its own ink where there is none, minus the ink beside it that it does
    /// not cover.
    fn score(&self, form: &Template, pose: &Pose) -> f32 {
        let (sin, cos) = pose.turn.sin_cos();
        let mut covered = vec![false; self.sheet.ink.len()];
        let (mut missed, mut low, mut high) = (0.0, (f32::MAX, f32::MAX), (f32::MIN, f32::MIN));
        for point in &form.points {
            let (x, y) = pose.place(*point, sin, cos);
            missed += self.away((x, y)).min(6.0);
            low = (low.0.min(x), low.1.min(y));
            high = (high.0.max(x), high.1.max(y));
            for dy in -3..=3i32 {
                for dx in -3..=3i32 {
                    let (x, y) = (x as i32 + dx, y as i32 + dy);
                    if x >= 0 && y >= 0 && (x as usize) < self.sheet.width && (y as usize) < self.sheet.height
                    {
                        covered[y as usize * self.sheet.width + x as usize] = true;
                    }
                }
            }
        }
        let (mut all, mut explained) = (0.0, 0.0);
        let inside = |low: f32, high: f32, end: usize| {
            (low.max(0.0) as usize)..((high.max(0.0) as usize + 1).min(end))
        };
        for y in inside(low.1, high.1, self.sheet.height) {
            for x in inside(low.0, high.0, self.sheet.width) {
                let at = y * self.sheet.width + x;
                if self.sheet.ink[at] > 0.5 {
                    all += 1.0;
                    explained += f32::from(u8::from(covered[at]));
                }
            }
        }
        explained / f32::max(all, 1.0) - 0.35 * missed / form.points.len().max(1) as f32
    }

    fn away(&self, (x, y): (f32, f32)) -> f32 {
        if x < 0.0 || y < 0.0 {
            return 6.0;
        }
        let (x, y) = (x as usize, y as usize);
        if x >= self.sheet.width || y >= self.sheet.height {
            6.0
        } else {
            self.to_ink[y * self.sheet.width + x]
        }
    }
}

impl Pose {
    fn place(&self, (x, y): (f32, f32), sin: f32, cos: f32) -> (f32, f32) {
        let (x, y) = (x * self.wide, y * self.high);
        let (x, y) = (
            x + self.wave.0 * (y / 15.0 + self.phase.0).sin(),
            y + self.wave.1 * (x / 15.0 + self.phase.1).sin(),
        );
        let x = x + self.lean * y;
        (x * cos - y * sin + self.x, x * sin + y * cos + self.y)
    }
}

/// The CPU time of this thread, so that other work does not shorten the search.
fn spent() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it only writes the time to the given place.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
