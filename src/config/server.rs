//! `[server]`: the listening address, the public URL, and the trusted proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use url::Url;

use super::reader::{ListOf, NoDefault};
use super::section::section;
use super::values::{integer, network, origin, socket_address};

section! {
    Server in "server" {
        bind: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), socket_address;
        /// Only scheme, host and port. With https, cookies are `Secure`.
        public_url: Url = Url::parse("http://127.0.0.1:8080").expect("a URL"), origin;
        /// Proxies whose information about the client's address is believed.
        trusted_proxies: Vec<IpNet> = Vec::new(), ListOf(network);
        /// Who may read `/metrics`.
        metrics_from: Vec<IpNet> =
            ["127.0.0.0/8", "::1/128"].map(|net| net.parse().expect("a network")).into(), ListOf(network);
        /// Threads that serve requests; `None`: one for each core.
        workers: Option<usize> = None, NoDefault(integer(1..=1024));
    }
}

impl Server {
    /// Whether only this machine can reach the server.
    pub fn on_loopback(&self) -> bool {
        match self.bind.ip().to_canonical() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        }
    }
}
