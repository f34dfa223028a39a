//! `/admin/confirm` and `/admin/tokens` in every state.

use std::time::Duration;

use super::{NOW, challenge, throttled};
use crate::accounts::{TokenEntry, TokenId, TokenScopes};
use crate::entropy::Entropy;
use crate::web::captcha::CaptchaBlock;
use crate::web::console::confirm::{CarriedForm, ConfirmPage};
use crate::web::console::tokens::{RevokePage, TokenMakingForm, TokenNotice, TokensPage};
use crate::web::form::Notice;
use crate::web::http::{Layout, PageRequest};
use crate::web::{Field, FieldErrors, Message, Next};

pub fn confirms(visit: &PageRequest) -> Vec<(&'static str, ConfirmPage)> {
    let page = || ConfirmPage::new(visit, "ada", Next::parse("/admin/messages?state=refused&prefix=1"));
    let carried = [("toml".to_owned(), "x = \"<1>\"\r\n".to_owned()), ("do".to_owned(), "save".to_owned())];
    let wrong = || Notice::Invalid(FieldErrors::one(Field::Password, Message::CurrentPasswordWrong));
    vec![
        ("confirm", page()),
        ("confirm-wrong", page().again(wrong(), CaptchaBlock::Absent)),
        ("confirm-captcha", page().again(wrong(), challenge())),
        (
            "confirm-carrying",
            ConfirmPage { carried: Some(CarriedForm::new("/admin/limits/toml", &carried)), ..page() },
        ),
        ("confirm-throttled", page().again(throttled(252), CaptchaBlock::Absent)),
    ]
}

fn entry(id: u64, name: &str, scopes: &str, ends: Option<u64>) -> TokenEntry {
    TokenEntry {
        id: TokenId::random(&Entropy::seeded(id)),
        name: name.to_owned(),
        scopes: TokenScopes::parse(scopes.split(' ')).unwrap(),
        made_by: (id > 0).then(|| "ada".to_owned()),
        created_at: NOW.minus(Duration::from_secs(86_400)),
        last_used_at: (id > 1).then_some(NOW),
        last_used_for: (id > 1).then(|| "POST /api/v1/limits/{name}/hits".to_owned()),
        last_used_from: (id > 1).then(|| "203.0.113.0/24".to_owned()),
        expires_at: ends
            .map(|seconds| NOW.minus(Duration::from_secs(86_400)).plus(Duration::from_secs(seconds))),
    }
}

pub fn revocations(visit: &PageRequest) -> Vec<(&'static str, RevokePage)> {
    let page = |id, name, scopes| {
        let entry: TokenEntry = entry(id, name, scopes, None);
        let layout = visit.layout(format!("/admin/tokens/revoke?id={}", entry.id), Some("ada"));
        RevokePage { layout, entry }
    };
    vec![("revoke", page(2, "forum", "reply guard:shop")), ("revoke-unused", page(0, "<b>", "*"))]
}

pub fn pages(visit: &PageRequest) -> Vec<(&'static str, TokensPage)> {
    let entries = || {
        vec![
            entry(2, "forum", "reply leave-campus", Some(90 * 86_400)),
            entry(1, "<old> & gone", "*", Some(60)),
            entry(0, "till", "raffle", None),
        ]
    };
    let scopes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let groups = || {
        vec![
            ("tokens.group-admin", scopes(&["limits:read", "accounts:write"])),
            ("tokens.group-limits", scopes(&["*", "leave-campus", "reply"])),
            ("tokens.group-guard", scopes(&["guard:shop"])),
        ]
    };
    let layout = || visit.layout("/admin/tokens", Some("ada"));
    let page = |notice, form| TokensPage {
        layout: layout(),
        now: NOW,
        tokens: entries(),
        groups: groups(),
        notice,
        errors: FieldErrors::default(),
        form,
    };
    let none = || page(TokenNotice::None, TokenMakingForm::default());
    let typed =
        || TokenMakingForm { name: "<b>".into(), scopes: "reply <b>".into(), expires_days: "4.5".into() };
    let unknown = Message::ScopeNear { it: "<b>".into(), near: "reply".into() };
    let mut errors = FieldErrors::one(Field::Scopes, unknown);
    errors.add(Field::ExpiresDays, Message::ExpiryUnfit { max: 3660 });
    let mistaken = Layout { mistaken: true, ..layout() };
    let made = TokenNotice::Made { name: "forum".into(), token: format!("ght_{}", "A".repeat(43)) };
    vec![
        ("tokens", none()),
        ("tokens-none", TokensPage { tokens: Vec::new(), groups: Vec::new(), ..none() }),
        ("tokens-made", page(made, TokenMakingForm::default())),
        ("tokens-full", page(TokenNotice::Full, typed())),
        ("tokens-wrong", TokensPage { errors, layout: mistaken, ..page(TokenNotice::None, typed()) }),
    ]
}
