use super::*;

#[test]
fn addresses_are_masked() {
    let network = |address: &str| SignInClient::new(address.parse().unwrap(), "").network;
    assert_eq!(network("203.0.113.77"), "203.0.113.0/24");
    assert_eq!(network("::ffff:203.0.113.77"), "203.0.113.0/24", "IPv4 in IPv6's clothes");
    assert_eq!(network("2001:db8:0:42::1"), "2001:db8::/48");
}

#[test]
fn a_user_agent_is_cut_and_cleaned() {
    let agent = |text: &str| SignInClient::new(IpAddr::from([127, 0, 0, 1]), text).user_agent;
    assert_eq!(agent("Mozilla\0/5.0\r\n"), "Mozilla/5.0");
    assert_eq!(agent(&"é".repeat(10_000)).chars().count(), 200);
}
