//! `gatehouse accounts import FILE` and `gatehouse accounts imported`

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use gatehouse::app::{self, TimeAndEntropy};
use gatehouse::audit::{Action, AuditEvent, Outcome};
use gatehouse::config::LoadedConfig;
use gatehouse::login::{ImportConflict, ImportFile, ImportMistake, ImportMistakes, ImportOutcome, ImportRow};
use gatehouse::sms::Phone;

use super::log::tell;
use super::{CliFailure, block_on, database_failure};

/// Creates the accounts of a file, or none of them. With `dry_run`, only says whether it could.
pub fn import(loaded: &LoadedConfig, path: &Path, dry_run: bool) -> Result<(), CliFailure> {
    let sms = loaded.live.snapshot().sms.clone();
    let phone = |text: &str| Phone::parse(text, &sms.default_region)?.allowed_in(&sms.countries);
    let ImportFile { rows, mut mistakes, unverified } =
        ImportFile::read(open(path)?, phone).map_err(|reason| unreadable(path, &reason))?;
    if rows.is_empty() && mistakes.count() == 0 {
        return Err(CliFailure::unusable("FILE: there is no account in it"));
    }
    let checks_only = dry_run || mistakes.count() > 0;
    match block_on(import_rows(loaded, &rows, checks_only))?? {
        ImportOutcome::Done => {}
        ImportOutcome::Refused(conflicts) => {
            for (row, conflict) in conflicts {
                let (field, reason) = in_words(conflict);
                mistakes.add(rows[row].line, field, reason.to_owned());
            }
        }
        ImportOutcome::Raced => {
            return Err(CliFailure::broken(
                "names of the file were registered while it was being imported; nothing was written, try again",
            ));
        }
    }
    if mistakes.count() > 0 {
        return Err(CliFailure::unusable(listed(mistakes)));
    }
    tell!("{}", summary(&rows, unverified, dry_run));
    Ok(())
}

async fn import_rows(
    loaded: &LoadedConfig,
    rows: &[ImportRow],
    dry_run: bool,
) -> Result<ImportOutcome, CliFailure> {
    let world = TimeAndEntropy::default();
    let accounts = app::open_accounts(&loaded.settings, &world).await.map_err(database_failure)?;
    // Opened first: without a record nothing is imported.
    let audit = app::open_record(&loaded.settings, &world).await.map_err(CliFailure::broken)?;
    let outcome = accounts.import(rows, dry_run).await.map_err(CliFailure::broken)?;
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

/// Says how many imported passwords are not replaced yet.
pub fn imported(loaded: &LoadedConfig) -> Result<(), CliFailure> {
    let left = match block_on(count_imported(loaded))?? {
        0 => "No account has an imported password hash.".to_owned(),
        count => format!(
            "{} with an imported password hash. Until there is none, sign-ins are answered at one deadline.",
            counted(usize::try_from(count).unwrap_or(usize::MAX), "account", "accounts")
        ),
    };
    tell!("{left}");
    Ok(())
}

async fn count_imported(loaded: &LoadedConfig) -> Result<u64, CliFailure> {
    let world = TimeAndEntropy::default();
    let accounts = app::open_accounts(&loaded.settings, &world).await.map_err(database_failure)?;
    accounts.count_imported().await.map_err(CliFailure::broken)
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

fn listed(ImportMistakes { mut first, more }: ImportMistakes) -> String {
    first.sort_by_key(|mistake| mistake.line);
    let mut text = String::new();
    for ImportMistake { line, field, reason } in first {
        // Writing to a text does not fail.
        let _ = match field {
            "line" => writeln!(text, "line {line}: {reason}"),
            _ => writeln!(text, "line {line}: {field}: {reason}"),
        };
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text + "Nothing was imported."
}

fn summary(rows: &[ImportRow], unverified: usize, dry_run: bool) -> String {
    let would = if dry_run { "would be imported" } else { "imported" };
    let mut text = format!("{} {would}", counted(rows.len(), "account", "accounts"));
    let phones = rows.iter().filter(|row| row.phone.is_some()).count();
    let without = rows.iter().filter(|row| row.password_hash.is_none()).count();
    let _ = write!(text, ": {phones} with a phone number, {without} without a password.");
    if unverified > 0 {
        let numbers = counted(unverified, "phone number", "phone numbers");
        let _ = write!(text, "\n{numbers} left out: not marked \"phone_verified\": true.");
    }
    text
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
