//! The cookie that identifies a browser to accounts that have signed in from it.

use actix_web::HttpResponse;
use actix_web::http::header::HeaderMap;

use super::{Edge, Visit, set};
use crate::login::{Account, KnownDevices, SignInClient};
use crate::web::kit::cookies;

impl Edge {
    /// What identifies this browser to accounts that have signed in from it.
    pub fn known_devices(&self, headers: &HeaderMap) -> KnownDevices {
        self.recognise(cookies::only_value(headers, self.cookies.device_name()))
    }

    fn recognise(&self, sent: Option<&str>) -> KnownDevices {
        sent.map(|cookie| self.devices.recognise(cookie)).unwrap_or_default()
    }

    /// Call this only after somebody has proved that the account is theirs: the account then knows the
    /// browser.
    pub fn remember_device(&self, response: &mut HttpResponse, known: &KnownDevices, account: &Account) {
        set(response, self.cookies.device(self.devices.remember(known, account)));
    }
}

impl Visit {
    /// What the account's owner sees of this client, and what identifies its browser to the account.
    pub fn sign_in_client(&self) -> SignInClient {
        SignInClient::new(self.client.ip(), self.user_agent()).known_as(self.known_devices())
    }

    /// What identifies this browser to accounts that have signed in from it.
    pub fn known_devices(&self) -> KnownDevices {
        self.edge.recognise(self.device.as_deref())
    }

    /// Call this only after somebody has proved that the account is theirs: the account then knows the
    /// browser.
    pub fn remember_device(&self, response: &mut HttpResponse, account: &Account) {
        self.edge.remember_device(response, &self.known_devices(), account);
    }
}
