//! The files of origins: what is read, what is refused, and that nothing hangs or is half in use.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// How they are made: tests/it/origins/fixtures.py.
const ASN: &[u8] = include_bytes!("../../tests/it/origins/asn.mmdb");
const COUNTRY: &[u8] = include_bytes!("../../tests/it/origins/country.mmdb");
const OTHERS: &[u8] = include_bytes!("../../tests/it/origins/ipinfo.mmdb");

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file and renames it, as operators do.
    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(path.with_extension("new"), bytes).unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        path
    }

    fn refused(&self, source: &OriginSource, bytes: &[u8]) -> String {
        match read(source, &self.put("file", bytes)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it is read"),
        }
    }
}

fn list(name: &str) -> OriginSource {
    OriginSource::List(name.into())
}

fn told(origins: &Origins, address: &str) -> String {
    let files = origins.in_use();
    let keys: Vec<_> = files.of_address(ip(address)).map(|key| key.to_string()).collect();
    keys.join(" ")
}

#[test]
fn an_address_has_a_number_a_country_and_lists() {
    let files = Files::new();
    let origins = Origins::default();
    assert_eq!(told(&origins, "203.0.113.7"), "");
    let list_file =
        b"# exits\n203.0.113.7\n  2001:db8:7::/48 # a block\n; other\n198.51.100.0/25 ; a note\r\n\n";
    origins.follow(&[
        (OriginSource::Asn, files.put("asn", ASN)),
        (OriginSource::Country, files.put("country", COUNTRY)),
        (list("tor"), files.put("tor", list_file)),
    ]);
    for (address, expected) in [
        ("203.0.113.7", "asn:64496 country:DE list:tor"),
        ("203.0.113.8", "asn:64496 country:DE"),
        ("198.51.100.9", "asn:64497 country:CN list:tor"),
        ("198.51.100.200", "asn:64497 country:CN"),
        ("2001:db8:7::1", "asn:64496 country:DE list:tor"),
        ("2001:db8:8::1", "asn:64498 country:CN"),
        ("192.0.2.1", ""),
        ("::ffff:203.0.113.7", ""),
    ] {
        assert_eq!(told(&origins, address), expected, "{address}");
    }
    let files = origins.in_use();
    let label = |network: &str| files.label(network.parse().unwrap());
    assert_eq!(label("203.0.113.0/24").as_deref(), Some("AS64496 Example Hosting & Söhne, DE"));
    assert_eq!(label("198.51.100.0/24").as_deref(), Some("AS64497 Carrier, CN"), "half of it is in the list");
    assert_eq!(label("2001:db8:7::/48").as_deref(), Some("AS64496 Example Hosting & Söhne, DE, list:tor"));
    assert_eq!(label("192.0.2.0/24"), None);
    let meets = |network: &str, key: &str| files.meets(network.parse().unwrap(), &key.parse().unwrap());
    assert!(meets("203.0.113.0/24", "list:tor") && meets("203.0.0.0/16", "asn:64496"));
    assert!(!meets("203.0.113.0/24", "asn:64497") && !meets("203.0.113.0/24", "list:vpn"));
    assert!(files.refused().is_empty() && !files.is_empty());
}

#[test]
fn databases_of_several_makers_are_known() {
    let files = Files::new();
    let origins = Origins::default();
    let both = files.put("both", OTHERS);
    origins.follow(&[(OriginSource::Asn, both.clone()), (OriginSource::Country, both)]);
    assert_eq!(told(&origins, "203.0.113.7"), "asn:64496 country:DE");
    assert_eq!(origins.in_use().name(&OriginKey::Asn(64496)), "AS64496 Example Hosting");
    assert_eq!(origins.in_use().name(&OriginKey::Asn(1)), "AS1");
}

#[test]
fn what_is_no_such_file_is_told() {
    let files = Files::new();
    let database = |bytes: &[u8]| files.refused(&OriginSource::Asn, bytes);
    assert!(database(b"").contains("is no database in MaxMind's format"));
    assert!(database(b"203.0.113.0/24\n").contains("is no database"));
    assert!(database(COUNTRY).contains("tells no numbers of autonomous systems"));
    assert!(files.refused(&OriginSource::Country, ASN).contains("tells no countries"));
    let text = |bytes: &[u8]| files.refused(&list("tor"), bytes);
    assert!(text(b"# nothing\n\n").contains("names no network"));
    assert!(text(b"203.0.113.0/24\n\nexample.org\n").contains("line 3: \"example.org\" is no address"));
    assert!(text(b"0.0.0.0/0\n").contains("line 1: 0.0.0.0/0 is wider"));
    assert!(text(b"::ffff:0:0/96\n").contains("line 1: 0.0.0.0/0 is wider"));
    assert!(text(b"::/7\n").contains("is wider"));
    for cut in ["203.0.113.7/3", "2a02:c207::1/12"] {
        assert!(text(cut.as_bytes()).contains("has bits beyond its length; write"), "{cut}");
    }
    assert!(text(b"\xff\n").contains("is not UTF-8"));
    assert!(text(ASN).contains("is not UTF-8") || text(ASN).contains("line 1"));
    let many: String =
        (0..=1_000_000_u32).map(|bits| format!("{}\n", std::net::Ipv4Addr::from(bits))).collect();
    assert!(text(many.as_bytes()).contains("has more than 1000000 networks"));
    assert!(text(&vec![b'#'; 32 * 1024 * 1024 + 1]).contains("at most 32 MiB"));
    let missing = read(&list("tor"), Path::new("/nowhere/tor")).err().unwrap().to_string();
    assert!(missing.contains("/nowhere/tor cannot be read"), "{missing}");
}

#[test]
fn a_file_that_was_cut_short_is_refused_or_whole() {
    let files = Files::new();
    for length in (0..ASN.len()).rev().step_by(7).chain(0..64) {
        let told = files.refused(&OriginSource::Asn, &ASN[..length]);
        assert!(told.contains("is no database") || told.contains("tells no"), "{length}: {told}");
    }
}

/// A database has no checksum: a flipped bit is refused, or says something else of some addresses. It never hangs or
/// panics, and what is read can be looked up.
#[test]
fn a_flipped_bit_does_no_more_than_tell_something_else() {
    let files = Files::new();
    for at in 0..ASN.len() {
        for bit in [0, 3, 7] {
            let mut flipped = ASN.to_vec();
            flipped[at] ^= 1 << bit;
            let path = files.put("file", &flipped);
            if let Ok((OriginTable::Asn { numbers, .. }, _)) = read(&OriginSource::Asn, &path) {
                numbers.get(ip("203.0.113.7"));
                numbers.get(ip("2001:db8::1"));
            }
        }
    }
}

/// A tree of 24-bit nodes, each with these two records, in front of the rest of a real database: with as many nodes, so
/// that its metadata fit.
fn with_tree(node: impl Fn(u32, u32) -> [u32; 2]) -> Vec<u8> {
    let count = maxminddb::Reader::from_source(ASN).unwrap().metadata().node_count;
    let mut bytes = ASN.to_vec();
    for index in 0..count {
        for (side, record) in node(index, count).into_iter().enumerate() {
            let at = index as usize * 6 + side * 3;
            bytes[at..at + 3].copy_from_slice(&record.to_be_bytes()[1..]);
        }
    }
    bytes
}

#[test]
fn a_tree_without_an_end_is_refused_at_once() {
    let files = Files::new();
    let record_size = maxminddb::Reader::from_source(ASN).unwrap().metadata().record_size;
    assert_eq!(record_size, 24, "as the trees here");
    for tree in [
        // A node that is its own child.
        with_tree(|index, _| [index, index]),
        with_tree(|index, count| [index, count]),
        // Two that are each other's.
        with_tree(|index, _| [index ^ 1, index ^ 1]),
        // Each level once, with both sides the same: 2^100 networks without data, and with data.
        with_tree(|index, count| if index < 100 { [index + 1; 2] } else { [count; 2] }),
        with_tree(|index, count| if index < 100 { [index + 1; 2] } else { [count + 16; 2] }),
        // 2^96 copies of IPv4, which the library skips one by one unless it is asked for them.
        with_tree(|index, count| if index < 96 { [index + 1; 2] } else { [count; 2] }),
    ] {
        let told = files.refused(&OriginSource::Asn, &tree);
        assert!(told.contains("is damaged") || told.contains("tells no"), "{told}");
    }
}

#[test]
fn a_bad_file_changes_nothing_and_is_told() {
    let (files, origins) = (Files::new(), Origins::default());
    let path = files.0.path().join("asn");
    let wanted = [(OriginSource::Asn, path.clone())];
    origins.follow(&wanted);
    assert!(origins.in_use().refused()[0].starts_with("origins.asn: "), "{:?}", origins.in_use().refused());
    assert!(origins.in_use().is_empty() && !origins.in_use().knows(&OriginKey::Asn(64496)));
    files.put("asn", ASN);
    origins.follow(&wanted);
    assert_eq!(origins.in_use().refused(), Vec::<String>::new());
    assert!(origins.in_use().knows(&OriginKey::Asn(64496)));
    for bad in [&ASN[..ASN.len() / 2], b"", COUNTRY] {
        files.put("asn", bad);
        origins.follow(&wanted);
        assert_eq!((origins.in_use().refused().len(), &*told(&origins, "203.0.113.7")), (1, "asn:64496"));
    }
    std::fs::remove_file(&path).unwrap();
    origins.follow(&wanted);
    assert_eq!((origins.in_use().refused().len(), &*told(&origins, "203.0.113.7")), (1, "asn:64496"));
    files.put("asn", ASN);
    origins.follow(&wanted);
    assert!(origins.in_use().refused().is_empty());
    origins.follow(&[]);
    assert_eq!(told(&origins, "203.0.113.7"), "", "it is named no more");
}

#[test]
fn a_file_that_could_not_be_opened_is_tried_again() {
    let (files, origins) = (Files::new(), Origins::default());
    let path = files.0.path().join("tor");
    // It is there, and cannot be read, as with too many open files.
    let wanted = [(list("tor"), path.clone())];
    std::fs::create_dir(&path).unwrap();
    origins.follow(&wanted);
    assert!(
        origins.in_use().refused()[0].contains("it must be a regular file"),
        "{:?}",
        origins.in_use().refused()
    );
    let before = origins.in_use();
    origins.follow(&wanted);
    let tried = |origins: &OriginFiles| Arc::as_ptr(origins.file(&wanted[0].0).unwrap());
    assert_ne!(tried(&before), tried(&origins.in_use()), "it was not read again");
}

#[test]
fn a_file_is_old_after_45_days() {
    let (files, origins) = (Files::new(), Origins::default());
    origins.follow(&[
        (OriginSource::Asn, files.put("asn", ASN)),
        (list("tor"), files.put("tor", b"203.0.113.7\n")),
    ]);
    // The database was made then; the list was changed just now.
    let built = Micros::from_seconds(1_772_366_400);
    let days = |count: u64| Duration::from_secs(count * 24 * 60 * 60);
    let old = |now| origins.in_use().old(now);
    assert_eq!(old(built.plus(days(45) - Duration::from_secs(1))), Vec::<String>::new());
    assert_eq!(old(built.plus(days(45))), ["origins.asn"]);
    assert_eq!(old(built.plus(days(40_000))), ["origins.asn", "origins.lists: tor"]);
}

#[test]
fn look_ups_go_on_while_files_are_swapped() {
    let (files, origins) = (Files::new(), Origins::default());
    let wanted =
        [(OriginSource::Asn, files.put("asn", ASN)), (list("tor"), files.put("tor", b"203.0.113.7\n"))];
    origins.follow(&wanted);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let told = told(&origins, "203.0.113.7");
                    assert!(told.starts_with("asn:64496"), "{told}");
                }
            });
        }
        for round in 0..40_u8 {
            // A file that is cut short, and a list of another length.
            files.put("asn", if round % 3 == 0 { &ASN[..ASN.len() - 9] } else { ASN });
            files.put("tor", "203.0.113.9\n".repeat(1 + usize::from(round)).as_bytes());
            origins.follow(&wanted);
        }
        done.store(true, Ordering::Relaxed);
    });
    files.put("asn", ASN);
    origins.follow(&wanted);
    assert!(origins.in_use().refused().is_empty());
}
