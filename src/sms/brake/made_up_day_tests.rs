//! What pumpers get, and what honest people lose to them, on a made-up day. `benches/pumping.rs` has whole months, of
//! more pumpers, with the same ladder; here the ledger itself counts.
//!
//! Honest messages go to many ranges. One range is pumped, and strangers frame another, so that it is braked: both solve
//! every challenge, ask every three seconds and enter no code. The test runs at a smaller scale than the table, which
//! takes minutes: `GATEHOUSE_FULL_SCALE=1 cargo test made_up_day -- --nocapture`.

use std::collections::VecDeque;

use super::*;
use crate::db::Db;
use crate::message::{ProgramPurpose, Purpose};

const SECOND: Duration = Duration::from_secs(1);
const PUMPED: usize = 0;
const FRAMED: usize = 1;
/// Of the honest: codes that are entered, and numbers that were proven there on an earlier day.
const ENTERED_OF_100: u64 = 85;
const PROVEN_OF_100: u64 = 80;
const HONEST_NETWORKS: u64 = 20_000;

struct Scale {
    hours: u64,
    ranges: usize,
    honest: u64,
}

impl Scale {
    /// As many honest messages an hour to each range.
    fn asked_for() -> Self {
        match std::env::var_os("GATEHOUSE_FULL_SCALE") {
            Some(_) => Self { hours: 24, ranges: 200, honest: 100_000 },
            None => Self { hours: 1, ranges: 10, honest: 200 },
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    /// Of these with a solved challenge.
    solved: u64,
    challenged: u64,
    refused: u64,
}

struct Town {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    brakes: SmsBrakes,
    brake: Brake,
    purpose: MessagePurpose,
    /// Messages whose codes are entered half a minute later, and when.
    reading: VecDeque<(Micros, String)>,
}

/// Who asks.
struct Ask {
    phone: Phone,
    network: String,
    proven: bool,
    enters: bool,
}

impl Town {
    async fn of(purpose: MessagePurpose) -> Self {
        let (clock, entropy) = (Clock::manual(Micros(1_000_000_000_000)), Entropy::seeded(1));
        Self {
            db: Db::connect("sqlite::memory:").await.unwrap(),
            brakes: SmsBrakes::new(clock.clone(), entropy.clone()),
            clock,
            entropy,
            brake: Brake::default(),
            purpose,
            reading: VecDeque::new(),
        }
    }

    fn random(&self, below: u64) -> u64 {
        u64::from_le_bytes(self.entropy.bytes()) % below
    }

    fn number(&self, range: usize) -> Phone {
        Phone::stored(format!("+86{}{:06}", 13_000 + range, self.random(1_000_000)))
    }

    async fn found(&self, ask: &Ask, solved: bool) -> Option<BrakedPrefix> {
        let now = self.clock.now();
        let satisfied = |found: &BrakedPrefix| solved && found.proven_before.is_none();
        let known = self.brakes.recall(&self.purpose.scope(), &ask.phone, None);
        if known.filter(|found| !satisfied(found)).is_some() {
            return known;
        }
        let mut tx = self.db.begin().await.unwrap();
        let (phone, purpose) = (&ask.phone, &self.purpose);
        let found = self.brakes.evaluate(&mut tx, phone, purpose, &self.brake, now).await.unwrap().braked;
        tx.commit().await.unwrap();
        found.filter(|found| !satisfied(found))
    }

    async fn send(&mut self, ask: &Ask, solved: bool) {
        const SQL: &str =
            "INSERT INTO sms_messages (id, created_at, phone_key, address_key, network_key, hit, block,
            number_range, purpose, gateway, state, expires_at, scope, solved)
            VALUES ($1, $2, '', '', $3, '', $4, $5, '', '', 'accepted', 0, $6, $7)";
        let (id, now) = (format!("{:032x}", u128::from_be_bytes(self.entropy.bytes())), self.clock.now());
        let Db::Sqlite(pools) = &self.db else { panic!("SQLite") };
        query(SQL)
            .bind(&id)
            .bind(now.0)
            .bind(&ask.network)
            .bind(ask.phone.block())
            .bind(ask.phone.range())
            .bind(&*self.purpose.scope())
            .bind(i64::from(solved))
            .execute(pools.reachable().unwrap())
            .await
            .unwrap();
        if ask.enters {
            self.reading.push_back((now.plus(30 * SECOND), id));
        }
    }

    /// Until that time, people enter the codes that they have read.
    async fn until(&mut self, now: Micros) {
        const SQL: &str = "UPDATE sms_messages SET entered_at = $1 WHERE id = $2";
        while let Some((at, id)) = self.reading.pop_front_if(|(at, _)| *at <= now) {
            let Db::Sqlite(pools) = &self.db else { panic!("SQLite") };
            query(SQL).bind(at.0).bind(id).execute(pools.reachable().unwrap()).await.unwrap();
        }
        self.clock.advance(now.since(self.clock.now()));
    }

    /// Solves a challenge where one is asked for.
    async fn ask(&mut self, ask: &Ask, tally: &mut Tally) {
        let challenges = !matches!(self.purpose, MessagePurpose::Relayed(_));
        let mut found = self.found(ask, false).await;
        let solved = found.is_some() && challenges;
        if solved {
            tally.challenged += 1;
            found = self.found(ask, true).await;
        }
        match found {
            None => {
                self.send(ask, solved).await;
                tally.sent += 1;
                tally.solved += u64::from(solved);
            }
            // Out of what does not count for the brake.
            Some(_) if ask.proven => tally.sent += 1,
            Some(_) => tally.refused += 1,
        }
    }

    /// Honest people elsewhere and in the two ranges, the pumper, those who frame.
    async fn live(&mut self, scale: &Scale) -> [Tally; 4] {
        let begun = self.clock.now();
        let seconds = scale.hours * 3600;
        let mut asks: Vec<(u64, Option<usize>)> =
            (0..scale.honest).map(|_| (self.random(seconds), None)).collect();
        asks.extend((0..seconds).step_by(3).flat_map(|at| [(at, Some(PUMPED)), (at, Some(FRAMED))]));
        asks.sort_unstable();
        let mut tallies: [Tally; 4] = Default::default();
        for (turn, (at, attacked)) in asks.into_iter().enumerate() {
            self.until(begun.plus(at as u32 * SECOND)).await;
            let range = attacked.unwrap_or_else(|| self.random(scale.ranges as u64) as usize);
            let honest = attacked.is_none();
            let network = match attacked {
                None => format!("honest {}", self.random(HONEST_NETWORKS)),
                // Those who pump rent a thousand networks; those who frame have as many as it takes.
                Some(PUMPED) => format!("pumper {}", turn % 1000),
                Some(_) => format!("framer {}", turn % 200),
            };
            let ask = Ask {
                phone: self.number(range),
                network,
                proven: honest && self.random(100) < PROVEN_OF_100,
                enters: honest && self.random(100) < ENTERED_OF_100,
            };
            let tally = match attacked {
                None => usize::from(range <= FRAMED),
                Some(range) => 2 + range,
            };
            self.ask(&ask, &mut tallies[tally]).await;
        }
        tallies
    }
}

#[tokio::test]
async fn a_made_up_day_spares_the_honest_and_bounds_the_pumper() {
    let scale = Scale::asked_for();
    let purposes = [
        ("pages", Purpose::Login.into()),
        ("Verify", ProgramPurpose::new("shop", "default").unwrap().into()),
        ("relay", MessagePurpose::relayed("idp").unwrap()),
    ];
    for (name, purpose) in purposes {
        let [elsewhere, beside, pumper, framer] = Town::of(purpose).await.live(&scale).await;
        println!(
            "{name}: elsewhere {elsewhere:?}\n  honest beside attackers {beside:?}\n  pumper {pumper:?}\n  framer {framer:?}"
        );
        assert_eq!((elsewhere.challenged, elsewhere.refused), (0, 0), "{name}");
        let of_all = beside.refused as f64 / scale.honest as f64;
        assert!(of_all < 0.002 * (200 / scale.ranges) as f64, "{name}: {of_all}");
        for attacker in [pumper, framer] {
            // Those of a range for which codes are entered, too, take a few more.
            assert!(attacker.sent <= 700 * scale.hours, "{name}: {attacker:?}");
            assert!(attacker.refused > 0, "{name}: it is braked");
        }
    }
}
