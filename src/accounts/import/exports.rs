//! Exports of other systems as they write them: each of their accounts as a line of an import, and what of it is lost.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::BASE32_NOPAD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::ImportLine;

/// Whose export it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum ExportSystem {
    Keycloak,
    Auth0,
    Firebase,
    Django,
}

/// An export, and what it is read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportSource {
    Keycloak,
    Auth0,
    Firebase(FirebaseHashConfig),
    Django,
}

/// What all password hashes of a project have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct FirebaseHashConfig {
    signer_key: Vec<u8>,
    salt_separator: Vec<u8>,
    rounds: u32,
    mem_cost: u32,
}

crate::secret::hidden_debug!(FirebaseHashConfig);

/// An entry of an export.
pub(super) enum Exported {
    Account(Box<ExportedAccount>),
    /// An account that nobody signs in to there either.
    LeftOut(&'static str),
    Wrong {
        field: &'static str,
        reason: &'static str,
    },
    /// Something else than an account.
    Other,
}

/// The fields of an account, and what of it cannot be taken along.
#[derive(Default)]
pub(super) struct ExportedAccount {
    pub line: ImportLine,
    pub lost: Vec<&'static str>,
    /// Its name is an e-mail address that nobody verified.
    pub unproven: bool,
    /// It has an e-mail address that nobody verified.
    pub unverified_email: bool,
}

type Fields = Map<String, Value>;

/// The accounts of an export in their order, whatever it wraps them in: a list, an object with `users`, several of these,
/// or one a line.
pub(super) fn entries(source: &ExportSource, bytes: &[u8]) -> Result<Vec<Exported>, serde_json::Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut raw: Vec<&RawValue> = Vec::new();
    for document in serde_json::Deserializer::from_slice(bytes).into_iter::<&RawValue>() {
        let document = document?;
        match document.get().starts_with('[') {
            true => raw.extend(serde_json::from_str::<Vec<&RawValue>>(document.get())?),
            false => raw.push(document),
        }
    }
    let mut entries = Vec::new();
    for entry in raw {
        match serde_json::from_str::<UserList<'_>>(entry.get()) {
            Ok(UserList { users: Some(users), .. }) => entries.extend(users),
            // This is a realm that was exported without its users.
            Ok(UserList { realm: Some(_), .. }) => {}
            _ => entries.push(entry),
        }
    }
    let fields = entries.into_iter().map(|entry| serde_json::from_str::<Fields>(entry.get()).ok());
    Ok(match source {
        ExportSource::Auth0 => merged_by_id(fields).map(|user| of(user, auth0)).collect(),
        ExportSource::Keycloak => fields.map(|user| of(user, keycloak)).collect(),
        ExportSource::Firebase(config) => {
            fields.map(|user| of(user, |user| firebase(config, user))).collect()
        }
        ExportSource::Django => fields.map(|entry| of(entry, django)).collect(),
    })
}

#[derive(Deserialize)]
struct UserList<'a> {
    #[serde(borrow)]
    users: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    realm: Option<&'a RawValue>,
}

fn of(fields: Option<Fields>, read: impl FnOnce(&Fields) -> Result<Exported, Exported>) -> Exported {
    match fields {
        Some(fields) => read(&fields).unwrap_or_else(|refused| refused),
        None => wrong("line", "is not a JSON object"),
    }
}

/// Hashes come in a file of their own, and belong to the account of the same id: what of a field comes first counts.
fn merged_by_id(all: impl Iterator<Item = Option<Fields>>) -> impl Iterator<Item = Option<Fields>> {
    let mut merged: Vec<Option<Fields>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for fields in all {
        let id = fields.as_ref().and_then(|fields| {
            let of_hash = fields.get("_id").and_then(|id| id.get("$oid")).and_then(Value::as_str);
            of_hash.or_else(|| text(fields, "user_id")?.strip_prefix("auth0|")).map(str::to_owned)
        });
        let place = id.map(|id| *places.entry(id).or_insert(merged.len()));
        match (place.and_then(|place| merged.get_mut(place)), fields) {
            (Some(Some(first)), Some(fields)) => {
                for (name, value) in fields {
                    let there = first.entry(name).or_insert(Value::Null);
                    if there.is_null() {
                        *there = value;
                    }
                }
            }
            (_, fields) => merged.push(fields),
        }
    }
    merged.into_iter()
}

/// Reads a user of `kc.sh export`: a realm with its users.
fn keycloak(user: &Fields) -> Result<Exported, Exported> {
    if user.get("serviceAccountClientId").is_some_and(|client| !client.is_null()) {
        return Err(Exported::LeftOut("the account of a client, not of a person"));
    }
    if !flag(user, "enabled") {
        return Err(Exported::LeftOut("the account, which is disabled"));
    }
    let mut account = ExportedAccount::new(text(user, "username").or_else(|| text(user, "email")));
    account.email(text(user, "email"), flag(user, "emailVerified"));
    account.name(&[text(user, "firstName"), text(user, "lastName")]);
    let attribute = |name: &str| {
        let value = user.get("attributes")?.get(name)?;
        value.as_str().or_else(|| value.get(0)?.as_str())
    };
    account.phone(attribute("phoneNumber"), attribute("phoneNumberVerified") == Some("true"));
    for credential in user.get("credentials").and_then(Value::as_array).into_iter().flatten() {
        match credential.get("type").and_then(Value::as_str).unwrap_or_default() {
            "password" => account.line.password_hash = Some(keycloak_password(credential)?.into()),
            "otp" if account.line.totp.is_some() => account.lost.push("a further authenticator app"),
            "otp" => account.line.totp = Some(keycloak_otp(credential)?.into()),
            "password-history" => {}
            "webauthn" | "webauthn-passwordless" => account.lost.push("a passkey"),
            "recovery-authn-codes" => account.lost.push("its recovery codes"),
            _ => account.lost.push("a credential of an unknown type"),
        }
    }
    let actions = user.get("requiredActions").and_then(Value::as_array).into_iter().flatten();
    if actions.into_iter().any(|action| action == "UPDATE_PASSWORD") {
        account.lost.push("that it has to choose a new password; require one in the console");
    }
    Ok(Exported::Account(Box::new(account)))
}

fn keycloak_password(credential: &Value) -> Result<String, Exported> {
    const DAMAGED: Exported =
        wrong("credentials", "has a password whose secretData or credentialData cannot be read");
    if credential.get("value").is_some() {
        return Err(wrong("credentials", "has a password itself, not its hash; take it out"));
    }
    let [secret, data] = embedded(credential).ok_or(DAMAGED)?;
    let member = |object: &Value, name: &str| object.get(name)?.as_str().map(str::to_owned);
    let (salt, hash) = member(&secret, "salt").zip(member(&secret, "value")).ok_or(DAMAGED)?;
    let rounds = data.get("hashIterations").and_then(Value::as_u64).ok_or(DAMAGED)?;
    let parameter = |name: &str| data.get("additionalParameters")?.get(name)?.get(0)?.as_str();
    Ok(match member(&data, "algorithm").as_deref() {
        Some("pbkdf2") => format!("$pbkdf2-sha1$i={rounds}${salt}${hash}"),
        Some("pbkdf2-sha256") => format!("$pbkdf2-sha256$i={rounds}${salt}${hash}"),
        Some("pbkdf2-sha512") => format!("$pbkdf2-sha512$i={rounds}${salt}${hash}"),
        Some("argon2") => {
            let [kind, memory, lanes] = ["type", "memory", "parallelism"].map(&parameter);
            let (kind, memory, lanes) = kind
                .zip(memory)
                .zip(lanes)
                .map(|((kind, memory), lanes)| (kind, memory, lanes))
                .ok_or(DAMAGED)?;
            let version = if parameter("version") == Some("1.0") { 16 } else { 19 };
            let [salt, hash] = [&salt, &hash].map(|bytes| bytes.trim_end_matches('='));
            format!("$argon2{kind}$v={version}$m={memory},t={rounds},p={lanes}${salt}${hash}")
        }
        _ => return Err(wrong("credentials", "has a password of an algorithm that is not Keycloak's own")),
    })
}

/// Its secret is a text whose bytes are the key, or says that it is in base32.
fn keycloak_otp(credential: &Value) -> Result<String, Exported> {
    const DAMAGED: Exported = wrong("totp", "has a secretData or credentialData that cannot be read");
    let [secret, data] = embedded(credential).ok_or(DAMAGED)?;
    let secret = secret.get("value").and_then(Value::as_str).ok_or(DAMAGED)?;
    let word = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or_default();
    let secret = match word("secretEncoding") {
        "BASE32" => secret.to_owned(),
        _ => BASE32_NOPAD.encode(secret.as_bytes()),
    };
    let (kind, algorithm) = (word("subType"), word("algorithm").trim_start_matches("Hmac"));
    let (digits, period) = (number("digits"), number("period"));
    let uri =
        format!("otpauth://{kind}/x?secret={secret}&algorithm={algorithm}&digits={digits}&period={period}");
    Ok(uri)
}

/// Both are JSON in a text.
fn embedded(credential: &Value) -> Option<[Value; 2]> {
    let read = |name: &str| serde_json::from_str(credential.get(name)?.as_str()?).ok();
    Some([read("secretData")?, read("credentialData")?])
}

/// A line of Auth0's export of hashes, of its export of users, or both merged.
fn auth0(user: &Fields) -> Result<Exported, Exported> {
    if flag(user, "blocked") {
        return Err(Exported::LeftOut("the account, which is blocked"));
    }
    let mut account = ExportedAccount::new(text(user, "username").or_else(|| text(user, "email")));
    account.email(text(user, "email"), flag(user, "email_verified"));
    // Auth0 calls people who have told no name by their address.
    account.name(&[text(user, "name").filter(|name| !name.contains('@'))]);
    account.phone(text(user, "phone_number"), flag(user, "phone_verified"));
    account.line.password_hash = text(user, "passwordHash").map(Value::from);
    if user.get("multifactor").and_then(Value::as_array).is_some_and(|all| !all.is_empty()) {
        account.lost.push("its second factor");
    }
    Ok(Exported::Account(Box::new(account)))
}

/// Reads a user of `firebase auth:export --format=json`.
fn firebase(config: &FirebaseHashConfig, user: &Fields) -> Result<Exported, Exported> {
    if flag(user, "disabled") {
        return Err(Exported::LeftOut("the account, which is disabled"));
    }
    let login = text(user, "username").or_else(|| text(user, "email")).or_else(|| text(user, "localId"));
    let mut account = ExportedAccount::new(login);
    account.email(text(user, "email"), flag(user, "emailVerified"));
    account.name(&[text(user, "displayName")]);
    // It signs in with the number there, too.
    account.phone(text(user, "phoneNumber"), text(user, "phoneNumber").is_some());
    if let Some(hash) = text(user, "passwordHash") {
        let hash = config.hash(text(user, "salt").unwrap_or_default(), hash);
        let reason =
            "or its salt is not base64, or is not as long as base64_signer_key of the hash parameters";
        account.line.password_hash = Some(hash.ok_or(wrong("passwordHash", reason))?.into());
    }
    Ok(Exported::Account(Box::new(account)))
}

/// Reads an object of `manage.py dumpdata`: what has a password and a name is an account, of whatever model.
fn django(entry: &Fields) -> Result<Exported, Exported> {
    if matches!(text(entry, "model"), Some("otp_totp.totpdevice" | "mfa.authenticator")) {
        return Err(Exported::LeftOut("a second factor of django-otp or allauth"));
    }
    let user = entry.get("fields").and_then(Value::as_object).ok_or(Exported::Other)?;
    let login = text(user, "username").or_else(|| text(user, "email"));
    let (Some(Value::String(password)), true) = (user.get("password"), login.is_some()) else {
        return Err(Exported::Other);
    };
    if user.get("is_active") == Some(&Value::Bool(false)) {
        return Err(Exported::LeftOut("the account, which is not active"));
    }
    let mut account = ExportedAccount::new(login);
    account.email(text(user, "email"), false);
    account.name(&[text(user, "first_name"), text(user, "last_name")]);
    // An unusable password begins so.
    let usable = Some(password).filter(|password| !password.is_empty() && !password.starts_with('!'));
    account.line.password_hash = usable.map(|password| password.as_str().into());
    if flag(user, "is_superuser") || flag(user, "is_staff") {
        account.lost.push("that it is an administrator; make it one in the console");
    }
    Ok(Exported::Account(Box::new(account)))
}

impl ExportedAccount {
    fn new(login: Option<&str>) -> Self {
        let line = ImportLine { login: login.map(Value::from), ..ImportLine::default() };
        Self { line, unproven: login.is_some_and(|login| login.contains('@')), ..Self::default() }
    }

    /// One that nobody verified could be anybody's.
    fn email(&mut self, email: Option<&str>, verified: bool) {
        self.unverified_email = email.is_some() && !verified;
        if let Some(email) = email.filter(|_| verified) {
            self.unproven &= self.line.login.as_ref().and_then(Value::as_str) != Some(email);
            self.line.email = Some(email.into());
            self.line.email_verified = Some(json!(true));
        }
    }

    fn name(&mut self, parts: &[Option<&str>]) {
        let parts: Vec<_> = parts.iter().flatten().map(|part| part.trim()).collect();
        self.line.name = Some(parts.join(" ")).filter(|name| !name.trim().is_empty()).map(Value::from);
    }

    fn phone(&mut self, phone: Option<&str>, verified: bool) {
        self.line.phone = phone.map(Value::from);
        self.line.phone_verified = Some(json!(phone.is_some() && verified));
    }
}

impl FirebaseHashConfig {
    /// Reads the parameters as the console shows them: a line for each, with or without quotation marks.
    ///
    /// # Errors
    /// Which of them is missing or wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let trimmed = |part: &str| part.trim().trim_end_matches(',').trim_matches('"').to_owned();
        let lines: HashMap<String, String> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (trimmed(name), trimmed(value)))
            .collect();
        let value = |name: &str| lines.get(name).ok_or_else(|| format!("{name} is missing"));
        let letters = |name: &str| bytes_of(value(name)?).ok_or_else(|| format!("{name} is not base64"));
        let number = |name: &str| value(name)?.parse().map_err(|_| format!("{name} is not a number"));
        if lines.get("algorithm").is_some_and(|algorithm| algorithm != "SCRYPT") {
            return Err("algorithm must be SCRYPT".to_owned());
        }
        let signer_key = letters("base64_signer_key")?;
        let salt_separator = letters("base64_salt_separator")?;
        Ok(Self { signer_key, salt_separator, rounds: number("rounds")?, mem_cost: number("mem_cost")? })
    }

    /// Without the key of the project, which the database need not hold.
    fn hash(&self, salt: &str, hash: &str) -> Option<String> {
        let (salt, hash) = (bytes_of(salt)?, bytes_of(hash)?);
        let stream: Vec<u8> = hash.iter().zip(&self.signer_key).map(|(one, other)| one ^ other).collect();
        let salt = BASE64_STANDARD.encode([&salt[..], &self.salt_separator].concat());
        let (n, r, stream) = (self.mem_cost, self.rounds, BASE64_STANDARD.encode(stream));
        let same = hash.len() == self.signer_key.len();
        same.then(|| format!("$fbscrypt$v=1,n={n},r={r},p=1,ss=,sk=${salt}${stream}"))
    }
}

/// Decodes base64 of the usual alphabet or that of addresses.
fn bytes_of(base64: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(base64.replace('-', "+").replace('_', "/")).ok()
}

/// Returns a text; None if it is empty, too.
fn text<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn flag(fields: &Fields, name: &str) -> bool {
    fields.get(name) == Some(&Value::Bool(true))
}

const fn wrong(field: &'static str, reason: &'static str) -> Exported {
    Exported::Wrong { field, reason }
}

#[cfg(test)]
mod tests;
