//! Gateways that are down, hang, break off or answer with garbage: the result, how soon it comes, and that
//! nothing is sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gatehouse::sms::{DeliveryResult, SmsGateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::gateways::{CODE, NUMBER, opened, send, some_id};

/// How long a gateway may hang before it is given up; the connection alone may take a third.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the other side does with a connection.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Closes it unread.
    Slam,
    /// Reads the request and closes.
    Drop,
    /// Reads the request and says nothing.
    Hang,
    /// Reads, writes this, and closes.
    Say(&'static str),
    /// Reads, writes this, and leaves the connection open.
    SayAndStay(&'static str),
    /// Reads, and writes this a byte at a time.
    Drip(&'static str),
    /// Reads, and writes an endless answer.
    Flood,
}

struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    written: Arc<AtomicUsize>,
}

impl Server {
    async fn start(way: Way) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            requests: Arc::default(),
            written: Arc::default(),
        };
        let (connections, requests, written) =
            (Arc::clone(&server.connections), Arc::clone(&server.requests), Arc::clone(&server.written));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, way, Arc::clone(&requests), Arc::clone(&written)));
            }
        });
        server
    }

    fn gateway(&self, scheme: &str) -> Arc<dyn SmsGateway> {
        let url = format!("{scheme}://127.0.0.1:{}/send?key=hunter2&to={{phone}}&code={{code}}", self.port);
        let config = format!("[sms]\ngateway = 'http'\n[sms.http]\nurl = '{url}'");
        opened(&config, PATIENCE).gateway
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// None if the other end is gone.
async fn serve(
    mut stream: TcpStream,
    way: Way,
    requests: Arc<AtomicUsize>,
    written: Arc<AtomicUsize>,
) -> Option<()> {
    if matches!(way, Way::Slam) {
        return None;
    }
    loop {
        read_request(&mut stream).await?;
        requests.fetch_add(1, Ordering::SeqCst);
        match way {
            Way::Slam | Way::Drop => return None,
            Way::Hang => std::future::pending().await,
            Way::Say(text) => {
                stream.write_all(text.as_bytes()).await.ok()?;
                return None;
            }
            Way::SayAndStay(text) => stream.write_all(text.as_bytes()).await.ok()?,
            Way::Drip(text) => {
                for byte in text.bytes() {
                    stream.write_all(&[byte]).await.ok()?;
                    stream.flush().await.ok()?;
                    tokio::time::sleep(Duration::from_millis(100)).await; // how slow the other side is
                }
            }
            Way::Flood => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
                loop {
                    written.fetch_add(stream.write(&[b'x'; 16 * 1024]).await.ok()?, Ordering::SeqCst);
                }
            }
        }
    }
}

/// Head and body, whose length the head gives.
async fn read_request(stream: &mut TcpStream) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(());
        }
    }
}

/// The result of a send. It takes no longer than the timeout in any case, and contains no secret.
#[expect(clippy::disallowed_methods, reason = "measures how long a caller waits")]
async fn outcome(gateway: &dyn SmsGateway) -> DeliveryResult {
    let start = Instant::now();
    let delivery = send(gateway, some_id()).await;
    assert!(start.elapsed() < PATIENCE + Duration::from_secs(20), "{:?}", start.elapsed());
    let shown = format!("{delivery:?}");
    for secret in ["hunter2", NUMBER, &NUMBER[1..], CODE] {
        assert!(!shown.contains(secret), "{shown}");
    }
    delivery
}

fn is_unknown(delivery: &DeliveryResult) -> bool {
    matches!(delivery, DeliveryResult::Unknown { .. })
}

fn is_refused(delivery: &DeliveryResult) -> bool {
    matches!(delivery, DeliveryResult::Refused { .. })
}

#[tokio::test]
async fn what_may_have_gone_out_is_unknown_and_never_sent_twice() {
    let ways = [
        Way::Drop,
        Way::Hang,
        Way::Say("hello?\r\n\r\n"),
        Way::Say("HTTP/1.1 200 OK\r\n"),
        Way::Say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
        Way::Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
        Way::Say("HTTP/1.1 2000 OK\r\n\r\n"),
        Way::SayAndStay("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
        Way::SayAndStay("HTTP/1.1 100 Continue\r\n\r\n"),
        Way::Drip("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        Way::Flood,
        Way::Say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\nhalf"),
    ];
    let mut sends = tokio::task::JoinSet::new();
    for way in ways {
        sends.spawn(async move {
            let server = Server::start(way).await;
            let delivery = outcome(&*server.gateway("http")).await;
            assert!(is_unknown(&delivery), "{way:?}: {delivery:?}");
            assert_eq!(server.requests(), 1, "{way:?}");
        });
    }
    sends.join_all().await;
}

#[tokio::test]
async fn a_refusal_is_one_even_where_its_body_breaks_off() {
    let server = Server::start(Way::Say("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\nhalf")).await;
    assert!(is_refused(&outcome(&*server.gateway("http")).await));
}

#[tokio::test]
async fn what_never_had_a_connection_is_refused_after_one_more_try() {
    // Nobody listens, nor can while the port is held; and there is no such host.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unused = held.local_addr().unwrap().port();
    for url in [format!("http://127.0.0.1:{unused}/"), "http://gateway.invalid/".to_owned()] {
        let config = format!("[sms]\ngateway = 'http'\n[sms.http]\nurl = '{url}?key=hunter2'");
        let delivery = outcome(&*opened(&config, PATIENCE).gateway).await;
        assert!(is_refused(&delivery), "{url}: {delivery:?}");
    }
    // A TLS handshake that does not finish.
    for way in [Way::Slam, Way::Hang, Way::Say("HTTP/1.1 400 Bad Request\r\n\r\n")] {
        let server = Server::start(way).await;
        let delivery = outcome(&*server.gateway("https")).await;
        assert!(is_refused(&delivery), "{way:?}: {delivery:?}");
        assert_eq!(server.connections.load(Ordering::SeqCst), 2, "{way:?}");
    }
}

#[tokio::test]
async fn of_an_answer_without_an_end_little_is_read() {
    let server = Server::start(Way::Flood).await;
    assert!(is_unknown(&outcome(&*server.gateway("http")).await));
    // What was read, and what the buffers in between hold.
    assert!(server.written.load(Ordering::SeqCst) < 16 * 1024 * 1024);
}

#[tokio::test]
async fn a_redirect_takes_the_code_nowhere() {
    let stranger = Server::start(Way::Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    for status in ["301", "302", "303", "307", "308"] {
        let answer = format!(
            "HTTP/1.1 {status} Elsewhere\r\nLocation: http://127.0.0.1:{}/\r\nContent-Length: 0\r\n\r\n",
            stranger.port
        );
        let server = Server::start(Way::Say(answer.leak())).await;
        assert!(is_unknown(&outcome(&*server.gateway("http")).await), "{status}");
    }
    assert_eq!(stranger.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_connection_is_kept_and_one_that_was_closed_meanwhile_is_no_trouble() {
    let server = Server::start(Way::SayAndStay("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let gateway = server.gateway("http");
    for _ in 0..3 {
        assert_eq!(outcome(&*gateway).await, DeliveryResult::Accepted { reference: None });
    }
    assert_eq!((server.requests(), server.connections.load(Ordering::SeqCst)), (3, 1));

    let server = Server::start(Way::Say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let gateway = server.gateway("http");
    for sent in 1..=3 {
        assert_eq!(outcome(&*gateway).await, DeliveryResult::Accepted { reference: None });
        assert_eq!(server.requests(), sent);
        // The close arrives by itself; a real gateway's next message comes later than that.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs like any other test, and once more below, with proxies in its environment.
#[tokio::test]
async fn a_message_goes_straight_to_its_gateway() {
    let server = Server::start(Way::SayAndStay("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    assert_eq!(outcome(&*server.gateway("http")).await, DeliveryResult::Accepted { reference: None });
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_told_nothing() {
    let proxy = Server::start(Way::Drop).await;
    let address = format!("http://127.0.0.1:{}", proxy.port);
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "sms::spoilt::a_message_goes_straight_to_its_gateway"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        again.env(name, &address);
    }
    again.env_remove("no_proxy").env_remove("NO_PROXY");
    let ended = tokio::task::spawn_blocking(move || again.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 0);
}
