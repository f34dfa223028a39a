//! Whom a message is for: a phone by SMS, or a mailbox by e-mail.

use std::borrow::Cow;

use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::audit::{Action, EventSubject, mask};
use crate::mail::Mailbox;
use crate::message::{MessagePurpose, Purpose};
use crate::sms::Phone;

/// How a message reaches its recipient. Each channel has limits, windows and a mark of complete windows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, Serialize)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Sms,
    Mail,
}

impl Channel {
    pub const ALL: [Self; 2] = [Self::Sms, Self::Mail];

    /// What events call a request for a message.
    pub const fn request(self) -> Action {
        match self {
            Self::Sms => Action::Send,
            Self::Mail => Action::Mail,
        }
    }

    /// What events call an entered code.
    pub const fn guess(self) -> Action {
        match self {
            Self::Sms => Action::Guess,
            Self::Mail => Action::MailGuess,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    Phone(Phone),
    Mailbox(Mailbox),
}

impl Recipient {
    pub const fn channel(&self) -> Channel {
        match self {
            Self::Phone(_) => Channel::Sms,
            Self::Mailbox(_) => Channel::Mail,
        }
    }

    pub const fn phone(&self) -> Option<&Phone> {
        match self {
            Self::Phone(phone) => Some(phone),
            Self::Mailbox(_) => None,
        }
    }

    pub const fn mailbox(&self) -> Option<&Mailbox> {
        match self {
            Self::Phone(_) => None,
            Self::Mailbox(mailbox) => Some(mailbox),
        }
    }

    /// The number or the address itself.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Phone(phone) => phone.as_str(),
            Self::Mailbox(mailbox) => mailbox.as_str(),
        }
    }

    /// For its owner.
    pub fn masked(&self) -> String {
        match self {
            Self::Phone(phone) => phone.masked(),
            Self::Mailbox(mailbox) => mailbox.masked(),
        }
    }

    /// What limits count: one phone, whichever of its numbers, or one mailbox, in whichever spelling.
    pub fn subject(&self) -> &str {
        match self {
            Self::Phone(phone) => phone.subject(),
            Self::Mailbox(mailbox) => mailbox.counted(),
        }
    }

    /// What wrong codes are counted for, behind a word for who guesses. No word and address is another address.
    pub fn subject_of_guesses(&self) -> String {
        match self {
            Self::Phone(phone) => phone.subject().to_owned(),
            Self::Mailbox(mailbox) => format!("\0{}", mailbox.counted()),
        }
    }

    /// What events know it by: the number itself, or the mailbox.
    pub fn named(&self) -> &str {
        match self {
            Self::Phone(phone) => phone.as_str(),
            Self::Mailbox(mailbox) => mailbox.counted(),
        }
    }

    /// What a code is bound to: the number itself, or the address as it was spelt. One for a new password goes to the address
    /// that the account has, and is bound to its mailbox: whoever asked for it may spell that in another way.
    pub fn bound(&self, purpose: &MessagePurpose) -> &str {
        match (self, purpose) {
            (Self::Phone(_), _) | (_, MessagePurpose::Own(Purpose::Reset)) => self.named(),
            (Self::Mailbox(mailbox), _) => mailbox.as_str(),
        }
    }

    /// For the ledger and its pages: a number's block, or the mask of the mailbox, the same in every spelling and in events.
    pub fn block(&self) -> Cow<'_, str> {
        match self {
            Self::Phone(phone) => phone.block().into(),
            Self::Mailbox(mailbox) => mask(&EventSubject::Mailbox(mailbox.counted())).into(),
        }
    }

    /// Where codes that do not come back are counted together: an operator's range, or no range.
    pub fn range(&self) -> &str {
        self.phone().map_or("", Phone::range)
    }

    /// What events know it by, and the dialling prefix of a number.
    pub fn recorded(&self) -> (EventSubject<'_>, Option<EventSubject<'_>>) {
        match self {
            Self::Phone(phone) => {
                (EventSubject::Phone(phone.as_str()), Some(EventSubject::Prefix(phone.block())))
            }
            Self::Mailbox(mailbox) => (EventSubject::Mailbox(mailbox.counted()), None),
        }
    }
}

impl From<Phone> for Recipient {
    fn from(phone: Phone) -> Self {
        Self::Phone(phone)
    }
}

impl From<Mailbox> for Recipient {
    fn from(mailbox: Mailbox) -> Self {
        Self::Mailbox(mailbox)
    }
}
