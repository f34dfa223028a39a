//! What an origin is, and how many honest people an entry about it would have met: for the form of an answer, and `GET
//! /api/v1/admin/origins/{origin}`.

use actix_web::HttpResponse;
use actix_web::web::Path;
use rust_i18n::t;
use serde::Serialize;
use utoipa::ToSchema;

use super::figures::DAY;
use super::guard::Permitted;
use super::limit_text::grouped;
use crate::audit::{Action, Outcome};
use crate::clock::Micros;
use crate::db::DbError;
use crate::origins::OriginKey;
use crate::web::http::{Locale, Problem, Services, ServicesData};

/// What the record says of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({
    "origin": "asn:64496", "name": "AS64496 Example Hosting", "known": true, "signed_in": 3412, "met": 12
}))]
pub struct OriginReport {
    /// The origin, in the form that `deny` takes.
    #[schema(value_type = String)]
    pub origin: OriginKey,
    /// For people.
    pub name: String,
    /// Whether a file is in use that tells such origins. Otherwise an entry refuses nobody.
    pub known: bool,
    /// Sign-ins of the last 24 hours that succeeded: of many, the newest 50,000 events.
    #[schema(minimum = 0)]
    pub signed_in: u64,
    /// At most so many of them came from there: the record keeps networks, and all of a network counts if some of it is
    /// there.
    #[schema(minimum = 0)]
    pub met: u64,
}

impl OriginReport {
    pub async fn of(services: &Services, origin: OriginKey, now: Micros) -> Result<Self, DbError> {
        services.audit.flush().await;
        let ended = (Action::SignIn, &[Outcome::Ok][..]);
        let networks = services.audit.log().networks(ended, "", now.minus(DAY)).await?;
        let files = services.live.origins().in_use();
        let meets = |mask: &str| mask.parse().is_ok_and(|network| files.meets(network, &origin));
        let sum = |counts: &mut dyn Iterator<Item = i64>| counts.map(i64::unsigned_abs).sum();
        Ok(Self {
            name: files.name(&origin),
            known: files.knows(&origin),
            signed_in: sum(&mut networks.iter().map(|(_, count)| *count)),
            met: sum(&mut networks.iter().filter(|(mask, _)| meets(mask)).map(|(_, count)| *count)),
            origin,
        })
    }

    /// What a form says before an entry about it is saved.
    pub fn words(&self, locale: Locale) -> String {
        let (code, name) = (locale.code(), &self.name);
        if !self.known {
            return t!("answers.origin-unknown", locale = code, name = name).into_owned();
        }
        let percent = match (self.met * 1_000).checked_div(self.signed_in) {
            Some(0) | None if self.met > 0 => "< 0.1".to_owned(),
            thousandths => {
                let thousandths = thousandths.unwrap_or_default();
                format!("{}.{}", thousandths / 10, thousandths % 10)
            }
        };
        let [met, all] = [self.met, self.signed_in].map(grouped);
        t!("answers.origin-share", locale = code, name = name, met = met, all = all, percent = percent)
            .into_owned()
    }
}

/// What an origin is, and whom an entry about it would have met
///
/// Ask before you refuse an origin: most people there are no attackers.
#[utoipa::path(
    get,
    path = "/api/v1/admin/origins/{origin}",
    operation_id = "showOrigin",
    tag = "admin",
    params((
        "origin" = String,
        Path,
        description = "`asn:` and a number, `country:` and two letters, or `list:` and a name.",
        example = "asn:64496"
    )),
    responses((status = 200, description = "What the files and the record say of it.", body = OriginReport)),
    extensions(("x-problems" = json!(["invalid-input"])))
)]
pub async fn api_show(
    _: Permitted,
    origin: Path<String>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let origin = origin.parse().map_err(|wrong: String| Problem::wrong("origin", wrong))?;
    let now = services.audit.now();
    Ok(HttpResponse::Ok().json(OriginReport::of(&services, origin, now).await?))
}
