//! Whether a message is sent, and which part of the budgets it uses. Pure: docs/sms.md says the same in tables, and a test
//! here walks them. [`decide`] never depends on who owns the number; only the share does.

use std::borrow::Cow;
use std::time::Duration;

use gatehouse_limiter::{Refusal, RuleAction};
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::recipient::Channel;
use super::request::TRY_AGAIN;
use crate::clock::Micros;
use crate::config::{LimitName, SMS_BRAKE, SMS_BUDGET, SMS_COUNTRY};
use crate::denied::{ACCESS, BUSY};
use crate::message::{MessagePurpose, Purpose};
use crate::sms::brake::BrakedPrefix;

/// What may stand in the way of a request, in the order in which it is looked for. At the end the ledger looks for brakes
/// and full rules of the number again.
#[derive(Debug, Clone)]
pub enum Obstacle {
    /// Messages to the prefix are paused for that long.
    Paused(Duration),
    /// Everyone is challenged for that long.
    EveryoneChallenged(Duration),
    /// The number's country, or a prefix that is listed, always asks for a challenge.
    AlwaysChallenged,
    /// What messages may cost is spent, but for what is kept for accounts.
    MoneySpent,
    /// The prefix asks for a challenge, or is under a brake.
    Brake(BrakedPrefix),
    /// The windows are out of reach, or not rebuilt yet.
    StoreOut,
    /// A rule of that limit is full.
    Limit(String, Refusal),
    /// No more messages may be in flight, in all or for the requester.
    NoSlot,
}

/// What is told as the time after which to ask again without a challenge, where there is none.
const ASK_AGAIN: Duration = Duration::from_secs(60 * 60);

/// What is known of a request when it meets something.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub purpose: &'a MessagePurpose,
    /// A challenge was solved with it.
    pub solved: bool,
    pub path: SendPath,
    pub met: &'a Obstacle,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendDecision {
    /// The request goes on, by that path.
    GoOn(SendPath),
    /// It is refused until a challenge is solved with it.
    Challenge,
    /// It is refused for some time, whatever comes with it.
    Throttle,
    /// It is refused for now, because of something that is out, paused or at work.
    Unavailable,
}

/// The way of a request through the budgets: who is sent to, and out of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendPath {
    /// What everybody may use.
    Open,
    /// Codes to sign in and for a new password go to numbers of accounts alone, since new numbers make none; and those for a
    /// new password by e-mail to addresses of accounts.
    Accounts,
    /// The requester's address or network is spent, or no slot is free.
    SpentAsker,
    /// The budget of the prefix or the total is spent, or there is a brake: then only numbers that were proven before that
    /// time are sent to. The messages that tripped the brake are later, and whoever requested them may have entered codes
    /// for theirs.
    Short { proven_before: Option<Micros> },
}

/// The part of the shared budgets that a message is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum BudgetShare {
    /// The part that everybody may spend.
    Open,
    /// The open part, for a proven number: of an account, if messages go to those alone or the requester's address or network
    /// is used up; or of a program, under its brake.
    SpentAsker,
    /// The part reserved for numbers of accounts.
    Reserve,
    /// The answer said that it was sent, but it was not.
    Withheld,
}

crate::db::text_column!(BudgetShare, text => text.parse::<Self>()?);

/// What becomes of a request that has met something.
pub fn decide(Facts { purpose, solved, path, met }: Facts<'_>) -> SendDecision {
    use MessagePurpose::{Own, Relayed, Verification};
    use Purpose::{Login, Register, Reset, Verify};
    let challenged = |on| if solved { SendDecision::GoOn(on) } else { SendDecision::Challenge };
    match (met, purpose) {
        (Obstacle::Paused(_) | Obstacle::StoreOut, _) => SendDecision::Unavailable,
        (Obstacle::EveryoneChallenged(_), _) => challenged(path),
        // No challenge can be shown there.
        (Obstacle::AlwaysChallenged, Relayed(_)) => SendDecision::GoOn(path),
        (Obstacle::AlwaysChallenged, _) => challenged(path),
        (Obstacle::MoneySpent, Own(Login | Reset)) if path.counts_asker() => {
            challenged(SendPath::Short { proven_before: None })
        }
        // It is short by something else already.
        (Obstacle::MoneySpent, Own(Login | Reset)) => SendDecision::GoOn(path),
        (Obstacle::MoneySpent, _) => SendDecision::Throttle,
        (Obstacle::Brake(braked), _) => match (braked.proven_before, purpose) {
            (None, _) => challenged(path),
            // It is short by that brake already, or by one that spares fewer numbers.
            (Some(before), _) if path.is_under(before) => SendDecision::GoOn(path),
            // No account has the number yet, so there is nobody to send to.
            (Some(_), Own(Register | Verify)) => SendDecision::Throttle,
            (proven_before, Own(Login | Reset) | Verification(_)) => {
                challenged(SendPath::Short { proven_before })
            }
            // No challenge can be shown there.
            (proven_before, Relayed(_)) => SendDecision::GoOn(SendPath::Short { proven_before }),
        },
        (Obstacle::Limit(_, Refusal { then: RuleAction::Captcha, .. }), _) => SendDecision::Challenge,
        // What is kept is for those who have an account here.
        (Obstacle::Limit(limit, _), Own(Login | Reset)) if path.counts_asker() => {
            SendPath::past(limit).map_or(SendDecision::Throttle, challenged)
        }
        (Obstacle::Limit(..), _) => SendDecision::Throttle,
        (Obstacle::NoSlot, Own(Login | Reset)) if path == SendPath::Open => challenged(SendPath::SpentAsker),
        (Obstacle::NoSlot, _) => SendDecision::Unavailable,
    }
}

impl SendPath {
    /// The path past a full `block` rule of that limit; None if it belongs to the number, or to one program alone.
    fn past(limit: &str) -> Option<Self> {
        match LimitName::parse(limit)? {
            LimitName::SmsAddress
            | LimitName::SmsNetwork
            | LimitName::MailAddress
            | LimitName::MailNetwork => Some(Self::SpentAsker),
            LimitName::SmsPrefix | LimitName::SmsTotal | LimitName::MailTotal => {
                Some(Self::Short { proven_before: None })
            }
            _ => None,
        }
    }

    /// The path on which a request begins. With `new_numbers` whoever signs in by a code to a new number gets an account.
    pub const fn first(purpose: &MessagePurpose, channel: Channel, new_numbers: bool) -> Self {
        match purpose {
            // Strangers may name any address: mail that neither confirms one nor registers goes to addresses of accounts
            // alone.
            MessagePurpose::Own(Purpose::Login | Purpose::Reset) if matches!(channel, Channel::Mail) => {
                Self::Accounts
            }
            MessagePurpose::Own(Purpose::Login | Purpose::Reset) if !new_numbers => Self::Accounts,
            _ => Self::Open,
        }
    }

    /// Whether the limits of the requester's address and network refuse it.
    pub const fn counts_asker(self) -> bool {
        matches!(self, Self::Open | Self::Accounts)
    }

    /// Whether it sends to no more numbers than a brake that asks for those from before that time.
    fn is_under(self, before: Micros) -> bool {
        matches!(self, Self::Short { proven_before: Some(earlier) } if earlier <= before)
    }

    /// Whether a number is sent to that was proven at that time.
    pub fn sends_to(self, proven_since: Option<Micros>) -> bool {
        match self {
            Self::Open => true,
            Self::Accounts | Self::SpentAsker => proven_since.is_some(),
            Self::Short { proven_before } => {
                proven_since.is_some_and(|since| proven_before.is_none_or(|before| since < before))
            }
        }
    }

    /// The shares that a message on this path may use: the first with room. The reserve is for accounts here, so a
    /// program's brake leaves the open part.
    pub const fn shares(self, of_program: bool) -> &'static [BudgetShare] {
        match self {
            Self::Open => &[BudgetShare::Open],
            _ if of_program => &[BudgetShare::SpentAsker],
            // Past the open part a challenge leads to the reserve.
            Self::Accounts => &[BudgetShare::SpentAsker],
            Self::SpentAsker => &[BudgetShare::SpentAsker, BudgetShare::Reserve],
            Self::Short { .. } => &[BudgetShare::Reserve],
        }
    }
}

impl Obstacle {
    /// What an answer says of it: a name, a rule from 0, and how long it lasts.
    pub fn told(self) -> (Cow<'static, str>, usize, Duration) {
        match self {
            Self::Paused(left) | Self::EveryoneChallenged(left) => (ACCESS.into(), 0, left),
            Self::AlwaysChallenged => (SMS_COUNTRY.into(), 0, ASK_AGAIN),
            Self::MoneySpent => (SMS_BUDGET.into(), 0, ASK_AGAIN),
            Self::Brake(braked) => (SMS_BRAKE.into(), 0, braked.retry_after),
            Self::Limit(limit, refusal) => (limit.into(), refusal.rule, refusal.retry_after),
            Self::StoreOut | Self::NoSlot => (BUSY.into(), 0, TRY_AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::*;
    use crate::config::Limits;
    use crate::message::ProgramPurpose;

    const PAGE: &str = include_str!("../../docs/sms.md");
    /// What a brake asks in these tests: numbers that were proven before this.
    const BRAKED: Micros = Micros(1_000);
    const PATHS: [SendPath; 5] = [
        SendPath::Open,
        SendPath::Accounts,
        SendPath::SpentAsker,
        SendPath::Short { proven_before: None },
        // This brake spares more numbers.
        SendPath::Short { proven_before: Some(Micros(1_001)) },
    ];
    const UNDER_THAT_BRAKE: [SendPath; 2] = [
        SendPath::Short { proven_before: Some(BRAKED) },
        // This brake spares fewer.
        SendPath::Short { proven_before: Some(Micros(999)) },
    ];

    /// The rows of the page's table whose heading begins with that text, as cells.
    fn table(heading: &str) -> Vec<Vec<&'static str>> {
        let rows = PAGE.lines().skip_while(|line| !line.starts_with(&format!("| {heading} |"))).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
    }

    /// What stands between backquotes.
    fn words(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    fn purposes() -> [Vec<MessagePurpose>; 4] {
        [
            vec![Purpose::Login.into(), Purpose::Reset.into()],
            vec![Purpose::Register.into(), Purpose::Verify.into()],
            vec![ProgramPurpose::new("shop", "pay").unwrap().into()],
            vec![MessagePurpose::relayed("idp").unwrap()],
        ]
    }

    fn full(limit: &str, then: RuleAction) -> Obstacle {
        let (retry_after, frees_at) = (Duration::from_secs(1), Micros(1));
        Obstacle::Limit(limit.to_owned(), Refusal { bucket: 0, rule: 0, then, retry_after, frees_at })
    }

    fn braked(proven_before: Option<Micros>) -> Obstacle {
        Obstacle::Brake(BrakedPrefix { retry_after: Duration::from_secs(1), proven_before, tripped: false })
    }

    fn on_messages() -> Vec<String> {
        Limits::default().on_messages().map(|limit| limit.name().to_owned()).collect()
    }

    /// What the first cell of a row tells of.
    fn obstacles(cell: &'static str) -> Vec<Obstacle> {
        let second = Duration::from_secs(1);
        match cell.split(['[', ']']).collect::<String>() {
            cell if cell.contains("paused") => vec![Obstacle::Paused(second)],
            cell if cell.contains("everyone") => vec![Obstacle::EveryoneChallenged(second)],
            cell if cell.contains("money") => vec![Obstacle::MoneySpent],
            cell if cell.contains("always asks") => vec![Obstacle::AlwaysChallenged],
            cell if cell.contains("asks for a CAPTCHA") => vec![braked(None)],
            cell if cell.contains("under a brake") || cell.contains("under the brake") => {
                vec![braked(Some(BRAKED))]
            }
            cell if cell.contains("windows") => vec![Obstacle::StoreOut],
            cell if cell.contains("slot") => vec![Obstacle::NoSlot],
            cell if cell.contains("`captcha` rule") => {
                on_messages().iter().map(|limit| full(limit, RuleAction::Captcha)).collect()
            }
            cell if cell.contains("`block` rule") => {
                words(&cell).skip(1).map(|limit| full(limit, RuleAction::Block)).collect()
            }
            other => panic!("{other}"),
        }
    }

    fn paths(cell: &'static str, under_that_brake: bool) -> Vec<SendPath> {
        let of = |word| match word {
            "open" => &PATHS[..1],
            "accounts" => &PATHS[1..2],
            "spent-asker" => &PATHS[2..3],
            "short" if under_that_brake => &UNDER_THAT_BRAKE,
            "short" => &PATHS[3..],
            other => panic!("{other}"),
        };
        if cell == "any" { PATHS.to_vec() } else { words(cell).flat_map(of).copied().collect() }
    }

    /// What a cell says of a request, which a brake or a limit makes short.
    fn told(cell: &str, solved: bool, path: SendPath, met: &Obstacle) -> SendDecision {
        let then = match cell.strip_prefix("CAPTCHA") {
            Some(_) if !solved => return SendDecision::Challenge,
            Some("") => "goes on",
            Some(then) => then.trim_start_matches(", then "),
            None => cell,
        };
        let proven_before = if let Obstacle::Brake(braked) = met { braked.proven_before } else { None };
        match then {
            "goes on" => SendDecision::GoOn(path),
            "`spent-asker`" => SendDecision::GoOn(SendPath::SpentAsker),
            "`short`" => SendDecision::GoOn(SendPath::Short { proven_before }),
            "429" => SendDecision::Throttle,
            "503" => SendDecision::Unavailable,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_row_of_the_page_is_what_is_decided() {
        let (mut walked, mut blocking, mut begun) = (0, Vec::new(), HashSet::new());
        for row in table("what it meets") {
            let [what, paths_cell, cells @ ..] = &row[..] else { panic!("{row:?}") };
            let paths = paths(paths_cell, what.contains("that made it"));
            for (met, path) in
                obstacles(what).iter().flat_map(|met| paths.iter().map(move |path| (met, *path)))
            {
                if let Obstacle::Limit(limit, Refusal { then: RuleAction::Block, .. }) = met {
                    blocking.push(limit.clone());
                }
                if path == SendPath::Open {
                    begun.insert(discriminant(met));
                }
                // With a solved challenge no such rule is met.
                let of_captcha =
                    matches!(met, Obstacle::Limit(_, refusal) if refusal.then == RuleAction::Captcha);
                for (cell, purposes) in cells.iter().zip(purposes()).filter(|(cell, _)| **cell != "–") {
                    for (purpose, solved) in
                        purposes.iter().flat_map(|purpose| [(purpose, false), (purpose, true)])
                    {
                        if of_captcha && solved {
                            continue;
                        }
                        let decided = decide(Facts { purpose, solved, path, met });
                        assert_eq!(
                            decided,
                            told(cell, solved, path, met),
                            "{what}: {purpose:?} {path:?} {solved}"
                        );
                        walked += 1;
                    }
                }
            }
        }
        blocking.sort();
        blocking.dedup();
        let mut limits = on_messages();
        limits.sort();
        assert_eq!(blocking, limits, "a limit on messages is in no row");
        assert_eq!(begun.len(), 8, "something that a request may meet is in no row");
        assert!(walked > 300, "{walked}");
    }

    #[test]
    fn every_share_is_that_of_the_page() {
        let rows = table("path");
        assert_eq!(rows.len(), 5);
        for row in rows {
            let [path, whose, shares, sent_to] = row[..] else { panic!("{row:?}") };
            let all: Vec<_> = [paths(path, false), paths(path, path.contains("short"))].concat();
            let named: Vec<BudgetShare> = words(shares).map(|share| share.parse().unwrap()).collect();
            let of_programs = match whose {
                "anyone's" => vec![false, true],
                "of our pages" => vec![false],
                "of a program" => vec![true],
                other => panic!("{other}"),
            };
            for path in all {
                for of_program in &of_programs {
                    assert_eq!(path.shares(*of_program), named, "{path:?}");
                }
                assert_eq!(path.sends_to(None), sent_to == "every number");
                assert!(path.sends_to(Some(Micros(1))));
                if let SendPath::Short { proven_before: Some(before) } = path {
                    assert!(!path.sends_to(Some(before)) && sent_to.contains("brake"));
                }
            }
        }
    }

    #[test]
    fn shares_come_back_from_their_text() {
        assert!(BudgetShare::VARIANTS.iter().all(|share| share.into_str().parse() == Ok(*share)));
    }
}
