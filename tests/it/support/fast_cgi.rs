//! The side of FastCGI that an application speaks, for one request a connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// Answers with the variables of the request.
pub async fn echo(mut stream: TcpStream) {
    let mut variables = Vec::new();
    loop {
        let Some((kind, content)) = record(&mut stream).await else { return };
        match kind {
            PARAMS => variables.extend(content),
            STDIN if content.is_empty() => break,
            _ => {}
        }
    }
    let shown = format!("Content-Type: text/plain\r\n\r\n{}", lines(&variables));
    let mut answer = Vec::new();
    for (kind, content) in [(STDOUT, shown.as_bytes()), (STDOUT, &[]), (END_REQUEST, &[0; 8])] {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        answer.extend([1, kind, 0, 1, length[0], length[1], 0, 0]);
        answer.extend(content);
    }
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// Its kind and content; None at the end.
async fn record(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await.ok()?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let mut content = vec![0; length + usize::from(head[6])];
    stream.read_exact(&mut content).await.ok()?;
    content.truncate(length);
    Some((head[1], content))
}

fn lines(mut pairs: &[u8]) -> String {
    let mut text = String::new();
    while !pairs.is_empty() {
        let (name, value) = (length(&mut pairs), length(&mut pairs));
        let (pair, rest) = pairs.split_at(name + value);
        let [name, value] = [&pair[..name], &pair[name..]].map(String::from_utf8_lossy);
        text += &format!("{name}={value}\n");
        pairs = rest;
    }
    text
}

/// In one byte, or in four of which the first bit is set.
fn length(pairs: &mut &[u8]) -> usize {
    let (taken, rest) = pairs.split_at(if pairs[0] < 0x80 { 1 } else { 4 });
    *pairs = rest;
    taken.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte)) & 0x7fff_ffff
}
