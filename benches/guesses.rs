//! What limits that know the guess change: accounts opened by a botnet, honest people blocked and bothered, and the
//! time until a spray is told. A simulation; every figure follows from the seed.
//!
//!     cargo bench --bench guesses -- [seed=1] [FOLDER]
//!
//! The folder gets `guesses-opened.svg` and `guesses-bothered.svg`.

#[path = "guesses/attack.rs"]
mod attack;
#[path = "support/chance.rs"]
mod chance;
#[path = "guesses/honest.rs"]
mod honest;
#[path = "guesses/passwords.rs"]
mod passwords;
#[path = "support/picture.rs"]
mod picture;
#[path = "guesses/sprays.rs"]
mod sprays;
#[path = "support/table.rs"]
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> std::io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let seed =
        arguments.iter().find_map(|argument| argument.strip_prefix("seed=")?.parse().ok()).unwrap_or(1);
    let folder = arguments.iter().find(|argument| !argument.starts_with("seed="));
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let mut missed = attack::show(seed, &folder.join("guesses-opened.svg"))?;
    missed.extend(honest::show(seed, &folder.join("guesses-bothered.svg"))?);
    missed.extend(sprays::show(seed));
    for bar in &missed {
        println!("\nmissed: {bar}");
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
