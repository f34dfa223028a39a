//! What a code can do: sign in, set a new password, give a number or an address to an account, confirm who is signed in.

use std::sync::Arc;

use gatehouse_limiter::LimitMode;
use zeroize::Zeroizing;

use super::consecutive::password_enabled_counter;
use super::guard::{GuardedLogin, LoginGuard};
use super::sign_in::sign_ins;
use super::{HashCaller, PasswordError, PasswordHasher, RequestOrigin};
use crate::accounts::{
    Account, Accounts, CreateError, Emails, KnownDevices, Phc, RecipientSet, ShownBy, Username,
};
use crate::audit::{self, Action, AuditEvent};
use crate::codes::{CheckOutcome, CodeGuess, CodeService, Proven, Recipient};
use crate::config::{LiveSettings, ResetByMail};
use crate::db::DbError;
use crate::denied::Denied;
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::message::{MessageCode, Purpose};
use crate::request_id;

#[derive(Clone)]
pub struct ByCode {
    codes: CodeService,
    guard: Arc<LoginGuard>,
    accounts: Accounts,
    emails: Emails,
    hasher: PasswordHasher,
    entropy: Entropy,
}

#[derive(Clone, Copy)]
pub struct CodeEntry<'a> {
    pub to: &'a Recipient,
    pub code: &'a MessageCode,
    pub origin: &'a RequestOrigin,
    /// The browser's id, if it has one: the one that requested the code has guesses of its own.
    pub browser: Option<&'a [u8]>,
    /// The accounts where the browser is a known device: at the number's account it has guesses of its own,
    /// too.
    pub known: &'a KnownDevices,
    pub solved: bool,
}

/// Why a code did nothing. Only somebody who has proved that the number is theirs learns of accounts.
#[derive(Debug)]
pub enum CodeRefusal {
    /// Wrong, expired, used or never sent.
    WrongCode,
    Denied(Denied),
    Unfit(PasswordError),
    NoAccount,
    /// No account has the number, and strangers cannot make one.
    Closed,
    /// An administrator's account.
    PasswordRequired,
    /// An administrator has disabled the account.
    AccountDisabled,
    /// It was frozen by a code that its earlier address has, and this code does not lift that.
    AccountFrozen,
    PhoneTaken,
    EmailTaken,
    /// The account has a second factor, which is proved before its password is replaced by this one: also if its sign-ins
    /// are not asked for it.
    FactorMissing(Box<Account>, Phc),
    Db(DbError),
}

impl From<DbError> for CodeRefusal {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

impl ByCode {
    pub fn new(
        foundation: &Foundation,
        codes: CodeService,
        guard: Arc<LoginGuard>,
        (accounts, emails): (Accounts, Emails),
        hasher: PasswordHasher,
    ) -> Self {
        let entropy = foundation.entropy.clone();
        Self { codes, guard, accounts, emails, hasher, entropy }
    }

    /// For a browser that is known at any account, looks up whether the number's account knows it. That this
    /// look-up happens reveals only what the browser's own cookie says.
    async fn guess<'a>(
        &self,
        live: &LiveSettings,
        entry: CodeEntry<'a>,
        purpose: Purpose,
    ) -> Result<CodeGuess<'a>, DbError> {
        let CodeEntry { to, code, origin: RequestOrigin { address, network }, browser, known, solved } =
            entry;
        let known = !known.is_empty()
            && are_devices_known(live)
            && self.emails.find(to).await?.is_some_and(|account| {
                known.at(account.id).is_some_and(|device| device.password_version == account.password_version)
            });
        Ok(CodeGuess { to: to.clone(), purpose, code, address, network, browser, known, solved })
    }

    /// The account, and whether it was created now: a first sign-in with a number does so, with a generated name.
    pub async fn sign_in(
        &self,
        live: &LiveSettings,
        entry: CodeEntry<'_>,
    ) -> Result<(Box<Account>, bool), CodeRefusal> {
        let Self { codes, guard, accounts, .. } = self;
        let proven = proven(codes.check(live, self.guess(live, entry, Purpose::Login).await?).await?)?;
        // A code by mail signs nobody in.
        let phone = proven.recipient().phone().ok_or(CodeRefusal::WrongCode)?;
        loop {
            if let Some(account) = accounts.find_by_phone(phone).await? {
                return Ok((self.signed_in(opened(account)?, entry), false));
            }
            if !live.registration.mode.is_open() {
                return Err(CodeRefusal::Closed);
            }
            if !live.registration.takes_new_numbers() {
                return Err(CodeRefusal::NoAccount);
            }
            match accounts.create_with_phone(&self.name(), None, phone).await {
                Ok(account) => {
                    guard.account_created(&account);
                    return Ok((self.signed_in(account, entry), true));
                }
                // The number: another sign-in created the account in the meantime, and the next look finds
                // it. The login: another name is drawn.
                Err(CreateError::PhoneTaken | CreateError::EmailTaken | CreateError::LoginTaken) => {}
                Err(CreateError::Db(error)) => return Err(error.into()),
            }
        }
    }

    fn signed_in(&self, account: Account, entry: CodeEntry<'_>) -> Box<Account> {
        sign_ins("signed-in").increment(1);
        self.record(&account, (entry.to, entry.origin), entry.solved, (Action::SignIn, Some("code")));
        Box::new(account)
    }

    /// Records what a code did for an account, beside the guess.
    fn record(
        &self,
        account: &Account,
        (to, origin): (&Recipient, &RequestOrigin),
        solved: bool,
        (action, name): (Action, Option<&str>),
    ) {
        let (audit, (recipient, prefix)) = (self.guard.audit(), to.recorded());
        audit.record(AuditEvent {
            name,
            solved,
            account: Some(account.recorded()),
            address: Some(audit::EventSubject::Address(&origin.address)),
            phone: Some(recipient),
            prefix,
            ..AuditEvent::new(audit.now(), action, audit::Outcome::Ok)
        });
    }

    /// A name such as `user-7k3m9q2x`, of letters and digits that are not easily confused.
    fn name(&self) -> Username {
        const ALPHABET: &[u8; 32] = b"23456789abcdefghijkmnpqrstuvwxyz";
        let letters = self.entropy.bytes::<8>().map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
        let name = format!("user-{}", letters.iter().collect::<String>());
        Username::parse(&name).expect("small letters, digits and a dash")
    }

    /// Everything that does not need the code is checked before it, in the same way whoever has the number.
    /// Before that, the attempt takes a slot among the wrong codes, because each makes us compute a hash. Afterwards
    /// every session has ended, and the account's failures are forgiven. Returns the account as it is now.
    pub async fn reset(
        &self,
        live: &LiveSettings,
        entry: CodeEntry<'_>,
        new_password: &str,
    ) -> Result<Box<Account>, CodeRefusal> {
        let Self { codes, guard, accounts, hasher, .. } = self;
        let caller = HashCaller::stranger(&entry.origin.network, entry.solved);
        if let Err(busy) = hasher.has_room(&caller).await {
            return Err(CodeRefusal::Denied(Denied::no_room(caller.solved(), busy.retry_after)));
        }
        let guess = self.guess(live, entry, Purpose::Reset).await?;
        let everyone = guard.challenges_everyone(live, guess.solved);
        if let Some(left) = everyone.filter(|_| !guess.known) {
            return Err(CodeRefusal::Denied(Denied::challenged_with_everyone(left)));
        }
        let admitted = codes.admit(live, guess).await?.map_err(CodeRefusal::Denied)?;
        let (service, named) = (self.clone(), entry.to.named().to_owned());
        let password = Zeroizing::new(new_password.to_owned());
        // A client that hangs up now must not leave the slot unsettled, so this runs to its end on its own
        // task.
        let compared = request_id::spawn(async move {
            let not = match service.hasher.hash_new_for(&caller, &password, &named).await {
                Ok(Ok(hash)) => return Ok((hash, admitted.compare().await)),
                Ok(Err(unfit)) => CodeRefusal::Unfit(unfit),
                Err(busy) => CodeRefusal::Denied(Denied::no_room(caller.solved(), busy.retry_after)),
            };
            admitted.refund().await;
            Err(not)
        });
        let (hash, checked) = compared.await.expect("hashing and comparing do not panic")?;
        let proven = proven(checked?)?;
        let account = permitted(self.emails.find(proven.recipient()).await?.ok_or(CodeRefusal::NoAccount)?)?;
        let frozen = account.frozen_at.is_some();
        let set = match proven.recipient() {
            Recipient::Phone(phone) => {
                accounts.set_password(account.id, &hash, ShownBy::Phone(phone, None)).await?
            }
            Recipient::Mailbox(_) if frozen => return Err(CodeRefusal::AccountFrozen),
            // The rule may have changed since the code was sent.
            Recipient::Mailbox(_) if !resets_by_mail(live, &account) => return Err(CodeRefusal::NoAccount),
            Recipient::Mailbox(mailbox) => {
                let key = self.emails.key(mailbox);
                accounts.set_password(account.id, &hash, ShownBy::Mailbox(&key, None)).await?
            }
        };
        let Some(version) = set else {
            let asks = match accounts.had_before(account.id).await? {
                Some(had) => had.number && had.factor,
                None => accounts.has_factor(account.id).await?,
            };
            return Err(match asks {
                true => CodeRefusal::FactorMissing(Box::new(account), hash),
                false if frozen => CodeRefusal::AccountFrozen,
                false => CodeRefusal::NoAccount,
            });
        };
        self.was_reset(live, &account, (entry.to, entry.origin), entry.solved).await;
        Ok(Box::new(account.with_password(hash, version)))
    }

    /// What else a new password after a code does, if a second step came between, too. `account` is as it was before.
    pub async fn was_reset(
        &self,
        live: &LiveSettings,
        account: &Account,
        by: (&Recipient, &RequestOrigin),
        solved: bool,
    ) {
        // In an outage of the store there are no failures there to forgive.
        if let Err(error) = self.guard.forgive(GuardedLogin::Own, &live.limits, account.id).await {
            tracing::debug!(%error, "an account's failures could not be forgiven");
        }
        if account.password_disabled_at.is_some() {
            password_enabled_counter().increment(1);
        }
        self.record(account, by, solved, (Action::Reset, None));
    }

    /// Gives an account the number or the address that the code was sent to, replacing any earlier one. Both open the
    /// account, so the account's password must just have been verified.
    pub async fn give(
        &self,
        live: &LiveSettings,
        account: &Account,
        entry: CodeEntry<'_>,
        locale: &str,
    ) -> Result<(), CodeRefusal> {
        let guess = self.guess(live, entry, Purpose::Verify).await?;
        let proven = proven(self.codes.check(live, guess).await?)?;
        let set = self.emails.give(account, proven.recipient(), locale).await?;
        Err(match (set, proven.recipient()) {
            (RecipientSet::Done, _) => return Ok(()),
            (RecipientSet::Taken, Recipient::Phone(_)) => CodeRefusal::PhoneTaken,
            (RecipientSet::Taken, Recipient::Mailbox(_)) => CodeRefusal::EmailTaken,
            // The account was changed during its own session, which has ended with that.
            (RecipientSet::Gone, _) => CodeRefusal::WrongCode,
        })
    }

    /// Proves once more that who is signed in has the account's number, which alone opens it.
    pub async fn confirm(&self, live: &LiveSettings, entry: CodeEntry<'_>) -> Result<(), CodeRefusal> {
        let guess = self.guess(live, entry, Purpose::Verify).await?;
        proven(self.codes.check(live, guess).await?).map(drop)
    }

    /// Removes an account's number. False if it is the only way to sign in.
    pub async fn take_away(&self, account: &Account) -> Result<bool, DbError> {
        self.accounts.remove_phone(account).await
    }
}

/// Whether the owner of the address may set a password by it.
pub fn resets_by_mail(live: &LiveSettings, account: &Account) -> bool {
    match live.mail.reset {
        ResetByMail::Yes => true,
        ResetByMail::WithoutNumber => account.phone.is_none(),
        ResetByMail::No => false,
    }
}

fn proven(checked: CheckOutcome) -> Result<Proven, CodeRefusal> {
    match checked {
        CheckOutcome::Right(proven) => Ok(proven),
        CheckOutcome::Wrong => Err(CodeRefusal::WrongCode),
        CheckOutcome::Denied(denied) => Err(CodeRefusal::Denied(denied)),
    }
}

/// The account, if its number alone opens it.
fn opened(account: Account) -> Result<Account, CodeRefusal> {
    let account = permitted(account)?;
    // It was frozen by somebody who had its address before; the one who has its number now may be a thief.
    if account.frozen_at.is_some() { Err(CodeRefusal::AccountFrozen) } else { Ok(account) }
}

/// The account, if codes may do anything for it.
fn permitted(account: Account) -> Result<Account, CodeRefusal> {
    // Somebody who talks a carrier into another SIM has the number. That is not enough for an administrator.
    if account.roles.admin {
        return Err(CodeRefusal::PasswordRequired);
    }
    if account.disabled_at.is_some() { Err(CodeRefusal::AccountDisabled) } else { Ok(account) }
}

/// An owner may configure that everyone is a stranger.
fn are_devices_known(live: &LiveSettings) -> bool {
    let limit = &live.limits.login_device;
    limit.mode() == LimitMode::Enforce && !limit.rules().is_empty()
}
