//! Signing in through the API, on both stores.

mod addresses;
mod bursts;
mod captcha;
mod device_cookies;
pub mod devices;
mod disabling;
mod forgiving;
mod hang_ups;
mod overload;
mod proof;
mod refusals;
mod repeats;
mod shared;
mod sprays;
pub mod throttling;

use gatehouse::accounts::Username;
use gatehouse::login::{
    AttemptSlot, ClientCapabilities, CountingMode, GuardAdmission, GuardRequest, GuardedLogin, RequestOrigin,
};

use crate::support::app::TestApp;
use crate::support::setup::Setup;

/// An app where alice's account requires a challenge.
async fn challenged(setup: Setup) -> TestApp {
    let app = setup.start().await;
    app.register("alice").await;
    for _ in 0..3 {
        assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    }
    app
}

/// A slot of alice's that is held as long as her password is verified.
pub async fn slot_in_flight(app: &TestApp, address: &[u8]) -> AttemptSlot {
    let (guard, live) = (app.services.sign_in.guard(), app.services.live.snapshot());
    let login = Username::parse("alice").unwrap();
    let origin = RequestOrigin { address: address.to_vec(), network: address[..4].to_vec() };
    let who = GuardRequest {
        guarded: GuardedLogin::Own,
        subject: guard.subject(&login).await.unwrap(),
        name: login.as_str(),
        origin: &origin,
        solved: false,
        device_only: false,
        means: ClientCapabilities::BROWSER,
    };
    match guard.admit(&live.limits, who, CountingMode::Stranger).await {
        GuardAdmission::Held(slot) => slot,
        _ => panic!("the account has room"),
    }
}
