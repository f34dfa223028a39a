//! The guard as pages meet it: whoever may not is shown the way, and comes back by it.

use actix_web::HttpResponse;

use super::{Admin, Denied, Wanted, judge};
use crate::web::handlers::broken;
use crate::web::next::Next;
use crate::web::pages::error::{ErrorKind, ErrorPage};
use crate::web::services::Services;
use crate::web::visit::Visit;

/// Where the password is shown again.
pub const CONFIRM: &str = "/admin/confirm";

/// For what only shows something. Signing in leads back to it.
pub async fn read(visit: &Visit, services: &Services) -> Result<Admin, HttpResponse> {
    guard(visit, services, Wanted::Read, visit.here()).await
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
    let denied = match judge(services, visit.session_token(), wanted).await {
        Ok(Ok(admin)) => return Ok(admin),
        Ok(Err(denied)) => denied,
        Err(error) => return Err(broken(visit, &error)),
    };
    let by_way_of = |path: &str| {
        let next = Next::parse(page);
        let path = next.map_or_else(|| path.to_owned(), |next| next.by_way_of(path));
        visit.clone().keep_flash().see_other(&path, None)
    };
    Err(match denied {
        Denied::SignedOut => by_way_of("/login"),
        Denied::PasswordToChange => visit.clone().keep_flash().see_other("/account", None),
        Denied::NotAdmin(who) => {
            let layout = visit.layout("/account", Some(who.account.login.as_str()));
            ErrorPage::new(layout, ErrorKind::Forbidden).respond(visit)
        }
        Denied::Foreign => ErrorPage::new(visit.layout(page, None), ErrorKind::ForeignForm).respond(visit),
        Denied::Unconfirmed => by_way_of(CONFIRM),
    })
}
