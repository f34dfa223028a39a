//! The CAPTCHA part of a request, the same for pages and API: what was answered, and what to show next.

use crate::audit::{Action, Event, Outcome, Subject, Why};
use crate::captcha::{Challenge, Client, Form, Later};
use crate::config::Live;
use crate::login::Counted;
use crate::throttle::{Refusal, Then};
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
    /// Not accepted, for whatever reason.
    Wrong,
    /// Not accepted, and this address has sent too many of those.
    Throttled(Refusal),
}

impl Asker<'_> {
    /// Redeems what was sent, once, right or wrong. A wrong answer counts as a failure of the address:
    /// each is a guess, too.
    pub async fn redeem(self, services: &Services, live: &Live, id: &str, answer: &str) -> Answered {
        if id.is_empty() && answer.is_empty() {
            return Answered::Nothing;
        }
        let address = self.client.subject();
        let redeemed =
            services.captchas.redeem(self.form, &self.client_of(address.as_ref()), id, answer).await;
        let audit = &services.audit;
        let event = |at, outcome| Event {
            name: Some(self.form.as_str()),
            address: Some(Subject::Address(address.as_ref())),
            ..Event::new(at, Action::Captcha, outcome)
        };
        if redeemed.is_solved() {
            audit.record(event(audit.now(), Outcome::Ok));
            return Answered::Solved;
        }
        metrics::counter!("gatehouse_captchas_total", "outcome" => "refused").increment(1);
        let guard = services.sign_in.guard();
        match guard.count_address(&live.limits.login_address, address.as_ref(), true).await {
            Err(refusal) => {
                let why = Some(Why::refused("login-address", &refusal));
                audit.record(Event { why, ..event(audit.decided(&refusal), Outcome::refused(&refusal)) });
                // A challenge was answered: what asks for one does not stand in the way.
                if refusal.then == Then::Block { Answered::Throttled(refusal) } else { Answered::Wrong }
            }
            Ok(Counted { at, noted }) => {
                let why = noted.as_ref().map(|refusal| Why::noted("login-address", refusal));
                audit.record(Event { why, ..event(at, Outcome::Wrong) });
                Answered::Wrong
            }
        }
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
