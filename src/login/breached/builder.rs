//! Builds the filter of lost passwords from lists of any size, in bounded memory.
//!
//! Every line becomes a key of 64 bits, which is spooled to the disk ([`spool`]). Then the keys are sorted part by part, and
//! shard by shard they become the filter, in a draft that replaces the file at the end ([`draft`]).

mod draft;
mod lines;
mod spool;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use xorf::BinaryFuse16;

use self::draft::FilterDraft;
use self::lines::{InputLine, LineReader};
use self::spool::{PARTS, Spool};
use super::filter::{
    CHUNK_BYTES, FilterHeader, HEADER_BYTES, MAGIC, MOST_SHARD_BITS, encode_shard, shard_of,
};

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";
const INPUT_BUFFER: usize = 1 << 20;
/// How many lines are read between two reports: about a third of a second.
const LINES_A_REPORT: u64 = 1_000_000;
/// How many parts are sorted between two reports.
const PARTS_A_REPORT: usize = 16;
/// The entries of a shard, on average. Building one takes 26 bytes of memory an entry; with fewer than a million the
/// filter takes more space.
const ENTRIES_A_SHARD: u64 = 1 << 21;
/// The entries of a shard that memory has to bear. If they are hashes, none has half as many.
const MOST_ENTRIES_OF_SHARD: usize = 1 << 23;
/// How often a shard is tried, each time with a thousand seeds. The first of them is nearly always enough.
const TRIES: u64 = 4;

/// What is taken of the inputs.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildOptions {
    /// Lines with a lower count are left out; lines without a count never are.
    pub at_least: u64,
}

/// How far the build is. Reported a few times a second at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildProgress {
    /// So much of all inputs is read.
    Reading { lines: u64, bytes: u64 },
    /// So many parts of the keys are sorted.
    Sorting { part: usize, of: usize },
    /// So many shards are built.
    Building { shard: usize, of: usize },
}

/// What was read, and what became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildSummary {
    /// Every line of every input.
    pub lines: u64,
    /// The bytes of all inputs.
    pub bytes_read: u64,
    /// The lines that were taken as words, because they are no SHA-1. Nearly all or none, unless inputs were mixed.
    pub words: u64,
    /// The lines below the count that was asked for.
    pub left_out: u64,
    /// The lines with the count 0, by which answers of Have I Been Pwned are padded.
    pub padding: u64,
    /// The lines without anything.
    pub empty: u64,
    /// The lines of more than 1024 bytes.
    pub too_long: u64,
    /// The distinct passwords of the filter.
    pub entries: u64,
    /// The bytes of the filter.
    pub bytes: u64,
}

impl BuildSummary {
    /// The lines that are nothing to take: padding, empty, or too long.
    pub const fn skipped(&self) -> u64 {
        self.padding + self.empty + self.too_long
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{} cannot be read: {reason}", path.display())]
    Input { path: PathBuf, reason: io::Error },
    #[error("{} cannot be written: {reason}", path.display())]
    Output { path: PathBuf, reason: io::Error },
    #[error("{} is no regular file; name one, or one that does not exist yet", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is there, and is no list that this command has built; name OUT last, as another file", path.display())]
    NoFilter { path: PathBuf },
    #[error("{} cannot keep the keys until they are sorted, 8 bytes a line: {reason}", folder.display())]
    Spool { folder: PathBuf, reason: io::Error },
    #[error(
        "no entry is left of {} lines, {} of which have a lower count than was asked for; name lists of SHA1, SHA1:COUNT or words",
        summary.lines, summary.left_out
    )]
    Empty { summary: BuildSummary },
    #[error(
        "too many of the hashes begin with the same digits: they are no SHA-1; name lists of SHA1, SHA1:COUNT or words"
    )]
    Uneven,
    #[error("no filter can be built of exactly these entries, which hardly ever happens; add an entry")]
    Impossible,
}

/// Builds the filter `out` of the inputs, of which `-` is standard input. Blocks, for minutes if there are many.
///
/// A line is a SHA-1 in hexadecimal, alone or with a colon and a count, or otherwise a password itself, of any bytes. The
/// same set of passwords makes the same file, in whatever order and however often it has them.
///
/// Takes about 150 MB of memory for a thousand million entries, and 8 bytes a line of disk beside `out`. `out` is replaced
/// when the new filter is whole, and stays as it is on an error. A process that is killed while it writes may leave a file
/// `.out.new-NUMBER`.
///
/// # Errors
/// If something cannot be read or written, or nothing is left to build of.
pub fn build(
    inputs: &[PathBuf],
    out: &Path,
    options: &BuildOptions,
    progress: impl FnMut(BuildProgress),
) -> Result<BuildSummary, BuildError> {
    build_in_shards(inputs, out, options, ENTRIES_A_SHARD, progress)
}

fn build_in_shards(
    inputs: &[PathBuf],
    out: &Path,
    options: &BuildOptions,
    entries_a_shard: u64,
    mut progress: impl FnMut(BuildProgress),
) -> Result<BuildSummary, BuildError> {
    for input in inputs {
        check_input(input)?;
    }
    let target = target_of(out)?;
    let spool = Spool::beside(&target).map_err(|reason| spool_error(&target, reason))?;
    let mut build = Build { target, spool, summary: BuildSummary::default(), progress: &mut progress };
    for input in inputs {
        build.read(input, options)?;
    }
    build.sort()?;
    build.write(shard_bits(build.summary.entries, entries_a_shard))?;
    Ok(build.summary)
}

/// So that a name that is misspelt is told at once. A pipe is opened only once, to be read.
fn check_input(input: &Path) -> Result<(), BuildError> {
    if input.as_os_str() == STANDARD_INPUT {
        return Ok(());
    }
    let checked = match fs::metadata(input) {
        Ok(found) if found.is_file() => File::open(input).map(drop),
        other => other.map(drop),
    };
    checked.map_err(|reason| input_error(input, reason))
}

/// The file itself, if a link leads to it.
fn target_of(out: &Path) -> Result<PathBuf, BuildError> {
    let failed = |reason| BuildError::Output { path: out.to_owned(), reason };
    match fs::canonicalize(out) {
        Ok(target) if target.is_file() => match is_filter(&target).map_err(failed)? {
            true => Ok(target),
            false => Err(BuildError::NoFilter { path: out.to_owned() }),
        },
        Ok(_) => Err(BuildError::NotAFile { path: out.to_owned() }),
        Err(reason) if reason.kind() == ErrorKind::NotFound && !out.is_symlink() => {
            let name = out.file_name().ok_or_else(|| BuildError::NotAFile { path: out.to_owned() })?;
            Ok(fs::canonicalize(draft::folder_of(out)).map_err(failed)?.join(name))
        }
        Err(reason) => Err(failed(reason)),
    }
}

/// Whether a file may be replaced: it is empty, or was built by this command.
fn is_filter(path: &Path) -> io::Result<bool> {
    let mut begins = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begins)?;
    Ok(begins.is_empty() || begins == MAGIC)
}

fn input_error(path: &Path, reason: io::Error) -> BuildError {
    BuildError::Input { path: path.to_owned(), reason }
}

fn spool_error(target: &Path, reason: io::Error) -> BuildError {
    BuildError::Spool { folder: draft::folder_of(target).to_owned(), reason }
}

struct Build<'p> {
    target: PathBuf,
    spool: Spool,
    summary: BuildSummary,
    progress: &'p mut dyn FnMut(BuildProgress),
}

impl Build<'_> {
    fn read(&mut self, input: &Path, options: &BuildOptions) -> Result<(), BuildError> {
        if input.as_os_str() == STANDARD_INPUT {
            return self.read_lines(BufReader::with_capacity(INPUT_BUFFER, io::stdin()), input, options);
        }
        let file = File::open(input).map_err(|reason| input_error(input, reason))?;
        self.read_lines(BufReader::with_capacity(INPUT_BUFFER, file), input, options)
    }

    fn read_lines(
        &mut self,
        input: impl BufRead,
        path: &Path,
        options: &BuildOptions,
    ) -> Result<(), BuildError> {
        let mut lines = LineReader::new(input);
        while let Some(line) = lines.next_line().map_err(|reason| input_error(path, reason))? {
            if let Some(key) = self.summary.take(line, options) {
                self.spool.push(key).map_err(|reason| spool_error(&self.target, reason))?;
            }
            self.summary.bytes_read += lines.last_bytes();
            if self.summary.lines.is_multiple_of(LINES_A_REPORT) {
                self.report_reading();
            }
        }
        self.report_reading();
        Ok(())
    }

    fn report_reading(&mut self) {
        let BuildSummary { lines, bytes_read: bytes, .. } = self.summary;
        (self.progress)(BuildProgress::Reading { lines, bytes });
    }

    fn sort(&mut self) -> Result<(), BuildError> {
        for part in 0..PARTS {
            let entries = self.spool.sort(part).map_err(|reason| spool_error(&self.target, reason))?;
            self.summary.entries += entries.ok_or(BuildError::Uneven)? as u64;
            if (part + 1).is_multiple_of(PARTS_A_REPORT) {
                (self.progress)(BuildProgress::Sorting { part: part + 1, of: PARTS });
            }
        }
        match self.summary.entries {
            0 => Err(BuildError::Empty { summary: self.summary }),
            _ => Ok(()),
        }
    }

    fn write(&mut self, shard_bits: u32) -> Result<(), BuildError> {
        let target = self.target.clone();
        let failed = |reason| BuildError::Output { path: target.clone(), reason };
        let mut writer = self
            .spool
            .number()
            .and_then(|number| FilterDraft::beside(&target, number))
            .and_then(FilterWriter::new)
            .map_err(failed)?;
        let shards = 1 << shard_bits;
        // Neighbouring parts make one shard, or one part makes several.
        let runs = shards.min(PARTS);
        for run in 0..runs {
            let parts = PARTS / runs;
            let keys = self.spool.sorted(run * parts..(run + 1) * parts);
            let keys = keys.map_err(|reason| spool_error(&target, reason))?;
            let mut rest = &keys[..];
            for shard in run * shards / runs..(run + 1) * shards / runs {
                let end = rest.partition_point(|key| shard_of(*key, shard_bits) <= shard);
                let (of_shard, after) = rest.split_at(end);
                rest = after;
                writer.shard(filter_of(of_shard)?.as_ref()).map_err(failed)?;
                (self.progress)(BuildProgress::Building { shard: shard + 1, of: shards });
            }
        }
        self.summary.bytes = writer.finish(shard_bits, self.summary.entries).map_err(failed)?;
        Ok(())
    }
}

impl BuildSummary {
    /// Counts the line, and returns the key that it adds.
    fn take(&mut self, line: InputLine, options: &BuildOptions) -> Option<u64> {
        self.lines += 1;
        let counted = match line {
            InputLine::Hash { key, count: None } => return Some(key),
            InputLine::Hash { count: Some(0), .. } => &mut self.padding,
            InputLine::Hash { key, count: Some(count) } if count >= options.at_least => return Some(key),
            InputLine::Hash { .. } => &mut self.left_out,
            InputLine::Word { key } => {
                self.words += 1;
                return Some(key);
            }
            InputLine::Empty => &mut self.empty,
            InputLine::TooLong => &mut self.too_long,
        };
        *counted += 1;
        None
    }
}

/// How many bits number the shards of so many entries.
fn shard_bits(entries: u64, a_shard: u64) -> u32 {
    entries.div_ceil(a_shard).next_power_of_two().trailing_zeros().min(MOST_SHARD_BITS)
}

/// The filter of keys that are distinct; None if there are none.
fn filter_of(keys: &[u64]) -> Result<Option<BinaryFuse16>, BuildError> {
    if keys.is_empty() {
        return Ok(None);
    }
    if keys.len() > MOST_ENTRIES_OF_SHARD {
        return Err(BuildError::Uneven);
    }
    let filter = (0..TRIES).find_map(|shift| shifted_filter(keys, shift));
    filter.map(Some).ok_or(BuildError::Impossible)
}

/// The library tries the same thousand seeds each time, and hashes the sum of key and seed. So keys that are all greater
/// by some number are the same keys with other seeds.
fn shifted_filter(keys: &[u64], shift: u64) -> Option<BinaryFuse16> {
    let shifted: Vec<_> = keys.iter().map(|key| key.wrapping_add(shift)).collect();
    let mut filter = BinaryFuse16::try_from(&shifted).ok()?;
    filter.descriptor.seed = filter.descriptor.seed.wrapping_add(shift);
    Some(filter)
}

/// Writes shards into a draft, and at the end what is before them.
struct FilterWriter {
    draft: FilterDraft,
    hasher: blake3::Hasher,
    bytes: u64,
    chunk: Vec<u8>,
}

impl FilterWriter {
    fn new(mut draft: FilterDraft) -> io::Result<Self> {
        draft.write_all(&[0; HEADER_BYTES])?;
        let chunk = Vec::with_capacity(CHUNK_BYTES);
        Ok(Self { draft, hasher: blake3::Hasher::new(), bytes: HEADER_BYTES as u64, chunk })
    }

    fn shard(&mut self, filter: Option<&BinaryFuse16>) -> io::Result<()> {
        self.chunk.extend_from_slice(&encode_shard(filter));
        self.write_chunk()?;
        let fingerprints = filter.map_or(&[][..], |filter| &filter.fingerprints);
        for some in fingerprints.chunks(CHUNK_BYTES / size_of::<u16>()) {
            self.chunk.extend(some.iter().flat_map(|fingerprint| fingerprint.to_le_bytes()));
            self.write_chunk()?;
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        self.hasher.update(&self.chunk);
        self.draft.write_all(&self.chunk)?;
        self.bytes += self.chunk.len() as u64;
        self.chunk.clear();
        Ok(())
    }

    /// Returns the bytes of the file.
    fn finish(self, shard_bits: u32, entries: u64) -> io::Result<u64> {
        let header = FilterHeader { shard_bits, entries, bytes: self.bytes };
        self.draft.replace_target(&header.encode(self.hasher))?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests;
