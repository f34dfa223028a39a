//! `gatehouse apps check`

use std::io::{BufRead, stdin};
use std::path::Path;

use gatehouse::config::{LoadedConfig, Pkce};
use gatehouse::oidc::{ClientCheck, ClientSecrets};
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::log::tell;
use super::{CliFailure, open_foundation};

/// At the server that runs. `login` signs in there, by what is asked for here.
pub async fn check(
    loaded: &LoadedConfig,
    name: &str,
    login: Option<&str>,
    (from_stdin, authorities): (bool, Option<&Path>),
) -> Result<(), CliFailure> {
    let live = loaded.live.snapshot();
    let app = live
        .apps
        .named(name)
        .map_err(|known| CliFailure::unusable(format!("{name:?} is no application; {known}")))?;
    let client = app.oidc.as_ref();
    let client = client.ok_or_else(|| {
        CliFailure::unusable(format!(
            "{name:?} has no [apps.oidc]; add it with redirect_uris, or check it in a browser"
        ))
    })?;
    tell!("ok   {name} is the client {}", client.client_id);
    if client.secret.is_some() && client.pkce == Pkce::Required {
        tell!("note it has to use PKCE; for a client that does not: pkce = \"optional\" in [apps.oidc]");
    }
    let url = loaded.settings.server.public_url.as_str();
    // Whatever answers says nothing to the terminal.
    let say = |line: String| {
        tell!("{}", line.replace(char::is_control, " "));
    };
    let stored =
        if client.has_stored_secret() { newest_secret(loaded, &client.client_id).await? } else { None };
    let check = ClientCheck::new(client, url, authorities, &say).map_err(CliFailure::unusable)?;
    let check = check.with_stored(stored);
    let ask = |what: &str| match from_stdin {
        true => stdin().lock().lines().next().unwrap_or_else(|| Ok(String::new())),
        false => rpassword::prompt_password(what),
    };
    let mut ask =
        |what: &str| ask(what).map(Zeroizing::new).map_err(|reason| format!("cannot ask: {reason}"));
    let failed = check.run(login.map(|login| (login, &mut ask as _))).await;
    if login.is_none() {
        tell!(
            "Left out: sign-in, tokens, userinfo and signing out. With them: gatehouse apps check {name} --as LOGIN"
        );
    }
    match failed {
        0 => Ok(()),
        1 => Err(CliFailure::broken("One step does not match.")),
        failed => Err(CliFailure::broken(format!("{failed} steps do not match."))),
    }
}

/// The newest secret of a client whose secrets are kept in the database.
async fn newest_secret(loaded: &LoadedConfig, client: &str) -> Result<Option<SecretString>, CliFailure> {
    let secrets = ClientSecrets::new(&open_foundation(loaded).await?);
    secrets.newest(client).await.map_err(CliFailure::broken)
}
