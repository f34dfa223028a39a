//! Attempts of honest people, attackers and programs; each seed makes another week.

use crate::tuning::replay::row::ReplayAction;

/// 2026-03-01 12:00:00 UTC.
pub const BEGIN: i64 = 1_772_366_400_000_000;
pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;

#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// No two at the same time.
    pub at: i64,
    pub action: ReplayAction,
    /// Account, address, network, phone, prefix, device.
    pub subjects: [Option<i64>; 6],
    pub right: bool,
    pub solved: bool,
    /// How long it is verified, or with the gateway.
    pub lasts: i64,
}

/// SplitMix64: the same in every run.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, most: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % most.max(1) as u64) as i64
    }

    fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub days: i64,
    pub people: i64,
    /// Verification takes time, so that attempts are in flight at the same time.
    pub slow: bool,
}

struct Week {
    chance: Chance,
    /// Only for wrong answers and known devices, so that the rest of a week does not change with them.
    others: Chance,
    shape: Shape,
    attempts: Vec<Attempt>,
}

pub fn week(seed: u64, shape: Shape) -> Vec<Attempt> {
    let chance = Chance(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let mut week = Week { chance, others: Chance(seed), shape, attempts: Vec::new() };
    for person in 0..shape.people {
        week.person(person);
    }
    week.attack_on_one(7_000);
    week.spray(8_000);
    week.bursts();
    week.pumping(9_000);
    week.registrations();
    let mut attempts = week.attempts;
    for realm in 1..=2_i64 {
        let seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(realm.unsigned_abs());
        attempts.extend(realm_week(seed, shape).into_iter().filter_map(|attempt| attempt.in_realm(realm)));
    }
    attempts.sort_by_key(|attempt| attempt.at);
    for index in 1..attempts.len() {
        attempts[index].at = attempts[index].at.max(attempts[index - 1].at + 1);
    }
    attempts
}

/// What happens at the login of another program.
fn realm_week(seed: u64, shape: Shape) -> Vec<Attempt> {
    let mut week = Week { chance: Chance(seed), others: Chance(!seed), shape, attempts: Vec::new() };
    for person in 0..shape.people / 3 {
        week.person(person);
    }
    week.attack_on_one(7_000);
    week.spray(8_000);
    week.attempts
}

/// Subjects of the n-th realm have numbers from n times this on; the rest is the same name or address elsewhere.
pub const REALM: i64 = 1_000_000;

impl Attempt {
    /// The same at another program's login, which counts for itself; None if it is no password.
    fn in_realm(self, realm: i64) -> Option<Self> {
        let action = match self.action {
            ReplayAction::SignIn => ReplayAction::Attempt,
            ReplayAction::DeviceSignIn => ReplayAction::DeviceAttempt,
            ReplayAction::Answer => ReplayAction::AttemptAnswer,
            _ => return None,
        };
        let subjects = self.subjects.map(|subject| subject.map(|subject| subject + realm * REALM));
        Some(Self { action, subjects, ..self })
    }
}

impl Week {
    fn length(&self) -> i64 {
        self.shape.days * 24 * HOUR
    }

    fn sign_in(&mut self, at: i64, account: i64, address: i64, right: bool) {
        self.sign_in_from(None, at, [account, address], right);
    }

    fn sign_in_from(&mut self, device: Option<i64>, at: i64, [account, address]: [i64; 2], right: bool) {
        let lasts = if self.shape.slow { self.chance.below(SECOND) } else { 0 };
        let solved = self.chance.one_in(3);
        let subjects = [Some(account), Some(address), Some(address / 4), None, None, device];
        // Sometimes a challenge that was not solved.
        if self.others.one_in(8) {
            let (action, subjects) =
                (ReplayAction::Answer, [None, Some(address), Some(address / 4), None, None, None]);
            let answer = Attempt { at: at - 1, action, subjects, right: false, solved: false, lasts: 0 };
            self.attempts.push(answer);
        }
        let action = if device.is_some() { ReplayAction::DeviceSignIn } else { ReplayAction::SignIn };
        self.attempts.push(Attempt { at, action, subjects, right, solved, lasts });
    }

    fn code(&mut self, at: i64, action: ReplayAction, phone: i64, address: i64, right: bool) {
        let lasts = if self.shape.slow { self.chance.below(SECOND) } else { 0 };
        let send = action == ReplayAction::Send;
        let prefix = send.then_some(phone / 50);
        let subjects = [None, Some(address), Some(address / 4), Some(phone), prefix, None];
        let solved = self.chance.one_in(4);
        self.attempts.push(Attempt { at, action, subjects, right, solved, lasts });
    }

    /// Signs in now and then, often mistypes, sometimes gives up; sometimes requests a code.
    fn person(&mut self, person: i64) {
        for _ in 0..2 + self.chance.below(2 * self.shape.days) {
            let mut at = BEGIN + self.chance.below(self.length());
            let address = 100 + person / 3;
            if self.chance.one_in(4) {
                self.code(at, ReplayAction::Send, person, address, !self.chance.0.is_multiple_of(9));
                at += 20 * SECOND;
                for _ in 0..self.chance.below(3) {
                    self.code(at, ReplayAction::Guess, person, address, false);
                    at += SECOND + self.chance.below(30 * SECOND);
                }
                self.code(at, ReplayAction::Guess, person, address, true);
                continue;
            }
            let device = self.others.one_in(2).then_some(person);
            for _ in 0..self.chance.below(5) {
                self.sign_in_from(device, at, [person, address], false);
                at += SECOND / 5 + self.chance.below(20 * SECOND);
            }
            if !self.chance.one_in(6) {
                self.sign_in_from(device, at, [person, address], true);
            }
        }
    }

    /// Attempts at somebody else's password, again and again, with the owner in between.
    fn attack_on_one(&mut self, account: i64) {
        let mut at = BEGIN + self.chance.below(self.length() / 2);
        let end = at + 2 * HOUR + self.chance.below(4 * HOUR);
        while at < end {
            let address = 900 + self.chance.below(3);
            self.sign_in(at, account, address, false);
            if self.chance.one_in(60) {
                self.sign_in(at + SECOND / 3, account, 99, true);
            }
            at += if self.chance.one_in(50) {
                self.chance.below(10 * MINUTE)
            } else {
                self.chance.below(40 * SECOND)
            };
        }
    }

    /// A few passwords at many accounts, from few addresses; once in a while one is right.
    fn spray(&mut self, first: i64) {
        let begin = BEGIN + self.chance.below(self.length());
        for number in 0..150 {
            let at = begin + number * (SECOND + self.chance.below(6 * SECOND));
            let right = self.chance.one_in(40);
            let (account, address) = (first + self.chance.below(40), 950 + self.chance.below(2));
            self.sign_in(at, account, address, right);
        }
    }

    /// Everything at once.
    fn bursts(&mut self) {
        for burst in 0..6 {
            let at = BEGIN + self.chance.below(self.length());
            let account = if burst % 2 == 0 { 7_000 } else { 10 };
            for number in 0..12 {
                let right = self.chance.one_in(4);
                self.sign_in(at + number * 20, account, 960 + burst, right);
            }
        }
    }

    /// Numbers without accounts, one after the other, and guesses at codes.
    fn pumping(&mut self, first: i64) {
        let begin = BEGIN + self.chance.below(self.length());
        for number in 0..150 {
            let at = begin + number * (3 * SECOND + self.chance.below(20 * SECOND));
            let (phone, address) = (first + self.chance.below(30), 970 + self.chance.below(6));
            if self.chance.one_in(4) {
                let right = self.chance.one_in(20);
                self.code(at, ReplayAction::Guess, phone, address, right);
            } else {
                let taken = !self.chance.one_in(5);
                self.code(at, ReplayAction::Send, phone, address, taken);
            }
        }
    }

    fn registrations(&mut self) {
        for _ in 0..60 {
            let at = BEGIN + self.chance.below(self.length());
            let subjects = [None, Some(980 + self.chance.below(3)), None, None, None, None];
            let attempt = Attempt {
                at,
                action: ReplayAction::Register,
                subjects,
                right: true,
                solved: false,
                lasts: 0,
            };
            self.attempts.push(attempt);
        }
    }
}
