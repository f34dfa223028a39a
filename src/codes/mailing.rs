//! Hands queued mails to the server that delivers: codes, whose rows in the ledger it settles, and notices.

use std::sync::Arc;
use std::time::Duration;

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

type PreparedMail = Result<(Mailbox, Letter), (MailState, &'static str)>;

impl CodeService {
    /// Hands over what is due; returns how many mails were taken. Runs periodically. Each mail is handed over on a task of
    /// its own: none waits for a slow one, and [`Self::drain`] waits for all.
    pub async fn deliver_mail(&self, live: &LiveSettings) -> Result<usize, DbError> {
        let inner = &*self.0;
        let mailer = &inner.deps.mailer;
        if !mailer.transport.sends() {
            return Ok(0);
        }
        let state = inner.mail_server.load_full();
        let free = inner.mail_permits.available_permits();
        // One mail finds out whether a server that took nothing is back.
        let most = match state.failures {
            0 => free,
            _ if inner.clock.now() < state.again_at || free < MAILS_AT_ONCE => 0,
            _ => 1,
        };
        if most == 0 || !mailer.queue.has_due().await? {
            return Ok(0);
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
        Ok(count)
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
        if let Ok(waiting) = self.0.deps.mailer.queue.waiting().await {
            metrics.mail_waiting.set(waiting as f64);
        }
    }

    /// Until when nothing is sent to a mailbox, because it has refused mail.
    pub async fn mail_refused_until(&self, mailbox: &Mailbox) -> Result<Option<Micros>, DbError> {
        let mailer = &self.0.deps.mailer;
        mailer.queue.refused_until(&mailer.seal.key(mailbox)).await
    }

    /// Sends mail again to a mailbox that has refused it. False if it gets mail.
    pub async fn allow_mail(&self, mailbox: &Mailbox) -> Result<bool, DbError> {
        let refused = self.mail_refused_until(mailbox).await?.is_some();
        if refused {
            let mailer = &self.0.deps.mailer;
            mailer.queue.note_bounce(&mailer.seal.key(mailbox), false).await?;
        }
        Ok(refused)
    }

    async fn deliver_one(&self, brand: &Brand, mail: TakenMail) -> Result<(), DbError> {
        let mailer = &self.0.deps.mailer;
        let (mut bounced, prepared) = (None, self.prepared(brand, &mail).await?);
        let (result, reason) = match prepared {
            Ok((to, letter)) => {
                let delivery = mailer.transport.send(&mail.id, &brand.name, &to, &letter).await;
                self.note_server(&delivery);
                bounced = match &delivery {
                    // Only what the server says of the mailbox (5.1.x, RFC 3463): otherwise it may be about us, or for today.
                    MailDelivery::Refused { at: SmtpPhase::Recipient, reason }
                        if reason.contains(" 5.1.") =>
                    {
                        Some(true)
                    }
                    MailDelivery::Accepted { .. } => Some(false),
                    _ => None,
                };
                result_of(&mail, delivery)
            }
            Err((state, reason)) => (MailResult::Ended(state), Some(reason.to_owned())),
        };
        if let Some(reason) = &reason {
            tracing::info!(mail = mail.id, reason, "a mail was not handed over");
        }
        mailer.queue.note(&mail, result).await?;
        if mail.account.is_none() {
            self.settle_mail(self.ledger(), &mail, result, reason).await?;
        }
        match bounced {
            Some(refused) => mailer.queue.note_bounce(&mail.mailbox, refused).await,
            None => Ok(()),
        }
    }

    /// The letter and where it goes; or why there is none.
    async fn prepared(&self, brand: &Brand, mail: &TakenMail) -> Result<PreparedMail, DbError> {
        const KEY: &str = "it was sealed under another key file";
        let mailer = &self.0.deps.mailer;
        if mail.account.is_none() && mail.sealed.is_none() {
            return Ok(Err((MailState::Withheld, "no account has the address")));
        }
        let Some(kind) = mail.kind else {
            return Ok(Err((MailState::Expired, "a newer version has queued it")));
        };
        if mail.suppressed {
            return Ok(Err((MailState::Refused, "its mailbox has refused mail lately")));
        }
        if mail.outdated || mail.account.is_none() && !mailer.queue.holds(&mail.id).await? {
            return Ok(Err((MailState::Expired, "its code was replaced, used up, or has expired")));
        }
        let sealed = match mail.sealed.as_deref().map(|sealed| mailer.seal.letter(&mail.id, sealed)) {
            Some(None) => return Ok(Err((MailState::Expired, KEY))),
            Some(found) => found,
            None => None,
        };
        let stored = mail.address.as_ref().and_then(|(owner, address, _)| mailer.seal.open(owner, address));
        let typed = sealed.as_ref().and_then(|letter| letter.address.clone());
        let Some(to) = typed.or(stored).and_then(|address| Mailbox::parse(&address).ok()) else {
            return Ok(Err((MailState::Expired, "no account has the address any more")));
        };
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
            MailResult::Ended(MailState::Withheld) => None,
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
            Some(_) if before.failures > 0 && now < before.again_at => Arc::clone(before),
            Some(reason) => {
                let pause = PAUSES[(before.failures as usize).min(PAUSES.len() - 2)];
                let failures = before.failures.saturating_add(1);
                let since = if before.failures == 0 { now } else { before.since };
                let (again_at, reason) = (now.plus(pause), Some(reason.clone()));
                Arc::new(MailServerState { failures, since, again_at, reason })
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

fn result_of(mail: &TakenMail, delivery: MailDelivery) -> (MailResult, Option<String>) {
    match delivery {
        MailDelivery::Accepted { .. } => (MailResult::Ended(MailState::Sent), None),
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
