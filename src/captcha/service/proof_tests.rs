//! What a proof of work guarantees: the same as an image, and that nothing in it can be changed.

use altcha::SolveChallengeOptions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::redeem_tests::{SharedMarks, service};
use super::*;

const TTL: Duration = Duration::from_secs(180);
const HERE: CaptchaClient<'static> =
    CaptchaClient { address: b"192.0.2.7", network: b"192.0.2", realm: None, cookie: None };
const BROWSER: CaptchaClient<'static> = CaptchaClient { cookie: Some(b"one"), ..HERE };

struct Desk {
    captchas: CaptchaService,
    clock: Clock,
}

impl Desk {
    fn new() -> Self {
        Self::with_key(&MasterKey::from_bytes([3; 32]))
    }

    fn with_key(key: &MasterKey) -> Self {
        let clock = Clock::manual(Micros::from_seconds(1_700_000_000).plus(Duration::from_micros(1)));
        Self { captchas: service(key, Provider::Image, &clock), clock }
    }

    /// A challenge for the login with the least effort.
    fn issue(&self, client: &CaptchaClient<'_>) -> Challenge {
        self.captchas.fresh(CaptchaForm::Login, client, Difficulty::Medium, TTL, Some(Effort::Low))
    }

    fn solved(&self, client: &CaptchaClient<'_>) -> Value {
        solve(&self.issue(client))
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
        self.redeem_text(form, client, &encoded(solution)).await
    }

    async fn redeem_text(&self, form: CaptchaForm, client: &CaptchaClient<'_>, text: &str) -> RedeemResult {
        self.captchas.redeem(&LiveSettings::default(), form, client, CaptchaAnswer::Proof(text)).await
    }
}

/// As a client does.
fn solve(challenge: &Challenge) -> Value {
    solve_from(challenge, 0)
}

/// The same, with the first counter that hits from there on.
fn solve_from(challenge: &Challenge, start: u32) -> Value {
    let challenge = serde_json::to_value(challenge.proof.as_ref().unwrap()).unwrap();
    let own: altcha::Challenge = serde_json::from_value(challenge.clone()).unwrap();
    let options = SolveChallengeOptions { counter_start: start, ..SolveChallengeOptions::new(&own) };
    let solution = altcha::solve_challenge(options).unwrap().unwrap();
    json!({ "challenge": challenge, "solution": solution })
}

fn encoded(solution: &Value) -> String {
    STANDARD.encode(solution.to_string())
}

#[tokio::test]
async fn a_solution_solves_once() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE);
    assert!(desk.redeem(&HERE, &solution).await.is_solved());
    assert_eq!(desk.redeem(&HERE, &solution).await, RedeemResult::Spent);
}

#[tokio::test]
async fn image_and_proof_of_one_challenge_take_one_answer_between_them() {
    let desk = Desk::new();
    let challenge = desk.issue(&HERE);
    let wrong = desk.captchas.letters(CaptchaForm::Login, &HERE, &challenge.id, "nope").await;
    assert_eq!(wrong, RedeemResult::Wrong);
    assert_eq!(desk.redeem(&HERE, &solve(&challenge)).await, RedeemResult::Spent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_parallel_redemptions_solve_once() {
    let desk = Desk::new();
    let solution = Arc::new(desk.solved(&HERE));
    let shared: Arc<dyn SpentMarks> = Arc::new(SharedMarks(LocalMarks::new(Clock::System)));
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
    let solution = desk.solved(&BROWSER);
    for form in [CaptchaForm::Register, CaptchaForm::MessageCode, CaptchaForm::Attempt] {
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
    let solution = desk.solved(&HERE);
    let until = solution["challenge"]["parameters"]["expiresAt"].as_i64().unwrap();
    assert_eq!(until, desk.clock.now().plus(TTL).seconds() + 1);
    desk.clock.advance(TTL + Duration::from_secs(1));
    assert_eq!(desk.redeem(&HERE, &solution).await, RedeemResult::Expired);
}

#[tokio::test]
async fn changed_parameters_are_none_of_ours() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE);
    let other = desk.issue(&HERE);
    let other = serde_json::to_value(other.proof.unwrap()).unwrap();
    let mut changes = vec![
        ("/challenge/parameters/cost", json!(1)),
        ("/challenge/parameters/cost", json!(10_000)),
        ("/challenge/parameters/cost", json!(5_000.0)),
        ("/challenge/parameters/cost", json!(u64::MAX)),
        ("/challenge/parameters/cost", json!(-5_000)),
        ("/challenge/parameters/algorithm", json!("SHA-256")),
        ("/challenge/parameters/keyLength", json!(1)),
        ("/challenge/parameters/keyLength", json!(1_u64 << 40)),
        ("/challenge/parameters/keyPrefix", json!("")),
        ("/challenge/parameters/keyPrefix", json!("0")),
        ("/challenge/parameters/nonce", json!("")),
        ("/challenge/parameters/salt", json!("00".repeat(1_000))),
        ("/challenge/parameters/expiresAt", json!(4_000_000_000_u32)),
        ("/challenge/parameters/expiresAt", Value::Null),
        ("/challenge/parameters/data", Value::Null),
        ("/challenge/parameters/data", json!({})),
        ("/challenge/parameters/data/id", Value::Null),
        ("/challenge/signature", Value::Null),
        ("/challenge/signature", json!("")),
        ("/challenge/signature", json!("0".repeat(32))),
        ("/solution/counter", json!(1_u64 << 32)),
        ("/solution/counter", json!(-1)),
        ("/solution/derivedKey", Value::Null),
    ];
    for of_another in ["/parameters/data/id", "/parameters/nonce", "/parameters/salt", "/signature"] {
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
    let solution = desk.solved(&HERE);
    let right = solution["solution"]["derivedKey"].as_str().unwrap().to_owned();
    for wrong in [
        json!(""),
        json!("00"),
        json!("zz"),
        json!("é0"),
        json!("0".repeat(64)),
        json!("0".repeat(2_000)),
        json!(right.to_uppercase() + "00"),
        json!(right.replacen("00", "0", 1)),
    ] {
        let challenge = desk.issue(&HERE);
        let proof = serde_json::to_value(challenge.proof.as_ref().unwrap()).unwrap();
        let guessed = json!({ "challenge": proof, "solution": { "counter": 7, "derivedKey": wrong } });
        assert_eq!(desk.redeem(&HERE, &guessed).await, RedeemResult::Wrong, "{wrong}");
        let typed = desk.captchas.letters(CaptchaForm::Login, &HERE, &challenge.id, "x").await;
        assert_eq!(typed, RedeemResult::Spent);
    }
    let mut other = solution.clone();
    other["solution"]["counter"] = json!(solution["solution"]["counter"].as_u64().unwrap() + 1);
    assert_eq!(desk.redeem(&HERE, &other).await, RedeemResult::Wrong, "the key of another counter");
    assert_eq!(desk.redeem(&HERE, &solution).await, RedeemResult::Spent);
}

/// A client need not begin at 0, and one that computes abreast may find a later one first.
#[tokio::test]
async fn any_counter_that_hits_is_right_and_the_challenge_takes_one_of_them() {
    let desk = Desk::new();
    let challenge = desk.issue(&HERE);
    let later = solve_from(&challenge, u32::MAX - 5_000);
    assert!(desk.redeem(&HERE, &later).await.is_solved());
    assert_eq!(desk.redeem(&HERE, &solve(&challenge)).await, RedeemResult::Spent);
}

#[tokio::test]
async fn a_challenge_names_one_price_and_is_answered_at_that() {
    let desk = Desk::new();
    let issue = |effort| {
        let issued = desk.captchas.fresh(CaptchaForm::Login, &HERE, Difficulty::Easy, TTL, Some(effort));
        serde_json::to_value(issued.proof.unwrap()).unwrap()
    };
    let costs = Effort::ALL.map(|effort| issue(effort)["parameters"]["cost"].clone());
    assert_eq!(costs, [json!(5_000), json!(10_000), json!(15_000), json!(20_000)]);
    let mut cheaper = issue(Effort::Raised);
    cheaper["parameters"]["cost"] = json!(5_000);
    let own: altcha::Challenge = serde_json::from_value(cheaper.clone()).unwrap();
    let solution = altcha::solve_challenge(SolveChallengeOptions::new(&own)).unwrap().unwrap();
    let solved = json!({ "challenge": cheaper, "solution": solution });
    assert_eq!(desk.redeem(&HERE, &solved).await, RedeemResult::Malformed);
}

#[tokio::test]
async fn nonsense_is_none_of_ours() {
    let desk = Desk::new();
    let solution = desk.solved(&HERE);
    let whole = encoded(&solution);
    let nested = STANDARD.encode("[".repeat(2_000));
    let long = STANDARD.encode(format!("{}{solution}", " ".repeat(4_000)));
    for odd in
        ["x", "é", "{}", "\0", &whole[1..], &whole[..40], &nested, &long, &STANDARD.encode("{}"), "null"]
    {
        let redeemed = desk.redeem_text(CaptchaForm::Login, &HERE, odd).await;
        assert_eq!(redeemed, RedeemResult::Malformed, "{odd:.60}");
    }
    // The id of an image is no proof, and a proof's challenge no id.
    let typed = desk.captchas.letters(CaptchaForm::Login, &HERE, &whole, "").await;
    assert_eq!(typed, RedeemResult::Malformed);
}

#[tokio::test]
async fn another_key_is_not_believed_and_one_in_rotation_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = crate::secret::KeyFile::load_or_create(&folder.path().join("key"), &Entropy::Os).unwrap();
    let before = Desk::with_key(&file.master());
    let solution = before.solved(&HERE);
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

#[test]
fn more_failures_cost_more() {
    let asked = [None, Some(0.0), Some(0.33), Some(0.34), Some(0.5), Some(0.7), Some(0.99), Some(1.0)];
    let efforts = asked.map(Effort::after);
    use Effort::{High, Highest, Low, Raised};
    assert_eq!(efforts, [Raised, Low, Low, Raised, Raised, High, High, Highest]);
    assert!(Effort::ALL.is_sorted_by_key(|effort| effort.cost()));
}

#[test]
fn no_two_challenges_are_alike() {
    let desk = Desk::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let proof = serde_json::to_value(desk.issue(&HERE).proof.unwrap()).unwrap();
        for part in ["/parameters/nonce", "/parameters/salt", "/signature"] {
            assert!(seen.insert(proof.pointer(part).unwrap().to_string()), "{part}");
        }
    }
}
