//! Values of ranges of addresses. A look-up is one binary search.

use std::net::IpAddr;

use ipnet::IpNet;

/// The ranges of both families, each in order and without overlaps.
pub struct RangeTable<V> {
    v4: Vec<Span<u32, V>>,
    v6: Vec<Span<u128, V>>,
}

impl<V> Default for RangeTable<V> {
    fn default() -> Self {
        Self { v4: Vec::new(), v6: Vec::new() }
    }
}

/// The first and the last address of a range, and its value.
type Span<A, V> = (A, A, V);

/// An address as a number.
trait Bits: Copy + Ord {
    fn next(self) -> Self;
}

impl Bits for u32 {
    fn next(self) -> Self {
        self.saturating_add(1)
    }
}

impl Bits for u128 {
    fn next(self) -> Self {
        self.saturating_add(1)
    }
}

impl<V: Copy + PartialEq> RangeTable<V> {
    /// Adds a network; neighbours of one value that come in their order are one range.
    pub fn push(&mut self, network: IpNet, value: V) {
        match network {
            IpNet::V4(net) => join(&mut self.v4, (net.network().to_bits(), net.broadcast().to_bits(), value)),
            IpNet::V6(net) => join(&mut self.v6, (net.network().to_bits(), net.broadcast().to_bits(), value)),
        }
    }

    /// Brings what was pushed in order. Networks that overlap must have one value.
    pub fn finish(mut self) -> Self {
        self.v4 = in_order(self.v4);
        self.v6 = in_order(self.v6);
        self
    }

    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub fn get(&self, ip: IpAddr) -> Option<V> {
        match ip {
            IpAddr::V4(ip) => at(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => at(&self.v6, ip.to_bits()),
        }
    }

    /// Whether some address of the network has a value that fits.
    pub fn any(&self, network: IpNet, fits: impl Fn(V) -> bool) -> bool {
        match network {
            IpNet::V4(net) => any(&self.v4, net.network().to_bits(), net.broadcast().to_bits(), fits),
            IpNet::V6(net) => any(&self.v6, net.network().to_bits(), net.broadcast().to_bits(), fits),
        }
    }

    /// Whether one range has all addresses of the network.
    pub fn covers(&self, network: IpNet) -> bool {
        match network {
            IpNet::V4(net) => covers(&self.v4, net.network().to_bits(), net.broadcast().to_bits()),
            IpNet::V6(net) => covers(&self.v6, net.network().to_bits(), net.broadcast().to_bits()),
        }
    }
}

fn join<A: Bits, V: PartialEq>(spans: &mut Vec<Span<A, V>>, (first, last, value): Span<A, V>) {
    match spans.last_mut() {
        Some(before) if before.2 == value && before.0 <= first && first <= before.1.next() => {
            before.1 = before.1.max(last);
        }
        _ => spans.push((first, last, value)),
    }
}

fn in_order<A: Bits, V: PartialEq>(mut spans: Vec<Span<A, V>>) -> Vec<Span<A, V>> {
    spans.sort_by_key(|span| span.0);
    let mut joined = Vec::new();
    for span in spans {
        join(&mut joined, span);
    }
    joined.shrink_to_fit();
    joined
}

/// The ranges from the one on that reaches to an address.
fn from<A: Bits, V>(spans: &[Span<A, V>], first: A) -> &[Span<A, V>] {
    &spans[spans.partition_point(|span| span.1 < first)..]
}

fn at<A: Bits, V: Copy>(spans: &[Span<A, V>], address: A) -> Option<V> {
    from(spans, address).first().filter(|span| span.0 <= address).map(|span| span.2)
}

fn any<A: Bits, V: Copy>(spans: &[Span<A, V>], first: A, last: A, fits: impl Fn(V) -> bool) -> bool {
    from(spans, first).iter().take_while(|span| span.0 <= last).any(|span| fits(span.2))
}

fn covers<A: Bits, V>(spans: &[Span<A, V>], first: A, last: A) -> bool {
    from(spans, first).first().is_some_and(|span| span.0 <= first && last <= span.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn neighbours_are_one_range_and_the_ends_of_all_addresses_fit() {
        let mut table = RangeTable::default();
        for network in
            ["203.0.113.128/25", "255.255.255.0/24", "203.0.113.0/25", "203.0.113.4/30", "ffff::/16"]
        {
            table.push(net(network), ());
        }
        let table = table.finish();
        assert_eq!(table.len(), 3);
        for inside in ["203.0.113.0", "203.0.113.255", "255.255.255.255", "ffff::1"] {
            assert_eq!(table.get(inside.parse().unwrap()), Some(()), "{inside}");
        }
        for outside in ["203.0.112.255", "203.0.114.0", "::", "fffe:ffff::"] {
            assert_eq!(table.get(outside.parse().unwrap()), None, "{outside}");
        }
        assert!(table.covers(net("203.0.113.0/24")) && !table.covers(net("203.0.112.0/23")));
        assert!(table.any(net("203.0.112.0/23"), |()| true) && !table.any(net("203.0.112.0/24"), |()| true));
    }

    proptest::proptest! {
        /// The table finds what a look at each network finds.
        #[test]
        fn a_look_up_is_as_good_as_a_look_at_every_network(
            networks in proptest::collection::vec((0u32..64, 24u8..=32), 0..40),
            asked in (0u32..64, 24u8..=32),
        ) {
            let of = |(bits, length): (u32, u8)| {
                let address = (0xCB00_7100 | bits << 2).to_be_bytes();
                IpNet::new(IpAddr::from(address), length).unwrap().trunc()
            };
            let (all, asked): (Vec<_>, _) = (networks.into_iter().map(of).collect(), of(asked));
            let mut table = RangeTable::default();
            all.iter().for_each(|network| table.push(*network, ()));
            let table = table.finish();
            let meets = |network: &IpNet| network.contains(&asked) || asked.contains(network);
            let naive = all.iter().any(|network| network.contains(&asked.addr()));
            proptest::prop_assert_eq!(table.get(asked.addr()).is_some(), naive);
            proptest::prop_assert_eq!(table.any(asked, |()| true), all.iter().any(meets));
            let whole = asked.hosts().chain([asked.network(), asked.broadcast()]);
            let naive = whole.into_iter().all(|address| all.iter().any(|network| network.contains(&address)));
            proptest::prop_assert_eq!(table.covers(asked), naive);
        }
    }
}
