//! `gatehouse key show | add | use | drop | replace | reseal`

use std::path::Path;

use gatehouse::accounts::{Accounts, Emails, Factors, Username};
use gatehouse::app::{self, KeyReplacement, StartError, TimeAndEntropy};
use gatehouse::audit::Audit;
use gatehouse::config::LoadedConfig;
use gatehouse::entropy::Entropy;
use gatehouse::oidc::{ClientSecrets, TokenKeys};
use gatehouse::secret::{KeyFile, KeyStep, MasterKey};

use super::log::tell;
use super::{CliFailure, counted, database_failure, open_foundation};

const LOST: &str = "What was hashed under the key before is not found again:
  everybody signs in anew, API tokens and links of invitations are made anew, and known devices are strangers;
  secrets of authenticator apps and of clients, and e-mail addresses, open under the old file alone: gatehouse key reseal OLD.key;
  codes that were sent are accepted no more, nor those by which an earlier e-mail address freezes an account;
  events of before are found by their mask only.
Nobody can tell any more for whom messages, wrong passwords and wrong codes of apps were counted. So until the longest window
of their limits has passed since the last of them, no message is sent, no password compared, and no second factor.";

pub fn show(loaded: &LoadedConfig) -> Result<(), CliFailure> {
    let file = KeyFile::load(&loaded.settings.secrets.key_file).map_err(CliFailure::unusable)?;
    tell!("{}", state(file.next()));
    Ok(())
}

pub fn take_step(loaded: &LoadedConfig, step: KeyStep) -> Result<(), CliFailure> {
    let path = &loaded.settings.secrets.key_file;
    let mut file = KeyFile::load(path).map_err(CliFailure::unusable)?;
    file.take(step, &Entropy::Os).map_err(CliFailure::unusable)?;
    tell!("{}\nRestart every instance, each with this file: {}", state(file.next()), path.display());
    Ok(())
}

const fn state(next: KeyStep) -> &'static str {
    match next {
        KeyStep::Add => "One key signs. To replace it: gatehouse key add",
        KeyStep::Use => "The old key signs, and the new one is accepted. Next: gatehouse key use",
        KeyStep::Drop => {
            "The new key signs, and the old one is accepted. Next, once browsers have new cookies: gatehouse key drop"
        }
    }
}

/// Makes another key file, or takes the one that is there instead of the one that the database knows.
pub async fn replace(loaded: &LoadedConfig, accept_loss: bool) -> Result<(), CliFailure> {
    if !accept_loss {
        return Err(CliFailure::unusable(format!(
            "{LOST}\nNothing was done. Stop every instance, then: gatehouse key replace --accept-loss"
        )));
    }
    let path = loaded.settings.secrets.key_file.display();
    match app::replace_key(&loaded.settings, &TimeAndEntropy::default()).await.map_err(failure)? {
        KeyReplacement::Running(hosts) => {
            return Err(CliFailure::broken(format!(
                "Nothing was done: instances run, and would go on with the key before. Stop them; one that was killed is forgotten after 20 seconds: {}",
                hosts.join(", ")
            )));
        }
        KeyReplacement::Made { old: Some(old) } => {
            tell!("A new key is in {path}; the one before is in {}.", old.display());
        }
        KeyReplacement::Made { old: None } => {
            tell!("A new key is in {path}.");
        }
        KeyReplacement::Taken => {
            tell!("The key in {path} is that of the database now.");
        }
    }
    tell!("{LOST}\nCopy the file to every instance, and to the backups, before you start them.");
    Ok(())
}

/// After the database was restored beside another key file, or the key file was replaced.
pub async fn reseal(loaded: &LoadedConfig, old: &Path) -> Result<(), CliFailure> {
    let old = KeyFile::load(old).map_err(|reason| {
        CliFailure::unusable(format!("OLD: {}", reason.to_string().trim_start_matches("secrets.key_file ")))
    })?;
    // A new one would open nothing, and is made at the first start.
    let new = &loaded.settings.secrets.key_file;
    KeyFile::load(new).map_err(CliFailure::unusable)?;
    let (foundation, old) = (open_foundation(loaded).await?, old.master());
    let done = Factors::new(&foundation).reseal(&old).await.map_err(CliFailure::broken)?;
    let secrets = |count: u64| counted(count as usize, "secret", "secrets");
    tell!(
        "{} of authenticator apps sealed under {}; {} already.",
        secrets(done.sealed),
        new.display(),
        secrets(done.kept)
    );
    if done.without_codes > 0 {
        tell!(
            "Recovery codes cannot be carried over: those of {} are gone, and their owners make new ones on /account/factors.",
            counted(done.without_codes as usize, "account", "accounts")
        );
    }
    let audit = Audit::new(&foundation, loaded.settings.audit.clone());
    let keys = TokenKeys::new(&foundation, audit, (loaded.settings.oidc, None));
    reseal_signing_keys(&keys, &old).await?;
    let lost = [
        reseal_client_secrets(&ClientSecrets::new(&foundation), &old).await?,
        reseal_emails(&Emails::new(&foundation, Accounts::of(&foundation)), &old).await?,
        lost_factors(&done.lost),
    ];
    let lost: Vec<_> = lost.into_iter().flatten().collect();
    if lost.is_empty() { Ok(()) } else { Err(CliFailure::unusable(lost.join("\n"))) }
}

/// What to say of the secrets of apps that are lost.
fn lost_factors(of: &[Username]) -> Option<String> {
    let names: Vec<_> = of.iter().map(Username::as_str).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{} under neither key file. Their owners need: gatehouse admin clear-factors NAME\n{}",
            counted(names.len(), "secret opens", "secrets open"),
            names.join("\n")
        )
    })
}

/// Reseals the keys that sign. Keys that open under neither key file are replaced when the server runs, so nobody has
/// to do anything.
async fn reseal_signing_keys(keys: &TokenKeys, old: &MasterKey) -> Result<(), CliFailure> {
    let done = keys.reseal(old).await.map_err(CliFailure::broken)?;
    let keys = |count: u64| counted(count as usize, "signing key", "signing keys");
    if done.sealed + done.kept > 0 {
        tell!("{} sealed; {} already.", keys(done.sealed), keys(done.kept));
    }
    if done.lost > 0 {
        let lost = counted(done.lost as usize, "signing key opens", "signing keys open");
        tell!("{lost} under neither key file; another one signs.");
    }
    Ok(())
}

/// Reseals the e-mail addresses of accounts. Returns what to say of those that are lost.
async fn reseal_emails(emails: &Emails, old: &MasterKey) -> Result<Option<String>, CliFailure> {
    let done = emails.reseal(old).await.map_err(CliFailure::broken)?;
    let addresses = |count: u64| counted(count as usize, "e-mail address", "e-mail addresses");
    if done.sealed + done.kept > 0 {
        tell!("{} sealed; {} already.", addresses(done.sealed), addresses(done.kept));
    }
    if done.sealed > 0 {
        tell!(
            "Notices that wait are sent. Codes that were sent are accepted no more, nor those by which an earlier address freezes an account."
        );
    }
    let lost = addresses(done.lost);
    Ok((done.lost > 0).then(|| format!(
        "{lost} left as before: sealed under neither key file, or confirmed by somebody else since. Their owners confirm them again on /account/email."
    )))
}

/// Reseals the secrets of clients that are kept in the database. Returns what to say of those that are lost.
async fn reseal_client_secrets(
    secrets: &ClientSecrets,
    old: &MasterKey,
) -> Result<Option<String>, CliFailure> {
    let done = secrets.reseal(old).await.map_err(CliFailure::broken)?;
    let secrets = |count: u64| counted(count as usize, "client secret", "client secrets");
    if done.sealed + done.kept > 0 {
        tell!("{} sealed; {} already.", secrets(done.sealed), secrets(done.kept));
    }
    let lost = counted(done.lost as usize, "client secret opens", "client secrets open");
    Ok((done.lost > 0)
        .then(|| format!("{lost} under neither key file: drop them, and generate others, on /admin/apps")))
}

fn failure(error: StartError) -> CliFailure {
    match error {
        StartError::Database(error) => database_failure(error),
        StartError::Key(_) => CliFailure::unusable(error),
        other => CliFailure::broken(other),
    }
}
