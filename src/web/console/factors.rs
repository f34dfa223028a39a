//! `/admin/factors`: `[factors]` as a form, and whom a draft would ask for what, before it is saved.

use std::sync::Arc;

use actix_web::http::StatusCode;
use askama::Template;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::FormProblem;
use super::apps::form::{NameBox, boxes, chosen, known_groups};
use super::document::{Act, Controls, FACTORS, Trial, submitted};
use super::guard::{Admin, AdminForm, AdminRequest};
use super::limit_text::grouped;
use crate::accounts::{EntryCount, FactorsTrial};
use crate::config::{FactorSettings, RequiredOf, span_text};
use crate::tuning::{CheckedEdit, Draft, Edit, LiveSection};
use crate::web::form::value;
use crate::web::http::{Layout, Problem, WebResult};
use crate::web::second_step::refuse_while_upgrading;

/// Compares what would be in force with the draft with what is, and changes nothing.
async fn tried(admin: &Admin, checked: CheckedEdit) -> Result<Trial<FactorsTrial>, Problem> {
    let after = Arc::clone(&checked.live().factors);
    let (live, accounts) = (admin.services.live.clone(), admin.services.accounts.clone());
    let counts = async move { accounts.try_factors(&live.snapshot().factors, &after).await.map(Trial::Done) };
    let tried = admin.services.gate.try_in_turn(counts).await;
    Ok(tried.unwrap_or(Ok(Trial::BUSY))?)
}

/// `GET /admin/factors`
pub async fn show(request: AdminRequest) -> WebResult {
    let current = request.services.tuning.current();
    let form = FactorRulesForm::of(&current.live.factors);
    let page = FactorRulesPage::new(&request, form, Controls::at(&current.version)).await?;
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/factors`
pub async fn submit(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let before = FactorRulesForm::of(&request.services.live.snapshot().factors);
    let (form, controls) = (FactorRulesForm::read(pairs, &before), Controls::read(pairs));
    if controls.act == Act::Save && !form.require.is_empty() {
        refuse_while_upgrading(&request.services).await?;
    }
    let edit = Edit::Section(LiveSection::Factors, Draft::Json(json!(form)));
    let fresh = FactorRulesPage::new(request, form, controls.clone()).await?;
    let page = |controls: Controls, trial| {
        let layout = Layout { mistaken: controls.is_mistaken(), ..fresh.layout.clone() };
        let page = FactorRulesPage { layout, controls, trial, ..fresh.clone() };
        request.visit.page(page.controls.status(), &page)
    };
    let attempt = async |checked| tried(&request.admin, checked).await;
    submitted(&posted, (&FACTORS, FACTORS.page), controls, edit, page, attempt).await
}

/// The form as it is typed: with the keys of the document, and no value is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct FactorRulesForm {
    require: Vec<String>,
    grace: String,
    trust_device: String,
}

/// For keys that a document leaves out.
impl Default for FactorRulesForm {
    fn default() -> Self {
        Self::of(&FactorSettings::default())
    }
}

impl FactorRulesForm {
    fn of(settings: &FactorSettings) -> Self {
        Self {
            require: settings.require.iter().map(RequiredOf::to_string).collect(),
            grace: span_text(settings.grace),
            trust_device: span_text(settings.trust_device),
        }
    }

    fn read(pairs: &[(String, String)], before: &Self) -> Self {
        #[derive(Deserialize)]
        struct CarriedSection {
            factors: FactorRulesForm,
        }
        // The page of an overtaken draft sends the section.
        if let Ok(CarriedSection { factors }) = toml::from_str(value(pairs, "toml")) {
            return factors;
        }
        let text = |name: &str| value(pairs, name).trim().to_owned();
        Self {
            require: chosen(pairs, "require", &before.require),
            grace: text("grace"),
            trust_device: text("trust_device"),
        }
    }
}

#[derive(Template, Clone)]
#[template(path = "pages/admin/factors.html")]
struct FactorRulesPage {
    layout: Layout,
    form: FactorRulesForm,
    /// To choose from, besides those in the form.
    groups: Vec<String>,
    controls: Controls,
    trial: Trial<FactorsTrial>,
    /// Keys that environment variables set.
    overridden: Vec<&'static str>,
}

impl FactorRulesPage {
    async fn new(request: &AdminRequest, form: FactorRulesForm, controls: Controls) -> Result<Self, Problem> {
        let services = &request.services;
        Ok(Self {
            layout: request.layout(FACTORS.page),
            form,
            groups: known_groups(&services.accounts).await?,
            controls,
            trial: Trial::None,
            overridden: services.live.overridden().keys_of(LiveSection::Factors).collect(),
        })
    }

    fn boxes(&self) -> Vec<NameBox> {
        let many = [("everyone", "app-form.everyone"), ("admins", "factors-page.admins")];
        boxes(&many, &self.groups, &self.form.require)
    }

    /// The first mistake in a key.
    fn wrong(&self, key: &str) -> Option<&str> {
        let mut mistakes = self.controls.mistakes.iter();
        let found =
            mistakes.find(|it| it.field.strip_prefix("factors.").is_some_and(|it| it.starts_with(key)));
        found.map(|mistake| mistake.message.as_str())
    }
}

impl FactorsTrial {
    /// Each with the key of its words; those that could open nothing first.
    fn counts(&self) -> [(&'static str, &EntryCount); 3] {
        [
            ("factors-page.shut", &self.shut),
            ("factors-page.enrol", &self.enrol),
            ("factors-page.asked", &self.asked),
        ]
    }
}
