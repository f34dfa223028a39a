//! `/account/export` and `/account/delete`: what is stored about the account goes to its owner, or goes away.

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_DISPOSITION, HeaderValue};
use serde_json::{Value, json};

use crate::accounts::{Account, AccountAct, AccountChange, AuthenticatedSession};
use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::web::account::with_password::{show_form, verified};
use crate::web::code::{CodeForm, DELETION, EXPORT};
use crate::web::http::page::set_all;
use crate::web::http::{Flash, Moment, PageRequest, Problem, Services, ServicesData, WebError, WebResult};
use crate::web::session::{Member, OwnersForm};

pub async fn show_export(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    show_form(&visit, &services, &who, &EXPORT).await
}

pub async fn show_deletion(visit: PageRequest, Member(who): Member, services: ServicesData) -> WebResult {
    show_form(&visit, &services, &who, &DELETION).await
}

/// `POST /account/export`: the account, its second factors without their secrets, its sessions and its recent sign-ins as a
/// JSON file. Events name it by a keyed hash only, and are left out.
pub async fn export(visit: PageRequest, _: Member, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, export_once).await
}

async fn export_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: CodeForm,
    services: ServicesData,
) -> WebResult {
    let owner = verified(&visit, &services, &who, &form, &EXPORT).await?;
    let data = data(&services, &visit, &owner.account).await?;
    record(&services, &visit, &owner.account, "account-export");
    let mut response = HttpResponse::Ok().json(data);
    let file = HeaderValue::from_static("attachment; filename=\"account.json\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, file);
    Ok(response)
}

pub async fn delete(visit: PageRequest, form: OwnersForm, services: ServicesData) -> WebResult {
    form.once(visit, services, delete_once).await
}

async fn delete_once(
    visit: PageRequest,
    who: AuthenticatedSession,
    form: CodeForm,
    services: ServicesData,
) -> WebResult {
    let owner = verified(&visit, &services, &who, &form, &DELETION).await?;
    match services.accounts.change(owner.account.id, AccountAct::Delete, false).await? {
        AccountChange::Done => record(&services, &visit, &owner.account, "account-delete"),
        AccountChange::LastAdmin => return Err(Problem::LastAdministrator.into()),
        AccountChange::Unchanged
        | AccountChange::NewGroups { .. }
        | AccountChange::NewProfile(_)
        | AccountChange::NoPassword
        | AccountChange::OfAdmin
        | AccountChange::TooManyGroups
        | AccountChange::Gone => {}
    }
    let mut response = visit.see_other("/login", Some(Flash::AccountDeleted));
    set_all(&mut response, visit.cookies().end_session());
    Ok(response)
}

async fn data(services: &Services, visit: &PageRequest, account: &Account) -> Result<Value, WebError> {
    let time = |at| Moment(at).iso();
    let sessions = services.sessions.list(account.id).await?;
    let sessions = sessions.into_iter().map(|session| {
        json!({
            "signed_in_at": time(session.created_at), "last_seen_at": time(session.last_seen),
            "ends_at": time(session.ends_at), "network": session.network, "browser": session.user_agent,
        })
    });
    let groups = services.accounts.groups(account.id).await?;
    let profile = services.profiles.of(account.id).await?;
    let sign_ins = services.accounts.last_sign_ins(account.id).await?;
    let sign_ins = sign_ins.into_iter().map(|sign_in| {
        json!({ "at": time(sign_in.at), "network": sign_in.network, "browser": sign_in.user_agent })
    });
    let factors = services.factor_verifier.factors().of(account.id).await?;
    let passkeys = services.factor_verifier.passkeys().list(account.id).await?;
    let passkeys = passkeys.into_iter().map(|passkey| {
        json!({
            "label": passkey.label, "added_at": time(passkey.created_at),
            "last_used_at": passkey.last_used_at.map(time),
        })
    });
    let apps = services.grants.clients(account.id).await?;
    Ok(json!({
        "exported_at": time(visit.now()),
        "account": {
            "id": account.id.to_string(),
            "login": account.login.as_str(),
            "phone": account.phone.as_ref().map(|phone| phone.as_str()),
            "confirmed_email": services.emails.of(account.id).await?.as_ref().map(|mailbox| mailbox.as_str()),
            "email": profile.email_text(),
            "email_verified": profile.email_verified,
            "name": profile.name_text(),
            "roles": account.roles.names(),
            "groups": groups.names().collect::<Vec<_>>(),
            "created_at": time(account.created_at),
            "has_password": account.password_hash.is_some(),
        },
        "factors": {
            "app_since": factors.totp_since.map(time),
            "recovery_codes_left": factors.recovery_left,
            "passkeys": passkeys.collect::<Vec<_>>(),
        },
        "apps": apps,
        "sessions": sessions.collect::<Vec<_>>(),
        "sign_ins": sign_ins.collect::<Vec<_>>(),
    }))
}

fn record(services: &Services, visit: &PageRequest, account: &Account, act: &str) {
    let (actor, address) = (account.id.to_string(), visit.client.subject());
    let who = ConsoleActor {
        actor: Some(&actor),
        account: Some(account.recorded()),
        address: Some(EventSubject::Address(address.as_ref())),
    };
    services.audit.act(act, Outcome::Ok, who, None);
}
