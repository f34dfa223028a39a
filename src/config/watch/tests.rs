//! The watcher with real files, in real time and with a bound; the tests assert what was applied, never that time went
//! by.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use gatehouse_limiter::middleware::{ClientAddress, TrustedProxies};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::clock::Micros;
use crate::config::document::PARSED;
use crate::config::source::READ;
use crate::config::{AccessSaver, Draft, Edit, LiveSection, LoadedConfig};

/// Longer than any loaded machine takes; a test that passes never waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

struct Watched {
    folder: TempDir,
    file: PathBuf,
    live: LiveHandle,
    outcomes: Receiver<ReloadOutcome>,
    watcher: ConfigWatcher,
}

fn document(max: u32) -> String {
    format!("[limits.login-account]\nrules = [{{ max = {max}, window = \"1m\" }}]\n")
}

fn watched(lay_out: impl FnOnce(&Path) -> PathBuf) -> Watched {
    watched_from(lay_out, |file| ConfigSource::new(Some(file), Vec::new()))
}

fn watched_from(
    lay_out: impl FnOnce(&Path) -> PathBuf,
    source: impl FnOnce(&Path) -> ConfigSource,
) -> Watched {
    let folder = tempfile::tempdir().expect("a folder");
    let file = lay_out(folder.path());
    let source = source(&file);
    let LoadedConfig { settings, live, .. } = source.load().expect("valid");
    let (told, outcomes) = channel();
    let hook = move |outcome: &ReloadOutcome| told.send(outcome.clone()).expect("a listener");
    let clock = Clock::manual(Micros(7));
    let watcher =
        ConfigWatcher::start_polling(POLL, source, settings, live.clone(), clock, hook).expect("a watcher");
    let watched = Watched { folder, file, live, outcomes, watcher };
    watched.watcher.reload_now();
    assert_eq!(watched.next(), ReloadOutcome::Unchanged { version: 1 });
    watched
}

fn plain(folder: &Path) -> PathBuf {
    let file = folder.join("gatehouse.toml");
    fs::write(&file, document(1)).expect("written");
    file
}

impl Watched {
    fn next(&self) -> ReloadOutcome {
        self.outcomes.recv_timeout(PATIENCE).expect("an outcome in time")
    }

    /// Waits until a version is in force, ignoring refusals on the way.
    fn applied(&self) -> u64 {
        loop {
            if let ReloadOutcome::Applied { version, .. } = self.next() {
                return version;
            }
        }
    }

    fn refused(&self) -> String {
        match self.next() {
            ReloadOutcome::Refused { error } => error.to_string(),
            other => panic!("{other:?} where a refusal was due"),
        }
    }

    fn max(&self) -> u32 {
        self.live.snapshot().limits.login_account.capacity()
    }

    fn replace(&self, text: &str) {
        let draft = self.folder.path().join(".gatehouse.toml.swp");
        fs::write(&draft, text).expect("written");
        fs::rename(draft, &self.file).expect("renamed");
    }
}

#[test]
fn an_editors_rename_is_followed_again_and_again() {
    let watched = watched(plain);
    for max in 2..5 {
        watched.replace(&document(max));
        assert_eq!(watched.applied(), u64::from(max));
        assert_eq!(watched.max(), max);
    }
}

#[test]
fn a_kubernetes_swap_is_followed() {
    let watched = watched(|folder| {
        fs::create_dir(folder.join("..1")).expect("a folder");
        fs::write(folder.join("..1/gatehouse.toml"), document(1)).expect("written");
        symlink("..1", folder.join("..data")).expect("linked");
        symlink("..data/gatehouse.toml", folder.join("gatehouse.toml")).expect("linked");
        folder.join("gatehouse.toml")
    });
    for max in 2..4 {
        let folder = watched.folder.path();
        let fresh = format!("..{max}");
        fs::create_dir(folder.join(&fresh)).expect("a folder");
        fs::write(folder.join(&fresh).join("gatehouse.toml"), document(max)).expect("written");
        symlink(&fresh, folder.join("..data_tmp")).expect("linked");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("renamed");
        fs::remove_dir_all(folder.join(format!("..{}", max - 1))).expect("removed");
        assert_eq!(watched.applied(), u64::from(max));
        assert_eq!(watched.max(), max);
    }
}

#[test]
fn a_half_written_file_is_refused_and_the_whole_one_applied() {
    let watched = watched(plain);
    let whole = document(9);
    let (half, rest) = whole.split_at(whole.len() / 2);
    watched.replace(half);
    let refusal = watched.refused();
    assert!(refusal.contains("gatehouse.toml:2: is not TOML"), "{refusal}");
    assert_eq!((watched.max(), watched.live.version()), (1, 1));
    let kept = watched.live.last_refused().expect("kept for who asks");
    assert_eq!((kept.error.to_string(), kept.at), (refusal, Micros(7)));

    let mut file = fs::OpenOptions::new().append(true).open(&watched.file).expect("opened");
    file.write_all(rest.as_bytes()).expect("written");
    assert_eq!(watched.applied(), 2);
    assert_eq!((watched.max(), watched.live.last_error()), (9, None));
}

#[test]
fn an_emptied_file_does_not_bring_the_defaults() {
    let watched = watched(plain);
    fs::write(&watched.file, "\n").expect("written");
    assert!(watched.refused().ends_with("gatehouse.toml: is empty"));
    assert_eq!(watched.max(), 1);
}

#[test]
fn a_removed_file_changes_nothing_until_it_is_back() {
    let watched = watched(plain);
    fs::remove_file(&watched.file).expect("removed");
    assert!(watched.refused().ends_with("gatehouse.toml: there is no such file"));
    assert_eq!(watched.max(), 1);
    watched.replace(&document(1));
    assert_eq!(watched.next(), ReloadOutcome::Unchanged { version: 1 });
    assert_eq!(watched.live.last_error(), None);
    watched.replace(&document(2));
    assert_eq!(watched.applied(), 2);
}

#[test]
fn a_default_file_may_come_later_and_its_removal_does_not_bring_the_defaults() {
    let source = |file: &Path| ConfigSource::optional(file, Vec::new());
    let watched = watched_from(|folder| folder.join("gatehouse.toml"), source);
    watched.replace(&document(2));
    assert_eq!(watched.applied(), 2);
    fs::remove_file(&watched.file).expect("removed");
    assert!(watched.refused().ends_with("gatehouse.toml: was removed"));
    assert_eq!(watched.max(), 2);
}

#[test]
fn a_touch_is_no_new_version() {
    let watched = watched(plain);
    let file = fs::File::options().write(true).open(&watched.file).expect("opened");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("touched");
    watched.watcher.reload_now();
    assert_eq!(watched.next(), ReloadOutcome::Unchanged { version: 1 });
    watched.replace(&document(2));
    assert_eq!(watched.applied(), 2);
}

#[test]
fn a_file_behind_a_link_into_another_folder_is_followed() {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let target = elsewhere.path().join("real.toml");
    fs::write(&target, document(1)).expect("written");
    let watched = watched(|folder| {
        symlink(&target, folder.join("gatehouse.toml")).expect("linked");
        folder.join("gatehouse.toml")
    });
    fs::write(&target, document(2)).expect("written");
    assert_eq!(watched.applied(), 2);
}

#[test]
fn a_folder_that_is_replaced_is_followed() {
    let watched = watched(|folder| {
        fs::create_dir(folder.join("etc")).expect("a folder");
        plain(&folder.join("etc"))
    });
    let (etc, aside) = (watched.folder.path().join("etc"), watched.folder.path().join("aside"));
    fs::rename(&etc, aside).expect("renamed");
    fs::create_dir(&etc).expect("a folder");
    fs::write(&watched.file, document(2)).expect("written");
    assert_eq!(watched.applied(), 2);
    watched.replace(&document(3));
    assert_eq!(watched.applied(), 3);
}

#[test]
fn what_takes_a_restart_is_told_and_the_rest_applied() {
    let watched = watched(plain);
    watched.replace(&format!("server.bind = '127.0.0.1:9999'\n{}", document(3)));
    let ReloadOutcome::Applied { needs_restart, .. } = watched.next() else { panic!("applied") };
    assert_eq!(needs_restart, ["server.bind"]);
    assert_eq!(watched.max(), 3);
}

#[test]
fn an_address_is_required_once_mail_is_in_force() {
    const NO_SMS: &str = "[sms]\ngateway = 'none'\n";
    const MAIL: &str = "[mail]\nurl = 'smtp://127.0.0.1'\nfrom = 'a@example.org'\n";
    let watched = watched(|folder| {
        let file = folder.join("gatehouse.toml");
        fs::write(&file, NO_SMS).expect("written");
        file
    });
    // Until a restart mail.url is not in force.
    watched.replace(&format!("{NO_SMS}{MAIL}[registration]\nrequire = ['email']\n"));
    assert!(watched.refused().contains("restart, and both are"));
    assert!(!watched.live.snapshot().registration.requires(RegistrationProof::Email));
    watched.replace(&format!("{NO_SMS}{MAIL}"));
    watched.applied();
}

#[test]
fn one_mistake_refuses_the_whole_file() {
    let watched = watched(plain);
    watched.replace(&format!("server.workers = 0\n{}", document(3)));
    assert!(watched.refused().contains("server.workers: 0 is out of range"));
    assert_eq!(watched.max(), 1);
}

#[test]
fn dropping_the_watcher_stops_it() {
    let watched = watched(plain);
    drop(watched.watcher);
    // The hook and its sender were dropped with the thread.
    assert!(watched.outcomes.recv_timeout(PATIENCE).is_err_and(|end| end == RecvTimeoutError::Disconnected));
}

/// Parsing a long document takes milliseconds: once to know what it says, once to change it, and once to judge it. A draft
/// in TOML is parsed twice itself, one of applications in JSON once.
#[test]
fn a_save_parses_the_document_three_times_and_checks_it_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = plain(folder.path());
    let source = ConfigSource::new(Some(&file), Vec::new());
    let LoadedConfig { settings, live, .. } = source.load().expect("valid");
    let (control, woken) = WatchControl::new();
    let mut watching = WatchThread {
        backend: Box::new(FileBackend::new(&file, POLL, control.clone())),
        control,
        woken,
        is_service: false,
        running: settings,
        live: live.clone(),
        clock: Clock::manual(Micros(7)),
        seen: None,
        on_reload: |_: &ReloadOutcome| {},
        first_read: sync_channel(1).0,
    };
    let found = watching.find();
    watching.follow(found, false, None);

    let limits = |draft| Edit::Section(LiveSection::Limits, draft);
    let rule = json!({ "rules": [{ "max": 7, "window": "1m" }] });
    let rules = json!({ "login-account": { "rules": [{ "max": 9, "window": "1m" }] } });
    let apps = |draft| Edit::Section(LiveSection::Apps, draft);
    let wiki = json!([{ "name": "wiki", "hosts": ["wiki.example"], "who": ["everyone"] }]);
    let chat = "[[apps]]\nname = \"chat\"\nhosts = [\"chat.example\"]\nwho = [\"everyone\"]\n";
    let deny =
        json!({ "deny": [{ "network": "192.0.2.0/24", "until": "2026-11-24T00:00:00Z", "reason": "x" }] });
    let address = ClientAddress::at("198.51.100.7".parse().expect("an address"), &TrustedProxies::default());
    let saver = AccessSaver { address, now: Micros(7) };
    let edits = [
        (Edit::Limit("login-account".to_owned(), rule), 3),
        (limits(Draft::Json(rules)), 3),
        (limits(Draft::Toml(document(8))), 5),
        (Edit::Access(deny, saver), 3),
        (apps(Draft::Json(wiki)), 4),
        (apps(Draft::Toml(chat.to_owned())), 5),
    ];
    for (edit, bound) in edits {
        let seen = live.in_force().fingerprint.expect("a document").to_string();
        let (parsed, read) = (PARSED.get(), READ.get());
        let checked = live.check(edit.clone()).expect("valid");
        assert!(watching.save(checked, &seen).expect("saved").changed);
        let (parsed, read) = (PARSED.get() - parsed, READ.get() - read);
        assert!(parsed <= bound, "{parsed} times: {edit:?}");
        assert_eq!(read, 1, "the whole document is read once: {edit:?}");
    }
}
