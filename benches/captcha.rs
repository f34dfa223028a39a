//! What stock OCR reads of the images, and images with their answers for readers of your own, human or trained.
//!
//!     cargo bench --bench captcha -- [IMAGES] [easy|medium|hard]
//!     cargo bench --bench captcha -- IMAGES easy|medium|hard FOLDER
//!
//! The first counts what Tesseract reads in each of five ways, and what drawing takes. The second writes
//! `FOLDER/00000.png` and so on, and `FOLDER/answers.csv` with a line `00000.png,LETTERS` for each.

#![expect(clippy::disallowed_methods, reason = "a benchmark says how long it took")]

#[path = "../tests/it/ocr.rs"]
mod ocr;

use std::path::Path;
use std::time::Instant;

use gatehouse::captcha::Difficulty;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let images: u32 = arguments.first().and_then(|count| count.parse().ok()).unwrap_or(600);
    let difficulty = match arguments.get(1).map(String::as_str) {
        Some("easy") => Difficulty::Easy,
        Some("hard") => Difficulty::Hard,
        _ => Difficulty::Medium,
    };
    if let Some(folder) = arguments.get(2) {
        return write(images, difficulty, Path::new(folder));
    }
    // Its glyphs are taken out once.
    drop(ocr::image(0, difficulty));
    let start = Instant::now();
    (0..images).for_each(|number| drop(ocr::image(number, difficulty)));
    println!("drawn in {:.2?} each", start.elapsed() / images.max(1));
    let read = ocr::of_each_way(images, difficulty);
    println!(
        "of {images} Tesseract reads as they are {} (as a line) and {} (as a word), cleaned {} and {}, and enlarged {}",
        read[0], read[1], read[2], read[3], read[4]
    );
    Ok(())
}

fn write(images: u32, difficulty: Difficulty, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut answers = String::new();
    for number in 0..images {
        let (name, (png, text)) = (format!("{number:05}.png"), ocr::image(number, difficulty));
        std::fs::write(folder.join(&name), png)?;
        answers += &format!("{name},{text}\n");
    }
    std::fs::write(folder.join("answers.csv"), answers)
}
