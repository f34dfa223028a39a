//! What a new installation has not done yet, for the overview.

use crate::accounts::{AccountRole, AccountSearch, AccountState};
use crate::db::DbError;
use crate::web::console::guard::AdminRequest;

/// Something to do, and where: a page, or a key of the configuration.
pub struct FirstStep {
    pub key: &'static str,
    pub place: StepPlace,
}

pub enum StepPlace {
    Page(&'static str),
    Setting(&'static str),
    Docs(&'static str),
}

/// The steps that are left; the last, the backup, cannot be seen from here, and is not told alone.
pub async fn first_steps(request: &AdminRequest) -> Result<Vec<FirstStep>, DbError> {
    let AdminRequest { services, admin, .. } = request;
    let (live, server) = (services.live.snapshot(), &services.server);
    let factors = services.factor_verifier.factors().of(admin.account.id).await?;
    let administrators = AccountSearch {
        role: Some(AccountRole::Admin),
        state: Some(AccountState::Active),
        ..AccountSearch::default()
    };
    let administrators = services.accounts.page(&administrators, None, 2).await?.entries.len();
    let has_tls = server.public_url.scheme() == "https";
    let sends = services.outbox.is_none();
    let (page, setting, docs) = (StepPlace::Page, StepPlace::Setting, StepPlace::Docs);
    let steps = [
        (!factors.is_empty(), "first-steps.factor", page("/account/factors")),
        (has_tls, "first-steps.url", setting("[server] public_url")),
        // With https another server is in front, or nobody gets here.
        (
            !has_tls || !server.trusted_proxies.is_empty(),
            "first-steps.proxy",
            setting("[server] trusted_proxies"),
        ),
        (sends, "first-steps.gateway", setting("[sms] gateway")),
        (administrators > 1, "first-steps.administrator", page("/admin/accounts")),
        (!live.apps.all().is_empty(), "first-steps.app", page("/admin/apps/form")),
        (false, "first-steps.backup", docs("docs/operations.md")),
    ];
    let left: Vec<_> = steps
        .into_iter()
        .filter_map(|(done, key, place)| (!done).then_some(FirstStep { key, place }))
        .collect();
    Ok(if left.len() > 1 { left } else { Vec::new() })
}
