//! When a browser is known, and when it is not.

use std::time::Duration;

use super::*;
use crate::accounts::{Roles, Username};
use crate::secret::MasterKey;

struct Bench {
    devices: DeviceCookies,
    clock: Clock,
}

impl Bench {
    fn new() -> Self {
        let clock = Clock::manual(Micros::from_seconds(1_772_366_400));
        let key = MasterKey::from_bytes([7; 32]).derive_signing("test.device");
        Self { devices: DeviceCookies::new(key, clock.clone(), Entropy::seeded(1)), clock }
    }

    /// Signs in to each, one after the other, in one browser.
    fn sign_in(&self, accounts: &[&Account]) -> String {
        accounts.iter().fold(String::new(), |cookie, account| {
            self.clock.advance(Duration::from_secs(1));
            self.devices.remember(&self.devices.recognise(&cookie), account)
        })
    }
}

fn account(number: u8, password_version: i64) -> Account {
    Account {
        id: AccountId::from([number; 16]),
        login: Username::parse("alice").unwrap(),
        password_hash: None,
        password_version,
        password_failures: 0,
        password_disabled_at: None,
        phone: None,
        roles: Roles::default(),
        must_change_password: false,
        password_breached: false,
        password_lost: false,
        created_at: Micros(0),
        disabled_at: None,
        deleted_at: None,
        frozen_at: None,
    }
}

#[test]
fn a_device_is_known_at_the_account_that_was_signed_in_to_and_at_no_other() {
    let bench = Bench::new();
    let known = bench.devices.recognise(&bench.sign_in(&[&account(1, 3)]));
    let device = known.at(account(1, 3).id).unwrap();
    assert_eq!((device.account, device.password_version), (account(1, 3).id, 3));
    assert_eq!(known.at(account(2, 3).id), None);
}

#[test]
fn it_stays_the_same_device_for_as_long_as_the_password_is_the_same() {
    let bench = Bench::new();
    let (one, other) = (account(1, 0), account(2, 0));
    let id = |cookie: &str| bench.devices.recognise(cookie).at(one.id).unwrap().id;
    let first = bench.sign_in(&[&one]);
    let again = bench.devices.remember(&bench.devices.recognise(&first), &one);
    assert_eq!(id(&first), id(&again));
    assert_ne!(id(&first), id(&bench.sign_in(&[&one])), "another browser");
    let changed = bench.devices.remember(&bench.devices.recognise(&first), &account(1, 1));
    assert_ne!(id(&first), id(&changed), "what was guessed at the old one does not count for the new one");
    let both = bench.devices.recognise(&bench.sign_in(&[&one, &other]));
    assert_ne!(both.at(one.id).unwrap().id, both.at(other.id).unwrap().id, "nothing links two accounts");
}

#[test]
fn it_is_forgotten_half_a_year_after_the_last_sign_in() {
    let bench = Bench::new();
    let one = account(1, 0);
    let cookie = bench.sign_in(&[&one]);
    bench.clock.advance(DEVICE_LIFE - Duration::from_micros(1));
    let renewed = bench.devices.remember(&bench.devices.recognise(&cookie), &one);
    assert!(bench.devices.recognise(&cookie).at(one.id).is_some());
    bench.clock.advance(Duration::from_micros(1));
    assert!(bench.devices.recognise(&cookie).at(one.id).is_none());
    assert!(bench.devices.recognise(&renewed).at(one.id).is_some());
}

#[test]
fn a_browser_is_known_at_the_five_accounts_that_signed_in_last() {
    let bench = Bench::new();
    let accounts: Vec<Account> = (0..7).map(|number| account(number, 0)).collect();
    let cookie = bench.sign_in(&accounts.iter().chain([&accounts[3]]).collect::<Vec<_>>());
    let known = bench.devices.recognise(&cookie);
    let there: Vec<bool> = accounts.iter().map(|account| known.at(account.id).is_some()).collect();
    assert_eq!(there, [false, false, true, true, true, true, true]);
    assert_eq!(known.0[0].account, accounts[3].id, "newest first");
}

#[test]
fn a_changed_byte_makes_it_a_strangers() {
    let bench = Bench::new();
    let (one, cookie) = (account(1, 0), bench.sign_in(&[&account(1, 0)]));
    assert_eq!(cookie.len(), TEXT);
    for place in 0..cookie.len() {
        let letter = if cookie.as_bytes()[place] == b'A' { "B" } else { "A" };
        let mut forged = cookie.clone();
        forged.replace_range(place..=place, letter);
        assert!(bench.devices.recognise(&forged).at(one.id).is_none(), "{place}");
    }
    let other_key = MasterKey::from_bytes([8; 32]).derive_signing("test.device");
    let elsewhere = DeviceCookies::new(other_key, bench.clock.clone(), Entropy::seeded(1));
    assert!(elsewhere.recognise(&cookie).at(one.id).is_none());
}

#[test]
fn what_is_no_cookie_of_ours_is_a_strangers_and_hides_no_other_entry() {
    let bench = Bench::new();
    let (one, cookie) = (account(1, 0), bench.sign_in(&[&account(1, 0)]));
    let known = |cookie: &str| bench.devices.recognise(cookie).at(one.id).is_some();
    for bad in
        ["", ".", "....", "é", &cookie[1..], &cookie[..TEXT - 1], &format!("{cookie}A"), &"A".repeat(10_000)]
    {
        assert!(!known(bad), "{bad}");
    }
    assert!(!known(&[cookie.as_str(); 6].join(".")), "longer than any of ours");
    assert!(known(&[cookie.as_str(); 5].join(".")));
    assert!(known(&format!("nonsense.{cookie}.")));
}

#[test]
fn nothing_of_it_is_printed() {
    let bench = Bench::new();
    let known = bench.devices.recognise(&bench.sign_in(&[&account(1, 0)]));
    assert_eq!(format!("{known:?}"), "KnownDevices(1)");
}
