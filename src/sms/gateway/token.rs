//! The token that authenticates a delivery report: a keyed hash of the message's id, which only the gateway
//! received.

use url::Url;

use super::MessageId;
use crate::secret::{MasterKey, SigningKeys, SubKey};

pub(super) struct ReportTokens {
    keys: SigningKeys,
    public_url: Url,
}

impl ReportTokens {
    pub fn new(master: &MasterKey, public_url: &Url) -> Self {
        Self { keys: master.derive_signing("sms.report"), public_url: public_url.clone() }
    }

    /// 128 bits in hex, which need no escaping anywhere.
    pub fn of(&self, id: MessageId) -> String {
        String::from_utf8_lossy(&token(self.keys.signing(), id)).into_owned()
    }

    /// The message of this id, if the token belongs to it.
    pub fn verify(&self, id: &str, said: &str) -> Option<MessageId> {
        let id = MessageId::parse(id)?;
        self.keys.signer(said.as_bytes(), |key| token(key, id)).map(|_| id)
    }

    /// The URL at which a gateway reports on one message.
    pub fn url(&self, gateway: &str, id: MessageId) -> Url {
        let mut url = self.public_url.clone();
        url.set_path(&format!("/sms/reports/{gateway}"));
        url.query_pairs_mut().append_pair("id", &id.to_string()).append_pair("token", &self.of(id));
        url
    }

    /// Whether anything outside this machine can call us.
    pub fn can_be_called(&self) -> bool {
        match self.public_url.host() {
            Some(url::Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => !address.is_loopback(),
            Some(url::Host::Ipv6(address)) => !address.is_loopback(),
            None => false,
        }
    }
}

/// In hex.
fn token(key: &SubKey, id: MessageId) -> [u8; 32] {
    let hash = key.hash(&[id.to_string().as_bytes()]);
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    std::array::from_fn(|at| digit(if at % 2 == 0 { hash[at / 2] >> 4 } else { hash[at / 2] & 15 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    #[test]
    fn a_token_is_good_for_its_message_and_key_alone() {
        let url = Url::parse("https://login.example").unwrap();
        let tokens = ReportTokens::new(&MasterKey::from_bytes([1; 32]), &url);
        let (one, other) = (MessageId::random(&Entropy::Os), MessageId::random(&Entropy::Os));
        assert_eq!(tokens.verify(&one.to_string(), &tokens.of(one)), Some(one));
        assert_eq!(tokens.verify(&one.to_string(), &tokens.of(other)), None);
        assert_eq!(tokens.verify(&one.to_string(), &tokens.of(one)[..31]), None);
        assert_eq!(tokens.verify(&one.to_string(), ""), None);
        let others = ReportTokens::new(&MasterKey::from_bytes([2; 32]), &url);
        assert_eq!(others.verify(&one.to_string(), &tokens.of(one)), None);
        assert_eq!(
            tokens.url("http", one).as_str(),
            format!("https://login.example/sms/reports/http?id={one}&token={}", tokens.of(one))
        );
    }

    #[test]
    fn loopback_is_called_by_nobody_else() {
        let key = MasterKey::from_bytes([1; 32]);
        for (url, can) in [
            ("http://127.0.0.1:8080", false),
            ("http://localhost", false),
            ("http://[::1]", false),
            ("https://login.example", true),
            ("http://192.0.2.1", true),
        ] {
            assert_eq!(ReportTokens::new(&key, &Url::parse(url).unwrap()).can_be_called(), can, "{url}");
        }
    }
}
