//! The networks of `[access]`: which are refused, and how an address is found among many.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::AccessNetwork;
use crate::clock::Micros;
use crate::config::document::ValueNode;
use crate::config::reader::ParseResult;
use crate::config::values::unmapped;

/// The largest blocks that registries hand to one provider are an IPv4 /8 (IANA, "IPv4 Address Space Registry") and
/// an IPv6 /19 (RIPE NCC: 2003::/19, 2a01:c000::/19). Whatever is wider covers several.
const WIDEST_V4: u8 = 8;
const WIDEST_V6: u8 = 19;

/// A network, or a single address; an IPv4 one that is written as IPv6 is taken as IPv4.
pub(super) fn parse(node: ValueNode, proxies: &[IpNet]) -> ParseResult<IpNet> {
    let text = node.text()?;
    let written = text.trim();
    let parsed = written.parse::<IpNet>().or_else(|_| written.parse::<IpAddr>().map(IpNet::from));
    let network = unmapped(parsed.map_err(|_| {
        format!("{text:?} is not a network; write it as \"203.0.113.0/24\" or \"2001:db8::/32\"")
    })?);
    if network.prefix_len() == 0 {
        return Err(format!("{network} covers every address; name the networks that the attack comes from"));
    }
    let (widest, family) = match network {
        IpNet::V4(_) => (WIDEST_V4, "IPv4"),
        IpNet::V6(_) => (WIDEST_V6, "IPv6"),
    };
    if network.prefix_len() < widest {
        return Err(format!(
            "{network} is too wide; the widest {family} network is a /{widest}, which is as much as one provider gets"
        ));
    }
    if network != network.trunc() {
        let (short, one) = (network.trunc(), IpNet::from(network.addr()));
        return Err(format!(
            "{network} is an address within a network; write {short} for the network, or {one}"
        ));
    }
    let overlaps = |proxy: &&IpNet| {
        let proxy = unmapped(**proxy);
        proxy.contains(&network) || network.contains(&proxy)
    };
    match proxies.iter().find(overlaps) {
        Some(proxy) => Err(format!(
            "{network} overlaps {proxy} in server.trusted_proxies; name the clients' network, not the proxy's"
        )),
        None => Ok(network),
    }
}

/// Networks and when each ends. A look-up takes a step for each length among them, not for each network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NetworkTable {
    v4: Vec<u8>,
    v6: Vec<u8>,
    ends: HashMap<IpNet, Micros>,
}

impl NetworkTable {
    pub fn of(networks: &[AccessNetwork]) -> Self {
        let mut table = Self::default();
        for AccessNetwork { network, until, .. } in networks {
            let lengths = if network.addr().is_ipv4() { &mut table.v4 } else { &mut table.v6 };
            if !lengths.contains(&network.prefix_len()) {
                lengths.push(network.prefix_len());
            }
            let end = table.ends.entry(*network).or_insert(*until);
            *end = (*end).max(*until);
        }
        table
    }

    /// Whether a network that has not ended contains the address.
    pub fn contains(&self, address: IpAddr, now: Micros) -> bool {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.iter().any(|length| {
            let network = IpNet::new_assert(address, *length).trunc();
            self.ends.get(&network).is_some_and(|until| now < *until)
        })
    }
}
