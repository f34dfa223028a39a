//! Failures that were counted under a key that was given up. Nobody can tell any more at which accounts, so until they would
//! count nowhere, every account is treated as blocked.

use std::time::Duration;

use gatehouse_limiter::{Refusal, RuleAction};

use super::counting::{CountingMode, GuardLimits, GuardedLogin};
use super::{ASKED, GuardAdmission, LoginGuard, refused};
use crate::clock::Micros;
use crate::config::Limits;

impl LoginGuard {
    /// The refusal that everyone gets; None once all of them have left the windows of that login.
    pub(super) fn refuse_by_given_up(
        &self,
        limits: &Limits,
        login: GuardedLogin,
        mode: CountingMode,
    ) -> Option<GuardAdmission> {
        let last = match login {
            GuardedLogin::Own | GuardedLogin::Realm => self.given_up.passwords,
            GuardedLogin::Factor => self.given_up.factors,
        };
        if last == Micros::default() {
            return None;
        }
        let GuardLimits { account, device, .. } = login.limits(limits);
        let longest = account.longest_window().max(device.longest_window());
        let retry_after = last.plus(longest).since(self.failures.clock().now());
        let refusal = Refusal { then: RuleAction::Block, retry_after, ..ASKED };
        (retry_after > Duration::ZERO).then(|| refused(login, mode, refusal))
    }
}
