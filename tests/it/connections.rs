//! Connections that are held open for nothing, against the real binary with few files.

use std::time::Duration;

use reqwest::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::support::process::{Home, Running};

/// The number of files that the server may open: what a shell gives a process.
const FILES: u32 = 1024;
/// More connections than that.
const MANY: usize = 1100;
/// The server closes each stalled connection sooner than this; the rest is for a loaded machine.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);
const LOADED: Duration = Duration::from_secs(10);

const STALLED_BODY: &str = "POST /api/v1/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
const ENDLESS_CHUNKS: &str =
    "POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
const UNREAD_BODY: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
const HALF_A_HEAD: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nx-";
const WHOLE: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

async fn running() -> (Home, Running) {
    let mut home = Home::new();
    home.allow_files(FILES);
    let running = home.start(&["serve"]).await;
    (home, running)
}

async fn connect(home: &Home) -> TcpStream {
    TcpStream::connect(("127.0.0.1", home.port)).await.unwrap()
}

async fn open(home: &Home, sent: &str) -> TcpStream {
    let mut stream = connect(home).await;
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Reads what comes until the other side closes, sending `drip` every second.
async fn until_closed(mut stream: TcpStream, drip: &str) -> String {
    let (mut read, mut write) = stream.split();
    let mut answers = Vec::new();
    let dripping = async {
        while !drip.is_empty() && write.write_all(drip.as_bytes()).await.is_ok() {
            // Real time: another process.
            sleep(Duration::from_secs(1)).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        // A reset is an end, too.
        _ = read.read_to_end(&mut answers) => {}
        () = dripping => {}
        () = sleep(CLOSED_WITHIN + LOADED) => panic!("still open after {CLOSED_WITHIN:?}"),
    }
    String::from_utf8(answers).unwrap()
}

#[tokio::test]
async fn bodies_that_never_end_do_not_keep_others_out() {
    gatehouse::files::raise_limit();
    let (home, running) = running().await;
    let mut stalled = Vec::new();
    for _ in 0..MANY {
        stalled.push(open(&home, STALLED_BODY).await);
    }
    let begun = Instant::now();
    let answer = timeout(LOADED, running.client().get("/healthz")).await.expect("an answer");
    eprintln!(
        "/healthz beside {MANY} bodies that never end: {} after {:.1?}",
        answer.status,
        begun.elapsed()
    );
    assert_eq!(answer.status, 200);
    // The newest are still open; they get their answers.
    let last = until_closed(stalled.pop().unwrap(), "").await;
    assert!(last.starts_with("HTTP/1.1 408 ") && last.contains("/problems/request-timeout"), "{last}");
    for stream in stalled {
        until_closed(stream, "").await;
    }
    eprintln!("all are closed after {:.1?}", begun.elapsed());
}

#[tokio::test]
async fn whatever_stalls_is_closed() {
    let (home, _running) = running().await;
    let begun = Instant::now();
    let later_head = async {
        let mut stream = open(&home, WHOLE).await;
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(HALF_A_HEAD.as_bytes()).await.unwrap();
        until_closed(stream, "y").await
    };
    let stalled = async |sent: &str, drip: &str| until_closed(open(&home, sent).await, drip).await;
    let form = STALLED_BODY.replace("/api/v1/login", "/login").replace("json", "x-www-form-urlencoded");
    let answers = tokio::join!(
        stalled(STALLED_BODY, ""),
        stalled(STALLED_BODY, " "),
        stalled(&form, "a"),
        stalled(ENDLESS_CHUNKS, "1\r\nx\r\n"),
        stalled(UNREAD_BODY, " "),
        stalled(HALF_A_HEAD, "y"),
        stalled("", ""),
        later_head,
    );
    eprintln!("all are closed after {:.1?}", begun.elapsed());
    let status = |answer: &str| answer.split(' ').nth(1).unwrap_or_default().to_owned();
    for slow in [&answers.0, &answers.1, &answers.2] {
        assert_eq!(status(slow), StatusCode::REQUEST_TIMEOUT.as_str(), "{slow}");
        assert!(slow.to_lowercase().contains("connection: close"), "{slow}");
    }
    assert!(answers.1.contains("application/problem+json"), "{}", answers.1);
    assert!(answers.2.contains("<html"), "{}", answers.2);
    assert_eq!(status(&answers.3), "404");
    assert_eq!(status(&answers.4), "200");
    assert_eq!(status(&answers.5), "408");
}

#[tokio::test]
async fn answers_that_nobody_reads_are_given_up() {
    let (home, _running) = running().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(format!("127.0.0.1:{}", home.port).parse().unwrap()).await.unwrap();
    let asked = WHOLE.replace("/healthz", "/openapi.json").repeat(100);
    // Asks for more than any buffer can hold, and never reads, not even the end.
    assert!(stream.try_write(asked.as_bytes()).unwrap() > 0);
    let told = timeout(CLOSED_WITHIN + LOADED, stream.ready(Interest::ERROR)).await;
    assert!(told.expect("an end").unwrap().is_error());
}

#[tokio::test]
async fn a_body_that_is_slow_but_in_time_is_taken() {
    let (home, _running) = running().await;
    let body = r#"{"login":"alice","password":"a wrong password"}"#;
    let head = STALLED_BODY.trim_end_matches('{').replace("100", &body.len().to_string());
    let mut stream = open(&home, &head.replace("host: x", "host: x\r\nconnection: close")).await;
    for part in body.as_bytes().chunks(body.len().div_ceil(4)) {
        // Real time: another process.
        sleep(Duration::from_millis(500)).await;
        stream.write_all(part).await.unwrap();
    }
    let answer = until_closed(stream, "").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

const CLIENTS: usize = 40;
/// What a client sends ahead, in bytes: what actix reads at once.
const AHEAD: usize = 128 * 1024;
/// What one connection may cost.
const A_CONNECTION: u64 = 1024 * 1024;

/// Everything that a request can be answered with at no cost, small and large, with and without a body.
const ASKED_AHEAD: [&str; 6] = [
    "GET /healthz HTTP/1.1\n\n",
    "HEAD /openapi.json HTTP/1.1\n\n",
    "GET /openapi.json HTTP/1.1\n\n",
    "GET /login HTTP/1.1\nhost: x\n\n",
    "GET / HTTP/1.1\n\n",
    "POST /login HTTP/1.1\ncontent-length: 1\n\na",
];

#[tokio::test]
async fn clients_that_ask_ahead_and_read_nothing_cost_little() {
    gatehouse::files::raise_limit();
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().get("/openapi.json").await.status, 200);
    let before = running.peak_memory();
    let mut open = Vec::new();
    for asked in ASKED_AHEAD {
        let sent = "GET /openapi.json HTTP/1.1\n\n".repeat(16) + asked.repeat(AHEAD / asked.len()).as_str();
        for _ in 0..CLIENTS {
            let stream = connect(&home).await;
            stream.writable().await.unwrap();
            // As much as the systems of both take.
            stream.try_write(sent.as_bytes()).unwrap();
            open.push(stream);
        }
        // Each worker has answered others since, so it has turned to these, too.
        for _ in 0..20 {
            assert_eq!(running.client().get("/healthz").await.status, 200);
        }
        let each = (running.peak_memory() - before) / open.len() as u64;
        eprintln!("{asked:?}: {} KiB for each of {} connections", each / 1024, open.len());
        assert!(each < A_CONNECTION, "{asked:?}: {each} bytes for each of {} connections", open.len());
    }
}

/// The status of each answer, in order, until the other side closes. The request tells which has no body.
async fn statuses(stream: &mut (impl AsyncReadExt + Unpin), asked: &[String]) -> Vec<u16> {
    let (mut statuses, mut answers) = (Vec::new(), Vec::new());
    stream.read_to_end(&mut answers).await.unwrap();
    let mut rest = &answers[..];
    for asked in asked {
        rest = rest.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(rest);
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else { break };
        let head = std::str::from_utf8(&rest[..end]).unwrap().to_lowercase();
        let line = head.split(' ').nth(1).unwrap();
        statuses.push(line.parse().unwrap_or_else(|_| panic!("no answer begins with {head}")));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = if asked.starts_with("HEAD") { 0 } else { length.map_or(0, |all| all.parse().unwrap()) };
        rest = &rest[end + 4 + body..];
    }
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
    statuses
}

#[tokio::test]
async fn what_is_asked_ahead_is_answered_whole_and_in_order() {
    let (home, _running) = running().await;
    let body = format!("{{\"login\":\"alice\"{}}}", " ".repeat(10_000));
    let post = "POST /api/v1/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let chunks: String = body.as_bytes().chunks(7).map(|_| "7\r\n       \r\n").collect();
    let kinds = [
        (WHOLE.to_owned(), 200),
        (WHOLE.replace("/healthz", "/openapi.json"), 200),
        (format!("{post}content-length: {}\r\n\r\n{body}", body.len()), 422),
        (WHOLE.replace("/healthz", "/nothing"), 404),
        (format!("{post}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"), 400),
        (WHOLE.replace("GET", "HEAD").replace("/healthz", "/openapi.json"), 200),
        (format!("{post}expect: 100-continue\r\ncontent-length: 2\r\n\r\n{{}}"), 422),
        (format!("{post}content-length: 2\r\n\r\n{{}}"), 422),
        (format!("{post}content-length: 8\r\n\r\n{{\r\n\r\n\n\n}}"), 422),
        (format!("{post}content-length: 3\r\n\r\n{{}}\n\r\n{WHOLE}"), 422),
        (String::new(), 200),
        (
            format!(
                "{}x-long: {}\r\n\r\n",
                WHOLE.trim_end_matches("\r\n").to_owned() + "\r\n",
                "y".repeat(9000)
            ),
            200,
        ),
    ];
    let expected: Vec<u16> = kinds.iter().map(|(_, status)| *status).cycle().take(20 * kinds.len()).collect();
    let asked: Vec<String> =
        kinds.iter().map(|(asked, _)| asked.clone()).cycle().take(expected.len()).collect();
    let everything = asked.concat();
    for at_once in [everything.len(), 613, 61] {
        let stream = connect(&home).await;
        stream.set_nodelay(true).unwrap();
        let (mut read, mut write) = stream.into_split();
        let sending = async {
            for part in everything.as_bytes().chunks(at_once) {
                write.write_all(part).await.unwrap();
            }
            // The client says that it will ask no more, and reads on.
            write.shutdown().await.unwrap();
            write
        };
        let (write, statuses) = tokio::join!(sending, statuses(&mut read, &asked));
        assert_eq!(statuses, expected, "{at_once} bytes at once");
        drop(write);
    }
}
