//! `[brand]` (live): what people see in place of our own name, mark and colour, and where they find help.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lodepng::{ChunkRef, ChunksIter};
use url::Url;

use super::document::ValueNode;
use super::programs::title;
use super::reader::{ParseResult, section};
use super::values::if_any;

section! {
    Brand in "brand" {
        /// The name of the site. Messages have it, too, so it obeys their rules.
        name: String = "Gatehouse".to_owned(), |node: ValueNode| title(node.text()?);
        logo: Option<Logo> = None, if_any(logo);
        colour: Option<Colour> = None, if_any(colour);
        support: Option<Url> = None, if_any(support);
    }
}

/// A PNG, and its size in pixels.
#[derive(Clone, PartialEq, Eq)]
pub struct Logo {
    pub png: Arc<[u8]>,
    width: u32,
    height: u32,
}

/// Without the bytes.
impl fmt::Debug for Logo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PNG of {} x {} pixels", self.width, self.height)
    }
}

const LARGEST_LOGO: usize = 64 * 1024;
/// In pixels. A browser needs four bytes for each.
const LARGEST_SIDE: u32 = 2_048;

impl Logo {
    /// Wide enough to have the name in it.
    pub const fn is_wordmark(&self) -> bool {
        self.width >= 2 * self.height
    }

    pub fn width_at(&self, height: u32) -> u32 {
        (self.width * height).div_ceil(self.height)
    }
}

fn logo(node: ValueNode) -> ParseResult<Logo> {
    let text: String = node.text()?.split_ascii_whitespace().collect();
    let wanted = "write a PNG in base64, as `base64 logo.png` prints it";
    let png = STANDARD.decode(text).map_err(|_| format!("is not base64; {wanted}"))?;
    if png.len() > LARGEST_LOGO {
        return Err(format!("is {} bytes long; at most {LARGEST_LOGO} (64 KiB) are allowed", png.len()));
    }
    let (width, height) = size(&png).ok_or_else(|| format!("is no PNG, or not a whole one; {wanted}"))?;
    let fits = 1..=LARGEST_SIDE;
    if !fits.contains(&width) || !fits.contains(&height) {
        return Err(format!("has {width} x {height} pixels; it must be from 1 to {LARGEST_SIDE} either way"));
    }
    Ok(Logo { png: png.into(), width, height })
}

/// Width and height of a PNG whose parts are all there, and as they were written.
fn size(png: &[u8]) -> Option<(u32, u32)> {
    let parts = ChunksIter::new(png.strip_prefix(b"\x89PNG\r\n\x1a\n")?);
    let parts: Vec<_> = parts.collect::<Result<_, _>>().ok()?;
    let (head, end) = (parts.first()?, parts.last()?);
    let count = |kind: &str| parts.iter().filter(|part| part.is_type(kind)).count();
    let whole = head.is_type("IHDR") && end.is_type("IEND") && count("IEND") == 1 && count("IDAT") > 0;
    let (width, rest) = head.data().split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    let size = (u32::from_be_bytes(*width), u32::from_be_bytes(*height));
    (whole && parts.iter().all(ChunkRef::check_crc)).then_some(size)
}

/// Red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour([u8; 3]);

/// WCAG 2.2, 1.4.3, for text.
const READABLE: f64 = 4.5;
/// The grounds that links and buttons are on, those nearest to them: `--arch` of app.css and of dark.css. White on a
/// colour that can be read on the first can be read, too.
const LIGHT: Colour = Colour([0xe3, 0xdd, 0xd0]);
const DARK: Colour = Colour([0x1c, 0x26, 0x29]);

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl Colour {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#')?;
        let plain = digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let [_, red, green, blue] = plain.then(|| u32::from_str_radix(digits, 16).ok())??.to_be_bytes();
        Some(Self([red, green, blue]))
    }

    /// For links and buttons of light pages, and under the pointer.
    pub fn on_light(self) -> [Self; 2] {
        [self, self.mixed(0, 25)]
    }

    /// The colour on dark pages: as much lighter as it takes.
    pub fn on_dark(self) -> [Self; 2] {
        let tint = self.readable_on(DARK, 255);
        [tint, tint.mixed(255, 30)]
    }

    /// Returns this colour, or the next one towards black (0) or white (255) in which text can be read.
    fn readable_on(self, ground: Self, towards: u8) -> Self {
        let mut mixed = (0..=100).map(|percent| self.mixed(towards, percent));
        mixed.find(|colour| colour.contrast(ground) >= READABLE).unwrap_or(Self([towards; 3]))
    }

    fn mixed(self, with: u8, percent: u16) -> Self {
        let mix = |own: u8| (u16::from(own) * (100 - percent) + u16::from(with) * percent) / 100;
        Self(self.0.map(|own| mix(own) as u8))
    }

    /// WCAG 2.2, "contrast ratio" and "relative luminance".
    fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance() + 0.05, other.luminance() + 0.05);
        one.max(other) / one.min(other)
    }

    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|channel| match f64::from(channel) / 255.0 {
            low @ ..=0.040_45 => low / 12.92,
            high => ((high + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

fn colour(node: ValueNode) -> ParseResult<Colour> {
    let text = node.text()?;
    let colour = Colour::parse(&text)
        .ok_or_else(|| format!("{text:?} is not a colour; write it as \"#0d5a52\": red, green and blue"))?;
    let contrast = colour.contrast(LIGHT);
    if contrast < READABLE {
        let (shown, darker) = ((contrast * 10.0).floor() / 10.0, colour.readable_on(LIGHT, 0));
        return Err(format!(
            "{text:?} has a contrast of {shown} with light pages ({LIGHT}); links need {READABLE}: \"{darker}\" would do"
        ));
    }
    Ok(colour)
}

fn support(node: ValueNode) -> ParseResult<Url> {
    let text = node.text()?;
    let url = Url::parse(&text).ok().filter(|_| !text.contains(|letter: char| letter.is_control()));
    let leads = |url: &Url| match url.scheme() {
        "https" => url.username().is_empty() && url.password().is_none(),
        "mailto" => url.path().contains('@'),
        "tel" => url.path().contains(|digit: char| digit.is_ascii_digit()),
        _ => false,
    };
    url.filter(leads).ok_or_else(|| {
        format!(
            "{text:?} is not where people can turn to; write \"https://help.example\", \"mailto:help@example.com\" or \"tel:+441632960000\""
        )
    })
}
