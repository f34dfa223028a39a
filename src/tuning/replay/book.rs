//! The logs of one limit, by the number of the subject.

use std::time::Duration;

use super::log::{EMPTY, Log, View, horizon};
use super::row::{self, Action, NOBODY, Row};
use crate::clock::Micros;
use crate::config::Limits;
use crate::throttle::{Limit, Then};

/// The limits that are replayed, in the order of [`limits`].
pub const NAMES: [&str; COUNT] = [
    "login-account",
    "login-address",
    "login-network",
    "register-address",
    "sms-phone",
    "sms-address",
    "sms-network",
    "sms-prefix",
    "sms-total",
    "sms-guess",
];
pub const COUNT: usize = 10;
pub const LOGIN_ACCOUNT: usize = 0;
const LOGIN_ADDRESS: usize = 1;
const LOGIN_NETWORK: usize = 2;
const REGISTER_ADDRESS: usize = 3;
const SMS_PHONE: usize = 4;
const SMS_ADDRESS: usize = 5;
const SMS_NETWORK: usize = 6;
const SMS_PREFIX: usize = 7;
const SMS_TOTAL: usize = 8;
const SMS_GUESS: usize = 9;
const EVERYONE: usize = row::KINDS;

/// Which limits an action is counted by, and whom of it: in the order in which they are asked.
const fn asked(action: Action) -> &'static [(usize, usize)] {
    match action {
        Action::SignIn => {
            &[(LOGIN_ACCOUNT, row::ACCOUNT), (LOGIN_ADDRESS, row::ADDRESS), (LOGIN_NETWORK, row::NETWORK)]
        }
        Action::Guess => {
            &[(SMS_GUESS, row::PHONE), (LOGIN_ADDRESS, row::ADDRESS), (LOGIN_NETWORK, row::NETWORK)]
        }
        Action::Answer | Action::GuessApart => {
            &[(LOGIN_ADDRESS, row::ADDRESS), (LOGIN_NETWORK, row::NETWORK)]
        }
        Action::Send => &[
            (SMS_PHONE, row::PHONE),
            (SMS_ADDRESS, row::ADDRESS),
            (SMS_NETWORK, row::NETWORK),
            (SMS_PREFIX, row::PREFIX),
            (SMS_TOTAL, EVERYONE),
        ],
        Action::Register => &[(REGISTER_ADDRESS, row::ADDRESS)],
        Action::Known | Action::Clear => &[],
    }
}

/// What the gateway would not have still counts for whoever asked for it.
pub const OF_THE_ASKER: [usize; 2] = [SMS_ADDRESS, SMS_NETWORK];

/// Whom a limit counts.
pub const fn kind_of(limit: usize) -> usize {
    match limit {
        LOGIN_ACCOUNT => row::ACCOUNT,
        LOGIN_ADDRESS | REGISTER_ADDRESS | SMS_ADDRESS => row::ADDRESS,
        LOGIN_NETWORK | SMS_NETWORK => row::NETWORK,
        SMS_PHONE | SMS_GUESS => row::PHONE,
        SMS_PREFIX => row::PREFIX,
        _ => EVERYONE,
    }
}

/// One limit that an attempt is counted by; no subject where the record has lost it.
#[derive(Debug, Clone, Copy)]
pub struct Lane {
    pub limit: usize,
    pub subject: u32,
}

impl Lane {
    pub const fn is_known(self) -> bool {
        self.subject != NOBODY
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Lanes {
    lanes: [Lane; 5],
    len: usize,
}

impl Lanes {
    pub fn of(row: &Row) -> Self {
        let mut asked = asked(row.action);
        // Recorded before there was that limit: it has nothing of it.
        let no_network = row.subjects[row::NETWORK] == NOBODY && row.subjects[row::ADDRESS] != NOBODY;
        if let ([others @ .., (LOGIN_NETWORK, _)], true) = (asked, no_network) {
            asked = others;
        }
        let mut lanes = [Lane { limit: 0, subject: NOBODY }; 5];
        for (lane, (limit, kind)) in lanes.iter_mut().zip(asked) {
            let subject = if *kind == EVERYONE { 0 } else { row.subjects[*kind] };
            *lane = Lane { limit: *limit, subject };
        }
        Self { lanes, len: asked.len() }
    }
}

impl std::ops::Deref for Lanes {
    type Target = [Lane];

    fn deref(&self) -> &[Lane] {
        &self.lanes[..self.len]
    }
}

pub fn limits(limits: &Limits) -> [&Limit; COUNT] {
    [
        &limits.login_account,
        &limits.login_address,
        &limits.login_network,
        &limits.register_address,
        &limits.sms_phone,
        &limits.sms_address,
        &limits.sms_network,
        &limits.sms_prefix,
        &limits.sms_total,
        &limits.sms_guess,
    ]
}

/// Whether a limit counts wrong answers to challenges: as the guard has it.
pub fn counts_answers(limit: &Limit) -> bool {
    limit.rules().iter().all(|rule| rule.then == Then::Captcha)
}

/// How far back any rule of the limit looks.
pub fn longest(limit: &Limit) -> Duration {
    limit.rules().iter().map(|rule| rule.span.longest()).max().unwrap_or_default()
}

#[derive(Debug)]
pub struct Book {
    pub limit: Limit,
    pub longest: Duration,
    places: Vec<u32>,
    logs: Vec<Log>,
    free: Vec<u32>,
    sweep_at: usize,
    /// Up to then any log of it may have been forgiven: whose, is not recorded.
    void: Micros,
    /// Until then any log of it may hold hits whose subject is not recorded.
    pub anyone_until: Micros,
}

/// Fewer than this are not worth looking through for what is over.
const SWEEP_FROM: usize = 1024;

impl Book {
    pub fn new(limit: &Limit, number: usize, subjects: &[u32; row::KINDS]) -> Self {
        let kind = kind_of(number);
        let count = if kind == EVERYONE { 1 } else { subjects[kind] as usize };
        let count = if limit.rules().is_empty() { 0 } else { count };
        Self {
            limit: limit.clone(),
            longest: longest(limit),
            places: vec![NOBODY; count],
            logs: Vec::new(),
            free: Vec::new(),
            sweep_at: SWEEP_FROM,
            void: Micros(i64::MIN),
            anyone_until: Micros(i64::MIN),
        }
    }

    pub fn is_off(&self) -> bool {
        self.limit.rules().is_empty()
    }

    pub fn capacity(&self) -> usize {
        self.limit.capacity() as usize
    }

    /// Brings a log up to this moment, and says whether all its worlds are one.
    pub fn touch(&mut self, subject: u32, now: Micros) -> bool {
        let (horizon, void) = (horizon(self.longest, now), self.void);
        self.existing(subject).is_none_or(|log| {
            log.void_up_to(void);
            log.touch(horizon);
            log.is_one()
        })
    }

    pub fn view(&self, subject: u32, world: usize) -> View<'_> {
        match self.places.get(subject as usize) {
            Some(place) if *place != NOBODY => self.logs[*place as usize].view(world),
            _ => EMPTY,
        }
    }

    pub fn existing(&mut self, subject: u32) -> Option<&mut Log> {
        let place = *self.places.get(subject as usize)?;
        (place != NOBODY).then(|| &mut self.logs[place as usize])
    }

    /// The subject's log, made where there is none.
    pub fn open(&mut self, subject: u32, now: Micros) -> &mut Log {
        if self.places[subject as usize] == NOBODY {
            if self.free.is_empty() && self.logs.len() >= self.sweep_at {
                self.sweep(now);
            }
            let mut log = Log::new(subject);
            log.void_up_to(self.void);
            let place = match self.free.pop() {
                Some(place) => {
                    self.logs[place as usize] = log;
                    place
                }
                None => {
                    self.logs.push(log);
                    self.logs.len() as u32 - 1
                }
            };
            self.places[subject as usize] = place;
        }
        &mut self.logs[self.places[subject as usize] as usize]
    }

    fn sweep(&mut self, now: Micros) {
        let horizon = horizon(self.longest, now);
        for (place, log) in self.logs.iter_mut().enumerate() {
            if log.subject != NOBODY && log.is_over(horizon) {
                self.places[log.subject as usize] = NOBODY;
                *log = Log::new(NOBODY);
                self.free.push(place as u32);
            }
        }
        self.sweep_at = SWEEP_FROM.max(2 * (self.logs.len() - self.free.len()));
    }

    pub fn void_all(&mut self, up_to: Micros) {
        self.void = self.void.max(up_to);
    }
}
