//! `gatehouse key replace`

use gatehouse::app::{self, KeyReplacement, StartError, TimeAndEntropy};
use gatehouse::config::LoadedConfig;

use super::log::tell;
use super::{CliFailure, database_failure};

const LOST: &str = "What was hashed under the key before is not found again:
  everybody signs in anew, API tokens are made anew, and known devices are strangers;
  secrets of authenticator apps open under the old file alone: gatehouse key reseal OLD.key;
  events of before are found by their mask only.
Nobody can tell any more for whom messages, wrong passwords and wrong codes of apps were counted. So until the longest window
of their limits has passed since the last of them, no message is sent, no password compared, and no second factor.";

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
                "Nothing was done: instances run, and would go on with the key before. Stop them; one that was killed is forgotten after a minute: {}",
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

fn failure(error: StartError) -> CliFailure {
    match error {
        StartError::Database(error) => database_failure(error),
        StartError::Key(_) => CliFailure::unusable(error),
        other => CliFailure::broken(other),
    }
}
