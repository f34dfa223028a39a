//! Honest sign-ins while more passwords are tried than can be hashed: `cargo bench --bench overload`.
//!
//! A flood of 400, then of 1,500 connections tries wrong passwords at other accounts from 1,000 networks and
//! solves no challenge; then 1,500 connections and 500 known devices of the attacker's own accounts.
//! Meanwhile two known devices and two strangers per second sign in, each at an account that nobody else
//! tries. `BENCH_BINARY` runs another build of the server; `BENCH_SECONDS` is the duration of each flood.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const PASSWORD: &str = "correct horse battery staple";
const ANSWER: &str = "solo";
const NETWORKS: u32 = 1000;
/// The names in the flood: so many that no account's limit saves the server a hash.
const NAMES: u32 = 100_000;
/// Each signs in once in half a minute.
const HONEST: usize = 60;
const DEVICES: usize = 500;
const PACE: Duration = Duration::from_millis(500);
/// After this nobody waits any more.
const LONGEST: Duration = Duration::from_secs(30);

fn main() {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let met = runtime.block_on(run());
    std::process::exit(i32::from(!met));
}

async fn run() -> bool {
    let server = Server::start().await;
    let known = server.accounts("known", HONEST, 1).await;
    server.accounts("stranger", HONEST, 1).await;
    let devices = server.accounts("device", DEVICES, 2).await;
    let mut met = true;
    for (connections, devices) in [(400, &[][..]), (1500, &[][..]), (1500, &devices[..])] {
        met &= flooded(&server, &known, connections, devices).await;
    }
    met
}

async fn flooded(server: &Server, known: &[Visitor], connections: u32, devices: &[Visitor]) -> bool {
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new([const { AtomicU32::new(0) }; 5]);
    let mut flood = JoinSet::new();
    for number in 0..connections {
        flood.spawn(hammer(server.address, number, Arc::clone(&stop), Arc::clone(&answered)));
    }
    for device in devices {
        flood.spawn(hammer_own(server.address, device.clone(), Arc::clone(&stop)));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    let (mut owners, mut strangers) = (JoinSet::new(), JoinSet::new());
    for number in 0.. {
        if start.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        owners.spawn(own_sign_in(server.address, known[number % HONEST].clone()));
        strangers.spawn(stranger_sign_in(server.address, number));
        tokio::time::sleep(PACE).await;
    }
    let (owners, strangers) = (owners.join_all().await, strangers.join_all().await);
    stop.store(true, Ordering::Relaxed);
    flood.shutdown().await;
    println!("{connections} connections, {} known devices of the attacker's, {seconds} s", devices.len());
    let counts: Vec<u32> = answered.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    println!(
        "  the flood was answered 401: {}, 403: {}, 429: {}, 503: {}, else {}",
        counts[1], counts[2], counts[3], counts[4], counts[0]
    );
    let all = owners.len();
    let mut times: Vec<Duration> = owners.into_iter().flatten().collect();
    let in_share = percent(times.len(), all);
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    println!("  known devices: {in_share:.1} % of {all} in, p50 {p50:.2} s, p99 {p99:.2} s");
    let asked: Vec<Duration> = strangers.iter().filter_map(|stranger| stranger.asked).collect();
    let solved: Vec<Option<Duration>> = strangers.iter().filter_map(|stranger| stranger.solved).collect();
    let soon = |times: &[Duration]| times.iter().filter(|time| **time <= Duration::from_secs(5)).count();
    let (challenged, entered) = (soon(&asked), soon(&solved.iter().flatten().copied().collect::<Vec<_>>()));
    let straight = strangers.iter().filter(|stranger| stranger.asked.is_some() && stranger.solved.is_none());
    println!(
        "  strangers: {:.1} % of {} in or challenged within 5 s ({} in at once); of {} who solved it {:.1} % in within 5 s",
        percent(challenged, strangers.len()),
        strangers.len(),
        straight.count(),
        solved.len(),
        percent(entered, solved.len()),
    );
    let mut solved: Vec<Duration> = solved.into_iter().flatten().collect();
    let mut asked = asked;
    println!(
        "    p50 and p99 until the first answer {:.2} and {:.2} s, once solved {:.2} and {:.2} s",
        percentile(&mut asked, 50),
        percentile(&mut asked, 99),
        percentile(&mut solved, 50),
        percentile(&mut solved, 99)
    );
    let met = in_share >= 99.0
        && p99 <= 1.5
        && percent(challenged, strangers.len()) >= 95.0
        && percent(entered, solved.len()) >= 95.0;
    println!("  bar: 99 % and p99 1.5 s; 95 %; 95 %: {}", if met { "met" } else { "NOT met" });
    met
}

/// One connection of the flood. It solves no challenge.
async fn hammer(address: SocketAddr, number: u32, stop: Arc<AtomicBool>, answered: Arc<[AtomicU32; 5]>) {
    let network = number % NETWORKS;
    let mut draw = number;
    while !stop.load(Ordering::Relaxed) {
        let Some(mut connection) = Connection::open(address).await else { continue };
        while !stop.load(Ordering::Relaxed) {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let from = format!("11.{}.{}.{}", network / 250, network % 250, draw >> 24);
            let body = login_body(&format!("name-{}", (draw >> 8) % NAMES), "a wrong password", None);
            let Some(answer) = connection.call("/api/v1/login", &from, "", &body).await else { break };
            let kind = match answer.status {
                401 => 1,
                403 => 2,
                429 => 3,
                503 => 4,
                _ => 0,
            };
            answered[kind].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An attacker's own account, from the browser in which it was created.
async fn hammer_own(address: SocketAddr, device: Visitor, stop: Arc<AtomicBool>) {
    let passwords = [PASSWORD, PASSWORD, PASSWORD, "a wrong password"];
    for number in 0.. {
        let Some(mut connection) = Connection::open(address).await else { continue };
        let body = login_body(&device.login, passwords[number % passwords.len()], None);
        connection.call("/api/v1/login", &device.from, &device.cookie, &body).await;
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// How long it took; None if it was refused.
async fn own_sign_in(address: SocketAddr, visitor: Visitor) -> Option<Duration> {
    let start = Instant::now();
    let body = login_body(&visitor.login, PASSWORD, None);
    let mut connection = Connection::open(address).await?;
    let answer = connection.call("/api/v1/login", &visitor.from, &visitor.cookie, &body).await?;
    if answer.status != 200 {
        eprintln!("  a known device was told {} {}", answer.status, answer.body);
    }
    (answer.status == 200).then(|| start.elapsed())
}

#[derive(Default)]
struct Stranger {
    /// Until they were signed in, or had a challenge.
    asked: Option<Duration>,
    /// For those who had one: until they were signed in with it, if they were.
    solved: Option<Option<Duration>>,
}

async fn stranger_sign_in(address: SocketAddr, number: usize) -> Stranger {
    let mut stranger = Stranger::default();
    let start = Instant::now();
    let login = format!("stranger-{}", number % HONEST);
    let from = format!("12.{}.{}.7", number / 250, number % 250);
    let Some(mut connection) = Connection::open(address).await else { return stranger };
    let body = login_body(&login, PASSWORD, None);
    let Some(first) = connection.call("/api/v1/login", &from, "", &body).await else { return stranger };
    let id = first.body.split_once(r#""captcha":{"id":""#).and_then(|(_, rest)| rest.split('"').next());
    stranger.asked = (first.status == 200 || id.is_some()).then(|| start.elapsed());
    let Some(id) = id else { return stranger };
    let start = Instant::now();
    let body = login_body(&login, PASSWORD, Some(id));
    let second = connection.call("/api/v1/login", &from, "", &body).await;
    stranger.solved = Some(second.filter(|answer| answer.status == 200).map(|_| start.elapsed()));
    stranger
}

/// Somebody in the browser in which an account was created.
#[derive(Clone)]
struct Visitor {
    login: String,
    from: String,
    cookie: String,
}

struct Server {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let config = folder.path().join("gatehouse.toml");
        let settings = format!(
            "[server]\nbind = \"{address}\"\npublic_url = \"http://{address}\"\n\
             trusted_proxies = [\"127.0.0.1/32\"]\n[captcha]\nprovider = \"fixed\"\nfixed_answer = \"{ANSWER}\"\n"
        );
        std::fs::File::create(&config).unwrap().write_all(settings.as_bytes()).unwrap();
        let binary = std::env::var("BENCH_BINARY").unwrap_or(env!("CARGO_BIN_EXE_gatehouse").to_owned());
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config).current_dir(folder.path());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server");
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { process, address, _folder: folder }
    }

    /// Accounts created by as many browsers, each in its own network.
    async fn accounts(&self, kind: &str, count: usize, network: usize) -> Vec<Visitor> {
        let mut connection = Connection::open(self.address).await.expect("the server");
        let mut visitors = Vec::new();
        for number in 0..count {
            let login = format!("{kind}-{number}");
            let from = format!("13.{}.{}.9", network * 10 + number / 250, number % 250);
            let body = login_body(&login, PASSWORD, None);
            let made = connection.call("/api/v1/register", &from, "", &body).await.expect("an answer");
            assert_eq!(made.status, 201, "{}", made.body);
            let device = made.head.split_once("gh_device=").and_then(|(_, rest)| rest.split(';').next());
            let cookie = format!("cookie: gh_device={}\r\n", device.expect("a device cookie"));
            visitors.push(Visitor { login, from, cookie });
        }
        visitors
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// A keep-alive connection with as little cost for the machine as possible.
struct Connection(TcpStream);

impl Connection {
    async fn open(address: SocketAddr) -> Option<Self> {
        let stream = tokio::time::timeout(LONGEST, TcpStream::connect(address)).await.ok()?.ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self(stream))
    }

    /// None if no answer comes.
    async fn call(&mut self, path: &str, from: &str, headers: &str, body: &str) -> Option<Answer> {
        tokio::time::timeout(LONGEST, self.exchange(path, from, headers, body)).await.ok()?
    }

    async fn exchange(&mut self, path: &str, from: &str, headers: &str, body: &str) -> Option<Answer> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             x-forwarded-for: {from}\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).await.ok()?;
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.0.read(&mut part).await.ok().filter(|read| *read > 0)?;
            text.extend_from_slice(&part[..read]);
            let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let lower = String::from_utf8_lossy(&text[..head]).to_lowercase();
            let length = lower.split_once("content-length: ").and_then(|(_, rest)| rest.split("\r\n").next());
            let length: usize = length.and_then(|digits| digits.parse().ok()).unwrap_or(0);
            if text.len() >= head + 4 + length {
                return Some(Answer {
                    status: lower.get(9..12)?.parse().ok()?,
                    head: String::from_utf8_lossy(&text[..head]).into_owned(),
                    body: String::from_utf8_lossy(&text[head + 4..]).into_owned(),
                });
            }
        }
    }
}

fn login_body(login: &str, password: &str, solved: Option<&str>) -> String {
    let captcha =
        solved.map(|id| format!(r#","captcha":{{"id":"{id}","answer":"{ANSWER}"}}"#)).unwrap_or_default();
    format!(r#"{{"login":"{login}","password":"{password}"{captcha}}}"#)
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    times
        .get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
        .map_or(0.0, Duration::as_secs_f64)
}

/// Each connection is a file here.
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls are given a whole `rlimit` that this function owns.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}
