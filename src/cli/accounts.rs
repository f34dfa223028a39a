//! `gatehouse accounts import | imported` and `gatehouse admin create | enable | unfreeze | clear-factors | end-sessions`

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use gatehouse::accounts::{
    Account, AccountAct, Accounts, CreateError, ExportSource, ExportSystem, Factors, FirebaseHashConfig,
    ImportConflict, ImportFile, ImportMistake, ImportMistakes, ImportOutcome, ImportRow, ImportUnit, Roles,
    Username,
};
use gatehouse::app::{self, TimeAndEntropy};
use gatehouse::audit::{Action, Audit, AuditEvent, Outcome};
use gatehouse::config::{LiveSettings, LoadedConfig};
use gatehouse::login::{BreachedList, PasswordHasher};
use gatehouse::secret::MasterKey;
use gatehouse::sms::Phone;
use serde_json::json;
use zeroize::Zeroizing;

use super::log::tell;
use super::{CliFailure, counted, database_failure, open_foundation};

/// What the options say of the file; None if it is one of JSON lines.
pub fn export_source(
    from: Option<&str>,
    hash_config: Option<&Path>,
) -> Result<Option<ExportSource>, CliFailure> {
    let system: Option<ExportSystem> = from.and_then(|name| name.parse().ok());
    Ok(match (system, hash_config) {
        (Some(ExportSystem::Firebase), Some(path)) => {
            let text = Zeroizing::new(fs::read_to_string(path).map_err(|reason| {
                CliFailure::unusable(format!("--hash-config: cannot read {}: {reason}", path.display()))
            })?);
            let config = FirebaseHashConfig::parse(&text);
            let unusable = |reason| {
                CliFailure::unusable(format!(
                    "--hash-config: {reason}; copy it from the console: Authentication, Users, ⋮, Password hash parameters"
                ))
            };
            Some(ExportSource::Firebase(config.map_err(unusable)?))
        }
        (_, Some(_)) | (Some(ExportSystem::Firebase), None) => {
            return Err(CliFailure::unusable(
                "--hash-config: belongs to --from firebase; use both or neither",
            ));
        }
        (Some(ExportSystem::Keycloak), None) => Some(ExportSource::Keycloak),
        (Some(ExportSystem::Auth0), None) => Some(ExportSource::Auth0),
        (Some(ExportSystem::Django), None) => Some(ExportSource::Django),
        (None, None) => None,
    })
}

/// Creates the accounts of a file, or none of them. With `dry_run`, only says whether it could.
pub async fn import(
    loaded: &LoadedConfig,
    path: &Path,
    source: Option<&ExportSource>,
    dry_run: bool,
) -> Result<(), CliFailure> {
    let sms = loaded.live.snapshot().sms.clone();
    let phone = |text: &str| Phone::parse(text, &sms.default_region)?.allowed_by(&sms);
    let input = open(path)?;
    let read = match source {
        None => ImportFile::read(input, phone),
        Some(source) => ImportFile::read_export(input, source, phone),
    };
    let mut file = read.map_err(|reason| unreadable(path, &reason))?;
    refuse_unproven(&loaded.live.snapshot(), &mut file);
    if file.rows.is_empty() && file.mistakes.count() == 0 {
        let none = "FILE: there is no account in it".to_owned();
        return Err(CliFailure::unusable(none + &left_out(&file)));
    }
    let checks_only = dry_run || file.mistakes.count() > 0;
    match import_rows(loaded, &file.rows, checks_only).await? {
        ImportOutcome::Done => {}
        ImportOutcome::Refused(conflicts) => {
            for (row, conflict) in conflicts {
                let (field, reason) = in_words(conflict);
                file.mistakes.add(file.rows[row].line, field, reason.to_owned());
            }
        }
        ImportOutcome::Raced => {
            return Err(CliFailure::broken(
                "names of the file were registered while it was being imported; nothing was written, try again",
            ));
        }
    }
    if file.mistakes.count() > 0 {
        return Err(CliFailure::unusable(listed(file.unit, file.mistakes)));
    }
    tell!("{}", summary(&file, dry_run));
    Ok(())
}

/// An address that somebody wrote into a form elsewhere need not be theirs, so it opens no application to them.
fn refuse_unproven(live: &LiveSettings, file: &mut ImportFile) {
    const REASON: &str = "is an e-mail address that nobody verified, and named in [apps]; give the account another username in the export, or verify the address there";
    let ImportFile { rows, mistakes, unproven, .. } = file;
    let addresses = rows.iter().filter(|row| unproven.contains(&row.line));
    for row in addresses.filter(|row| live.apps.names(row.login.as_str())) {
        mistakes.add(row.line, "login", REASON.to_owned());
    }
}

async fn import_rows(
    loaded: &LoadedConfig,
    rows: &[ImportRow],
    dry_run: bool,
) -> Result<ImportOutcome, CliFailure> {
    let accounts = open_accounts(loaded).await?;
    // Opened first: without a record nothing is imported.
    let audit = open_record(loaded).await?;
    let factors = Factors::new(&open_foundation(loaded).await?);
    if rows.iter().any(|row| row.totp.is_some())
        && factors.is_upgrading().await.map_err(CliFailure::broken)?
    {
        return Err(CliFailure::broken(
            "totp: an instance of a version before second factors runs, which would ask for none; stop it first; nothing was imported",
        ));
    }
    let outcome = accounts.import(rows, &factors, dry_run).await.map_err(CliFailure::broken)?;
    if outcome == ImportOutcome::Done && !dry_run {
        audit.record(AuditEvent {
            name: Some("account-import"),
            detail: Some(format!(r#"{{"accounts":{},"from":"gatehouse accounts import"}}"#, rows.len())),
            ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
        });
        audit.flush().await;
    }
    Ok(outcome)
}

pub async fn imported(loaded: &LoadedConfig) -> Result<(), CliFailure> {
    let accounts = open_accounts(loaded).await?;
    let left = match accounts.count_imported().await.map_err(CliFailure::broken)? {
        0 => "No account has an imported password hash.".to_owned(),
        count => format!(
            "{} with an imported password hash. Until there is none, sign-ins are answered at one deadline.",
            counted(usize::try_from(count).unwrap_or(usize::MAX), "account", "accounts")
        ),
    };
    tell!("{left}");
    Ok(())
}

async fn open_accounts(loaded: &LoadedConfig) -> Result<Accounts, CliFailure> {
    app::open_accounts(&loaded.settings, &TimeAndEntropy::default()).await.map_err(database_failure)
}

pub async fn open_record(loaded: &LoadedConfig) -> Result<Audit, CliFailure> {
    Ok(Audit::new(&open_foundation(loaded).await?, loaded.settings.audit.clone()))
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, CliFailure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|reason| unreadable(path, &reason))?;
    Ok(Box::new(BufReader::new(file)))
}

fn unreadable(path: &Path, reason: &io::Error) -> CliFailure {
    CliFailure::unusable(format!("FILE: cannot read {}: {reason}", path.display()))
}

const fn in_words(conflict: ImportConflict) -> (&'static str, &'static str) {
    match conflict {
        ImportConflict::LoginTaken => ("login", "an account has this name already"),
        ImportConflict::LoginDeleted => {
            ("login", "a deleted account had this name, and it is not given again")
        }
        ImportConflict::PhoneTaken => ("phone", "another account has this number"),
    }
}

fn listed(unit: ImportUnit, ImportMistakes { mut first, more }: ImportMistakes) -> String {
    first.sort_by_key(|mistake| mistake.line);
    let mut text = String::new();
    for ImportMistake { line, field, reason } in first {
        // Writing to a text does not fail.
        let _ = match field {
            "line" => writeln!(text, "{unit} {line}: {reason}"),
            _ => writeln!(text, "{unit} {line}: {field}: {reason}"),
        };
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text + "Nothing was imported."
}

fn summary(file: &ImportFile, dry_run: bool) -> String {
    let ImportFile { rows, unverified, unverified_emails, .. } = file;
    let would = if dry_run { "would be imported" } else { "imported" };
    let mut text = format!("{} {would}", counted(rows.len(), "account", "accounts"));
    let phones = rows.iter().filter(|row| row.phone.is_some()).count();
    let without = rows.iter().filter(|row| row.password_hash.is_none()).count();
    let _ = write!(text, ": {phones} with a phone number, {without} without a password");
    let _ = match rows.iter().filter(|row| row.totp.is_some()).count() {
        0 => write!(text, "."),
        apps => write!(text, ", {apps} with an authenticator app."),
    };
    if *unverified > 0 {
        let numbers = counted(*unverified, "phone number", "phone numbers");
        let marked =
            if file.unit == ImportUnit::Line { "marked \"phone_verified\": true" } else { "verified" };
        let _ = write!(text, "\n{numbers} left out: not {marked}.");
    }
    if *unverified_emails > 0 {
        let addresses = counted(*unverified_emails, "e-mail address", "e-mail addresses");
        let _ = write!(text, "\n{addresses} left out: not verified.");
    }
    if !file.unproven.is_empty() {
        let names = counted(file.unproven.len(), "username is", "usernames are");
        let _ = write!(
            text,
            "\n{names} an e-mail address that nobody verified: it proves nothing about its owner."
        );
    }
    text + &left_out(file)
}

/// One a line: none of them is lost without a word.
fn left_out(file: &ImportFile) -> String {
    let lines = file.left_out.iter().map(|(account, what)| format!("\naccount {account}: {what}"));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\nLeft out:{lines}") }
}

const LONGEST_LINE: u64 = 2048;

pub async fn create(loaded: &LoadedConfig, name: &str, password_stdin: bool) -> Result<(), CliFailure> {
    let login = username(name)?;
    let password = if password_stdin { first_line()? } else { asked_for()? };
    let accounts = open_accounts(loaded).await?;
    let TimeAndEntropy { clock, entropy } = TimeAndEntropy::default();
    let breached = BreachedList::default();
    breached.follow(&loaded.live.snapshot().login);
    if let Some(reason) = breached.refused() {
        tell!("warning: login.breached: {reason}; lost passwords are not refused");
    }
    let hasher =
        PasswordHasher::new(loaded.settings.password, breached, &MasterKey::random(&entropy), clock, entropy)
            .map_err(CliFailure::broken)?;
    let hash = hasher
        .hash_new(&password, &login)
        .await
        .map_err(CliFailure::broken)?
        .map_err(|unfit| CliFailure::unusable(format!("password: {unfit}")))?;
    match accounts.create(&login, &hash, Roles { admin: true }).await {
        Ok(_) => {
            tell!("{} is now an administrator.", login.as_str());
            Ok(())
        }
        Err(CreateError::LoginTaken | CreateError::PhoneTaken | CreateError::EmailTaken) => {
            Err(CliFailure::unusable(format!("NAME: {} is taken; choose another", login.as_str())))
        }
        Err(CreateError::Db(error)) => Err(CliFailure::broken(error)),
    }
}

/// For an administrator who has no other administrator to ask.
pub async fn enable(loaded: &LoadedConfig, name: &str) -> Result<(), CliFailure> {
    let (accounts, account) = account(loaded, name).await?;
    let audit = open_record(loaded).await?;
    let login = account.login.as_str();
    if !accounts.enable_password(account.id).await.map_err(CliFailure::broken)? {
        tell!("The password of {login} is not disabled; nothing was changed.");
        if account.frozen_at.is_some() {
            tell!("The account is frozen: gatehouse admin unfreeze {login} lifts that.");
        }
        return Ok(());
    }
    record(&audit, &account, "password.enable", "gatehouse admin enable", None).await;
    tell!("Password sign-in re-enabled for {login}.");
    Ok(())
}

/// For an administrator whose account was frozen, and who has no other administrator to ask.
pub async fn unfreeze(loaded: &LoadedConfig, name: &str) -> Result<(), CliFailure> {
    let (accounts, account) = account(loaded, name).await?;
    let audit = open_record(loaded).await?;
    let login = account.login.as_str();
    if !accounts.unfreeze(account.id).await.map_err(CliFailure::broken)? {
        tell!("{login} is not frozen; nothing was changed.");
        return Ok(());
    }
    record(&audit, &account, "account.unfreeze", "gatehouse admin unfreeze", None).await;
    tell!("{login} is no longer frozen. What it got after its address was changed is gone.");
    let left = accounts.by_id(account.id).await.map_err(CliFailure::broken)?;
    if left.is_some_and(|account| account.password_hash.is_none()) {
        tell!("So is its password. If nothing else opens it: gatehouse accounts invite {login}");
    }
    Ok(())
}

/// For the last administrator, who has lost their second factors.
pub async fn clear_factors(loaded: &LoadedConfig, name: &str) -> Result<(), CliFailure> {
    let (accounts, account) = account(loaded, name).await?;
    let audit = open_record(loaded).await?;
    let login = account.login.as_str();
    if !accounts.has_factors(account.id).await.map_err(CliFailure::broken)? {
        tell!("{login} has no second factor; nothing was changed.");
        return Ok(());
    }
    accounts.change(account.id, AccountAct::ClearFactors, false).await.map_err(CliFailure::broken)?;
    let (name, command) = ("account-clear-factors", "gatehouse admin clear-factors");
    record(&audit, &account, name, command, Some(Action::FactorReset)).await;
    tell!("The second factors of {login} are gone, and its sessions have ended.");
    Ok(())
}

/// After the database was restored: what had ended by then may be back.
pub async fn end_sessions(loaded: &LoadedConfig) -> Result<(), CliFailure> {
    let accounts = open_accounts(loaded).await?;
    let audit = open_record(loaded).await?;
    let ended = accounts.end_all_sessions().await.map_err(CliFailure::broken)?;
    audit.record(AuditEvent {
        name: Some("sessions.end"),
        detail: Some(json!({ "from": "gatehouse admin end-sessions", "sessions": ended }).to_string()),
        ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
    });
    audit.flush().await;
    tell!("{} ended. Everybody signs in anew.", counted(ended as usize, "session", "sessions"));
    Ok(())
}

pub async fn account(loaded: &LoadedConfig, name: &str) -> Result<(Accounts, Account), CliFailure> {
    let login = username(name)?;
    let accounts = open_accounts(loaded).await?;
    let account = accounts.find(&login).await.map_err(CliFailure::broken)?.ok_or_else(|| {
        CliFailure::unusable(format!("NAME: there is no account {}; check the spelling", login.as_str()))
    })?;
    Ok((accounts, account))
}

async fn record(audit: &Audit, account: &Account, name: &str, command: &str, also: Option<Action>) {
    audit.record(AuditEvent {
        name: Some(name),
        account: Some(account.recorded()),
        detail: Some(json!({ "from": command }).to_string()),
        ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
    });
    if let Some(action) = also {
        let account = Some(account.recorded());
        audit.record(AuditEvent { account, ..AuditEvent::new(audit.now(), action, Outcome::Ok) });
    }
    audit.flush().await;
}

pub fn username(name: &str) -> Result<Username, CliFailure> {
    Username::parse(name).map_err(|error| CliFailure::unusable(format!("NAME: {error}")))
}

fn first_line() -> Result<Zeroizing<String>, CliFailure> {
    let mut text = Zeroizing::new(String::new());
    std::io::stdin().take(LONGEST_LINE).read_to_string(&mut text).map_err(CliFailure::broken)?;
    Ok(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned()))
}

fn asked_for() -> Result<Zeroizing<String>, CliFailure> {
    if !std::io::stdin().is_terminal() {
        return Err(CliFailure::unusable(
            "there is no terminal to read a password from; use --password-stdin",
        ));
    }
    let ask =
        |prompt: &str| rpassword::prompt_password(prompt).map(Zeroizing::new).map_err(CliFailure::broken);
    let password = ask("Password (15 characters or more): ")?;
    if password != ask("Repeat the password: ")? {
        return Err(CliFailure::unusable("password: the two entries differ; no account was created"));
    }
    Ok(password)
}
