//! `[factors]` (live): who must have a second factor, by when, and how long a browser is trusted.

use std::fmt;
use std::time::Duration;

use super::document::ValueNode;
use super::limits::is_custom_name;
use super::reader::{ListOf, ParseResult, section};
use super::values::{DAY, duration};

const LONGEST: Duration = Duration::from_secs(365 * DAY.as_secs());

section! {
    FactorSettings in "factors" {
        require: Vec<RequiredOf> = Vec::new(), ListOf(required_of);
        /// From the first sign-in under the policy.
        grace: Duration = DAY * 7, duration(Duration::ZERO..=LONGEST);
        /// Zero: no browser is trusted, whenever it was.
        trust_device: Duration = DAY * 30, duration(Duration::ZERO..=LONGEST);
    }
}

/// The accounts of which a second factor is required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequiredOf {
    Everyone,
    Admins,
    Group(String),
}

impl fmt::Display for RequiredOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("everyone"),
            Self::Admins => f.write_str("admins"),
            Self::Group(group) => write!(f, "group:{group}"),
        }
    }
}

impl FactorSettings {
    /// For statements, each between commas; empty if nobody is.
    pub fn required_of(&self) -> String {
        let all: String = self.require.iter().map(|one| format!(",{one}")).collect();
        if all.is_empty() { all } else { all + "," }
    }

    pub const fn trusts_devices(&self) -> bool {
        !self.trust_device.is_zero()
    }
}

fn required_of(node: ValueNode) -> ParseResult<RequiredOf> {
    let text = node.text()?;
    match (text.as_str(), text.strip_prefix("group:")) {
        ("everyone", _) => Ok(RequiredOf::Everyone),
        ("admins", _) => Ok(RequiredOf::Admins),
        (_, Some(group)) if is_custom_name(group) => Ok(RequiredOf::Group(group.to_owned())),
        _ => Err(format!("{text:?} is nobody; write \"everyone\", \"admins\" or \"group:staff\"")),
    }
}
