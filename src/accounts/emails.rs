//! E-mail addresses of accounts: confirmed by a code, so that no two accounts have one mailbox, and whoever only types an
//! address keeps nobody from having it.

use std::pin::Pin;
use std::time::Duration;

use gatehouse_limiter::LimitMode;
use sqlx::{query, query_as, query_scalar};

use super::{
    Account, AccountId, Accounts, BY_EMAIL, CreateError, INSERT, Phc, RecipientSet, Roles, Username, insert,
    is_as_it_was,
};
use crate::clock::{Clock, Micros};
use crate::codes::{Recipient, RecipientOwners};
use crate::config::{LiveSettings, ResetByMail};
use crate::db::{Db, DbError, DbLock, Tx, execute, on_db, on_tx};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::mail::{self, LetterKind, MailSeal, Mailbox, NoticeRule, SealedLetter};
use crate::secret::MasterKey;
use crate::sms::Phone;

/// How long a code for a new password is valid, at most.
const CODES_LAST: Duration = Duration::from_secs(60 * 60);

#[derive(Clone)]
pub struct Emails {
    pub(super) db: Db,
    pub(super) clock: Clock,
    pub(super) entropy: Entropy,
    accounts: Accounts,
    pub(super) seal: MailSeal,
}

impl Emails {
    pub fn new(foundation: &Foundation, accounts: Accounts) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, accounts, seal: MailSeal::new(&secrets) }
    }

    /// The address of an account; None if it has none, or one that was sealed under another key file.
    pub async fn of(&self, account: AccountId) -> Result<Option<Mailbox>, DbError> {
        const SQL: &str = "SELECT address FROM account_emails WHERE account = $1";
        let id = account.to_string();
        let sealed: Option<String> =
            on_db!(&self.db, pool => query_scalar(SQL).bind(&id).fetch_optional(pool).await)?;
        let opened = sealed.and_then(|sealed| self.seal.open(&id, &sealed));
        Ok(opened.and_then(|address| Mailbox::parse(&address).ok()))
    }

    /// What tables know a mailbox by.
    pub fn key(&self, mailbox: &Mailbox) -> String {
        self.seal.key(mailbox)
    }

    /// The account that has the number, or whose owner has confirmed the address.
    pub async fn find(&self, recipient: &Recipient) -> Result<Option<Account>, DbError> {
        match recipient {
            Recipient::Phone(phone) => self.accounts.find_by_phone(phone).await,
            Recipient::Mailbox(mailbox) => self.accounts.one(BY_EMAIL, &[&self.key(mailbox)]).await,
        }
    }

    /// Gives the account the number or the address, replacing any earlier one. The account is as it was when its password was
    /// verified: whatever happened to it since is not undone.
    pub async fn give(
        &self,
        account: &Account,
        to: &Recipient,
        locale: &str,
    ) -> Result<RecipientSet, DbError> {
        match to {
            Recipient::Phone(phone) => self.accounts.set_phone(account, phone).await,
            Recipient::Mailbox(mailbox) => self.set(account, mailbox, locale).await,
        }
    }

    /// Creates an account whose owner has proved that the address is theirs.
    pub async fn create(
        &self,
        login: &Username,
        phc: &Phc,
        (mailbox, locale): (&Mailbox, &str),
    ) -> Result<Account, CreateError> {
        const SET: &str = "INSERT INTO account_emails (account, mailbox, address, locale, since)
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        let account = self.accounts.fresh(login, Some(phc), None, Roles::default());
        if self.accounts.has_older_spelling(&account.login).await? {
            return Err(CreateError::LoginTaken);
        }
        let id = account.id.to_string();
        let sealed = self.seal.seal(&id, mailbox.as_str(), &self.entropy);
        let mut tx = self.db.begin_exclusive(DbLock::account(account.id.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        // What is not committed is not made.
        if execute!(in &mut tx => insert!(account, None::<Micros>))? == 0 {
            return Err(CreateError::LoginTaken);
        }
        let set = execute!(in &mut tx => query(SET).bind(&id).bind(self.key(mailbox)).bind(&sealed)
            .bind(locale).bind(now.0))?;
        if set == 0 {
            return Err(CreateError::EmailTaken);
        }
        void_codes(&mut tx, &id, now).await?;
        tx.commit().await?;
        Ok(account)
    }

    /// The earlier address is told.
    pub(super) async fn set(
        &self,
        account: &Account,
        mailbox: &Mailbox,
        locale: &str,
    ) -> Result<RecipientSet, DbError> {
        const TAKEN: &str = "SELECT COUNT(*) FROM account_emails WHERE mailbox = $1 AND account <> $2";
        const SET: &str = "INSERT INTO account_emails (account, mailbox, address, locale, since)
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account) DO UPDATE SET mailbox = excluded.mailbox,
            address = excluded.address, locale = excluded.locale, since = excluded.since";
        let (id, key) = (account.id.to_string(), self.key(mailbox));
        let sealed = self.seal.seal(&id, mailbox.as_str(), &self.entropy);
        let mut tx = self.db.begin_exclusive(DbLock::account(account.id.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        if !is_as_it_was(&mut tx, account).await? {
            return Ok(RecipientSet::Gone);
        }
        // Looked at first, because PostgreSQL would log a statement that fails on the index.
        let taken: i64 = on_tx!(&mut tx, connection => query_scalar(TAKEN).bind(&key).bind(&id).fetch_one(connection).await)?;
        if taken > 0 {
            return Ok(RecipientSet::Taken);
        }
        self.tell_old(&mut tx, &id, LetterKind::AddressChanged, Some(mailbox.as_str()), now).await?;
        let set =
            execute!(in &mut tx => query(SET).bind(&id).bind(&key).bind(&sealed).bind(locale).bind(now.0));
        match set.map_err(DbError::from) {
            Ok(_) => {}
            Err(error) if error.is_unique_violation() => return Ok(RecipientSet::Taken),
            Err(error) => return Err(error),
        }
        void_codes(&mut tx, &id, now).await?;
        mail::tell(&mut tx, &self.entropy, (&id, LetterKind::AddressSet), now).await?;
        tx.commit().await?;
        Ok(RecipientSet::Done)
    }

    /// Tells the owner that somebody has signed in from a browser that the account did not know, unless it is the one in
    /// which the account was made.
    pub async fn tell_of_device(
        &self,
        account: AccountId,
        network: &str,
        live: &LiveSettings,
    ) -> Result<(), DbError> {
        let limit = &live.limits.mail_notice;
        let rule = match limit.rules() {
            [rule, ..] if limit.mode() == LimitMode::Enforce => {
                NoticeRule { max: rule.max, window: limit.longest_window() }
            }
            _ => NoticeRule { max: u32::MAX, ..NoticeRule::CRITICAL },
        };
        let id = account.to_string();
        if !live.mail.notices || !self.is_told_of_devices(&id).await? {
            return Ok(());
        }
        let mut tx = self.db.begin_exclusive(DbLock::account(account.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        mail::tell_of_device(&mut tx, &self.entropy, (&id, network), rule, now).await?;
        tx.commit().await
    }

    /// It has an address, and this is not its first sign-in.
    async fn is_told_of_devices(&self, account: &str) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM account_emails WHERE account = $1
            AND (SELECT COUNT(*) FROM sign_ins WHERE account = $1) > 1";
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(account).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Removes the account's address, and tells it so. The account is as it was when its password was verified. False if it
    /// has none, or was changed since.
    pub async fn remove(&self, account: &Account) -> Result<bool, DbError> {
        const SQL: &str = "DELETE FROM account_emails WHERE account = $1";
        let id = account.id.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.id.as_bytes())).await?;
        if !is_as_it_was(&mut tx, account).await? {
            return Ok(false);
        }
        let now = tx.now(&self.clock).await?;
        self.tell_old(&mut tx, &id, LetterKind::AddressRemoved, None, now).await?;
        let removed = execute!(in &mut tx => query(SQL).bind(&id))?;
        tx.commit().await?;
        Ok(removed > 0)
    }

    /// Tells the address that an account has until now, unless it is the new one. What waits for it still goes there, and a
    /// code that was sent there no longer completes a second step.
    async fn tell_old(
        &self,
        tx: &mut Tx,
        account: &str,
        kind: LetterKind,
        unless: Option<&str>,
        now: Micros,
    ) -> Result<(), DbError> {
        const HALVES: &str = "DELETE FROM half_sign_ins WHERE account = $1 AND proved = 'mail-code'";
        let Some((mailbox, address, locale)) = self.address_in(tx, account).await? else { return Ok(()) };
        if unless == Some(&*address) {
            return Ok(());
        }
        self.keep_notices(tx, account).await?;
        execute!(in tx => query(HALVES).bind(account))?;
        let code = self.new_freeze_code(tx, account, now).await?.shown();
        let letter = SealedLetter { code, locale, address: Some(address) };
        mail::tell_elsewhere(tx, (&self.seal, &self.entropy), (account, kind), (&mailbox, &letter), now).await
    }
}

/// Voids the codes for a new password that are out for an account's mailbox. Who asked for one before the mailbox was this
/// account's may have had another spelling of it, which some servers keep for another owner.
pub(super) async fn void_codes(tx: &mut Tx, account: &str, now: Micros) -> Result<(), DbError> {
    const SQL: &str = "DELETE FROM sms_codes WHERE message IN (SELECT q.id FROM mail_queue q
        WHERE q.created_at > $2 AND q.kind = 'reset-code'
        AND q.mailbox IN (SELECT mailbox FROM account_emails WHERE account = $1))";
    execute!(in tx => query(SQL).bind(account).bind(now.minus(CODES_LAST).0))?;
    Ok(())
}

/// What became of the addresses there are when the key file was replaced.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResealedEmails {
    pub sealed: u64,
    /// Under this key file already.
    pub kept: u64,
    /// Under neither, or somebody else has confirmed the mailbox since: left as they are.
    pub lost: u64,
}

impl Emails {
    /// Opens addresses under `old`, and seals them and finds them under the key of this one; and so notices that wait.
    pub async fn reseal(&self, old: &MasterKey) -> Result<ResealedEmails, DbError> {
        let old = MailSeal::new(old);
        self.reseal_letters(&old).await?;
        self.reseal_addresses(&old).await
    }

    async fn reseal_addresses(&self, old: &MailSeal) -> Result<ResealedEmails, DbError> {
        const NEXT: &str =
            "SELECT account, address FROM account_emails WHERE account > $1 ORDER BY account LIMIT 100";
        const NOTICES: &str = "UPDATE mail_queue SET mailbox = $1 WHERE account = $2 AND mailbox = $3";
        const SEAL: &str =
            "UPDATE account_emails SET mailbox = $1, address = $2 WHERE account = $3 AND address = $4";
        let (mut done, mut after) = (ResealedEmails::default(), String::new());
        loop {
            let batch: Vec<(String, String)> =
                on_db!(&self.db, pool => query_as(NEXT).bind(&after).fetch_all(pool).await)?;
            let Some((last, _)) = batch.last() else { return Ok(done) };
            after.clone_from(last);
            for (account, before) in batch {
                if self.seal.open(&account, &before).is_some() {
                    done.kept += 1;
                    continue;
                }
                let opened = old.open(&account, &before).and_then(|address| Mailbox::parse(&address).ok());
                let Some(mailbox) = opened else {
                    done.lost += 1;
                    continue;
                };
                let (key, sealed) =
                    (self.key(&mailbox), self.seal.seal(&account, mailbox.as_str(), &self.entropy));
                // First, so that another run does what this one did not.
                execute!(&self.db => query(NOTICES).bind(&key).bind(&account).bind(old.key(&mailbox)))?;
                let changed = execute!(&self.db => query(SEAL).bind(&key).bind(&sealed)
                    .bind(&account).bind(&before));
                match changed.map_err(DbError::from) {
                    Ok(changed) => done.sealed += changed,
                    Err(error) if error.is_unique_violation() => done.lost += 1,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Notices that wait for an earlier address, and the codes in them that freeze an account. Mails with a code that is in
    /// the ledger end: nothing finds their codes again.
    async fn reseal_letters(&self, old: &MailSeal) -> Result<(), DbError> {
        const WAITING: &str = "SELECT id, sealed FROM mail_queue
            WHERE state = 'queued' AND account IS NOT NULL AND sealed IS NOT NULL";
        const CODE: &str = "UPDATE freeze_codes SET code = $1 WHERE code = $2";
        const SEAL: &str = "UPDATE mail_queue SET mailbox = $1, sealed = $2 WHERE id = $3";
        let waiting: Vec<(String, String)> =
            on_db!(&self.db, pool => query_as(WAITING).fetch_all(pool).await)?;
        for (id, before) in waiting {
            let Some(letter) = old.letter(&id, &before) else { continue };
            let Some(to) = letter.address.as_deref().and_then(|it| Mailbox::parse(it).ok()) else { continue };
            let code = letter.code.replace('-', "");
            let [new, old] = [&self.seal, old].map(|seal| seal.hash_of_code(&code));
            execute!(&self.db => query(CODE).bind(new).bind(old))?;
            let sealed = self.seal.seal_letter(&id, &letter, &self.entropy);
            execute!(&self.db => query(SEAL).bind(self.key(&to)).bind(&sealed).bind(&id))?;
        }
        Ok(())
    }
}

impl Emails {
    /// Notices that wait go to the address that the account had when they were written: whoever changes it hides nothing.
    pub(super) async fn keep_notices(&self, tx: &mut Tx, account: &str) -> Result<(), DbError> {
        const WAITING: &str =
            "SELECT id FROM mail_queue WHERE account = $1 AND state = 'queued' AND sealed IS NULL";
        const SEAL: &str = "UPDATE mail_queue SET sealed = $1 WHERE id = $2";
        let Some((_, address, locale)) = self.address_in(tx, account).await? else { return Ok(()) };
        let waiting: Vec<String> =
            on_tx!(tx, connection => query_scalar(WAITING).bind(account).fetch_all(connection).await)?;
        let letter = SealedLetter { code: String::new(), locale, address: Some(address) };
        for id in waiting {
            let sealed = self.seal.seal_letter(&id, &letter, &self.entropy);
            execute!(in tx => query(SEAL).bind(&sealed).bind(&id))?;
        }
        Ok(())
    }

    /// The mailbox, the address and the language of an account's owner.
    async fn address_in(
        &self,
        tx: &mut Tx,
        account: &str,
    ) -> Result<Option<(String, String, String)>, DbError> {
        const SQL: &str = "SELECT mailbox, address, locale FROM account_emails WHERE account = $1";
        let row: Option<(String, String, String)> =
            on_tx!(tx, connection => query_as(SQL).bind(account).fetch_optional(connection).await)?;
        Ok(row
            .and_then(|(mailbox, sealed, locale)| Some((mailbox, self.seal.open(account, &sealed)?, locale))))
    }
}

impl RecipientOwners for Emails {
    fn since<'a>(
        &'a self,
        recipient: &'a Recipient,
        reset: ResetByMail,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Micros>, DbError>> + Send + 'a>> {
        // An older version that runs beside this one leaves it out.
        const PHONE: &str = "SELECT COALESCE(phone_since, created_at) FROM accounts WHERE phone = $1";
        const EMAIL: &str = "SELECT e.since FROM account_emails e JOIN accounts a ON a.id = e.account
            WHERE e.mailbox = $1 AND (a.phone IS NULL OR $2 = 1) AND a.frozen_at IS NULL";
        Box::pin(async move {
            let since: Option<i64> = match recipient {
                Recipient::Phone(phone) => {
                    on_db!(&self.db, pool => query_scalar(PHONE).bind(Phone::as_str(phone))
                    .fetch_optional(pool).await)?
                }
                Recipient::Mailbox(mailbox) => {
                    on_db!(&self.db, pool => query_scalar(EMAIL).bind(self.key(mailbox))
                    .bind(i64::from(reset != ResetByMail::WithoutNumber)).fetch_optional(pool).await)?
                }
            };
            Ok(since.filter(|_| recipient.phone().is_some() || reset != ResetByMail::No).map(Micros))
        })
    }
}
