//! Receivers of webhooks that are refused, each with its message.

use super::refusal;

#[test]
fn receivers_of_webhooks() {
    let told = |webhook: &str, expected: &str| {
        let text = format!("webhooks = [{{ {webhook} }}]");
        assert_eq!(refusal(&text), format!("gatehouse.toml:1: {expected}"), "for {webhook}");
    };
    let at = "url = 'https://ops.example/hook'";
    told(
        at,
        "webhooks[0].secret: is missing; write \"env:NAME\" or \"file:PATH\" to say where the signing secret is read from",
    );
    told("secret = 'env:A'", "webhooks[0].url: is missing; write where to post");
    told(
        &format!("{at}, secret = 'whsec_plain'"),
        "webhooks[0].secret: contains the secret itself; write \"env:NAME\" or \"file:PATH\" to say where it is read from",
    );
    told(
        &format!("{at}, secret = 'env:A', events = ['attack.begun']"),
        "webhooks[0].events[0]: \"attack.begun\" is not allowed; use *, or some of: attack.began, attack.ended, sms.brake, password.disabled, spray, password.breached, factor.added, factor.removed, factor.failed, factor.reset, totp.disabled, key.rotated, token.reuse, consent.given, sms.total, limits.changed, dependency.down, dependency.up",
    );
    told(
        "url = 'http://ops.example/', secret = 'env:A'",
        "webhooks[0].url: is http, but receivers on the Internet need https; within your own network, set allow_private = true",
    );
    for inside in ["127.0.0.1", "[::1]", "[::ffff:169.254.169.254]", "100.64.0.1", "0x7f000001"] {
        told(
            &format!("url = 'https://{inside}/', secret = 'env:A'"),
            "webhooks[0].url: is an address that only this network reaches; if that is meant, set allow_private = true",
        );
    }
    told(
        "url = 'https://me:pass@ops.example/', secret = 'env:A'",
        "webhooks[0].url: contains a username or password; the signature says who sends it",
    );
    let one = "{ url = 'https://a.example/', secret = 'env:A' }";
    assert_eq!(
        refusal(&format!("webhooks = [{one}, {one}]")),
        "gatehouse.toml:1: webhooks[1].url: is listed twice; name all events in one entry"
    );
    let entry = |index| format!("{{ url = 'https://a.example/{index}', secret = 'env:A' }}");
    let many = (0..11).map(entry).collect::<Vec<_>>().join(", ");
    assert_eq!(
        refusal(&format!("webhooks = [{many}]")),
        "gatehouse.toml:1: webhooks: has 11 entries; at most 10 are allowed"
    );
}
