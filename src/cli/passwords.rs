//! `gatehouse passwords build`

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};

use gatehouse::login::{BuildError, BuildOptions, BuildProgress, BuildSummary, build_breached};

use super::CliFailure;
use super::log::tell;

const MIB: u64 = 1024 * 1024;

pub fn build(inputs: &[PathBuf], out: &Path, at_least: u64) -> Result<(), CliFailure> {
    // On a terminal it is one line, which is written over.
    let on_terminal = stderr().is_terminal();
    let show = |progress| {
        if on_terminal {
            let _ = write!(stderr(), "\r\x1b[K{}", shown(progress));
        }
    };
    let built = build_breached(inputs, out, &BuildOptions { at_least }, show);
    if on_terminal {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    let summary = built.map_err(|error| match error {
        BuildError::Spool { .. } => CliFailure::broken(error),
        _ => CliFailure::unusable(error),
    })?;
    tell!("{}", told(&summary, out));
    Ok(())
}

fn shown(progress: BuildProgress) -> String {
    match progress {
        BuildProgress::Reading { lines, bytes } => format!("read {lines} lines, {} MiB", bytes / MIB),
        BuildProgress::Sorting { part, of } => format!("sorted {part} of {of} parts"),
        BuildProgress::Building { shard, of } => format!("built {shard} of {of} shards"),
    }
}

fn told(summary: &BuildSummary, out: &Path) -> String {
    let BuildSummary { lines, words, left_out, entries, bytes, .. } = *summary;
    let mut text = format!(
        "{}: {entries} passwords in {bytes} bytes, of {lines} lines; {words} were no SHA-1 hashes, and are in as passwords.",
        out.display()
    );
    if left_out > 0 {
        text += &format!("\nLeft out, lost less often than --at-least says: {left_out}");
    }
    if summary.skipped() > 0 {
        text += &format!("\nSkipped, empty, padding or longer than 1024 bytes: {}", summary.skipped());
    }
    let mib = bytes.div_ceil(MIB);
    text + &format!(
        "\nTo use it: login.breached = {:?}, and login.breached_memory = {mib} or more",
        out.display().to_string()
    )
}
