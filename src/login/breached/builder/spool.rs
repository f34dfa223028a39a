//! Keys on the disk, until they are sorted: one file, whose blocks belong to 256 parts by the first bits of the keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::draft::beside;
use crate::login::breached::filter::shard_of;

const PART_BITS: u32 = 8;
pub(super) const PARTS: usize = 1 << PART_BITS;
/// Keys that are written at once. So many of each part may wait in memory: 16 MiB of all.
const BLOCK_KEYS: usize = 8192;
const KEY_BYTES: usize = 8;
const BLOCK_BYTES: u64 = (BLOCK_KEYS * KEY_BYTES) as u64;
/// What sorting a part may take of memory: 32 MiB for a part of hashes, whatever is there twice.
const SORT_LIMITS: SortLimits = SortLimits { at_once: 1 << 22, most_keys: 1 << 25 };

struct SortLimits {
    /// So many keys are read before those that are there twice are dropped.
    at_once: usize,
    /// The most distinct keys of a part. They would be those of 8,000 million entries, if they are hashes.
    most_keys: usize,
}

pub(super) struct Spool {
    file: File,
    parts: Vec<SpooledPart>,
    /// The blocks of the file that belong to parts.
    blocks: u64,
}

#[derive(Default)]
struct SpooledPart {
    /// Its keys that are not written yet.
    waiting: Vec<u64>,
    /// Its blocks, each of which is full, but for the last one when the part is sorted.
    blocks: Vec<u64>,
    /// Its keys on the disk.
    stored: usize,
}

impl Spool {
    /// Keeps the keys beside the file. They have no name there, so they are gone with the process, however that ends.
    pub fn beside(target: &Path) -> io::Result<Self> {
        for number in 0_u32.. {
            let path = beside(target, &format!("keys-{number}"));
            let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            match created {
                // Another process is between these two lines, or was killed there.
                Err(reason) if reason.kind() == ErrorKind::AlreadyExists => {}
                Err(reason) => return Err(reason),
                Ok(file) => {
                    fs::remove_file(&path)?;
                    return Ok(Self::on(file));
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(super) fn on(file: File) -> Self {
        let parts = (0..PARTS).map(|_| SpooledPart::default()).collect();
        Self { file, parts, blocks: 0 }
    }

    /// A number that no other file of the file system has, as long as the spool is open.
    pub fn number(&self) -> io::Result<u64> {
        self.file.metadata().map(|file| file.ino())
    }

    pub fn push(&mut self, key: u64) -> io::Result<()> {
        let part = shard_of(key, PART_BITS);
        let waiting = &mut self.parts[part].waiting;
        waiting.push(key);
        if waiting.len() < BLOCK_KEYS {
            return Ok(());
        }
        let keys = std::mem::take(waiting);
        let block = self.blocks;
        self.write_block(block, &keys)?;
        self.blocks += 1;
        let part = &mut self.parts[part];
        part.blocks.push(block);
        part.stored += keys.len();
        part.waiting = keys;
        part.waiting.clear();
        Ok(())
    }

    /// Sorts a part and drops what is there twice. Returns how many keys are left, or None if they are too many.
    pub fn sort(&mut self, part: usize) -> io::Result<Option<usize>> {
        let Some(keys) = self.distinct(part, &SORT_LIMITS)? else { return Ok(None) };
        let mut blocks = std::mem::take(&mut self.parts[part].blocks);
        for (index, keys) in keys.chunks(BLOCK_KEYS).enumerate() {
            if index == blocks.len() {
                blocks.push(self.blocks);
                self.blocks += 1;
            }
            self.write_block(blocks[index], keys)?;
        }
        self.parts[part] = SpooledPart { waiting: Vec::new(), blocks, stored: keys.len() };
        Ok(Some(keys.len()))
    }

    /// Sorts a part; None if it has too many keys.
    fn distinct(&mut self, part: usize, limits: &SortLimits) -> io::Result<Option<Vec<u64>>> {
        let mut keys = std::mem::take(&mut self.parts[part].waiting);
        let mut most = limits.at_once;
        for block in &self.parts[part].blocks {
            self.read_block(*block, BLOCK_KEYS, &mut keys)?;
            if keys.len() >= most {
                sort_distinct(&mut keys);
                most = limits.at_once.max(2 * keys.len());
            }
            if most > 2 * limits.most_keys {
                return Ok(None);
            }
        }
        sort_distinct(&mut keys);
        Ok(Some(keys))
    }

    /// The keys of neighbouring parts, each of which has been sorted.
    pub fn sorted(&self, parts: Range<usize>) -> io::Result<Vec<u64>> {
        let parts = &self.parts[parts];
        let mut keys = Vec::with_capacity(parts.iter().map(|part| part.stored).sum());
        for part in parts {
            let mut left = part.stored;
            for block in &part.blocks {
                let count = left.min(BLOCK_KEYS);
                self.read_block(*block, count, &mut keys)?;
                left -= count;
            }
        }
        Ok(keys)
    }

    fn write_block(&self, block: u64, keys: &[u64]) -> io::Result<()> {
        let bytes: Vec<_> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, block * BLOCK_BYTES)
    }

    fn read_block(&self, block: u64, count: usize, keys: &mut Vec<u64>) -> io::Result<()> {
        let mut bytes = vec![0; count * KEY_BYTES];
        self.file.read_exact_at(&mut bytes, block * BLOCK_BYTES)?;
        let (each, _) = bytes.as_chunks();
        keys.extend(each.iter().map(|key| u64::from_le_bytes(*key)));
        Ok(())
    }
}

fn sort_distinct(keys: &mut Vec<u64>) {
    keys.sort_unstable();
    keys.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool() -> Spool {
        Spool::on(tempfile::tempfile().unwrap())
    }

    /// The key of the part whose other bits are the number.
    fn key(part: u64, number: u64) -> u64 {
        part << (u64::BITS - PART_BITS) | number
    }

    #[test]
    fn every_key_comes_back_sorted_and_once() {
        let mut spool = spool();
        // More than two blocks of one part, backwards and twice; one key of another; none of the others.
        for number in (0..20_000).rev().chain(0..20_000) {
            spool.push(key(7, number)).unwrap();
        }
        spool.push(key(255, 1)).unwrap();
        let counts: Vec<_> = (0..PARTS).map(|part| spool.sort(part).unwrap().unwrap()).collect();
        assert_eq!((counts[7], counts[255], counts.iter().sum()), (20_000, 1, 20_001));
        let all: Vec<_> = (0..20_000).map(|number| key(7, number)).chain([key(255, 1)]).collect();
        assert_eq!(spool.sorted(0..PARTS).unwrap(), all);
        assert_eq!(spool.sorted(7..8).unwrap(), all[..20_000]);
        assert!(spool.sorted(8..255).unwrap().is_empty());
    }

    #[test]
    fn keys_that_come_often_take_no_memory_and_too_many_others_are_refused() {
        let limits = SortLimits { at_once: 2 * BLOCK_KEYS, most_keys: 3 * BLOCK_KEYS };
        let blocks = |count: usize| 0..(count * BLOCK_KEYS) as u64;
        let mut often = spool();
        for number in blocks(20) {
            often.push(key(0, number % 10)).unwrap();
        }
        let keys = often.distinct(0, &limits).unwrap().unwrap();
        assert_eq!(keys, (0..10).collect::<Vec<_>>());
        assert!(keys.capacity() <= 4 * BLOCK_KEYS, "{}", keys.capacity());

        let mut many = spool();
        for number in blocks(10) {
            many.push(key(0, number)).unwrap();
        }
        assert_eq!(many.distinct(0, &limits).unwrap(), None);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let mut spool = Spool::on(full);
        let pushed: io::Result<()> = (0..BLOCK_KEYS as u64).try_for_each(|number| spool.push(number));
        assert_eq!(pushed.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
