//! The cookie that a browser is known by where somebody signed in from it.

use actix_web::HttpResponse;
use actix_web::http::header::HeaderMap;

use super::{Edge, Visit, set};
use crate::login::{Account, KnownDevices, SignInClient};
use crate::web::kit::cookies;

impl Edge {
    /// As what the browser is known where somebody signed in from it.
    pub fn known_devices(&self, headers: &HeaderMap) -> KnownDevices {
        self.recognise(cookies::only_value(headers, self.cookies.device_name()))
    }

    fn recognise(&self, sent: Option<&str>) -> KnownDevices {
        sent.map(|cookie| self.devices.recognise(cookie)).unwrap_or_default()
    }

    /// Somebody has shown just now that the account is theirs: from here on the browser is known there.
    pub fn remember_device(&self, response: &mut HttpResponse, known: &KnownDevices, account: &Account) {
        set(response, self.cookies.device(self.devices.remember(known, account)));
    }
}

impl Visit {
    /// What the account's owner is shown of it, and as what it is known there.
    pub fn sign_in_client(&self) -> SignInClient {
        SignInClient::new(self.client.ip(), self.user_agent()).known_as(self.known_devices())
    }

    /// As what the browser is known where somebody signed in from it.
    pub fn known_devices(&self) -> KnownDevices {
        self.edge.recognise(self.device.as_deref())
    }

    /// Somebody has shown just now that the account is theirs: from here on the browser is known there.
    pub fn remember_device(&self, response: &mut HttpResponse, account: &Account) {
        self.edge.remember_device(response, &self.known_devices(), account);
    }
}
