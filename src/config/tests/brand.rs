//! `[brand]`: what is taken, and what is refused, each with its message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{read, refusal};
use crate::config::{Brand, Colour};

/// A PNG of one grey.
fn png(width: usize, height: usize) -> Vec<u8> {
    lodepng::encode_memory(&vec![99_u8; width * height], width, height, lodepng::ColorType::GREY, 8).unwrap()
}

fn with_logo(png: &[u8]) -> String {
    format!("[brand]\nlogo = {:?}", STANDARD.encode(png))
}

fn brand(text: &str) -> Brand {
    read(text).expect(text).live.brand.as_ref().clone()
}

#[test]
fn a_logo_is_the_png_itself() {
    let (square, wide) = (png(20, 20), png(90, 30));
    let logo = brand(&with_logo(&square)).logo.unwrap();
    assert_eq!((&*logo.png, logo.is_wordmark(), logo.width_at(32)), (&*square, false, 32));
    let logo = brand(&with_logo(&wide)).logo.unwrap();
    assert_eq!((logo.is_wordmark(), logo.width_at(32)), (true, 96));
    // As the command prints it.
    let lines: Vec<String> = STANDARD
        .encode(&square)
        .as_bytes()
        .chunks(20)
        .map(|line| String::from_utf8_lossy(line).into())
        .collect();
    let pasted = format!("[brand]\nlogo = \"\"\"\n{}\n\"\"\"", lines.join("\r\n"));
    assert_eq!(&*brand(&pasted).logo.unwrap().png, &*square);
    assert_eq!(brand("[brand]\nlogo = ''").logo, None);
}

#[test]
fn what_is_no_whole_png_is_no_logo() {
    let whole = png(20, 20);
    let told = |png: &[u8]| refusal(&with_logo(png)).split_once("brand.logo: ").unwrap().1.to_owned();
    let wanted = "write a PNG in base64, as `base64 logo.png` prints it";
    let broken = format!("is no PNG, or not a whole one; {wanted}");
    for end in 1..whole.len() {
        assert_eq!(told(&whole[..end]), broken, "cut off after {end}");
    }
    for at in 0..whole.len() {
        let mut other = whole.clone();
        other[at] ^= 1;
        assert_eq!(told(&other), broken, "another byte at {at}");
    }
    assert_eq!(told(&[&*whole, b"<script>"].concat()), broken, "with something behind it");
    assert_eq!(told(&[&*whole, &whole[8..]].concat()), broken, "twice");
    assert_eq!(told(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), broken);
    assert_eq!(told(b"\x89PNG\r\n\x1a\n"), broken);
    for no_file in ["logo.png", "https://example.com/logo.png", "data:image/png;base64,AAAA"] {
        let told = refusal(&format!("[brand]\nlogo = '{no_file}'"));
        assert_eq!(told, format!("gatehouse.toml:2: brand.logo: is not base64; {wanted}"));
    }
}

#[test]
fn a_logo_has_a_size_that_browsers_can_show() {
    let told = |png: &[u8]| refusal(&with_logo(png)).split_once("brand.logo: ").unwrap().1.to_owned();
    assert_eq!(told(&png(2_049, 1)), "has 2049 x 1 pixels; it must be from 1 to 2048 either way");
    assert_eq!(told(&vec![0; 65_537]), "is 65537 bytes long; at most 65536 (64 KiB) are allowed");
    brand(&with_logo(&png(2_048, 2_048)));
}

#[test]
fn a_colour_can_be_read_on_every_ground() {
    let parts = |colour: Colour| colour.to_string();
    let read = |colour: &str| brand(&format!("[brand]\ncolour = '{colour}'")).colour.unwrap();
    assert_eq!(read("#0D5A52").on_light().map(parts), ["#0d5a52", "#09433d"]);
    assert_eq!(read("#000000").on_dark().map(parts), ["#8c8c8c", "#aeaeae"]);
    assert_eq!(
        refusal("[brand]\ncolour = '#1a73e8'"),
        "gatehouse.toml:2: brand.colour: \"#1a73e8\" has a contrast of 3.3 with light pages (#e3ddd0); links need 4.5: \"#155fc0\" would do"
    );
    assert_eq!(parts(read("#155fc0")), "#155fc0", "what would do is taken");
    for wrong in ["teal", "0d5a52", "#0d5", "#0d5a5g", "#+d5a52", "#0d5a5200", "red; } body { display: none"]
    {
        assert_eq!(
            refusal(&format!("[brand]\ncolour = '{wrong}'")),
            format!(
                "gatehouse.toml:2: brand.colour: {wrong:?} is not a colour; write it as \"#0d5a52\": red, green and blue"
            )
        );
    }
}

#[test]
fn a_name_is_plain_text() {
    assert_eq!(brand("").name, "Gatehouse");
    assert_eq!(brand("[brand]\nname = '晴空 & <Söhne>'").name, "晴空 & <Söhne>");
    for wrong in
        [String::new(), " ".to_owned(), "a".repeat(41), "two\\nlines".to_owned(), "turned \\u202e".to_owned()]
    {
        let told = refusal(&format!("[brand]\nname = \"{wrong}\""));
        assert!(told.starts_with("gatehouse.toml:2: brand.name: must "), "{told}");
    }
}

#[test]
fn support_is_an_address_that_opens_nothing_else() {
    let support =
        |text: &str| brand(&format!("[brand]\nsupport = {text:?}")).support.map(|url| url.to_string());
    assert_eq!(support(""), None);
    for fits in ["https://help.example/a?b=c", "mailto:help@example.com", "tel:+441632960000"] {
        assert_eq!(support(fits).as_deref(), Some(fits));
    }
    for wrong in [
        "help@example.com",
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "java\tscript:alert(1)",
        "data:text/html,x",
        "http://help.example/",
        "https://me:pass@help.example/",
        "//help.example",
        "/help",
        "mailto:",
        "tel:",
        "https:",
    ] {
        let told = refusal(&format!("[brand]\nsupport = {wrong:?}"));
        assert!(
            told.contains("brand.support: ") && told.contains("is not where people can turn to; write"),
            "{told}"
        );
    }
}
