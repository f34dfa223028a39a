//! The CAPTCHA part of a request, the same for pages and API: what was answered, and what to show next.

use crate::captcha::{Challenge, Client, Form, Later};
use crate::config::Live;
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
        if redeemed.is_solved() {
            return Answered::Solved;
        }
        metrics::counter!("gatehouse_captchas_total", "outcome" => "refused").increment(1);
        let guard = services.sign_in.guard();
        match guard.count_address(&live.limits.login_address, address.as_ref(), true).await {
            Some(refusal) if refusal.then == Then::Block => Answered::Throttled(refusal),
            _ => Answered::Wrong,
        }
    }

    /// A fresh challenge, at the rate that the limits allow.
    pub async fn issue(self, services: &Services, live: &Live) -> Result<Challenge, Later> {
        let address = self.client.subject();
        services.captchas.issue(live, self.form, &self.client_of(address.as_ref())).await
    }

    fn client_of<'b>(&'b self, address: &'b [u8]) -> Client<'b> {
        Client { address, cookie: self.browser.map(|browser| browser.bytes().as_slice()) }
    }
}
