use std::net::Ipv4Addr;

use super::*;

const FEW: Bounds = Bounds { total: 8, per_peer: 3, ceiling: 10 };

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, last).into()
}

fn connections() -> Arc<Connections> {
    Connections::by(Uptime::manual(), FEW, TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]))
}

impl Connections {
    fn pass(&self, millis: u64) {
        self.uptime.advance(Duration::from_millis(millis));
    }
}

impl Open {
    fn is_open(&self) -> bool {
        self.connections.table().holds(self.peer, self.id)
    }
}

fn still_open(all: &[Open]) -> Vec<bool> {
    all.iter().map(Open::is_open).collect()
}

#[test]
fn past_the_total_the_one_longest_without_a_complete_request_goes() {
    let connections = connections();
    let mut all = Vec::new();
    for last in 0..8 {
        all.push(connections.open(peer(last), None));
        connections.pass(100);
    }
    // The oldest has sent a request since. The next one is being answered.
    all[0].completed();
    all[0].stay(ANSWER_TIME);
    all[1].completed();
    all.push(connections.open(peer(8), None));
    assert_eq!(still_open(&all), [true, true, false, true, true, true, true, true, true]);
    all.push(connections.open(peer(9), None));
    assert_eq!(still_open(&all), [true, true, false, false, true, true, true, true, true, true]);
}

#[test]
fn whoever_has_too_many_gives_way_before_others_do() {
    let connections = connections();
    let honest = connections.open(peer(1), None);
    connections.pass(100);
    let greedy: Vec<_> = (0..12).map(|_| connections.open(peer(2), None)).collect();
    assert!(honest.is_open());
    assert_eq!(still_open(&greedy).iter().filter(|open| **open).count(), 7);
    assert!(greedy[11].is_open(), "the newest stays");
}

#[test]
fn whoever_has_too_many_that_are_being_answered_gets_no_more_and_others_do() {
    let connections = connections();
    let greedy: Vec<_> = (0..12)
        .map(|_| {
            let open = connections.open(peer(2), None);
            open.completed();
            open
        })
        .collect();
    assert_eq!(still_open(&greedy).iter().filter(|open| **open).count(), FEW.total);
    assert!(connections.open(peer(1), None).is_open());
}

#[test]
fn a_peer_keeps_no_more_than_its_bound_for_longer_than_a_second() {
    let connections = connections();
    let all: Vec<_> = (0..6).map(|_| connections.open(peer(1), None)).collect();
    all[0].completed();
    connections.sweep();
    assert_eq!(still_open(&all), [true; 6], "their heads may be on the way");
    connections.pass(1000);
    connections.sweep();
    assert_eq!(still_open(&all), [true, false, false, false, true, true]);
}

#[test]
fn a_trusted_proxy_has_as_many_as_there_is_room_for() {
    let connections = connections();
    let all: Vec<_> =
        (0..8).map(|last| connections.open(Ipv4Addr::new(10, 0, 0, last).into(), None)).collect();
    connections.pass(2000);
    connections.sweep();
    assert_eq!(still_open(&all), [true; 8]);
    connections.pass(8000);
    connections.sweep();
    assert_eq!(still_open(&all), [false; 8], "but no deadline of theirs is another");
}

#[test]
fn a_request_that_is_being_worked_on_is_never_overdue_and_its_answer_is() {
    let connections = connections();
    let open = connections.open(peer(1), None);
    open.completed();
    connections.pass(3_600_000);
    connections.sweep();
    assert!(open.is_open());
    open.stay(ANSWER_TIME);
    connections.pass(9900);
    connections.sweep();
    assert!(open.is_open());
    connections.pass(100);
    connections.sweep();
    assert!(!open.is_open());
}

#[test]
fn what_is_closed_leaves_nothing_behind() {
    let connections = connections();
    let all: Vec<_> = (0..20).map(|last| connections.open(peer(last), None)).collect();
    drop(all);
    assert_eq!(connections.table().open, 0);
    assert_eq!(connections.table().peers(), 0);
}

#[test]
fn bounds_leave_files_for_everything_else() {
    for files in [64, 256, 1024, 4096, 65_536, 1_048_576] {
        let bounds = Bounds::within(files);
        assert!(bounds.ceiling as u64 * 2 + 256.min(files / 4) <= files, "{files}: {bounds:?}");
        assert!(0 < bounds.per_peer && bounds.per_peer < bounds.total && bounds.total < bounds.ceiling);
    }
    assert_eq!(Bounds::within(1024), Bounds { total: 336, per_peer: 168, ceiling: 384 });
    assert_eq!(Bounds::within(1 << 30), Bounds { total: 17_920, per_peer: 512, ceiling: 20_480 });
}
