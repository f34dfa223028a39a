//! The clock of a machine is set a hundred days ahead for a moment.

use std::time::Duration;

use gatehouse::clock::Clock;

use super::WRONG;
use crate::support::app::{Client, PASSWORD};
use crate::support::process::{Home, Running};
use crate::support::steered::SteeredClock;

const CONFIG: &str = "[captcha]\nprovider = 'fixed'\nfixed_answer = 'solo'
[limits]\nsms-phone.rules = [{ max = 5, window = '1h' }]
login-account.rules = [{ max = 20, window = '1h', then = 'block' }]
login-address.rules = []\nlogin-network.rules = []";
const PHONE: &str = "+8613800138000";
const REBUILT: &str = "windows were rebuilt from their record";

async fn compared(client: &Client, count: usize) -> usize {
    let mut compared = 0;
    for _ in 0..count {
        compared += usize::from(client.login("known", WRONG).await.status == 401);
    }
    compared
}

fn count(running: &Running, line: &str) -> usize {
    running.stderr().matches(line).count()
}

#[tokio::test]
async fn nothing_is_deleted_and_nobody_gets_a_guess_or_a_message_afterwards() {
    let (clock, mut home) = (SteeredClock::at(Clock::System.now()), Home::new());
    for (name, value) in clock.variables() {
        home.set(name, value.to_str().unwrap());
    }
    home.write("gatehouse.toml", CONFIG);
    let mut running = home.start(&["serve"]).await;
    let (owner, stranger) = (running.client(), running.client());
    assert_eq!(owner.register("known", PASSWORD).await.status, 201);
    for _ in 0..5 {
        assert_eq!(owner.ask_code(PHONE, "login").await.status, 202);
    }
    assert_eq!(compared(&stranger, 20).await, 20);
    assert_eq!(compared(&stranger, 5).await, 0);

    let right = clock.now();
    clock.advance(Duration::from_secs(100 * 86_400));
    // The next look for what has expired.
    running.until("the step is told", |running| running.stderr().contains("a clock was set")).await;
    let rebuilt = count(&running, REBUILT);
    clock.set(right.plus(Duration::from_secs(25)));
    running.until("it is as before", |running| count(running, REBUILT) > rebuilt).await;
    assert_eq!(compared(&stranger, 20).await, 0, "what was counted counts");
    assert_eq!(owner.get("/api/v1/session").await.body["user"]["login"], "known", "the session is there");
    for _ in 0..5 {
        assert_eq!(owner.ask_code(PHONE, "login").await.problem(), "throttled");
    }
}
