//! What a mail server answers: only a mail that was sent whole is accepted, one that the server may have taken is never
//! sent again, and no word of its answers that reaches the log holds an address or a code. Whatever it says, it is sent the
//! commands for this mail and no others.
//!
//! Input: the answers, each ended by U+0000: one to the connection, one to each line, and one to the whole mail. What is no
//! whole answer is followed by the next at once. Then the server hangs up.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use gatehouse::clock::Clock;
use gatehouse::config;
use gatehouse::mail::{Letter, MailDelivery, MailTransport, Mailbox};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const TO: &str = "ada.lovelace@example.org";
const CODE: &str = "271828";
const END: &[u8] = b"\r\n.\r\n";

struct Rig {
    runtime: Runtime,
    listener: TcpListener,
    transport: MailTransport,
    to: Mailbox,
    letter: Letter,
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let text = format!("[mail]\nurl = 'smtp://127.0.0.1:{port}'\nfrom = 'login@example.net'\ntimeout = '1s'");
    let read = config::parse(Path::new("x"), &text, &[]).unwrap_or_else(|wrong| panic!("{wrong}"));
    let of = &read.settings;
    let transport = MailTransport::open(&of.mail, (&of.server, &of.sms), &Clock::System);
    let transport = transport.unwrap_or_else(|wrong| panic!("{wrong}"));
    let text = format!("Your code:\n{CODE}\n.\n..\n");
    let letter = Letter { subject: "A code".to_owned(), text: text.clone(), html: text, code: None };
    Rig { runtime, listener, transport, to: Mailbox::parse(TO).expect("an address"), letter }
});

impl Rig {
    /// Answers one connection. All that it was sent.
    async fn serve(&self, answers: &[&[u8]]) -> Vec<u8> {
        let (mut stream, _) = self.listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a connection");
        let (mut heard, mut read, mut of_mail) = (Vec::new(), 0, false);
        for answer in answers {
            if stream.write_all(answer).await.is_err() {
                break;
            }
            if !is_final(answer) {
                continue;
            }
            of_mail &= answer.starts_with(b"3");
            let is_whole = |unread: &[u8]| {
                let end: &[u8] = if of_mail && !unread.starts_with(b"QUIT\r\n") { END } else { b"\r\n" };
                unread.windows(end.len()).position(|bytes| bytes == end).map(|at| at + end.len())
            };
            let length = loop {
                if let Some(length) = is_whole(&heard[read..]) {
                    break length;
                }
                if !stream.read_buf(&mut heard).await.is_ok_and(|length| length > 0) {
                    return heard;
                }
            };
            of_mail = heard[read..read + length].eq_ignore_ascii_case(b"DATA\r\n");
            read += length;
        }
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut heard).await;
        heard
    }
}

/// Otherwise the client waits for the rest of it.
fn is_final(answer: &[u8]) -> bool {
    let last = answer.strip_suffix(b"\n").and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
    last.is_some_and(|last| last.get(3) != Some(&b'-'))
}

/// A code has six digits, and an address an @.
fn is_harmless(words: &str) -> bool {
    !words.contains('@') && words.split(|letter: char| !letter.is_ascii_digit()).all(|run| run.len() < 6)
}

fn is_of_this_mail(command: &str) -> bool {
    command.is_empty()
        || ["DATA", "QUIT", "RSET", "NOOP"].contains(&command)
        || command.starts_with("EHLO ")
        || command.starts_with("MAIL FROM:<login@example.net>")
        || command == format!("RCPT TO:<{TO}>")
}

fuzz_target!(|input: &[u8]| {
    let answers: Vec<&[u8]> = input.split_inclusive(|byte| *byte == 0).collect();
    let answers: Vec<&[u8]> = answers.iter().map(|answer| answer.strip_suffix(b"\0").unwrap_or(answer)).collect();
    let rig = &*RIG;
    let sending = rig.transport.send("0123456789abcdef", "Gatehouse", &rig.to, &rig.letter);
    let (outcome, heard) = rig.runtime.block_on(async { tokio::join!(sending, rig.serve(&answers)) });

    let has = |bytes: &[u8]| heard.windows(bytes.len()).any(|found| found == bytes);
    let commands = match heard.windows(8).position(|bytes| bytes == b"\r\nDATA\r\n") {
        Some(data) => &heard[..data],
        None => &heard[..],
    };
    let commands = std::str::from_utf8(commands).expect("commands are text");
    assert!(commands.split("\r\n").all(is_of_this_mail), "{commands}");
    let refuses = |answer: &[u8]| {
        answer.split(|byte| *byte == b'\n').any(|line| matches!(line.first(), Some(b'4' | b'5')))
    };
    let reason = match outcome {
        MailDelivery::Accepted { said } => {
            assert!(has(END) && has(CODE.as_bytes()), "{}", String::from_utf8_lossy(&heard));
            said.unwrap_or_default()
        }
        MailDelivery::Unknown { reason } => {
            assert!(has(b"\r\nDATA\r\n"), "{reason}: {commands}");
            reason
        }
        MailDelivery::Refused { reason, .. } | MailDelivery::Deferred { reason, .. } => {
            assert!(!has(END) || answers.iter().any(|answer| refuses(answer)), "it may be taken: {reason}");
            reason
        }
    };
    assert!(is_harmless(&reason), "{reason}");
});
