//! The client's address, from the peer and from trusted proxies.
//!
//! Only `X-Forwarded-For` is read, and only if the TCP peer is one of `server.trusted_proxies`. The
//! `Forwarded` header (RFC 7239) is ignored: few proxies set it. A proxy that does not know it passes the
//! client's own header through, so clients could forge it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use actix_web::HttpRequest;
use ipnet::{IpNet, Ipv4Net};

/// The networks of the proxies whose `X-Forwarded-For` is trusted.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Proxies in these networks are believed, and nobody else.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().map(unmapped).collect())
    }

    /// Whether it is the address of one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
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
/// client is one subject on a dual-stack socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(IpAddr);

impl ClientAddress {
    /// A connection without an address (a Unix socket). All of them count as one.
    pub const UNKNOWN: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

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
            return Self(known);
        }
        let hops = lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
        for hop in hops.map(<[u8]>::trim_ascii).filter(|hop| !hop.is_empty()) {
            let Some(address) = parse_hop(hop) else { break };
            known = address;
            if !trusted.contains(known) {
                break;
            }
        }
        Self(known)
    }

    /// The client of this request.
    pub fn of(request: &HttpRequest, trusted: &TrustedProxies) -> Self {
        let Some(peer) = request.peer_addr() else { return Self::UNKNOWN };
        let lines = request.headers().get_all("x-forwarded-for").map(|line| line.as_bytes());
        Self::told_by(peer.ip(), lines.collect::<Vec<_>>().into_iter(), trusted)
    }

    /// The client of another program, as that states it.
    pub fn stated(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }

    /// The address itself.
    pub const fn ip(self) -> IpAddr {
        self.0
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
        let length = match self.0 {
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
        let length = if self.0.is_ipv4() { 24 } else { 48 };
        IpNet::new(self.0, length).expect("an address is longer").trunc().to_string()
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
