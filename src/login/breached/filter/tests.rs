use std::fs;

use super::*;
use crate::login::breached::{BuildOptions, build};

/// The bytes of a filter of so many words.
fn filter_of(words: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (list, out) = (folder.path().join("list"), folder.path().join("out"));
    fs::write(&list, (0..words).map(|word| format!("word {word}\n")).collect::<String>()).unwrap();
    build(&[list], &out, &BuildOptions::default(), |_| {}).unwrap();
    fs::read(out).unwrap()
}

fn read(file: &[u8]) -> Result<BreachedPasswords, FilterFault> {
    BreachedPasswords::read_from(file, file.len() as u64)
}

/// As the builder would write it: everything but the shards is right.
fn sealed(shard_bits: u32, shards: &[u8]) -> Vec<u8> {
    let mut body = blake3::Hasher::new();
    body.update(shards);
    let header = FilterHeader { shard_bits, entries: 1, bytes: (HEADER_BYTES + shards.len()) as u64 };
    [&header.encode(body)[..], shards].concat()
}

/// Any numbers, the same ones in each run.
fn any_numbers() -> impl FnMut() -> u64 {
    let mut count = 0_u64;
    move || {
        count += 1;
        key_of(&count.to_le_bytes())
    }
}

#[test]
fn the_key_is_the_beginning_of_the_sha_1_and_its_first_bits_are_the_shard() {
    // 5BAA61E4C9B93F3F0682250B6CF8331B7EE68FD8
    let key = key_of(b"password");
    assert_eq!(key, 0x5baa_61e4_c9b9_3f3f);
    assert_eq!([0, 1, 4, 8, 16].map(|bits| shard_of(key, bits)), [0, 0, 5, 0x5b, 0x5baa]);
}

#[test]
fn the_file_is_as_documented() {
    let file = filter_of(1000);
    assert_eq!(&file[..16], b"GHBREACH\x01\0\x10\0\x01\0\0\0");
    assert_eq!(file[16..24], 1000_u64.to_le_bytes());
    assert_eq!(file[24..32], (file.len() as u64).to_le_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&file[64..]).update(&file[..32]);
    assert_eq!(&file[32..64], hasher.finalize().as_bytes());
    let number = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    let (segment, first) = (number(72), number(76));
    assert!(segment.is_power_of_two() && first.is_multiple_of(segment));
    assert_eq!(file.len(), 64 + 16 + 2 * (first + 2 * segment));
}

/// Operators keep their files when Gatehouse, or the library of the filters, is replaced by another version.
#[test]
fn a_file_that_the_first_version_wrote_is_read() {
    let hex = concat!(
        "4748425245414348010010000100000003000000000000008000000000000000",
        "280eb0b53bc4c94396228799c9da86626cf07a05e445c2775869d438183942db",
        "c15c0289ec2d0a91080000000800000000000000000000000000000000000000",
        "b1d10000000000000000000000000000000000000000136400000000cafb0000",
    );
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let file: Vec<_> = (0..hex.len()).step_by(2).map(byte).collect();
    let filter = read(&file).unwrap();
    assert_eq!(filter.entries(), 3);
    assert!(["one", "two", "three"].iter().all(|word| filter.contains(word.as_bytes())));
    assert!(!["four", "five", "six", ""].iter().any(|word| filter.contains(word.as_bytes())));
}

#[test]
fn the_size_is_checked_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let file = filter_of(1000);
    let size = file.len() as u64;
    fs::write(&path, file).unwrap();
    assert_eq!(BreachedPasswords::read(&path, size).unwrap().bytes(), size);
    let refused = BreachedPasswords::read(&path, size - 1).unwrap_err().to_string();
    let told = format!(
        "{} has {size} bytes, more than login.breached_memory allows; set that to 1 (MiB) at least, or build a filter of fewer entries",
        path.display()
    );
    assert_eq!(refused, told);
    // A hole of a tebibyte.
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let refused = BreachedPasswords::read(&path, 1 << 30).unwrap_err();
    assert!(matches!(refused.fault, FilterFault::TooLarge { bytes } if bytes == 1 << 40), "{refused}");
}

#[test]
fn what_is_no_filter_says_how_to_make_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    for content in ["", "GHBREAC", "password\n123456\n", &"x".repeat(1000)] {
        fs::write(&path, content).unwrap();
        let refused = BreachedPasswords::read(&path, 1 << 20).unwrap_err().to_string();
        let told = format!("{} is no filter; make one with: gatehouse passwords build", path.display());
        assert_eq!(refused, told, "{content:?}");
    }
    let refused = BreachedPasswords::read(folder.path(), 1 << 20).unwrap_err().to_string();
    assert!(refused.contains("cannot be read: it is a directory"), "{refused}");
    let refused = BreachedPasswords::read(&folder.path().join("none"), 1 << 20).unwrap_err().to_string();
    assert!(refused.contains("none cannot be read: No such file"), "{refused}");
}

#[test]
fn another_version_is_named() {
    let mut file = filter_of(3);
    file[8] = 2;
    let refused = read(&file).unwrap_err();
    assert!(matches!(refused, FilterFault::Version { found: 2 }), "{refused}");
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let file = filter_of(300);
    for length in 0..file.len() {
        match read(&file[..length]).unwrap_err() {
            FilterFault::NoFilter if length < MAGIC.len() => {}
            FilterFault::CutShort { found, .. } if length >= MAGIC.len() => {
                assert_eq!(found, length as u64);
            }
            other => panic!("{length}: {other:?}"),
        }
    }
    let longer = [&file[..], b"\0"].concat();
    assert!(matches!(read(&longer).unwrap_err(), FilterFault::TooLong { .. }));
}

#[test]
fn every_flipped_bit_is_found() {
    let mut file = filter_of(300);
    for bit in 0..file.len() * 8 {
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&file).is_err(), "bit {bit}");
        file[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(read(&file).is_ok());
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let file = filter_of(300);
    let size = file.len() as u64;
    let grown = [&file[..], b"\0"].concat();
    assert!(matches!(BreachedPasswords::read_from(&grown[..], size).unwrap_err(), FilterFault::Changed));
    for length in HEADER_BYTES..file.len() {
        let refused = BreachedPasswords::read_from(&file[..length], size).unwrap_err();
        assert!(matches!(refused, FilterFault::Changed), "{length}: {refused}");
    }
    for size in 0..size {
        assert!(BreachedPasswords::read_from(&file[..], size).is_err(), "{size}");
    }
    // Another filter from the middle on.
    let mixed = [&file[..200], &filter_of(299)[200..]].concat();
    assert!(BreachedPasswords::read_from(&mixed[..], size).is_err());
}

#[test]
fn a_forged_file_with_a_right_checksum_is_refused_or_harmless() {
    let mut any = any_numbers();
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..4000 {
        let shard_bits = (any() % 3) as u32;
        let mut shards = Vec::new();
        for _ in 0..1 << shard_bits {
            shards.extend_from_slice(&forged_shard(&mut any));
        }
        match read(&sealed(shard_bits, &shards)) {
            Err(_) => refused += 1,
            Ok(filter) => {
                accepted += 1;
                for key in [0, 1, u64::MAX, u64::MAX >> 1] {
                    _ = filter.contains_key(key);
                }
                (0..50).for_each(|_| _ = filter.contains_key(any()));
            }
        }
    }
    assert!(accepted > 500 && refused > 500, "{accepted} {refused}");
}

/// Numbers that nearly fit, so that a part of the forged files is accepted.
fn forged_shard(any: &mut impl FnMut() -> u64) -> Vec<u8> {
    let segment = match any() % 8 {
        0 => any() as u32,
        1 => 1 << 31,
        2 => 0,
        _ => 1 << (any() % 8),
    };
    let first = match any() % 8 {
        0 => any() as u32,
        1 => u32::MAX - segment.wrapping_mul(2).wrapping_add((any() % 3) as u32),
        2 => (any() % 100) as u32,
        _ => segment.wrapping_mul((any() % 8) as u32),
    };
    let fits = u64::from(first) + 2 * u64::from(segment);
    let count = match any() % 16 {
        0 => fits.saturating_sub(1),
        1 => fits + 1,
        _ => fits,
    };
    let mut shard = Vec::new();
    shard.extend_from_slice(&any().to_le_bytes());
    shard.extend_from_slice(&segment.to_le_bytes());
    shard.extend_from_slice(&first.to_le_bytes());
    shard.resize(16 + 2 * count.min(4096) as usize, 0xa5);
    shard
}

#[test]
fn the_highest_fingerprint_that_a_descriptor_can_reach_is_there() {
    for (segment, first) in [(1_u32, 1_u32), (1, 7), (4, 4), (4, 60), (64, 640)] {
        let mut shard = 0_u64.to_le_bytes().to_vec();
        shard.extend_from_slice(&segment.to_le_bytes());
        shard.extend_from_slice(&first.to_le_bytes());
        let whole = shard.len() + 2 * (first + 2 * segment) as usize;
        shard.resize(whole, 0);
        let filter = read(&sealed(0, &shard)).unwrap();
        let mut any = any_numbers();
        (0..5000).for_each(|_| _ = filter.contains_key(any()));
        assert!(read(&sealed(0, &shard[..whole - 2])).is_err());
    }
}

#[test]
fn more_shards_than_there_may_be_are_refused() {
    let file = sealed(MOST_SHARD_BITS, &vec![0; SHARD_HEADER_BYTES << MOST_SHARD_BITS]);
    let filter = read(&file).unwrap();
    assert!(!filter.contains_key(0) && !filter.contains_key(u64::MAX), "they are empty");
    let file = sealed(MOST_SHARD_BITS + 1, &vec![0; SHARD_HEADER_BYTES << (MOST_SHARD_BITS + 1)]);
    assert!(matches!(read(&file).unwrap_err(), FilterFault::Malformed));
}
