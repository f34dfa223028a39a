//! Which addresses a client can and cannot claim.

use super::*;

fn client(peer: &str, lines: &[&str]) -> String {
    let trusted = TrustedProxies::new(
        ["10.0.0.0/8", "2001:db8:aaaa::/48", "::ffff:192.0.2.0/120"].map(|net| net.parse().unwrap()),
    );
    let lines = lines.iter().map(|line| line.as_bytes());
    ClientAddress::told_by(peer.parse().unwrap(), lines, &trusted).ip().to_string()
}

#[test]
fn an_untrusted_peer_is_the_client_whatever_it_says() {
    assert_eq!(client("203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
    assert_eq!(client("203.0.113.9", &["10.0.0.1", "10.0.0.2"]), "203.0.113.9");
}

#[test]
fn the_rightmost_untrusted_hop_is_the_client() {
    assert_eq!(client("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
    assert_eq!(client("10.0.0.1", &["198.51.100.7, 10.2.3.4"]), "198.51.100.7");
}

#[test]
fn hops_that_the_client_wrote_itself_are_not_believed() {
    assert_eq!(client("10.0.0.1", &["127.0.0.1, 10.9.9.9, 198.51.100.7"]), "198.51.100.7");
    assert_eq!(client("10.0.0.1", &["1.1.1.1", "2.2.2.2", "198.51.100.7, 10.0.0.9"]), "198.51.100.7");
}

#[test]
fn all_lines_of_the_header_are_one_list() {
    assert_eq!(client("10.0.0.1", &["1.1.1.1, 198.51.100.7", "10.0.0.8", "10.0.0.9"]), "198.51.100.7");
}

#[test]
fn where_every_hop_is_trusted_the_outermost_is_the_client() {
    assert_eq!(client("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
    assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
}

#[test]
fn an_unreadable_hop_ends_the_walk_at_the_last_known_good() {
    for junk in [
        "unknown",
        "_hidden",
        "1.2.3",
        "999.1.1.1",
        "[::1",
        "[::1]80",
        "[::1]:99999",
        "a.example",
        "é",
        "1.2.3.4:x",
    ] {
        assert_eq!(client("10.0.0.1", &[&format!("198.51.100.7, {junk}")]), "10.0.0.1", "{junk}");
        assert_eq!(client("10.0.0.1", &[&format!("198.51.100.7, {junk}, 10.0.0.5")]), "10.0.0.5", "{junk}");
    }
}

#[test]
fn ports_brackets_and_zones_are_no_part_of_an_address() {
    assert_eq!(client("10.0.0.1", &["1.2.3.4:5678"]), "1.2.3.4");
    assert_eq!(client("10.0.0.1", &["[2001:db8::1]:80"]), "2001:db8::1");
    assert_eq!(client("10.0.0.1", &["[::1]"]), "::1");
    assert_eq!(client("10.0.0.1", &["fe80::1%eth0"]), "fe80::1");
    assert_eq!(client("10.0.0.1", &["[fe80::1%25eth0]:443"]), "fe80::1");
}

#[test]
fn empty_hops_are_skipped() {
    assert_eq!(client("10.0.0.1", &["198.51.100.7, , 10.0.0.4 ,", "", "\t"]), "198.51.100.7");
}

#[test]
fn mapped_addresses_count_as_ipv4_as_peer_as_hop_and_as_proxy() {
    assert_eq!(client("::ffff:203.0.113.9", &[]), "203.0.113.9");
    assert_eq!(client("::ffff:10.0.0.1", &["::ffff:198.51.100.7"]), "198.51.100.7");
    assert_eq!(client("192.0.2.77", &["198.51.100.7"]), "198.51.100.7");
}

#[test]
fn a_ten_kilobyte_header_is_walked_no_further_than_needed() {
    let long = format!("{}198.51.100.7", "1.1.1.1, ".repeat(1200));
    assert_eq!(client("10.0.0.1", &[&long]), "198.51.100.7");
    let one_token = "1".repeat(10_240);
    assert_eq!(client("10.0.0.1", &[&one_token]), "10.0.0.1");
}

#[test]
fn an_ipv6_client_counts_by_its_64() {
    let subject = |text: &str| ClientAddress(text.parse().unwrap()).subject();
    assert_eq!(subject("2001:db8:1:2::1"), subject("2001:db8:1:2:ffff::9"));
    assert_ne!(subject("2001:db8:1:2::1"), subject("2001:db8:1:3::1"));
    assert_eq!(subject("192.0.2.1").as_ref(), [4, 192, 0, 2, 1]);
    assert_eq!(subject("2001:db8::1").as_ref(), [6, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]);
}

#[test]
fn a_network_is_a_48_or_a_24_and_a_mapped_address_is_in_its_ipv4_network() {
    let network = |peer: &str| {
        ClientAddress::told_by(peer.parse().unwrap(), [].into_iter(), &TrustedProxies::default()).network()
    };
    assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:ffff::9"));
    assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:2:2::1"));
    assert_eq!(network("192.0.2.1"), network("192.0.2.254"));
    assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
    assert_eq!(network("::ffff:192.0.2.7"), network("192.0.2.1"));
    assert_eq!(network("192.0.2.1").as_ref(), [4, 192, 0, 2]);
    assert_eq!(network("2001:db8:1:2::1").as_ref(), [6, 0x20, 1, 0xd, 0xb8, 0, 1]);
}

#[test]
fn what_is_shown_is_a_network_and_debug_shows_no_subject() {
    let masked = |text: &str| ClientAddress(text.parse().unwrap()).masked();
    assert_eq!(masked("203.0.113.77"), "203.0.113.0/24");
    assert_eq!(masked("2001:db8:0:2::1"), "2001:db8::/48");
    let subject = ClientAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)).subject();
    assert_eq!(format!("{subject:?}"), "SubjectBytes(…)");
}
