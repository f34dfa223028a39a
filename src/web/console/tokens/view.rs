//! `/admin/tokens`: the API tokens of other programs, and the form that creates one.

use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;

use crate::clock::Micros;
use crate::login::TokenEntry;
use crate::web::console::tokens::TokenMakingForm;
use crate::web::kit::layout::Layout;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

/// The result of the submitted form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenNotice {
    None,
    /// The token, shown only once.
    Made {
        name: String,
        token: String,
    },
    /// The maximum number of tokens exists.
    Full,
    Wrong(FieldErrors),
}

struct TokenRow {
    id: String,
    name: String,
    scopes: String,
    made_by: Option<String>,
    made_at: Moment,
    used_at: Option<Moment>,
    ends_at: Option<Moment>,
    over: bool,
}

#[derive(Template)]
#[template(path = "pages/tokens.html")]
pub struct TokensPage {
    layout: Layout,
    rows: Vec<TokenRow>,
    /// The existing custom limits.
    limits: Vec<String>,
    notice: TokenNotice,
    errors: FieldErrors,
    name: String,
    scopes: String,
    expires_days: String,
}

impl TokensPage {
    pub fn new(visit: &Visit, user: &str, tokens: Vec<TokenEntry>, limits: Vec<String>) -> Self {
        let now = visit.now();
        Self {
            layout: visit.layout("/admin/tokens", Some(user)),
            rows: tokens.into_iter().map(|token| TokenRow::new(token, now)).collect(),
            limits,
            notice: TokenNotice::None,
            errors: FieldErrors::default(),
            name: String::new(),
            scopes: String::new(),
            expires_days: String::new(),
        }
    }

    pub fn notice(mut self, notice: TokenNotice) -> Self {
        if let TokenNotice::Wrong(errors) = &notice {
            self.errors = errors.clone();
            self.layout.mistaken = true;
        }
        self.notice = notice;
        self
    }

    /// The input, unless it has created a token.
    pub fn typed(mut self, form: &TokenMakingForm) -> Self {
        if !matches!(self.notice, TokenNotice::Made { .. }) {
            let cut = |text: &str| text.chars().take(8192).collect();
            self.name = cut(&form.name);
            self.scopes = cut(&form.scopes);
            self.expires_days = cut(&form.expires_days);
        }
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let status = match &self.notice {
            TokenNotice::None => StatusCode::OK,
            TokenNotice::Made { .. } => StatusCode::CREATED,
            TokenNotice::Full => StatusCode::CONFLICT,
            TokenNotice::Wrong(errors) => errors.status(),
        };
        visit.page(status, self)
    }

    fn there(&self) -> Cow<'static, str> {
        self.layout.with("tokens.scopes-there", &self.limits.join(" "))
    }

    fn focus(&self) -> &'static str {
        self.errors.first().map_or("", Field::name)
    }
}

/// Asks before a token is revoked.
#[derive(Template)]
#[template(path = "pages/admin/revoke.html")]
pub struct RevokePage {
    layout: Layout,
    row: TokenRow,
}

impl RevokePage {
    pub fn new(visit: &Visit, user: &str, token: TokenEntry) -> Self {
        let here = format!("/admin/tokens/revoke?id={}", token.id);
        Self { layout: visit.layout(here, Some(user)), row: TokenRow::new(token, visit.now()) }
    }
}

impl TokenRow {
    fn new(token: TokenEntry, now: Micros) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name,
            scopes: token.scopes.to_string(),
            made_by: token.made_by,
            made_at: Moment(token.created_at),
            used_at: token.last_used_at.map(Moment),
            ends_at: token.expires_at.map(Moment),
            over: token.expires_at.is_some_and(|at| at <= now),
        }
    }

    const fn tone(&self) -> &'static str {
        if self.over { "warn" } else { "good" }
    }
}
