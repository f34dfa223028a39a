//! What the page of second factors says besides them: what sign-ins are asked for, and by when a factor has to be set up.

use crate::accounts::{AuthenticatedSession, FactorSetup, TrustedDevice};
use crate::web::http::{Device, Moment, PageRequest, Services, WebError};

/// What the page of factors says besides them.
#[derive(Clone)]
pub struct PolicySection {
    /// By the owner's wish.
    pub asks: bool,
    /// By `[factors]`, whatever the owner wishes.
    pub required: bool,
    pub setup: Option<FactorSetup>,
    pub trusted: Vec<TrustedRow>,
}

#[derive(Clone)]
pub struct TrustedRow {
    pub device: String,
    pub browser: Device,
    pub until: Moment,
    pub here: bool,
}

impl PolicySection {
    pub async fn of(
        visit: &PageRequest,
        services: &Services,
        who: &AuthenticatedSession,
    ) -> Result<Self, WebError> {
        let (store, live) = (services.factor_verifier.factors(), services.live.snapshot());
        let policy = store.policy(who.account.id, &live.factors.required_of()).await?;
        let here = visit.known_devices().at(who.account.id).map(|device| device.id);
        let row = |TrustedDevice { device, until, user_agent }: TrustedDevice| TrustedRow {
            device: device.to_string(),
            browser: Device::parse(&user_agent),
            until: Moment(until),
            here: here == Some(device),
        };
        let trusted = store.trusted(who.account.id, &live.factors).await?.into_iter().map(row).collect();
        Ok(Self { asks: policy.asks, required: policy.required, setup: who.session.setup, trusted })
    }

    pub fn setup_by(&self) -> Option<Moment> {
        self.setup.filter(|setup| !setup.overdue).map(|setup| Moment(setup.by))
    }

    pub fn overdue(&self) -> bool {
        self.setup.is_some_and(|setup| setup.overdue)
    }
}
