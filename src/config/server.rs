//! `[server]`: where Gatehouse listens, what it is called, and whose word it takes for addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use url::Url;

use super::reader::Section;
use super::values::{integer, network, origin, socket_address};

#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    pub bind: SocketAddr,
    /// Scheme, host and port alone. With https cookies are `Secure`.
    pub public_url: Url,
    /// Proxies whose word about the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// Who may read `/metrics`.
    pub metrics_from: Vec<IpNet>,
    /// Threads that serve requests; `None`: one for each core.
    pub workers: Option<usize>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            public_url: Url::parse("http://127.0.0.1:8080").expect("a URL"),
            trusted_proxies: Vec::new(),
            metrics_from: ["127.0.0.0/8", "::1/128"].map(|net| net.parse().expect("a network")).into(),
            workers: None,
        }
    }
}

impl Server {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        Self {
            bind: section.value("bind", default.bind, socket_address),
            public_url: section.value("public_url", default.public_url, origin),
            trusted_proxies: section.list("trusted_proxies", network).unwrap_or_default(),
            metrics_from: section.list("metrics_from", network).unwrap_or(default.metrics_from),
            workers: section.optional("workers", integer(1..=1024)).map(|workers| workers as usize),
        }
    }

    /// Whether nobody but this machine can reach the server.
    pub fn on_loopback(&self) -> bool {
        match self.bind.ip().to_canonical() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        }
    }
}
