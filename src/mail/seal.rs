//! What of a mail is in the database: a keyed hash of its mailbox, and a seal around its address and code.

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{LetterKind, Mailbox};
use crate::entropy::Entropy;
use crate::message::{MessageId, hex};
use crate::secret::{MasterKey, Seal, SubKey};

/// Knows mailboxes without storing them, and seals what has to be read again.
#[derive(Clone)]
pub struct MailSeal {
    mailboxes: SubKey,
    seal: Seal,
}

/// A mail with a code as it is written: its id is that of the message in the ledger.
pub struct QueuedMail {
    pub(super) id: String,
    pub(super) kind: LetterKind,
    pub(super) mailbox: String,
    /// None: the answer is the same, and nothing is sent.
    pub(super) sealed: Option<String>,
}

/// What a letter needs beside its kind. As secret as the code, and wiped when dropped.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub struct SealedLetter {
    pub code: String,
    pub locale: String,
    /// Where to, if it is not to the address of an account.
    pub address: Option<String>,
}

impl MailSeal {
    pub fn new(master: &MasterKey) -> Self {
        Self { mailboxes: master.derive("mail.mailbox"), seal: Seal::new(master.derive("mail.seal")) }
    }

    /// What tables know a mailbox by: the same in each of its spellings.
    pub fn key(&self, mailbox: &Mailbox) -> String {
        hex(&self.mailboxes.hash(&[mailbox.counted().as_bytes()]))
    }

    /// What the table of refusals knows an address by: each spelling for itself, since a server may know one and refuse
    /// another.
    pub fn key_of_spelling(&self, mailbox: &Mailbox) -> String {
        hex(&self.mailboxes.hash(&[b"spelling ", mailbox.as_str().as_bytes()]))
    }

    /// What the table of codes that freeze accounts knows a code by.
    pub fn hash_of_code(&self, code: &str) -> String {
        hex(&self.mailboxes.hash(&[b"freeze ", code.as_bytes()]))
    }

    /// `owner` is the id of what the text belongs to: it opens for nothing else.
    pub fn seal(&self, owner: &str, text: &str, entropy: &Entropy) -> String {
        self.seal.seal(owner.as_bytes(), text.as_bytes(), entropy)
    }

    /// Opens a text; None if it was sealed under another key file.
    pub fn open(&self, owner: &str, sealed: &str) -> Option<String> {
        let opened = self.seal.open(owner.as_bytes(), sealed)?;
        String::from_utf8(opened.to_vec()).ok()
    }

    /// Seals a letter for the mail of that id.
    pub fn seal_letter(&self, id: &str, letter: &SealedLetter, entropy: &Entropy) -> String {
        let text = Zeroizing::new(serde_json::to_string(letter).unwrap_or_default());
        self.seal(id, &text, entropy)
    }

    /// Opens a letter; None if it was sealed under another key file.
    pub fn letter(&self, id: &str, sealed: &str) -> Option<SealedLetter> {
        serde_json::from_slice(&self.seal.open(id.as_bytes(), sealed)?).ok()
    }

    /// A mail with a code. One for a new password goes to the address that the account has, not to the spelling of it that
    /// somebody has just typed: a server may keep two spellings apart.
    pub fn code(
        &self,
        id: MessageId,
        kind: LetterKind,
        mailbox: &Mailbox,
        (code, locale): (&str, &str),
        withheld: bool,
        entropy: &Entropy,
    ) -> QueuedMail {
        let address = (kind != LetterKind::ResetCode).then(|| mailbox.as_str().to_owned());
        let (code, locale) = (code.to_owned(), locale.to_owned());
        let id = id.to_string();
        // A mail that is withheld takes the same work.
        let sealed = self.seal_letter(&id, &SealedLetter { code, locale, address }, entropy);
        QueuedMail { id, kind, mailbox: self.key(mailbox), sealed: (!withheld).then_some(sealed) }
    }
}
