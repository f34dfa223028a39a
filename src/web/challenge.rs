//! The CAPTCHA part of a request, the same for pages and API: what was answered, and what to show next.

use serde_json::json;

use crate::audit::{Action, Event, Outcome, Subject, Why};
use crate::captcha::{Challenge, Client, Form, Later, Redeemed};
use crate::config::Live;
use crate::web::client::ClientAddress;
use crate::web::csrf::Browser;
use crate::web::services::Services;

/// Whom challenges are given to, and by which form.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub form: Form,
    pub client: ClientAddress,
    pub browser: Option<&'a Browser>,
}

/// What came with a request.
pub enum Answered {
    Nothing,
    Solved,
    /// Not accepted, for whatever reason. It refuses nothing but what came with it.
    Wrong,
}

impl Asker<'_> {
    /// Redeems what was sent, once, right or wrong. A wrong answer to a challenge of ours was a guess, and counts as
    /// a failure of the address. What answers none (too late, used before, another's, nonsense) cost nothing to
    /// make: it counts nowhere, or whoever sends enough of it would have everybody at the address challenged.
    pub async fn redeem(self, services: &Services, live: &Live, id: &str, answer: &str) -> Answered {
        if id.is_empty() && answer.is_empty() {
            return Answered::Nothing;
        }
        let origin = self.client.origin();
        let redeemed =
            services.captchas.redeem(self.form, &self.client_of(&origin.address), id, answer).await;
        let audit = &services.audit;
        let event = |at, outcome| Event {
            name: Some(self.form.as_str()),
            address: Some(Subject::Address(&origin.address)),
            network: Some(Subject::Network(&origin.network)),
            ..Event::new(at, Action::Captcha, outcome)
        };
        if redeemed.is_solved() {
            audit.record(event(audit.now(), Outcome::Ok));
            return Answered::Solved;
        }
        metrics::counter!("gatehouse_captchas_total", "outcome" => redeemed.as_str()).increment(1);
        if redeemed == Redeemed::Wrong {
            let counted = services.sign_in.guard().count_answer(&live.limits, &origin).await;
            audit.record(event(counted.map_or_else(|| audit.now(), |counted| counted.at), Outcome::Wrong));
        } else {
            let detail = Some(json!({ "why": redeemed.as_str() }).to_string());
            audit.record(Event { detail, ..event(audit.now(), Outcome::Failed) });
        }
        Answered::Wrong
    }

    /// A fresh challenge, at the rate that the limits allow.
    pub async fn issue(self, services: &Services, live: &Live) -> Result<Challenge, Later> {
        let address = self.client.subject();
        let issued = services.captchas.issue(live, self.form, &self.client_of(address.as_ref())).await;
        let audit = &services.audit;
        let (at, outcome, why) = match &issued {
            Ok(_) => (audit.now(), Outcome::Asked, None),
            Err(later) => {
                let why = Why::refused(later.limit, &later.refusal);
                (later.refusal.at(), Outcome::Throttled, Some(why))
            }
        };
        let (name, address) = (Some(self.form.as_str()), Some(Subject::Address(address.as_ref())));
        audit.record(Event { name, why, address, ..Event::new(at, Action::Captcha, outcome) });
        issued
    }

    fn client_of<'b>(&'b self, address: &'b [u8]) -> Client<'b> {
        Client { address, cookie: self.browser.map(|browser| browser.bytes().as_slice()) }
    }
}
