//! The client's address never comes from a hop that is not trusted. Input: the lines of X-Forwarded-For.
#![no_main]

use std::net::IpAddr;
use std::sync::LazyLock;

use gatehouse::web::http::client::{ClientAddress, TrustedProxies};
use libfuzzer_sys::fuzz_target;

static TRUSTED: LazyLock<TrustedProxies> = LazyLock::new(|| {
    TrustedProxies::new(["10.0.0.0/8", "::1/128"].map(|network| network.parse().expect("a network")))
});

fn told(peer: &str, lines: &[&[u8]]) -> ClientAddress {
    ClientAddress::told_by(peer.parse().expect("an address"), lines.iter().copied(), &TRUSTED)
}

fuzz_target!(|text: &[u8]| {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let stranger: IpAddr = "203.0.113.9".parse().expect("an address");
    assert_eq!(told("203.0.113.9", &lines).ip(), stranger, "a stranger is not believed");

    // The hop that a proxy has seen decides, whatever is written to the left of it and in earlier lines.
    let appended = [lines.as_slice(), &[b"203.0.113.9, 10.0.0.2", b"10.255.0.1"]].concat();
    assert_eq!(told("10.0.0.1", &appended).ip(), stranger);
    assert_eq!(told("::ffff:10.0.0.1", &appended).ip(), stranger);

    // What is told is the peer, or was written by somebody.
    let client = told("10.0.0.1", &lines);
    let IpAddr::V4(proxy) = "10.0.0.1".parse().expect("an address") else { unreachable!("it is IPv4") };
    assert!(client.ip() == IpAddr::V4(proxy) || text.len() >= "::".len());
    // One client is one subject on a dual-stack socket.
    assert_eq!(client.ip(), client.ip().to_canonical());
    drop((client.subject(), client.network(), client.masked()));
});
