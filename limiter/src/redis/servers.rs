//! Which Redis servers keep the windows: one, the master that Sentinels name, or a cluster. Read from a URL.

use std::fmt;

use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError};
use url::Url;

/// Where each kind of server listens by default.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const IN_A_PASSWORD: &str = "in a password, write \"?\" as %3F and \"#\" as %23";
const SCHEMES: &str =
    "use memory:, redis://, redis-sentinel:// or redis-cluster://, or rediss instead of redis for TLS";

/// The address of Redis servers, and who we are there.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    deployment: RedisDeployment,
    tls: bool,
    /// One URL a host, all with the same user and password.
    hosts: Vec<Url>,
}

/// How the servers stand together.
#[derive(Clone, PartialEq, Eq)]
enum RedisDeployment {
    /// One server.
    Standalone,
    /// The hosts are Sentinels; they name the master.
    Sentinel(SentinelAccount),
    /// The hosts are some of the nodes of a cluster.
    Cluster,
}

/// Our account at the Sentinels, which have accounts of their own, and what master we ask for.
#[derive(Clone, PartialEq, Eq)]
struct SentinelAccount {
    master: String,
    user: Option<String>,
    password: Option<String>,
}

impl RedisUrl {
    /// Reads `redis://user:password@host:6379/0`, `redis-sentinel://user:password@h1:26379,h2:26379/master` (with
    /// `?sentinel_user=` and `sentinel_password=`) or `redis-cluster://user:password@h1:7000,h2:7001`; `rediss`
    /// instead of `redis` for TLS. The error says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("is not a URL; {SCHEMES}"))?;
        let (tls, kind) = match scheme.strip_prefix("rediss") {
            Some(kind) => (true, kind),
            None => (false, scheme.strip_prefix("redis").unwrap_or("other")),
        };
        let usage = match kind {
            "" => "write it as \"redis://user:password@host:6379/0\"",
            "-sentinel" => {
                "write it as \"redis-sentinel://user:password@host1:26379,host2:26379/name-of-the-master\""
            }
            "-cluster" => "write it as \"redis-cluster://user:password@host1:7000,host2:7001\"",
            _ => return Err(format!("has the scheme {scheme:?}; {SCHEMES}")),
        };
        if rest.contains('#') {
            return Err(format!(
                "has a part after \"#\", which means nothing here; {IN_A_PASSWORD}; {usage}"
            ));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let deployment = deployment(kind, path, query).map_err(|wrong| format!("{wrong}; {usage}"))?;
        let (account, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let port = if kind == "-sentinel" { SENTINEL_PORT } else { REDIS_PORT };
        let path = if deployment == RedisDeployment::Standalone { path } else { "" };
        let hosts: Result<Vec<Url>, String> =
            hosts.split(',').map(|host| host_url(tls, account, host, port, path)).collect();
        let hosts = hosts.map_err(|wrong| format!("{wrong}; {usage}"))?;
        if deployment == RedisDeployment::Standalone && hosts.len() > 1 {
            return Err("names several hosts; use redis-sentinel:// or redis-cluster:// for those".to_owned());
        }
        Ok(Self { deployment, tls, hosts })
    }

    /// Whether Sentinels name the server.
    pub const fn is_sentinel(&self) -> bool {
        matches!(self.deployment, RedisDeployment::Sentinel(_))
    }

    /// The servers at this address. `roots` are certificates in PEM that may have signed theirs; without any,
    /// Mozilla's.
    pub fn servers(&self, roots: Option<Vec<u8>>) -> Result<RedisServers, RedisError> {
        if roots.is_some() && cfg!(not(feature = "redis-tls")) {
            return Err((
                ErrorKind::InvalidClientConfig,
                "roots can be given with the feature `redis-tls` only",
            )
                .into());
        }
        let roots = RootCertificates(roots.filter(|_| self.tls));
        match &self.deployment {
            RedisDeployment::Standalone => roots.client(self.hosts[0].clone()).map(RedisServers::Standalone),
            RedisDeployment::Sentinel(account) => {
                let (hosts, tls, account) = (self.hosts.clone(), self.tls, account.clone());
                let servers = SentinelServers { hosts, tls, account, roots };
                servers.client().map(|_| RedisServers::Sentinel(servers))
            }
            RedisDeployment::Cluster => {
                let servers = ClusterServers { hosts: self.hosts.clone(), roots };
                servers.builder().build().map(|_| RedisServers::Cluster(servers))
            }
        }
    }
}

/// Without the passwords, so that a debug line does not reveal them.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, path) = match &self.deployment {
            RedisDeployment::Standalone => ("", self.hosts[0].path().to_owned()),
            RedisDeployment::Sentinel(account) => ("-sentinel", format!("/{}", account.master)),
            RedisDeployment::Cluster => ("-cluster", String::new()),
        };
        let host =
            |url: &Url| format!("{}:{}", url.host_str().unwrap_or_default(), url.port().unwrap_or_default());
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        write!(f, "redis{}{kind}://{}{path}", if self.tls { "s" } else { "" }, hosts.join(","))
    }
}

fn deployment(kind: &str, path: &str, query: &str) -> Result<RedisDeployment, String> {
    let (mut user, mut password) = (None, None);
    // A form writes a blank as a plus sign; in a password it is one.
    let query = query.replace('+', "%2B");
    // The text is not repeated: it may be the end of a password.
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match (&*name, kind) {
            ("sentinel_user", "-sentinel") => user = Some(value.into_owned()),
            ("sentinel_password", "-sentinel") => password = Some(value.into_owned()),
            (_, "-sentinel") => {
                return Err("has a parameter other than sentinel_user and sentinel_password".to_owned());
            }
            _ => return Err(format!("has parameters, which mean nothing here; {IN_A_PASSWORD}")),
        }
    }
    if user.is_some() && password.is_none() {
        return Err("has a sentinel_user without a sentinel_password".to_owned());
    }
    match kind {
        "-sentinel" if path.is_empty() || path.contains('/') => {
            Err("does not end with the name of the master".to_owned())
        }
        "-sentinel" => {
            // Decoded as a form's value is, but for the plus sign.
            let named = format!("name={}", path.replace('+', "%2B"));
            let (_, master) = url::form_urlencoded::parse(named.as_bytes()).next().unwrap_or_default();
            Ok(RedisDeployment::Sentinel(SentinelAccount { master: master.into_owned(), user, password }))
        }
        "-cluster" if !path.is_empty() => Err("has a path; a cluster has only one database".to_owned()),
        "-cluster" => Ok(RedisDeployment::Cluster),
        _ if !path.is_empty() && path.parse::<u16>().is_err() => {
            Err("has a path that is not a database number".to_owned())
        }
        _ => Ok(RedisDeployment::Standalone),
    }
}

fn host_url(tls: bool, account: &str, host: &str, port: u16, path: &str) -> Result<Url, String> {
    let scheme = if tls { "rediss" } else { "redis" };
    let account = if account.is_empty() { String::new() } else { format!("{account}@") };
    let mut url = Url::parse(&format!("{scheme}://{account}{host}/{path}"))
        .map_err(|wrong| format!("is not a URL ({wrong})"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".to_owned());
    }
    if url.port().is_none() && url.set_port(Some(port)).is_err() {
        return Err("names a host that can have no port".to_owned());
    }
    url.clone().into_connection_info().map_err(|wrong| format!("is not usable ({wrong})"))?;
    Ok(url)
}

/// Servers to connect to.
#[derive(Clone)]
pub enum RedisServers {
    /// One server.
    Standalone(Client),
    /// The master that Sentinels name.
    Sentinel(SentinelServers),
    /// The masters of a cluster.
    Cluster(ClusterServers),
}

impl From<Client> for RedisServers {
    fn from(client: Client) -> Self {
        Self::Standalone(client)
    }
}

/// The master that Sentinels name.
#[derive(Clone)]
pub struct SentinelServers {
    hosts: Vec<Url>,
    tls: bool,
    account: SentinelAccount,
    roots: RootCertificates,
}

impl SentinelServers {
    /// Asks the Sentinels each time a client is wanted.
    pub fn client(&self) -> Result<SentinelClient, RedisError> {
        let SentinelAccount { master, user, password } = &self.account;
        let infos: Result<Vec<ConnectionInfo>, _> =
            self.hosts.iter().map(|host| host.clone().into_connection_info()).collect();
        let infos = infos?;
        let addresses: Vec<ConnectionAddr> = infos.iter().map(|info| info.addr().clone()).collect();
        let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
        let at_redis = infos[0].redis_settings();
        if let Some(name) = at_redis.username() {
            builder = builder.set_client_to_redis_username(name);
        }
        if let Some(word) = at_redis.password() {
            builder = builder.set_client_to_redis_password(word);
        }
        if let Some(name) = user {
            builder = builder.set_client_to_sentinel_username(name);
        }
        if let Some(word) = password {
            builder = builder.set_client_to_sentinel_password(word);
        }
        self.roots.sentinels(builder, self.tls).build()
    }
}

/// The nodes of a cluster.
#[derive(Clone)]
pub struct ClusterServers {
    hosts: Vec<Url>,
    roots: RootCertificates,
}

impl ClusterServers {
    /// Connects to them as a cluster.
    pub fn builder(&self) -> ClusterClientBuilder {
        self.roots.cluster(ClusterClientBuilder::new(self.hosts.clone()))
    }

    /// The nodes that the URL names, one by one: for what is not tied to a slot.
    pub fn nodes(&self) -> Result<Vec<Client>, RedisError> {
        self.hosts.iter().map(|host| self.roots.client(host.clone())).collect()
    }
}

/// In PEM; none: Mozilla's. Without the feature `redis-tls` there are none, and TLS is as the `redis` crate was built.
#[derive(Clone)]
#[cfg_attr(not(feature = "redis-tls"), expect(dead_code, reason = "there are none without it"))]
struct RootCertificates(Option<Vec<u8>>);

impl RootCertificates {
    #[cfg(feature = "redis-tls")]
    fn certificates(&self) -> Option<redis::TlsCertificates> {
        let root_cert = Some(self.0.clone()?);
        Some(redis::TlsCertificates { client_tls: None, root_cert })
    }

    fn client(&self, url: Url) -> Result<Client, RedisError> {
        #[cfg(feature = "redis-tls")]
        if let Some(certificates) = self.certificates() {
            return Client::build_with_tls(url, certificates);
        }
        Client::open(url)
    }

    fn sentinels(&self, mut builder: SentinelClientBuilder, tls: bool) -> SentinelClientBuilder {
        if tls {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
        #[cfg(feature = "redis-tls")]
        if let Some(certificates) = self.certificates() {
            return builder
                .set_client_to_sentinel_certificates(certificates.clone())
                .set_client_to_redis_certificates(certificates);
        }
        builder
    }

    fn cluster(&self, builder: ClusterClientBuilder) -> ClusterClientBuilder {
        #[cfg(feature = "redis-tls")]
        if let Some(certificates) = self.certificates() {
            return builder.certs(certificates);
        }
        builder
    }
}
