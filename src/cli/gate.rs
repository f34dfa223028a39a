//! `gatehouse gate print`

use gatehouse::config::{LoadedConfig, ReloadResult};
use gatehouse::gate::ProxyFile;

use super::CliFailure;
use super::log::tell;

/// For the applications in force, or those that would be if a server started now.
pub fn print(loaded: &LoadedConfig, proxy: &str, app: Option<&str>) -> Result<(), CliFailure> {
    match loaded.read_once() {
        ReloadResult::Followed | ReloadResult::Empty => {}
        ReloadResult::Refused(error) => return Err(CliFailure::unusable(error)),
        ReloadResult::Down(reason) => {
            return Err(CliFailure::broken(format!("the applications in force cannot be read: {reason}")));
        }
    }
    let file = ProxyFile::parse(proxy).ok_or_else(|| CliFailure::unusable("PROXY: is none of those"))?;
    let (server, live) = (&loaded.settings.server, loaded.live.snapshot());
    let text = file.print(server, &live.apps, app).map_err(CliFailure::unusable)?;
    tell!("{}", text.trim_end());
    Ok(())
}
