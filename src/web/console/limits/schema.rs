//! Limits as calls take and answer them, for the description of the API: what reads them is `config::Draft`.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;

use crate::config::BackendKind;
use crate::web::kit::describe;

/// By name; the owner's own under `custom`. What is left out is at its default.
#[derive(Serialize, ToSchema)]
#[schema(as = Limits)]
pub struct LimitsDocument {
    #[schema(required = false)]
    pub custom: BTreeMap<String, LimitSettings>,
    #[serde(flatten)]
    pub others: BTreeMap<String, LimitSettings>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Limit)]
pub struct LimitSettings {
    /// `enforce` if left out.
    #[schema(schema_with = describe::modes, required = false)]
    mode: &'static str,
    #[schema(max_items = 8)]
    rules: Vec<RuleSettings>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Rule)]
pub struct RuleSettings {
    #[schema(minimum = 1, maximum = 1_000_000)]
    max: u32,
    /// Sliding: 100ms to 366d.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<&'static str>,
    /// Instead of window: follows the calendar.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = describe::calendar_units)]
    per: Option<&'static str>,
    /// The IANA name of the time zone of `per`; UTC if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<&'static str>,
    /// `block` if left out.
    #[schema(schema_with = describe::consequences, required = false)]
    then: &'static str,
}

impl LimitSettings {
    pub fn example() -> Self {
        let rule = RuleSettings { max: 1, window: Some("1m"), per: None, timezone: None, then: "block" };
        Self { mode: "enforce", rules: vec![rule] }
    }
}

/// What may keep the limits.
pub fn backends() -> ObjectBuilder {
    describe::one_of(BackendKind::ALL.map(BackendKind::as_str))
}

/// Where a limit comes from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitSource {
    Default,
    Document,
    Environment,
}
