//! `[access]` in force: pure questions about an address, a number and a time. It is configuration, so no outage
//! turns any of it off.

use std::net::IpAddr;
use std::time::Duration;

use super::networks::NetworkTable;
use super::{AccessSettings, SmsPause};
use crate::clock::Micros;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRules {
    settings: AccessSettings,
    denied: NetworkTable,
    allowed: NetworkTable,
}

impl From<AccessSettings> for AccessRules {
    fn from(settings: AccessSettings) -> Self {
        let (denied, allowed) = (NetworkTable::of(&settings.deny), NetworkTable::of(&settings.allow));
        Self { settings, denied, allowed }
    }
}

impl AccessRules {
    /// As they are written, with what has ended.
    pub const fn settings(&self) -> &AccessSettings {
        &self.settings
    }

    /// Whether a client at this address (IPv4 never written as IPv6) is refused.
    pub fn is_denied(&self, address: IpAddr, now: Micros) -> bool {
        self.denied.contains(address, now)
    }

    /// Whether the limits of addresses and networks are lifted for it. An address that is refused, too, stays
    /// refused.
    pub fn is_allowed(&self, address: IpAddr, now: Micros) -> bool {
        self.allowed.contains(address, now)
    }

    /// How long everybody is still challenged; None if nobody is because of this.
    pub fn challenges_everyone(&self, now: Micros) -> Option<Duration> {
        self.settings.challenge_everyone_until.filter(|until| now < *until).map(|until| until.since(now))
    }

    /// How long a number, in E.164, still gets no message; None if it gets one.
    pub fn paused(&self, number: &str, now: Micros) -> Option<Duration> {
        let covers = |pause: &&SmsPause| now < pause.until && number.starts_with(&pause.prefix);
        self.settings.pause_sms.iter().filter(covers).map(|pause| pause.until.since(now)).max()
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;
    use crate::config::access::AccessNetwork;

    const NOW: Micros = Micros(1_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn entry(network: &str, until: Micros) -> AccessNetwork {
        AccessNetwork { network: network.parse().unwrap(), until, reason: "an attack".to_owned() }
    }

    fn rules(deny: Vec<AccessNetwork>) -> AccessRules {
        AccessSettings { deny, ..AccessSettings::default() }.into()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_found_in_networks_of_every_length() {
        let end = NOW.plus(HOUR);
        let rules = rules(vec![
            entry("203.0.113.0/24", end),
            entry("198.51.100.7/32", end),
            entry("2001:db8::/32", end),
            entry("2001:db9::1/128", end),
        ]);
        for denied in ["203.0.113.0", "203.0.113.255", "198.51.100.7", "2001:db8:ffff::1", "2001:db9::1"] {
            assert!(rules.is_denied(ip(denied), NOW), "{denied}");
            assert!(!rules.is_allowed(ip(denied), NOW), "{denied}");
        }
        for free in ["203.0.114.0", "198.51.100.8", "2001:db9::2", "::", "0.0.0.0"] {
            assert!(!rules.is_denied(ip(free), NOW), "{free}");
        }
    }

    proptest::proptest! {
        /// The table finds what a look at each network finds.
        #[test]
        fn a_look_up_is_as_good_as_a_look_at_every_network(
            networks in proptest::collection::vec((0u32..64, 8u8..=32, 0i64..3), 0..40),
            wide in proptest::collection::vec((0u128..64, 19u8..=128, 0i64..3), 0..40),
            address in 0u32..64,
        ) {
            let v4 = |bits: u32| IpAddr::from((0xCB00_7100 | bits << 3).to_be_bytes());
            let v6 = |bits: u128| IpAddr::from((0x2001_0db8_u128 << 96 | bits << 60).to_be_bytes());
            let narrow = networks.iter().map(|(bits, length, end)| (v4(*bits), *length, *end));
            let wide = wide.iter().map(|(bits, length, end)| (v6(*bits), *length, *end));
            let of = |(address, length, end): (IpAddr, u8, i64)| AccessNetwork {
                network: IpNet::new(address, length).unwrap().trunc(),
                until: Micros(end),
                reason: "r".to_owned(),
            };
            let all: Vec<_> = narrow.chain(wide).map(of).collect();
            let rules = rules(all.clone());
            for address in [v4(address), v6(u128::from(address))] {
                for now in 0..3 {
                    let naive = all.iter().any(|it| it.network.contains(&address) && now < it.until.0);
                    proptest::prop_assert_eq!(rules.is_denied(address, Micros(now)), naive);
                }
            }
        }
    }

    #[test]
    fn each_ends_at_its_time_and_of_two_for_one_network_the_later_counts() {
        let short = entry("203.0.113.0/24", NOW.plus(HOUR));
        let long = entry("203.0.113.0/24", NOW.plus(2 * HOUR));
        let rules = rules(vec![long, short]);
        let address = ip("203.0.113.9");
        assert!(rules.is_denied(address, NOW.plus(2 * HOUR - Duration::from_micros(1))));
        assert!(!rules.is_denied(address, NOW.plus(2 * HOUR)));
        assert!(rules.settings().in_force(NOW.plus(2 * HOUR)).is_empty());
        assert_eq!(rules.settings().in_force(NOW.plus(HOUR)).deny.len(), 1);
    }

    #[test]
    fn everybody_is_challenged_until_the_end_alone() {
        let settings =
            AccessSettings { challenge_everyone_until: Some(NOW.plus(HOUR)), ..AccessSettings::default() };
        let rules = AccessRules::from(settings);
        assert_eq!(rules.challenges_everyone(NOW), Some(HOUR));
        assert_eq!(rules.challenges_everyone(NOW.plus(HOUR)), None);
        assert_eq!(AccessRules::default().challenges_everyone(NOW), None);
    }

    #[test]
    fn a_pause_covers_every_number_that_begins_so_and_the_longest_counts() {
        let pause = |prefix: &str, hours: u32| SmsPause {
            prefix: prefix.to_owned(),
            until: NOW.plus(HOUR * hours),
            reason: "pumping".to_owned(),
        };
        let pauses = vec![pause("+86138", 1), pause("+861380", 2), pause("+7", 0)];
        let rules = AccessRules::from(AccessSettings { pause_sms: pauses, ..AccessSettings::default() });
        assert_eq!(rules.paused("+8613800138000", NOW), Some(HOUR * 2));
        assert_eq!(rules.paused("+8613900138000", NOW), None);
        assert_eq!(rules.paused("+8613811111111", NOW), Some(HOUR));
        assert_eq!(rules.paused("+79161234567", NOW), None, "it has ended");
    }
}
