//! How a challenge's letters are written: each turned, slanted, raised, stretched, with its own pen width,
//! and so close to the one before it that they touch.
//!
//! A reader made for print fails because there is no line to find and nothing to cut apart. Lines and dots
//! across the letters would stop only people, because a median filter removes them.

use std::f32::consts::TAU;

use super::Difficulty;
use super::letters::{LetterForm, Point, forms};

pub const WIDTH: usize = 240;
pub const HEIGHT: usize = 100;

/// The free margin at the sides, and above and below the pen.
const MARGIN: (f32, f32) = (7.0, 6.0);
/// The height of a capital in pixels, before it is stretched.
const TALL: f32 = 50.0;
/// The point around which a letter turns, in its own units.
const MIDDLE: Point = (0.33, 0.52);

/// The maximum of each disturbance.
pub struct DistortionAmounts {
    turn: f32,
    lean: f32,
    /// In pixels, up and down.
    lift: f32,
    stretch: (f32, f32),
    /// The deviation of a stroke, in units of the letter.
    jitter: f32,
    /// Of the whole image, in pixels.
    pub wave: f32,
    /// By how many pixels neighbours overlap.
    overlap: f32,
}

pub const fn amounts(difficulty: Difficulty) -> DistortionAmounts {
    let stretch = (0.85, 1.15);
    match difficulty {
        Difficulty::Easy => DistortionAmounts {
            turn: 0.3,
            lean: 0.15,
            lift: 9.0,
            stretch,
            jitter: 0.03,
            wave: 1.4,
            overlap: 1.0,
        },
        // ±30° and a third of a letter's height.
        Difficulty::Medium => DistortionAmounts {
            turn: 0.52,
            lean: 0.2,
            lift: 16.0,
            stretch,
            jitter: 0.045,
            wave: 2.2,
            overlap: 3.0,
        },
        Difficulty::Hard => DistortionAmounts {
            turn: 0.56,
            lean: 0.25,
            lift: 18.0,
            stretch,
            jitter: 0.055,
            wave: 2.6,
            overlap: 4.0,
        },
    }
}

/// Random choices from one seed.
pub struct SeededRandom(blake3::OutputReader);

impl SeededRandom {
    pub fn new(seed: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_keyed(seed).finalize_xof())
    }

    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        // 24 bits are what an f32 holds exactly.
        let unit = (u32::from_le_bytes(bytes) >> 8) as f32 / (1 << 24) as f32;
        low + (high - low) * unit
    }

    pub fn around(&mut self, most: f32) -> f32 {
        self.between(-most, most)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.between(0.0, all.len() as f32) as usize).copied()
    }

    /// From -1 to 1, with the opposite sign of the last: neighbours with the same slant would form a line.
    fn across(&mut self, last: f32, least: f32) -> f32 {
        self.between(least, 1.0) * -last.signum()
    }
}

/// A sine wave with a random direction and a random shift.
pub struct SineWave {
    step: Point,
    phase: f32,
    shift: Point,
}

impl SineWave {
    /// `length` is the range of its wavelength. Shorter waves tear letters apart, longer ones only move them.
    pub fn draw(most: f32, length: (f32, f32), dice: &mut SeededRandom) -> Self {
        let (along, sideways) = (dice.between(0.0, TAU), dice.between(0.0, TAU));
        let step = TAU / dice.between(length.0, length.1);
        let height = dice.between(most * 0.5, most);
        Self {
            step: (along.cos() * step, along.sin() * step),
            phase: dice.between(0.0, TAU),
            shift: (sideways.cos() * height, sideways.sin() * height),
        }
    }

    pub fn shift(&self, (x, y): Point) -> Point {
        let at = (x * self.step.0 + y * self.step.1 + self.phase).sin();
        (at * self.shift.0, at * self.shift.1)
    }
}

/// Where the waves together move a point.
pub fn shifted(waves: &[SineWave], point: Point) -> Point {
    waves.iter().map(|wave| wave.shift(point)).fold(point, |(x, y), (dx, dy)| (x + dx, y + dy))
}

/// A letter at its position: the pieces of its strokes, and half the width of the pen.
pub struct DrawnLetter {
    pub pieces: Vec<(Point, Point)>,
    pub pen: f32,
}

/// The text at its position; empty if it has a letter without a form.
pub fn write(text: &str, amounts: &DistortionAmounts, dice: &mut SeededRandom) -> Vec<DrawnLetter> {
    let count = text.chars().count();
    // Six letters must be smaller than five.
    let size = TALL * (5.2 / count.max(1) as f32).min(1.0);
    let (mut turned, mut lifted) = (dice.around(1.0), dice.around(1.0));
    let mut letters = Vec::with_capacity(count);
    for letter in text.chars() {
        let Some(form) = dice.one_of(forms(letter)) else { return Vec::new() };
        turned = dice.across(turned, 0.2);
        lifted = dice.across(lifted, 0.3);
        letters.push(DrawnLetter::write(form, size, (turned, lifted), amounts, dice));
    }
    join(&mut letters, amounts, dice);
    fit(&mut letters, dice);
    letters
}

impl DrawnLetter {
    fn write(
        form: LetterForm,
        size: f32,
        (turned, lifted): Point,
        amounts: &DistortionAmounts,
        dice: &mut SeededRandom,
    ) -> Self {
        let (sin, cos) = (turned * amounts.turn).sin_cos();
        let lean = dice.around(amounts.lean);
        let (narrow, broad) = (amounts.stretch.0 * size, amounts.stretch.1 * size);
        let (wide, high) = (dice.between(narrow, broad), dice.between(narrow, broad));
        // A field, not a random value for each point: strokes that meet still meet.
        let bends: [SineWave; 2] = std::array::from_fn(|_| SineWave::draw(amounts.jitter, (0.7, 1.6), dice));
        let place = |point: Point| {
            let (x, y) = shifted(&bends, point);
            let (x, y) = ((x - MIDDLE.0) * wide, (y - MIDDLE.1) * high);
            let x = x + lean * y;
            (x * cos - y * sin, x * sin + y * cos + HEIGHT as f32 / 2.0 + lifted * amounts.lift)
        };
        let paths = form.iter().map(|stroke| stroke.path().into_iter().map(place).collect::<Vec<_>>());
        let pieces =
            paths.flat_map(|path| path.windows(2).map(|ends| (ends[0], ends[1])).collect::<Vec<_>>());
        let mut letter = Self { pieces: pieces.collect(), pen: dice.between(1.9, 3.2) };
        let (top, bottom) = range(letter.ends().map(|(_, y)| y));
        let (highest, lowest) = (MARGIN.1, HEIGHT as f32 - MARGIN.1);
        letter.shift((highest - top).max(0.0) + (lowest - bottom).min(0.0), |point| &mut point.1);
        letter
    }

    fn ends(&self) -> impl Iterator<Item = Point> {
        self.pieces.iter().flat_map(|(from, to)| [*from, *to])
    }

    fn shift(&mut self, by: f32, axis: impl Fn(&mut Point) -> &mut f32) {
        for (from, to) in &mut self.pieces {
            *axis(from) += by;
            *axis(to) += by;
        }
    }
}

fn range(values: impl Iterator<Item = f32>) -> Point {
    values.fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

/// Moves each letter up to the one before it.
fn join(letters: &mut [DrawnLetter], amounts: &DistortionAmounts, dice: &mut SeededRandom) {
    /// Points within this distance in height may touch.
    const LEVEL: f32 = 5.0;
    /// The part of a letter's width that may be below or above its neighbour.
    const NESTED: f32 = 0.12;
    for next in 1..letters.len() {
        let (before, after) = letters.split_at_mut(next);
        let (Some(before), Some(letter)) = (before.last(), after.first_mut()) else { continue };
        let ((left, right), own) =
            (range(before.ends().map(|end| end.0)), range(letter.ends().map(|end| end.0)));
        let level = letter.ends().flat_map(|(x, y)| {
            before.ends().filter(move |other| (other.1 - y).abs() < LEVEL).map(move |other| x - other.0)
        });
        let nested = own.0 - right + NESTED * (right - left).min(own.1 - own.0);
        let gap = level.fold(nested, f32::min);
        let touching = before.pen + letter.pen - amounts.overlap * dice.between(0.4, 1.0);
        letter.shift(touching - gap, |point| &mut point.0);
    }
}

/// Compresses the letters if they are too wide, and places them randomly between the sides.
fn fit(letters: &mut [DrawnLetter], dice: &mut SeededRandom) {
    let (left, right) = range(letters.iter().flat_map(DrawnLetter::ends).map(|end| end.0));
    let room = WIDTH as f32 - 2.0 * MARGIN.0;
    let squeeze = (room / (right - left)).min(1.0);
    let start = MARGIN.0 + dice.between(0.2, 0.8) * (room - (right - left) * squeeze);
    for letter in letters {
        for (from, to) in &mut letter.pieces {
            from.0 = (from.0 - left) * squeeze + start;
            to.0 = (to.0 - left) * squeeze + start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captcha::answer::ALPHABET;

    #[test]
    fn every_letter_of_the_alphabet_can_be_written() {
        for letter in ALPHABET {
            let (upper, lower) = (char::from(*letter), char::from(letter.to_ascii_lowercase()));
            assert!(!forms(upper).is_empty() && forms(lower).len() == forms(upper).len(), "{upper}");
            assert!(forms(upper).iter().all(|form| form.iter().all(|stroke| stroke.path().len() > 4)));
        }
        assert!(forms('o').is_empty() && forms('通').is_empty());
    }
}
