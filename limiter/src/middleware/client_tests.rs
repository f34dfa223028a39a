//! Which addresses a client can and cannot claim.

use super::*;

fn client(peer: &str, lines: &[&str]) -> String {
    let trusted = TrustedProxies::new(
        ["10.0.0.0/8", "2001:db8:aaaa::/48", "::ffff:192.0.2.0/120"].map(|net| net.parse().unwrap()),
    );
    let lines = lines.iter().map(|line| line.as_bytes());
    ClientAddress::told_by(peer.parse().unwrap(), lines, &trusted).ip().to_string()
}

fn at(address: &str) -> ClientAddress {
    ClientAddress::at(address.parse().unwrap(), &TrustedProxies::default())
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
    let subject = |text: &str| at(text).subject();
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
    let masked = |text: &str| at(text).masked();
    assert_eq!(masked("203.0.113.77"), "203.0.113.0/24");
    assert_eq!(masked("2001:db8:0:2::1"), "2001:db8::/48");
    let subject = at("127.0.0.1").subject();
    assert_eq!(format!("{subject:?}"), "SubjectBytes(…)");
}

/// The examples of RFC 6052, 2.4.
#[test]
fn the_address_inside_a_translated_one_counts_for_every_length_of_prefix() {
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100:0"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::c000:221"),
        ("64:ff9b::/96", "64:ff9b::c000:221"),
    ] {
        let prefix = Nat64Prefix::new(prefix.parse().unwrap()).unwrap();
        let trusted = TrustedProxies::new([]).with_nat64([prefix]);
        let client = ClientAddress::at(address.parse().unwrap(), &trusted);
        assert_eq!(client.counted_ip().to_string(), "192.0.2.33", "{address}");
        assert_eq!(client.ip().to_string(), address.parse::<IpAddr>().unwrap().to_string());
        assert_eq!(
            (client.subject(), client.network()),
            (at("192.0.2.33").subject(), at("192.0.2.33").network())
        );
        assert_eq!(client.masked(), "192.0.2.0/24");
        // Without the prefix it is an address as any other.
        let other = ClientAddress::at(address.parse().unwrap(), &TrustedProxies::new([]).with_nat64([]));
        assert_eq!(other.counted_ip(), other.ip());
    }
    for wrong in ["2001:db8::/33", "2001:db8::/128", "2001:db8::/0", "2001:db8:0:0:100::/96"] {
        assert_eq!(Nat64Prefix::new(wrong.parse().unwrap()), None, "{wrong}");
    }
}

#[test]
fn a_client_of_a_tunnel_counts_as_the_owner_of_its_ipv4_address_whichever_64_it_takes() {
    for address in ["2002:c000:221::1", "2002:c000:221:ffff::1", "2001:0:4136:e378:8000:63bf:3fff:fdde"] {
        assert_eq!(at(address).counted_ip().to_string(), "192.0.2.33", "{address}");
        assert_eq!(at(address).subject(), at("192.0.2.33").subject());
    }
    assert_eq!(at("2001:1::c000:221").counted_ip(), at("2001:1::c000:221").ip(), "not Teredo");
}

#[test]
fn a_special_address_inside_is_not_taken_out() {
    for inner in [
        "0.0.0.1",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.1",
        "192.168.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let [a, b, c, d] = inner.parse::<Ipv4Addr>().unwrap().octets();
        let translated = format!("64:ff9b::{a:02x}{b:02x}:{c:02x}{d:02x}");
        let relayed = format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1");
        let tunnelled = format!("2001:0:4136:e378:8000:63bf:{:02x}{:02x}:{:02x}{:02x}", !a, !b, !c, !d);
        for address in [translated, relayed, tunnelled] {
            assert_eq!(at(&address).counted_ip(), at(&address).ip(), "{address}");
        }
    }
}

#[test]
fn what_is_inside_an_address_makes_nobody_a_proxy() {
    for peer in ["64:ff9b::a00:1", "64:ff9b::c000:201", "2002:c000:201::1", "2002:a00:1::1"] {
        assert_eq!(client(peer, &["198.51.100.7"]), peer);
        assert_eq!(client("10.0.0.1", &[&format!("198.51.100.7, {peer}")]), peer);
    }
    let proxies = TrustedProxies::new(["192.0.2.0/24".parse().unwrap()]);
    assert!(!proxies.contains("64:ff9b::c000:201".parse().unwrap()));
}
