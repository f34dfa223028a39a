//! `[limits.*]`: every limit there is with its default, and the owner's own ones.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::throttle::{Limit, LimitMode, Rule, RuleAction};

use super::reader::SectionReader;
use super::rules::{self, CaptchaRules};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The one table of our own limits: variant, field, name, whom it counts, what a hit is, whether a rule may ask for a
/// CAPTCHA, default rules.
macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident, $field:ident = $name:literal, $subject:ident, $unit:ident, $captcha:ident,
        [$($rule:expr),+];)+) => {
        /// Our own limits by name. What differs by limit is a method here, so that a new limit cannot forget it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum LimitName {
            $($(#[$doc])* $variant,)+
        }

        impl LimitName {
            /// In the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whom it counts.
            pub const fn subject(self) -> LimitSubject {
                match self { $(Self::$variant => LimitSubject::$subject,)+ }
            }

            /// What one hit is.
            pub const fn unit(self) -> LimitUnit {
                match self { $(Self::$variant => LimitUnit::$unit,)+ }
            }

            const fn captcha(self) -> CaptchaRules {
                match self { $(Self::$variant => CaptchaRules::$captcha,)+ }
            }

            /// The keys of its title and of what is said about it, in the locales.
            pub const fn words(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => (concat!("limit-name.", $name), concat!("limit-about.", $name)),)+ }
            }
        }

        /// Every limit in force. One that is switched off has no rules.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Limits {
            $($(#[$doc])* pub $field: Limit,)+
            /// The owner's own, by their names without `custom.`.
            pub custom: BTreeMap<String, Limit>,
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: built_in($name, vec![$($rule),+]),)+ custom: BTreeMap::new() }
            }
        }

        impl Limits {
            /// What the document names replaces its default wholly; the rest keep theirs.
            pub(super) fn read(section: &mut SectionReader<'_>) -> Self {
                let default = Self::default();
                Self {
                    $($field: read_one(section, $name, CaptchaRules::$captcha, default.$field),)+
                    custom: section.section("custom", custom),
                }
            }

            /// Our own limits in the order of the documentation, then the owner's.
            pub fn iter(&self) -> impl Iterator<Item = &Limit> {
                [$(&self.$field),+].into_iter().chain(self.custom.values())
            }
        }
    };
}

limits! {
    /// Failed sign-ins to one account.
    LoginAccount, login_account = "login-account", Account, SignIn, Possible,
        [Rule::sliding(3, MINUTE, RuleAction::Captcha), Rule::sliding(20, HOUR, RuleAction::Block)];
    /// Failed sign-ins to one account from one device that it was signed in to before, in place of
    /// `login-account`. Without rules there is no such place.
    LoginDevice, login_device = "login-device", Device, SignIn, Possible,
        [Rule::sliding(3, MINUTE, RuleAction::Captcha), Rule::sliding(10, HOUR, RuleAction::Block)];
    /// Failed sign-ins of strangers from one client address, which many may share: it asks, and blocks nobody.
    LoginAddress, login_address = "login-address", Address, SignIn, Possible,
        [Rule::sliding(20, MINUTE, RuleAction::Captcha), Rule::sliding(60, HOUR, RuleAction::Captcha)];
    /// The same from one network: a /48 is 65,536 addresses as they are counted, a /24 256. As many as ten of its
    /// addresses may have.
    LoginNetwork, login_network = "login-network", Network, SignIn, Possible, [Rule::sliding(600, HOUR, RuleAction::Captcha)];
    /// Accounts made from one client address.
    RegisterAddress, register_address = "register-address", Address, Registration, Possible, [Rule::sliding(100, HOUR, RuleAction::Block)];
    /// Challenge images drawn for one client address. Many may share it, so half of what its network has.
    CaptchaAddress, captcha_address = "captcha-address", Address, Image, IsTheThing, [Rule::sliding(600, MINUTE, RuleAction::Block)];
    /// Challenge images drawn for one network: a fifth of what there is.
    CaptchaNetwork, captcha_network = "captcha-network", Network, Image, IsTheThing, [Rule::sliding(1_200, MINUTE, RuleAction::Block)];
    /// Challenge images drawn for everyone: one takes about 2 ms of a core, so 6000 are a fifth of one. As it
    /// runs out each network may have less of it.
    CaptchaTotal, captcha_total = "captcha-total", Everyone, Image, IsTheThing, [Rule::sliding(6_000, MINUTE, RuleAction::Block)];
    /// Messages to one number. Alibaba Cloud refuses more than the blocks by itself; without the challenge ten
    /// asks of a stranger spend a number's day.
    SmsPhone, sms_phone = "sms-phone", Phone, Message, Possible,
        [Rule::sliding(1, MINUTE, RuleAction::Block), Rule::sliding(3, DAY, RuleAction::Captcha),
         Rule::sliding(5, HOUR, RuleAction::Block), Rule::sliding(10, DAY, RuleAction::Block)];
    /// Messages asked for from one client address.
    SmsAddress, sms_address = "sms-address", Address, Message, Possible,
        [Rule::sliding(10, HOUR, RuleAction::Captcha), Rule::sliding(20, HOUR, RuleAction::Block)];
    /// Messages asked for from one network, as one customer or one machine room has it: a /48 is 65,536
    /// addresses as they are counted.
    SmsNetwork, sms_network = "sms-network", Network, Message, Possible,
        [Rule::sliding(20, HOUR, RuleAction::Captcha), Rule::sliding(100, HOUR, RuleAction::Block)];
    /// Messages to one dialling prefix.
    SmsPrefix, sms_prefix = "sms-prefix", Prefix, Message, Possible,
        [Rule::sliding(40, DAY, RuleAction::Captcha), Rule::sliding(200, DAY, RuleAction::Block)];
    /// Messages to everyone: what the owner is ready to pay for, and a tenth of it without a challenge.
    SmsTotal, sms_total = "sms-total", Everyone, Message, Possible,
        [Rule::sliding(1_000, DAY, RuleAction::Captcha), Rule::sliding(10_000, DAY, RuleAction::Block)];
    /// Wrong codes for one number, whatever code was the current one.
    SmsGuess, sms_guess = "sms-guess", Phone, Guess, WouldGiveAway, [Rule::sliding(5, SECOND * 600, RuleAction::Block)];
}

/// How a refusal by the brake is named, beside the names of limits.
pub const SMS_BRAKE: &str = "sms-brake";

/// Whom a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSubject {
    Account,
    /// A device at an account.
    Device,
    Phone,
    Address,
    Network,
    /// A dialling prefix.
    Prefix,
    Everyone,
}

/// What one hit of a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitUnit {
    SignIn,
    Registration,
    /// Of a challenge, drawn by this process.
    Image,
    Message,
    Guess,
}

impl LimitName {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.as_str() == text)
    }

    /// Whether a rule may ask for a CAPTCHA.
    pub fn may_challenge(self) -> bool {
        self.captcha() == CaptchaRules::Possible
    }

    /// Whether each instance counts for itself.
    pub fn is_of_one_instance(self) -> bool {
        self.unit() == LimitUnit::Image
    }
}

impl Limits {
    /// Those that count messages sent, which the ledger must remember as long as they look back.
    pub fn on_messages(&self) -> [&Limit; 5] {
        [&self.sms_phone, &self.sms_address, &self.sms_network, &self.sms_prefix, &self.sms_total]
    }

    /// By its full name: `login-account`, `custom.reply`.
    pub fn get(&self, name: &str) -> Option<&Limit> {
        self.iter().find(|limit| limit.name() == name)
    }
}

fn built_in(name: &str, rules: Vec<Rule>) -> Limit {
    Limit::new(name, rules, LimitMode::Enforce).expect("the defaults are within bounds")
}

fn read_one(
    section: &mut SectionReader<'_>,
    name: &'static str,
    captcha: CaptchaRules,
    default: Limit,
) -> Limit {
    section.optional_section(name, |inner| rules::limit(inner, name, captcha)).flatten().unwrap_or(default)
}

fn custom(section: &mut SectionReader<'_>) -> BTreeMap<String, Limit> {
    let read = section.entries(custom_name, |name, inner| {
        rules::limit(inner, &format!("custom.{name}"), CaptchaRules::NobodyToAsk)
    });
    read.into_iter().filter_map(|(name, limit)| Some((name, limit?))).collect()
}

fn custom_name(name: &str) -> Result<(), String> {
    if is_custom_name(name) {
        Ok(())
    } else {
        Err("is not a valid limit name; use 1 to 64 of a-z, 0-9 and -".to_owned())
    }
}

/// Whether a limit of the owner's own may be called so.
pub fn is_custom_name(name: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}
