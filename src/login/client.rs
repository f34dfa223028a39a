//! What is stored about a sign-in's client: enough to recognise a place, too little to find it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::KnownDevices;

const MAX_USER_AGENT_CHARS: usize = 200;

/// The client of one request: as its account's owner sees it later, and its known devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInClient {
    pub(super) network: String,
    pub(super) user_agent: String,
    pub(super) devices: KnownDevices,
}

impl SignInClient {
    /// Masks the address to its /24 (IPv6: /48) and cuts the user agent to 200 characters, so that nothing
    /// that must not be stored goes further.
    pub fn new(address: IpAddr, user_agent: &str) -> Self {
        let user_agent = user_agent.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT_CHARS).collect();
        Self { network: network(address), user_agent, devices: KnownDevices::default() }
    }

    /// The browser has signed in before.
    pub fn known_as(self, devices: KnownDevices) -> Self {
        Self { devices, ..self }
    }
}

fn network(address: IpAddr) -> String {
    let address = address.to_canonical();
    let prefix = if address.is_ipv4() { 24 } else { 48 };
    IpNet::new(address, prefix).expect("24 of 32 bits, 48 of 128").trunc().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_masked() {
        let network = |address: &str| SignInClient::new(address.parse().unwrap(), "").network;
        assert_eq!(network("203.0.113.77"), "203.0.113.0/24");
        assert_eq!(network("::ffff:203.0.113.77"), "203.0.113.0/24", "IPv4 in IPv6's clothes");
        assert_eq!(network("2001:db8:0:42::1"), "2001:db8::/48");
    }

    #[test]
    fn a_user_agent_is_cut_and_cleaned() {
        let agent = |text: &str| SignInClient::new(IpAddr::from([127, 0, 0, 1]), text).user_agent;
        assert_eq!(agent("Mozilla\0/5.0\r\n"), "Mozilla/5.0");
        assert_eq!(agent(&"é".repeat(10_000)).chars().count(), 200);
    }
}
