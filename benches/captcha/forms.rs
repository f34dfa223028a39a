//! Images as the matcher sees them, and the letterforms that it knows.

use captcha::{Captcha, Geometry};
use gatehouse::captcha::ALPHABET;
use lodepng::ColorType;

#[path = "../../src/captcha/letters.rs"]
mod letters;

/// Ink by pixel, 0 to 1.
pub struct Sheet {
    pub width: usize,
    pub height: usize,
    pub ink: Vec<f32>,
}

/// An upright letterform; its middle is the point around which it is turned.
pub struct Template {
    pub letter: char,
    pub points: Vec<(f32, f32)>,
}

/// The height of a capital in images, before it is stretched.
pub const TALL: f32 = 50.0;

impl Sheet {
    pub fn blank(width: usize, height: usize) -> Self {
        Self { width, height, ink: vec![0.0; width * height] }
    }

    pub fn decode(png: &[u8]) -> Self {
        let lodepng::Image::Grey(image) = lodepng::decode_memory(png, ColorType::GREY, 8).unwrap() else {
            unreachable!("it was asked for in grey")
        };
        let ink = image.buffer.iter().map(|grey| f32::from(u8::from(grey.value() < 140))).collect();
        Self { width: image.width, height: image.height, ink }
    }
}

/// The forms from which images are drawn, as dots along their strokes.
pub fn own() -> Vec<Template> {
    let mut templates = Vec::new();
    for letter in ALPHABET.iter().map(|letter| char::from(*letter)) {
        for form in letters::forms(letter) {
            let ends = form.iter().flat_map(|stroke| {
                let path = stroke.path();
                path.windows(2).map(|ends| (ends[0], ends[1])).collect::<Vec<_>>()
            });
            let paths = ends.flat_map(|(from, to)| dots(from, to));
            let points = paths.map(|(x, y)| ((x - 0.33) * TALL, (y - 0.5) * TALL)).collect();
            templates.push(Template { letter, points });
        }
    }
    templates
}

fn dots(from: (f32, f32), to: (f32, f32)) -> impl Iterator<Item = (f32, f32)> {
    let count = ((to.0 - from.0).hypot(to.1 - from.1) * TALL / 1.5).ceil().max(1.0) as usize;
    (0..count).map(move |dot| {
        let t = dot as f32 / count as f32;
        (from.0 + (to.0 - from.0) * t, from.1 + (to.1 - from.1) * t)
    })
}

/// The captcha crate's capitals and small letters, as dots in their ink.
pub fn of_the_crate() -> Vec<Template> {
    let cases = |letter: &u8| [char::from(*letter), char::from(letter.to_ascii_lowercase())];
    let known = Captcha::new().supported_chars();
    ALPHABET.iter().flat_map(cases).filter(|letter| known.contains(letter)).map(cut).collect()
}

/// The crate does not export its font, so a letter is drawn alone and cut out.
fn cut(letter: char) -> Template {
    let mut page = Captcha::new();
    page.set_chars(&[letter]).add_char();
    let area = page.text_area();
    page.extract(Geometry::new(area.left, area.right + 1, area.top, area.bottom + 1));
    let image = lodepng::decode24(page.as_png().unwrap()).unwrap();
    let scale = TALL / image.height as f32;
    let dark = (0..image.width * image.height).filter(|at| image.buffer[*at].g < 128);
    let points = dark.filter(|at| (at % image.width + at / image.width).is_multiple_of(3)).map(|at| {
        let (x, y) = ((at % image.width) as f32, (at / image.width) as f32);
        ((x - image.width as f32 / 2.0) * scale, (y - image.height as f32 / 2.0) * scale)
    });
    Template { letter: letter.to_ascii_uppercase(), points: points.collect() }
}

/// Separate letters on a line, each turned by up to 10°: a working matcher reads these.
pub fn control(templates: &[Template], text: &str, seed: u32) -> Sheet {
    let mut sheet = Sheet::blank(320, 100);
    for (place, letter) in text.chars().enumerate() {
        let hash = blake3::hash(&[seed.to_le_bytes(), (place as u32).to_le_bytes()].concat());
        let (turn, which) = (f32::from(hash.as_bytes()[0]) / 255.0, usize::from(hash.as_bytes()[1]));
        let (sin, cos) = ((turn - 0.5) * 0.35).sin_cos();
        for (x, y) in &super::template(templates, letter, which).points {
            let (x, y) = (x * cos - y * sin + 40.0 + 60.0 * place as f32, x * sin + y * cos + 50.0);
            for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1), (-1, 0), (0, -1), (2, 0), (0, 2)] {
                let (x, y) = ((x as i32 + dx).clamp(0, 319) as usize, (y as i32 + dy).clamp(0, 99) as usize);
                sheet.ink[y * sheet.width + x] = 1.0;
            }
        }
    }
    sheet
}
