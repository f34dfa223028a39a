//! What a machine gets that solves every challenge at once, under the default limits: the table in docs/security.md.
//!
//! It takes every image that it can have and solves every proof of work that is accepted, in no time, and spends each on
//! a guess at the next account that is still open. Time moves by a minute at once. The tests run at a smaller scale than the
//! table, which takes minutes: `GATEHOUSE_FULL_SCALE=1 cargo test solver`.

use std::collections::VecDeque;

use super::tests::{Office, network};
use super::*;
use crate::config::Limits;

const MINUTE: Duration = Duration::from_secs(60);

struct Solver {
    office: Office,
    store: Limiter<MemoryStore>,
    clock: Clock,
    addresses: u32,
}

impl Solver {
    /// With so many addresses, each in a network of its own.
    fn with(addresses: u32) -> Self {
        let office = Office::new();
        let clock = office.clock.clone();
        let key = MasterKey::from_bytes([4; 32]).derive("test");
        let store = Limiter::new(MemoryStore::new(clock.clone()), key, &Entropy::seeded(7));
        Self { office, store, clock, addresses }
    }

    fn limits(&self) -> &Limits {
        &self.office.live.limits
    }

    async fn counts(&self, buckets: &[Bucket<'_>], solved: bool) -> bool {
        matches!(self.store.reserve(buckets, solved).await, Ok(HitDecision::Admitted(_)))
    }

    /// A wrong password.
    async fn guesses(&self, account: u32, address: u32, solved: bool) -> bool {
        let Limits { login_account, login_address, login_network, .. } = self.limits();
        let (account, address) = (account.to_be_bytes(), network(address).to_be_bytes());
        let buckets = [
            self.store.bucket(login_account, &account),
            self.store.bucket(login_address, &address),
            self.store.bucket(login_network, &address[..3]),
        ];
        self.counts(&buckets, solved).await
    }

    /// Guesses within an hour.
    async fn hour_at(&self, accounts: u32) -> u32 {
        self.minutes_at(accounts, 60).await.0
    }

    /// Guesses within so many minutes, and challenges that were solved for them.
    async fn minutes_at(&self, accounts: u32, minutes: u32) -> (u32, u32) {
        let mut open: VecDeque<u32> = (0..accounts).collect();
        let (mut guesses, mut solved) = (0, 0);
        for _ in 0..minutes {
            for address in 0..self.addresses {
                while let Some(account) = open.pop_front() {
                    if self.guesses(account, address, false).await {
                        guesses += 1;
                    } else if !self.office.gives(network(address)).await {
                        open.push_front(account);
                        break;
                    } else if self.guesses(account, address, true).await {
                        guesses += 1;
                        solved += 1;
                    } else {
                        // Blocked for the rest of the hour.
                        continue;
                    }
                    open.push_back(account);
                }
            }
            self.clock.advance(MINUTE);
        }
        (guesses, solved)
    }

    /// Messages within a day, to as many numbers as it takes.
    async fn day(&self, numbers: u32) -> u32 {
        let mut sent = 0;
        for _ in 0..24 {
            for address in 0..self.addresses {
                let mut refused = 0;
                while refused < 3 {
                    // Spread over the prefixes.
                    let number = (sent + refused) * 10_007 % numbers;
                    if self.sends(number, address).await { sent += 1 } else { refused += 1 }
                }
            }
            self.clock.advance(60 * MINUTE);
        }
        sent
    }

    async fn sends(&self, number: u32, address: u32) -> bool {
        let Limits { sms_phone, sms_address, sms_network, sms_prefix, sms_total, .. } = self.limits();
        let (subject, address) = (number.to_be_bytes(), network(address).to_be_bytes());
        // A prefix is a number without its last four digits.
        let prefix = (number / 10_000).to_be_bytes();
        let buckets = [
            self.store.bucket(sms_phone, &subject),
            self.store.bucket(sms_address, &address),
            self.store.bucket(sms_network, &address[..3]),
            self.store.bucket(sms_prefix, &prefix),
            self.store.bucket(sms_total, EVERYONE),
        ];
        self.counts(&buckets, true).await
    }
}

impl Office {
    /// Whether the client gets past with another challenge of either kind. It solves the cheapest that is accepted.
    async fn gives(&self, address: u32) -> bool {
        self.admits(address).await
            || self.accepts(address, Effort::Low).await
            || self.accepts(address, Effort::Highest).await
    }
}

fn full_scale() -> bool {
    std::env::var_os("GATEHOUSE_FULL_SCALE").is_some()
}

#[tokio::test]
async fn one_account_takes_twenty_guesses_an_hour_from_however_many_addresses() {
    assert_eq!(Solver::with(1).hour_at(1).await, 20);
    assert_eq!(Solver::with(1_000).hour_at(1).await, 20);
}

#[tokio::test]
async fn one_address_guesses_as_often_as_it_gets_challenges() {
    let minutes = if full_scale() { 60 } else { 3 };
    // 60 images and a quarter of 6,000 proofs of work a minute, and twenty guesses before the first of them.
    let challenges = (60 + 1_471) * minutes;
    assert_eq!(Solver::with(1).minutes_at(10_000, minutes).await, (challenges + 20, challenges));
}

#[tokio::test]
async fn many_addresses_guess_as_often_as_the_accounts_take() {
    let (addresses, accounts) = if full_scale() { (1_000, 10_000) } else { (100, 200) };
    let guesses = Solver::with(addresses).hour_at(accounts).await;
    assert_eq!(guesses, 20 * accounts);
}

#[tokio::test]
async fn messages_end_with_their_budgets() {
    assert_eq!(Solver::with(1_000).day(1).await, 10, "to one number");
    assert_eq!(Solver::with(1).day(10_000_000).await, 480, "from one address");
    assert_eq!(Solver::with(1_000).day(10_000).await, 200, "to one prefix");
    assert_eq!(Solver::with(1_000).day(10_000_000).await, 10_000);
}
