//! `gatehouse admin create NAME` and `gatehouse admin enable NAME`

use std::io::{IsTerminal, Read};

use gatehouse::app::{self, TimeAndEntropy};
use gatehouse::audit::{Action, AuditEvent, Outcome};
use gatehouse::config::LoadedConfig;
use gatehouse::login::{CreateError, PasswordHasher, Roles, Username};
use zeroize::Zeroizing;

use super::log::tell;
use super::{CliFailure, block_on, database_failure};

/// The longest password line.
const LONGEST_LINE: u64 = 2048;

pub fn create(loaded: &LoadedConfig, name: &str, password_stdin: bool) -> Result<(), CliFailure> {
    let login = Username::parse(name).map_err(|error| CliFailure::unusable(format!("NAME: {error}")))?;
    let password = if password_stdin { first_line()? } else { asked_for()? };
    block_on(create_account(loaded, &login, &password))??;
    tell!("{} is now an administrator.", login.as_str());
    Ok(())
}

async fn create_account(loaded: &LoadedConfig, login: &Username, password: &str) -> Result<(), CliFailure> {
    let world = TimeAndEntropy::default();
    let accounts = app::open_accounts(&loaded.settings, &world).await.map_err(database_failure)?;
    let hasher = PasswordHasher::new(loaded.settings.password, world.clock.clone(), world.entropy)
        .map_err(CliFailure::broken)?;
    let hash = hasher
        .hash_new(password, login)
        .await
        .map_err(CliFailure::broken)?
        .map_err(|unfit| CliFailure::unusable(format!("password: {unfit}")))?;
    match accounts.create(login, &hash, Roles { admin: true }).await {
        Ok(_) => Ok(()),
        Err(CreateError::LoginTaken | CreateError::PhoneTaken) => {
            Err(CliFailure::unusable(format!("NAME: {} is taken; choose another", login.as_str())))
        }
        Err(CreateError::Db(error)) => Err(CliFailure::broken(error)),
    }
}

/// For an administrator who has no other administrator to ask.
pub fn enable(loaded: &LoadedConfig, name: &str) -> Result<(), CliFailure> {
    let login = Username::parse(name).map_err(|error| CliFailure::unusable(format!("NAME: {error}")))?;
    match block_on(enable_password(loaded, &login))?? {
        true => {
            tell!("Password sign-in re-enabled for {}.", login.as_str());
        }
        false => {
            tell!("The password of {} is not disabled; nothing was changed.", login.as_str());
        }
    }
    Ok(())
}

async fn enable_password(loaded: &LoadedConfig, login: &Username) -> Result<bool, CliFailure> {
    let world = TimeAndEntropy::default();
    let accounts = app::open_accounts(&loaded.settings, &world).await.map_err(database_failure)?;
    let account = accounts.find(login).await.map_err(CliFailure::broken)?.ok_or_else(|| {
        CliFailure::unusable(format!("NAME: there is no account {}; check the spelling", login.as_str()))
    })?;
    let audit = app::open_record(&loaded.settings, &world).await.map_err(CliFailure::broken)?;
    let enabled = accounts.enable_password(account.id).await.map_err(CliFailure::broken)?;
    if enabled {
        audit.record(AuditEvent {
            name: Some("password.enable"),
            account: Some(account.recorded()),
            detail: Some(r#"{"from":"gatehouse admin enable"}"#.to_owned()),
            ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
        });
        audit.flush().await;
    }
    Ok(enabled)
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
