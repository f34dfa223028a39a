//! `[server]`: the listening address, the public URL, and the trusted proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use url::{Host, Url};

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

    /// The domain of the public URL; None if it is an address or this machine.
    pub fn domain(&self) -> Option<String> {
        match self.public_url.host()? {
            Host::Domain(name) if name != "localhost" => Some(name.to_owned()),
            _ => None,
        }
    }

    /// Why browsers that follow the public URL do not arrive here, as far as that is certain. With https or
    /// trusted proxies another server is in front, and the two rightly differ.
    pub fn url_mismatch(&self) -> Option<String> {
        let (url, bind) = (&self.public_url, self.bind);
        if url.scheme() != "http" || !self.trusted_proxies.is_empty() {
            return None;
        }
        let (is_local, is_address) = match url.host()? {
            Host::Domain(name) => (name == "localhost", name == "localhost"),
            Host::Ipv4(address) => (address.is_loopback(), true),
            Host::Ipv6(address) => (address.is_loopback(), true),
        };
        let shown = url.as_str().trim_end_matches('/');
        if is_address && url.port_or_known_default() != Some(bind.port()) {
            return Some(format!(
                "server.public_url is {shown}, but server.bind is {bind}: browsers are sent to another port than the one that is listened on; write the port that they use into public_url"
            ));
        }
        (!is_local && self.on_loopback()).then(|| {
            format!(
                "server.public_url is {shown}, but server.bind is {bind}, which only this machine reaches; bind an address that others reach, or name the proxy in front in server.trusted_proxies"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mismatch(url: &str, bind: &str, proxies: &[&str]) -> Option<String> {
        let server = Server {
            public_url: Url::parse(url).unwrap(),
            bind: bind.parse().unwrap(),
            trusted_proxies: proxies.iter().map(|net| net.parse().unwrap()).collect(),
            ..Server::default()
        };
        server.url_mismatch()
    }

    #[test]
    fn a_public_url_that_does_not_lead_here_is_told() {
        assert_eq!(Server::default().url_mismatch(), None);
        for (url, bind) in [
            ("http://127.0.0.1:8080", "127.0.0.1:9090"),
            ("http://localhost", "127.0.0.1:8080"),
            ("http://192.0.2.7:8080", "0.0.0.0:80"),
            ("http://[::1]:8080", "[::1]:8081"),
            ("http://192.0.2.7:8080", "127.0.0.1:8080"),
            ("http://login.example:8080", "127.0.0.1:8080"),
        ] {
            let told = mismatch(url, bind, &[]).unwrap_or_else(|| panic!("{url} at {bind}"));
            assert!(told.contains(url) && told.contains(bind), "{told}");
        }
    }

    #[test]
    fn behind_a_proxy_the_two_rightly_differ() {
        for (url, bind, proxies) in [
            ("https://login.example", "127.0.0.1:8080", &[][..]),
            ("http://login.example", "0.0.0.0:8080", &[]),
            ("http://login.example", "127.0.0.1:8080", &["127.0.0.0/8"]),
            ("http://192.0.2.7:8080", "192.0.2.7:8080", &[]),
            ("http://localhost:8080", "127.0.0.1:8080", &[]),
            ("http://127.0.0.1:8080", "0.0.0.0:8080", &[]),
        ] {
            assert_eq!(mismatch(url, bind, proxies), None, "{url} at {bind}");
        }
    }

    #[test]
    fn codes_are_bound_to_a_domain_and_to_nothing_else() {
        let domain =
            |url: &str| Server { public_url: Url::parse(url).unwrap(), ..Server::default() }.domain();
        assert_eq!(domain("https://login.example:8443").as_deref(), Some("login.example"));
        for none in ["http://127.0.0.1:8080", "http://[::1]", "http://localhost:8080"] {
            assert_eq!(domain(none), None, "{none}");
        }
    }
}
