//! Seals what is stored and has to be read again, such as the secrets of apps: ChaCha20-Poly1305 under a key of the key
//! file.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::SubKey;
use crate::entropy::Entropy;

#[derive(Clone)]
pub struct Seal(SubKey);

impl Seal {
    pub const fn new(key: SubKey) -> Self {
        Self(key)
    }

    /// `owner` is what the secret belongs to: it opens for nothing else.
    pub fn seal(&self, owner: &[u8], secret: &[u8], entropy: &Entropy) -> String {
        let nonce: [u8; NONCE_LEN] = entropy.bytes();
        let mut sealed = secret.to_vec();
        self.cipher()
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(owner), &mut sealed)
            .expect("so few bytes can be sealed");
        URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())
    }

    /// Opens a secret; None if it was sealed under another key, or for another owner.
    pub fn open(&self, owner: &[u8], sealed: &str) -> Option<Zeroizing<Vec<u8>>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut opened = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.cipher().open_in_place(nonce, Aad::from(owner), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }

    fn cipher(&self) -> LessSafeKey {
        let key = self.0.hash(&[b"seal"]);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("the cipher takes 32 bytes");
        LessSafeKey::new(key)
    }
}
