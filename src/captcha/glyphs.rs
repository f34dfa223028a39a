//! The letters of the `captcha` crate, each taken out of it when it is first needed, and kept: every one that is made
//! parses its whole font.

use std::sync::OnceLock;

use ::captcha::{Captcha, Geometry};

/// How far from its outline a glyph is measured, and the free margin around it, in its own pixels: more than any stroke
/// is thickened.
const REACH: i32 = 4;

/// An upright glyph: how far each of its pixels is from the outline, positive in the ink.
pub struct Glyph {
    pub width: usize,
    pub height: usize,
    inside: Vec<f32>,
}

/// None if the font lacks it.
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
        // Of a pixel that the outline crosses: how far its middle is from it.
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

    /// The pixels in its ink.
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
