//! The CAPTCHA part of a request, the same for pages and API: what was answered, and what to show next.

use std::sync::Arc;

use crate::audit::{Action, Event, Outcome, Subject, Why};
use crate::captcha::{Challenge, Client, Form, ImageError, Later, Picture, Requester};
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

    /// A fresh challenge, which costs nothing; none while its image would not be drawn.
    pub async fn issue(self, services: &Services, live: &Live) -> Result<Challenge, Later> {
        let (address, network) = (self.client.subject(), self.client.network());
        let client = self.client_of(address.as_ref());
        let issued = services.captchas.issue(live, self.form, &client, network.as_ref()).await;
        if let Err(later) = &issued {
            record_later(services, self.client, later);
        }
        issued
    }

    fn client_of<'b>(&'b self, address: &'b [u8]) -> Client<'b> {
        Client { address, cookie: self.browser.map(|browser| browser.bytes().as_slice()) }
    }
}

/// The image of a challenge, which whoever fetches it is charged for.
pub async fn image(client: ClientAddress, services: &Services, id: &str) -> Result<Arc<[u8]>, ImageError> {
    let live = services.live.snapshot();
    let (address, network) = (client.subject(), client.network());
    let by = Requester { address: address.as_ref(), network: network.as_ref() };
    match services.captchas.image(&live, by, id).await {
        Ok(Picture { png, form, drawn_now }) => {
            if drawn_now {
                let at = services.audit.now();
                record(services, client, form, Event::new(at, Action::Captcha, Outcome::Asked));
            }
            Ok(png)
        }
        Err(error) => {
            if let ImageError::Later(later) = &error {
                record_later(services, client, later);
            }
            Err(error)
        }
    }
}

fn record_later(services: &Services, client: ClientAddress, later: &Later) {
    let why = Some(Why::refused(later.limit, &later.refusal));
    let event = Event::new(later.refusal.at(), Action::Captcha, Outcome::Throttled);
    record(services, client, later.form, Event { why, ..event });
}

fn record(services: &Services, client: ClientAddress, form: Form, event: Event<'_>) {
    let address = client.subject();
    let (name, address) = (Some(form.as_str()), Some(Subject::Address(address.as_ref())));
    services.audit.record(Event { name, address, ..event });
}
