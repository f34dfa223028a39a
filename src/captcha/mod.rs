//! CAPTCHA challenges: issued without a write, redeemed once, right or wrong; solved by the letters in an image or
//! by a proof of work, whichever the client can.
//!
//! A challenge is a signed id (`id.rs`), from which its answer (`id.rs`, too) and its image (`image.rs`) are
//! derived with our keys. So a flood of refusals, each with a fresh challenge, costs no store anything; only
//! a redemption leaves a mark (`marks.rs`), and only for an id that we signed.
//!
//! An image is drawn when it is fetched, at a limited rate and in turn (`service.rs`, `slots.rs`). A proof of work
//! (`proof.rs`) is given to everyone who asks, and costs this server a derivation when it is answered, in turn, too.
//!
//! It does not stop a machine that was trained on the images, or that pays for the work; block rules do.

mod id;
mod image;
mod marks;
mod proof;
mod service;
mod slots;

use std::time::Duration;

use strum::{FromRepr, IntoStaticStr};

pub use crate::config::{CaptchaProvider as Provider, Difficulty};
pub use id::ALPHABET;
pub use image::{HEIGHT, ImageError, ImageRefusal, WIDTH, png};
pub use marks::{RedisMarks, SpendFuture, SpentMarks};
pub use proof::{Effort, ProofChallenge};
pub use service::{CaptchaService, ChallengeImage};

/// The form that a challenge is for; solved for one form, it is invalid on another.
///
/// The numbers are those in ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
pub enum CaptchaForm {
    Login = 0,
    Register = 1,
    MessageCode = 2,
    PasswordReset = 3,
    /// The current password, entered before it is changed.
    PasswordChange = 4,
    /// The login of another program.
    Attempt = 5,
    /// A code that another program has sent.
    Verification = 6,
}

impl CaptchaForm {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The client that a challenge is bound to, and that its image counts on: the address in the form that limits count, and
/// the browser's cookie if the request that received the challenge had one. A first visit has no cookie yet, so a challenge
/// issued without one stays valid when the browser comes back with one.
#[derive(Debug, Clone, Copy)]
pub struct CaptchaClient<'a> {
    pub address: &'a [u8],
    pub network: &'a [u8],
    /// The realm of a client of another program, each of which has a total of its own.
    pub realm: Option<&'a [u8]>,
    pub cookie: Option<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    pub id: String,
    pub expires_in: Duration,
    /// Until its image would be drawn; none if it would be now.
    pub image_after: Option<Duration>,
    pub proof: Option<Box<ProofChallenge>>,
}

#[derive(Clone, Copy)]
pub enum CaptchaAnswer<'a> {
    /// The letters in the image of the challenge with this id.
    Letters { id: &'a str, typed: &'a str },
    /// The challenge of a proof of work with its solution, as the ALTCHA widget encodes them.
    Proof(&'a str),
}

impl CaptchaAnswer<'_> {
    pub const fn is_empty(self) -> bool {
        match self {
            Self::Letters { id, typed } => id.is_empty() && typed.is_empty(),
            Self::Proof(solution) => solution.is_empty(),
        }
    }
}

/// The result of an answer. Only `Solved` and `Wrong` used the challenge up just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[must_use]
pub enum RedeemResult {
    Solved,
    Wrong,
    Expired,
    /// Answered before, right or wrong; or there was no room to mark it as answered.
    Spent,
    /// Its address or network has answered so many that this one was given out too cheaply.
    Cheap,
    /// There was no slot to derive in, or its network has had its share of what all may have. It stays valid.
    Busy,
    /// Issued to another client or for another form. It stays valid there, so that seeing somebody's id is
    /// not enough to use up their challenge.
    Foreign,
    /// Not an id that we signed.
    Malformed,
}

impl RedeemResult {
    pub const fn is_solved(self) -> bool {
        matches!(self, Self::Solved)
    }

    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}
