use std::fmt::Write;

use tempfile::TempDir;

use super::*;
use crate::login::breached::BreachedPasswords;

const MOST: u64 = 1 << 30;

struct Lists {
    folder: TempDir,
    inputs: Vec<PathBuf>,
}

impl Lists {
    fn new<T: AsRef<[u8]>>(lists: impl IntoIterator<Item = T>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |(number, list): (usize, T)| {
            let path = folder.path().join(format!("list {number}"));
            fs::write(&path, list).unwrap();
            path
        };
        let inputs = lists.into_iter().enumerate().map(write).collect();
        Self { folder, inputs }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn build(&self) -> Result<BuildSummary, BuildError> {
        self.build_at_least(0)
    }

    fn build_at_least(&self, at_least: u64) -> Result<BuildSummary, BuildError> {
        build(&self.inputs, &self.out(), &BuildOptions { at_least }, |_| {})
    }

    fn filter(&self) -> BreachedPasswords {
        BreachedPasswords::read(&self.out(), MOST).unwrap()
    }

    /// What is in the folder beside the lists, hidden files, too.
    fn beside(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("list ")).collect()
    }
}

fn words(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().fold(String::new(), |mut all, number| {
        writeln!(all, "word {number}").unwrap();
        all
    })
}

fn sha1_of(password: &str) -> String {
    use sha1::{Digest, Sha1};
    Sha1::digest(password).iter().fold(String::new(), |mut all, byte| {
        write!(all, "{byte:02X}").unwrap();
        all
    })
}

#[test]
fn every_entry_is_found_and_one_in_65536_others() {
    let lists = Lists::new([words(0..20_000)]);
    let summary = lists.build().unwrap();
    assert_eq!((summary.lines, summary.words, summary.entries), (20_000, 20_000, 20_000));
    let filter = lists.filter();
    assert_eq!((filter.entries(), filter.bytes()), (20_000, summary.bytes));
    assert!((0..20_000).all(|number| filter.contains(format!("word {number}").as_bytes())));
    let others = (0..200_000).filter(|number| filter.contains(format!("other {number}").as_bytes()));
    // Three are expected.
    assert!(others.count() <= 20);
}

#[test]
fn sets_of_every_size_can_be_built() {
    let keys: Vec<_> = (0..3000_u64).map(|key| super::super::filter::key_of(&key.to_le_bytes())).collect();
    for size in (1..200).chain((200..3000).step_by(97)) {
        let filter = filter_of(&keys[..size]).unwrap().unwrap();
        assert!(keys[..size].iter().all(|key| xorf::Filter::contains(&filter, key)), "{size}");
    }
}

#[test]
fn other_seeds_find_the_same_keys() {
    let keys: Vec<_> = (0..1000).chain([u64::MAX, u64::MAX - 1]).collect();
    let filters: Vec<_> = (0..TRIES).map(|shift| shifted_filter(&keys, shift).unwrap()).collect();
    for filter in &filters {
        assert!(keys.iter().all(|key| xorf::Filter::contains(filter, key)));
    }
    assert_ne!(filters[0].fingerprints, filters[1].fingerprints);
}

#[test]
fn few_entries_make_one_shard_and_many_make_several() {
    let bits = |entries| shard_bits(entries, ENTRIES_A_SHARD);
    assert_eq!([1, 1 << 21, (1 << 21) + 1, 20_000_000].map(bits), [0, 0, 1, 4]);
    assert_eq!([1_000_000_000, u64::MAX].map(bits), [9, MOST_SHARD_BITS]);
}

#[test]
fn shards_of_several_parts_and_parts_of_several_shards_find_every_entry() {
    let lists = Lists::new([words(0..5000)]);
    for entries_a_shard in [5000, 2500, 100, 20, 10, 3] {
        let mut shards = Vec::new();
        let options = BuildOptions::default();
        build_in_shards(&lists.inputs, &lists.out(), &options, entries_a_shard, |progress| {
            if let BuildProgress::Building { shard, of } = progress {
                shards.push((shard, of));
            }
        })
        .unwrap();
        let count = 1 << shard_bits(5000, entries_a_shard);
        assert_eq!(shards, (1..=count).map(|shard| (shard, count)).collect::<Vec<_>>());
        let filter = lists.filter();
        assert!((0..5000).all(|number| filter.contains(format!("word {number}").as_bytes())));
        let others = (0..20_000).filter(|number| filter.contains(format!("other {number}").as_bytes()));
        assert!(others.count() <= 6, "{count} shards");
    }
}

#[test]
fn hashes_and_words_may_be_mixed_and_count_once() {
    let [one, two, three] = ["one", "two", "three"].map(sha1_of);
    let lists = Lists::new([
        format!("{one}:7\r\n{}:8\r\none\r\n\r\n", two.to_lowercase()),
        format!("two\n{three}\n{one}\nfour"),
        "three\nfour\nfive\r\n".to_owned(),
    ]);
    let summary = lists.build().unwrap();
    assert_eq!(
        summary,
        BuildSummary {
            lines: 11,
            bytes_read: summary.bytes_read,
            words: 6,
            empty: 1,
            entries: 5,
            bytes: fs::metadata(lists.out()).unwrap().len(),
            ..BuildSummary::default()
        }
    );
    let read: u64 = lists.inputs.iter().map(|input| fs::metadata(input).unwrap().len()).sum();
    assert_eq!(summary.bytes_read, read);
    let filter = lists.filter();
    assert!(["one", "two", "three", "four", "five"].iter().all(|word| filter.contains(word.as_bytes())));
    assert!(!filter.contains(b"six") && !filter.contains(b"") && !filter.contains(one.as_bytes()));
}

#[test]
fn counts_below_the_least_are_left_out_and_padding_always_is() {
    let list = format!(
        "{}:0\n{}:1\n{}:2\n{}\nword\n",
        sha1_of("padding"),
        sha1_of("rare"),
        sha1_of("frequent"),
        sha1_of("uncounted")
    );
    let lists = Lists::new([list]);
    for (at_least, left_out) in [(0, 0), (1, 0), (2, 1), (3, 2), (u64::MAX, 2)] {
        let summary = lists.build_at_least(at_least).unwrap();
        assert_eq!((summary.left_out, summary.padding, summary.skipped()), (left_out, 1, 1));
        assert_eq!(summary.entries, 4 - left_out);
        let filter = lists.filter();
        assert_eq!(filter.contains(b"rare"), at_least <= 1);
        assert_eq!(filter.contains(b"frequent"), at_least <= 2);
        assert!(filter.contains(b"uncounted") && filter.contains(b"word") && !filter.contains(b"padding"));
    }
}

#[test]
fn the_same_set_makes_the_same_file_in_any_order() {
    let whole = Lists::new([words(0..3000)]);
    let hashes: String = (0..1000).rev().map(|number| sha1_of(&format!("word {number}")) + ":3\n").collect();
    let parts = Lists::new([words((500..3000).rev()), words(2000..3000), hashes]);
    whole.build().unwrap();
    parts.build().unwrap();
    assert!(fs::read(whole.out()).unwrap() == fs::read(parts.out()).unwrap());
}

#[test]
fn a_line_of_megabytes_is_skipped() {
    let lists = Lists::new([format!("before\n{}\nafter", "x".repeat(3 << 20))]);
    let summary = lists.build().unwrap();
    assert_eq!((summary.lines, summary.too_long, summary.entries), (3, 1, 2));
    let filter = lists.filter();
    assert!(filter.contains(b"before") && filter.contains(b"after"));
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let mut lists = Lists::new([words(0..10)]);
    let pipe = lists.folder.path().join("list from a pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    lists.inputs.push(pipe.clone());
    let writer = std::thread::spawn(move || fs::write(pipe, words(5..50_000)));
    assert_eq!(lists.build().unwrap().entries, 50_000);
    writer.join().unwrap().unwrap();
}

#[test]
fn an_empty_set_is_an_error_that_says_so() {
    for (list, told) in [
        (String::new(), "no entry is left of 0 lines, 0 of"),
        ("\n\r\n".to_owned(), "no entry is left of 2 lines, 0 of"),
        (format!("{}:4\n{}:0\n", sha1_of("x"), sha1_of("y")), "no entry is left of 2 lines, 1 of"),
    ] {
        let lists = Lists::new([list]);
        let error = lists.build_at_least(5).unwrap_err().to_string();
        assert!(error.starts_with(told), "{error}");
        assert_eq!(lists.beside(), [""; 0]);
    }
}

#[test]
fn a_build_that_fails_leaves_the_old_file_and_nothing_else() {
    let mut lists = Lists::new([words(0..10)]);
    lists.build().unwrap();
    let before = fs::read(lists.out()).unwrap();
    let folder = lists.folder.path().join("list of folders");
    fs::create_dir(&folder).unwrap();
    // It can be opened, but not read.
    lists.inputs.push(folder);
    let error = lists.build().unwrap_err().to_string();
    assert!(error.contains("list of folders cannot be read"), "{error}");
    // It is missed before anything is read.
    lists.inputs[1] = lists.folder.path().join("list of nothing");
    let error = build(&lists.inputs, &lists.out(), &BuildOptions::default(), |_| panic!("has begun"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("list of nothing cannot be read"), "{error}");
    assert_eq!(lists.beside(), ["out"]);
    assert!(fs::read(lists.out()).unwrap() == before);
}

#[test]
fn the_old_file_is_whole_until_the_new_one_is() {
    let lists = Lists::new([words(0..10)]);
    fs::write(lists.out(), "GHBREACH, an old one").unwrap();
    let mut steps = 0;
    build(&lists.inputs, &lists.out(), &BuildOptions::default(), |progress| {
        steps += 1;
        assert_eq!(fs::read(lists.out()).unwrap(), b"GHBREACH, an old one", "{progress:?}");
        let drafts = usize::from(matches!(progress, BuildProgress::Building { .. }));
        assert_eq!(lists.beside().len(), 1 + drafts, "the spool has no name");
    })
    .unwrap();
    assert_eq!(steps, 1 + PARTS / PARTS_A_REPORT + 1);
    assert_eq!((lists.beside(), lists.filter().entries()), (vec!["out".to_owned()], 10));
}

#[test]
fn a_draft_that_cannot_take_its_place_is_removed() {
    let lists = Lists::new([words(0..10)]);
    let error = build(&lists.inputs, &lists.out(), &BuildOptions::default(), |progress| {
        if matches!(progress, BuildProgress::Building { .. }) {
            fs::create_dir(lists.out()).unwrap();
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("out cannot be written: Is a directory"), "{error}");
    assert_eq!(lists.beside(), ["out"]);
}

#[test]
fn what_a_killed_build_left_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    fs::write(folder.path().join(".out.new-7"), "left").unwrap();
    fs::write(folder.path().join(".out.keys-0"), "left").unwrap();
    let mut draft = FilterDraft::beside(&target, 7).unwrap();
    draft.write_all(b"..new").unwrap();
    draft.replace_target(b"a ").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"a new");
    assert!(Spool::beside(&target).is_ok());
}

#[test]
fn only_a_regular_file_is_replaced_and_links_are_followed() {
    let lists = Lists::new([words(0..10)]);
    let try_at = |out: &Path| build(&lists.inputs, out, &BuildOptions::default(), |_| {}).map(drop);
    for out in [lists.folder.path(), Path::new("/dev/null"), Path::new(""), Path::new("/")] {
        assert!(matches!(try_at(out), Err(BuildError::NotAFile { .. })), "{}", out.display());
    }
    let nowhere = lists.folder.path().join("none/out");
    let error = try_at(&nowhere).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} cannot be written: No such", nowhere.display())), "{error}");

    let link = lists.folder.path().join("link");
    std::os::unix::fs::symlink(lists.out(), &link).unwrap();
    assert!(try_at(&link).is_err(), "it leads nowhere");
    fs::write(lists.out(), "a list that somebody fetched").unwrap();
    assert!(matches!(try_at(&link), Err(BuildError::NoFilter { .. })));
    fs::write(lists.out(), "GHBREACH, an old one").unwrap();
    try_at(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(lists.filter().entries(), 10);
}

#[test]
fn a_full_disk_is_an_error_that_names_the_folder() {
    let full = || File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut build = Build {
        target: PathBuf::from("/somewhere/out"),
        spool: Spool::on(full()),
        summary: BuildSummary::default(),
        progress: &mut |_| {},
    };
    let many = "same\n".repeat(10_000);
    let error = build.read_lines(many.as_bytes(), Path::new("list"), &BuildOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("/somewhere cannot keep the keys until they are sorted"), "{error}");
    assert!(error.contains("No space left"), "{error}");

    let draft = FilterDraft::on(full(), Path::new("/somewhere/out"));
    assert_eq!(FilterWriter::new(draft).err().unwrap().kind(), ErrorKind::StorageFull);
}
