use super::*;

/// The cheapest that argon2 computes.
const CHEAP: HashSettings =
    HashSettings { memory_kib: 8, iterations: 1, parallelism: 1, workers: 1, queue: 256 };

fn hasher(settings: HashSettings) -> Hasher {
    Hasher::new(settings, Entropy::Os).unwrap()
}

fn password(text: &str) -> Password {
    Password::attempt(text).unwrap()
}

#[tokio::test]
async fn only_the_hashed_password_is_right() {
    let hasher = hasher(HashSettings { workers: 2, ..HashSettings::default() });
    let phc = hasher.hash(&password("three-headed monkey")).await.unwrap();
    assert!(phc.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", phc.as_str());
    let right = hasher.verify(&password("three-headed monkey"), Some(&phc)).await.unwrap();
    assert_eq!(right, Verified { ok: true, rehash: false });
    for wrong in ["three-headed monke", "Three-headed monkey", "x"] {
        let verified = hasher.verify(&password(wrong), Some(&phc)).await.unwrap();
        assert_eq!(verified, Verified { ok: false, rehash: false });
    }
}

#[tokio::test]
async fn a_new_password_is_hashed_if_it_will_do() {
    let (hasher, login) = (hasher(CHEAP), Username::parse("guybrush").unwrap());
    let phc = hasher.hash_new("quiet lanterns drift", &login).await.unwrap().unwrap();
    assert!(hasher.verify(&password("quiet lanterns drift"), Some(&phc)).await.unwrap().ok);
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
    assert_ne!(hasher.hash(&password("grog")).await.unwrap(), hasher.hash(&password("grog")).await.unwrap());
}

#[tokio::test]
async fn other_implementations_read_our_hashes() {
    use argon2::PasswordVerifier;
    let phc = hasher(CHEAP).hash(&password("grog")).await.unwrap();
    assert!(Argon2::default().verify_password(b"grog", phc.as_str()).is_ok());
}

#[tokio::test]
async fn an_unknown_account_costs_a_hash_and_is_never_right() {
    let hasher = hasher(CHEAP);
    for _ in 0..3 {
        let verified = hasher.verify(&password("anything"), None).await.unwrap();
        assert_eq!(verified, Verified { ok: false, rehash: false });
    }
    assert_eq!(hasher.verifications(), 3);
}

#[tokio::test]
async fn other_parameters_ask_for_a_rehash_only_when_right() {
    let old = hasher(CHEAP).hash(&password("grog")).await.unwrap();
    for changed in [
        HashSettings { memory_kib: 16, ..CHEAP },
        HashSettings { iterations: 2, ..CHEAP },
        HashSettings { memory_kib: 16, parallelism: 2, ..CHEAP },
    ] {
        let hasher = hasher(changed);
        let right = hasher.verify(&password("grog"), Some(&old)).await.unwrap();
        assert_eq!(right, Verified { ok: true, rehash: true });
        let wrong = hasher.verify(&password("rum"), Some(&old)).await.unwrap();
        assert_eq!(wrong, Verified { ok: false, rehash: false });
    }
}

#[tokio::test]
async fn stored_parameters_beyond_bounds_are_not_computed() {
    let good = hasher(CHEAP).hash(&password("grog")).await.unwrap();
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
        assert!(Stored::parse(&format!("{head}{tail}"), &hasher.0.params).is_none(), "{head}");
        let phc = Phc::stored(format!("{head}{tail}"));
        assert!(!hasher.verify(&password("grog"), Some(&phc)).await.unwrap().ok, "{head}");
    }
    assert_eq!(hasher.verifications(), 10, "a decoy for each");
    let short = Phc::stored("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAA".into());
    assert!(Stored::parse(short.as_str(), &hasher.0.params).is_none(), "12 bytes of output");
    assert!(Stored::parse(&"$".repeat(10_000_000), &hasher.0.params).is_none());
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_says_when_to_come_back() {
    let hasher = hasher(HashSettings { queue: 2, ..CHEAP });
    let worker = Arc::clone(&hasher.0.permits).acquire_many_owned(PERMITS_A_WORKER as u32).await.unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let hasher = hasher.clone();
            tokio::spawn(async move { hasher.verify(&password("x"), None).await })
        })
        .collect();
    while hasher.0.waiting.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let refused = hasher.verify(&password("x"), None).await;
    assert!(matches!(refused, Err(HashError::Busy { retry_after }) if retry_after >= Duration::from_secs(1)));
    drop(worker);
    for waiter in waiters {
        assert!(waiter.await.unwrap().is_ok(), "those who wait are served");
    }
    assert_eq!(hasher.verifications(), 2);
}

#[tokio::test]
async fn who_stops_waiting_gives_the_place_back() {
    let hasher = hasher(HashSettings { queue: 1, ..CHEAP });
    let worker = Arc::clone(&hasher.0.permits).acquire_many_owned(PERMITS_A_WORKER as u32).await.unwrap();
    let waiter = tokio::spawn({
        let hasher = hasher.clone();
        async move { hasher.verify(&password("x"), None).await }
    });
    while hasher.0.waiting.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    assert_eq!(hasher.0.waiting.load(Ordering::SeqCst), 0);
    drop(worker);
    assert!(hasher.verify(&password("x"), None).await.is_ok());
    assert_eq!(hasher.verifications(), 1, "what never had a worker was never computed");
}

#[tokio::test]
async fn a_hash_whose_caller_is_gone_keeps_its_worker_until_it_ends() {
    // Some tens of milliseconds of work, so that it is still going when the caller leaves.
    let hasher = hasher(HashSettings { memory_kib: 19_456, iterations: 4, queue: 0, ..CHEAP });
    let guess = password("x");
    // One that is computed, and one that the worker has at hand.
    for _ in 0..PERMITS_A_WORKER {
        let mut verify = Box::pin(hasher.verify(&guess, None));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(verify.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    assert!(
        matches!(hasher.verify(&guess, None).await, Err(HashError::Busy { .. })),
        "the worker is not free"
    );
    let permit = Arc::clone(&hasher.0.permits).acquire_many_owned(PERMITS_A_WORKER as u32).await.unwrap();
    assert_eq!(hasher.verifications(), 2, "they went on to their ends");
    drop(permit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_share_the_arenas_and_all_answer() {
    let hasher = hasher(HashSettings { memory_kib: 64, workers: 2, ..CHEAP });
    let phc = hasher.hash(&password("grog")).await.unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (hasher, phc) = (hasher.clone(), phc.clone());
            let text = if n % 2 == 0 { "grog" } else { "rum" };
            tokio::spawn(async move {
                hasher.verify(&password(text), Some(&phc)).await.unwrap().ok == (n % 2 == 0)
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    assert_eq!(hasher.verifications(), 51);
    assert!(hasher.0.arenas.lock().unwrap().len() <= 2);
}

#[test]
fn debug_output_hides_the_hash() {
    assert_eq!(format!("{:?}", Phc::stored("$argon2id$…".into())), "Phc(…)");
}
