//! The gateways in the order in which they are used, and which of them are out of service. Each instance finds that out for
//! itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    CheckResult, DeliveryResult, GatewayCheck, GatewayDeps, NoGateway, OpenError, OpenedGateway,
    OutOfService, Outbox, RefusedFor, SmsGateway, open,
};
use crate::clock::Micros;
use crate::config;
use crate::outage::DependencyStatus;

/// Between two questions to a gateway that is out of service, or two messages where it cannot be asked.
const ASKED_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Gateways(Arc<[ListedSlot]>);

/// One gateway of the list.
pub struct ListedSlot {
    gateway: Arc<dyn SmsGateway>,
    /// Empty: all.
    countries: Vec<String>,
    status: DependencyStatus,
    outages: Mutex<Vec<GatewayOutage>>,
    /// Outages that a check ended, and no message has yet: what returns among these, the check does not see.
    ended_by_check: Mutex<Vec<OutageKey>>,
}

type OutageKey = (OutOfService, Option<String>);

/// A gateway refuses everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayOutage {
    pub gateway: &'static str,
    pub why: OutOfService,
    /// The country to which it refuses; None: to all.
    pub country: Option<String>,
    /// What the gateway said last.
    pub reason: String,
    pub since: Micros,
    /// When it was last asked, or last given a message.
    tried: Micros,
    /// It cannot be asked whether it is back, so that a message has to try.
    unasked: bool,
}

impl From<Arc<dyn SmsGateway>> for Gateways {
    /// One that serves every country.
    fn from(gateway: Arc<dyn SmsGateway>) -> Self {
        Self::new([(gateway, Vec::new())])
    }
}

impl Gateways {
    /// In this order, each with the countries that it serves; empty: all.
    pub fn new(listed: impl IntoIterator<Item = (Arc<dyn SmsGateway>, Vec<String>)>) -> Self {
        let slot = |(gateway, countries): (Arc<dyn SmsGateway>, _)| ListedSlot {
            status: status_of(gateway.name()),
            gateway,
            countries,
            outages: Mutex::default(),
            ended_by_check: Mutex::default(),
        };
        Self(listed.into_iter().map(slot).collect())
    }

    /// Opens the gateways of a configuration. Returns the outbox, too, if it is among them.
    pub fn open(
        listed: &[config::ListedGateway],
        deps: &GatewayDeps<'_>,
    ) -> Result<(Self, Option<Outbox>), OpenError> {
        let (mut gateways, mut shown) = (Vec::new(), None);
        for config::ListedGateway { gateway, countries } in listed {
            let OpenedGateway { gateway, outbox } = open(gateway, deps.clone())?;
            shown = shown.or(outbox);
            gateways.push((gateway, countries.clone()));
        }
        Ok((Self::new(gateways), shown))
    }

    pub fn iter(&self) -> std::slice::Iter<'_, ListedSlot> {
        self.0.iter()
    }

    pub fn named(&self, name: &str) -> Option<&dyn SmsGateway> {
        self.iter().find(|slot| slot.name() == name).map(|slot| &*slot.gateway)
    }

    /// The one that a message is likely to take.
    pub fn likely(&self, country: Option<&str>) -> &'static str {
        let mut serving = self.iter().filter(|slot| slot.serves(country));
        let up = serving.clone().find(|slot| slot.outages().iter().all(|outage| !outage.is_for(country)));
        up.or_else(|| serving.next()).map_or(NoGateway.name(), ListedSlot::name)
    }

    /// The first one that serves the country and is in service; those that are out of it come last, since a message has no
    /// other hope then. None if all were tried.
    pub fn next(&self, country: Option<&str>, tried: &[&str], now: Micros) -> Option<&ListedSlot> {
        let mut left = self.iter().filter(|slot| slot.serves(country) && !tried.contains(&slot.name()));
        left.clone().find(|slot| slot.admits(country, now)).or_else(|| left.next())
    }

    pub fn outages(&self) -> Vec<GatewayOutage> {
        self.iter().flat_map(|slot| slot.outages().clone()).collect()
    }

    /// Asks those that are out of service whether they are back. No message does, but where there is nothing to ask.
    pub async fn probe(&self, now: impl Fn() -> Micros) {
        for slot in self.iter() {
            let is_due = |outage: &GatewayOutage| !outage.unasked && outage.is_due(now());
            if slot.outages().iter().any(is_due) {
                slot.learn(&slot.gateway.check().await, now());
            }
        }
    }
}

/// Three messages in a row without a known outcome count as an outage in the metrics; one refusal of everybody does.
fn status_of(name: &'static str) -> DependencyStatus {
    let (up, errors) = ("gatehouse_sms_gateway_up", "gatehouse_sms_gateway_errors_total");
    DependencyStatus::new("the SMS gateway", up, errors, 3).labelled("gateway", name)
}

impl ListedSlot {
    pub fn name(&self) -> &'static str {
        self.gateway.name()
    }

    pub fn gateway(&self) -> &Arc<dyn SmsGateway> {
        &self.gateway
    }

    pub fn serves(&self, country: Option<&str>) -> bool {
        self.countries.is_empty()
            || country.is_some_and(|country| self.countries.iter().any(|it| it == country))
    }

    fn outages(&self) -> MutexGuard<'_, Vec<GatewayOutage>> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is in service, or this message is the one to try. Another one is not for a while.
    fn admits(&self, country: Option<&str>, now: Micros) -> bool {
        let mut outages = self.outages();
        let mut met: Vec<_> = outages.iter_mut().filter(|outage| outage.is_for(country)).collect();
        let admits = met.iter().all(|outage| outage.unasked && outage.is_due(now));
        if admits {
            met.iter_mut().for_each(|outage| outage.tried = now);
        }
        admits
    }

    /// Notes what became of a message. A refusal of this message alone says nothing of the gateway.
    pub fn note(&self, delivery: &DeliveryResult, country: Option<&str>, now: Micros) {
        match delivery {
            DeliveryResult::Accepted { .. } => {
                self.ended_by_check().retain(|(_, of)| of.is_some() && of.as_deref() != country);
                self.close(|outage| outage.is_for(country));
            }
            DeliveryResult::Unknown { reason } => self.status.failed(reason),
            DeliveryResult::Refused { whose: RefusedFor::ThisMessage, .. } => self.status.refused(),
            DeliveryResult::Refused { reason, whose: RefusedFor::Everybody(why) } => {
                let country = country.filter(|_| why.is_of_a_country()).map(str::to_owned);
                self.open(*why, country, reason, now);
            }
        }
    }

    fn open(&self, why: OutOfService, country: Option<String>, reason: &str, now: Micros) {
        let returned = self.ended_by_check().contains(&(why, country.clone()));
        let mut outages = self.outages();
        let known = outages.iter_mut().find(|outage| outage.country == country);
        if self.status.is_out() && known.as_ref().is_none_or(|known| known.why != why) {
            let (which, place) = (self.name(), country.as_deref().unwrap_or("everywhere"));
            tracing::warn!(which, place, reason, "the SMS gateway refuses everybody; {}", why.advice());
        }
        self.status.out(&format_args!("{reason}; {}", why.advice()));
        match known {
            Some(known) => {
                known.unasked = returned || (known.unasked && known.why == why);
                (known.why, known.reason, known.tried) = (why, reason.to_owned(), now);
            }
            None => outages.push(GatewayOutage {
                gateway: self.name(),
                why,
                country,
                reason: reason.to_owned(),
                since: now,
                tried: now,
                unasked: returned,
            }),
        }
    }

    fn ended_by_check(&self) -> MutexGuard<'_, Vec<OutageKey>> {
        self.ended_by_check.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the outages of which this is true.
    fn close(&self, over: impl Fn(&GatewayOutage) -> bool) {
        let mut outages = self.outages();
        outages.retain(|outage| !over(outage));
        if outages.is_empty() {
            self.status.answered();
        }
    }

    /// What a check says of each outage: it is over, or not; or nothing, and then a message has to try.
    fn learn(&self, checks: &[GatewayCheck], now: Micros) {
        let said = |outage: &GatewayOutage| checks.iter().find(|check| check.part == outage.why.part());
        // Then nothing else could be asked.
        let no_answer = |check: &GatewayCheck| {
            matches!(
                check.result,
                CheckResult::Failed(OutOfService::Unreachable | OutOfService::Credentials, _)
            )
        };
        for outage in self.outages().iter_mut() {
            match said(outage).map(|check| &check.result) {
                Some(CheckResult::Failed(_, reason)) => {
                    (outage.reason, outage.tried) = (reason.clone(), now);
                }
                Some(CheckResult::Passed(_)) => {}
                None if checks.iter().any(no_answer) => outage.tried = now,
                Some(CheckResult::NotAsked(_)) | None => outage.unasked = true,
            }
        }
        let passed = |check: &GatewayCheck| matches!(check.result, CheckResult::Passed(_));
        let over = |outage: &GatewayOutage| said(outage).is_some_and(passed);
        let ended =
            self.outages().iter().filter(|it| over(it)).map(|it| (it.why, it.country.clone())).collect();
        *self.ended_by_check() = ended;
        self.close(over);
    }
}

impl GatewayOutage {
    fn is_for(&self, country: Option<&str>) -> bool {
        self.country.is_none() || self.country.as_deref() == country
    }

    fn is_due(&self, now: Micros) -> bool {
        now.since(self.tried) >= ASKED_EVERY
    }
}
