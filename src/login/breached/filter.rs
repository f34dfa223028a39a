//! The filter of lost passwords: the format of its file, reading, and membership.
//!
//! A file, whose numbers are little endian:
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 8 | `GHBREACH` |
//! | 8 | 2 | the version of the format, 1 |
//! | 10 | 2 | the bits of a fingerprint, 16 |
//! | 12 | 4 | the number of shards, a power of two up to 65,536 |
//! | 16 | 8 | the number of entries |
//! | 24 | 8 | the bytes of the whole file |
//! | 32 | 32 | BLAKE3 of everything that follows, and then of the 32 bytes before |
//! | 64 | | the shards, one after another |
//!
//! An entry's key is the first 64 bits of the password's SHA-1, and the first bits of the key are the number of its shard.
//! A shard is one binary fuse filter:
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 8 | the seed of its hash |
//! | 8 | 4 | *s*, the fingerprints of a segment, a power of two; 0 if the shard has no entries |
//! | 12 | 4 | *f*, the fingerprints of all segments that a key may begin in, a multiple of *s* |
//! | 16 | 2 (*f* + 2 *s*) | the fingerprints |
//!
//! Where a shard begins follows from the shards before it, so no two can overlap.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};
use xorf::{BinaryFuse16, Descriptor, Filter};

use crate::files::open_regular;

pub(super) const MAGIC: [u8; 8] = *b"GHBREACH";
const VERSION: u16 = 1;
const FINGERPRINT_BITS: u16 = 16;
const FINGERPRINT_BYTES: u64 = 2;
const FIELDS_BYTES: usize = 32;
pub(super) const HEADER_BYTES: usize = FIELDS_BYTES + blake3::OUT_LEN;
const SHARD_HEADER_BYTES: usize = 16;
/// The most bits of a shard's number: with two million entries a shard, a hundred times what is known to be lost.
pub(super) const MOST_SHARD_BITS: u32 = 16;
/// How much is read and hashed at once. BLAKE3 is at its fastest from 16 KiB.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
const MIB: u64 = 1024 * 1024;

/// A set of lost passwords in memory. It has each of them, and takes one in 65,536 others for one of them.
pub struct BreachedPasswords {
    /// The filters; None for a shard without entries.
    shards: Vec<Option<BinaryFuse16>>,
    shard_bits: u32,
    entries: u64,
    bytes: u64,
}

/// Why a file is no filter that could be used.
#[derive(Debug, thiserror::Error)]
#[error("{} {fault}", path.display())]
pub struct FilterError {
    path: PathBuf,
    fault: FilterFault,
}

impl FilterError {
    /// Whether the same file may be read the next time.
    pub const fn may_pass(&self) -> bool {
        matches!(self.fault, FilterFault::Io(_))
    }
}

#[derive(Debug, thiserror::Error)]
enum FilterFault {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error(
        "has {bytes} bytes, more than login.breached_memory allows; set that to {} (MiB) at least, or build a filter of fewer entries",
        bytes.div_ceil(MIB)
    )]
    TooLarge { bytes: u64 },
    #[error("is no filter; make one with: gatehouse passwords build")]
    NoFilter,
    #[error(
        "is a filter of format {found}, and this version of Gatehouse reads format {VERSION} only; make another with: gatehouse passwords build"
    )]
    Version { found: u16 },
    #[error("is cut short: it has {found} bytes of {whole}; copy or build it anew")]
    CutShort { found: u64, whole: u64 },
    #[error("is longer than it should be: it has {found} bytes instead of {whole}; copy or build it anew")]
    TooLong { found: u64, whole: u64 },
    #[error("changed while it was read; write another file beside it, and rename that")]
    Changed,
    #[error("is damaged: its parts do not fit each other; copy or build it anew")]
    Malformed,
    #[error("is damaged: its checksum is that of something else; copy or build it anew")]
    Checksum,
}

impl BreachedPasswords {
    /// Reads the whole file, up to `most_bytes`, into as much memory. Takes about a second a GiB, and blocks.
    ///
    /// # Errors
    /// If there is no such file, or it is too large, or anything but a whole filter of this format.
    pub fn read(path: &Path, most_bytes: u64) -> Result<Self, FilterError> {
        Self::read_file(path, most_bytes).map_err(|fault| FilterError { path: path.to_owned(), fault })
    }

    fn read_file(path: &Path, most_bytes: u64) -> Result<Self, FilterFault> {
        let file = open_regular(path)?;
        let bytes = file.metadata()?.len();
        if bytes > most_bytes {
            return Err(FilterFault::TooLarge { bytes });
        }
        Self::read_from(file, bytes)
    }

    fn read_from(mut input: impl Read, bytes: u64) -> Result<Self, FilterFault> {
        let (header, checksum) = FilterHeader::read(&mut input, bytes)?;
        let mut body = FilterBody::new(input, bytes - HEADER_BYTES as u64);
        let shards = (0..1_u32 << header.shard_bits).map(|_| body.shard()).collect::<Result<_, _>>()?;
        if body.finish(&header)? != checksum {
            return Err(FilterFault::Checksum);
        }
        Ok(Self { shards, shard_bits: header.shard_bits, entries: header.entries, bytes })
    }

    /// Whether the password is a lost one. Takes less than a microsecond for a short one.
    pub fn contains(&self, password: &[u8]) -> bool {
        self.contains_key(key_of(password))
    }

    fn contains_key(&self, key: u64) -> bool {
        let shard = self.shards.get(shard_of(key, self.shard_bits)).and_then(Option::as_ref);
        shard.is_some_and(|shard| shard.contains(&key))
    }

    /// The number of passwords that it was built of.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// The size of the file, and what the filter takes of memory, but for some bytes a shard.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for BreachedPasswords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("BreachedPasswords");
        shown.field("entries", &self.entries).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The key of a password.
pub(super) fn key_of(password: &[u8]) -> u64 {
    let digest = Sha1::digest(password);
    u64::from_be_bytes(*digest.first_chunk().expect("a SHA-1 has 20 bytes"))
}

/// The shard of a key, when so many bits number the shards.
pub(super) fn shard_of(key: u64, shard_bits: u32) -> usize {
    key.checked_shr(u64::BITS - shard_bits).unwrap_or(0) as usize
}

/// The fields before the checksum that are not the same in every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilterHeader {
    pub shard_bits: u32,
    pub entries: u64,
    /// The size of the whole file.
    pub bytes: u64,
}

impl FilterHeader {
    /// The first bytes of the file. `body` has hashed everything after them.
    pub fn encode(&self, body: blake3::Hasher) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let (fields, checksum) = header.split_at_mut(FIELDS_BYTES);
        fields.copy_from_slice(&self.fields());
        checksum.copy_from_slice(self.checksum(body).as_bytes());
        header
    }

    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut fields = [0; FIELDS_BYTES];
        fields[..8].copy_from_slice(&MAGIC);
        fields[8..10].copy_from_slice(&VERSION.to_le_bytes());
        fields[10..12].copy_from_slice(&FINGERPRINT_BITS.to_le_bytes());
        fields[12..16].copy_from_slice(&(1_u32 << self.shard_bits).to_le_bytes());
        fields[16..24].copy_from_slice(&self.entries.to_le_bytes());
        fields[24..].copy_from_slice(&self.bytes.to_le_bytes());
        fields
    }

    fn checksum(&self, mut body: blake3::Hasher) -> blake3::Hash {
        body.update(&self.fields()).finalize()
    }

    /// Returns the header of a file of so many bytes, and the checksum that the file has.
    fn read(input: &mut impl Read, bytes: u64) -> Result<(Self, blake3::Hash), FilterFault> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        input.take(HEADER_BYTES as u64).read_to_end(&mut header)?;
        if !header.starts_with(&MAGIC) {
            return Err(FilterFault::NoFilter);
        }
        match <[u8; HEADER_BYTES]>::try_from(header) {
            Ok(header) => Self::parse(&header, bytes),
            Err(part) => Err(FilterFault::CutShort { found: part.len() as u64, whole: HEADER_BYTES as u64 }),
        }
    }

    fn parse(header: &[u8; HEADER_BYTES], found: u64) -> Result<(Self, blake3::Hash), FilterFault> {
        let mut rest = &header[MAGIC.len()..];
        let version = u16::from_le_bytes(next(&mut rest));
        if version != VERSION {
            return Err(FilterFault::Version { found: version });
        }
        let fingerprint_bits = u16::from_le_bytes(next(&mut rest));
        let shards = u32::from_le_bytes(next(&mut rest));
        let entries = u64::from_le_bytes(next(&mut rest));
        let whole = u64::from_le_bytes(next(&mut rest));
        if found < whole {
            return Err(FilterFault::CutShort { found, whole });
        }
        if found > whole {
            return Err(FilterFault::TooLong { found, whole });
        }
        // It may be shorter than its header if it grew after its size was read.
        let fits = found >= HEADER_BYTES as u64
            && fingerprint_bits == FINGERPRINT_BITS
            && shards.is_power_of_two()
            && shards <= 1 << MOST_SHARD_BITS;
        if !fits {
            return Err(FilterFault::Malformed);
        }
        let checksum = blake3::Hash::from_bytes(next(&mut rest));
        Ok((Self { shard_bits: shards.trailing_zeros(), entries, bytes: whole }, checksum))
    }
}

/// Splits a field off.
fn next<const BYTES: usize>(rest: &mut &[u8]) -> [u8; BYTES] {
    let (field, after) = rest.split_first_chunk().expect("a header is as long as its fields");
    *rest = after;
    *field
}

/// What is before a shard's fingerprints. A shard without entries has no filter.
pub(super) fn encode_shard(filter: Option<&BinaryFuse16>) -> [u8; SHARD_HEADER_BYTES] {
    let mut header = [0; SHARD_HEADER_BYTES];
    if let Some(BinaryFuse16 { descriptor, .. }) = filter {
        header[..8].copy_from_slice(&descriptor.seed.to_le_bytes());
        header[8..12].copy_from_slice(&descriptor.segment_length.to_le_bytes());
        header[12..].copy_from_slice(&descriptor.segment_count_length.to_le_bytes());
    }
    header
}

/// Returns the descriptor and the number of its fingerprints; no descriptor if the shard has no entries.
///
/// A look-up reads three fingerprints: one below *f*, and one in each of the two segments after that one's. With a
/// descriptor from here, all are there, and no sum of theirs overflows.
fn parse_shard(header: &[u8; SHARD_HEADER_BYTES]) -> Result<Option<(Descriptor, u32)>, FilterFault> {
    let mut rest = &header[..];
    let seed = u64::from_le_bytes(next(&mut rest));
    let segment_length = u32::from_le_bytes(next(&mut rest));
    let segment_count_length = u32::from_le_bytes(next(&mut rest));
    if segment_length == 0 && segment_count_length == 0 {
        return Ok(None);
    }
    let fits = segment_length.is_power_of_two()
        && segment_count_length > 0
        && segment_count_length.is_multiple_of(segment_length);
    let fingerprints = segment_length.checked_mul(2).and_then(|both| both.checked_add(segment_count_length));
    let Some(fingerprints) = fingerprints.filter(|_| fits) else {
        return Err(FilterFault::Malformed);
    };
    let segment_length_mask = segment_length - 1;
    Ok(Some((Descriptor { seed, segment_length, segment_length_mask, segment_count_length }, fingerprints)))
}

/// The file after its header, while it is read.
struct FilterBody<R> {
    input: R,
    /// The bytes that are left of it.
    left: u64,
    hasher: blake3::Hasher,
    chunk: Vec<u8>,
}

impl<R: Read> FilterBody<R> {
    fn new(input: R, left: u64) -> Self {
        Self { input, left, hasher: blake3::Hasher::new(), chunk: vec![0; CHUNK_BYTES] }
    }

    fn shard(&mut self) -> Result<Option<BinaryFuse16>, FilterFault> {
        let header = self.next_bytes(SHARD_HEADER_BYTES)?.try_into().expect("as many as were asked for");
        let Some((descriptor, count)) = parse_shard(&header)? else { return Ok(None) };
        Ok(Some(BinaryFuse16 { descriptor, fingerprints: self.fingerprints(count)? }))
    }

    fn fingerprints(&mut self, count: u32) -> Result<Box<[u16]>, FilterFault> {
        let mut bytes = u64::from(count) * FINGERPRINT_BYTES;
        // No more is allocated than the file has.
        if bytes > self.left {
            return Err(FilterFault::Malformed);
        }
        let mut fingerprints = Vec::with_capacity(count as usize);
        while bytes > 0 {
            let chunk = self.next_bytes(bytes.min(CHUNK_BYTES as u64) as usize)?;
            let (pairs, _) = chunk.as_chunks();
            fingerprints.extend(pairs.iter().map(|pair| u16::from_le_bytes(*pair)));
            bytes -= chunk.len() as u64;
        }
        Ok(fingerprints.into_boxed_slice())
    }

    /// Reads up to a chunk.
    fn next_bytes(&mut self, count: usize) -> Result<&[u8], FilterFault> {
        self.left = self.left.checked_sub(count as u64).ok_or(FilterFault::Malformed)?;
        let bytes = &mut self.chunk[..count];
        self.input.read_exact(bytes).map_err(|reason| match reason.kind() {
            ErrorKind::UnexpectedEof => FilterFault::Changed,
            _ => FilterFault::Io(reason),
        })?;
        self.hasher.update(bytes);
        Ok(bytes)
    }

    /// The checksum that the file should have.
    fn finish(mut self, header: &FilterHeader) -> Result<blake3::Hash, FilterFault> {
        if self.left > 0 {
            return Err(FilterFault::Malformed);
        }
        if self.input.read(&mut self.chunk[..1])? > 0 {
            return Err(FilterFault::Changed);
        }
        Ok(header.checksum(self.hasher))
    }
}

#[cfg(test)]
mod tests;
