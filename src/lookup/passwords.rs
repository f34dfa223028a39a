//! Passwords that had too many wrong ones in a row, enabled again.

use serde_json::json;

use super::{By, Lookup, Subject};
use crate::audit::{Action, Event, Outcome};
use crate::db::DbError;
use crate::login::password_enabled_counter;
use crate::request_id;

impl Lookup {
    /// Lets the disabled password of whoever has this name or number open their account again. False where there
    /// is none such. Done to its end and recorded, whoever hangs up meanwhile.
    pub async fn enable_password(&self, subject: &Subject, by: By<'_>) -> Result<bool, DbError> {
        let (this, subject) = (self.clone(), subject.clone());
        let (actor, address, reason) = (by.actor.to_owned(), by.address.to_owned(), by.reason.to_owned());
        let enabling = request_id::spawn(async move {
            let Some(account) = this.account(&subject).await? else { return Ok(false) };
            if !this.0.accounts.enable_password(account.id).await? {
                return Ok(false);
            }
            password_enabled_counter().increment(1);
            let audit = &this.0.audit;
            // Found again by what it was looked up by.
            let phone = match &subject {
                Subject::Phone(phone) => Some(crate::audit::Subject::Phone(phone.as_str())),
                _ => None,
            };
            audit.record(Event {
                phone,
                name: Some("password.enable"),
                actor: Some(&actor),
                account: Some(account.recorded()),
                address: Some(crate::audit::Subject::Address(&address)),
                detail: Some(json!({ "reason": reason }).to_string()),
                ..Event::new(audit.now(), Action::Admin, Outcome::Ok)
            });
            Ok(true)
        });
        enabling.await.expect("enabling does not panic, nor is it cancelled")
    }
}
