//! `gatehouse mail check`: the real binary, asking a mail server and a name server as the test says.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::names::NameServer;
use crate::support::process::{Ended, Home};

const SPF: &str = "v=spf1 ip4:192.0.2.7 -all";

/// Domains with what they say of themselves; example.org has all that mail needs.
const RECORDS: [(&str, &str, &str); 26] = [
    ("org", "NS", "a.org-servers.example"),
    ("net", "NS", "a.net-servers.example"),
    ("example.org", "TXT", "a token of somebody's"),
    ("example.org", "TXT", SPF),
    ("example.org", "MX", "20 b.mail.example.org"),
    ("example.org", "MX", "10 a.mail.example.org"),
    ("_dmarc.example.org", "TXT", "v = DMARC1 ; p=reject"),
    ("_dmarc.example.org", "TXT", "v=DMARC10; p=none"),
    ("bare.example.org", "TXT", "v=spf10 is no version"),
    ("bare.example.org", "A", "192.0.2.7"),
    ("silent.example.org", "TXT", "v=spf1 -ALL"),
    ("neutral.example.org", "TXT", "v=spf1  exp=why.example.org ?all"),
    ("moved.example.org", "TXT", "v=spf1 redirect=_spf.example.org"),
    ("open.example.org", "TXT", "v=spf1 all"),
    ("twice.example.org", "TXT", SPF),
    ("twice.example.org", "TXT", "V=SPF1 +all"),
    ("twice.example.org", "MX", "0 ."),
    ("_dmarc.twice.example.org", "TXT", "v=DMARC1; p=none"),
    ("_dmarc.twice.example.org", "TXT", "v=DMARC1; p=reject"),
    ("odd.example.org", "TXT", "v=spf1 \u{1b}[2J\u{7}\r\nok   \u{202e}\"\\ -all"),
    ("odd.example.org", "MX", "10 \u{1b}]0;.example.org"),
    ("null.example.net", "MX", "0 ."),
    ("example.net", "MX", "10 mail.example.net"),
    ("lost.example.org", "SERVFAIL", ""),
    ("_dmarc.lost.example.org", "SERVFAIL", ""),
    ("lost.example.net", "SERVFAIL", ""),
];

async fn names() -> NameServer {
    let long = format!("v=spf1 {}-all", "ip4:192.0.2.7 ".repeat(40));
    let known = RECORDS.map(|(name, kind, value)| (name.to_owned(), kind, value.to_owned()));
    NameServer::start(&[&known[..], &[("long.example.org".to_owned(), "TXT", long)]].concat()).await
}

/// A mail server on loopback that takes all mail.
async fn mail_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = take_mail(stream).await;
        }
    });
    address
}

async fn take_mail(stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut in_mail) = (String::new(), false);
    stream.write_all(b"220 mx.test\r\n").await?;
    while stream.read_line(&mut line).await? > 0 {
        let answer = match line.trim_end() {
            "." => "250 taken",
            _ if in_mail => "",
            rcpt if rcpt.starts_with("RCPT TO:<gone@") => "550 5.1.1 nobody here\u{1b}[2J has that name",
            "DATA" => "354 go on",
            "QUIT" => "221 bye",
            _ => "250 mx.test",
        };
        in_mail = answer.starts_with("354") || (in_mail && answer.is_empty());
        if !answer.is_empty() {
            stream.write_all(format!("{answer}\r\n").as_bytes()).await?;
        }
        line.clear();
    }
    Ok(())
}

/// With mail that is from this domain.
async fn home(domain: &str) -> Home {
    let home = Home::new();
    let url = format!("smtp://{}", mail_server().await);
    home.write("gatehouse.toml", &format!("[mail]\nurl = '{url}'\nfrom = 'login@{domain}'\n"));
    home
}

/// On a thread of its own, while the servers answer.
async fn run(home: Home, arguments: Vec<String>) -> Ended {
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        home.run(&[&["mail", "check"], &arguments[..]].concat())
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn check(domain: &str, to: Option<&str>) -> Ended {
    let names = names().await;
    let dns = ["--dns".to_owned(), names.address.to_string()];
    run(home(domain).await, dns.into_iter().chain(to.map(str::to_owned)).collect()).await
}

/// The lines about DNS.
async fn told(domain: &str) -> (Vec<String>, Option<i32>) {
    let Ended { stdout, code, .. } = check(domain, None).await;
    let about = |line: &&str| ["SPF of", "DMARC of", "MX of"].iter().any(|about| line.contains(about));
    (stdout.lines().filter(about).map(str::to_owned).collect(), code)
}

#[tokio::test]
async fn a_domain_with_all_records_is_told_line_by_line_and_nothing_is_sent() {
    let ended = check("example.org", None).await;
    let (smtp, dns) = ended.stdout.split_once("ok   SPF").unwrap_or_else(|| panic!("{}", ended.stdout));
    assert!(smtp.lines().all(|line| line.starts_with("ok   ")), "{smtp}");
    assert_eq!(
        dns,
        " of example.org: \"v=spf1 ip4:192.0.2.7 -all\"\n\
         ok   DMARC of example.org: \"v = DMARC1 ; p=reject\"\n\
         ok   MX of example.org: 10 a.mail.example.org., 20 b.mail.example.org.\n\
         note DKIM: the server that delivers signs, not Gatehouse\n"
    );
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn no_spf_fails_no_dmarc_is_a_hint_and_an_address_does_for_an_mx() {
    let (lines, code) = told("bare.example.org").await;
    assert_eq!(
        lines,
        [
            "FAIL SPF of bare.example.org: no TXT record begins with v=spf1; publish one that names the server that delivers, such \
             as \"v=spf1 include:spf.example.net -all\"",
            "note DMARC of bare.example.org: _dmarc.bare.example.org has no such record; publish \"v=DMARC1; p=none\" \
             there, unless a parent domain has one",
            "ok   MX of bare.example.org: there is none, so mail goes to 192.0.2.7",
        ]
    );
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn two_spf_records_fail_and_so_does_a_domain_that_takes_no_mail() {
    let (lines, code) = told("twice.example.org").await;
    assert_eq!(
        lines,
        [
            "FAIL SPF of twice.example.org: 2 records begin with v=spf1, which is a permanent error (RFC 7208, 4.5); leave one of \
             \"v=spf1 ip4:192.0.2.7 -all\", \"V=SPF1 +all\"",
            "note DMARC of twice.example.org: 2 records begin with v=DMARC1, so receivers heed none (RFC 7489, 6.6.3); leave one of \
             \"v=DMARC1; p=none\", \"v=DMARC1; p=reject\"",
            "FAIL MX of twice.example.org: a null MX says that it takes no mail (RFC 7505); bounces go there, so publish an MX \
             record, or set mail.from to a domain that has one",
        ]
    );
    assert_eq!(code, Some(1));
    let (lines, code) = told("nowhere.example.org").await;
    assert!(
        lines[2].starts_with("FAIL MX of nowhere.example.org: there is no MX, A or AAAA record; bounces")
    );
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn an_spf_record_that_names_no_server_fails() {
    let (lines, code) = told("silent.example.org").await;
    assert_eq!(
        lines[0],
        "FAIL SPF of silent.example.org: no server may send mail from there by \"v=spf1 -ALL\"; name the one that delivers, \
         such as \"v=spf1 include:spf.example.net -all\""
    );
    assert_eq!(code, Some(1));
    for (domain, said) in [("neutral", "FAIL"), ("moved", "ok  "), ("open", "ok  ")] {
        let (lines, _) = told(&format!("{domain}.example.org")).await;
        assert!(lines[0].starts_with(&format!("{said} SPF of {domain}.example.org: ")), "{}", lines[0]);
    }
}

#[tokio::test]
async fn a_record_moves_nothing_on_the_terminal() {
    let (lines, code) = told("odd.example.org").await;
    assert_eq!(
        lines[0],
        r#"ok   SPF of odd.example.org: "v=spf1 \027[2J\007\013\010ok   \226\128\174\"\\ -all""#
    );
    assert_eq!(lines[2], r"ok   MX of odd.example.org: 10 \027]0;.example.org.");
    assert_eq!((lines.len(), code), (3, Some(0)));
}

/// It comes by TCP, and in three strings, which receivers join.
#[tokio::test]
async fn a_long_record_is_read_whole() {
    let (lines, _) = told("long.example.org").await;
    assert!(lines[0].starts_with("ok   SPF of long.example.org: \"v=spf1 ip4:"), "{}", lines[0]);
    assert!(lines[0].ends_with(" -all\"") && lines[0].matches("\" \"").count() == 2, "{}", lines[0]);
}

#[tokio::test]
async fn with_an_address_its_domain_is_asked_for_too() {
    let ended = check("example.org", Some("ada@example.net")).await;
    assert!(ended.stdout.contains("ok   MX of example.net: 10 mail.example.net.\n"), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("ok   it took a mail to a***@example.net: 250 taken\n"),
        "{}",
        ended.stdout
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = check("example.org", Some("gone@example.net")).await;
    let line = "FAIL a mail to g***@example.net: the server answered 550 5.1.1: 5.1.1 nobody here[2J has that name\n";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), "One check failed.\n"));
    let ended = check("example.org", Some("ada@null.example.net")).await;
    let line = "FAIL MX of null.example.net: a null MX says that it takes no mail (RFC 7505); no mail arrives there\n";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), "One check failed.\n"));
    let ended = check("example.org", Some("ada@Example.org")).await;
    assert_eq!((ended.code, ended.stdout.matches("MX of").count()), (Some(0), 1), "{}", ended.stdout);
}

#[tokio::test]
async fn what_dns_does_not_answer_is_no_failure_and_told_with_the_command() {
    let names = names().await;
    let dns = names.address.to_string();
    let arguments = vec!["--dns".to_owned(), dns, "ada@lost.example.net".to_owned()];
    let ended = run(home("lost.example.org").await, arguments).await;
    let line = format!(
        "note SPF of lost.example.org cannot be asked: the name server answered SERVFAIL; try: dig @127.0.0.1 -p {} TXT lost.example.org\n",
        names.address.port()
    );
    assert!(ended.stdout.contains(&line), "{}", ended.stdout);
    assert_eq!(
        (ended.code, ended.stdout.matches("cannot be asked").count()),
        (Some(0), 4),
        "{}",
        ended.stdout
    );
    // Nobody answers there: this waits out what a name server may take.
    let ended = run(home("example.org").await, vec!["--dns=127.0.0.1:9".to_owned()]).await;
    assert_eq!(
        (ended.code, ended.stdout.matches("cannot be asked").count()),
        (Some(0), 3),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("; try: dig @127.0.0.1 -p 9 MX example.org\n"), "{}", ended.stdout);
}

/// As in a network whose name server knows nothing of the outside.
#[tokio::test]
async fn that_there_is_no_record_is_not_believed_of_a_server_that_knows_nothing_of_the_top_level_domain() {
    let (lines, code) = told("example.com").await;
    let line = "note SPF of example.com cannot be asked: the name server knows no domains of .com at all, as in a closed network; try: dig @127.0.0.1 ";
    assert!(lines[0].starts_with(line), "{}", lines[0]);
    assert_eq!(
        (lines.iter().filter(|line| line.starts_with("note ")).count(), code),
        (3, Some(0)),
        "{lines:?}"
    );
}

#[tokio::test]
async fn dns_is_asked_even_if_the_mail_server_is_away_and_no_mail_is_sent_then() {
    let (names, home) = (names().await, home("example.org").await);
    home.write("gatehouse.toml", "[mail]\nurl = 'smtp://127.0.0.1:9'\nfrom = 'login@example.org'\n");
    let arguments = vec![format!("--dns={}", names.address), "ada@example.net".to_owned()];
    let ended = run(home, arguments).await;
    assert!(ended.stdout.starts_with("FAIL connect: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("ok   SPF of example.org: "), "{}", ended.stdout);
    assert!(!ended.stdout.contains("a mail to"), "{}", ended.stdout);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), "One check failed.\n"));
}

#[tokio::test]
async fn a_name_server_is_an_ip_address_with_or_without_a_port() {
    for wrong in ["dns.example.org", "127.0.0.1:0", "127.0.0.1:65536", "::1:53:x", ""] {
        let ended = run(home("example.org").await, vec![format!("--dns={wrong}")]).await;
        let right = "--dns: use an IP address, with a port if it is not 53, such as 192.0.2.53 or [2001:db8::53]:5353\n";
        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (Some(2), "", right),
            "{wrong}"
        );
    }
}
