//! Draws a challenge's letters: turned, leaning, bent by waves, with strokes that add ink and that remove it.
//!
//! The letterforms are the `captcha` crate's; the drawing is ours, because the crate's waves always start
//! at the same phase, its letters stand upright, and its noise only ever adds black: an image from it was
//! read by comparing it with its own glyphs. Here nothing is the same in two images. Difficulty changes
//! the amounts only.

use std::f32::consts::TAU;

use super::Difficulty;
use super::font::{Glyph, glyphs};

pub const WIDTH: usize = 240;
pub const HEIGHT: usize = 80;
const MARGIN: f32 = 10.0;

/// How much of each disturbance an image gets, as the most of a range.
struct Amounts {
    turn: f32,
    lean: f32,
    lift: f32,
    wave: f32,
    strokes: usize,
    specks: usize,
    /// Pixels by which neighbours may run into each other.
    overlap: f32,
}

const fn amounts(difficulty: Difficulty) -> Amounts {
    match difficulty {
        Difficulty::Easy => {
            Amounts { turn: 0.12, lean: 0.12, lift: 4.0, wave: 1.4, strokes: 1, specks: 25, overlap: 0.0 }
        }
        Difficulty::Medium => {
            Amounts { turn: 0.18, lean: 0.18, lift: 5.0, wave: 2.0, strokes: 2, specks: 35, overlap: 1.0 }
        }
        Difficulty::Hard => {
            Amounts { turn: 0.22, lean: 0.2, lift: 6.0, wave: 2.3, strokes: 2, specks: 50, overlap: 1.5 }
        }
    }
}

/// Random choices out of one seed.
struct Dice(blake3::OutputReader);

impl Dice {
    fn new(seed: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_keyed(seed).finalize_xof())
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        // 24 bits are what an f32 holds exactly.
        let unit = (u32::from_le_bytes(bytes) >> 8) as f32 / (1 << 24) as f32;
        low + (high - low) * unit
    }

    fn around(&mut self, most: f32) -> f32 {
        self.between(-most, most)
    }
}

/// The text as a PNG of 16 greys; blank paper where the font lacks a letter of it.
pub fn png(text: &str, difficulty: Difficulty, seed: [u8; 32]) -> Result<Vec<u8>, lodepng::Error> {
    let mut dice = Dice::new(&seed);
    let amounts = amounts(difficulty);
    let mut ink = set(&glyphs(text).unwrap_or_default(), &amounts, &mut dice);
    for _ in 0..amounts.strokes {
        let thickness = dice.between(1.4, 2.2);
        stroke(&mut ink, &mut dice, thickness, |ink, cover| *ink *= 1.0 - cover);
        let thickness = dice.between(1.0, 1.6);
        stroke(&mut ink, &mut dice, thickness, |ink, cover| *ink = ink.max(cover));
    }
    for _ in 0..amounts.specks {
        speck(&mut ink, &mut dice, |ink, cover| *ink *= 1.0 - cover);
        speck(&mut ink, &mut dice, |ink, cover| *ink = ink.max(cover));
    }
    lodepng::encode_memory(&print(&ink, &mut dice), WIDTH, HEIGHT, lodepng::ColorType::GREY, 8)
}

/// A letter in its place; `back` leads from the picture to the letterform.
struct Placed<'a> {
    glyph: &'a Glyph,
    x: f32,
    y: f32,
    reach: f32,
    back: [f32; 4],
}

impl Placed<'_> {
    fn ink(&self, x: f32, y: f32) -> f32 {
        let (x, y) = (x - self.x, y - self.y);
        if x.abs() > self.reach || y.abs() > self.reach {
            return 0.0;
        }
        let across = self.back[0] * x + self.back[1] * y + (self.glyph.width - 1) as f32 / 2.0;
        let down = self.back[2] * x + self.back[3] * y + (self.glyph.height - 1) as f32 / 2.0;
        self.glyph.between(across, down)
    }
}

/// Lays the letters out and bends them; one value of ink a pixel.
fn set(glyphs: &[&Glyph], amounts: &Amounts, dice: &mut Dice) -> Vec<f32> {
    let placed = place(glyphs, amounts, dice);
    let waves: [Wave; 4] = std::array::from_fn(|_| Wave::draw(amounts.wave, dice));
    let mut ink = Vec::with_capacity(WIDTH * HEIGHT);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let (x, y) = (x as f32, y as f32);
            let (dx, dy) = waves.iter().fold((0.0, 0.0), |(dx, dy), wave| {
                let (wx, wy) = wave.shift(x, y);
                (dx + wx, dy + wy)
            });
            ink.push(placed.iter().map(|letter| letter.ink(x + dx, y + dy)).fold(0.0, f32::max));
        }
    }
    ink
}

fn place<'a>(glyphs: &[&'a Glyph], amounts: &Amounts, dice: &mut Dice) -> Vec<Placed<'a>> {
    let sizes: Vec<f32> = glyphs.iter().map(|_| dice.between(0.95, 1.2)).collect();
    let natural: f32 = glyphs.iter().zip(&sizes).map(|(glyph, size)| glyph.width as f32 * size).sum();
    let room = WIDTH as f32 - 2.0 * MARGIN + amounts.overlap * glyphs.len().saturating_sub(1) as f32;
    let squeeze = (room / natural.max(1.0)).min(1.0);
    let slack = (room - natural * squeeze) / (glyphs.len() + 1) as f32;
    let mut x = MARGIN;
    let mut placed = Vec::with_capacity(glyphs.len());
    for (glyph, size) in glyphs.iter().zip(sizes) {
        let width = glyph.width as f32 * size * squeeze;
        let (sin, cos) = dice.around(amounts.turn).sin_cos();
        let lean = dice.around(amounts.lean);
        let (wide, high) = (size * squeeze, size);
        // Turn · lean · scale, inverted by hand: its determinant is wide · high.
        let [a, b, c, d] = [cos * wide, (lean * cos - sin) * high, sin * wide, (lean * sin + cos) * high];
        let determinant = wide * high;
        placed.push(Placed {
            glyph,
            x: x + slack * dice.between(0.6, 1.4) + width / 2.0,
            y: HEIGHT as f32 / 2.0 + dice.around(amounts.lift),
            reach: (glyph.width + glyph.height) as f32,
            back: [d / determinant, -b / determinant, -c / determinant, a / determinant],
        });
        x += width + slack - amounts.overlap * dice.between(0.5, 1.0);
    }
    placed
}

/// A sine that runs in one direction and shifts in another, both drawn.
struct Wave {
    step: (f32, f32),
    phase: f32,
    shift: (f32, f32),
}

impl Wave {
    /// Shorter waves tear letters apart, longer ones only move them.
    fn draw(most: f32, dice: &mut Dice) -> Self {
        let along = dice.between(0.0, TAU);
        let sideways = dice.between(0.0, TAU);
        let step = TAU / dice.between(42.0, 110.0);
        let height = dice.between(most * 0.5, most);
        Self {
            step: (along.cos() * step, along.sin() * step),
            phase: dice.between(0.0, TAU),
            shift: (sideways.cos() * height, sideways.sin() * height),
        }
    }

    fn shift(&self, x: f32, y: f32) -> (f32, f32) {
        let at = (x * self.step.0 + y * self.step.1 + self.phase).sin();
        (at * self.shift.0, at * self.shift.1)
    }
}

/// A bent line across the letters.
fn stroke(ink: &mut [f32], dice: &mut Dice, thickness: f32, paint: impl Fn(&mut f32, f32)) {
    let middle = HEIGHT as f32 / 2.0 + dice.around(16.0);
    let slope = dice.around(0.16);
    let height = dice.between(3.0, 10.0);
    let step = TAU / dice.between(70.0, 200.0);
    let phase = dice.between(0.0, TAU);
    for x in 0..WIDTH {
        let from_centre = x as f32 - WIDTH as f32 / 2.0;
        let angle = from_centre * step + phase;
        let centre = middle + slope * from_centre + height * angle.sin();
        let steepness = (slope + height * step * angle.cos()).hypot(1.0);
        for y in 0..HEIGHT {
            let away = (y as f32 - centre).abs() / steepness;
            let cover = (thickness / 2.0 + 0.5 - away).clamp(0.0, 1.0);
            paint(&mut ink[y * WIDTH + x], cover);
        }
    }
}

fn speck(ink: &mut [f32], dice: &mut Dice, paint: impl Fn(&mut f32, f32)) {
    let radius = dice.between(0.5, 1.3);
    let (x, y) = (dice.between(0.0, WIDTH as f32 - 1.0), dice.between(0.0, HEIGHT as f32 - 1.0));
    for row in (y - 2.0).max(0.0) as usize..=((y + 2.0) as usize).min(HEIGHT - 1) {
        for column in (x - 2.0).max(0.0) as usize..=((x + 2.0) as usize).min(WIDTH - 1) {
            let away = (column as f32 - x).hypot(row as f32 - y);
            paint(&mut ink[row * WIDTH + column], (radius + 0.5 - away).clamp(0.0, 1.0));
        }
    }
}

/// Ink on paper of an uneven grey, in 16 steps: half the bytes of 256, and no difference to the eye.
fn print(ink: &[f32], dice: &mut Dice) -> Vec<u8> {
    let paper = dice.between(228.0, 250.0);
    let (tilt_x, tilt_y) = (dice.around(12.0), dice.around(12.0));
    let black = dice.between(15.0, 65.0);
    let pixels = ink.iter().enumerate().map(|(at, ink)| {
        let (x, y) = ((at % WIDTH) as f32 / WIDTH as f32, (at / WIDTH) as f32 / HEIGHT as f32);
        let paper = paper + tilt_x * (x - 0.5) + tilt_y * (y - 0.5);
        let grey = paper + (black - paper) * ink;
        ((grey / 17.0).round().clamp(0.0, 15.0) as u8) * 17
    });
    pixels.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

    #[test]
    fn image_is_a_small_png_of_the_stated_size() {
        for difficulty in [Difficulty::Easy, Difficulty::Medium, Difficulty::Hard] {
            let png = png("WMWMWM", difficulty, [1; 32]).unwrap();
            assert_eq!(&png[..8], SIGNATURE);
            assert_eq!(&png[16..24], [0, 0, 0, WIDTH as u8, 0, 0, 0, HEIGHT as u8]);
            assert!(png.len() < 8_192, "{} bytes", png.len());
        }
    }

    #[test]
    fn another_seed_is_another_image_of_the_same_letters() {
        let draw = |seed| png("HKTAX", Difficulty::Easy, [seed; 32]).unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn letters_that_the_font_lacks_leave_blank_paper() {
        let ink = |text: &str| {
            set(&glyphs(text).unwrap_or_default(), &amounts(Difficulty::Easy), &mut Dice::new(&[1; 32]))
        };
        assert!(ink("通过").iter().all(|ink| *ink == 0.0));
        assert!(ink("answer").iter().sum::<f32>() > 500.0);
        assert!(png("通过", Difficulty::Easy, [1; 32]).unwrap().starts_with(SIGNATURE));
    }
}
