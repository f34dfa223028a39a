//! `[sms]`: the gateway (fixed until a restart), and to whom and for how long codes are sent (live).

use std::time::Duration;

use rlibphonenumber::{PHONE_NUMBER_UTIL, Region};

use super::document::ValueNode;
use super::reader::{ListOf, ParseResult, WithinSection, subsection};
use super::section::section;
use super::sms_gateways::{self, GatewaySettings};
use super::values::{DAY, HOUR, MINUTE, SECOND, duration, integer, share, yes_or_no};

section! {
    /// Settings that need a restart.
    SmsSettings in "sms" {
        gateway: GatewaySettings = GatewaySettings::Outbox, WithinSection(sms_gateways::read);
        /// How long a gateway may take for one message; the client waits as long.
        timeout: Duration = SECOND * 5, duration(SECOND..=SECOND * 10);
    }
}

section! {
    /// Settings that are live.
    SmsTunables in "sms" {
        /// For numbers written without a country code (ISO 3166-1, two letters).
        default_region: String = "CN".to_owned(), country;
        /// Countries to which codes are sent; empty: all.
        countries: Vec<String> = Vec::new(), ListOf(country);
        /// How long a code is valid; NIST SP 800-63B-4 allows ten minutes at most.
        code_ttl: Duration = MINUTE * 5, duration(SECOND..=MINUTE * 10);
        /// How long the ledger keeps a message: at least the longest window of the brake, and at least as
        /// long as any limit on messages looks back, which is checked where both are known.
        retention: Duration = DAY * 90, duration(DAY * 7..=DAY * 3660);
        brake: Brake = Brake::default(), WithinSection(subsection);
    }
}

section! {
    /// The brake on a dialling prefix whose codes nobody enters.
    Brake in "sms.brake" {
        enabled: bool = true, yes_or_no;
        /// How far it looks back.
        window: Duration = HOUR, duration(MINUTE..=DAY * 7);
        /// Fewer messages to a block (10,000 neighbouring numbers) do not trip it; from half as many on, asks need a
        /// solved challenge.
        min_sent: u32 = 20, integer(1..=1_000_000);
        /// From so many to an operator's range (a million numbers) on, asks need a solved challenge.
        min_sent_range: u32 = 100, integer(1..=1_000_000);
        /// Fewer with a solved challenge to a range do not trip it.
        min_solved_range: u32 = 500, integer(1..=1_000_000);
        /// The share of codes that must be entered.
        min_entered: f64 = 0.1, share;
        lifts_after: Duration = HOUR, duration(MINUTE..=DAY * 30);
    }
}

fn country(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    if is_country(&text) {
        Ok(text)
    } else {
        Err(format!("{text:?} is not a country code; write two capital letters (ISO 3166-1), such as \"CN\""))
    }
}

/// Whether the numbering plans know the country, by its two capital letters.
fn is_country(code: &str) -> bool {
    code.bytes().all(|letter| letter.is_ascii_uppercase())
        && Region::from_code(code)
            .is_ok_and(|region| PHONE_NUMBER_UTIL.get_country_code_for_region(region).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_country_is_two_capital_letters_that_numbering_plans_know() {
        assert!(is_country("CN") && is_country("GG") && is_country("XK"));
        for unknown in ["UK", "ZZ", "cn", "001", "C", "CHN", "", "中"] {
            assert!(!is_country(unknown), "{unknown:?}");
        }
    }
}
