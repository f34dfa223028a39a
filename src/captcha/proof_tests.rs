//! What a proof of work guarantees: the same as an image, and that nothing in it can be changed.

use altcha::SolveChallengeOptions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;

const TTL: Duration = Duration::from_secs(180);
const HERE: CaptchaClient<'static> = CaptchaClient { address: b"192.0.2.7", cookie: None };
const BROWSER: CaptchaClient<'static> = CaptchaClient { address: b"192.0.2.7", cookie: Some(b"one") };

struct Desk {
    captchas: Captchas,
    clock: Clock,
}

impl Desk {
    fn new() -> Self {
        Self::with_key(&MasterKey::from_bytes([3; 32]))
    }

    fn with_key(key: &MasterKey) -> Self {
        let clock = Clock::manual(Micros::from_seconds(1_700_000_000).plus(Duration::from_micros(1)));
        let captchas = Captchas::new(key, Provider::Image, clock.clone(), &Entropy::seeded(5));
        Self { captchas, clock }
    }

    /// A challenge for the login with the least effort.
    async fn issue(&self, client: &CaptchaClient<'_>) -> Challenge {
        let ready = self.captchas.proofs.ready();
        let proof = loop {
            if let Some(proof) = ready.take(Effort::Low) {
                break proof;
            }
            assert!(self.captchas.proofs.prepare().await);
        };
        self.captchas.issue(CaptchaForm::Login, client, Difficulty::Medium, TTL, Some(proof))
    }

    async fn solved(&self, client: &CaptchaClient<'_>) -> Value {
        solve(&self.issue(client).await)
    }

    async fn redeem(&self, client: &CaptchaClient<'_>, solution: &Value) -> RedeemResult {
        self.redeem_for(CaptchaForm::Login, client, solution).await
    }

    async fn redeem_for(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        solution: &Value,
    ) -> RedeemResult {
        self.captchas.redeem(form, client, CaptchaAnswer::Proof(&encoded(solution))).await
    }
}

/// As a client does.
fn solve(challenge: &Challenge) -> Value {
    let challenge = serde_json::to_value(challenge.proof.as_ref().unwrap()).unwrap();
    let own: altcha::Challenge = serde_json::from_value(challenge.clone()).unwrap();
    let solution = altcha::solve_challenge(SolveChallengeOptions::new(&own)).unwrap().unwrap();
    assert!(solution.counter <= Effort::Low.most());
    json!({ "challenge": challenge, "solution": solution })
}

fn encoded(solution: &Value) -> String {
    STANDARD.encode(solution.to_string())
}

#[tokio::test]
async fn a_solution_solves_once() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE).await;
    assert!(desk.redeem(&HERE, &solution).await.is_solved());
    assert_eq!(desk.redeem(&HERE, &solution).await, RedeemResult::Spent);
}

#[tokio::test]
async fn image_and_proof_of_one_challenge_take_one_answer_between_them() {
    let desk = Desk::new();
    let challenge = desk.issue(&HERE).await;
    let letters = CaptchaAnswer::Letters { id: &challenge.id, typed: "nope" };
    let wrong = desk.captchas.redeem(CaptchaForm::Login, &HERE, letters).await;
    assert_eq!(wrong, RedeemResult::Wrong);
    assert_eq!(desk.redeem(&HERE, &solve(&challenge)).await, RedeemResult::Spent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_parallel_redemptions_solve_once() {
    let desk = Desk::new();
    let solution = Arc::new(desk.solved(&HERE).await);
    let shared: Arc<dyn SpentMarks> = Arc::new(LocalMarks::new(Clock::System));
    let desk = Arc::new(Desk { captchas: desk.captchas.with_shared_marks(shared), clock: desk.clock });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (desk, solution) = (Arc::clone(&desk), Arc::clone(&solution));
        tasks.spawn(async move { desk.redeem(&HERE, &solution).await });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|redeemed| redeemed.is_solved()).count(), 1);
    assert_eq!(all.iter().filter(|redeemed| **redeemed == RedeemResult::Spent).count(), 99);
}

#[tokio::test]
async fn another_form_address_or_browser_is_refused_and_burns_nothing() {
    let desk = Desk::new();
    let solution = desk.solved(&BROWSER).await;
    for form in [CaptchaForm::Register, CaptchaForm::SmsCode, CaptchaForm::Attempt] {
        assert_eq!(desk.redeem_for(form, &BROWSER, &solution).await, RedeemResult::Foreign);
    }
    let elsewhere = CaptchaClient { address: b"192.0.2.8", ..BROWSER };
    let other = CaptchaClient { cookie: Some(b"two"), ..BROWSER };
    for client in [HERE, elsewhere, other] {
        assert_eq!(desk.redeem(&client, &solution).await, RedeemResult::Foreign);
    }
    assert!(desk.redeem(&BROWSER, &solution).await.is_solved());
}

#[tokio::test]
async fn it_expires_with_its_image() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE).await;
    let until = solution["challenge"]["parameters"]["expiresAt"].as_i64().unwrap();
    assert_eq!(until, desk.clock.now().plus(TTL).seconds() + 1);
    desk.clock.advance(TTL + Duration::from_secs(1));
    assert_eq!(desk.redeem(&HERE, &solution).await, RedeemResult::Expired);
}

#[tokio::test]
async fn changed_parameters_are_none_of_ours() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE).await;
    let other = desk.issue(&HERE).await;
    let other = serde_json::to_value(other.proof.unwrap()).unwrap();
    let mut changes = vec![
        ("/challenge/parameters/cost", json!(1)),
        ("/challenge/parameters/algorithm", json!("SHA-256")),
        ("/challenge/parameters/keyLength", json!(1)),
        ("/challenge/parameters/keyPrefix", json!("")),
        ("/challenge/parameters/keySignature", json!("")),
        ("/challenge/parameters/keySignature", Value::Null),
        ("/challenge/parameters/expiresAt", json!(4_000_000_000_u32)),
        ("/challenge/parameters/expiresAt", Value::Null),
        ("/challenge/parameters/data", Value::Null),
        ("/challenge/parameters/data", json!({})),
        ("/challenge/parameters/data/id", Value::Null),
        ("/challenge/signature", Value::Null),
        ("/challenge/signature", json!("")),
        ("/challenge/signature", json!("0".repeat(64))),
    ];
    for of_another in [
        "/parameters/data/id",
        "/parameters/nonce",
        "/parameters/salt",
        "/parameters/keySignature",
        "/parameters/keyPrefix",
        "/signature",
    ] {
        let there = other.pointer(of_another).unwrap();
        let here = Box::leak(format!("/challenge{of_another}").into_boxed_str());
        assert_ne!(solution.pointer(here), Some(there), "{of_another}");
        changes.push((here, there.clone()));
    }
    for (place, value) in changes {
        let mut changed = solution.clone();
        *changed.pointer_mut(place).unwrap() = value.clone();
        assert_eq!(desk.redeem(&HERE, &changed).await, RedeemResult::Malformed, "{place} = {value}");
    }
    let mut extended = solution.clone();
    extended["challenge"]["parameters"]["memoryCost"] = json!(1);
    assert_eq!(desk.redeem(&HERE, &extended).await, RedeemResult::Malformed);
    assert!(desk.redeem(&HERE, &solution).await.is_solved(), "and none of it spent the real one");
}

#[tokio::test]
async fn a_wrong_key_is_a_wrong_answer_and_spends_the_challenge() {
    let desk = Desk::new();
    for wrong in
        [json!(""), json!("00"), json!("zz"), json!("é0"), json!("0".repeat(64)), json!("0".repeat(2_000))]
    {
        let solution = desk.solved(&HERE).await;
        let mut guessed = solution.clone();
        guessed["solution"]["derivedKey"] = wrong.clone();
        assert_eq!(desk.redeem(&HERE, &guessed).await, RedeemResult::Wrong, "{wrong}");
        assert_eq!(desk.redeem(&HERE, &solution).await, RedeemResult::Spent);
    }
    // The prefix alone, which everybody sees, is not the key.
    let solution = desk.solved(&HERE).await;
    let mut guessed = solution.clone();
    let seen = solution["challenge"]["parameters"]["keyPrefix"].as_str().unwrap();
    guessed["solution"]["derivedKey"] = json!(seen.repeat(2));
    assert_eq!(desk.redeem(&HERE, &guessed).await, RedeemResult::Wrong);
}

#[tokio::test]
async fn nonsense_is_none_of_ours() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE).await;
    let whole = encoded(&solution);
    let nested = STANDARD.encode("[".repeat(2_000));
    let long = STANDARD.encode(" ".repeat(4_000) + &solution.to_string());
    for odd in
        ["x", "é", "{}", "\0", &whole[1..], &whole[..40], &nested, &long, &STANDARD.encode("{}"), "null"]
    {
        let redeemed = desk.captchas.redeem(CaptchaForm::Login, &HERE, CaptchaAnswer::Proof(odd)).await;
        assert_eq!(redeemed, RedeemResult::Malformed, "{odd:.60}");
    }
    // The id of an image is no proof, and a proof's challenge no id.
    let typed = CaptchaAnswer::Letters { id: &whole, typed: "" };
    assert_eq!(desk.captchas.redeem(CaptchaForm::Login, &HERE, typed).await, RedeemResult::Malformed);
}

#[tokio::test]
async fn another_key_is_not_believed_and_one_in_rotation_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = crate::secret::KeyFile::load_or_create(&folder.path().join("key"), &Entropy::Os).unwrap();
    let before = Desk::with_key(&file.master());
    let solution = before.solved(&HERE).await;
    assert_eq!(Desk::new().redeem(&HERE, &solution).await, RedeemResult::Malformed);
    for step in [crate::secret::KeyStep::Add, crate::secret::KeyStep::Use] {
        file.take(step, &Entropy::Os).unwrap();
        let after = Desk::with_key(&file.master());
        assert!(after.redeem(&HERE, &solution).await.is_solved(), "{step}");
    }
    file.take(crate::secret::KeyStep::Drop, &Entropy::Os).unwrap();
    let after = Desk::with_key(&file.master());
    assert_eq!(after.redeem(&HERE, &solution).await, RedeemResult::Malformed);
}

#[tokio::test]
async fn no_derivation_is_given_out_twice() {
    let desk = Desk::new();
    for _ in 0..12 {
        assert!(desk.captchas.proofs.prepare().await);
    }
    let ready = desk.captchas.proofs.ready();
    let mut seen = std::collections::HashSet::new();
    for effort in Effort::ALL {
        while let Some(proof) = ready.take(effort) {
            let challenge =
                desk.captchas.issue(CaptchaForm::Login, &HERE, Difficulty::Easy, TTL, Some(proof));
            let proof = serde_json::to_value(challenge.proof.unwrap()).unwrap();
            assert!(seen.insert(proof["parameters"]["keyPrefix"].to_string()));
        }
    }
    assert_eq!(seen.len(), 12);
}

#[test]
fn more_failures_cost_more() {
    let asked = [None, Some(0.0), Some(0.33), Some(0.34), Some(0.5), Some(0.7), Some(0.99), Some(1.0)];
    let efforts = asked.map(Effort::after);
    use Effort::{High, Highest, Low, Raised};
    assert_eq!(efforts, [Raised, Low, Low, Raised, Raised, High, High, Highest]);
    assert!(Effort::ALL.is_sorted_by_key(|effort| effort.most()));
}

#[tokio::test]
async fn counters_are_spread_over_the_whole_range() {
    let desk = Desk::new();
    let mut counters = Vec::new();
    for _ in 0..8 {
        counters.push(desk.solved(&HERE).await["solution"]["counter"].as_u64().unwrap());
    }
    let half = u64::from(Effort::Low.most()) / 2;
    let upper = counters.iter().filter(|counter| **counter > half).count();
    assert!((1..8).contains(&upper), "{counters:?}");
}
