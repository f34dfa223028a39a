use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// The words of the next command.
fn command(line: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut number = |kind: char| {
        let mut text = String::new();
        line.read_line(&mut text).ok()?;
        let number: usize = text.trim_end().strip_prefix(kind)?.parse().ok()?;
        if kind == '*' {
            return Some((number, String::new()));
        }
        let mut word = vec![0; number + 2];
        line.read_exact(&mut word).ok()?;
        Some((number, String::from_utf8(word).ok()?.trim_end().to_owned()))
    };
    let (words, _) = number('*')?;
    (0..words).map(|_| Some(number('$')?.1)).collect()
}

/// A server that takes one connection, which it closes at the first `GET`, and no other.
fn closing_server() -> redis::Client {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = server.accept().unwrap();
        let mut line = BufReader::new(stream.try_clone().unwrap());
        while let Some(words) = command(&mut line).filter(|words| words[0] != "GET") {
            let answer = if words[0] == "INFO" { "$13\r\nmaxmemory:0\r\n\r\n" } else { "+OK\r\n" };
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    redis::Client::open(format!("redis://{address}/")).unwrap()
}

#[tokio::test]
async fn only_a_call_that_was_not_sent_is_certain_to_have_written_nothing() {
    let link = RedisLink::open(closing_server(), Duration::from_secs(60), Vec::new());
    assert!(link.ready(Duration::from_secs(60)).await);
    let mut get = redis::cmd("GET");
    get.arg("a");
    let errors =
        [link.call(&get).await, link.call(&get).await].map(|call| StoreError::from(call.unwrap_err()));
    let [sent, not_sent] = &errors;
    assert!(matches!(sent, StoreError::TimedOut) && !sent.wrote_nothing(), "{sent:?}");
    assert!(matches!(not_sent, StoreError::Down) && not_sent.wrote_nothing(), "{not_sent:?}");
}
