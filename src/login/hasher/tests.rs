use super::*;

/// The cheapest parameters that argon2 accepts.
const CHEAP: HashSettings =
    HashSettings { memory_kib: 8, iterations: 1, parallelism: 1, workers: 1, queue: 256 };

/// A caller from a network, without a solved challenge.
const STRANGER: HashCaller = HashCaller { solved: false, ..HashCaller::OPERATOR };

fn hasher(settings: HashSettings) -> PasswordHasher {
    PasswordHasher::new(settings, Entropy::Os).unwrap()
}

fn password(text: &str) -> Password {
    Password::attempt(text).unwrap()
}

#[tokio::test]
async fn only_the_hashed_password_is_right() {
    let hasher = hasher(HashSettings { workers: 2, ..HashSettings::default() });
    let phc = hasher.hash(&STRANGER, &password("three-headed monkey")).await.unwrap();
    assert!(phc.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", phc.as_str());
    let right =
        hasher.verify(&STRANGER, pending(), &password("three-headed monkey"), Some(&phc)).await.unwrap();
    assert_eq!(right, VerifyResult { ok: true, rehash: false });
    for wrong in ["three-headed monke", "Three-headed monkey", "x"] {
        let verified = hasher.verify(&STRANGER, pending(), &password(wrong), Some(&phc)).await.unwrap();
        assert_eq!(verified, VerifyResult { ok: false, rehash: false });
    }
}

#[tokio::test]
async fn a_new_password_is_hashed_if_it_will_do() {
    let (hasher, login) = (hasher(CHEAP), Username::parse("guybrush").unwrap());
    let phc = hasher.hash_new("quiet lanterns drift", &login).await.unwrap().unwrap();
    assert!(
        hasher.verify(&STRANGER, pending(), &password("quiet lanterns drift"), Some(&phc)).await.unwrap().ok
    );
    for (weak, why) in [
        ("short", PasswordError::TooShort),
        ("guybrushguybrush", PasswordError::Guessable),
        ("", PasswordError::Empty),
    ] {
        assert_eq!(hasher.hash_new(weak, &login).await.unwrap(), Err(why));
    }
    assert_eq!(hasher.verifications(), 2, "none for a refused one");
}

#[tokio::test]
async fn two_hashes_of_one_password_differ() {
    let hasher = hasher(CHEAP);
    assert_ne!(
        hasher.hash(&STRANGER, &password("grog")).await.unwrap(),
        hasher.hash(&STRANGER, &password("grog")).await.unwrap()
    );
}

#[tokio::test]
async fn other_implementations_read_our_hashes() {
    use argon2::PasswordVerifier;
    let phc = hasher(CHEAP).hash(&STRANGER, &password("grog")).await.unwrap();
    assert!(Argon2::default().verify_password(b"grog", phc.as_str()).is_ok());
}

#[tokio::test]
async fn an_unknown_account_costs_a_hash_and_is_never_right() {
    let hasher = hasher(CHEAP);
    for _ in 0..3 {
        let verified = hasher.verify(&STRANGER, pending(), &password("anything"), None).await.unwrap();
        assert_eq!(verified, VerifyResult { ok: false, rehash: false });
    }
    assert_eq!(hasher.verifications(), 3);
}

#[tokio::test]
async fn other_parameters_ask_for_a_rehash_only_when_right() {
    let old = hasher(CHEAP).hash(&STRANGER, &password("grog")).await.unwrap();
    for changed in [
        HashSettings { memory_kib: 16, ..CHEAP },
        HashSettings { iterations: 2, ..CHEAP },
        HashSettings { memory_kib: 16, parallelism: 2, ..CHEAP },
    ] {
        let hasher = hasher(changed);
        let right = hasher.verify(&STRANGER, pending(), &password("grog"), Some(&old)).await.unwrap();
        assert_eq!(right, VerifyResult { ok: true, rehash: true });
        let wrong = hasher.verify(&STRANGER, pending(), &password("rum"), Some(&old)).await.unwrap();
        assert_eq!(wrong, VerifyResult { ok: false, rehash: false });
    }
}

#[tokio::test]
async fn stored_parameters_beyond_bounds_are_not_computed() {
    let good = hasher(CHEAP).hash(&STRANGER, &password("grog")).await.unwrap();
    let tail = good.as_str().split_once("p=1").unwrap().1.to_owned();
    let hasher = hasher(CHEAP);
    for head in [
        "$argon2id$v=19$m=1048576,t=1,p=1",
        "$argon2id$v=19$m=65537,t=1,p=1",
        "$argon2id$v=19$m=65536,t=4,p=1",
        "$argon2id$v=19$m=8,t=4294967295,p=1",
        "$argon2id$v=19$m=800,t=1,p=100",
        "$argon2id$v=16$m=8,t=1,p=1",
        "$argon2i$v=19$m=8,t=1,p=1",
        "$argon2id$m=8,t=1,p=1",
        "$2b$12",
        "",
    ] {
        assert!(StoredHash::parse(&format!("{head}{tail}"), &hasher.0.params).is_none(), "{head}");
        let phc = Phc::stored(format!("{head}{tail}"));
        assert!(
            !hasher.verify(&STRANGER, pending(), &password("grog"), Some(&phc)).await.unwrap().ok,
            "{head}"
        );
    }
    assert_eq!(hasher.verifications(), 10, "a decoy for each");
    let short = Phc::stored("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAA".into());
    assert!(StoredHash::parse(short.as_str(), &hasher.0.params).is_none(), "12 bytes of output");
    assert!(StoredHash::parse(&"$".repeat(10_000_000), &hasher.0.params).is_none());
}

fn guess(
    hasher: &PasswordHasher,
    caller: HashCaller,
) -> tokio::task::JoinHandle<Result<VerifyResult, HasherBusy>> {
    let hasher = hasher.clone();
    tokio::spawn(async move { hasher.verify(&caller, pending(), &password("x"), None).await })
}

async fn until_waiting(hasher: &PasswordHasher, lane: HashLane, count: usize) {
    while hasher.waiting(lane) != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_says_when_to_come_back() {
    let hasher = hasher(HashSettings { queue: 4, ..CHEAP });
    let workers = hasher.keep_busy(true).await;
    let waiters = [guess(&hasher, STRANGER), guess(&hasher, STRANGER)];
    until_waiting(&hasher, HashLane::Unsolved, 2).await;
    let full = hasher.has_room(&STRANGER).await.unwrap_err();
    assert!(full.retry_after >= Duration::from_secs(1));
    assert!(hasher.verify(&STRANGER, pending(), &password("x"), None).await.is_err());
    drop(workers);
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_ok(), "those who wait are served");
    }
    assert_eq!(hasher.verifications(), 2);
}

#[tokio::test]
async fn whoever_gives_way_is_told_at_once() {
    let hasher = hasher(HashSettings { queue: 4, ..CHEAP });
    let workers = hasher.keep_busy(true).await;
    let [first, second] = [guess(&hasher, STRANGER), guess(&hasher, STRANGER)];
    until_waiting(&hasher, HashLane::Unsolved, 2).await;
    let newcomer = guess(&hasher, HashCaller::stranger(b"elsewhere", false));
    assert!(second.await.unwrap().is_err(), "the youngest of those with most");
    drop(workers);
    assert!(first.await.unwrap().is_ok() && newcomer.await.unwrap().is_ok());
    assert_eq!(hasher.verifications(), 2, "what gave way was never computed");
}

#[tokio::test]
async fn who_stops_waiting_gives_the_position_back() {
    let hasher = hasher(HashSettings { queue: 1, ..CHEAP });
    let workers = hasher.keep_busy(true).await;
    let waiter = guess(&hasher, STRANGER);
    until_waiting(&hasher, HashLane::Unsolved, 1).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    assert_eq!(hasher.waiting(HashLane::Unsolved), 0);
    let hung_up = hasher.verify(&STRANGER, std::future::ready(()), &password("x"), None).await;
    assert!(hung_up.is_err());
    assert_eq!(hasher.waiting(HashLane::Unsolved), 0);
    drop(workers);
    assert!(guess(&hasher, STRANGER).await.unwrap().is_ok());
    assert_eq!(hasher.verifications(), 1, "what never had a worker was never computed");
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let hasher = hasher(CHEAP);
    let _workers = hasher.keep_busy(false).await;
    assert!(hasher.verify(&STRANGER, pending(), &password("x"), None).await.is_err());
    assert_eq!(hasher.waiting(HashLane::Unsolved), 0);
}

/// A caller that leaves must not learn less than it is charged for: a hash that has begun runs to its end.
#[tokio::test]
async fn a_hash_that_has_begun_is_told_to_whoever_hung_up() {
    let hasher = hasher(HashSettings { memory_kib: 19_456, iterations: 4, ..CHEAP });
    let guess = password("x");
    let left = async {
        while hasher.waiting(HashLane::Unsolved) > 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(hasher.verify(&STRANGER, left, &guess, None).await.is_ok());
    assert_eq!(hasher.verifications(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_share_the_arenas_and_all_answer() {
    let hasher = hasher(HashSettings { memory_kib: 64, workers: 2, ..CHEAP });
    let phc = hasher.hash(&STRANGER, &password("grog")).await.unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (hasher, phc) = (hasher.clone(), phc.clone());
            let text = if n % 2 == 0 { "grog" } else { "rum" };
            tokio::spawn(async move {
                hasher.verify(&STRANGER, pending(), &password(text), Some(&phc)).await.unwrap().ok
                    == (n % 2 == 0)
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    assert_eq!(hasher.verifications(), 51);
    assert!(hasher.0.arenas.len() <= 2);
}

#[test]
fn debug_output_hides_the_hash() {
    assert_eq!(format!("{:?}", Phc::stored("$argon2id$…".into())), "Phc(…)");
}
