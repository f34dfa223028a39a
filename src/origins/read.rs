//! The files of origins, read whole into tables: databases in MaxMind's format, and lists of networks. Everything that a
//! file says is read before the table is used, so that a look-up meets no damaged record.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::io::{self, Read};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ipnet::IpNet;
use maxminddb::{LookupResult, MaxMindDbError, Reader, WithinOptions};
use rustc_hash::FxHasher;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::key::{CountryCode, OriginSource};
use super::table::RangeTable;
use super::unmapped;
use crate::clock::{Micros, Uptime};
use crate::files::open_regular;
use crate::unseen::is_unseen;

/// The largest database: twice the largest that is sold, with what every city has.
const MOST_DATABASE: u64 = 256 * MIB;
const MOST_LIST: u64 = 32 * MIB;
const MIB: u64 = 1024 * 1024;
/// Ranges of a database once neighbours are joined, and networks of a list.
const MOST_RANGES: usize = 5_000_000;
const MOST_LINES: usize = 1_000_000;
/// Different records of a database: the largest has a tenth.
const MOST_RECORDS: usize = 1_000_000;
/// A database of half a million networks takes a second.
const MOST_TIME: Duration = Duration::from_secs(60);
/// A tree has one leaf more than it has nodes, and IPv4 is in it four times at most: ::/96, mapped, 6to4 and Teredo.
const COPIES: usize = 4;
const LONGEST_NAME: usize = 60;
/// The widest in lists that are used: 224.0.0.0/3, which nobody has. What is wider is a slip.
const WIDEST_V4: u8 = 3;
const WIDEST_V6: u8 = 8;

pub enum OriginTable {
    Asn { numbers: RangeTable<u32>, names: FxMap<u32, Box<str>> },
    Country(RangeTable<CountryCode>),
    List(RangeTable<()>),
}

type FxMap<K, V> = HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
#[error("{} {fault}", path.display())]
pub struct OriginError {
    path: PathBuf,
    fault: OriginFault,
}

#[derive(Debug, thiserror::Error)]
enum OriginFault {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("has {bytes} bytes; at most {} MiB are read", most / MIB)]
    TooLarge { bytes: u64, most: u64 },
    #[error("is no database in MaxMind's format (.mmdb), or is damaged: {0}")]
    Database(#[from] MaxMindDbError),
    #[error("is damaged: its parts do not fit each other")]
    Malformed,
    #[error("takes longer than {} s to read, so it is no such database", MOST_TIME.as_secs())]
    TooSlow,
    #[error("has more than {MOST_RANGES} ranges")]
    TooManyRanges,
    #[error("has more than {MOST_LINES} networks")]
    TooManyLines,
    #[error("tells no {0}; name a database that does")]
    Foreign(&'static str),
    #[error("is not UTF-8; write an address or a network a line")]
    NoText,
    #[error("names no network; write an address or a network a line")]
    Empty,
    #[error("line {line}: {text:?} is no address and no network")]
    Line { line: usize, text: String },
    #[error("line {line}: {network} is wider than /{WIDEST_V4}, or /{WIDEST_V6} of IPv6")]
    TooWide { line: usize, network: IpNet },
    #[error("line {line}: {network} has bits beyond its length; write {}, or the length that is meant", network.trunc())]
    HostBits { line: usize, network: IpNet },
}

impl OriginError {
    /// Whether the same file may be read the next time.
    pub const fn may_pass(&self) -> bool {
        matches!(self.fault, OriginFault::Io(_) | OriginFault::TooSlow)
    }
}

/// Reads a file and checks all of it; with the time when it was made. It may take seconds: call it where blocking is
/// allowed.
pub fn read(source: &OriginSource, path: &Path) -> Result<(OriginTable, Micros), OriginError> {
    // A panic of the library is about the file, too.
    let read = catch_unwind(AssertUnwindSafe(|| read_file(source, path)));
    read.unwrap_or(Err(OriginFault::Malformed)).map_err(|fault| OriginError { path: path.to_owned(), fault })
}

fn read_file(source: &OriginSource, path: &Path) -> Result<(OriginTable, Micros), OriginFault> {
    let most = if matches!(source, OriginSource::List(_)) { MOST_LIST } else { MOST_DATABASE };
    let file = open_regular(path)?;
    let modified = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(OriginFault::TooLarge { bytes: path.metadata()?.len(), most });
    }
    match source {
        OriginSource::Asn => asn_table(&bytes),
        OriginSource::Country => country_table(&bytes),
        OriginSource::List(_) => {
            Ok((OriginTable::List(list_table(&bytes)?), Micros(modified.as_micros() as i64)))
        }
    }
}

fn asn_table(bytes: &[u8]) -> Result<(OriginTable, Micros), OriginFault> {
    let mut names = FxMap::default();
    let (numbers, built) = ranges(bytes, |found| {
        let Some(record) = found.decode::<AsnRecord>()? else { return Ok(None) };
        let Some(number) = record.number() else { return Ok(None) };
        if let Some(name) = record.autonomous_system_organization.or(record.as_name) {
            names.entry(number).or_insert_with(|| shown(&name));
        }
        Ok(Some(number))
    })?;
    if numbers.len() == 0 {
        return Err(OriginFault::Foreign("numbers of autonomous systems"));
    }
    Ok((OriginTable::Asn { numbers, names }, built))
}

fn country_table(bytes: &[u8]) -> Result<(OriginTable, Micros), OriginFault> {
    let (countries, built) = ranges(bytes, |found| {
        let record = found.decode::<CountryRecord>()?;
        Ok(record.and_then(|record| CountryCode::parse(record.code()?)))
    })?;
    if countries.len() == 0 {
        return Err(OriginFault::Foreign("countries"));
    }
    Ok((OriginTable::Country(countries), built))
}

/// Walks over all networks of a database. Networks without data and copies of IPv4 are counted: the library would skip any
/// number of them in one step.
fn ranges<V: Copy + PartialEq>(
    bytes: &[u8],
    mut value: impl FnMut(&LookupResult<'_, &[u8]>) -> Result<Option<V>, MaxMindDbError>,
) -> Result<(RangeTable<V>, Micros), OriginFault> {
    let begun = Uptime::begin();
    let reader = Reader::from_source(bytes)?;
    let metadata = reader.metadata();
    let most = (metadata.node_count as usize + 1) * COPIES;
    let built = metadata.build_epoch.checked_mul(1_000_000).and_then(|micros| i64::try_from(micros).ok());
    let options = WithinOptions::default().include_aliased_networks().include_networks_without_data();
    let (mut table, mut known) = (RangeTable::default(), FxMap::default());
    for (count, found) in reader.networks(options)?.enumerate() {
        if count > most {
            return Err(OriginFault::Malformed);
        }
        if count.is_multiple_of(1024) && begun.now() > MOST_TIME {
            return Err(OriginFault::TooSlow);
        }
        let found = found?;
        let Some(offset) = found.offset() else { continue };
        if known.len() > MOST_RECORDS {
            return Err(OriginFault::TooManyRanges);
        }
        let value = match known.get(&offset) {
            Some(value) => *value,
            None => {
                if begun.now() > MOST_TIME {
                    return Err(OriginFault::TooSlow);
                }
                let value = value(&found)?;
                known.insert(offset, value);
                value
            }
        };
        let network = found.network()?;
        let network = IpNet::new(network.ip(), network.prefix()).ok().filter(|network| !is_copy(*network));
        if let (Some(network), Some(value)) = (network, value) {
            table.push(network, value);
        }
        if table.len() > MOST_RANGES {
            return Err(OriginFault::TooManyRanges);
        }
    }
    Ok((table.finish(), Micros(built.unwrap_or_default())))
}

/// IPv4 once more, in IPv6. Such clients count by the IPv4 address inside.
fn is_copy(network: IpNet) -> bool {
    let IpNet::V6(network) = network else { return false };
    matches!(network.addr().segments(), [0x2002, ..] | [0x2001, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..])
}

/// A name in one line, and not longer than a line has room for.
fn shown(name: &str) -> Box<str> {
    let seen: String = name.chars().filter(|letter| !is_unseen(*letter)).take(LONGEST_NAME).collect();
    seen.trim().into()
}

/// The record of an operator in the databases of MaxMind, DB-IP and IPinfo.
#[derive(Deserialize)]
struct AsnRecord {
    autonomous_system_number: Option<RecordField>,
    autonomous_system_organization: Option<String>,
    asn: Option<RecordField>,
    as_name: Option<String>,
}

impl AsnRecord {
    fn number(&self) -> Option<u32> {
        let number = match self.autonomous_system_number.as_ref().or(self.asn.as_ref())? {
            RecordField::Number(number) => u32::try_from(*number).ok()?,
            RecordField::Text(text) => text.strip_prefix("AS").unwrap_or(text).parse().ok()?,
            RecordField::Country(_) => return None,
        };
        (number > 0).then_some(number)
    }
}

#[derive(Deserialize)]
struct CountryRecord {
    country: Option<RecordField>,
    country_code: Option<String>,
}

impl CountryRecord {
    fn code(&self) -> Option<&str> {
        let nested = match self.country.as_ref() {
            Some(RecordField::Country(code)) => code.as_deref(),
            Some(RecordField::Text(code)) => Some(&**code),
            Some(RecordField::Number(_)) | None => None,
        };
        self.country_code.as_deref().or(nested)
    }
}

/// Makers write numbers in the width that each needs, or in words, and a country as its code or as a map.
///
/// Not an untagged enum: serde would first read all that is nested there, which in a damaged file is the whole stack.
enum RecordField {
    Number(u64),
    Text(String),
    Country(Option<String>),
}

#[derive(Deserialize)]
struct CountryMap {
    iso_code: Option<String>,
}

impl<'de> Deserialize<'de> for RecordField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;

        impl<'de> Visitor<'de> for FieldVisitor {
            type Value = RecordField;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text or a country")
            }

            fn visit_u64<E>(self, number: u64) -> Result<RecordField, E> {
                Ok(RecordField::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<RecordField, E> {
                Ok(RecordField::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RecordField, A::Error> {
                let country = CountryMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RecordField::Country(country.iso_code))
            }
        }

        deserializer.deserialize_any(FieldVisitor)
    }
}

fn list_table(bytes: &[u8]) -> Result<RangeTable<()>, OriginFault> {
    let text = std::str::from_utf8(bytes).map_err(|_| OriginFault::NoText)?;
    let (mut table, mut networks) = (RangeTable::default(), 0);
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let written = line.split(['#', ';']).next().unwrap_or_default().trim();
        if written.is_empty() {
            continue;
        }
        let line = index + 1;
        let parsed = written.parse::<IpNet>().or_else(|_| written.parse::<IpAddr>().map(IpNet::from));
        let network =
            parsed.map_err(|_| OriginFault::Line { line, text: written.chars().take(64).collect() })?;
        let network = unmapped(network);
        // A line that was cut short, or a slip.
        if network != network.trunc() {
            return Err(OriginFault::HostBits { line, network });
        }
        let widest = if network.addr().is_ipv4() { WIDEST_V4 } else { WIDEST_V6 };
        if network.prefix_len() < widest {
            return Err(OriginFault::TooWide { line, network });
        }
        networks += 1;
        if networks > MOST_LINES {
            return Err(OriginFault::TooManyLines);
        }
        table.push(network, ());
    }
    if networks == 0 { Err(OriginFault::Empty) } else { Ok(table.finish()) }
}
