//! What a package holds beside the binary: `gatehouse(1)`, made from the command line's own descriptions, and Debian's
//! changelog. `INSTA_UPDATE=always scripts/test manual` writes the page anew.

use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Arguments;

/// Sections that no argument says, each with its paragraphs.
const MORE: [(&str, &[&str]); 4] = [
    (
        "EXIT STATUS",
        &[
            "0: done. 1: something is broken, as a database that does not answer. 2: the command line, the configuration or \
            what was typed is wrong; standard error says what.",
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            "GATEHOUSE__SECTION__KEY sets a value of the configuration file, and is stronger than the file.",
            "RUST_LOG chooses what is logged on standard error; info by default.",
        ],
    ),
    (
        "FILES",
        &[
            "The Debian package has its configuration in /etc/gatehouse/gatehouse.toml and its data in /var/lib/gatehouse.",
        ],
    ),
    (
        "SEE ALSO",
        &["/usr/share/doc/gatehouse/ has the pages about each feature, and an example of every setting."],
    ),
];

/// One page for all commands: a page for each would be two dozen.
fn manual() -> String {
    let mut command = Arguments::command();
    command.build();
    let (man, mut text) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    man.render_synopsis_section(&mut text).unwrap();
    man.render_options_section(&mut text).unwrap();
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    describe(&mut roff, &mut command);
    for (section, paragraphs) in MORE {
        roff.control("SH", [section]);
        for paragraph in paragraphs {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    }
    roff.to_writer(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// The commands that do something, in the order of `--help`.
fn describe(roff: &mut Roff, command: &mut Command) {
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        if inner.has_subcommands() {
            describe(roff, inner);
            continue;
        }
        let usage = inner.render_usage().to_string();
        roff.control("SS", [inner.get_bin_name().unwrap()]);
        roff.text([bold(usage.trim_start_matches("Usage: "))]);
        roff.control("PP", []).text([roman(inner.get_about().unwrap().to_string())]);
        let is_own = |argument: &&Arg| !argument.is_global_set() && argument.get_id() != "help";
        for argument in inner.get_arguments().filter(is_own) {
            roff.control("TP", []).text([bold(argument.to_string())]);
            let values = argument.get_possible_values();
            let values: Vec<_> = values.iter().map(|value| value.get_name()).collect();
            let choice = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
            roff.text([roman(format!("{}{choice}", argument.get_help().unwrap()))]);
        }
    }
}

#[test]
fn the_manual_says_what_the_command_line_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/debian/gatehouse.1");
    if std::env::var_os("INSTA_UPDATE").is_some_and(|wanted| wanted == "always") {
        std::fs::write(&path, manual()).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == manual(),
        "write it anew, as the head of this file says"
    );
}

#[test]
fn the_package_s_changelog_is_of_this_version() {
    let changelog = include_str!("../../deploy/debian/changelog");
    let version = format!("gatehouse ({}-1) ", env!("CARGO_PKG_VERSION"));
    assert!(changelog.starts_with(&version), "{version}");
}
