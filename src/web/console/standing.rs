//! What keeps somebody out now, in words: on the page of an account, in the list, in the look-up and in the API.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

use super::limit_text::{sentence, title};
use crate::accounts::Account;
use crate::config::LiveSettings;
use crate::lookup::{Hindrance, Lookup, LookupError};
use crate::web::http::{Locale, Moment};

/// One sentence, and from when or until when it is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingRow {
    pub kind: &'static str,
    pub limit: Option<String>,
    pub text: String,
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    pub can_be_unlocked: bool,
}

/// In a list, as keys.
const WORDS: [(&str, &str); 8] = [
    ("disabled", "accounts.disabled"),
    ("password-disabled", "standing.in-list-password"),
    ("frozen", "standing.in-list-frozen"),
    ("never-entered", "standing.in-list-never"),
    ("refused", "standing.in-list-refused"),
    ("captcha", "standing.in-list-captcha"),
    ("factor", "standing.in-list-factor"),
    ("codes", "standing.in-list-codes"),
];

impl StandingRow {
    /// A word or two for a list.
    pub fn in_list(&self, locale: Locale) -> Cow<'static, str> {
        let word = WORDS.iter().find(|(kind, _)| *kind == self.kind);
        word.map_or_else(|| Cow::Owned(self.text.clone()), |(_, key)| locale.t(key))
    }

    pub fn new(hindrance: &Hindrance, locale: Locale) -> Self {
        let (kind, can_be_unlocked) = (hindrance.kind(), hindrance.can_be_unlocked());
        let row = |text: String| Self { kind, limit: None, text, since: None, until: None, can_be_unlocked };
        match hindrance {
            Hindrance::Disabled { since } => {
                Self { since: Some(Moment(*since)), ..row(locale.t("standing.disabled").into_owned()) }
            }
            Hindrance::PasswordDisabled { since } => Self {
                since: Some(Moment(*since)),
                ..row(locale.t("standing.password-disabled").into_owned())
            },
            Hindrance::Frozen { since } => {
                Self { since: Some(Moment(*since)), ..row(locale.t("standing.frozen").into_owned()) }
            }
            Hindrance::NeverEntered => row(locale.t("standing.never-entered").into_owned()),
            Hindrance::Full { limit, rule, until, .. } => {
                let name = limit.name();
                let text =
                    format!("{}: {}", title(name, locale), sentence(name, &limit.rules()[*rule], locale));
                Self { limit: Some(name.to_owned()), until: Some(Moment(*until)), ..row(text) }
            }
        }
    }
}

/// What keeps the owner of an account out; None while the counts cannot be read.
pub async fn of_account(
    lookup: &Lookup,
    live: &LiveSettings,
    account: &Account,
    locale: Locale,
) -> Result<Option<Vec<StandingRow>>, crate::db::DbError> {
    match lookup.hindrances(live, account).await {
        Ok(found) => Ok(Some(found.iter().map(|it| StandingRow::new(it, locale)).collect())),
        Err(LookupError::Db(error)) => Err(error),
        Err(LookupError::Store(_)) => Ok(None),
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Standing)]
pub struct StandingBody {
    /// `disabled`, `password-disabled`, `frozen`, `never-entered`, `refused`, `captcha`, `factor` (the second step) or
    /// `codes` (to its number or its e-mail address).
    kind: &'static str,
    /// The limit that is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    until: Option<String>,
    /// A sentence in English.
    text: String,
}

impl From<StandingRow> for StandingBody {
    fn from(row: StandingRow) -> Self {
        let StandingRow { kind, limit, text, since, until, .. } = row;
        let iso = |at: Moment| at.iso();
        Self { kind, limit, since: since.map(iso), until: until.map(iso), text }
    }
}
