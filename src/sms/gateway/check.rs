//! What a gateway can be asked without sending a message: for `gatehouse sms check`, and to know whether one that was out of
//! service is back.

use std::future::Future;
use std::pin::Pin;

use strum::IntoStaticStr;

use super::{DeliveryResult, OutOfService, RefusedFor};

pub type CheckFuture<'a> = Pin<Box<dyn Future<Output = Vec<GatewayCheck>> + Send + 'a>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayCheck {
    pub part: CheckedPart,
    pub result: CheckResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum CheckedPart {
    Connection,
    Credentials,
    Account,
    Signature,
    Template,
    Balance,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// In order, with what was said.
    Passed(String),
    Failed(OutOfService, String),
    /// It cannot be asked, for this reason.
    NotAsked(String),
}

impl OutOfService {
    /// The part of a check that says whether it is over.
    pub(super) const fn part(self) -> CheckedPart {
        match self {
            Self::Unreachable => CheckedPart::Connection,
            Self::Credentials => CheckedPart::Credentials,
            Self::Account | Self::Region => CheckedPart::Account,
            Self::Balance => CheckedPart::Balance,
            Self::Signature => CheckedPart::Signature,
            Self::Template => CheckedPart::Template,
        }
    }
}

impl CheckedPart {
    pub(super) fn passed(self, said: impl Into<String>) -> GatewayCheck {
        GatewayCheck { part: self, result: CheckResult::Passed(said.into()) }
    }

    pub(super) fn not_asked(self, reason: impl Into<String>) -> GatewayCheck {
        GatewayCheck { part: self, result: CheckResult::NotAsked(reason.into()) }
    }

    /// The check of a part whose question was not answered.
    pub(super) fn unanswered(self, wrong: CheckResult) -> GatewayCheck {
        GatewayCheck { part: self, result: wrong }
    }
}

impl GatewayCheck {
    pub(super) fn failed(why: OutOfService, reason: impl Into<String>) -> Self {
        Self { part: why.part(), result: CheckResult::Failed(why, reason.into()) }
    }

    /// What the first answer of a provider says of the way to it and of the key; false if nothing more can be asked.
    pub(super) fn of_access<T>(first: &Result<T, CheckResult>) -> (Vec<Self>, bool) {
        match first {
            Err(CheckResult::Failed(OutOfService::Unreachable, reason)) => {
                (vec![Self::failed(OutOfService::Unreachable, reason)], false)
            }
            Err(CheckResult::Failed(why, reason))
                if matches!(why.part(), CheckedPart::Credentials | CheckedPart::Account) =>
            {
                (vec![CheckedPart::Connection.passed("answers"), Self::failed(*why, reason)], false)
            }
            // An answer that is about neither, such as that of a wrong address, says nothing of the key.
            Err(CheckResult::NotAsked(reason)) => {
                let credentials = CheckedPart::Credentials.not_asked(reason);
                (vec![CheckedPart::Connection.passed("answers"), credentials], true)
            }
            Ok(_) | Err(_) => (
                vec![CheckedPart::Connection.passed("answers"), CheckedPart::Credentials.passed("accepted")],
                true,
            ),
        }
    }
}

impl From<DeliveryResult> for CheckResult {
    /// What a refusal, or the lack of an answer, says of the part that was asked about.
    fn from(delivery: DeliveryResult) -> Self {
        match delivery {
            DeliveryResult::Refused { reason, whose: RefusedFor::Everybody(why) } => {
                Self::Failed(why, reason)
            }
            DeliveryResult::Refused { reason, whose: RefusedFor::ThisMessage } => Self::NotAsked(reason),
            DeliveryResult::Unknown { reason } => Self::Failed(OutOfService::Unreachable, reason),
            DeliveryResult::Accepted { .. } => Self::Passed(String::new()),
        }
    }
}
