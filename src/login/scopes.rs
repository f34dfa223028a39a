//! What a token is valid for: custom limits, the logins of one realm, and parts of the admin API.

use std::collections::BTreeSet;
use std::fmt;

use super::realm::Realm;
use crate::config::{is_custom_name, nearest};

/// Before the name of a realm.
const GUARD: &str = "guard:";
/// Before the name of a program that has codes sent.
const VERIFY: &str = "verify:";
/// Before the name of a relay.
const RELAY: &str = "relay:";

/// The most names in one token; for more limits, use `*`.
pub const MOST_SCOPES: usize = 64;
/// Of what was typed, in characters.
const LONGEST_SHOWN: usize = 80;

/// A part of the admin API that a program may call without anybody's password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminScope {
    /// Limits, their history, what a draft would have done; networks that are refused or exempt; applications.
    LimitsRead,
    LimitsWrite,
    AccessWrite,
    /// Save applications, and see whom a draft lets in and keeps out, by name.
    AppsWrite,
    /// Events, messages, brakes, and what limits count of somebody.
    EventsRead,
    /// Clear what a limit counts of somebody, and lift a brake.
    SubjectsClear,
    AccountsWrite,
}

impl AdminScope {
    pub const ALL: [Self; 7] = [
        Self::LimitsRead,
        Self::LimitsWrite,
        Self::AccessWrite,
        Self::AppsWrite,
        Self::EventsRead,
        Self::SubjectsClear,
        Self::AccountsWrite,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LimitsRead => "limits:read",
            Self::LimitsWrite => "limits:write",
            Self::AccessWrite => "access:write",
            Self::AppsWrite => "apps:write",
            Self::EventsRead => "events:read",
            Self::SubjectsClear => "subjects:clear",
            Self::AccountsWrite => "accounts:write",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// The scopes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenScopes {
    custom: CustomScopes,
    /// At most one: a token that speaks for two logins could be used at either.
    realm: Option<Realm>,
    /// At most one: what a program may check is its own.
    verify: Option<Realm>,
    /// At most one, too.
    relay: Option<Realm>,
    admin: BTreeSet<AdminScope>,
}

/// Names of custom limits as in `[limits.custom]`, or all of them. One may have been removed since.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CustomScopes {
    All,
    Named(BTreeSet<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopesError {
    #[error("names nothing")]
    Empty,
    #[error("names more than {MOST_SCOPES} limits")]
    TooMany,
    #[error(
        "contains something that is no name of a custom limit, no guard:, verify: or relay: with a name, and no part of the admin API"
    )]
    NoName,
    /// As typed, and what was probably meant.
    #[error("contains {typed}, which is no scope")]
    Unknown { typed: String, nearest: Option<String> },
    #[error("names more than one realm")]
    TooManyRealms,
    #[error("names more than one program after verify: or relay:")]
    TooManyPrograms,
}

impl TokenScopes {
    /// For a new token, which opens what there is: each name is a scope that exists, with these custom limits.
    pub fn requested(names: &[&str], limits: &[&str]) -> Result<Self, ScopesError> {
        if names.len() > MOST_SCOPES {
            return Err(ScopesError::TooMany);
        }
        let exists = |name: &&str| limits.contains(name) || is_built_in(name);
        match names.iter().position(|name| !exists(name)) {
            Some(at) => Err(unknown(names, at, limits)),
            None => Self::parse(names.iter().copied()),
        }
    }

    /// `*` means all custom limits, and no part of the admin API.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ScopesError> {
        let (admin, names): (BTreeSet<&str>, BTreeSet<&str>) =
            names.into_iter().partition(|name| AdminScope::parse(name).is_some());
        let (realms, names): (BTreeSet<&str>, BTreeSet<&str>) =
            names.into_iter().partition(|name| name.starts_with(GUARD));
        let (programs, names): (BTreeSet<&str>, BTreeSet<&str>) =
            names.into_iter().partition(|name| name.starts_with(VERIFY));
        let (relays, names): (BTreeSet<&str>, BTreeSet<&str>) =
            names.into_iter().partition(|name| name.starts_with(RELAY));
        if [&realms, &programs, &relays, &names].into_iter().all(BTreeSet::is_empty) && admin.is_empty() {
            return Err(ScopesError::Empty);
        }
        let realm = only(&realms, GUARD, ScopesError::TooManyRealms)?;
        let verify = only(&programs, VERIFY, ScopesError::TooManyPrograms)?;
        let relay = only(&relays, RELAY, ScopesError::TooManyPrograms)?;
        let custom = if names.len() == 1 && names.contains("*") {
            CustomScopes::All
        } else if names.len() > MOST_SCOPES {
            return Err(ScopesError::TooMany);
        } else if !names.iter().all(|name| is_custom_name(name)) {
            return Err(ScopesError::NoName);
        } else {
            CustomScopes::Named(names.into_iter().map(str::to_owned).collect())
        };
        let admin = admin.into_iter().filter_map(AdminScope::parse).collect();
        Ok(Self { custom, realm, verify, relay, admin })
    }

    /// Whether it may take hits on this custom limit.
    pub fn hold(&self, limit: &str) -> bool {
        match &self.custom {
            CustomScopes::All => true,
            CustomScopes::Named(names) => names.contains(limit),
        }
    }

    /// The realm for whose login it may ask.
    pub const fn realm(&self) -> Option<&Realm> {
        self.realm.as_ref()
    }

    /// The program that it may have codes sent for, and check them.
    pub const fn verify(&self) -> Option<&Realm> {
        self.verify.as_ref()
    }

    /// The relay that it may have codes sent by, and tell outcomes of.
    pub const fn relay(&self) -> Option<&Realm> {
        self.relay.as_ref()
    }

    /// Whether it may call this part of the admin API.
    pub fn open(&self, scope: AdminScope) -> bool {
        self.admin.contains(&scope)
    }

    /// Such a token has to expire.
    pub fn open_any(&self) -> bool {
        !self.admin.is_empty()
    }

    pub fn names(&self) -> Vec<String> {
        let mut names = match &self.custom {
            CustomScopes::All => vec!["*".to_owned()],
            CustomScopes::Named(names) => names.iter().cloned().collect(),
        };
        names.extend(self.realm.iter().map(|realm| format!("{GUARD}{}", realm.as_str())));
        names.extend(self.verify.iter().map(|program| format!("{VERIFY}{}", program.as_str())));
        names.extend(self.relay.iter().map(|relay| format!("{RELAY}{}", relay.as_str())));
        names.extend(self.admin.iter().map(|scope| scope.as_str().to_owned()));
        names
    }
}

/// A scope that needs no configuration.
fn is_built_in(name: &str) -> bool {
    let program = |lead: &str| name.strip_prefix(lead).and_then(Realm::parse).is_some();
    name == "*" || AdminScope::parse(name).is_some() || [GUARD, VERIFY, RELAY].into_iter().any(program)
}

/// The scope at this place is none. If it is the first half of one that was torn apart (`guard shop`), both are named.
fn unknown(names: &[&str], at: usize, limits: &[&str]) -> ScopesError {
    let leads = [GUARD, VERIFY, RELAY];
    let next =
        names.get(at + 1).filter(|_| leads.contains(&&*format!("{}:", names[at].trim_end_matches(':'))));
    let typed = next.map_or_else(|| names[at].to_owned(), |next| format!("{} {next}", names[at]));
    let typed: String = typed.chars().take(LONGEST_SHOWN).collect();
    let lower = typed.to_lowercase();
    let after = lower.find(|letter: char| !letter.is_alphanumeric()).map(|at| &lower[at..]);
    let realm = after.map(|rest| rest.trim_matches(|letter: char| !letter.is_alphanumeric()));
    let programs = realm
        .filter(|realm| Realm::parse(realm).is_some())
        .map(|realm| leads.map(|lead| format!("{lead}{realm}")));
    let admin = AdminScope::ALL.map(AdminScope::as_str);
    let all = programs.iter().flatten().map(String::as_str).chain(limits.iter().copied()).chain(admin);
    let nearest = nearest(&lower, all).map(str::to_owned);
    ScopesError::Unknown { typed, nearest }
}

/// The name after `lead`, of which there may be one.
fn only(names: &BTreeSet<&str>, lead: &str, too_many: ScopesError) -> Result<Option<Realm>, ScopesError> {
    if names.len() > 1 {
        return Err(too_many);
    }
    let name = names.first().map(|name| name.strip_prefix(lead).and_then(Realm::parse));
    name.map(|realm| realm.ok_or(ScopesError::NoName)).transpose()
}

/// The stored form: separated by spaces.
impl fmt::Display for TokenScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TokenScopes, ScopesError> {
        TokenScopes::parse(text.split_whitespace())
    }

    #[test]
    fn scopes_are_names_of_custom_limits_or_all_of_them() {
        let two = parse("reply  leave-campus reply").unwrap();
        assert_eq!(two.to_string(), "leave-campus reply");
        assert!(two.hold("reply") && !two.hold("custom.reply") && !two.hold("*"));
        assert!(parse("*").unwrap().hold("reply"));
        assert_eq!(parse(""), Err(ScopesError::Empty));
        for text in
            ["* reply", "Reply", "custom.reply", "a,b", "reply é", "limits:everything", "limits: read"]
        {
            assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
        }
        let many = |count: usize| (0..count).map(|n| format!("l{n}")).collect::<Vec<_>>().join(" ");
        assert!(parse(&many(64)).is_ok());
        assert_eq!(parse(&many(65)), Err(ScopesError::TooMany));
    }

    #[test]
    fn what_is_no_scope_is_named_with_the_nearest_one() {
        let limits = ["reply", "leave-campus"];
        let requested = |text: &str| TokenScopes::requested(&text.split(' ').collect::<Vec<_>>(), &limits);
        for fine in ["reply *", "reply leave-campus", "*", "guard:shop verify:shop limits:read"] {
            assert_eq!(requested(fine).is_ok(), fine != "reply *", "{fine}");
        }
        for (text, typed, near) in [
            ("guard shop", "guard shop", Some("guard:shop")),
            ("guard: shop", "guard: shop", Some("guard:shop")),
            ("reply verify shop", "verify shop", Some("verify:shop")),
            ("gaurd:shop", "gaurd:shop", Some("guard:shop")),
            ("Guard:Shop", "Guard:Shop", Some("guard:shop")),
            ("guard.shop", "guard.shop", Some("guard:shop")),
            ("relay-logto", "relay-logto", Some("relay:logto")),
            ("repyl", "repyl", Some("reply")),
            ("leave_campus", "leave_campus", Some("leave-campus")),
            ("limits:reed", "limits:reed", Some("limits:read")),
            ("zzz", "zzz", None),
            ("guard:", "guard:", None),
            ("", "", None),
        ] {
            let (typed, nearest) = (typed.to_owned(), near.map(str::to_owned));
            assert_eq!(requested(text), Err(ScopesError::Unknown { typed, nearest }), "{text}");
        }
        let as_one = TokenScopes::requested(&["guard shop"], &limits);
        assert!(
            matches!(as_one, Err(ScopesError::Unknown { nearest: Some(near), .. }) if near == "guard:shop")
        );
        let long = "é".repeat(100_000);
        let Err(ScopesError::Unknown { typed, .. }) = TokenScopes::requested(&[&long], &limits) else {
            panic!()
        };
        assert_eq!(typed.chars().count(), 80);
        assert_eq!(TokenScopes::requested(&["reply"; 65], &limits), Err(ScopesError::TooMany));
    }

    #[test]
    fn a_token_asks_for_the_login_of_one_realm() {
        let shop = parse("reply guard:shop").unwrap();
        assert_eq!(shop.realm().map(Realm::as_str), Some("shop"));
        assert!(shop.hold("reply") && !shop.hold("shop") && !shop.hold("guard:shop") && !shop.open_any());
        assert_eq!(parse(&shop.to_string()), Ok(shop));
        let alone = parse("guard:mail-2").unwrap();
        assert!(!alone.hold("mail-2") && alone.to_string() == "guard:mail-2");
        assert_eq!(parse("*").unwrap().realm(), None);
        assert_eq!(parse("guard:shop guard:mail"), Err(ScopesError::TooManyRealms));
        for text in ["guard:", "guard:Shop", "guard:*", "guard:a/b", "guard:a:b"] {
            assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
        }
    }

    #[test]
    fn a_token_has_codes_sent_for_one_program() {
        let shop = parse("verify:shop guard:mail reply").unwrap();
        assert_eq!(shop.verify().map(Realm::as_str), Some("shop"));
        assert_eq!(
            (shop.realm().map(Realm::as_str), shop.to_string()),
            (Some("mail"), "reply guard:mail verify:shop".into())
        );
        assert_eq!(parse(&shop.to_string()), Ok(shop));
        assert_eq!((parse("*").unwrap().verify(), parse("guard:shop").unwrap().verify()), (None, None));
        assert_eq!(parse("verify:shop verify:mail"), Err(ScopesError::TooManyPrograms));
        let relay = parse("relay:logto").unwrap();
        assert_eq!((relay.relay().map(Realm::as_str), relay.verify()), (Some("logto"), None));
        assert_eq!(
            (relay.to_string(), parse("relay:a relay:b")),
            ("relay:logto".into(), Err(ScopesError::TooManyPrograms))
        );
        for text in ["verify:", "verify:Shop", "verify:*", "verify:a:b", "relay:", "relay:*"] {
            assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
        }
    }

    #[test]
    fn a_part_of_the_admin_api_is_named_and_never_included_in_all() {
        let all = parse("*").unwrap();
        assert!(!all.open_any() && AdminScope::ALL.into_iter().all(|scope| !all.open(scope)));
        let both = parse("limits:write * events:read").unwrap();
        assert_eq!(both.to_string(), "* limits:write events:read");
        assert_eq!(parse(&both.to_string()), Ok(both.clone()));
        assert!(
            both.open(AdminScope::LimitsWrite) && !both.open(AdminScope::LimitsRead) && both.hold("reply")
        );
        let one = parse("events:read").unwrap();
        assert!(one.open_any() && !one.hold("events:read") && !one.hold("reply"));
        assert!(AdminScope::ALL.into_iter().all(|scope| AdminScope::parse(scope.as_str()) == Some(scope)));
    }
}
