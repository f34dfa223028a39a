//! Requests over HTTP with as little cost for the machine as possible: how many are answered in a second, how long each
//! takes, and a flood of refused sign-ins from a process of its own.
#![expect(clippy::disallowed_methods, reason = "how long an answer takes is what is measured")]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const CONNECTIONS: usize = 64;

/// The first argument of the process that floods.
const FLOOD: &str = "--flood";

/// Runs the bench, or the flood that it has started.
pub fn main(run: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [first, address, seconds] if first == FLOOD => {
            runtime.block_on(flood(address.parse().unwrap(), seconds.parse().unwrap()));
        }
        _ => runtime.block_on(run),
    }
}

pub async fn load(
    address: SocketAddr,
    request: &[u8],
    status: u16,
    connections: usize,
    time: Duration,
) -> f64 {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let request = request.to_owned();
        tasks.spawn(async move {
            let (mut connection, mut count) = (Connection::open(address).await, 0usize);
            while start.elapsed() < time {
                assert_eq!(connection.send(&request).await, status);
                count += 1;
            }
            count
        });
    }
    let count: usize = tasks.join_all().await.into_iter().sum();
    count as f64 / start.elapsed().as_secs_f64()
}

/// The same request each time, for [`latencies`].
pub fn always(request: &[u8]) -> impl FnMut(&[u8]) -> Vec<u8> + Send + 'static {
    let request = request.to_owned();
    move |_| request.clone()
}

/// How long each of these requests took, sent one after another by a thread of their own: tasks of a runtime would wait
/// for each other. `next` gets the body of the answer before, which is empty at first.
pub async fn latencies(
    address: SocketAddr,
    mut next: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static,
    time: Duration,
) -> Vec<Duration> {
    let measure = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut connection, start, mut times) =
                (Connection::open(address).await, Instant::now(), Vec::new());
            while start.elapsed() < time {
                let request = next(connection.body());
                let sent = Instant::now();
                assert_eq!(connection.send(&request).await, 200);
                times.push(sent.elapsed());
            }
            times
        })
    };
    tokio::task::spawn_blocking(measure).await.unwrap()
}

/// Refused sign-ins from a process of the lowest priority: it would otherwise take the server's cores, which a flood
/// from elsewhere does not.
pub struct Flood(Child);

impl Flood {
    pub fn start(address: SocketAddr, time: Duration) -> Self {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe().unwrap()).arg(FLOOD);
        command.arg(address.to_string()).arg(time.as_secs().to_string());
        Self(command.stdout(Stdio::piped()).spawn().expect("nice"))
    }

    /// How many sign-ins were refused, at its end.
    pub fn count(self) -> u64 {
        let output = self.0.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().expect("a count")
    }
}

/// What the process of a [`Flood`] does.
async fn flood(address: SocketAddr, seconds: u64) {
    let wrong = login_request("flooded", "a wrong password");
    let time = Duration::from_secs(seconds);
    println!("{:.0}", load(address, &wrong, 403, CONNECTIONS, time).await * seconds as f64);
}

pub fn login_request(login: &str, password: &str) -> Vec<u8> {
    request("/api/v1/login", &format!(r#"{{"login":"{login}","password":"{password}"}}"#))
}

pub fn request(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A keep-alive connection with as little cost for the machine as possible.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Where the last answer's body is.
    body: std::ops::Range<usize>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: vec![0; 16 * 1024], body: 0..0 }
    }

    pub fn body(&self) -> &[u8] {
        &self.buffer[self.body.clone()]
    }

    /// Sends one request and reads its answer; returns the status.
    pub async fn send(&mut self, request: &[u8]) -> u16 {
        self.stream.write_all(request).await.unwrap();
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).await.unwrap();
            assert!(read > 0, "the server hung up");
            filled += read;
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2, 0);
            }
            let text = &self.buffer[..filled];
            let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            if filled >= head + 4 + content_length(&text[..head]) {
                self.body = head + 4..filled;
                return std::str::from_utf8(&text[9..12]).unwrap().parse().unwrap();
            }
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let name = b"content-length: ";
    let Some(at) = head.windows(name.len()).position(|part| part.eq_ignore_ascii_case(name)) else {
        return 0;
    };
    let digits = head[at + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

pub fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1000.0
}

pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "NOT met" }
}
