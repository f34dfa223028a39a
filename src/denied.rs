//! Why something was not done that may be done later: one type for every service, told by `Problem::denied`.

use std::borrow::Cow;
use std::time::Duration;

use gatehouse_limiter::{Refusal, RuleAction};

/// What asks for a challenge if no limit does: there is no room to hash, or others in flight hold all slots for too long.
pub const BUSY: &str = "busy";
/// The name of the limit while an administrator has everybody challenged (`[access]`).
pub const ACCESS: &str = "access";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// A challenge must be solved with it. Without one, not before that time.
    Challenged { limit: Cow<'static, str>, rule: usize, retry_after: Duration },
    /// Not before that time, whatever comes with it.
    Throttled { limit: Cow<'static, str>, rule: usize, retry_after: Duration },
    /// There is no room for it at the moment.
    Busy { retry_after: Duration },
    /// Something that it needs is out, or is paused.
    Unavailable { retry_after: Duration },
    /// The client's address is refused (`[access] deny`), and this is nothing that its known device may do.
    AddressDenied,
}

/// The full rule of a limit that denied something.
#[derive(Debug, Clone, Copy)]
pub struct DeniedRule<'a> {
    pub limit: &'a str,
    /// Its place in the limit, from 0.
    pub rule: usize,
    pub retry_after: Duration,
}

impl Denied {
    /// Says what a full rule of the limit says.
    pub fn by(limit: impl Into<Cow<'static, str>>, refusal: &Refusal) -> Self {
        let (limit, Refusal { rule, retry_after, .. }) = (limit.into(), *refusal);
        match refusal.then {
            RuleAction::Captcha => Self::Challenged { limit, rule, retry_after },
            RuleAction::Block => Self::Throttled { limit, rule, retry_after },
        }
    }

    /// There is no room to hash, or no slot became free in time. Without a challenge one is asked for, so that a flood
    /// has to pay.
    pub const fn no_room(solved: bool, retry_after: Duration) -> Self {
        match solved {
            true => Self::Busy { retry_after },
            false => Self::Challenged { limit: Cow::Borrowed(BUSY), rule: 0, retry_after },
        }
    }

    /// While everybody is challenged.
    pub const fn challenged_with_everyone(retry_after: Duration) -> Self {
        Self::Challenged { limit: Cow::Borrowed(ACCESS), rule: 0, retry_after }
    }

    /// The rule that is full, and until when; None if something else than a limit decided.
    pub fn full(&self) -> Option<DeniedRule<'_>> {
        match self {
            Self::Challenged { limit, .. } if limit == BUSY || limit == ACCESS => None,
            Self::Challenged { limit, rule, retry_after } | Self::Throttled { limit, rule, retry_after } => {
                Some(DeniedRule { limit, rule: *rule, retry_after: *retry_after })
            }
            Self::Busy { .. } | Self::Unavailable { .. } | Self::AddressDenied => None,
        }
    }
}
