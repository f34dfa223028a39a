//! Images of challenges: drawn off the async threads, and cached for a short while.
//!
//! The letters are the `captcha` crate's glyphs, set by us: each is turned, sheared, scaled, thickened and moved up or
//! down, and stands over the edge of the one before it. A reader made for print fails, because there is no line to find
//! and nothing to cut apart, and people read it at once. Grids, dots and waves, which the crate can draw, too, would stop
//! only people: a median filter removes them.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use ::captcha::{Captcha, Geometry};
use gatehouse_limiter::Refusal;
use quick_cache::sync::Cache;

use super::id::{ChallengeNonce, VerifiedId};
use super::slots::Slot;
use super::{CaptchaForm, Difficulty};
use crate::secret::{MasterKey, SigningKeys};

/// The most images that are kept, of less than 8 kB each. A dropped image is drawn again with the same bytes, and
/// counts again.
const CACHED_IMAGES: usize = 2_000;

/// No image for this client, or for anyone, until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageRefusal {
    pub form: CaptchaForm,
    /// The limit that refused, and how.
    pub limit: &'static str,
    pub refusal: Refusal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Expired, or not one of our ids: both get the same answer, because there is nothing to draw.
    #[error("no such challenge")]
    Unknown,
    #[error("too many images were drawn recently")]
    Refused(ImageRefusal),
    #[error("too many images are being drawn; try again in a second")]
    Busy,
    #[error("the image could not be drawn")]
    Failed,
}

pub struct ChallengeImages {
    seed: SigningKeys,
    cache: Cache<ChallengeNonce, Arc<[u8]>>,
}

impl ChallengeImages {
    pub fn new(key: &MasterKey) -> Self {
        Self { seed: key.derive_signing("captcha.image"), cache: Cache::new(CACHED_IMAGES) }
    }

    /// One id, one image: every random choice comes from the nonce, so that asking again (here, on another
    /// instance, or after the cache dropped it) gives no second picture to average with. If many ask for one
    /// at once, it is drawn once.
    pub async fn of(
        &self,
        body: &VerifiedId,
        text: String,
        turn: impl Future<Output = Result<Slot, ImageError>>,
    ) -> Result<Arc<[u8]>, ImageError> {
        let drawn = async { self.draw(body, text, turn.await?).await };
        self.cache.get_or_insert_async(&body.nonce, drawn).await
    }

    async fn draw(&self, body: &VerifiedId, text: String, turn: Slot) -> Result<Arc<[u8]>, ImageError> {
        let seed = self.seed.of(body.generation).hash(&[&body.nonce]);
        let difficulty = body.difficulty();
        // Moved into the task: a caller that leaves does not free a core that is still drawing.
        let drawn = tokio::task::spawn_blocking(move || {
            let png = png(&text, difficulty, seed);
            drop(turn);
            png
        });
        match drawn.await {
            Ok(Ok(png)) => Ok(png.into()),
            Ok(Err(_)) | Err(_) => Err(ImageError::Failed),
        }
    }
}

pub const WIDTH: usize = 240;
pub const HEIGHT: usize = 100;

/// The free margin on each side, in pixels.
const MARGIN: f32 = 4.0;
/// How large pixels of a glyph are drawn, before the letters are fitted into the image: a capital has 38.
const SCALE: Point = (1.0, 1.55);
/// On each side of a stroke, in pixels of a glyph.
const THICKEN: Point = (0.2, 1.3);
/// Letters whose small form is another: which of the two is drawn is random.
const WITH_SMALL_FORM: &str = "ADEHMNRT";
const PAPER: f32 = 255.0;
const INK: f32 = 34.0;

type Point = (f32, f32);

struct Distortion {
    /// In radians, either way.
    turn: f32,
    shear: f32,
    /// In pixels, up or down.
    raise: f32,
    /// How far neighbours overlap, in pixels.
    overlap: Point,
}

const fn distortion(difficulty: Difficulty) -> Distortion {
    match difficulty {
        Difficulty::Easy => Distortion { turn: 0.35, shear: 0.25, raise: 12.0, overlap: (1.0, 6.0) },
        // 34°, and a quarter of the image's height.
        Difficulty::Medium => Distortion { turn: 0.59, shear: 0.5, raise: 24.0, overlap: (5.0, 13.0) },
        Difficulty::Hard => Distortion { turn: 0.7, shear: 0.55, raise: 26.0, overlap: (7.0, 15.0) },
    }
}

/// The text as a PNG; blank paper if it has a letter that the font lacks.
pub fn png(text: &str, difficulty: Difficulty, seed: [u8; 32]) -> Result<Vec<u8>, lodepng::Error> {
    let letters = set(text, &distortion(difficulty), &mut SeededRandom::new(&seed));
    let mut ink = vec![0.0; WIDTH * HEIGHT];
    letters.iter().for_each(|letter| letter.draw(&mut ink));
    // In 16 steps: half the bytes of 256, and no visible difference.
    let grey = |ink: &f32| ((PAPER + (INK - PAPER) * ink) / 17.0).round() as u8 * 17;
    let pixels: Vec<u8> = ink.iter().map(grey).collect();
    lodepng::encode_memory(&pixels, WIDTH, HEIGHT, lodepng::ColorType::GREY, 8)
}

/// The letters beside each other, in the middle of the image, as large as there is room for.
fn set(text: &str, most: &Distortion, random: &mut SeededRandom) -> Vec<SetLetter> {
    let (mut letters, mut start, mut end, mut tallest) = (Vec::new(), 0.0, 0.0, 0.0);
    let (mut turned, mut raised) = (random.around(1.0), random.around(1.0));
    for letter in text.chars() {
        let small = WITH_SMALL_FORM.contains(letter) && random.between(0.0, 1.0) < 0.5;
        let Some(glyph) = glyph(if small { letter.to_ascii_lowercase() } else { letter }) else {
            return Vec::new();
        };
        // The other way than the last: neighbours that lean alike would stand on a line.
        (turned, raised) = (random.across(turned), random.across(raised));
        let mut letter = SetLetter::new(glyph, turned * most.turn, most, random);
        let (left, right) = letter.extent(|point| point.0);
        letter.middle.0 = end - left - random.between(most.overlap.0, most.overlap.1);
        letter.middle.1 = raised * most.raise;
        end = f32::max(end, letter.middle.0 + right);
        start = f32::min(start, letter.middle.0 + left);
        let (top, bottom) = letter.extent(|point| point.1);
        tallest = f32::max(tallest, bottom - top);
        letters.push(letter);
    }
    let room = (WIDTH as f32 - 2.0 * MARGIN, HEIGHT as f32 - 2.0 * MARGIN);
    let fit = (room.0 / (end - start)).min(room.1 / tallest).min(1.0);
    for letter in &mut letters {
        letter.scale *= fit;
        letter.middle.0 = (letter.middle.0 - (start + end) / 2.0) * fit + WIDTH as f32 / 2.0;
        let (top, bottom) = letter.extent(|point| point.1);
        let middle = (letter.middle.1 + HEIGHT as f32 / 2.0).min(HEIGHT as f32 - MARGIN - bottom);
        letter.middle.1 = middle.max(MARGIN - top);
    }
    letters
}

struct SetLetter {
    glyph: &'static Glyph,
    middle: Point,
    scale: f32,
    thicken: f32,
    shear: f32,
    /// Sine and cosine of the angle.
    turn: Point,
}

impl SetLetter {
    fn new(glyph: &'static Glyph, turn: f32, most: &Distortion, random: &mut SeededRandom) -> Self {
        Self {
            glyph,
            middle: (0.0, 0.0),
            scale: random.between(SCALE.0, SCALE.1),
            thicken: random.between(THICKEN.0, THICKEN.1),
            shear: random.around(most.shear),
            turn: turn.sin_cos(),
        }
    }

    /// Where a pixel of the glyph is drawn, from the letter's middle.
    fn drawn_at(&self, (x, y): Point) -> Point {
        let (x, y) = (x - self.glyph.width as f32 / 2.0, y - self.glyph.height as f32 / 2.0);
        let x = x + self.shear * y;
        let (sin, cos) = self.turn;
        ((x * cos - y * sin) * self.scale, (x * sin + y * cos) * self.scale)
    }

    fn drawn_from(&self, (x, y): Point) -> Point {
        let (sin, cos) = self.turn;
        let (x, y) = ((x * cos + y * sin) / self.scale, (y * cos - x * sin) / self.scale);
        (x - self.shear * y + self.glyph.width as f32 / 2.0, y + self.glyph.height as f32 / 2.0)
    }

    /// How far its ink reaches from its middle.
    fn extent(&self, axis: impl Fn(Point) -> f32) -> Point {
        let thicken = self.thicken * self.scale;
        let ends = self.glyph.ink().map(|point| axis(self.drawn_at(point)));
        let (low, high) = ends.fold((f32::MAX, f32::MIN), |(low, high), end| (low.min(end), high.max(end)));
        (low - thicken, high + thicken)
    }

    fn draw(&self, ink: &mut [f32]) {
        let span = |(low, high): Point, middle: f32, end: usize| {
            (middle + low - 1.0).max(0.0) as usize..((middle + high + 2.0).max(0.0) as usize).min(end)
        };
        let across = span(self.extent(|point| point.0), self.middle.0, WIDTH);
        for y in span(self.extent(|point| point.1), self.middle.1, HEIGHT) {
            for x in across.clone() {
                let from = self.drawn_from((x as f32 - self.middle.0, y as f32 - self.middle.1));
                let inside = (self.glyph.inside(from) + self.thicken) * self.scale;
                let pixel = &mut ink[y * WIDTH + x];
                *pixel = pixel.max((inside + 0.5).clamp(0.0, 1.0));
            }
        }
    }
}

struct SeededRandom(blake3::OutputReader);

impl SeededRandom {
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

    /// From -1 to 1, with the opposite sign of the last.
    fn across(&mut self, last: f32) -> f32 {
        self.between(0.2, 1.0) * -last.signum()
    }
}

/// How far from its outline a glyph is measured, and the free margin around it, in its own pixels: more than any stroke
/// is thickened.
const REACH: i32 = 4;

/// An upright glyph of the `captcha` crate: how far each of its pixels is from the outline, positive in the ink.
pub struct Glyph {
    pub width: usize,
    pub height: usize,
    inside: Vec<f32>,
}

/// The outline of a letter; None if the font lacks it. Kept when it is first needed: every one that is made parses
/// its whole font.
pub fn glyph(letter: char) -> Option<&'static Glyph> {
    static GLYPHS: [OnceLock<Option<Glyph>>; 128] = [const { OnceLock::new() }; 128];
    GLYPHS.get(letter as usize)?.get_or_init(|| Glyph::take_out(letter)).as_ref()
}

impl Glyph {
    fn take_out(letter: char) -> Option<Self> {
        let mut page = Captcha::new();
        page.set_chars(&[letter]).add_char();
        // Empty if there is no such letter.
        page.chars().first()?;
        let Geometry { left, right, top, bottom } = page.text_area();
        page.extract(Geometry::new(left, right + 1, top, bottom + 1));
        let image = lodepng::decode24(page.as_png()?).ok()?;
        // For a pixel that the outline crosses: how far its middle is from it.
        let edge = |x: i32, y: i32| {
            let inside = (0..image.width as i32).contains(&x) && (0..image.height as i32).contains(&y);
            let at = |x: i32, y: i32| image.buffer[y as usize * image.width + x as usize];
            if inside { 0.5 - f32::from(at(x, y).g) / 255.0 } else { -0.5 }
        };
        let margin = 2 * REACH as usize;
        let (width, height) = (image.width + margin, image.height + margin);
        let inside = (0..width * height).map(|at| {
            let (x, y) = ((at % width) as i32 - REACH, (at / width) as i32 - REACH);
            let own = edge(x, y);
            let farthest = if own.abs() < 0.5 { own.abs() } else { REACH as f32 };
            let near = (-REACH..=REACH).flat_map(|dy| (-REACH..=REACH).map(move |dx| (dx, dy)));
            let beyond = near.filter_map(|(dx, dy)| {
                let other = edge(x + dx, y + dy);
                (other.signum() != own.signum()).then(|| (dx as f32).hypot(dy as f32) - other.abs())
            });
            beyond.fold(farthest, f32::min) * own.signum()
        });
        Some(Self { width, height, inside: inside.collect() })
    }

    pub fn ink(&self) -> impl Iterator<Item = (f32, f32)> {
        let ink = self.inside.iter().enumerate().filter(|(_, inside)| **inside > 0.0);
        ink.map(|(at, _)| ((at % self.width) as f32, (at / self.width) as f32))
    }

    /// The distance at a point, from that at the four pixels around it; minus infinity outside.
    pub fn inside(&self, (x, y): (f32, f32)) -> f32 {
        let (left, top) = (x as usize, y as usize);
        if x < 0.0 || y < 0.0 || left + 1 >= self.width || top + 1 >= self.height {
            return f32::NEG_INFINITY;
        }
        let at = top * self.width + left;
        let mix = |at: usize| self.inside[at] + (self.inside[at + 1] - self.inside[at]) * (x - left as f32);
        mix(at) + (mix(at + self.width) - mix(at)) * (y - top as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captcha::ALPHABET;

    const ALL: [Difficulty; 3] = [Difficulty::Easy, Difficulty::Medium, Difficulty::Hard];

    fn set_with(text: &str, difficulty: Difficulty, seed: u8) -> Vec<SetLetter> {
        set(text, &distortion(difficulty), &mut SeededRandom::new(&[seed; 32]))
    }

    #[test]
    fn a_seed_is_one_small_png_of_the_stated_size() {
        for difficulty in ALL {
            let image = png("WMWMWM", difficulty, [1; 32]).unwrap();
            assert_eq!(&image[..8], b"\x89PNG\r\n\x1a\n");
            assert_eq!(&image[16..24], [0, 0, 0, WIDTH as u8, 0, 0, 0, HEIGHT as u8]);
            assert!(image.len() < 8_192, "{} bytes", image.len());
            assert_eq!(image, png("WMWMWM", difficulty, [1; 32]).unwrap());
            assert_ne!(image, png("WMWMWM", difficulty, [2; 32]).unwrap());
        }
    }

    #[test]
    fn each_letter_has_its_forms_and_what_is_none_leaves_blank_paper() {
        let forms = |letter: &u8| [char::from(*letter), char::from(letter.to_ascii_lowercase())];
        for form in ALPHABET.iter().flat_map(forms) {
            assert!(glyph(form).is_some_and(|glyph| glyph.ink().count() > 100), "{form}");
        }
        assert!(glyph('0').is_none() && glyph('\u{7f}').is_none() && glyph('通').is_none());
        assert!(
            set_with("通过", Difficulty::Easy, 1).is_empty() && set_with("", Difficulty::Hard, 1).is_empty()
        );
        assert!(png("通过", Difficulty::Easy, [1; 32]).is_ok());
    }

    #[test]
    fn every_letter_is_drawn_whole() {
        for (seed, difficulty) in (0..50).flat_map(|seed| ALL.map(|difficulty| (seed, difficulty))) {
            for letter in set_with("WMHWMR", difficulty, seed) {
                let ((left, right), (top, bottom)) = (letter.extent(|at| at.0), letter.extent(|at| at.1));
                let (x, y) = letter.middle;
                assert!(
                    x + left > 0.0 && x + right < WIDTH as f32 && y + top > 0.0 && y + bottom < HEIGHT as f32
                );
            }
        }
    }
}
