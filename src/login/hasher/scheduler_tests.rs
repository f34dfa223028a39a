use super::*;

const QUEUE: usize = 16;

fn stranger(network: u8, solved: bool) -> HashCaller {
    HashCaller::stranger(&[4, network], solved)
}

fn known(account: u8, device: u8) -> HashCaller {
    HashCaller {
        device: Some((QueueOwner::of(&[account]), QueueSource::from(device))),
        ..stranger(200, false)
    }
}

fn scheduler() -> HashScheduler<&'static str> {
    HashScheduler::new(QUEUE, 1)
}

fn take(scheduler: &mut HashScheduler<&'static str>) -> Option<&'static str> {
    scheduler.take(true).map(|(job, _)| job)
}

#[test]
fn while_both_wait_every_second_hash_is_a_known_devices() {
    let mut scheduler = scheduler();
    for number in 0..4 {
        scheduler.push(&known(number, number), "known").unwrap();
    }
    for number in 0..2 {
        scheduler.push(&stranger(number, true), "solved").unwrap();
        scheduler.push(&stranger(number, false), "unsolved").unwrap();
    }
    let order: Vec<_> = std::iter::from_fn(|| take(&mut scheduler)).collect();
    let expected = ["known", "solved", "known", "solved", "known", "unsolved", "known", "unsolved"];
    assert_eq!(order, expected);
}

#[test]
fn a_known_device_is_next_after_any_number_of_strangers() {
    let mut scheduler = scheduler();
    for number in 0..8 {
        scheduler.push(&stranger(number, false), "unsolved").unwrap();
    }
    take(&mut scheduler).unwrap();
    take(&mut scheduler).unwrap();
    scheduler.push(&known(1, 1), "known").unwrap();
    assert_eq!(take(&mut scheduler), Some("known"));
}

#[test]
fn workers_are_never_idle_while_somebody_waits() {
    let mut scheduler = scheduler();
    scheduler.push(&stranger(1, false), "one").unwrap();
    scheduler.push(&stranger(1, false), "two").unwrap();
    assert_eq!((take(&mut scheduler), take(&mut scheduler)), (Some("one"), Some("two")));
    // A device with a hash in flight delays only itself.
    for job in ["first", "second"] {
        scheduler.push(&known(1, 1), job).unwrap();
    }
    scheduler.push(&stranger(1, false), "three").unwrap();
    let first = scheduler.take(true).unwrap();
    assert_eq!((first.0, take(&mut scheduler), take(&mut scheduler)), ("first", Some("three"), None));
    scheduler.finished(first.1);
    assert_eq!(take(&mut scheduler), Some("second"));
}

#[test]
fn neither_kind_of_stranger_takes_room_from_the_others() {
    let mut scheduler = scheduler();
    for (caller, share) in [(stranger(1, false), QUEUE / 2), (stranger(1, true), QUEUE / 4)] {
        for _ in 0..share {
            assert!(scheduler.has_room(&caller));
            scheduler.push(&caller, "flood").unwrap();
        }
        assert!(!scheduler.has_room(&caller));
        assert!(scheduler.push(&caller, "flood").is_err());
    }
    for number in 0..4 {
        scheduler.push(&known(number, number), "known").unwrap();
    }
    assert_eq!(HashLane::ALL.map(|lane| scheduler.len(lane)), [4, 4, 8]);
}

#[test]
fn a_known_device_without_room_waits_with_the_strangers() {
    let mut scheduler = scheduler();
    for device in 0..6 {
        scheduler.push(&known(1, device), "known").unwrap();
    }
    assert_eq!(HashLane::ALL.map(|lane| scheduler.len(lane)), [4, 0, 2]);
    let (_, displaced) = scheduler.push(&known(2, 1), "quiet").unwrap();
    assert_eq!(displaced, Some("known"), "of the account with most");
}

#[test]
fn among_known_devices_of_500_busy_accounts_a_quiet_one_is_next_but_one() {
    let mut scheduler: HashScheduler<&'static str> = HashScheduler::new(256, 2);
    let busy = |number: u16| HashCaller {
        device: Some((QueueOwner::of(&number.to_be_bytes()), QueueSource::from(number))),
        ..stranger(200, false)
    };
    // Each asks again after it was served or turned away, while strangers flood.
    let ask = |scheduler: &mut HashScheduler<&'static str>| {
        for number in 1..=500 {
            let _ = scheduler.push(&busy(number), "busy");
            let _ = scheduler.push(&stranger(number.to_be_bytes()[1], false), "stranger");
        }
    };
    let quiet = HashCaller { device: Some((QueueOwner::of(b"quiet"), 1)), ..stranger(200, false) };
    // It signed in before any of them came; and they have not all been served yet.
    scheduler.push(&quiet, "quiet").unwrap();
    for _ in 0..300 {
        let started = scheduler.take(true).unwrap();
        scheduler.finished(started.1);
        ask(&mut scheduler);
    }
    assert!(scheduler.has_room(&quiet));
    scheduler.push(&quiet, "quiet").unwrap();
    ask(&mut scheduler);
    let next: Vec<_> = (0..2).map(|_| take(&mut scheduler).unwrap()).collect();
    assert!(next.contains(&"quiet"), "{next:?}");
}
