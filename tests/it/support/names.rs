//! A name server of a test's own, on a free loopback port; it ends when dropped.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use super::MOST;

/// A name, a type of a record (A, MX, NS, PTR or TXT), and its value. One of type `SERVFAIL` makes that the answer to every
/// question for the name.
pub type Record = (String, &'static str, String);

/// Knows these records, and that there is nothing else.
pub struct NameServer {
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

impl NameServer {
    pub async fn start(records: &[Record]) -> Self {
        // One port for both.
        let (tcp, udp, address) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = tcp.local_addr().unwrap();
            if let Ok(udp) = UdpSocket::bind(address).await {
                break (tcp, udp, address);
            }
        };
        let records: Arc<[Record]> = records.into();
        let serving = tokio::spawn(async move {
            tokio::join!(answer_datagrams(udp, &records), answer_streams(tcp, &records));
        });
        Self { address, serving }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What is longer comes by TCP only (RFC 1035, 4.2.1).
const LONGEST_DATAGRAM: usize = 512;

async fn answer_datagrams(socket: UdpSocket, records: &[Record]) {
    let mut buffer = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let mut answer = answer(&buffer[..length], records);
        if answer.len() > LONGEST_DATAGRAM {
            answer = self::answer(&buffer[..length], &[]);
            // Truncated, and no error.
            answer[2] |= 0x02;
            answer[3] = 0x80;
        }
        let _ = socket.send_to(&answer, from).await;
    }
}

/// One question a connection.
async fn answer_streams(listener: TcpListener, records: &[Record]) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let _ = tokio::time::timeout(MOST, answer_stream(&mut stream, records)).await;
    }
}

async fn answer_stream(stream: &mut TcpStream, records: &[Record]) -> std::io::Result<()> {
    let mut question = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut question).await?;
    let answer = answer(&question, records);
    stream.write_all(&[&u16::try_from(answer.len()).unwrap().to_be_bytes()[..], &answer].concat()).await
}

fn answer(question: &[u8], records: &[Record]) -> Vec<u8> {
    let (mut name, mut at) = (String::new(), 12);
    while question[at] > 0 {
        let next = at + 1 + usize::from(question[at]);
        let dot = if name.is_empty() { "" } else { "." };
        name = format!("{name}{dot}{}", String::from_utf8_lossy(&question[at + 1..next]).to_lowercase());
        at = next;
    }
    let kind = question[at + 2];
    let known: Vec<_> = records.iter().filter(|record| record.0 == name).collect();
    let code = match &known[..] {
        [] => 0x83,
        some if some.iter().any(|record| record.1 == "SERVFAIL") => 0x82,
        _ => 0x80,
    };
    let found: Vec<_> = known.into_iter().filter(|record| number(record.1) == kind).collect();
    let mut answer = [&question[..2], &[0x85, code, 0, 1, 0]].concat();
    answer.extend([u8::try_from(found.len()).unwrap(), 0, 0, 0, 0]);
    answer.extend(&question[12..at + 5]);
    for (_, _, value) in found {
        let data = data(kind, value);
        answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60]);
        answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend(data);
    }
    answer
}

fn data(kind: u8, value: &str) -> Vec<u8> {
    match kind {
        1 => value.parse::<Ipv4Addr>().unwrap().octets().to_vec(),
        15 => {
            let (preference, name) = value.split_once(' ').unwrap();
            [preference.parse::<u16>().unwrap().to_be_bytes().to_vec(), labels(name)].concat()
        }
        16 => value.as_bytes().chunks(255).flat_map(counted).collect(),
        _ => labels(value),
    }
}

/// A whole name; `.` is the root.
fn labels(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    labels.flat_map(|label| counted(label.as_bytes())).chain([0]).collect()
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn number(kind: &str) -> u8 {
    match kind {
        "A" => 1,
        "NS" => 2,
        "PTR" => 12,
        "MX" => 15,
        "TXT" => 16,
        "SERVFAIL" => 0,
        _ => panic!("{kind}"),
    }
}
