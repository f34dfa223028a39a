//! `/account`: the profile, the password, the phone number and the sessions.

pub mod data_page;
pub mod page;
pub mod phone_call;
pub mod phone_page;
pub mod view;

use crate::login::AuthenticatedSession;
use crate::web::kit::problem::WebError;
use crate::web::kit::services::Services;
use crate::web::kit::visit::Visit;

/// Lets a member pass whose password, if there is one, can be shown from here.
async fn require_open(
    visit: &Visit,
    services: &Services,
    who: &AuthenticatedSession,
) -> Result<(), WebError> {
    let live = visit.live(services);
    match services.sign_in.is_open_to(&live, &who.account, &visit.sign_in_client()).await? {
        true => Ok(()),
        false => Err(visit.see_other("/account", None).into()),
    }
}
