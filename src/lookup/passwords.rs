//! Re-enables passwords that were disabled after too many wrong ones in a row.

use super::{Lookup, LookupActor, LookupSubject};
use crate::audit::{Action, AuditEvent, Outcome};
use crate::db::DbError;
use crate::login::password_enabled_counter;
use crate::request_id;

impl Lookup {
    /// Re-enables the disabled password of the account with this name or number. False if there is none. Runs
    /// to its end and is recorded, even if the client hangs up.
    pub async fn enable_password(
        &self,
        subject: &LookupSubject,
        by: LookupActor<'_>,
    ) -> Result<bool, DbError> {
        let (this, subject) = (self.clone(), subject.clone());
        let (actor, address, detail) = (by.actor.to_owned(), by.address.to_owned(), by.detail().to_string());
        let enabling = request_id::spawn(async move {
            let Some(account) = this.account(&subject).await? else { return Ok(false) };
            if !this.0.accounts.enable_password(account.id).await? {
                return Ok(false);
            }
            password_enabled_counter().increment(1);
            let audit = &this.0.audit;
            // Found again by what it was looked up by.
            let phone = match &subject {
                LookupSubject::Phone(phone) => Some(crate::audit::EventSubject::Phone(phone.as_str())),
                _ => None,
            };
            audit.record(AuditEvent {
                phone,
                name: Some("password.enable"),
                actor: Some(&actor),
                account: Some(account.recorded()),
                address: Some(crate::audit::EventSubject::Address(&address)),
                detail: Some(detail),
                ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
            });
            Ok(true)
        });
        enabling.await.expect("enabling does not panic, nor is it cancelled")
    }
}
