//! Draws a challenge's letters: in ink of uneven weight, bent by waves, on uneven paper.
//!
//! The letterforms and the drawing are ours: the `captcha` crate's images could be read by comparing them
//! with its own glyphs, because its waves always start at the same phase, its letters stand upright, and its
//! noise only adds black. Here nothing is the same in two images. Difficulty changes only the amounts.

use super::Difficulty;
use super::letters::Point;
use super::writing::{DrawnLetter, HEIGHT, SeededRandom, SineWave, WIDTH, amounts, shifted, write};

/// By how much of its width the pen may vary.
const PRESSURE: f32 = 0.4;

/// The text as a PNG with 16 greys; blank paper if it has a letter outside the alphabet.
pub fn png(text: &str, difficulty: Difficulty, seed: [u8; 32]) -> Result<Vec<u8>, lodepng::Error> {
    let mut dice = SeededRandom::new(&seed);
    let amounts = amounts(difficulty);
    let letters = write(text, &amounts, &mut dice);
    let ink = ink(&letters, amounts.wave, &mut dice);
    lodepng::encode_memory(&print(&ink, &mut dice), WIDTH, HEIGHT, lodepng::ColorType::GREY, 8)
}

/// One value of ink a pixel.
fn ink(letters: &[DrawnLetter], wave: f32, dice: &mut SeededRandom) -> Vec<f32> {
    let waves: [SineWave; 4] = std::array::from_fn(|_| SineWave::draw(wave, (42.0, 110.0), dice));
    let at = |pixel: usize| ((pixel % WIDTH) as f32, (pixel / WIDTH) as f32);
    let bent: Vec<Point> = (0..WIDTH * HEIGHT).map(|pixel| shifted(&waves, at(pixel))).collect();
    let mut ink = vec![0.0; WIDTH * HEIGHT];
    for letter in letters {
        let pressure = SineWave::draw(0.55, (50.0, 120.0), dice);
        for piece in &letter.pieces {
            let pen = letter.pen * (1.0 + pressure.shift(piece.0).0.clamp(-PRESSURE, PRESSURE));
            // No pixel shows anything further away than the combined reach of the waves.
            stroke(&mut ink, &bent, *piece, pen, pen + 1.0 + 4.0 * wave);
        }
    }
    ink
}

fn stroke(ink: &mut [f32], bent: &[Point], (from, to): (Point, Point), pen: f32, reach: f32) {
    let span = |a: f32, b: f32, end: usize| {
        let (low, high) = (a.min(b) - reach, a.max(b) + reach);
        low.max(0.0) as usize..(high.max(0.0) as usize + 1).min(end)
    };
    let (wide, high) = (to.0 - from.0, to.1 - from.1);
    let length = (wide * wide + high * high).max(1e-6);
    for y in span(from.1, to.1, HEIGHT) {
        for x in span(from.0, to.0, WIDTH) {
            let pixel = y * WIDTH + x;
            let (right, down) = (bent[pixel].0 - from.0, bent[pixel].1 - from.1);
            let nearest = ((right * wide + down * high) / length).clamp(0.0, 1.0);
            let (right, down) = (right - nearest * wide, down - nearest * high);
            let away = (right * right + down * down).sqrt();
            ink[pixel] = ink[pixel].max((pen + 0.5 - away).clamp(0.0, 1.0));
        }
    }
}

/// Ink on paper of an uneven grey, in 16 steps: half the bytes of 256, and no visible difference.
fn print(ink: &[f32], dice: &mut SeededRandom) -> Vec<u8> {
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
        let draw = |seed| png("HMTAX", Difficulty::Easy, [seed; 32]).unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn letters_of_no_alphabet_leave_blank_paper() {
        let ink = |text: &str| {
            let (amounts, mut dice) = (amounts(Difficulty::Easy), SeededRandom::new(&[1; 32]));
            let letters = write(text, &amounts, &mut dice);
            ink(&letters, amounts.wave, &mut dice)
        };
        assert!(ink("通过").iter().chain(&ink("")).all(|ink| *ink == 0.0));
        assert!(ink("death").iter().sum::<f32>() > 500.0);
        assert!(png("通过", Difficulty::Easy, [1; 32]).unwrap().starts_with(SIGNATURE));
    }

    #[test]
    fn letters_keep_off_the_edges() {
        for seed in 0..50 {
            for difficulty in [Difficulty::Easy, Difficulty::Medium, Difficulty::Hard] {
                let letters = write("WMHWMR", &amounts(difficulty), &mut SeededRandom::new(&[seed; 32]));
                let inside = |(x, y): Point| (5.0..235.0).contains(&x) && (3.0..97.0).contains(&y);
                assert!(
                    letters.iter().flat_map(|letter| &letter.pieces).all(|(a, b)| inside(*a) && inside(*b))
                );
            }
        }
    }
}
