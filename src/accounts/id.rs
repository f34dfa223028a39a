//! Ids of accounts, and of what belongs to one.

use crate::db::random_id;

random_id! {
    /// An account, permanently: the login may change, the id does not.
    AccountId
}
random_id! {
    /// A session in its owner's list, used to end it. It opens nothing: the token does.
    SessionId
}
random_id! {
    /// One browser at one account. Opens nothing, and identifies no machine.
    DeviceId
}
random_id! {
    /// What a client of OpenID Connect was let have.
    GrantId
}
random_id! {
    /// A passkey in its owner's list, used to remove it.
    PasskeyId
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    #[test]
    fn an_id_has_one_text() {
        let id = AccountId::random(&Entropy::seeded(1));
        let text = id.to_string();
        assert_eq!(AccountId::parse(&text), Some(id));
        assert_eq!(AccountId::parse(&format!("+{}", &text[1..])), None);
        assert_eq!(AccountId::parse("0123456789ABCDEF0123456789ABCDEF"), None);
        assert_eq!(AccountId::parse(&"é".repeat(16)), None);
        assert_eq!(AccountId::parse(""), None);
    }
}
