//! What an entry of `[access]` names an origin by: `asn:64496`, `country:XX`, `list:tor`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The file that tells an origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OriginSource {
    Asn,
    Country,
    List(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OriginKey {
    /// The number of an autonomous system: the network of one operator.
    Asn(u32),
    Country(CountryCode),
    /// A list by its name in `[origins]`.
    List(Arc<str>),
}

/// Two capital letters that ISO 3166-1 assigns, or `XK`, which files have for Kosovo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CountryCode([u8; 2]);

const COUNTRIES: &str = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR \
    BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES \
    ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN \
    IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG \
    MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL \
    PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF \
    TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW";

impl CountryCode {
    pub fn parse(text: &str) -> Option<Self> {
        let letters: [u8; 2] = text.as_bytes().to_ascii_uppercase().try_into().ok()?;
        COUNTRIES.split(' ').any(|known| known.as_bytes() == letters).then_some(Self(letters))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("two letters")
    }
}

/// What a list may be called.
pub fn is_list_name(name: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits)
}

const LONGEST_NAME: usize = 32;
const KINDS: [&str; 3] = ["asn:", "country:", "list:"];
/// The last number is reserved (RFC 7300), and so is 0 (RFC 7607).
const LAST_ASN: u32 = u32::MAX - 1;

impl OriginKey {
    /// Whether somebody who typed it meant an origin, not a network.
    pub fn is_meant_by(text: &str) -> bool {
        KINDS.iter().any(|kind| text.trim_start().starts_with(kind))
    }

    pub fn source(&self) -> OriginSource {
        match self {
            Self::Asn(_) => OriginSource::Asn,
            Self::Country(_) => OriginSource::Country,
            Self::List(name) => OriginSource::List(Arc::clone(name)),
        }
    }
}

impl FromStr for OriginKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let written = text.trim();
        let (kind, value) = written.split_once(':').unwrap_or_default();
        match kind {
            "asn" => value
                .bytes()
                .all(|digit| digit.is_ascii_digit())
                .then(|| value.parse().ok().filter(|number| (1..=LAST_ASN).contains(number)))
                .flatten()
                .map(Self::Asn)
                .ok_or_else(|| {
                    format!(
                        "{value:?} is no number of an autonomous system; write 1 to {LAST_ASN}: \"asn:64496\""
                    )
                }),
            "country" => CountryCode::parse(value).map(Self::Country).ok_or_else(|| {
                format!("{value:?} is no country; write the two letters of ISO 3166: \"country:DE\"")
            }),
            "list" if is_list_name(value) => Ok(Self::List(value.into())),
            "list" => {
                Err(format!("{value:?} is no name of a list; it has 1 to {LONGEST_NAME} of a-z, 0-9 and -"))
            }
            _ => Err(format!(
                "{text:?} is not an origin; write \"asn:64496\", \"country:DE\" or \"list:NAME\""
            )),
        }
    }
}

impl fmt::Display for OriginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asn(number) => write!(f, "asn:{number}"),
            Self::Country(code) => write!(f, "country:{}", code.as_str()),
            Self::List(name) => write!(f, "list:{name}"),
        }
    }
}

impl Serialize for OriginKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The setting that names the file.
impl fmt::Display for OriginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asn => f.write_str("origins.asn"),
            Self::Country => f.write_str("origins.country"),
            Self::List(name) => write!(f, "origins.lists: {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_comes_back_from_its_text() {
        for (text, canonical) in [
            ("asn:64496", "asn:64496"),
            (" asn:0064496 ", "asn:64496"),
            ("asn:4294967294", "asn:4294967294"),
            ("country:de", "country:DE"),
            ("country:XK", "country:XK"),
            ("list:tor-exits", "list:tor-exits"),
        ] {
            let key: OriginKey = text.parse().unwrap();
            assert_eq!(key.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(key));
            assert!(OriginKey::is_meant_by(text));
        }
    }

    #[test]
    fn what_is_no_origin_is_told() {
        for (text, told) in [
            ("asn:0", "is no number of an autonomous system"),
            ("asn:4294967295", "is no number"),
            ("asn:99999999999", "is no number"),
            ("asn:AS64496", "is no number"),
            ("asn:+5", "is no number"),
            ("asn:", "is no number"),
            ("country:", "is no country"),
            ("country:UK", "is no country"),
            ("country:中", "is no country"),
            ("list:", "is no name of a list"),
            ("list:Tor", "is no name of a list"),
            ("203.0.113.0/24", "is not an origin"),
            ("2001:db8::", "is not an origin"),
            ("", "is not an origin"),
        ] {
            let wrong = text.parse::<OriginKey>().unwrap_err();
            assert!(wrong.contains(told), "{text}: {wrong}");
        }
        assert!(!OriginKey::is_meant_by("2001:db8::/32") && !OriginKey::is_meant_by("203.0.113.7"));
    }

    #[test]
    fn every_country_is_two_letters_and_there_once() {
        let all: Vec<_> = COUNTRIES.split(' ').collect();
        assert!(all.is_sorted() && all.iter().all(|code| code.len() == 2));
        // 249 of ISO 3166-1, and XK.
        assert_eq!(all.len(), 250);
    }
}
