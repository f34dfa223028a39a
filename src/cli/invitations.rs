//! `gatehouse accounts create | invite`

use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use gatehouse::accounts::{
    Accounts, AccountsMade, Groups, ImportConflict, ImportRow, Invitations, LONGEST_INVITATION, MOST_INVITED,
    NewInvitation, Profile, Username,
};
use gatehouse::audit::{Action, AuditEvent, Outcome};
use gatehouse::config::{LoadedConfig, RegistrationMode};
use gatehouse::sms::Phone;
use serde_json::{Value, json};

use super::accounts::{open_record, username};
use super::log::tell;
use super::{CliFailure, CreateArguments, InviteArguments, open_foundation};

/// In bytes, many more names than are created at once.
const LONGEST_LIST: u64 = 1 << 20;

/// Creates accounts without a password, all of them or none, and prints the link of each.
pub async fn create(loaded: &LoadedConfig, arguments: CreateArguments) -> Result<(), CliFailure> {
    let CreateArguments { names, groups, phone, name, email } = arguments;
    let groups = parse_groups(&groups)?;
    let names = if names == ["-"] { listed()? } else { names };
    if names.len() > MOST_INVITED as usize {
        return Err(CliFailure::unusable(format!("NAME: give at most {MOST_INVITED} at once")));
    }
    let of_one = [("--phone", phone.is_some()), ("--name", name.is_some()), ("--email", email.is_some())];
    if let Some((option, _)) = of_one.into_iter().find(|(_, given)| *given && names.len() != 1) {
        return Err(CliFailure::unusable(format!("{option}: is that of one account; give one NAME")));
    }
    let sms = loaded.live.snapshot().sms.clone();
    let phone = phone.map(|text| Phone::parse(&text, &sms.default_region)?.allowed_by(&sms));
    let phone = phone.transpose().map_err(|error| CliFailure::unusable(format!("--phone: {error}")))?;
    let profile = Profile::parse(email.as_deref(), false, name.as_deref());
    let profile =
        profile.map_err(|error| CliFailure::unusable(format!("--{}: it {error}", error.field())))?;
    let (mut rows, mut known) = (Vec::with_capacity(names.len()), HashSet::new());
    for typed in &names {
        let login: Username = username(typed)?.standard();
        if !known.insert(login.clone()) {
            return Err(CliFailure::unusable(format!("NAME: {typed} is given twice; nothing was created")));
        }
        let (phone, profile) = (phone.clone(), profile.clone());
        rows.push(ImportRow { line: 1, login, password_hash: None, phone, totp: None, profile });
    }
    let invitations = open(loaded).await?;
    match invitations.create_accounts(&rows, &groups, None).await.map_err(CliFailure::broken)? {
        AccountsMade::Made(made) => {
            for (row, (_, link)) in rows.iter().zip(&made) {
                let name = if rows.len() == 1 { String::new() } else { format!("{}\t", row.login.as_str()) };
                tell!("{name}{}", shown(loaded, link));
            }
            // Last: without a record the links are there all the same.
            record(loaded, "account-create", json!({ "accounts": rows.len(), "groups": groups.to_string() }))
                .await
        }
        AccountsMade::Raced => Err(CliFailure::broken(
            "names were registered while they were being created; nothing was created, try again",
        )),
        AccountsMade::Refused(conflicts) => {
            let line = |(at, conflict): &(usize, ImportConflict)| {
                let login = rows[*at].login.as_str();
                match conflict {
                    ImportConflict::LoginTaken => format!("NAME: {login} is taken\n"),
                    ImportConflict::LoginDeleted => {
                        format!("NAME: {login} was deleted, and is not given again\n")
                    }
                    ImportConflict::PhoneTaken => "--phone: another account has this number\n".to_owned(),
                }
            };
            let lines: String = conflicts.iter().map(line).collect();
            Err(CliFailure::unusable(lines + "Nothing was created."))
        }
    }
}

/// Prints another link for an account that nothing else opens, or one for many.
pub async fn invite(loaded: &LoadedConfig, arguments: InviteArguments) -> Result<(), CliFailure> {
    let InviteArguments { name, count, expires_in, groups } = arguments;
    let (link, act, detail) = match (name, count) {
        (Some(name), _) => {
            let (_, account) = super::accounts::account(loaded, &name).await?;
            let made =
                open(loaded).await?.invite(account.id, None, false).await.map_err(CliFailure::broken)?;
            let made = made.ok_or_else(|| {
                let reason = "has a password, a number, an address or a second factor, or is frozen or disabled; an invitation is for an account that nothing else opens";
                CliFailure::unusable(format!("NAME: {} {reason}", account.login.as_str()))
            })?;
            (made, "account-invite", json!({ "account": account.id.to_string() }))
        }
        (None, count) => {
            let count = count.unwrap_or(1);
            if !(1..=MOST_INVITED).contains(&count) {
                return Err(CliFailure::unusable(format!("--count: use 1 to {MOST_INVITED}")));
            }
            let lasts = humantime::parse_duration(&expires_in).ok();
            let lasts = lasts.filter(|lasts| (Duration::from_secs(60)..=LONGEST_INVITATION).contains(lasts));
            let lasts = lasts.ok_or_else(|| {
                CliFailure::unusable("--expires-in: use 1m to 90d, such as \"72h\" or \"7d\"")
            })?;
            if loaded.live.snapshot().registration.mode == RegistrationMode::Closed {
                return Err(CliFailure::unusable(
                    "registration.mode: is \"closed\", so a link creates no account; set \"invite\" first",
                ));
            }
            let groups = parse_groups(&groups)?;
            let invitations = open(loaded).await?;
            let made = invitations.invite_many(count, &groups, lasts, None).await;
            let detail = json!({ "accounts": count, "groups": groups.to_string() });
            (made.map_err(CliFailure::broken)?, "invitation.create", detail)
        }
    };
    tell!("{}", shown(loaded, &link));
    record(loaded, act, detail).await
}

async fn open(loaded: &LoadedConfig) -> Result<Invitations, CliFailure> {
    let foundation = open_foundation(loaded).await?;
    Ok(Invitations::new(&foundation, Accounts::of(&foundation)))
}

async fn record(loaded: &LoadedConfig, name: &str, mut detail: Value) -> Result<(), CliFailure> {
    let audit = open_record(loaded).await?;
    detail["from"] = "gatehouse accounts".into();
    audit.record(AuditEvent {
        name: Some(name),
        detail: Some(detail.to_string()),
        ..AuditEvent::new(audit.now(), Action::Admin, Outcome::Ok)
    });
    audit.flush().await;
    Ok(())
}

fn shown(loaded: &LoadedConfig, made: &NewInvitation) -> String {
    made.token.link(loaded.settings.server.public_url.as_str())
}

fn parse_groups(names: &[String]) -> Result<Groups, CliFailure> {
    Groups::parse(names.iter().map(String::as_str))
        .map_err(|error| CliFailure::unusable(format!("--group: {error}")))
}

/// Names on lines of standard input.
fn listed() -> Result<Vec<String>, CliFailure> {
    let mut text = String::new();
    std::io::stdin().take(LONGEST_LIST + 1).read_to_string(&mut text).map_err(CliFailure::broken)?;
    if text.len() as u64 > LONGEST_LIST {
        return Err(CliFailure::unusable(format!(
            "NAME: standard input is longer than {LONGEST_LIST} bytes"
        )));
    }
    let names: Vec<String> =
        text.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() {
        return Err(CliFailure::unusable("NAME: there is none on standard input"));
    }
    Ok(names)
}
