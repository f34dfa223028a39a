//! Who gets an image or a proof of work when many want one.

use std::net::Ipv4Addr;

use super::super::Provider;
use super::*;
use crate::clock::{Clock, Micros};
use crate::config::Limits;
use crate::entropy::Entropy;
use crate::secret::MasterKey;
use crate::throttle::Rule;

const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct Office {
    pub desk: CaptchaService,
    pub clock: Clock,
    pub live: LiveSettings,
}

impl Office {
    pub fn new() -> Self {
        let (clock, entropy) = (Clock::manual(Micros::from_seconds(1_700_000_000)), Entropy::seeded(5));
        let key = MasterKey::from_bytes([3; 32]);
        // Blank images, because only who gets one matters here.
        let provider = Provider::Fixed { answer: "solo".to_owned() };
        let captchas = Captchas::new(&key, provider, clock.clone(), &entropy);
        let drawing = Limiter::new(MemoryStore::new(clock.clone()), key.derive("test"), &entropy);
        let proving = Limiter::new(MemoryStore::new(clock.clone()), key.derive("test"), &entropy);
        let mut live = LiveSettings::default();
        live.captcha.proof_of_work = false;
        Self { desk: CaptchaService::new(captchas, drawing, proving), clock, live }
    }

    /// With so many proofs of work ready, at least.
    async fn with_proofs(mut self, ready: u32) -> Self {
        self.live.captcha.proof_of_work = true;
        for _ in 0..ready {
            assert!(self.desk.prepare_proof().await);
        }
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
        let by = ImageRequester { address: &address, network: &address[..3] };
        self.desk.turn(&self.live, by, CaptchaForm::Login).await.is_ok()
    }

    async fn issue(&self, address: u32) -> Result<Challenge, ImageRefusal> {
        let address = Ipv4Addr::from_bits(address).octets();
        let client = CaptchaClient { address: &address, cookie: None };
        let effort = async || Effort::Low;
        self.desk.issue(&self.live, CaptchaForm::Login, &client, &address[..3], effort).await
    }

    async fn image(&self, address: u32, id: &str) -> Result<ChallengeImage, ImageRefusal> {
        let address = Ipv4Addr::from_bits(address).octets();
        let by = ImageRequester { address: &address, network: &address[..3] };
        match self.desk.image(&self.live, by, id).await {
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
    assert_eq!((later.limit, later.retry_after, later.form), ("captcha-address", MINUTE, CaptchaForm::Login));
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
    assert_eq!((later.limit, later.retry_after), ("captcha-total", MINUTE));
    assert_eq!(greedy(40).await, 15);
    assert_eq!(office.fetch(network(50)).await.unwrap_err().limit, "captcha-total", "nothing is left");
    office.clock.advance(MINUTE);
    office.fetch(network(0)).await.unwrap();
}

/// The default limits. A thousand networks take all that they can get for two minutes; meanwhile six new
/// networks come every second.
#[tokio::test]
async fn a_thousand_greedy_networks_leave_others_their_image() {
    let office = Office::new();
    let (mut greedy, mut served) = (0, 0);
    for round in 0..60 {
        for number in 0..1_000 {
            while office.admits(network(number)).await {
                greedy += 1;
            }
        }
        for number in 0..12 {
            served += u32::from(office.admits(network(10_000 + round * 12 + number)).await);
        }
        office.clock.advance(Duration::from_secs(2));
    }
    assert_eq!(served, 720, "beside {greedy}");
}

#[tokio::test]
async fn a_proof_counts_when_it_is_given_out_and_beside_the_images() {
    let office = Office::new().limit("captcha-address", 2).with_proofs(12).await;
    let all =
        async || office.issue(1).await.map(|issued| (issued.image_after.is_none(), issued.proof.is_some()));
    let first = office.issue(1).await.unwrap();
    assert!(first.image_after.is_none() && first.proof.is_some());
    assert_eq!(all().await, Ok((true, true)));
    assert_eq!(all().await, Ok((true, false)), "no third proof, but an image");
    office.image(1, &first.id).await.unwrap();
    office.fetch(1).await.unwrap();
    let later = all().await.unwrap_err();
    assert_eq!((later.limit, later.retry_after), ("captcha-address", MINUTE));
    assert!(office.issue(2).await.unwrap().proof.is_some(), "another address has its own");
    office.clock.advance(MINUTE);
    assert_eq!(all().await, Ok((true, true)));
}

#[tokio::test]
async fn a_proof_is_given_without_an_image_while_none_can_be_drawn() {
    let office = Office::new().limit("captcha-address", 1).with_proofs(12).await;
    let id = office.issue(2).await.unwrap().id;
    office.image(1, &id).await.unwrap();
    let issued = office.issue(1).await.unwrap();
    assert!(issued.image_after.is_some() && issued.proof.is_some());
}

#[tokio::test]
async fn an_image_comes_alone_while_no_proof_is_ready_or_none_is_offered() {
    let mut office = Office::new().with_proofs(0).await;
    assert!(office.issue(1).await.unwrap().proof.is_none(), "none was made ahead");
    office = office.with_proofs(12).await;
    assert!(office.issue(1).await.unwrap().proof.is_some());
    office.live.captcha.proof_of_work = false;
    assert!(office.issue(1).await.unwrap().proof.is_none());
}

/// What the effort is worked out from costs the store a call.
#[tokio::test]
async fn no_effort_is_worked_out_for_a_client_that_gets_no_proof() {
    let office = Office::new().limit("captcha-address", 1).with_proofs(12).await;
    let client = CaptchaClient { address: b"1", cookie: None };
    let asked = std::cell::Cell::new(0);
    for _ in 0..5 {
        let effort = async || {
            asked.set(asked.get() + 1);
            Effort::Low
        };
        office.desk.issue(&office.live, CaptchaForm::Login, &client, b"1", effort).await.unwrap();
    }
    assert_eq!(asked.get(), 1);
}
