//! Whether an address belongs to the public Internet, so that a URL from a configuration cannot reach what is
//! only meant for this machine and its neighbours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// What the IANA registry of special addresses lists as not globally reachable, multicast and reserved
/// addresses included (<https://www.iana.org/assignments/iana-ipv4-special-registry>).
const SPECIAL_V4: [Ipv4Net; 16] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    // Relays of 6to4, which nobody runs any more (RFC 7526).
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
    v4([255, 255, 255, 255], 32),
];

/// The addresses that IANA has given out (RFC 4291, 2.4). Loopback, link-local, unique local, multicast,
/// mapped and translated ones are outside.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0], 3);

/// What is inside, but reaches something else: protocol assignments with Teredo, documentation, 6to4 (which
/// carries an IPv4 address), and documentation again (RFC 9637).
const SPECIAL_V6: [Ipv6Net; 4] =
    [v6([0x2001, 0], 23), v6([0x2001, 0xdb8], 32), v6([0x2002, 0], 16), v6([0x3fff, 0], 20)];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6([a, b]: [u16; 2], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// An IPv4 address in IPv6's clothes is judged as the IPv4 address that it reaches.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => !SPECIAL_V4.iter().any(|network| network.contains(&v4)),
        IpAddr::V6(v6) => GLOBAL_V6.contains(&v6) && !SPECIAL_V6.iter().any(|network| network.contains(&v6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(addresses: &[&str]) -> Vec<bool> {
        addresses.iter().map(|address| is_public(address.parse().unwrap())).collect()
    }

    #[test]
    fn what_reaches_this_machine_or_its_neighbours_is_not_public() {
        let inside = [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.0.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
        ];
        assert_eq!(judged(&inside), vec![false; inside.len()]);
    }

    #[test]
    fn what_anybody_can_reach_is_public() {
        let outside = [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.32.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "::ffff:8.8.8.8",
            "240e::1",
        ];
        assert_eq!(judged(&outside), vec![true; outside.len()]);
    }
}
