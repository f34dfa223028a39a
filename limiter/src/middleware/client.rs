//! The client's address, from the peer and from trusted proxies.
//!
//! Only `X-Forwarded-For` is read, and only if the TCP peer is one of `server.trusted_proxies`. The
//! `Forwarded` header (RFC 7239) is ignored: few proxies set it. A proxy that does not know it passes the
//! client's own header through, so clients could forge it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use actix_web::HttpRequest;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The networks of the proxies whose `X-Forwarded-For` is trusted, and the prefixes behind which translators between IPv4
/// and IPv6 put the addresses of IPv4 clients.
#[derive(Debug, Clone)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    nat64: Vec<Nat64Prefix>,
}

impl Default for TrustedProxies {
    /// Trusts no proxy.
    fn default() -> Self {
        Self::new([])
    }
}

impl TrustedProxies {
    /// Proxies in these networks are believed, and nobody else. Translators use the well-known prefix.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks = networks.into_iter().map(unmapped).collect();
        Self { networks, nat64: vec![Nat64Prefix::WELL_KNOWN] }
    }

    /// Translators use these prefixes instead.
    #[must_use]
    pub fn with_nat64(self, prefixes: impl IntoIterator<Item = Nat64Prefix>) -> Self {
        Self { nat64: prefixes.into_iter().collect(), ..self }
    }

    /// Whether it is the address of one of them, as it was sent: never what is inside it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The IPv4 address inside an IPv6 one, if that belongs to one client: by NAT64 or SIIT, 6to4 or Teredo.
    fn inside(&self, address: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V6(v6) = address else { return None };
        let translated = self.nat64.iter().filter(|prefix| prefix.0.contains(&v6));
        let inner = match translated.max_by_key(|prefix| prefix.0.prefix_len()) {
            Some(prefix) => prefix.inside(v6)?,
            None => tunnelled(v6)?,
        };
        let is_special = SPECIAL.iter().any(|network| network.contains(&inner));
        (!is_special).then_some(inner)
    }
}

/// A prefix of IPv6 addresses that have an IPv4 address in them (RFC 6052, 2.2): NAT64 and SIIT translate by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix(Ipv6Net);

/// The octet that is zero in every such address.
const ZERO_OCTET: usize = 8;

impl Nat64Prefix {
    /// `64:ff9b::/96`, which everybody may use (RFC 6052, 2.1).
    pub const WELL_KNOWN: Self = Self(Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96));

    /// Checks a prefix. Returns None if its length is not 32, 40, 48, 56, 64 or 96, or bits 64 to 71 are not zero.
    pub fn new(network: Ipv6Net) -> Option<Self> {
        let network = network.trunc();
        let fits = matches!(network.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96);
        (fits && network.addr().octets()[ZERO_OCTET] == 0).then_some(Self(network))
    }

    /// The address follows the prefix, around the octet that is zero. What comes after it says nothing.
    fn inside(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = address.octets();
        if octets[ZERO_OCTET] != 0 {
            return None;
        }
        let first = usize::from(self.0.prefix_len() / 8);
        let mut rest = (first..16).filter(|index| *index != ZERO_OCTET).map(|index| octets[index]);
        Some(Ipv4Addr::from([rest.next()?, rest.next()?, rest.next()?, rest.next()?]))
    }
}

/// 6to4 (RFC 3056, 2) has the client's address after its prefix, and Teredo (RFC 4380, 4) at the end, with all bits turned
/// around. What we send there goes through a tunnel to that very address: only its owner can hold a connection.
fn tunnelled(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x2002, high, low, ..] => Some(join(high, low)),
        [0x2001, 0, .., high, low] => Some(join(!high, !low)),
        _ => None,
    }
}

/// Addresses that many share or nobody has (the IANA registry of special addresses). An address that claims one of them to
/// be inside counts as what it is. Addresses for documentation are nobody's, either, but harmless.
const SPECIAL: [Ipv4Net; 12] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

/// Some write `10.0.0.0/8` as `::ffff:10.0.0.0/104`. Addresses are compared unmapped.
fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    v6.addr()
        .to_ipv4_mapped()
        .and_then(|v4| Ipv4Net::new(v4, v6.prefix_len().checked_sub(96)?).ok())
        .map_or(network, IpNet::V4)
}

/// The address that a request counts against. An IPv4-mapped IPv6 address is stored as IPv4, so that one
/// client is one subject on a dual-stack socket. An IPv6 address that a translator or a tunnel made of an IPv4 one counts
/// as that: all clients behind a translator are in one /64, and whoever has a tunnel has thousands of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    sent: IpAddr,
    counted: IpAddr,
}

impl ClientAddress {
    /// A connection without an address (a Unix socket). All of them count as one.
    pub const UNKNOWN: Self =
        Self { sent: IpAddr::V4(Ipv4Addr::UNSPECIFIED), counted: IpAddr::V4(Ipv4Addr::UNSPECIFIED) };

    /// Walks `X-Forwarded-For` from the nearest hop outwards, over all header lines. It stops at the first
    /// address that is not a trusted proxy. If a hop cannot be parsed, the result is the last address that a
    /// trusted proxy reported: the hops to its left cannot be trusted.
    pub fn told_by<'a>(
        peer: IpAddr,
        lines: impl DoubleEndedIterator<Item = &'a [u8]>,
        trusted: &TrustedProxies,
    ) -> Self {
        let mut known = peer.to_canonical();
        if !trusted.contains(known) {
            return Self::at(known, trusted);
        }
        let hops = lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
        for hop in hops.map(<[u8]>::trim_ascii).filter(|hop| !hop.is_empty()) {
            let Some(address) = parse_hop(hop) else { break };
            known = address;
            if !trusted.contains(known) {
                break;
            }
        }
        Self::at(known, trusted)
    }

    /// The client of this request.
    pub fn of(request: &HttpRequest, trusted: &TrustedProxies) -> Self {
        let Some(peer) = request.peer_addr() else { return Self::UNKNOWN };
        let lines = request.headers().get_all("x-forwarded-for").map(|line| line.as_bytes());
        Self::told_by(peer.ip(), lines.collect::<Vec<_>>().into_iter(), trusted)
    }

    /// The client at this address, as another program states it.
    pub fn at(address: IpAddr, trusted: &TrustedProxies) -> Self {
        let sent = address.to_canonical();
        Self { sent, counted: trusted.inside(sent).map_or(sent, IpAddr::V4) }
    }

    /// The address as it was sent. Lists of networks that admit somebody are about this one.
    pub const fn ip(self) -> IpAddr {
        self.sent
    }

    /// The address that counts: the IPv4 address inside it, if there is one.
    pub const fn counted_ip(self) -> IpAddr {
        self.counted
    }

    /// What limits count: the IPv4 address, or the /64 of an IPv6 address. A /64 is the least that one
    /// customer gets (RFC 6177), so choosing another address in it gains nothing.
    pub fn subject(self) -> SubjectBytes {
        self.first_bytes(4, 8)
    }

    /// The /24 of an IPv4 address or the /48 of an IPv6 one. A client with a whole /48 has 65,536 /64s to
    /// send from. So what costs money per use is counted by the network, too.
    pub fn network(self) -> SubjectBytes {
        self.first_bytes(3, 6)
    }

    fn first_bytes(self, of_v4: usize, of_v6: usize) -> SubjectBytes {
        let mut bytes = [0; 9];
        let length = match self.counted {
            IpAddr::V4(v4) => {
                bytes[0] = 4;
                bytes[1..=of_v4].copy_from_slice(&v4.octets()[..of_v4]);
                of_v4
            }
            IpAddr::V6(v6) => {
                bytes[0] = 6;
                bytes[1..=of_v6].copy_from_slice(&v6.octets()[..of_v6]);
                of_v6
            }
        };
        SubjectBytes { bytes, length: length as u8 + 1 }
    }

    /// Address and network, for what is counted by both.
    pub fn origin(self) -> RequestOrigin {
        RequestOrigin { address: self.subject().as_ref().to_vec(), network: self.network().as_ref().to_vec() }
    }

    /// For people to recognise, too coarse to track them: `203.0.113.0/24`, `2001:db8::/48`.
    pub fn masked(self) -> String {
        let length = if self.counted.is_ipv4() { 24 } else { 48 };
        IpNet::new(self.counted, length).expect("an address is longer").trunc().to_string()
    }
}

/// The client of a request in the form that limits count: one subject for its address, one for its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOrigin {
    /// The address; of an IPv6 one its /64.
    pub address: Vec<u8>,
    /// The /24 of an IPv4 address, the /48 of an IPv6 one.
    pub network: Vec<u8>,
}

/// An address for limits and keyed hashes: a byte for the family, then the counted part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubjectBytes {
    bytes: [u8; 9],
    length: u8,
}

impl AsRef<[u8]> for SubjectBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for SubjectBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectBytes(…)")
    }
}

/// Parses a hop as proxies write it: an address, with or without a port, with or without brackets. A zone
/// (`%eth0`) is dropped: it names a link of the proxy, not of the client.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    /// The longest plausible address with zone, brackets and port.
    const LONGEST: usize = 80;
    let text = std::str::from_utf8(hop).ok().filter(|text| text.len() <= LONGEST)?;
    if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        let port_is_sane =
            port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok());
        return port_is_sane.then(|| parse_v6(address)).flatten();
    }
    if let Ok(SocketAddr::V4(with_port)) = text.parse() {
        return Some(IpAddr::V4(*with_port.ip()));
    }
    match text.parse::<Ipv4Addr>() {
        Ok(v4) => Some(IpAddr::V4(v4)),
        Err(_) => parse_v6(text),
    }
}

fn parse_v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _zone)| address);
    address.parse::<Ipv6Addr>().ok().map(|v6| IpAddr::V6(v6).to_canonical())
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
