//! The file with which a reverse proxy asks Gatehouse, with the names of this installation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use askama::Template;
use strum::{EnumString, IntoStaticStr};
use url::{Host, Url};

use crate::config::{App, Apps, Server, host_of};

/// A file of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum ProxyFile {
    Nginx,
    Caddy,
    Haproxy,
    /// The script by which HAProxy asks.
    HaproxyLua,
    Traefik,
    Envoy,
}

/// Why there is no file yet, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFileError {
    #[error("apps: is empty; name an application, its hosts and who may use it in [[apps]]")]
    NoApps,
    #[error("app: {asked:?} is not the name of an application; {known}")]
    UnknownApp { asked: String, known: String },
    #[error("apps: {0:?} has no hosts, so that no proxy asks about it")]
    NoHosts(String),
    #[error(
        "apps.hosts: {0:?} is an address; a proxy tells applications apart by names, such as \"wiki.example\""
    )]
    NoName(String),
    #[error(
        "server.trusted_proxies: lacks the address of the proxy, so that it would get no answer; add {0:?} for one on this machine"
    )]
    Untrusted(&'static str),
}

/// A host for which the proxy listens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Site {
    /// The host as browsers send it: with the port where it is not the scheme's own.
    host: String,
    name: String,
    port: u16,
}

/// What each file says in its own way.
struct Setup {
    /// The host of `server.public_url`; None if Gatehouse itself listens there.
    id: Option<Site>,
    apps: Vec<Site>,
    public_url: String,
    scheme: String,
    tls: bool,
    /// Where Gatehouse listens, as the proxy reaches it.
    gatehouse: SocketAddr,
}

macro_rules! templates {
    ($($name:ident $path:literal)+) => {
        $(#[derive(Template)]
        #[template(path = $path, escape = "none", whitespace = "preserve")]
        struct $name<'a> {
            it: &'a Setup,
        })+
    };
}

templates! {
    NginxFile "proxies/nginx.conf"
    CaddyFile "proxies/Caddyfile"
    HaproxyFile "proxies/haproxy.cfg"
    LuaFile "proxies/gatehouse.lua"
    TraefikFile "proxies/traefik.yml"
    EnvoyFile "proxies/envoy.yaml"
}

impl ProxyFile {
    pub const ALL: [Self; 6] =
        [Self::Nginx, Self::Caddy, Self::Haproxy, Self::HaproxyLua, Self::Traefik, Self::Envoy];

    /// Returns this file, and what it needs beside it.
    pub fn with_companion(self) -> impl Iterator<Item = Self> {
        [Some(self), (self == Self::Haproxy).then_some(Self::HaproxyLua)].into_iter().flatten()
    }

    /// Its text, for all applications or for one of them.
    pub fn print(self, server: &Server, apps: &Apps, only: Option<&str>) -> Result<String, ProxyFileError> {
        let it = &Setup::new(server, &chosen(apps, only)?)?;
        let rendered = match self {
            Self::Nginx => NginxFile { it }.render(),
            Self::Caddy => CaddyFile { it }.render(),
            Self::Haproxy => HaproxyFile { it }.render(),
            Self::HaproxyLua => LuaFile { it }.render(),
            Self::Traefik => TraefikFile { it }.render(),
            Self::Envoy => EnvoyFile { it }.render(),
        };
        let mut text = rendered.expect("text is written into a string");
        // Askama drops the newline at the end.
        text.push('\n');
        Ok(text)
    }
}

fn chosen(apps: &Apps, only: Option<&str>) -> Result<Vec<Arc<App>>, ProxyFileError> {
    let behind: Vec<_> = apps.all().iter().filter(|app| !app.hosts.is_empty()).map(Arc::clone).collect();
    match apps.all().first() {
        None => return Err(ProxyFileError::NoApps),
        Some(first) if behind.is_empty() => return Err(ProxyFileError::NoHosts(first.name.clone())),
        Some(_) => {}
    }
    let Some(asked) = only else { return Ok(behind) };
    match apps.named(asked) {
        Ok(app) if app.hosts.is_empty() => Err(ProxyFileError::NoHosts(app.name.clone())),
        Ok(app) => Ok(vec![Arc::clone(app)]),
        Err(known) => Err(ProxyFileError::UnknownApp { asked: asked.to_owned(), known }),
    }
}

impl Setup {
    fn new(server: &Server, apps: &[Arc<App>]) -> Result<Self, ProxyFileError> {
        let gatehouse = reached(server.bind);
        let trusted = |proxy: IpAddr| server.trusted_proxies.iter().any(|network| network.contains(&proxy));
        // A proxy elsewhere may have any address.
        if server.trusted_proxies.is_empty() || (server.on_loopback() && !trusted(gatehouse.ip())) {
            let own = if gatehouse.is_ipv6() { "::1/128" } else { "127.0.0.1/32" };
            return Err(ProxyFileError::Untrusted(own));
        }
        let (url, tls) = (&server.public_url, server.public_url.scheme() == "https");
        let sites = apps.iter().flat_map(|app| &app.hosts).map(|host| Site::parse(host, tls));
        Ok(Self {
            id: host_of(url)
                .filter(|_| !listens_at(server, url))
                .map(|host| Site::parse(&host, tls))
                .transpose()?,
            apps: sites.collect::<Result<_, _>>()?,
            public_url: url.as_str().trim_end_matches('/').to_owned(),
            scheme: url.scheme().to_owned(),
            tls,
            gatehouse,
        })
    }

    fn sites(&self) -> impl Iterator<Item = &Site> {
        self.id.iter().chain(&self.apps)
    }

    fn ports(&self) -> std::collections::BTreeSet<u16> {
        self.sites().map(|site| site.port).collect()
    }

    /// A condition of HAProxy.
    fn known(&self) -> String {
        self.sites().map(|site| site.host.as_str()).collect::<Vec<_>>().join(" or ")
    }
}

impl Site {
    fn parse(host: &str, tls: bool) -> Result<Self, ProxyFileError> {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !host.ends_with(']') => (name, port.parse().ok()),
            _ => (host, None),
        };
        match Host::parse(name) {
            Ok(Host::Domain(_)) => {
                let port = port.unwrap_or(if tls { 443 } else { 80 });
                Ok(Self { host: host.to_owned(), name: name.to_owned(), port })
            }
            _ => Err(ProxyFileError::NoName(host.to_owned())),
        }
    }
}

/// One that listens everywhere is reached at this machine.
fn reached(bind: SocketAddr) -> SocketAddr {
    let address = match bind.ip() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    SocketAddr::new(address, bind.port())
}

/// Whether the public URL leads to Gatehouse itself, where no proxy can listen.
fn listens_at(server: &Server, url: &Url) -> bool {
    let (bind, loopback) = (server.bind, server.on_loopback());
    let here = match url.host() {
        Some(Host::Ipv4(address)) => bind.ip() == address,
        Some(Host::Ipv6(address)) => bind.ip() == address,
        Some(Host::Domain(name)) => loopback && name == "localhost",
        None => false,
    };
    let same_port = url.scheme() == "http" && url.port_or_known_default() == Some(bind.port());
    same_port && (here || bind.ip().is_unspecified())
}

#[cfg(test)]
#[path = "proxy_file_tests.rs"]
mod tests;
