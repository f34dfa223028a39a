//! Configuration: one TOML file, environment variables over it, read strictly and whole or not at all.
//!
//! [`Source::load`] gives the [`Settings`], which stay until a restart, and a [`LiveHandle`] to what
//! may change; a [`Watcher`] keeps the latter in step with the file. `gatehouse.example.toml` lists
//! every key with its default.

mod audit;
mod captcha;
mod control;
mod database;
mod document;
mod draft;
mod environment;
mod error;
pub mod home;
mod limits;
mod live;
mod live_home;
mod living;
mod loaded;
mod login;
mod nacos;
mod password;
mod reader;
mod rules;
mod secrets;
mod section;
mod server;
mod session;
mod settings;
mod sms;
mod sms_gateways;
mod source;
mod store;
mod template;
mod values;
mod watch;

#[cfg(test)]
mod tests;

pub use audit::AuditSettings;
pub use captcha::{CaptchaProvider, CaptchaSettings, CaptchaTunables, Difficulty};
pub use control::Control;
pub use database::{Database, DatabaseUrl, SqliteFile};
pub use draft::{
    Draft, DraftError, Edit, SaveError, Saved, limits_toml, named, rule_json, span_text, with_limit,
};
pub use environment::{Environment, of_process as environment_of_process};
pub use error::{ConfigError, Place, Problem};
pub use limits::{LimitName, LimitSubject, LimitUnit, Limits, SMS_BRAKE, is_custom_name};
pub use live::{InForce, LiveHandle, Refused};
pub use live_home::{HomeKind, HomeSettings};
pub use loaded::{Loaded, Look, check};
pub use login::LoginTunables;
pub use nacos::{NacosAccount, NacosSettings};
pub use password::PasswordSettings;
pub use secrets::Secrets;
pub use server::Server;
pub use session::SessionSettings;
pub use settings::{Config, Live, Settings};
pub use sms::{Brake, SmsSettings, SmsTunables};
pub use sms_gateways::{Aliyun, Gateway, HttpGateway, HttpMethod, Twilio};
pub use source::{DEFAULT_FILE, Fingerprint, Source, parse};
pub use store::{StoreSettings, StoreUrl};
pub use template::Template;
pub(crate) use template::{BodyKind, Piece, Placeholder};
pub use values::{SecretError, SecretRef};
pub use watch::{ReloadOutcome, Watcher};
