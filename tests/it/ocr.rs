//! How well stock OCR reads the images: Tesseract, on the images as they are and after typical cleaning. The bench
//! `captcha` measures by the same.

use std::path::Path;
use std::process::Command;

use gatehouse::captcha::{ALPHABET, Difficulty, png};
use lodepng::ColorType;

#[derive(Clone)]
struct Grey {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Grey {
    fn decode(png: &[u8]) -> Self {
        let lodepng::Image::Grey(image) = lodepng::decode_memory(png, ColorType::GREY, 8).unwrap() else {
            panic!("no grey image")
        };
        let pixels = image.buffer.iter().map(|grey| grey.value()).collect();
        Self { width: image.width, height: image.height, pixels }
    }

    fn at(&self, x: usize, y: usize) -> u8 {
        self.pixels[y.min(self.height - 1) * self.width + x.min(self.width - 1)]
    }

    fn map(&self, scale: usize, pixel: impl Fn(usize, usize) -> u8) -> Self {
        let (width, height) = (self.width * scale, self.height * scale);
        let pixels = (0..width * height).map(|at| pixel(at % width, at / width)).collect();
        Self { width, height, pixels }
    }

    /// A median filter over nine pixels, then black or white by Otsu's threshold.
    fn cleaned(&self) -> Self {
        let median = self.map(1, |x, y| {
            let around = |at: usize| self.at((x + at % 3).saturating_sub(1), (y + at / 3).saturating_sub(1));
            let mut nine: [u8; 9] = std::array::from_fn(around);
            nine.sort_unstable();
            nine[4]
        });
        let threshold = median.otsu();
        median.map(1, |x, y| if median.at(x, y) <= threshold { 0 } else { 255 })
    }

    /// Between the two classes of grey that differ most.
    fn otsu(&self) -> u8 {
        let between = |threshold: u8| {
            let class = |dark: bool| {
                let mine = self.pixels.iter().filter(|grey| (**grey <= threshold) == dark);
                mine.fold((0.0, 0.0), |(count, sum), grey| (count + 1.0, sum + f64::from(*grey)))
            };
            let ((dark, dark_sum), (light, light_sum)) = (class(true), class(false));
            if dark * light == 0.0 {
                return 0.0;
            }
            dark * light * (dark_sum / dark - light_sum / light).powi(2)
        };
        // The image has sixteen greys.
        (0..15).map(|step| step * 17).max_by(|a, b| between(*a).total_cmp(&between(*b))).unwrap()
    }

    /// Three times as large, and smooth.
    fn enlarged(&self) -> Self {
        self.map(3, |x, y| {
            let (left, top, across, down) = (x / 3, y / 3, x % 3, y % 3);
            let mix =
                |a: u8, b: u8, third: usize| (usize::from(a) * (3 - third) + usize::from(b) * third) / 3;
            let upper = mix(self.at(left, top), self.at(left + 1, top), across);
            let lower = mix(self.at(left, top + 1), self.at(left + 1, top + 1), across);
            mix(upper as u8, lower as u8, down) as u8
        })
    }

    fn write(&self, file: &Path) {
        let mut pgm = format!("P5 {} {} 255\n", self.width, self.height).into_bytes();
        pgm.extend(&self.pixels);
        std::fs::write(file, pgm).unwrap();
    }
}

#[test]
fn stock_ocr_reads_next_to_none_of_the_medium_images() {
    // Of 600 it read at most four in each way. Then more than five of 150 have a chance of one in 1,700.
    let read = of_each_way(150, Difficulty::Medium);
    assert!(read.iter().all(|read| *read <= 5), "{read:?} of 150");
}

/// How many of the images it reads in each way.
pub fn of_each_way(images: u32, difficulty: Difficulty) -> [usize; 5] {
    let (drawn, answers): (Vec<_>, Vec<_>) = (0..images).map(|number| image(number, difficulty)).unzip();
    let drawn: Vec<Grey> = drawn.iter().map(|png| Grey::decode(png)).collect();
    let cleaned: Vec<Grey> = drawn.iter().map(Grey::cleaned).collect();
    let large: Vec<Grey> = cleaned.iter().map(Grey::enlarged).collect();
    let ways = [
        (&drawn, "7", true),
        (&drawn, "8", true),
        (&cleaned, "7", false),
        (&cleaned, "8", true),
        (&large, "7", true),
    ];
    std::thread::scope(|scope| {
        let answers = &answers;
        let reading =
            ways.map(|(images, mode, white)| scope.spawn(move || reads(images, answers, mode, white)));
        reading.map(|reading| reading.join().unwrap())
    })
}

/// The image with that number, and its letters.
pub fn image(number: u32, difficulty: Difficulty) -> (Vec<u8>, String) {
    let count = if difficulty == Difficulty::Hard { 6 } else { 5 };
    let letters = blake3::hash(&number.to_le_bytes());
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    let text: String = letters.as_bytes().iter().take(count).map(letter).collect();
    let seed = *blake3::hash(&number.to_be_bytes()).as_bytes();
    (png(&text, difficulty, seed).unwrap(), text)
}

/// How many of the images it reads, treating each as one line (mode 7) or one word (8).
fn reads(images: &[Grey], answers: &[String], mode: &str, white_list: bool) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..images.len()).map(|number| folder.path().join(format!("{number}.pgm"))).collect();
    images.iter().zip(&files).for_each(|(image, file)| image.write(file));
    let list: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    std::fs::write(folder.path().join("list"), list.join("\n")).unwrap();
    let mut tesseract = Command::new("tesseract");
    tesseract.env("OMP_THREAD_LIMIT", "1").arg(folder.path().join("list")).args(["-", "--psm", mode]);
    if white_list {
        let upper = std::str::from_utf8(ALPHABET).unwrap();
        tesseract.args(["-c", &format!("tessedit_char_whitelist={upper}{}", upper.to_lowercase())]);
    }
    let output = tesseract.output().expect("tesseract is installed");
    let text = String::from_utf8_lossy(&output.stdout).to_uppercase();
    // A form feed after each image.
    let pages: Vec<String> = text.split('\x0c').map(|page| page.split_whitespace().collect()).collect();
    assert!(pages.len() >= images.len(), "{}", String::from_utf8_lossy(&output.stderr));
    pages.iter().zip(answers).filter(|(page, answer)| page == answer).count()
}
