//! Who gets an image or a proof of work when many want one.

use std::net::Ipv4Addr;

use gatehouse_limiter::Rule;

use super::redeem_tests::service;
use super::*;
use crate::config::Limits;

const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct Office {
    pub desk: CaptchaService,
    pub clock: Clock,
    pub live: LiveSettings,
}

impl Office {
    pub fn new() -> Self {
        let clock = Clock::manual(Micros::from_seconds(1_700_000_000));
        let key = MasterKey::from_bytes([3; 32]);
        // Blank images, because only who gets one matters here.
        let provider = Provider::Fixed { answer: "solo".to_owned() };
        let mut live = LiveSettings::default();
        live.captcha.proof_of_work = false;
        Self { desk: service(&key, provider, &clock), clock, live }
    }

    fn with_proofs(mut self) -> Self {
        self.live.captcha.proof_of_work = true;
        self
    }

    fn limit(mut self, name: &str, max: u32) -> Self {
        let rule = Rule::sliding(max, MINUTE, RuleAction::Block);
        let limit = Limit::new(name, vec![rule], LimitMode::Enforce).unwrap();
        let Limits { captcha_address, captcha_network, captcha_total, .. } = &mut self.live.limits;
        match name {
            "captcha-address" => *captcha_address = limit,
            "captcha-network" => *captcha_network = limit,
            _ => *captcha_total = limit,
        }
        self
    }

    /// The whole path, from the challenge to its image.
    async fn fetch(&self, address: u32) -> Result<ChallengeImage, ImageRefusal> {
        let id = self.issue(address).await?.id;
        self.image(address, &id).await
    }

    /// Whether an image would be drawn. It is not drawn, because that would take minutes for thousands.
    pub async fn admits(&self, address: u32) -> bool {
        let address = Ipv4Addr::from_bits(address).octets();
        let by = CaptchaClient { address: &address, network: &address[..3], realm: None, cookie: None };
        self.desk.turn(&self.live, &by, CaptchaForm::Login).await.is_ok()
    }

    /// Whether a right answer of that price is accepted. None is derived.
    pub async fn accepts(&self, address: u32, effort: Effort) -> bool {
        let address = Ipv4Addr::from_bits(address).octets();
        let by = CaptchaClient { address: &address, network: &address[..3], realm: None, cookie: None };
        let limits = limits(&self.desk.proving, proofs(&self.live), &by).await;
        let buckets = buckets(&self.desk.proving, &limits, &by);
        self.desk.count(&buckets, effort).await.is_ok()
    }

    async fn issue(&self, address: u32) -> Result<Challenge, ImageRefusal> {
        self.issue_for(CaptchaForm::Login, address, None).await
    }

    async fn issue_for(
        &self,
        form: CaptchaForm,
        address: u32,
        realm: Option<&[u8]>,
    ) -> Result<Challenge, ImageRefusal> {
        let address = Ipv4Addr::from_bits(address).octets();
        let client = CaptchaClient { address: &address, network: &address[..3], realm, cookie: None };
        self.desk.issue(&self.live, form, &client, async || Some(0.0)).await
    }

    /// What a proof costs the address.
    async fn price(&self, address: u32) -> u32 {
        let proof = serde_json::to_value(self.issue(address).await.unwrap().proof.unwrap()).unwrap();
        proof["parameters"]["cost"].as_u64().unwrap() as u32
    }

    async fn image(&self, address: u32, id: &str) -> Result<ChallengeImage, ImageRefusal> {
        let address = Ipv4Addr::from_bits(address).octets();
        let by = CaptchaClient { address: &address, network: &address[..3], realm: None, cookie: None };
        match self.desk.image(&self.live, &by, id).await {
            Ok(picture) => Ok(picture),
            Err(ImageError::Refused(later)) => Err(later),
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) fn network(number: u32) -> u32 {
    (number << 8) | 1
}

#[tokio::test]
async fn an_image_is_charged_once_to_who_fetches_it_first() {
    let office = Office::new().limit("captcha-address", 1);
    let ids = [office.issue(1).await.unwrap().id, office.issue(1).await.unwrap().id];
    assert!(office.image(1, &ids[0]).await.unwrap().drawn_now);
    assert!(!office.image(2, &ids[0]).await.unwrap().drawn_now, "kept from before");
    let later = office.image(1, &ids[1]).await.unwrap_err();
    assert_eq!(
        (later.limit, later.refusal.retry_after, later.form),
        ("captcha-address", MINUTE, CaptchaForm::Login)
    );
    assert_eq!(office.issue(1).await.unwrap_err(), later, "and it is known before it is fetched");
    assert!(office.image(2, &ids[1]).await.unwrap().drawn_now);
}

#[tokio::test]
async fn networks_are_counted_whatever_their_addresses() {
    let office = Office::new().limit("captcha-network", 3);
    for address in 1..=3 {
        office.fetch(address).await.unwrap();
    }
    assert_eq!(office.fetch(4).await.unwrap_err().limit, "captcha-network");
    office.fetch(network(9)).await.unwrap();
}

#[tokio::test]
async fn when_the_total_is_short_networks_that_had_less_are_served_still() {
    let office = Office::new().limit("captcha-total", 60);
    let greedy = async |count: u32| {
        let mut had = 0;
        for number in 0..count {
            while office.fetch(network(number)).await.is_ok() {
                had += 1;
            }
        }
        had
    };
    assert_eq!(greedy(20).await, 15 + 6 + 4 + 3 + 2 + 15, "the first had much, the others one each");
    let later = office.fetch(network(0)).await.unwrap_err();
    assert_eq!((later.limit, later.refusal.retry_after), ("captcha-total", MINUTE));
    assert_eq!(greedy(40).await, 15);
    assert_eq!(office.fetch(network(50)).await.unwrap_err().limit, "captcha-total", "nothing is left");
    office.clock.advance(MINUTE);
    office.fetch(network(0)).await.unwrap();
}

/// The default limits. A hundred networks take all that they can get for two minutes; meanwhile a new network comes
/// every two seconds.
#[tokio::test]
async fn a_hundred_greedy_networks_leave_others_their_image() {
    let office = Office::new();
    let (mut greedy, mut served) = (0, 0);
    for round in 0..60 {
        for number in 0..100 {
            while office.admits(network(number)).await {
                greedy += 1;
            }
        }
        served += u32::from(office.admits(network(10_000 + round)).await);
        office.clock.advance(Duration::from_secs(2));
    }
    assert_eq!(served, 60, "beside {greedy}");
}

#[tokio::test]
async fn giving_proofs_out_counts_nothing_and_answering_them_does() {
    let office = Office::new().limit("captcha-address", 1).with_proofs();
    for _ in 0..100 {
        assert!(office.issue(1).await.unwrap().proof.is_some());
    }
    for _ in 0..10 {
        assert!(office.accepts(1, Effort::Low).await, "ten for an image");
    }
    assert!(!office.accepts(1, Effort::Low).await);
    assert!(office.accepts(2, Effort::Low).await, "another address has its own");
    assert!(office.issue(1).await.unwrap().image_after.is_none(), "images are counted apart");
    office.clock.advance(MINUTE);
    assert!(office.accepts(1, Effort::Low).await);
}

/// What makes proofs dear is what refuses cheap ones: who comes to the address gets one that is accepted.
#[tokio::test]
async fn a_full_address_makes_proofs_dear_and_refuses_those_that_were_cheap() {
    for (limit, network_is_full) in [("captcha-address", false), ("captcha-network", true)] {
        let office = Office::new().limit(limit, 4).with_proofs();
        let mut prices = vec![office.price(1).await];
        for answered in 0..40 {
            assert!(office.accepts(if network_is_full { 2 + answered } else { 1 }, Effort::Low).await);
            prices.push(office.price(1).await);
        }
        prices.dedup();
        let most = if network_is_full { 10_000 } else { 20_000 };
        let expected: Vec<u32> = (1..=4).map(|rung| 5_000 * rung).filter(|cost| *cost <= most).collect();
        assert_eq!(prices, expected, "{limit}");
        assert!(!office.accepts(1, Effort::High).await);
        for _ in 0..100 {
            assert!(office.accepts(1, Effort::Highest).await);
        }
    }
}

/// The dearest are given out from three quarters on: a quarter is left for those that were given out before.
#[tokio::test]
async fn the_price_is_highest_before_the_address_is_full() {
    let office = Office::new().limit("captcha-address", 10).with_proofs();
    for answered in 0..100 {
        let dearest = office.price(1).await == Effort::Highest.cost();
        assert_eq!(dearest, answered >= 75, "{answered}");
        assert!(office.accepts(1, Effort::Low).await);
    }
}

#[tokio::test]
async fn no_price_refuses_the_dearest_but_the_networks_share_of_the_total() {
    let office = Office::new().limit("captcha-total", 60).with_proofs();
    let mut accepted = 0;
    while office.accepts(1, Effort::Highest).await {
        accepted += 1;
    }
    assert_eq!(accepted, 147, "a quarter of 600");
    assert!(!office.accepts(2, Effort::Highest).await, "an address of the same network");
    assert!(office.accepts(network(2), Effort::Highest).await);
}

#[tokio::test]
async fn a_proof_is_given_without_an_image_while_none_can_be_drawn() {
    let mut office = Office::new().limit("captcha-address", 1).with_proofs();
    let id = office.issue(2).await.unwrap().id;
    office.image(1, &id).await.unwrap();
    let issued = office.issue(1).await.unwrap();
    assert!(issued.image_after.is_some() && issued.proof.is_some());
    office.live.captcha.proof_of_work = false;
    assert!(office.issue(2).await.unwrap().proof.is_none());
    assert_eq!(office.issue(1).await.unwrap_err().limit, "captcha-address");
}

/// What the price is worked out from costs the store a call.
#[tokio::test]
async fn the_store_is_asked_for_a_price_once_a_second_for_a_client_and_not_without_end_for_many() {
    let office = Office::new().with_proofs();
    let asked = std::cell::Cell::new(0);
    let issue = async |number: u32| {
        let address = number.to_be_bytes();
        let client = CaptchaClient { address: &address, network: &address[..3], realm: None, cookie: None };
        let used = async || {
            asked.set(asked.get() + 1);
            Some(0.0)
        };
        let issued = office.desk.issue(&office.live, CaptchaForm::Login, &client, used).await.unwrap();
        serde_json::to_value(issued.proof.unwrap()).unwrap()["parameters"]["cost"].clone()
    };
    for _ in 0..50 {
        assert_eq!(issue(1).await, 5_000);
    }
    assert_eq!(asked.get(), 1);
    office.clock.advance(Duration::from_secs(1));
    issue(1).await;
    assert_eq!(asked.get(), 2);
    for number in 2..2_000 {
        issue(number).await;
    }
    assert_eq!(asked.get(), 2 + 499);
    assert_eq!(issue(5_000).await, 10_000, "nobody knows");
}

/// Whoever fetches them, and from where.
#[tokio::test]
async fn images_of_a_programs_clients_count_on_the_client_that_it_stated() {
    let office = Office::new().limit("captcha-address", 2).limit("captcha-total", 40);
    let program = 77;
    let fetch = async |realm: &str, client: u32| {
        let realm = Some(realm.as_bytes());
        let id = office.issue_for(CaptchaForm::Attempt, client, realm).await?.id;
        office.image(program, &id).await
    };
    for _ in 0..2 {
        fetch("shop", 1).await.unwrap();
    }
    assert_eq!(fetch("shop", 1).await.unwrap_err().limit, "captcha-address");
    fetch("shop", 2).await.unwrap();
    fetch("mail", 1).await.unwrap();
    office.fetch(program).await.unwrap();
    // A stolen token of one program states clients without end.
    let mut taken = 0;
    for client in 100..200 {
        taken += u32::from(fetch("shop", network(client)).await.is_ok());
    }
    assert!(taken < 40, "{taken}");
    fetch("mail", network(9)).await.unwrap();
    office.fetch(network(9)).await.unwrap();
}

/// Of any machine's cores.
#[test]
fn derivations_take_at_most_a_tenth() {
    for cores in 1..=256 {
        let (at_once, at_work) = a_tenth(cores);
        let part = at_once as f64 * at_work / cores as f64;
        assert!(at_once >= 1 && at_work <= 1.0 && (0.05..=0.1 + 1e-9).contains(&part), "{cores}: {part}");
    }
}

/// Of 6,000, if every network asks for all that it can get: what each has, and what is left.
fn settled(networks: u32) -> (u32, u32) {
    let rule = Rule::sliding(6_000, Duration::from_secs(60), RuleAction::Block);
    let total = Limit::new("total", vec![rule], LimitMode::Enforce).unwrap();
    let (mut each, mut spent) = (0, 0);
    while spent + networks <= 6_000 {
        let share = share_of(&total, &[RulePeek { count: spent, retry_after: Duration::ZERO }]);
        if share.rules()[0].max <= each {
            break;
        }
        each += 1;
        spent += networks;
    }
    (each, 6_000 - spent)
}

#[test]
fn a_share_shrinks_with_what_is_left() {
    assert_eq!(settled(1), (1_471, 4_529));
    assert_eq!(settled(10), (276, 3_240));
    assert_eq!(settled(1_000), (5, 1_000));
    assert_eq!(settled(5_000), (1, 1_000));
}

/// IPv6 hosts have as many addresses as they like, and offices many people behind one.
#[tokio::test]
async fn networks_take_turns_to_derive_and_in_one_who_has_answered_least_is_next() {
    let mut office = Office::new();
    office.desk.derivers = Slots::new(1, 64);
    let (desk, served) = (&office.desk, Mutex::new(Vec::new()));
    let busy = desk.derivers.take(QueueOwner::NOBODY, 0).await.unwrap();
    let answer = async |address: [u8; 4], cookie: &'static [u8]| {
        let cookie = Some(cookie).filter(|cookie| !cookie.is_empty());
        let by = CaptchaClient { address: &address, network: &address[..3], realm: None, cookie };
        let limits = limits(&desk.proving, proofs(&office.live), &by).await;
        let buckets = buckets(&desk.proving, &limits, &by);
        let slot = desk.deriver(&buckets[0], &by).await.expect("there is room");
        served.lock().push((address, cookie));
        drop(slot);
    };
    let (greedy, quiet, elsewhere) = ([10, 0, 0, 1], [10, 0, 0, 99], [10, 0, 1, 1]);
    let crowd = futures_util::future::join_all((1..30).map(|host| answer([10, 0, 0, host], b"")));
    let again =
        async { tokio::join!(answer(greedy, b"one"), answer(greedy, b"two"), answer(greedy, b"one")) };
    let others = async { tokio::join!(answer(quiet, b""), answer(elsewhere, b""), async { drop(busy) }) };
    tokio::join!(crowd, again, others);
    let served = served.lock();
    let place = |who: [u8; 4], cookie| served.iter().rposition(|one| *one == (who, cookie)).unwrap();
    assert!(place(elsewhere, None) <= 1, "a network that was not served: {}", place(elsewhere, None));
    assert!(place(quiet, None) < place(greedy, Some(b"one")), "an address that had answered nothing");
    assert_eq!(place(greedy, Some(b"one")), served.len() - 1, "who answers on comes last");
}
