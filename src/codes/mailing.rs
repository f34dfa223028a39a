//! Hands queued mails to the server that delivers: codes, whose rows in the ledger it settles, and notices.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::ledger::Ledger;
use super::service::{CodeService, MAILS_AT_ONCE, MailServerState};
use crate::clock::{Micros, as_utc_minutes};
use crate::config::{Brand, LiveSettings};
use crate::db::DbError;
use crate::mail::{
    Letter, LetterFacts, LetterKind, MailDelivery, MailOutbox, MailResult, MailState, MailTransport, Mailbox,
    SmtpPhase, TakenMail, letter,
};
use crate::message::MessageId;

/// After each failed try of one mail, until the last of them.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
];

/// How many of the longest pauses a notice waits at most that was refused for what may be about us.
const MOST_PAUSES: u32 = 16;
/// How long is waited for one of the mails in flight to end.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many mails that go to nobody are ended at once.
const WITHHELD_AT_ONCE: u32 = 200;

type PreparedMail = Result<(Mailbox, Letter), (MailResult, &'static str)>;

impl MailServerState {
    /// How long it is left alone after a failure. A clock that was set back must not prolong that.
    fn pause(&self) -> Duration {
        PAUSES[(self.failures.saturating_sub(1) as usize).min(PAUSES.len() - 2)]
    }

    fn is_left_alone(&self, now: Micros) -> bool {
        self.failures > 0 && now < self.again_at && self.again_at.since(now) <= self.pause()
    }
}

impl CodeService {
    /// Hands over what is due; returns how many mails were taken. Runs periodically. Each mail is handed over on a task of
    /// its own: none waits for a slow one, and [`Self::drain`] waits for all.
    pub async fn deliver_mail(&self, live: &LiveSettings) -> Result<usize, DbError> {
        let inner = &*self.0;
        let mailer = &inner.deps.mailer;
        if !mailer.transport.sends() {
            return Ok(0);
        }
        // From before anything is taken: a server that stops waits for it.
        let _slot = inner.slots.withheld();
        if !mailer.queue.has_due().await? {
            self.probe_mail_server();
            return Ok(0);
        }
        let ended = mailer.queue.withhold(WITHHELD_AT_ONCE).await?;
        let ended = usize::try_from(ended).unwrap_or(usize::MAX);
        let most = match self.is_probe_due() {
            // One mail finds out whether a server that took nothing is back.
            Some(due) => usize::from(due),
            None => {
                drop(timeout(PATIENCE, inner.mail_permits.acquire()).await);
                inner.mail_permits.available_permits()
            }
        };
        if most == 0 {
            return Ok(ended);
        }
        let taken = mailer.queue.take(u32::try_from(most).unwrap_or(1)).await?;
        let count = taken.len();
        for mail in taken {
            let permit = Arc::clone(&inner.mail_permits).acquire_owned().await;
            let (codes, brand, slot) = (self.clone(), Arc::clone(&live.brand), inner.slots.withheld());
            tokio::spawn(async move {
                if let Err(error) = codes.deliver_one(&brand, mail).await {
                    tracing::warn!(%error, "the outcome of a mail could not be written");
                }
                drop((permit, slot));
            });
        }
        Ok(count + ended)
    }

    /// Whether a server that took nothing the last time may be tried again now; None if it took something.
    fn is_probe_due(&self) -> Option<bool> {
        let inner = &*self.0;
        let (state, now) = (inner.mail_server.load(), inner.clock.now());
        let is_idle = inner.mail_permits.available_permits() >= MAILS_AT_ONCE;
        (state.failures > 0).then(|| is_idle && !state.is_left_alone(now))
    }

    /// Asks a server that took nothing whether it is back, while no mail waits that would find out.
    fn probe_mail_server(&self) {
        let inner = &*self.0;
        if self.is_probe_due() != Some(true) {
            return;
        }
        let Ok(permit) = Arc::clone(&inner.mail_permits).try_acquire_owned() else { return };
        let (codes, slot) = (self.clone(), inner.slots.withheld());
        tokio::spawn(async move {
            let found = codes.0.deps.mailer.transport.probe().await;
            codes.note_server(&found);
            drop((permit, slot));
        });
    }

    /// Deletes at most `batch` mails that nobody counts any more.
    pub async fn purge_mail(&self, batch: u32) -> Result<u64, DbError> {
        self.0.deps.mailer.queue.purge(batch).await
    }

    /// The mails of a server for development.
    pub fn mail_outbox(&self) -> Option<&MailOutbox> {
        self.0.deps.mailer.transport.outbox()
    }

    /// What is known of the server that delivers; None if there is none.
    pub fn mail_server(&self) -> Option<Arc<MailServerState>> {
        let Self(inner) = self;
        matches!(inner.deps.mailer.transport, MailTransport::Smtp(_)).then(|| inner.mail_server.load_full())
    }

    /// Checks how many mails wait, for the metrics. Runs periodically.
    pub async fn watch_mail(&self) {
        let metrics = &self.0.metrics;
        metrics.mail_server_up.set(if self.0.mail_server.load().failures == 0 { 1.0 } else { 0.0 });
        if !self.0.deps.mailer.transport.sends() {
            metrics.mail_waiting.set(0.0);
        } else if let Ok(waiting) = self.0.deps.mailer.queue.waiting().await {
            metrics.mail_waiting.set(waiting as f64);
        }
    }

    /// Until when nothing is sent to an address in this spelling, because it was refused.
    pub async fn mail_refused_until(&self, mailbox: &Mailbox) -> Result<Option<Micros>, DbError> {
        let mailer = &self.0.deps.mailer;
        mailer.queue.refused_until(&mailer.seal.key_of_spelling(mailbox)).await
    }

    /// Sends mail again to an address that was refused in this spelling. False if it gets mail.
    pub async fn allow_mail(&self, mailbox: &Mailbox) -> Result<bool, DbError> {
        let refused = self.mail_refused_until(mailbox).await?.is_some();
        if refused {
            let mailer = &self.0.deps.mailer;
            mailer.queue.note_bounce(&mailer.seal.key_of_spelling(mailbox), false).await?;
        }
        Ok(refused)
    }

    async fn deliver_one(&self, brand: &Brand, mail: TakenMail) -> Result<(), DbError> {
        let mailer = &self.0.deps.mailer;
        let mut bounce = None;
        let (result, reason) = match self.prepared(brand, &mail).await? {
            Ok((to, letter)) => {
                let delivery = mailer.transport.send(&mail.id, &brand.name, &to, &letter).await;
                self.note_server(&delivery);
                self.0.metrics.delivery(&delivery);
                bounce = refused(&delivery).map(|refused| (mailer.seal.key_of_spelling(&to), refused));
                result_of(&mail, delivery)
            }
            Err((result, reason)) => (result, Some(reason.to_owned())),
        };
        if let Some(reason) = &reason {
            tracing::info!(mail = mail.id, reason, "a mail was not handed over");
        }
        mailer.queue.note(&mail, result).await?;
        if mail.account.is_none() {
            self.settle_mail(self.ledger(), &mail, result, reason).await?;
        }
        match bounce {
            Some((spelling, refused)) => mailer.queue.note_bounce(&spelling, refused).await,
            None => Ok(()),
        }
    }

    /// The letter and where it goes; or why there is none.
    async fn prepared(&self, brand: &Brand, mail: &TakenMail) -> Result<PreparedMail, DbError> {
        let mailer = &self.0.deps.mailer;
        let ended = |state, reason| Ok(Err((MailResult::Ended(state), reason)));
        let expired = |reason| ended(MailState::Expired, reason);
        if mail.expires_at <= mailer.queue.now().await? {
            return expired("it has waited too long");
        }
        let Some(kind) = mail.kind else {
            return Ok(Err((MailResult::Later(PAUSES[PAUSES.len() - 1]), "a newer version has queued it")));
        };
        if mail.account.is_none() && !mailer.queue.holds(&mail.id).await? {
            return expired("its code was replaced, used up, or has expired");
        }
        let sealed = match mail.sealed.as_deref().map(|sealed| mailer.seal.letter(&mail.id, sealed)) {
            Some(None) => return expired("it was sealed under another key file"),
            Some(found) => found,
            None => None,
        };
        let stored = mail.address.as_ref().and_then(|(owner, address, _)| mailer.seal.open(owner, address));
        let typed = sealed.as_ref().and_then(|letter| letter.address.clone());
        let Some(to) = typed.or(stored).and_then(|address| Mailbox::parse(&address).ok()) else {
            return expired("no account has the address any more");
        };
        if self.mail_refused_until(&to).await?.is_some() {
            return ended(MailState::Refused, "its address was refused lately");
        }
        let own = mail.address.as_ref().map(|(_, _, locale)| locale.as_str());
        let locale = sealed.as_ref().map_or(own.unwrap_or("en"), |letter| letter.locale.as_str());
        let (at, minutes) =
            (as_utc_minutes(mail.created_at), mail.expires_at.since(mail.created_at).as_secs() / 60);
        let facts = LetterFacts {
            kind,
            locale,
            brand: &brand.name,
            link: &format!("{}{}", mailer.public_url, page_of(kind)),
            code: sealed.as_ref().map(|letter| letter.code.as_str()).filter(|code| !code.is_empty()),
            minutes: mail.account.is_none().then_some(minutes),
            at: Some(&at),
            network: mail.network.as_deref(),
            times: mail.times,
            support: brand.support.as_ref().map(url::Url::as_str),
        };
        Ok(Ok((to, letter(&facts))))
    }

    async fn settle_mail(
        &self,
        ledger: &Ledger,
        mail: &TakenMail,
        result: MailResult,
        reason: Option<String>,
    ) -> Result<(), DbError> {
        use crate::sms::DeliveryResult::{Accepted, Unknown};
        let Some(id) = MessageId::parse(&mail.id) else { return Ok(()) };
        let delivery = match result {
            MailResult::Later(_) => return Ok(()),
            MailResult::Ended(MailState::Sent) => Some(("smtp", Accepted { reference: None })),
            // It counts: otherwise what becomes of a mail would show in what may be asked for next.
            MailResult::Ended(_) => Some(("smtp", Unknown { reason: reason.unwrap_or_default() })),
        };
        ledger.settle(id, delivery.as_ref()).await.map(drop)
    }

    fn note_server(&self, delivery: &MailDelivery) {
        let reason = match delivery {
            MailDelivery::Deferred { at, reason } if *at < SmtpPhase::Recipient => Some(reason),
            // The server answered, so it is there.
            _ => None,
        };
        let now = self.0.clock.now();
        let before = self.0.mail_server.rcu(|before| match reason {
            // Mails that fail together are one failure.
            Some(_) if before.is_left_alone(now) => Arc::clone(before),
            Some(reason) => {
                let since = if before.failures == 0 { now } else { before.since };
                let (failures, reason) = (before.failures.saturating_add(1), Some(reason.clone()));
                let state = MailServerState { failures, since, reason, again_at: now };
                Arc::new(MailServerState { again_at: now.plus(state.pause()), ..state })
            }
            None => Arc::default(),
        });
        match reason {
            Some(reason) if before.failures == 0 => {
                tracing::warn!(reason, "the mail server takes no mail; what is queued is tried again");
            }
            None if before.failures > 0 => tracing::info!("the mail server takes mail again"),
            _ => {}
        }
    }
}

/// Whether the server refused the address itself, for good; None if it says nothing of that. Without its exact status
/// (RFC 3463) a refusal may be about us, or for today; and of those about addresses, two are about the sender's.
fn refused(delivery: &MailDelivery) -> Option<bool> {
    const ADDRESS: [&str; 5] = ["5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"];
    match delivery {
        MailDelivery::Accepted { .. } => Some(false),
        MailDelivery::Refused { at: SmtpPhase::Recipient, reason } => {
            ADDRESS.contains(&reason.rsplit(' ').next().unwrap_or_default()).then_some(true)
        }
        _ => None,
    }
}

fn result_of(mail: &TakenMail, delivery: MailDelivery) -> (MailResult, Option<String>) {
    let bounced = refused(&delivery) == Some(true);
    match delivery {
        MailDelivery::Accepted { .. } => (MailResult::Ended(MailState::Sent), None),
        // A notice is sent once the operator has mended what its refusal may be about.
        MailDelivery::Refused { reason, .. } if mail.account.is_some() && !bounced => {
            let pause = PAUSES[PAUSES.len() - 1] * mail.tries.clamp(1, MOST_PAUSES);
            (MailResult::Later(pause), Some(reason))
        }
        MailDelivery::Refused { reason, .. } => (MailResult::Ended(MailState::Refused), Some(reason)),
        MailDelivery::Deferred { reason, .. } => {
            let pause = PAUSES[(mail.tries.saturating_sub(1) as usize).min(PAUSES.len() - 1)];
            (MailResult::Later(pause), Some(reason))
        }
        // A notice is sent again: better twice than never.
        MailDelivery::Unknown { reason } if mail.account.is_some() => {
            (MailResult::Later(PAUSES[PAUSES.len() - 1]), Some(reason))
        }
        MailDelivery::Unknown { reason } => (MailResult::Ended(MailState::Unknown), Some(reason)),
    }
}

/// The page that a letter's link opens.
const fn page_of(kind: LetterKind) -> &'static str {
    match kind {
        LetterKind::ConfirmCode => "/account/email?code",
        LetterKind::RegisterCode => "/register?code",
        LetterKind::ResetCode => "/password/reset?code",
        LetterKind::PasswordChanged => "/password/reset",
        LetterKind::FactorAdded | LetterKind::FactorRemoved => "/account/factors",
        LetterKind::AddressChanged | LetterKind::AddressRemoved => "/freeze",
        LetterKind::Frozen => "/login",
        LetterKind::NewDevice
        | LetterKind::PhoneChanged
        | LetterKind::PhoneRemoved
        | LetterKind::AddressSet => "/account",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(account: Option<&str>, tries: u32) -> TakenMail {
        TakenMail {
            id: String::new(),
            kind: Some(LetterKind::Frozen),
            account: account.map(str::to_owned),
            mailbox: String::new(),
            sealed: None,
            address: None,
            network: None,
            times: 1,
            created_at: Micros(0),
            expires_at: Micros(0),
            tries,
        }
    }

    #[test]
    fn only_what_a_server_says_of_the_address_itself_ends_a_notice() {
        let of_address = ["550 5.1.1", "550 5.1.2", "501 5.1.3", "551 5.1.6", "556 5.1.10"];
        // Somebody else's relay, a spent quota, a sender that is not known, a box that is full, and no exact status.
        let of_others = ["554 5.7.1", "550 5.4.5", "550 5.1.7", "550 5.1.8", "552 5.2.2", "550"];
        let told =
            |at, status: &str| MailDelivery::Refused { at, reason: format!("the server answered {status}") };
        for status in of_address {
            let delivery = told(SmtpPhase::Recipient, status);
            assert_eq!(refused(&delivery), Some(true), "{status}");
            assert_eq!(result_of(&mail(Some("a"), 1), delivery).0, MailResult::Ended(MailState::Refused));
        }
        for (at, status) in
            of_others.map(|it| (SmtpPhase::Recipient, it)).into_iter().chain([(SmtpPhase::Data, "550 5.1.1")])
        {
            assert_eq!(refused(&told(at, status)), None, "{status}");
            for (tries, minutes) in [(1, 15), (2, 30), (16, 240), (90, 240)] {
                let later = MailResult::Later(Duration::from_secs(minutes * 60));
                assert_eq!(result_of(&mail(Some("a"), tries), told(at, status)).0, later, "{status}");
            }
            assert_eq!(result_of(&mail(None, 1), told(at, status)).0, MailResult::Ended(MailState::Refused));
        }
        assert_eq!(refused(&MailDelivery::Accepted { said: None }), Some(false));
    }
}
