//! `[limits.*]`: every limit with its default, and custom limits.

use std::collections::BTreeMap;
use std::time::Duration;

use gatehouse_limiter::{
    CalendarUnit, LONGEST_WINDOW, Limit, LimitError, LimitMode, MAX_HITS, MOST_RULES, Rule, RuleAction,
    RuleSpan, SHORTEST_WINDOW,
};
use jiff::tz::TimeZone;

use super::document::ValueNode;
use super::error::ConfigLocation;
use super::reader::{ParseResult, SectionReader};
use super::values::{DAY, HOUR, MINUTE, SECOND, duration, integer, word};

/// Wrong passwords at one account, here and at the logins of other programs. So are the following.
fn at_an_account() -> [Rule; 2] {
    [Rule::sliding(3, MINUTE, RuleAction::Captcha), Rule::sliding(20, HOUR, RuleAction::Block)]
}

fn from_a_device() -> [Rule; 2] {
    [Rule::sliding(3, MINUTE, RuleAction::Captcha), Rule::sliding(10, HOUR, RuleAction::Block)]
}

fn from_an_address() -> [Rule; 2] {
    [Rule::sliding(20, MINUTE, RuleAction::Captcha), Rule::sliding(60, HOUR, RuleAction::Captcha)]
}

/// The wrong passwords that ten addresses may have.
fn from_a_network() -> [Rule; 1] {
    [Rule::sliding(600, HOUR, RuleAction::Captcha)]
}

/// Wrong codes of an authenticator app, after a right first factor.
fn wrong_factors() -> [Rule; 2] {
    [Rule::sliding(5, SECOND * 600, RuleAction::Block), Rule::sliding(20, DAY, RuleAction::Block)]
}

/// Messages that an address asks for. So are the following: of our pages, and of each other program.
fn messages_of_an_address() -> [Rule; 2] {
    [Rule::sliding(10, HOUR, RuleAction::Captcha), Rule::sliding(20, HOUR, RuleAction::Block)]
}

fn messages_of_a_network() -> [Rule; 2] {
    [Rule::sliding(20, HOUR, RuleAction::Captcha), Rule::sliding(100, HOUR, RuleAction::Block)]
}

fn messages_to_one() -> [Rule; 4] {
    [
        Rule::sliding(1, MINUTE, RuleAction::Block),
        Rule::sliding(3, DAY, RuleAction::Captcha),
        Rule::sliding(5, HOUR, RuleAction::Block),
        Rule::sliding(10, DAY, RuleAction::Block),
    ]
}

fn messages_to_a_prefix() -> [Rule; 2] {
    [Rule::sliding(40, DAY, RuleAction::Captcha), Rule::sliding(200, DAY, RuleAction::Block)]
}

/// The table of the built-in limits: variant, field, name, subject, unit, whether a rule may ask for a
/// CAPTCHA, default rules.
macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident, $field:ident = $name:literal, $subject:ident, $unit:ident, $captcha:ident,
        $rules:expr;)+) => {
        /// The built-in limits by name. What differs by limit is a method here, so that a new limit cannot
        /// miss it.
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

            pub const fn subject(self) -> LimitSubject {
                match self { $(Self::$variant => LimitSubject::$subject,)+ }
            }

            pub const fn unit(self) -> LimitUnit {
                match self { $(Self::$variant => LimitUnit::$unit,)+ }
            }

            const fn captcha(self) -> CaptchaRules {
                match self { $(Self::$variant => CaptchaRules::$captcha,)+ }
            }

            /// The locale keys of its title and its description.
            pub const fn words(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => (concat!("limit-name.", $name), concat!("limit-about.", $name)),)+ }
            }
        }

        /// Every limit in force. One that is switched off has no rules.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Limits {
            $($(#[$doc])* pub $field: Limit,)+
            /// Custom limits, by their names without `custom.`.
            pub custom: BTreeMap<String, Limit>,
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: built_in($name, Vec::from($rules)),)+ custom: BTreeMap::new() }
            }
        }

        impl Limits {
            /// A limit in the document replaces its default completely; the others keep theirs.
            pub(super) fn read(section: &mut SectionReader<'_>) -> Self {
                let default = Self::default();
                Self {
                    $($field: read_one(section, $name, CaptchaRules::$captcha, default.$field),)+
                    custom: section.section("custom", custom),
                }
            }

            /// Each built-in limit replaced by what `change` makes of it.
            pub(crate) fn map(&self, change: impl Fn(LimitName, &Limit) -> Limit) -> Self {
                Self {
                    $($field: change(LimitName::$variant, &self.$field),)+
                    custom: self.custom.clone(),
                }
            }

            pub fn iter(&self) -> impl Iterator<Item = &Limit> {
                [$(&self.$field),+].into_iter().chain(self.custom.values())
            }
        }
    };
}

limits! {
    /// Failed sign-ins to one account.
    LoginAccount, login_account = "login-account", Account, SignIn, Possible, at_an_account();
    /// Failed sign-ins to one account from one known device, counted here instead of in `login-account`.
    /// Without rules, devices are strangers.
    LoginDevice, login_device = "login-device", Device, SignIn, Possible, from_a_device();
    /// Failed sign-ins of strangers from one client address. Many may share it, so it challenges and blocks
    /// nobody.
    LoginAddress, login_address = "login-address", Address, SignIn, Possible, from_an_address();
    /// Wrong passwords from one network: a /48 is 65,536 addresses as they are counted, a /24 is 256.
    LoginNetwork, login_network = "login-network", Network, SignIn, Possible, from_a_network();
    /// Names at which one password was wrong: a detector, whose `max` is the floor of what it takes for an attack.
    LoginGuess, login_guess = "login-guess", Password, Name, OnlyAsks, [Rule::sliding(5, HOUR, RuleAction::Captcha)];
    /// Wrong codes of an authenticator app for one account, of strangers, whose first factor was right.
    FactorAccount, factor_account = "factor-account", Account, Factor, WouldGiveAway, wrong_factors();
    /// Wrong second factors from one known device, counted here instead: a thief of the password takes nothing from
    /// the owner.
    FactorDevice, factor_device = "factor-device", Device, Factor, WouldGiveAway, wrong_factors();
    /// Secrets, codes and tokens from one address that clients of OpenID Connect were never given. Many may share it, and
    /// what is right is never refused.
    OidcAddress, oidc_address = "oidc-address", Address, ClientCall, NobodyToAsk, [Rule::sliding(20, MINUTE, RuleAction::Block)];
    /// Late repeats of one grant's refresh token. SQL counts them, in the transaction of the grant.
    OidcRepeat, oidc_repeat = "oidc-repeat", Grant, Repeat, NobodyToAsk, [Rule::sliding(3, DAY, RuleAction::Block)];
    /// Failed attempts at one account of another program's login.
    GuardAccount, guard_account = "guard-account", RealmAccount, Attempt, Possible, at_an_account();
    /// Failed attempts from one device that has signed in there, counted here instead of in `guard-account`.
    GuardDevice, guard_device = "guard-device", RealmDevice, Attempt, Possible, from_a_device();
    /// Failed attempts of strangers from one address at another program's login.
    GuardAddress, guard_address = "guard-address", RealmAddress, Attempt, Possible, from_an_address();
    /// Failed attempts of strangers from one network.
    GuardNetwork, guard_network = "guard-network", RealmNetwork, Attempt, Possible, from_a_network();
    /// Accounts created from one client address, and names found taken. Many may share it, so it challenges and
    /// blocks nobody. As many as messages, which most newcomers ask for: a family or an office at once, unasked.
    RegisterAddress, register_address = "register-address", Address, Registration, Possible, [Rule::sliding(10, HOUR, RuleAction::Captcha)];
    /// Challenge images drawn for one client address, and a tenth of its answered proofs of work. Many may share it,
    /// so it gets half of what its network gets.
    CaptchaAddress, captcha_address = "captcha-address", Address, Image, IsTheThing, [Rule::sliding(60, MINUTE, RuleAction::Block)];
    /// Images for one network: a fifth of the total.
    CaptchaNetwork, captcha_network = "captcha-network", Network, Image, IsTheThing, [Rule::sliding(120, MINUTE, RuleAction::Block)];
    /// Images for everyone at our own forms, and for everyone at one other program. An image takes 1.4 ms of a core,
    /// so 600 a minute are 1.4 % of one. As it runs out, each network may have fewer.
    CaptchaTotal, captcha_total = "captcha-total", Everyone, Image, IsTheThing, [Rule::sliding(600, MINUTE, RuleAction::Block)];
    /// Messages to one number. Alibaba Cloud itself refuses more than the blocks; without the challenge, ten
    /// requests of a stranger would use up a number's day.
    SmsPhone, sms_phone = "sms-phone", Phone, Message, Possible, messages_to_one();
    /// Messages requested from one client address at our own pages.
    SmsAddress, sms_address = "sms-address", Address, Message, Possible, messages_of_an_address();
    /// Messages requested from one network, such as one customer or one data centre: a /48 is 65,536
    /// addresses as they are counted.
    SmsNetwork, sms_network = "sms-network", Network, Message, Possible, messages_of_a_network();
    /// Messages to one dialling prefix, requested at our own pages.
    SmsPrefix, sms_prefix = "sms-prefix", Prefix, Message, Possible, messages_to_a_prefix();
    /// All messages: what the owner is ready to pay for, and a tenth of it without a challenge.
    SmsTotal, sms_total = "sms-total", Everyone, Message, Possible,
        [Rule::sliding(1_000, DAY, RuleAction::Captcha), Rule::sliding(10_000, DAY, RuleAction::Block)];
    /// Messages that another program has asked for on behalf of one client address. Each program counts for itself:
    /// strangers here or there spend nothing that its users need. So do the following.
    ProgramAddress, program_address = "program-address", ProgramAddress, Message, Possible, messages_of_an_address();
    /// Messages of another program for one network.
    ProgramNetwork, program_network = "program-network", ProgramNetwork, Message, Possible, messages_of_a_network();
    /// Messages of another program to one dialling prefix.
    ProgramPrefix, program_prefix = "program-prefix", ProgramPrefix, Message, Possible, messages_to_a_prefix();
    /// Messages that one other program has asked for, by token: a fifth of what all may have, and as many of them
    /// without a challenge as our own pages may have.
    VerifyToken, verify_token = "verify-token", Program, Message, Possible,
        [Rule::sliding(1_000, DAY, RuleAction::Captcha), Rule::sliding(2_000, DAY, RuleAction::Block)];
    /// Messages that one identity provider has had sent.
    RelayToken, relay_token = "relay-token", Program, Message, Possible, [Rule::sliding(2_000, DAY, RuleAction::Block)];
    /// Wrong codes for one number; a new code does not reset the count.
    SmsGuess, sms_guess = "sms-guess", Phone, Guess, WouldGiveAway, [Rule::sliding(5, SECOND * 600, RuleAction::Block)];
    /// Mails with a code to one mailbox, in whichever spelling.
    MailMailbox, mail_mailbox = "mail-mailbox", Mailbox, Mail, Possible, messages_to_one();
    /// Codes to addresses of one domain that do not come back: a detector, whose `max` is the floor of what it takes for
    /// strangers who have mail sent to others. It asks for challenges and shuts nobody out.
    MailDomain, mail_domain = "mail-domain", MailDomain, Mail, OnlyAsks, [Rule::sliding(100, DAY, RuleAction::Captcha)];
    /// Mails with a code that one client address asks for.
    MailAddress, mail_address = "mail-address", Address, Mail, Possible, messages_of_an_address();
    /// Mails with a code that one network asks for.
    MailNetwork, mail_network = "mail-network", Network, Mail, Possible, messages_of_a_network();
    /// All mails with a code: what the server that delivers takes of us in a day, and a tenth of it without a challenge.
    MailTotal, mail_total = "mail-total", Everyone, Mail, Possible,
        [Rule::sliding(1_000, DAY, RuleAction::Captcha), Rule::sliding(10_000, DAY, RuleAction::Block)];
    /// Mails that tell an owner of sign-ins from new devices. SQL counts them, where they are written.
    MailNotice, mail_notice = "mail-notice", Mailbox, Mail, NobodyAsks, [Rule::sliding(10, DAY, RuleAction::Block)];
    /// Wrong codes for one mailbox. Codes by mail live longer than those by SMS, so that the window is longer, too.
    MailGuess, mail_guess = "mail-guess", Mailbox, Guess, WouldGiveAway, [Rule::sliding(5, SECOND * 1_800, RuleAction::Block)];
}

/// The name of a refusal by the brake, next to the names of limits.
pub const SMS_BRAKE: &str = "sms-brake";

/// What an answer names if the country of a number, or a prefix that is listed, asks for a challenge.
pub const SMS_COUNTRY: &str = "sms-country";

/// What an answer names if messages have cost what a day may cost.
pub const SMS_BUDGET: &str = "sms-budget";

/// The names, beside those of limits, that refusals of messages bear.
pub const BESIDE_LIMITS: [&str; 3] = [SMS_BRAKE, SMS_BUDGET, SMS_COUNTRY];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSubject {
    Account,
    /// A device at an account.
    Device,
    Phone,
    /// The mailbox of an e-mail address.
    Mailbox,
    /// The domain of an e-mail address, of codes that do not come back.
    MailDomain,
    Address,
    Network,
    Prefix,
    Everyone,
    /// Another program, by the name in the scope of its token.
    Program,
    /// An address that a program states. So are the following: each counts for one program.
    ProgramAddress,
    ProgramNetwork,
    ProgramPrefix,
    /// A name in a realm: at another program's login.
    RealmAccount,
    RealmDevice,
    RealmAddress,
    RealmNetwork,
    /// What a client of OpenID Connect was let have of somebody. Nobody can name one.
    Grant,
    /// One password, at whatever names. Nobody can name one.
    Password,
}

/// What one hit of a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitUnit {
    SignIn,
    /// A name at which a password was wrong.
    Name,
    /// A code of an authenticator app.
    Factor,
    /// A call of a client of OpenID Connect.
    ClientCall,
    /// A refresh token that comes again.
    Repeat,
    /// An attempt at another program's login.
    Attempt,
    Registration,
    /// A challenge image, drawn by this process.
    Image,
    Message,
    /// A mail with a code, or a notice.
    Mail,
    Guess,
}

impl LimitName {
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.as_str() == text)
    }

    pub fn may_challenge(self) -> bool {
        matches!(self.captcha(), CaptchaRules::Possible | CaptchaRules::OnlyAsks)
    }

    pub fn is_of_one_instance(self) -> bool {
        self.unit() == LimitUnit::Image
    }
}

impl Limits {
    /// The limits on messages. The ledger must remember messages for as long as they look back.
    pub fn on_messages(&self) -> impl Iterator<Item = &Limit> {
        let named = LimitName::ALL.iter().zip(self.iter());
        named.filter(|(name, _)| name.unit() == LimitUnit::Message).map(|(_, limit)| limit)
    }

    /// The limits on mails with a code, whose windows are rebuilt from the ledger.
    pub fn on_mails(&self) -> impl Iterator<Item = &Limit> {
        [&self.mail_mailbox, &self.mail_address, &self.mail_network, &self.mail_total].into_iter()
    }

    /// For a client in `[access] allow`: the limits of addresses and networks are ten times as high.
    #[must_use]
    pub(super) fn lifted(&self) -> Self {
        self.map(|name, limit| match name.subject() {
            LimitSubject::Address
            | LimitSubject::Network
            | LimitSubject::RealmAddress
            | LimitSubject::RealmNetwork
            | LimitSubject::ProgramAddress
            | LimitSubject::ProgramNetwork => limit.times(LIFTED_BY),
            _ => limit.clone(),
        })
    }

    /// Returns these limits over logs that keep as many hits as the others need.
    #[must_use]
    pub(super) fn keeping_for(&self, others: &Self) -> Self {
        self.map(|name, limit| match others.get(name.as_str()) {
            Some(other) => limit.keeping(other.capacity()),
            None => limit.clone(),
        })
    }

    /// Finds a limit by its full name: `login-account`, `custom.reply`.
    pub fn get(&self, name: &str) -> Option<&Limit> {
        self.iter().find(|limit| limit.name() == name)
    }
}

fn built_in(name: &str, rules: Vec<Rule>) -> Limit {
    Limit::new(name, rules, LimitMode::Enforce).expect("the defaults are within bounds")
}

/// How many times as many hits an exempt client may have.
const LIFTED_BY: u32 = 10;

fn read_one(
    section: &mut SectionReader<'_>,
    name: &'static str,
    captcha: CaptchaRules,
    default: Limit,
) -> Limit {
    section.optional_section(name, |inner| limit(inner, name, captcha)).flatten().unwrap_or(default)
}

/// The most custom limits: as many as applications.
const MOST_CUSTOM: usize = 200;

fn custom(section: &mut SectionReader<'_>) -> BTreeMap<String, Limit> {
    let read = section.entries(MOST_CUSTOM, custom_name, |name, inner| {
        limit(inner, &format!("custom.{name}"), CaptchaRules::NobodyToAsk)
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

/// Whether this is a valid name for a custom limit.
pub fn is_custom_name(name: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

/// Whether a rule of the limit may say `then = "captcha"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaptchaRules {
    Possible,
    /// It must: strangers who fill it must not lock out those whose password or domain it is.
    OnlyAsks,
    /// The limit counts challenges themselves.
    IsTheThing,
    /// Programs use the limit, and have no form of ours.
    NobodyToAsk,
    /// The limit counts what nobody has asked for.
    NobodyAsks,
    /// The limit protects a secret of six digits, which anybody who has CAPTCHAs solved could try one by one.
    WouldGiveAway,
}

/// The limit in a section; `None` if something in it was refused.
pub(super) fn limit(section: &mut SectionReader<'_>, name: &str, captcha: CaptchaRules) -> Option<Limit> {
    let mode = section.value(
        "mode",
        LimitMode::Enforce,
        word(&[("enforce", LimitMode::Enforce), ("monitor", LimitMode::Monitor)]),
    );
    let read = section.tables("rules", MOST_RULES, |inner| (inner.place().cloned(), rule(inner, captcha)));
    if !section.has("rules") {
        let reason = "is missing; list the rules, or write rules = [] to switch the limit off";
        section.refuse_key("rules", reason);
        return None;
    }
    let (places, rules): (Vec<Option<ConfigLocation>>, Vec<Option<Rule>>) = read?.into_iter().unzip();
    if section.failed() {
        return None;
    }
    let rules: Vec<Rule> = rules.into_iter().collect::<Option<_>>()?;
    let counted_once = if captcha == CaptchaRules::OnlyAsks {
        Some("a detector has one window")
    } else {
        (name == LimitName::MailNotice.as_str()).then_some("notices are counted in one window")
    };
    if let Some(why) = counted_once.filter(|_| !is_one_window(&rules)) {
        section.refuse_key("rules", format!("must be one rule with a window of 10m to 24h: {why}"));
        return None;
    }
    let refused = |wrong: LimitError| match wrong.rule() {
        Some(index) => {
            if let Some(place) = places.get(index).cloned().flatten().or_else(|| section.place_of("rules")) {
                section.refuse(place, format!("{}[{index}]", section.path_of("rules")), wrong.to_string());
            }
        }
        None => section.refuse_key("rules", wrong.to_string()),
    };
    Limit::new(name, rules, mode).map_err(refused).ok()
}

fn rule(section: &mut SectionReader<'_>, captcha: CaptchaRules) -> Option<Rule> {
    // All are read before the first failure ends it, so that every mistake is reported.
    let missing = "is missing; write how many hits the rule admits";
    let max = section.required("max", missing, integer(1..=MAX_HITS));
    let unsaid = if captcha == CaptchaRules::OnlyAsks { RuleAction::Captcha } else { RuleAction::Block };
    let then = section.value("then", unsaid, |node| then(node, captcha));
    let span = span(section);
    Some(Rule { max: max?, span: span?, then })
}

fn then(node: ValueNode, captcha: CaptchaRules) -> ParseResult<RuleAction> {
    let then = word(&[("captcha", RuleAction::Captcha), ("block", RuleAction::Block)])(node)?;
    match (then, captcha) {
        (RuleAction::Block, CaptchaRules::OnlyAsks) => {
            Err("cannot be \"block\": strangers who fill it would lock out the people whose password or domain it is; use \"captcha\""
                .to_owned())
        }
        (RuleAction::Captcha, CaptchaRules::OnlyAsks | CaptchaRules::Possible) | (RuleAction::Block, _) => Ok(then),
        (RuleAction::Captcha, CaptchaRules::IsTheThing) => {
            Err("cannot be \"captcha\": this limit counts CAPTCHAs; use \"block\"".to_owned())
        }
        (RuleAction::Captcha, CaptchaRules::NobodyToAsk) => {
            Err("cannot be \"captcha\": programs have no form to show one; use \"block\"".to_owned())
        }
        (RuleAction::Captcha, CaptchaRules::NobodyAsks) => {
            Err("cannot be \"captcha\": nobody asks for notices, so there is nobody to challenge; use \"block\", which folds them"
                .to_owned())
        }
        (RuleAction::Captcha, CaptchaRules::WouldGiveAway) => {
            Err("cannot be \"captcha\": anyone who solves CAPTCHAs could try every code; use \"block\""
                .to_owned())
        }
    }
}

fn is_one_window(rules: &[Rule]) -> bool {
    let fits = |window: &Duration| (SECOND * 600..=DAY).contains(window);
    match rules {
        [] => true,
        [Rule { span: RuleSpan::Sliding(window), .. }] => fits(window),
        _ => false,
    }
}

/// Exactly one of `window` and `per`.
fn span(section: &mut SectionReader<'_>) -> Option<RuleSpan> {
    let window = section.optional("window", duration(SHORTEST_WINDOW..=LONGEST_WINDOW));
    let units = CalendarUnit::ALL.map(|unit| (unit.as_str(), unit));
    let unit = section.optional("per", word(&units));
    let zone = section.value("timezone", TimeZone::UTC, zone);
    match (section.has("window"), section.has("per")) {
        (true, true) => {
            let reason = "cannot be combined with window; keep one of them: window is sliding, per follows the calendar";
            section.refuse_key("per", reason);
            None
        }
        (false, false) => {
            let reason =
                "has neither window nor per; add window = \"1h\" (sliding) or per = \"day\" (calendar)";
            section.refuse_table(reason);
            None
        }
        (true, false) if section.has("timezone") => {
            let reason = "is only valid with per; a sliding window is the same in every time zone";
            section.refuse_key("timezone", reason);
            None
        }
        (true, false) => window.map(|window: Duration| RuleSpan::Sliding(window)),
        (false, true) => unit.map(|unit| RuleSpan::Calendar { unit, zone }),
    }
}

fn zone(node: ValueNode) -> ParseResult<TimeZone> {
    let name = node.text()?;
    TimeZone::get(&name).map_err(|_| {
        format!("{name:?} is not a time zone; write an IANA name such as \"Asia/Shanghai\" or \"UTC\"")
    })
}
