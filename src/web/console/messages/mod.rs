//! `/admin/messages`: the ledger of messages, and the brakes.

pub mod call;
pub mod page;
pub mod view;

use serde_json::json;

use crate::db::DbError;
use crate::web::console::guard::Admin;
use crate::web::kit::services::Services;

/// Lifts the brake of a program, that of our pages (empty) or all, and records that with its reason. False if there is
/// none.
async fn lift_brake(
    services: &Services,
    admin: &Admin,
    prefix: &str,
    program: Option<&str>,
    reason: &str,
) -> Result<bool, DbError> {
    let lifted = services.codes.ledger().lift(prefix, program, &admin.id()).await?;
    if lifted {
        admin.did(services, "brake.lift", &json!({ "prefix": prefix, "program": program, "reason": reason }));
    }
    Ok(lifted)
}
