//! What a matcher that knows every letterform reads in the images: an attack that measures the drawing.
//!
//!     cargo bench --bench captcha -- [IMAGES] [easy|medium|hard] [own|crate] [SECONDS]
//!
//! For each image it searches position, rotation, slant, width and waves for SECONDS (1) of a core, then
//! takes the five letters that fit best beside each other. `own`: the forms of src/captcha/letters.rs;
//! `crate`: the glyphs of the captcha crate, from which the images were drawn before. First it reads letters
//! that are only turned a little, to show that it works.

#![expect(clippy::disallowed_methods, reason = "a benchmark says how long it took")]

#[path = "captcha/fit.rs"]
mod fit;
#[path = "captcha/forms.rs"]
mod forms;

use std::time::{Duration, Instant};

use gatehouse::captcha::{ALPHABET, Difficulty, png};

use fit::Matcher;
use forms::{Sheet, Template, control};

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let images: u32 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(600);
    let difficulty = match arguments.next().as_deref() {
        Some("easy") => Difficulty::Easy,
        Some("hard") => Difficulty::Hard,
        _ => Difficulty::Medium,
    };
    let templates = match arguments.next().as_deref() {
        Some("crate") => forms::of_the_crate(),
        _ => forms::own(),
    };
    let seconds: f32 = arguments.next().and_then(|span| span.parse().ok()).unwrap_or(1.0);
    let matcher = Matcher::new(templates, Duration::from_secs_f32(seconds));
    let controls = (images / 20).max(10);
    report(
        "control",
        controls,
        |seed| {
            let text = text(seed, 5);
            (control(&matcher.templates, &text, seed), text)
        },
        &matcher,
    );
    report(
        "images",
        images,
        |seed| {
            let text = text(seed, if difficulty == Difficulty::Hard { 6 } else { 5 });
            let png = png(&text, difficulty, *blake3::hash(&seed.to_be_bytes()).as_bytes()).unwrap();
            (Sheet::decode(&png), text)
        },
        &matcher,
    );
}

/// The letters of the seed.
fn text(seed: u32, count: usize) -> String {
    let hash = blake3::hash(&seed.to_le_bytes());
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    hash.as_bytes().iter().take(count).map(letter).collect()
}

fn report(what: &str, images: u32, image: impl Fn(u32) -> (Sheet, String), matcher: &Matcher) {
    let (mut whole, mut letters, mut all, start) = (0, 0, 0, Instant::now());
    for seed in 0..images {
        let (sheet, text) = image(seed);
        let read = matcher.read(&sheet, text.len());
        whole += u32::from(read == text);
        letters += text.chars().zip(read.chars()).filter(|(a, b)| a == b).count();
        all += text.len();
    }
    println!("{what}: {whole} of {images} read, {letters} of {all} letters, in {:.0?}", start.elapsed());
}

/// The template for `letter`; if there are several, the one selected by `which`.
pub fn template(templates: &[Template], letter: char, which: usize) -> &Template {
    let mine: Vec<_> = templates.iter().filter(|template| template.letter == letter).collect();
    mine[which % mine.len()]
}
