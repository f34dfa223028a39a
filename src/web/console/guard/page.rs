//! The guard as pages meet it: whoever may not is shown the way, and comes back by it.

use actix_web::HttpResponse;

use super::{Admin, Asking, Wanted, Why, judge};
use crate::web::kit::error_page::broken;
use crate::web::kit::error_page::{ErrorKind, ErrorPage};
use crate::web::kit::next::Next;
use crate::web::kit::services::Services;
use crate::web::kit::visit::Visit;

/// Where the password is shown again.
pub const CONFIRM: &str = "/admin/confirm";

/// For what only shows something. Signing in leads back to it.
pub async fn read(visit: &Visit, services: &Services) -> Result<Admin, HttpResponse> {
    guard(visit, services, Wanted::Read, visit.here()).await
}

/// For the form that shows the password again, at [`CONFIRM`].
pub async fn confirmation(
    visit: &Visit,
    services: &Services,
    csrf_token: &str,
) -> Result<Admin, HttpResponse> {
    guard(visit, services, Wanted::Confirm { ours: visit.admits_form(csrf_token) }, CONFIRM).await
}

/// For a form that changes something; `page` is where it stands, and where signing in or showing the
/// password leads back to.
pub async fn change(
    visit: &Visit,
    services: &Services,
    page: &str,
    csrf_token: &str,
) -> Result<Admin, HttpResponse> {
    guard(visit, services, Wanted::Change { ours: visit.admits_form(csrf_token) }, page).await
}

async fn guard(
    visit: &Visit,
    services: &Services,
    wanted: Wanted,
    page: &str,
) -> Result<Admin, HttpResponse> {
    let asking = Asking { token: visit.session_token(), client: visit.client, path: visit.pattern() };
    let denied = match judge(services, asking, wanted).await {
        Ok(Ok(admin)) => return Ok(admin),
        Ok(Err(denied)) => denied,
        Err(error) => return Err(broken(visit, &error)),
    };
    let by_way_of = |path: &str| {
        let next = Next::parse(page);
        let path = next.map_or_else(|| path.to_owned(), |next| next.by_way_of(path));
        visit.clone().keep_flash().see_other(&path, None)
    };
    Err(match denied.why {
        Why::SignedOut => by_way_of("/login"),
        Why::PasswordToChange => visit.clone().keep_flash().see_other("/account", None),
        Why::NotAdmin => {
            let user = denied.who.as_ref().map(|who| who.account.login.as_str());
            let layout = visit.layout("/account", user);
            ErrorPage::new(layout, ErrorKind::Forbidden).respond(visit)
        }
        Why::Foreign => ErrorPage::new(visit.layout(page, None), ErrorKind::ForeignForm).respond(visit),
        Why::Unconfirmed => by_way_of(CONFIRM),
    })
}
