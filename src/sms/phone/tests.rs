use proptest::prelude::*;

use super::*;

fn e164_of(text: &str, region: &str) -> Result<String, PhoneError> {
    Phone::parse(text, region).map(|phone| phone.as_str().to_owned())
}

#[test]
fn every_spelling_is_one_subject() {
    for text in [
        "13800138000",
        "+8613800138000",
        "+86 138 0013 8000",
        "0086 138 0013 8000",
        "008613800138000",
        "8613800138000",
        "+86 0 138 0013 8000",
        "+86 (0)138-0013-8000",
        " 138-0013-8000\r\n",
        "138.0013.8000",
        "138/0013/8000",
        "(138) 0013 8000",
        "（＋８６）１３８　００１３　８０００",
        "＋８６１３８００１３８０００",
        "＋８６－１３８－００１３－８０００",
        "+86\u{a0}138\u{202f}0013\u{2009}8000",
        "138\u{2011}0013\u{2013}8000",
        "\u{202a}+86 138 0013 8000\u{202c}",
        "138\u{200b}0013\u{feff}8000",
        "+٨٦ ١٣٨٠٠١٣٨٠٠٠",
        "۱۳۸۰۰۱۳۸۰۰۰",
        "17951 138 0013 8000",
    ] {
        assert_eq!(e164_of(text, "CN").as_deref(), Ok("+8613800138000"), "{text:?}");
    }
}

#[test]
fn a_country_code_outweighs_the_default_region() {
    for region in ["CN", "US", "JP", "AU", "RU", "KR", "DE", "GG"] {
        for text in ["+86 138 0013 8000", "0086 138 0013 8000"] {
            assert_eq!(e164_of(text, region).as_deref(), Ok("+8613800138000"), "{text:?} in {region}");
        }
    }
    assert_eq!(e164_of("13800138000", "US"), Err(PhoneError::NotANumber));
}

#[test]
fn what_is_written_differently_and_dialled_alike_is_one_subject() {
    for (texts, region, canonical) in [
        (&["011 15 2345 6789", "+54 9 11 2345 6789", "+54 11 15 2345 6789"][..], "AR", "+5491123456789"),
        (
            &[
                "55 1234 5678",
                "+52 55 1234 5678",
                "+52 1 55 1234 5678",
                "1 55 1234 5678",
                "01 55 1234 5678",
                "044 55 1234 5678",
                "+52 045 55 1234 5678",
            ],
            "MX",
            "+525512345678",
        ),
        (&["138०0138000", "१३८००१३८०००", "۱۳۸۰۰۱۳۸۰۰۰"], "CN", "+8613800138000"),
        (&["11 98765 4321", "0 11 98765 4321", "0 15 11 98765 4321"], "BR", "+5511987654321"),
        (&["312 345 6789", "+39 312 345 6789"], "IT", "+393123456789"),
        (&["06 20 123 4567", "+36 20 123 4567", "+36 06 20 123 4567"], "HU", "+36201234567"),
        (&["8 916 123 45 67", "+7 916 123 45 67", "810 7 916 123 45 67"], "RU", "+79161234567"),
        (&["03 123 456", "+961 3 123456", "+961 03 123456"], "LB", "+9613123456"),
        (&["(201) 555-0123", "1 201 555 0123", "011 1 201 555 0123"], "US", "+12015550123"),
        (&["07911 123456", "+44 (0)7911 123456"], "GB", "+447911123456"),
    ] {
        for text in texts {
            assert_eq!(e164_of(text, region).as_deref(), Ok(canonical), "{text:?} in {region}");
        }
    }
}

#[test]
fn what_takes_no_message_is_refused() {
    for (text, refused) in [
        ("", PhoneError::Missing),
        (" \u{200b}()-", PhoneError::Missing),
        ("010 1234 5678", PhoneError::NotMobile),
        ("+39 02 1234 5678", PhoneError::NotMobile),
        ("+39 03123456789", PhoneError::NotMobile),
        ("+54 11 2345 6789", PhoneError::NotMobile),
        ("+1 800 555 1234", PhoneError::NotMobile),
        ("+1 900 555 1234", PhoneError::NotMobile),
        ("+44 909 879 0000", PhoneError::NotMobile),
        ("+44 7600 123456", PhoneError::NotMobile), // a pager
        ("+883 510 000 000 000", PhoneError::NotMobile),
        ("+55 11 8765 4321", PhoneError::NotANumber), // before the ninth digit of 2016
        ("+229 90 01 12 34", PhoneError::NotANumber), // before the 01 of 2024
        ("+241 06 03 12 34", PhoneError::NotMobile),
        ("+241 6 03 12 34", PhoneError::NotMobile),
        ("110", PhoneError::NotANumber),
        ("+", PhoneError::NotANumber),
        ("+86", PhoneError::NotANumber),
        ("+999 123 456 789", PhoneError::NotANumber),
        ("+86 138 0013 800", PhoneError::NotANumber),
        ("+86 138 0013 80000", PhoneError::NotANumber),
        ("+86 +86 138 0013 8000", PhoneError::NotANumber),
        ("86+13800138000", PhoneError::NotANumber),
        ("+86 138 0013 8000 ext. 5", PhoneError::NotANumber),
        ("+86 138 0013 8000x5", PhoneError::NotANumber),
        ("+86 138 0013 8000#5", PhoneError::NotANumber),
        ("+86 138 0013 8000,,5", PhoneError::NotANumber),
        ("+8613800138000;ext=5", PhoneError::NotANumber),
        ("tel:+8613800138000", PhoneError::NotANumber),
        ("13800138000/13800138001", PhoneError::NotANumber),
        ("13800138000\n13800138001", PhoneError::NotANumber),
        ("1-201-FLOWERS", PhoneError::NotANumber),
        ("13800138⁰⁰⁰", PhoneError::NotANumber),
        ("138\u{0}00138000", PhoneError::NotANumber),
        ("<script>13800138000", PhoneError::NotANumber),
    ] {
        assert_eq!(e164_of(text, "CN"), Err(refused), "{text:?}");
    }
    let padded = format!("{}13800138000", " ".repeat(54));
    assert_eq!(e164_of(&padded, "CN"), Err(PhoneError::NotANumber), "too long to be looked at");
    assert_eq!(e164_of(&padded[1..], "CN").as_deref(), Ok("+8613800138000"));
}

#[test]
fn countries_are_those_that_were_listed() {
    let of = |text: &str, countries: &[&str]| {
        let countries: Vec<_> = countries.iter().map(|&country| country.to_owned()).collect();
        Phone::parse(text, "CN").unwrap().allowed_in(&countries).map(|phone| phone.country().unwrap())
    };
    assert_eq!(of("13800138000", &[]).as_deref(), Ok("CN"));
    assert_eq!(of("13800138000", &["SG", "CN"]).as_deref(), Ok("CN"));
    assert_eq!(of("+852 9123 4567", &["CN"]), Err(PhoneError::CountryNotAllowed));
    // One calling code, two countries.
    assert_eq!(of("+1 416 555 0123", &["US"]), Err(PhoneError::CountryNotAllowed));
    assert_eq!(of("+7 701 123 4567", &["KZ"]).as_deref(), Ok("KZ"));
}

#[test]
fn masks_hide_what_they_must() {
    for (text, masked, ledger, range) in [
        ("+8613800138000", "+86138****8000", "+861380013****", "+8613800"),
        ("+85291234567", "+852****4567", "+8529123****", "+85291"),
        ("+9613123456", "+961****456", "+961312****", "+9613"),
        ("+687518167", "+687****67", "+68751****", "+687"),
        ("+12015550123", "+120****0123", "+1201555****", "+12015"),
        ("+4915123456789", "+49151****6789", "+491512345****", "+4915123"),
    ] {
        let phone = Phone::parse(text, "CN").unwrap();
        assert_eq!(phone.masked(), masked);
        assert_eq!(phone.ledger_mask(), ledger);
        assert_eq!(phone.range(), range);
        assert_eq!(format!("{}****", phone.block()), ledger);
        assert_eq!(format!("{phone:?}"), "Phone(…)");
    }
    // A corrupted row must not panic.
    for row in ["", "+", "+86", "x", "+86138", "电"] {
        let phone = Phone::stored(row.to_owned());
        let _ = (phone.masked(), phone.ledger_mask(), phone.range().len(), phone.country());
    }
}

/// A spelling of a number: a prefix, and separators between digits of any shape.
fn spelling(national: String) -> impl Strategy<Value = String> {
    let begin = prop::sample::select(vec!["", "+86", "0086", "86", "+86 (0)", "＋86", "(+86)"]);
    let between = prop::sample::select(vec!["", "", "", " ", "-", ".", "\u{a0}", "\u{200b}", "）", "–"]);
    let shape = prop::sample::select(vec!['0', '0', '０', '٠', '۰']);
    let digits = prop::collection::vec((between, shape), national.len());
    (begin, digits).prop_map(move |(begin, digits)| {
        let mut text = begin.to_owned();
        for (digit, (between, zero)) in national.bytes().zip(digits) {
            text.push_str(between);
            text.extend(char::from_u32(u32::from(zero) + u32::from(digit - b'0')));
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_spelling_comes_to_the_same((national, text) in "1(3[0-9]|5[0-35-9]|8[0-9])[0-9]{8}"
        .prop_flat_map(|national| (Just(national.clone()), spelling(national))))
    {
        prop_assume!(text.len() <= LONGEST_TEXT);
        prop_assert_eq!(e164_of(&text, "CN"), Ok(format!("+86{national}")));
    }

    /// An accepted number is E.164, and parses to itself in every region.
    #[test]
    fn what_is_accepted_is_canonical(
        text in prop_oneof!["\\PC{0,24}", "[+＋0-9０-９ ().-]{6,20}", "\\+[1-9][0-9]{8,14}", "0[0-9]{8,14}"],
        region in prop::sample::select(vec!["CN", "US", "IT", "AR", "MX", "BR", "DE", "GA", "RU", "ID", "ZZ"]),
    ) {
        if let Ok(phone) = Phone::parse(&text, region) {
            prop_assert!(phone.digits().len() <= 15 && phone.digits().bytes().all(|b| b.is_ascii_digit()));
            for elsewhere in ["CN", "US", "MX", "GA"] {
                prop_assert_eq!(&Phone::parse(phone.as_str(), elsewhere), &Ok(phone.clone()));
            }
            prop_assert!(phone.country().is_some());
            let national = phone.number().unwrap().get_national_significant_number().len();
            let shown = phone.masked().bytes().filter(u8::is_ascii_digit).count();
            let hidden = phone.digits().len() - shown;
            prop_assert!(hidden >= 4 && (national > 8 || hidden * 2 >= national), "{}", phone.masked());
        }
    }
}

#[test]
fn numbers_that_reach_one_phone_count_as_one_and_stay_two() {
    for national in ["599123456", "569123456", "592123456", "562000000"] {
        let [theirs, israels] = ["+970", "+972"].map(|code| {
            let number = format!("{code}{national}");
            Phone::parse(&number, "CN").unwrap_or_else(|wrong| panic!("{number} {wrong}"))
        });
        assert_ne!(theirs, israels);
        assert_eq!(israels.as_str(), format!("+972{national}"));
        assert_eq!([theirs.subject(), israels.subject()], [theirs.as_str(); 2]);
        assert_eq!([israels.block(), israels.range()], [theirs.block(), theirs.range()]);
        assert!(israels.masked().starts_with("+972"), "{}", israels.masked());
        let mut all = [theirs.numbers().collect::<Vec<_>>(), israels.numbers().collect()];
        assert_eq!(all.each_ref().map(|numbers| &numbers[0]), [theirs.as_str(), israels.as_str()]);
        all.iter_mut().for_each(|numbers| numbers.sort());
        assert_eq!(all[0], all[1]);
    }
    // Israel's own, and what only looks like one.
    for alone in [
        "+972501234567",
        "+972541234567",
        "+37744123456",
        "+38344123456",
        "+97259912345",
        "+9705991234567",
        "+13015991234",
        "+8613800138000",
    ] {
        let phone = Phone::stored(alone.to_owned());
        assert_eq!((phone.subject(), phone.numbers().count()), (alone, 1));
    }
}

/// Both are mobile numbers in the tables, and all of Palestine's are under one of the beginnings.
#[test]
fn what_is_said_to_reach_one_phone_is_in_both_plans() {
    for OnePhone { codes, digits, begin } in ONE_PHONE {
        for beginning in begin {
            let national = format!("{beginning}{}", "9".repeat(digits - beginning.len()));
            for code in codes {
                assert!(Phone::parse(&format!("{code}{national}"), "CN").is_ok(), "{code}{national}");
            }
        }
    }
    for beginning in 10..100 {
        let number = format!("+970{beginning}9999999");
        assert_eq!(Phone::parse(&number, "CN").is_ok(), ["56", "59"].contains(&&number[4..6]), "{number}");
    }
}

#[test]
fn global_networks_are_no_country_and_only_taken_if_they_are_named() {
    let named = ["001".to_owned()];
    let mut taken = 0;
    for code in PHONE_NUMBER_UTIL.get_supported_global_network_calling_codes() {
        let example = PHONE_NUMBER_UTIL.get_example_number_for_non_geo_entity(code).unwrap();
        let number = example.format_as(PhoneNumberFormat::E164).into_owned();
        let Ok(phone) = Phone::parse(&number, "CN") else { continue };
        taken += 1;
        assert_eq!(phone.clone().allowed_in(&[]), Err(PhoneError::CountryNotAllowed), "{number}");
        assert_eq!(
            phone.clone().allowed_in(&["CN".to_owned()]),
            Err(PhoneError::CountryNotAllowed),
            "{number}"
        );
        assert!(phone.allowed_in(&named).is_ok(), "{number}");
    }
    assert!(taken >= 3, "+870, +881 and +882 have mobile numbers: {taken}");
    assert_eq!(
        Phone::parse("+8613800138000", "CN").unwrap().allowed_in(&named),
        Err(PhoneError::CountryNotAllowed)
    );
    // Of universal premium rate, universal personal, freephone and shared-cost numbers none is a mobile number.
    for number in ["+979 123 456 789", "+878 10 123456789012", "+800 1234 5678", "+808 1234 5678"] {
        assert!(Phone::parse(number, "CN").is_err(), "{number}");
    }
}

/// Of every country, wherever the tables know the type of a number.
#[test]
fn what_costs_more_or_reaches_no_phone_is_refused_everywhere() {
    use PhoneNumberType as Type;
    const REFUSED: [Type; 9] = [
        Type::PremiumRate,
        Type::SharedCost,
        Type::PersonalNumber,
        Type::UAN,
        Type::Pager,
        Type::VoiceMail,
        Type::VoIP,
        Type::TollFree,
        Type::FixedLine,
    ];
    let mut counts = [0; REFUSED.len()];
    for region in PHONE_NUMBER_UTIL.get_supported_regions() {
        for (kind, count) in REFUSED.into_iter().zip(&mut counts) {
            let example = PHONE_NUMBER_UTIL.get_example_number_for_type_and_region(region, kind);
            let Some(example) = example.ok().filter(|example| example.get_type() == kind) else { continue };
            let number = example.format_as(PhoneNumberFormat::E164).into_owned();
            assert_eq!(Phone::parse(&number, "CN"), Err(PhoneError::NotMobile), "{region} {kind:?} {number}");
            *count += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
