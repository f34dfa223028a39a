//! `gatehouse serve | check-config | admin create | admin enable | admin unfreeze | admin clear-factors | admin end-sessions
//! | accounts import | accounts imported | accounts create | accounts invite | apps check | gate print | key | limits show |
//! passwords build | sms check | mail check`

mod accounts;
mod apps;
mod invitations;
mod key;
mod log;
mod mail;
#[cfg(test)]
mod package;
mod passwords;
mod serve;
mod sms;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use gatehouse::accounts::ExportSystem;
use gatehouse::app::{self, StartError, TimeAndEntropy};
use gatehouse::config::{self, BackendKind, ConfigSource, LoadedConfig, ReloadResult};
use gatehouse::db::ConnectError;
use gatehouse::foundation::Foundation;
use gatehouse::gate::ProxyFile;
use gatehouse::login::BreachedList;
use gatehouse::origins;
use gatehouse::secret::KeyStep;
use gatehouse_limiter::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use strum::VariantArray as _;

use log::tell;

/// Login throttling and SMS anti-abuse on an exact sliding-window limiter.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Configuration file [default: gatehouse.toml, if it exists]
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server (the default command).
    Serve,
    /// Check a configuration file and report its mistakes; exit status 0 or 2.
    CheckConfig {
        /// Configuration file, as after --config
        #[arg(conflicts_with = "config")]
        file: Option<PathBuf>,
    },
    /// Manage administrators.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Bring accounts from another system, create them, and invite people.
    #[command(subcommand)]
    Accounts(AccountsCommand),
    /// Check the clients of OpenID Connect.
    #[command(subcommand)]
    Apps(AppsCommand),
    /// Set up the reverse proxy in front of applications.
    #[command(subcommand)]
    Gate(GateCommand),
    /// Replace the key that signs cookies, forms, challenges and codes.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show the limits in force.
    #[command(subcommand)]
    Limits(LimitsCommand),
    /// Make the list of lost passwords, which none may be.
    #[command(subcommand)]
    Passwords(PasswordsCommand),
    /// Check the gateways that send codes.
    #[command(subcommand)]
    Sms(SmsCommand),
    /// What sends mail.
    #[command(subcommand)]
    Mail(MailCommand),
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Create an administrator; asks for the password.
    Create {
        /// Username of the new administrator.
        name: String,
        /// Read the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Re-enable a password that was disabled after too many wrong ones in a row.
    Enable {
        /// Username of the account.
        name: String,
    },
    /// Lift the freeze of an account, and take away what it got after its address was changed.
    Unfreeze {
        /// Username of the account.
        name: String,
    },
    /// Remove the second factors of an account whose owner has lost them; ends its sessions.
    ClearFactors {
        /// Username of the account.
        name: String,
    },
    /// End all sessions of all accounts, before the server starts on a restored database.
    EndSessions,
}

#[derive(Subcommand)]
enum AccountsCommand {
    /// Create the accounts of a file, all of them or none.
    Import {
        /// JSON lines with login, password_hash, phone, phone_verified, totp, email, email_verified and name, or an export; - reads standard input.
        file: PathBuf,
        /// Whose export the file is, as that system writes it.
        #[arg(long, value_name = "SYSTEM", value_parser = PossibleValuesParser::new(ExportSystem::VARIANTS.iter().map(|system| system.into_str())))]
        from: Option<String>,
        /// The password hash parameters of the Firebase project, as its console shows them.
        #[arg(long, value_name = "FILE", required_if_eq("from", "firebase"))]
        hash_config: Option<PathBuf>,
        /// Only check the file and the database.
        #[arg(long)]
        dry_run: bool,
    },
    /// Count the imported password hashes that no sign-in has replaced yet.
    Imported,
    /// Create accounts without a password, all of them or none, and print the link of each, with which its owner sets one within 72 hours.
    Create(CreateArguments),
    /// Print another link for an account that has no password yet, or a link with which people create accounts.
    Invite(InviteArguments),
}

#[derive(Args)]
struct CreateArguments {
    /// Usernames; - reads them from lines of standard input.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// A group that they are in; may be repeated.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// The mobile number of one account: a code sent to it signs in.
    #[arg(long)]
    phone: Option<String>,
    /// The name of its owner, as applications show it.
    #[arg(long)]
    name: Option<String>,
    /// The e-mail address of its owner.
    #[arg(long)]
    email: Option<String>,
}

#[derive(Args)]
struct InviteArguments {
    /// Username of an account without a password.
    #[arg(value_name = "NAME", required_unless_present = "count")]
    name: Option<String>,
    /// How many accounts the link creates, with names of the holders' choice.
    #[arg(long, conflicts_with = "name")]
    count: Option<u32>,
    /// How long that link is valid.
    #[arg(long, value_name = "SPAN", default_value = "72h", conflicts_with = "name")]
    expires_in: String,
    /// A group of the accounts that it creates; may be repeated.
    #[arg(long = "group", value_name = "GROUP", conflicts_with = "name")]
    groups: Vec<String>,
}

#[derive(Subcommand)]
enum AppsCommand {
    /// Go a client's whole way at the running server, and name what does not match; exit status 0 or 1.
    Check {
        /// Name of the application.
        name: String,
        /// Also sign in as this account, which may use the application; asks for its password.
        #[arg(long = "as", value_name = "LOGIN")]
        login: Option<String>,
        /// Read the password, and the code of an app, from lines of standard input.
        #[arg(long)]
        password_stdin: bool,
        /// Certificates of your own authority, in PEM.
        #[arg(long, value_name = "FILE")]
        ca_file: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum GateCommand {
    /// Print the file with which a proxy asks who may use the applications of this configuration.
    Print {
        /// The proxy.
        #[arg(value_parser = PossibleValuesParser::new(ProxyFile::ALL.map(|file| file.into_str())))]
        proxy: String,
        /// Name of an application [default: all of [[apps]]]
        #[arg(long)]
        app: Option<String>,
    },
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Say which step is next.
    Show,
    /// Make a new key, which is accepted and does not sign yet.
    Add,
    /// Sign with the new key; the old one is accepted.
    Use,
    /// Remove the old key.
    Drop,
    /// Give up what was hashed under a key file that is lost or stolen, for another one.
    Replace {
        /// Do it. Without this it only says what is lost.
        #[arg(long)]
        accept_loss: bool,
    },
    /// Seal secrets of authenticator apps and of clients anew, after the whole key file was replaced.
    Reseal {
        /// The key file under which they were sealed before.
        old: PathBuf,
    },
}

#[derive(Subcommand)]
enum LimitsCommand {
    /// List every limit with its rules.
    Show,
}

#[derive(Subcommand)]
enum PasswordsCommand {
    /// Build the file that login.breached names, of lists of any size.
    Build {
        /// Lines of SHA-1 hashes, with or without a count as in SHA1:COUNT, or of passwords; - reads standard input.
        #[arg(value_name = "IN", required = true)]
        inputs: Vec<PathBuf>,
        /// The file to make. A server that uses it takes the new one by itself.
        #[arg(value_name = "OUT")]
        out: PathBuf,
        /// Leave out hashes with a lower count.
        #[arg(long, value_name = "COUNT", default_value_t = 1)]
        at_least: u64,
    },
}

#[derive(Subcommand)]
enum MailCommand {
    /// Ask the mail server step by step (its name, TLS, sign-in), and DNS for the records that mail needs; exit status 0 or 1. Nothing is sent unless an address is given.
    Check {
        /// Send a test mail to this address, and ask DNS for the mail servers of its domain.
        address: Option<String>,
        /// Ask this name server [default: those of /etc/resolv.conf]
        #[arg(long, value_name = "IP[:PORT]")]
        dns: Option<String>,
    },
}

#[derive(Subcommand)]
enum SmsCommand {
    /// Ask each gateway about credentials, signature, template and balance, as far as it can be asked; exit status 0 or 1. Nothing is sent unless a number is given.
    Check {
        /// Send a test message to this number, through each gateway that serves its country.
        number: Option<String>,
    },
}

/// Bad input: the command line, the configuration, a name or a password.
const UNUSABLE: u8 = 2;

pub fn run() -> ExitCode {
    let Arguments { config, command } = Arguments::parse();
    match carry_out(config.as_deref(), command.unwrap_or(Command::Serve)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliFailure { message, code }) => {
            // If this cannot be printed, the exit status still says that it failed.
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::from(code)
        }
    }
}

fn carry_out(config: Option<&Path>, command: Command) -> Result<(), CliFailure> {
    let file = match &command {
        Command::CheckConfig { file: Some(file) } => Some(file.as_path()),
        _ => config,
    };
    let (source, loaded) = load(file)?;
    match command {
        Command::Serve => serve::run(source, loaded),
        Command::CheckConfig { .. } => check_config(&loaded, source.path()),
        Command::Admin(AdminCommand::Create { name, password_stdin }) => {
            block_on(accounts::create(&loaded, &name, password_stdin))?
        }
        Command::Admin(AdminCommand::Enable { name }) => block_on(accounts::enable(&loaded, &name))?,
        Command::Admin(AdminCommand::Unfreeze { name }) => block_on(accounts::unfreeze(&loaded, &name))?,
        Command::Admin(AdminCommand::ClearFactors { name }) => {
            block_on(accounts::clear_factors(&loaded, &name))?
        }
        Command::Admin(AdminCommand::EndSessions) => block_on(accounts::end_sessions(&loaded))?,
        Command::Accounts(AccountsCommand::Import { file, from, hash_config, dry_run }) => {
            let source = accounts::export_source(from.as_deref(), hash_config.as_deref())?;
            block_on(accounts::import(&loaded, &file, source.as_ref(), dry_run))?
        }
        Command::Accounts(AccountsCommand::Imported) => block_on(accounts::imported(&loaded))?,
        Command::Accounts(AccountsCommand::Create(arguments)) => {
            read_live(&loaded)?;
            block_on(invitations::create(&loaded, arguments))?
        }
        Command::Accounts(AccountsCommand::Invite(arguments)) => {
            read_live(&loaded)?;
            block_on(invitations::invite(&loaded, arguments))?
        }
        Command::Apps(AppsCommand::Check { name, login, password_stdin, ca_file }) => {
            read_live(&loaded)?;
            let how = (password_stdin, ca_file.as_deref());
            block_on(apps::check(&loaded, &name, login.as_deref(), how))?
        }
        Command::Gate(GateCommand::Print { proxy, app }) => print_gate(&loaded, &proxy, app.as_deref()),
        Command::Key(KeyCommand::Show) => key::show(&loaded),
        Command::Key(KeyCommand::Add) => key::take_step(&loaded, KeyStep::Add),
        Command::Key(KeyCommand::Use) => key::take_step(&loaded, KeyStep::Use),
        Command::Key(KeyCommand::Drop) => key::take_step(&loaded, KeyStep::Drop),
        Command::Key(KeyCommand::Replace { accept_loss }) => block_on(key::replace(&loaded, accept_loss))?,
        Command::Key(KeyCommand::Reseal { old }) => block_on(key::reseal(&loaded, &old))?,
        Command::Limits(LimitsCommand::Show) => {
            show_limits(&loaded, source.path());
            Ok(())
        }
        Command::Passwords(PasswordsCommand::Build { inputs, out, at_least }) => {
            passwords::build(&inputs, &out, at_least)
        }
        Command::Mail(MailCommand::Check { address, dns }) => {
            block_on(mail::check(&loaded, address.as_deref(), dns.as_deref()))?
        }
        Command::Sms(SmsCommand::Check { number }) => block_on(sms::check(&loaded, number.as_deref()))?,
    }
}

struct CliFailure {
    message: String,
    code: u8,
}

impl CliFailure {
    fn unusable(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: UNUSABLE }
    }

    fn broken(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 1 }
    }
}

/// A database of a newer version is unusable input; one that cannot be reached may come back.
/// What commands work on that run no server.
async fn open_foundation(loaded: &LoadedConfig) -> Result<Foundation, CliFailure> {
    let opened = app::open_foundation_for_command(&loaded.settings, &TimeAndEntropy::default()).await;
    opened.map_err(CliFailure::broken)
}

fn database_failure(error: ConnectError) -> CliFailure {
    match error {
        ConnectError::Newer { .. } => CliFailure::unusable(error),
        other => CliFailure::broken(other),
    }
}

/// For a command that has said of each check how it ended.
fn none_failed(failed: usize) -> Result<(), CliFailure> {
    match failed {
        0 => Ok(()),
        1 => Err(CliFailure::broken("One check failed.")),
        failed => Err(CliFailure::broken(format!("{failed} checks failed."))),
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn load(file: Option<&Path>) -> Result<(ConfigSource, LoadedConfig), CliFailure> {
    let source = ConfigSource::new(file, config::environment_of_process());
    let loaded = source.load().map_err(CliFailure::unusable)?;
    Ok((source, loaded))
}

/// Redis is looked at if it answers now; a start may come before its own.
fn check_config(loaded: &LoadedConfig, file: &Path) -> Result<(), CliFailure> {
    for warning in &loaded.warnings {
        tell!("warning: {warning}");
    }
    if let Some(mismatch) = loaded.settings.server.url_mismatch() {
        tell!("warning: {mismatch}");
    }
    let store = &loaded.settings.store;
    if let Some(eviction) = block_on(app::eviction(store))?.map_err(CliFailure::unusable)? {
        if !store.allow_eviction {
            return Err(CliFailure::unusable(StartError::StoreEvicts(eviction)));
        }
        tell!("warning: store.url: redis forgets what is counted when its memory is full ({eviction})");
    }
    let list = BreachedList::read(&loaded.live.snapshot().login);
    list.map_err(|reason| CliFailure::unusable(format!("login.breached: {reason}")))?;
    for (source, path) in loaded.live.snapshot().origins.files() {
        origins::read(&source, &path)
            .map_err(|reason| CliFailure::unusable(format!("{source}: {reason}")))?;
    }
    let missing =
        if file.exists() { "" } else { "there is no such file; the defaults and variables are in force: " };
    tell!("{}: {missing}ok", file.display());
    if let Some(place) = service(loaded) {
        let fills = if file.exists() { "; this file fills it if it is empty" } else { "" };
        tell!("[limits] and the other live sections are read from {place}{fills}");
    }
    Ok(())
}

/// The service that keeps the limits; `None` if the file does.
fn service(loaded: &LoadedConfig) -> Option<String> {
    let backend = &loaded.settings.backend;
    match loaded.live.backend() {
        BackendKind::File => None,
        BackendKind::Redis => Some(format!("redis, key {}", backend.key)),
        BackendKind::Nacos => Some(backend.place().display().to_string()),
    }
}

/// How long threads that block may take once the work is done. A look-up of a name can take minutes, and the runtime
/// would wait for it.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// Runs a future to its end on the server's runtime.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, CliFailure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliFailure::broken)?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(LAST_THREADS);
    Ok(result)
}

/// Reads the applications in force, or those that would be if a server started now.
fn read_live(loaded: &LoadedConfig) -> Result<(), CliFailure> {
    match loaded.read_once() {
        ReloadResult::Followed | ReloadResult::Empty => Ok(()),
        ReloadResult::Refused(error) => Err(CliFailure::unusable(error)),
        ReloadResult::Down(reason) => {
            Err(CliFailure::broken(format!("the live settings in force cannot be read: {reason}")))
        }
    }
}

fn print_gate(loaded: &LoadedConfig, proxy: &str, app: Option<&str>) -> Result<(), CliFailure> {
    read_live(loaded)?;
    let file: ProxyFile = proxy.parse().map_err(|_| CliFailure::unusable("PROXY: is none of those"))?;
    let (server, live) = (&loaded.settings.server, loaded.live.snapshot());
    let text = file.print(server, &live.apps, app).map_err(CliFailure::unusable)?;
    tell!("{}", text.trim_end());
    Ok(())
}

/// Shows the limits in force, or those that would be if a server started now, after the place where they are
/// kept.
fn show_limits(loaded: &LoadedConfig, file: &Path) {
    tell!("backend: {}", service(loaded).unwrap_or_else(|| file.display().to_string()));
    match (loaded.read_once(), loaded.live.in_force().fingerprint) {
        (ReloadResult::Followed, Some(version)) => {
            tell!("version: {version}\n");
        }
        (ReloadResult::Followed, None) | (ReloadResult::Empty, _) => {
            tell!(
                "version: none yet; the first server to start stores these limits of {}:\n",
                file.display()
            );
        }
        (ReloadResult::Refused(error), _) => {
            tell!("version: refused; these are the limits of {}:\n{error}\n", file.display());
        }
        (ReloadResult::Down(reason), _) => {
            tell!("version: unknown ({reason}); these are the limits of {}:\n", file.display());
        }
    }
    for limit in loaded.live.snapshot().limits.iter() {
        tell!("{}{}", limit.name(), mode_note(limit));
        for rule in limit.rules() {
            tell!("  {}", rule_in_words(rule));
        }
    }
}

fn mode_note(limit: &Limit) -> &'static str {
    match (limit.rules().is_empty(), limit.mode()) {
        (true, _) => "  (off)",
        (false, LimitMode::Monitor) => "  (counted, not enforced)",
        (false, LimitMode::Enforce) => "",
    }
}

fn rule_in_words(rule: &Rule) -> String {
    let span = match &rule.span {
        RuleSpan::Sliding(window) => format!("in any {}", humantime::format_duration(*window)),
        RuleSpan::Calendar { unit, zone } => {
            format!("a {} in {}", unit.as_str(), zone.iana_name().unwrap_or("UTC"))
        }
    };
    let then = match rule.then {
        RuleAction::Captcha => "then a CAPTCHA",
        RuleAction::Block => "then refused",
    };
    format!("at most {} {span}, {then}", rule.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn undescribed(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        if command.get_about().is_none() {
            found.push(path.clone());
        }
        let arguments = command.get_arguments().filter(|argument| argument.get_help().is_none());
        found.extend(arguments.map(|argument| format!("{path} {}", argument.get_id())));
        command.get_subcommands().for_each(|inner| undescribed(inner, &path, found));
    }

    /// As a look-up of a name does that no server answers.
    #[test]
    fn a_thread_that_blocks_for_ever_does_not_keep_the_end_waiting() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let done = block_on(async {
            let (began, begun) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                began.send(()).unwrap();
                released.recv()
            });
            begun.await.unwrap();
            "done"
        });
        assert!(matches!(done, Ok("done")));
        drop(release);
    }

    #[test]
    fn help_describes_every_command_and_argument() {
        let mut command = Arguments::command();
        command.build();
        let mut found = Vec::new();
        undescribed(&command, "", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
