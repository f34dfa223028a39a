//! `gatehouse key show | add | use | drop`

use gatehouse::config::LoadedConfig;
use gatehouse::entropy::Entropy;
use gatehouse::secret::{KeyFile, KeyStep};

use super::CliFailure;
use super::log::tell;

pub fn show(loaded: &LoadedConfig) -> Result<(), CliFailure> {
    let file = KeyFile::load(&loaded.settings.secrets.key_file).map_err(CliFailure::unusable)?;
    tell!("{}", state(file.next()));
    Ok(())
}

pub fn take(loaded: &LoadedConfig, step: KeyStep) -> Result<(), CliFailure> {
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
