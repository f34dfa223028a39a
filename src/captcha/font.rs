//! The letterforms: the `captcha` crate's font, cut out once and kept as ink.

use std::collections::HashMap;
use std::sync::LazyLock;

use captcha::{Captcha, Geometry};

/// The text's letterforms; nothing where the font lacks one of them (it has no I, L, O, o and 0).
pub fn glyphs(text: &str) -> Option<Vec<&'static Glyph>> {
    text.chars().map(|letter| GLYPHS.get(&letter)).collect()
}

/// A letterform: how black each pixel is, 0 to 1.
pub struct Glyph {
    pub width: usize,
    pub height: usize,
    ink: Vec<f32>,
}

static GLYPHS: LazyLock<HashMap<char, Glyph>> = LazyLock::new(|| {
    let known = Captcha::new().supported_chars();
    known.into_iter().filter_map(|letter| Some((letter, Glyph::load(letter)?))).collect()
});

impl Glyph {
    /// The crate keeps its font to itself, so a letter is set alone and cut out.
    fn load(letter: char) -> Option<Self> {
        let mut sheet = Captcha::new();
        sheet.set_chars(&[letter]).add_char();
        let area = sheet.text_area();
        sheet.extract(Geometry::new(area.left, area.right + 1, area.top, area.bottom + 1));
        let png = sheet.as_png()?;
        let pixels = lodepng::decode24(png).ok()?;
        let ink = pixels.buffer.iter().map(|pixel| 1.0 - f32::from(pixel.g) / 255.0).collect();
        Some(Self { width: pixels.width, height: pixels.height, ink })
    }

    fn at(&self, x: i32, y: i32) -> f32 {
        let inside = (0..self.width as i32).contains(&x) && (0..self.height as i32).contains(&y);
        if inside { self.ink[y as usize * self.width + x as usize] } else { 0.0 }
    }

    /// The ink between pixels, bilinear; none outside.
    pub fn between(&self, x: f32, y: f32) -> f32 {
        let (left, top) = (x.floor(), y.floor());
        let (right_share, low_share) = (x - left, y - top);
        let (left, top) = (left as i32, top as i32);
        let upper = self.at(left, top) * (1.0 - right_share) + self.at(left + 1, top) * right_share;
        let lower = self.at(left, top + 1) * (1.0 - right_share) + self.at(left + 1, top + 1) * right_share;
        upper * (1.0 - low_share) + lower * low_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captcha::answer::ALPHABET;

    #[test]
    fn font_has_every_letter_of_the_alphabet() {
        assert!(ALPHABET.iter().all(|letter| GLYPHS.contains_key(&char::from(*letter))));
        assert!(glyphs("o").is_none());
    }
}
