//! The sections that are one table each: `[server]`, `[database]`, `[store]`, `[secrets]`, `[password]`, `[session]`,
//! `[login]` and `[registration]` (live), `[captcha]` (the provider is fixed until a restart, the rest is live), `[audit]`,
//! `[telemetry]`.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use gatehouse_limiter::RedisUrl;
use gatehouse_limiter::middleware::Nat64Prefix;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::access::{WIDEST_V4, WIDEST_V6};
use super::document::ValueNode;
use super::error::ConfigLocation;
use super::reader::{ListOf, ParseResult, SectionReader, SectionTable, WithinSection, section};
use super::values::{
    DAY, HOUR, MINUTE, SECOND, SecretRef, duration, half_covered, header, if_any, integer, is_this_machine,
    nat64_prefix, network, origin, path, share, shown, socket_address, text, without_password, word,
    yes_or_no,
};
use crate::unseen::is_unseen;
use crate::webauthn::RelyingParty;

section! {
    Server in "server" {
        bind: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), socket_address;
        /// Only scheme, host and port. With https, cookies are `Secure`.
        public_url: Url = Url::parse("http://127.0.0.1:8080").expect("a URL"), origin;
        /// Proxies whose information about the client's address is believed.
        trusted_proxies: Vec<IpNet> = Vec::new(), ListOf(network);
        /// The proxies may cover half of all addresses or more: nobody but proxies can connect.
        trust_everyone: bool = false, yes_or_no;
        /// Behind these prefixes translators put the addresses of IPv4 clients.
        nat64: Vec<Nat64Prefix> = vec![Nat64Prefix::WELL_KNOWN], ListOf(nat64_prefix);
        metrics_from: Vec<IpNet> =
            ["127.0.0.0/8", "::1/128"].map(|net| net.parse().expect("a network")).into(), ListOf(network);
        /// Threads that serve requests; `None`: one for each core.
        workers: Option<usize> = None, |node| integer(1..=1024)(node).map(Some);
    }
}

/// Networks of this machine's neighbours, however wide: of IPv4 none is wider than a /8.
const PRIVATE_V6: &str = "fc00::/7";

/// Reads `[server]`, and refuses or warns of networks that are too wide to be those of proxies.
pub(super) fn read_server(section: &mut SectionReader<'_>) -> Server {
    let server = Server::read(section);
    let private: IpNet = PRIVATE_V6.parse().expect("a network");
    let is_wide = |network: &&IpNet| {
        let widest = if network.addr().is_ipv4() { WIDEST_V4 } else { WIDEST_V6 };
        network.prefix_len() < widest && !private.contains(*network)
    };
    match (half_covered(&server.trusted_proxies), server.trust_everyone) {
        (Some(family), false) => section.refuse_key(
            "trusted_proxies",
            format!(
                "covers half of all {family} addresses or more, so clients could say that they are anybody, and limits of addresses would stop nobody; name the networks of the proxies. If only proxies can connect to this server, set server.trust_everyone = true"
            ),
        ),
        (Some(family), true) => section.warn_key(
            "trusted_proxies",
            format!(
                "covers half of all {family} addresses or more, as server.trust_everyone allows: whoever can connect to this server may say that they are anybody. Let nobody but proxies connect to it"
            ),
        ),
        (None, _) => {
            if let Some(wide) = server.trusted_proxies.iter().find(is_wide) {
                let reason = format!(
                    "trusts {wide}, which is more than one provider has: every client in it may say that it is anybody; name the networks of the proxies"
                );
                section.warn_key("trusted_proxies", reason);
            }
        }
    }
    if let Some(family) = half_covered(&server.metrics_from) {
        let reason = format!(
            "covers half of all {family} addresses or more: anybody may read the metrics; name who does"
        );
        section.warn_key("metrics_from", reason);
    }
    server
}

impl Server {
    /// Whether only this machine can reach the server.
    pub fn on_loopback(&self) -> bool {
        self.bind.ip().to_canonical().is_loopback()
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

section! {
    Database in "database" {
        url: DatabaseUrl = DatabaseUrl::default(), database_url;
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    Sqlite(SqliteFile),
    Postgres(Url),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqliteFile {
    /// Created, with its folder, if it is missing.
    Path(PathBuf),
    /// Lost when the process ends.
    Memory,
}

impl Default for DatabaseUrl {
    fn default() -> Self {
        Self::Sqlite(SqliteFile::Path("data/gatehouse.db".into()))
    }
}

/// Without the password, so that a debug line does not reveal it.
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(SqliteFile::Path(path)) => write!(f, "sqlite://{}", path.display()),
            Self::Sqlite(SqliteFile::Memory) => f.write_str("sqlite::memory:"),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

fn database_url(node: ValueNode) -> ParseResult<DatabaseUrl> {
    let text = text(node)?;
    if let Some(rest) = text.strip_prefix("sqlite:") {
        return sqlite_file(rest.strip_prefix("//").unwrap_or(rest)).map(DatabaseUrl::Sqlite);
    }
    match text.split_once(':') {
        Some(("postgres" | "postgresql", _)) => Url::parse(&with_host(&text))
            .map_err(|wrong| format!("is not a URL ({wrong}); write it as \"postgres://user@host/name\""))
            .and_then(postgres_url),
        Some((scheme, _)) => Err(format!("has the scheme {scheme:?}; it must be sqlite or postgres")),
        None => {
            Err("is not a URL; write it as \"sqlite://data/gatehouse.db\" or \"postgres://user@host/name\""
                .to_owned())
        }
    }
}

/// libpq takes `user@/name?host=…`, where the host comes later; a URL has to have one after `@`. The later one counts.
fn with_host(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((user, port)) if (port.is_empty() || port.starts_with(':')) && target.contains("host=") => {
            format!("{scheme}://{user}@localhost{port}{target}").into()
        }
        _ => text.into(),
    }
}

/// A server that takes no writes is refused in any case, so what asks for that is taken out, and what asks for another
/// is a mistake.
fn postgres_url(mut url: Url) -> ParseResult<DatabaseUrl> {
    const SERVER: &str = "target_session_attrs";
    if url.host_str().is_some_and(|host| host.contains(',')) {
        return Err("names several hosts; name one that leads to the server that takes writes".to_owned());
    }
    let (wanted, others): (Vec<_>, Vec<_>) =
        url.query_pairs().into_owned().partition(|(key, _)| key == SERVER);
    if let Some((_, other)) = wanted.iter().find(|(_, value)| value != "read-write" && value != "primary") {
        return Err(format!(
            "has {SERVER}={other}, but only a server that takes writes can be used; write {SERVER}=read-write, or leave it out"
        ));
    }
    if !wanted.is_empty() {
        url.set_query(None);
        for (key, value) in others {
            url.query_pairs_mut().append_pair(&key, &value);
        }
    }
    Ok(DatabaseUrl::Postgres(url))
}

fn sqlite_file(rest: &str) -> ParseResult<SqliteFile> {
    match rest {
        ":memory:" => Ok(SqliteFile::Memory),
        "" => Err("names no file; write it as \"sqlite://data/gatehouse.db\"".to_owned()),
        _ if rest.contains('?') => {
            Err("has options after `?`; remove them, Gatehouse sets its own".to_owned())
        }
        path => Ok(SqliteFile::Path(path.into())),
    }
}

section! {
    StoreSettings in "store" {
        url: StoreUrl = StoreUrl::Memory, store_url;
        /// Certificates in PEM that may have signed those of the servers, beside Mozilla's roots.
        ca_file: Option<PathBuf> = None, if_any(path);
        /// After this time the store counts as down for the call.
        timeout: Duration = Duration::from_millis(100), duration(Duration::from_millis(10)..=SECOND * 5);
        /// Redis is used although it forgets keys when its memory is full.
        allow_eviction: bool = false, yes_or_no;
    }
}

#[derive(Clone, PartialEq, Eq, Default)]
pub enum StoreUrl {
    /// In this process: for a single instance, and lost when it ends.
    #[default]
    Memory,
    Redis(RedisUrl),
}

/// Without the password, so that a debug line does not reveal it.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => url.fmt(f),
        }
    }
}

fn store_url(node: ValueNode) -> ParseResult<StoreUrl> {
    let text = text(node)?;
    if text == "memory:" {
        return Ok(StoreUrl::Memory);
    }
    redis_url(&text)
}

pub(super) fn redis_url(text: &str) -> ParseResult<StoreUrl> {
    RedisUrl::parse(text).map(StoreUrl::Redis)
}

section! {
    Secrets in "secrets" {
        /// 32 bytes; created at the first start with mode 0600.
        key_file: PathBuf = "data/secret.key".into(), path;
    }
}

section! {
    /// The cost is OWASP's for argon2id (Password Storage Cheat Sheet: m = 19 MiB, t = 2, p = 1).
    #[derive(Copy)]
    PasswordSettings in "password" {
        /// Memory of one verification, in KiB. From the least memory that OWASP lists (7 MiB, with more
        /// passes) to 1 GiB, which takes seconds.
        memory_kib: u32 = 19_456, integer(7_168..=1_048_576);
        iterations: u32 = 2, integer(1..=64);
        /// Lanes of one verification.
        parallelism: u32 = 1, integer(1..=16);
        /// Verifications that may wait for their turn; beyond this the answer is 503.
        queue: usize = 256, integer(1..=65_536);
        /// Simultaneous verifications, each of which keeps `memory_kib` of memory. If left out: one for each
        /// core.
        workers: usize = cores(), integer(1..=1024);
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

section! {
    #[derive(Copy)]
    SessionSettings in "session" {
        /// A session that is not used for this long ends (up to a minute earlier: see `Session::last_seen`).
        idle: Duration = DAY * 14, duration(SECOND..=DAY * 366);
        /// A session ends this long after sign-in, however much it is used.
        absolute: Duration = DAY * 30, duration(SECOND..=DAY * 366);
        /// A change in the console requires that the password was entered within this time.
        confirm: Duration = MINUTE * 15, duration(MINUTE..=DAY);
    }
}

/// Reads `[session]`, and refuses values that can never be reached.
pub(super) fn read_session(section: &mut SectionReader<'_>) -> SessionSettings {
    let session = SessionSettings::read(section);
    if session.idle > session.absolute && !section.failed() {
        let absolute = shown(session.absolute);
        let reason = format!("is longer than session.absolute ({absolute}), so it can never be reached");
        section.refuse_key("idle", reason);
    }
    session
}

section! {
    PasskeySettings in "passkeys" {
        /// The domain that passkeys are for; the host of `server.public_url` if left out.
        rp_id: Option<String> = None, if_any(domain);
    }
}

impl PasskeySettings {
    /// What browsers make passkeys for; None where they have none: without a domain, or without https.
    pub fn site(&self, public_url: &Url) -> Option<RelyingParty> {
        let Some(Host::Domain(host)) = public_url.host() else { return None };
        let is_local = host == "localhost" || host.ends_with(".localhost");
        (is_local || public_url.scheme() == "https").then(|| RelyingParty {
            id: self.rp_id.clone().unwrap_or_else(|| host.to_owned()),
            origin: public_url.origin().ascii_serialization(),
        })
    }
}

fn domain(node: ValueNode) -> ParseResult<String> {
    let text = text(node)?;
    match Host::parse(&text) {
        Ok(Host::Domain(name)) => Ok(name),
        Ok(_) => Err("is an address; browsers make passkeys for domains only".to_owned()),
        Err(_) => Err("is not a domain; write it as \"example.org\"".to_owned()),
    }
}

/// Browsers take the page's host or a domain above it, and no public suffix: of these, those without a dot are told here.
pub(super) fn refuse_foreign_rp_id(
    root: &SectionReader<'_>,
    place: Option<ConfigLocation>,
    passkeys: &PasskeySettings,
    public_url: &Url,
) {
    let (Some(rp_id), Some(place)) = (&passkeys.rp_id, place) else { return };
    let host = public_url.host_str().unwrap_or_default();
    let is_above = host.strip_suffix(rp_id.as_str()).is_some_and(|rest| rest.ends_with('.'));
    if host != rp_id && !(is_above && rp_id.contains('.')) {
        let reason = format!(
            "is {rp_id:?}, but the host of server.public_url is {host:?}; it must be that or a domain above it"
        );
        root.refuse(place, "passkeys.rp_id".to_owned(), reason);
    }
}

section! {
    LoginTunables in "login" {
        /// Wrong passwords in a row after which an account's password is disabled; 0: never. The default is
        /// the most that NIST SP 800-63B-4 (3.2.2) allows.
        max_consecutive_failures: u32 = 100, integer(0..=100);
        /// A filter of lost passwords, as `gatehouse passwords build` makes it.
        breached: Option<PathBuf> = None, if_any(path);
        /// The most MiB of memory that the filter may take.
        breached_memory: u64 = 256, integer(1..=65_536);
        breached_then: BreachedAction = BreachedAction::Tell, word(&BreachedAction::WORDS);
    }
}

/// What follows a sign-in with a lost password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreachedAction {
    /// Its owner is told.
    Tell,
    /// Its owner has to choose another before everything else.
    Change,
}

impl BreachedAction {
    pub const WORDS: [(&'static str, Self); 2] = [("tell", Self::Tell), ("change", Self::Change)];
}

section! {
    RegistrationSettings in "registration" {
        mode: RegistrationMode = RegistrationMode::Open, word(&RegistrationMode::WORDS);
        /// What strangers prove before they have an account.
        require: Vec<RegistrationProof> = Vec::new(), ListOf(word(&[("email", RegistrationProof::Email)]));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationProof {
    /// A code that was sent to their e-mail address.
    Email,
}

impl RegistrationSettings {
    pub fn requires(&self, proof: RegistrationProof) -> bool {
        self.require.contains(&proof)
    }

    /// Whether a stranger who signs in by a code to a new number gets an account by that.
    pub fn takes_new_numbers(&self) -> bool {
        self.mode.is_open() && self.require.is_empty()
    }
}

/// The people who may have an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationMode {
    /// Anybody who registers, or signs in by a code sent to a new number.
    Open,
    /// People with an invitation.
    Invite,
    /// People for whom an administrator makes one.
    Closed,
}

impl RegistrationMode {
    pub const WORDS: [(&'static str, Self); 3] =
        [("open", Self::Open), ("invite", Self::Invite), ("closed", Self::Closed)];

    /// Whether strangers may make themselves one.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptchaProvider {
    /// Distorted letters, drawn by this process.
    #[default]
    Image,
    /// One answer every time, of 1 to 128 bytes without white space: for tests, on loopback only. The
    /// image is blank if a letter is not in the alphabet.
    Fixed { answer: String },
}

/// How much an image is distorted. Stock OCR reads some easy ones; hard ones cost people more than machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Difficulty {
    Easy,
    #[default]
    Medium,
    Hard,
}

const DIFFICULTIES: [(&str, Difficulty); 3] =
    [("easy", Difficulty::Easy), ("medium", Difficulty::Medium), ("hard", Difficulty::Hard)];

section! {
    CaptchaSettings in "captcha" {
        provider: CaptchaProvider = CaptchaProvider::Image, WithinSection(provider);
    }
}

section! {
    CaptchaTunables in "captcha" {
        difficulty: Difficulty = Difficulty::Medium, word(&DIFFICULTIES);
        /// How long a challenge can be solved. The longest proof of work takes a slow phone 15 s.
        ttl: Duration = MINUTE * 3, duration(SECOND * 30..=MINUTE * 60);
        proof_of_work: bool = true, yes_or_no;
        /// The contact for people who can do neither; none if empty.
        help: String = String::new(), contact;
    }
}

/// A line that is shown to everybody: an address to write to or to call, or a few words.
fn contact(node: ValueNode) -> ParseResult<String> {
    const LONGEST: usize = 200;
    let line = node.text()?.trim().to_owned();
    if line.contains(is_unseen) || line.chars().count() > LONGEST {
        return Err(format!(
            "must be one line of at most {LONGEST} characters: a URL (https:, mailto: or tel:) or text"
        ));
    }
    Ok(line)
}

fn provider(section: &mut SectionReader<'_>, key: &'static str) -> Option<CaptchaProvider> {
    let fixed = section.value(key, false, word(&[("image", false), ("fixed", true)]));
    let missing = "is missing; captcha.provider = \"fixed\" requires it: the answer to every challenge";
    let place = section.place_of(key).filter(|_| fixed);
    let answer = section.required_at(place, "fixed_answer", missing, text);
    answer.filter(|_| fixed).map(|answer| CaptchaProvider::Fixed { answer })
}

section! {
    AuditSettings in "audit" {
        retention: Duration = DAY * 30, duration(DAY..=DAY * 3660);
        /// Beyond this many rows the oldest events are deleted, whatever their age.
        max_rows: u32 = 10_000_000, integer(10_000..=1_000_000_000);
    }
}

section! {
    TelemetrySettings in "telemetry" {
        /// The base URL of a receiver of OTLP over HTTP; `None`: nothing is exported.
        otlp_endpoint: Option<Url> = None, if_any(endpoint);
        headers: Vec<(String, SecretRef)> = Vec::new(), WithinSection(headers);
        /// Certificates in PEM that may have signed the receiver's, beside Mozilla's roots.
        ca_file: Option<PathBuf> = None, if_any(path);
        service_name: String = "gatehouse".to_owned(), service_name;
        /// The part of the requests that is traced, unless a trusted proxy has decided.
        sample: f64 = 1.0, share;
        /// Between two exports of metrics; that of OpenTelemetry's SDKs.
        interval: Duration = MINUTE, duration(SECOND..=HOUR);
    }
}

fn endpoint(node: ValueNode) -> ParseResult<Url> {
    let text = node.text()?;
    if let Some(reason) = missing_exporter(cfg!(feature = "otlp")) {
        return Err(reason.to_owned());
    }
    let wanted = "write the base URL, as \"http://127.0.0.1:4318\"";
    let url = Url::parse(&text).map_err(|wrong| format!("is not a URL ({wrong}); {wanted}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; OTLP over HTTP needs http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a username or password; write them into telemetry.headers".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("has a part after ? or #; {wanted}"));
    }
    if url.path().ends_with("/v1/traces") || url.path().ends_with("/v1/metrics") {
        return Err(format!("ends with the path of a signal, which is added to it; {wanted}"));
    }
    Ok(url)
}

fn headers(section: &mut SectionReader<'_>, key: &'static str) -> Option<Vec<(String, SecretRef)>> {
    Some(section.section(key, |inner| inner.pairs(header)))
}

fn service_name(node: ValueNode) -> ParseResult<String> {
    let name = text(node)?;
    if name.len() > 255 || name.chars().any(char::is_control) {
        return Err("is not a name: it has more than 255 bytes, or a control character".to_owned());
    }
    Ok(name)
}

/// What a build without the exporter answers.
pub(super) fn missing_exporter(built_in: bool) -> Option<&'static str> {
    (!built_in).then_some(
        "is set, but this build does not export telemetry; build one that does: cargo build --release --features otlp",
    )
}

/// A header that is read from a variable or a file is a secret.
pub(super) fn refuse_secrets_in_clear(
    root: &SectionReader<'_>,
    place: Option<ConfigLocation>,
    settings: &TelemetrySettings,
) {
    let (Some(url), Some(place)) = (&settings.otlp_endpoint, place) else { return };
    let secret = settings.headers.iter().find(|(_, value)| !matches!(value, SecretRef::Literal(_)));
    if let (Some((name, _)), "http", false) = (secret, url.scheme(), is_this_machine(url)) {
        let reason = format!("is http, but the secret in telemetry.headers.{name} is sent there; use https");
        root.refuse(place, "telemetry.otlp_endpoint".to_owned(), reason);
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
