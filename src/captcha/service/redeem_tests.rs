//! What a challenge guarantees: one use, one client, one form, a limited time.

use std::sync::Mutex;

use gatehouse_limiter::{CallError, StoreError};

use super::*;
use crate::captcha::SpendFuture;

const TTL: Duration = Duration::from_secs(180);
const HERE: CaptchaClient<'static> =
    CaptchaClient { address: b"192.0.2.7", network: b"192.0.2", realm: None, cookie: None };
const BROWSER: CaptchaClient<'static> = CaptchaClient { cookie: Some(b"one"), ..HERE };

fn captchas(provider: Provider) -> (CaptchaService, Clock) {
    let clock = Clock::manual(Micros::from_seconds(1_700_000_000).plus(Duration::from_micros(1)));
    (service(&MasterKey::from_bytes([3; 32]), provider, &clock), clock)
}

pub(super) fn service(key: &MasterKey, provider: Provider, clock: &Clock) -> CaptchaService {
    let entropy = Entropy::seeded(5);
    let counted = || Limiter::new(MemoryStore::new(clock.clone()), key.derive("test"), &entropy);
    CaptchaService::new(key, provider, clock.clone(), &entropy, counted(), counted())
}

fn image_captchas() -> CaptchaService {
    captchas(Provider::Image).0
}

impl CaptchaService {
    fn login(&self, client: &CaptchaClient<'_>) -> String {
        self.fresh(CaptchaForm::Login, client, Difficulty::Medium, TTL, None).id
    }

    async fn draw(&self, id: &str) -> Result<Arc<[u8]>, ImageError> {
        self.image(&LiveSettings::default(), &HERE, id).await.map(|image| image.png)
    }

    pub(super) async fn letters(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        id: &str,
        typed: &str,
    ) -> RedeemResult {
        self.redeem(&LiveSettings::default(), form, client, CaptchaAnswer::Letters { id, typed }).await
    }

    fn right(&self, id: &str) -> String {
        self.answers.text(&self.ids.parse(id).unwrap())
    }

    async fn answer(&self, client: &CaptchaClient<'_>, id: &str) -> RedeemResult {
        self.letters(CaptchaForm::Login, client, id, &self.right(id)).await
    }
}

#[tokio::test]
async fn right_answer_solves_once() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    assert!(captchas.answer(&HERE, &id).await.is_solved());
    assert_eq!(captchas.answer(&HERE, &id).await, RedeemResult::Spent);
}

#[tokio::test]
async fn wrong_answer_spends_the_challenge_too() {
    let captchas = image_captchas();
    for wrong in ["", "nope", "     ", &"A".repeat(100_000)] {
        let id = captchas.login(&HERE);
        assert_eq!(captchas.letters(CaptchaForm::Login, &HERE, &id, wrong).await, RedeemResult::Wrong);
        assert_eq!(captchas.answer(&HERE, &id).await, RedeemResult::Spent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundred_parallel_right_answers_solve_once() {
    let captchas =
        Arc::new(image_captchas().with_shared_marks(Arc::new(SharedMarks(LocalMarks::new(Clock::System)))));
    let id = captchas.login(&HERE);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (captchas, id) = (Arc::clone(&captchas), id.clone());
        tasks.spawn(async move { captchas.answer(&HERE, &id).await });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|redeemed| redeemed.is_solved()).count(), 1);
    assert_eq!(all.iter().filter(|redeemed| **redeemed == RedeemResult::Spent).count(), 99);
}

#[tokio::test]
async fn case_and_spaces_do_not_matter() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    let spaced = captchas.right(&id).to_lowercase().replace("", " ");
    assert!(captchas.letters(CaptchaForm::Login, &HERE, &id, &spaced).await.is_solved());
}

#[tokio::test]
async fn another_client_is_refused_and_burns_nothing() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    let elsewhere = CaptchaClient { address: b"192.0.2.8", ..HERE };
    assert_eq!(captchas.answer(&elsewhere, &id).await, RedeemResult::Foreign);
    assert!(captchas.answer(&HERE, &id).await.is_solved());
}

#[tokio::test]
async fn another_form_is_refused_and_burns_nothing() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    let right = captchas.right(&id);
    for form in [CaptchaForm::Register, CaptchaForm::MessageCode, CaptchaForm::PasswordReset] {
        assert_eq!(
            captchas.letters(form, &HERE, &id, &right).await,
            RedeemResult::Foreign,
            "{}",
            form.as_str()
        );
    }
    assert!(captchas.answer(&HERE, &id).await.is_solved());
}

#[tokio::test]
async fn challenge_given_to_a_browser_needs_its_cookie() {
    let captchas = image_captchas();
    let id = captchas.login(&BROWSER);
    let other = CaptchaClient { cookie: Some(b"two"), ..BROWSER };
    assert_eq!(captchas.answer(&HERE, &id).await, RedeemResult::Foreign);
    assert_eq!(captchas.answer(&other, &id).await, RedeemResult::Foreign);
    assert!(captchas.answer(&BROWSER, &id).await.is_solved());
}

#[tokio::test]
async fn challenge_given_without_cookie_is_good_with_one() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    assert!(captchas.answer(&BROWSER, &id).await.is_solved());
}

#[tokio::test]
async fn expires_no_earlier_than_promised_and_at_most_a_second_later() {
    let (captchas, clock) = captchas(Provider::Image);
    let (one, two) = (captchas.login(&HERE), captchas.login(&HERE));
    clock.advance(TTL);
    assert!(captchas.answer(&HERE, &one).await.is_solved());
    clock.advance(Duration::from_secs(1));
    assert_eq!(captchas.answer(&HERE, &two).await, RedeemResult::Expired);
    assert_eq!(captchas.draw(&two).await, Err(ImageError::Unknown));
}

#[tokio::test]
async fn every_changed_character_makes_it_no_id_of_ours() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    for at in 0..id.len() {
        for new in [b'A', b'b', b'_', b'=', b'+'] {
            let mut changed = id.clone().into_bytes();
            if changed[at] == new {
                continue;
            }
            changed[at] = new;
            let changed = String::from_utf8(changed).unwrap();
            let redeemed = captchas.letters(CaptchaForm::Login, &HERE, &changed, "").await;
            assert_eq!(redeemed, RedeemResult::Malformed, "{at}");
            assert_eq!(captchas.draw(&changed).await, Err(ImageError::Unknown));
        }
    }
    assert!(captchas.answer(&HERE, &id).await.is_solved(), "and none of it spent the real one");
}

#[tokio::test]
async fn every_flipped_bit_makes_it_no_id_of_ours() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let captchas = image_captchas();
    let bytes = URL_SAFE_NO_PAD.decode(captchas.login(&HERE)).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(captchas.ids.parse(&URL_SAFE_NO_PAD.encode(changed)).is_none(), "{bit}");
    }
}

#[tokio::test]
async fn other_lengths_are_no_ids() {
    let captchas = image_captchas();
    let id = captchas.login(&HERE);
    assert_eq!(id.len(), 79);
    for odd in [String::new(), id[..78].to_owned(), format!("{id}A"), "A".repeat(10 << 20), "é".repeat(27)] {
        assert_eq!(captchas.letters(CaptchaForm::Login, &HERE, &odd, "").await, RedeemResult::Malformed);
    }
}

#[tokio::test]
async fn id_of_another_key_is_no_id_of_ours() {
    let captchas = image_captchas();
    let other = service(&MasterKey::from_bytes([4; 32]), Provider::Image, &Clock::System);
    assert_eq!(
        captchas.letters(CaptchaForm::Login, &HERE, &other.login(&HERE), "").await,
        RedeemResult::Malformed
    );
}

#[tokio::test]
async fn image_is_the_same_bytes_however_often_and_wherever_asked() {
    let (one, two) = (image_captchas(), image_captchas());
    let id = one.login(&HERE);
    let first = one.draw(&id).await.unwrap();
    assert!(first.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert!(Arc::ptr_eq(&first, &one.draw(&id).await.unwrap()), "from the cache");
    assert_eq!(first, two.draw(&id).await.unwrap(), "on another instance");
    assert_ne!(first, one.draw(&one.login(&HERE)).await.unwrap());
}

#[tokio::test]
async fn answers_are_of_the_difficultys_length_and_differ() {
    let captchas = image_captchas();
    for (difficulty, length) in [(Difficulty::Easy, 5), (Difficulty::Medium, 5), (Difficulty::Hard, 6)] {
        let issue = || captchas.right(&captchas.fresh(CaptchaForm::Login, &HERE, difficulty, TTL, None).id);
        let (one, two) = (issue(), issue());
        assert_eq!(one.len(), length);
        assert_ne!(one, two);
    }
}

#[tokio::test]
async fn fixed_answer_goes_the_same_way() {
    let (captchas, _) = captchas(Provider::Fixed { answer: "Solved 1".to_owned() });
    let id = captchas.login(&HERE);
    assert!(captchas.draw(&id).await.unwrap().starts_with(b"\x89PNG"));
    assert!(captchas.letters(CaptchaForm::Login, &HERE, &id, "SOLVED1").await.is_solved());
    assert_eq!(captchas.letters(CaptchaForm::Login, &HERE, &id, "SOLVED1").await, RedeemResult::Spent);
    let id = captchas.login(&HERE);
    assert_eq!(captchas.letters(CaptchaForm::Login, &HERE, &id, "solved2").await, RedeemResult::Wrong);
}

#[tokio::test]
async fn empty_fixed_answer_is_never_solved() {
    let (captchas, _) = captchas(Provider::Fixed { answer: " ".to_owned() });
    let id = captchas.login(&HERE);
    assert_eq!(captchas.letters(CaptchaForm::Login, &HERE, &id, "").await, RedeemResult::Wrong);
}

/// What all instances see, in this process.
pub(super) struct SharedMarks(pub LocalMarks);

impl SpentMarks for SharedMarks {
    fn spend(&self, id_hash: [u8; 16], ttl: Duration) -> SpendFuture<'_> {
        Box::pin(std::future::ready(Ok(self.0.spend(id_hash, ttl))))
    }
}

/// Gives every call the same answer, and counts the calls.
struct Scripted(Option<bool>, Mutex<Vec<Duration>>);

impl SpentMarks for Scripted {
    fn spend(&self, _: [u8; 16], ttl: Duration) -> SpendFuture<'_> {
        self.1.lock().unwrap().push(ttl);
        let verdict = self.0.ok_or_else(|| CallError::Store(StoreError::Down));
        Box::pin(std::future::ready(verdict))
    }
}

fn scripted(verdict: Option<bool>) -> (CaptchaService, Arc<Scripted>) {
    let shared = Arc::new(Scripted(verdict, Mutex::default()));
    (image_captchas().with_shared_marks(Arc::clone(&shared) as _), shared)
}

/// Anybody can send wrong answers as fast as they like.
#[tokio::test]
async fn a_flood_of_wrong_answers_fills_no_marks_and_a_right_one_is_good_once() {
    let (mut captchas, shared) = scripted(Some(true));
    captchas.local = LocalMarks::with_capacity(captchas.clock.clone(), 2);
    let wrong = async |id: &str| captchas.letters(CaptchaForm::Login, &HERE, id, "nope").await;
    for _ in 0..200 {
        assert_eq!(wrong(&captchas.login(&HERE)).await, RedeemResult::Wrong);
    }
    let marked = shared.1.lock().unwrap().len();
    assert_eq!(marked, 16, "as many as there is room for");
    let image = captchas.login(&HERE);
    assert_eq!(wrong(&image).await, RedeemResult::Wrong);
    assert_eq!(captchas.answer(&HERE, &image).await, RedeemResult::Spent, "of the newest there is a mark");
    assert_eq!(shared.1.lock().unwrap().len(), marked);
    let image = captchas.login(&HERE);
    assert!(captchas.answer(&HERE, &image).await.is_solved());
    assert_eq!(shared.1.lock().unwrap().len(), marked + 1);
    for _ in 0..200 {
        assert_eq!(wrong(&captchas.login(&HERE)).await, RedeemResult::Wrong);
    }
    assert_eq!(captchas.answer(&HERE, &image).await, RedeemResult::Spent);
}

#[tokio::test]
async fn shared_mark_of_another_instance_refuses() {
    let (captchas, _) = scripted(Some(false));
    let id = captchas.login(&HERE);
    assert_eq!(captchas.answer(&HERE, &id).await, RedeemResult::Spent);
}

#[tokio::test]
async fn flushed_shared_marks_let_nothing_be_replayed_here() {
    let (captchas, shared) = scripted(Some(true));
    let id = captchas.login(&HERE);
    assert!(captchas.answer(&HERE, &id).await.is_solved());
    assert_eq!(captchas.answer(&HERE, &id).await, RedeemResult::Spent);
    assert_eq!(*shared.1.lock().unwrap(), [Duration::from_micros(180_999_999) + CLOCK_SKEW]);
}

#[tokio::test]
async fn outage_of_shared_marks_leaves_one_use_here() {
    let (captchas, _) = scripted(None);
    let id = captchas.login(&HERE);
    assert!(captchas.answer(&HERE, &id).await.is_solved());
    assert_eq!(captchas.answer(&HERE, &id).await, RedeemResult::Spent);
}
