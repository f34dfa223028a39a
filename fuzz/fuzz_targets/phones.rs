//! A number that is accepted is in E.164, is its own canonical form whatever the default region is, and shows at most
//! half of itself in a mask. Input: the default region, a line break, what somebody typed.
#![no_main]

use gatehouse::sms::Phone;
use libfuzzer_sys::fuzz_target;

const REGIONS: [&str; 8] = ["CN", "DE", "US", "GB", "IT", "BR", "ZZ", ""];

fuzz_target!(|input: &str| {
    let Some((region, text)) = input.split_once('\n') else { return };
    let Ok(phone) = Phone::parse(text, region) else { return };
    let digits = phone.as_str().strip_prefix('+').expect("E.164 begins with +");
    let is_e164 = (4..=15).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    assert!(is_e164 && !digits.starts_with('0'), "{text:?}: {}", phone.as_str());
    for region in REGIONS {
        let again = Phone::parse(phone.as_str(), region);
        assert_eq!(again.as_ref().map(Phone::as_str), Ok(phone.as_str()), "{text:?} in {region:?}");
    }
    for masked in [phone.masked(), phone.ledger_mask()] {
        let shown = masked.bytes().filter(u8::is_ascii_digit).count();
        assert!(masked.contains("****") && shown + 4 <= digits.len(), "{masked}");
    }
});
