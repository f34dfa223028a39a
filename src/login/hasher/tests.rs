use super::*;

/// The cheapest parameters that argon2 accepts.
const CHEAP: HashSettings =
    HashSettings { memory_kib: 8, iterations: 1, parallelism: 1, workers: 1, queue: 256 };

/// A caller from a network, without a solved challenge.
const STRANGER: HashCaller = HashCaller { solved: false, ..HashCaller::OPERATOR };

fn hasher(settings: HashSettings) -> PasswordHasher {
    PasswordHasher::new(
        settings,
        BreachedList::default(),
        &MasterKey::from_bytes([1; 32]),
        Clock::System,
        Entropy::Os,
    )
    .unwrap()
}

fn name() -> Username {
    Username::parse("guybrush").unwrap()
}

fn password(text: &str) -> Password {
    Password::attempt(text).unwrap()
}

#[tokio::test]
async fn only_the_hashed_password_is_right() {
    let hasher = hasher(HashSettings { workers: 2, ..HashSettings::default() });
    let phc = hasher.hash(&STRANGER, &password("three-headed monkey")).await.unwrap();
    assert!(phc.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", phc.as_str());
    let right = hasher
        .verify(&STRANGER, pending(), &password("three-headed monkey"), ComparedHash::Open(&phc))
        .await
        .unwrap();
    assert_eq!((right.ok, right.rehash), (true, false));
    for wrong in ["three-headed monke", "Three-headed monkey", "x"] {
        let verified =
            hasher.verify(&STRANGER, pending(), &password(wrong), ComparedHash::Open(&phc)).await.unwrap();
        assert_eq!((verified.ok, verified.rehash), (false, false));
    }
}

#[tokio::test]
async fn a_new_password_is_hashed_if_it_will_do() {
    let (hasher, login) = (hasher(CHEAP), Username::parse("guybrush").unwrap());
    let phc = hasher.hash_new("quiet lanterns drift", &login).await.unwrap().unwrap();
    assert!(
        hasher
            .verify(&STRANGER, pending(), &password("quiet lanterns drift"), ComparedHash::Open(&phc))
            .await
            .unwrap()
            .ok
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
    assert!(argon2::Argon2::default().verify_password(b"grog", phc.as_str()).is_ok());
}

#[tokio::test]
async fn an_unknown_account_costs_a_hash_and_is_never_right() {
    let hasher = hasher(CHEAP);
    for _ in 0..3 {
        let verified = hasher
            .verify(&STRANGER, pending(), &password("anything"), ComparedHash::Decoy(&name()))
            .await
            .unwrap();
        assert_eq!((verified.ok, verified.rehash), (false, false));
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
        let right =
            hasher.verify(&STRANGER, pending(), &password("grog"), ComparedHash::Open(&old)).await.unwrap();
        assert_eq!((right.ok, right.rehash), (true, true));
        let wrong =
            hasher.verify(&STRANGER, pending(), &password("rum"), ComparedHash::Open(&old)).await.unwrap();
        assert_eq!((wrong.ok, wrong.rehash), (false, false));
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
        "$argon2id$v=19$m=65536,t=5,p=1",
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
            !hasher
                .verify(&STRANGER, pending(), &password("grog"), ComparedHash::Open(&phc))
                .await
                .unwrap()
                .ok,
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
    tokio::spawn(async move {
        hasher.verify(&caller, pending(), &password("x"), ComparedHash::Decoy(&name())).await
    })
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
    assert!(hasher.verify(&STRANGER, pending(), &password("x"), ComparedHash::Decoy(&name())).await.is_err());
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
    let hung_up =
        hasher.verify(&STRANGER, std::future::ready(()), &password("x"), ComparedHash::Decoy(&name())).await;
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
    assert!(hasher.verify(&STRANGER, pending(), &password("x"), ComparedHash::Decoy(&name())).await.is_err());
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
    assert!(hasher.verify(&STRANGER, left, &guess, ComparedHash::Decoy(&name())).await.is_ok());
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
                hasher
                    .verify(&STRANGER, pending(), &password(text), ComparedHash::Open(&phc))
                    .await
                    .unwrap()
                    .ok
                    == (n % 2 == 0)
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    assert_eq!(hasher.verifications(), 51);
    assert!(hasher.0.arenas.lock().len() <= 2);
}

#[test]
fn debug_output_hides_the_hash() {
    assert_eq!(format!("{:?}", Phc::stored("$argon2id$…".into())), "Phc(…)");
}

/// Of "correct horse".
const IMPORTED: [&str; 4] = [
    "$argon2i$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$BZcmCWSWXk2RPIA4uUXaks5U+arJLO0hMaMRSyypft0",
    "$scrypt$ln=4,r=8,p=1$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud/EKGFGPMqWK6wR024ss",
    "pbkdf2_sha256$3$saltsaltsalt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg=",
    "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6",
];

/// Sets the time of a turn, and of an answer; one stranger at once.
fn set_pace(hasher: &PasswordHasher, turn: Duration, answer: Duration) {
    let slowest_hash = HashCost { millis: 1, memory_mib: 1 };
    *hasher.0.timing.write() =
        Some(ResponseTiming { slowest_hash, expected: turn, turn, answer, strangers: 1 });
    hasher.0.workers.set_most_strangers(1);
}

#[tokio::test]
async fn an_imported_hash_is_verified_by_its_own_function_and_asks_for_a_rehash() {
    let hasher = hasher(CHEAP);
    for foreign in IMPORTED {
        let phc = Phc::import(foreign).unwrap();
        let verify = async |text: &str| {
            let verified =
                hasher.verify(&STRANGER, pending(), &password(text), ComparedHash::Open(&phc)).await.unwrap();
            (verified.ok, verified.rehash)
        };
        assert_eq!(verify("correct horse").await, (true, true), "{foreign}");
        assert_eq!(verify("correct hors").await, (false, false), "{foreign}");
    }
    assert_eq!((hasher.verifications(), hasher.decoys()), (8, 0));
}

#[tokio::test]
async fn imported_hashes_see_a_password_as_it_was_typed_and_ours_normalised() {
    let hasher = hasher(CHEAP);
    let typed = "contraseña 密码 e\u{301}";
    let phc = Phc::import("$2b$04$VMPBwW3vfZwSgnXGGlOVvuqCBSCJkz8k4hgZ.t/geGLX71YmPUrSC").unwrap();
    let verify = async |text: &str, phc: &Phc| {
        hasher.verify(&STRANGER, pending(), &password(text), ComparedHash::Open(phc)).await.unwrap().ok
    };
    assert!(verify(typed, &phc).await);
    assert!(!verify("contraseña 密码 é", &phc).await);
    let ours = hasher.hash(&STRANGER, &password(typed)).await.unwrap();
    assert!(verify(typed, &ours).await && verify("contraseña 密码 é", &ours).await, "on any keyboard");
}

#[tokio::test]
async fn an_imported_hash_that_was_made_dearer_by_hand_is_not_computed() {
    let hasher = hasher(CHEAP);
    let tail = "c2l4dGVlbiBieXRlcyAhIQ$1fXEoXnOeHMsgTtQJoodBe7ITVpx8YGfeCPC5uA9fjw";
    for text in [
        format!("imported$00001$0001$$argon2id$v=19$m=1048576,t=1,p=1${tail}"),
        format!("imported$00001$0001$$scrypt$ln=24,r=8,p=1${tail}"),
        "imported$00001$0001$$2b$31$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6".to_owned(),
        "imported$00001$0001$pbkdf2_sha256$4000000000$saltsaltsalt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg="
            .to_owned(),
        "imported$".to_owned(),
        "imported$$$".to_owned(),
        format!("imported$00001$0001$imported$00001$0001${}", IMPORTED[0]),
    ] {
        let phc = Phc::stored(text.clone());
        let verified = hasher.verify(&STRANGER, pending(), &password("correct horse"), ComparedHash::Open(&phc)).await.unwrap();
        assert!(!verified.ok, "{text}");
    }
    assert_eq!((hasher.verifications(), hasher.decoys()), (7, 7), "a decoy for each");
}

#[tokio::test]
async fn while_there_are_imported_hashes_no_answer_leaves_before_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(40);
    let hasher = hasher(CHEAP);
    let ours = hasher.hash(&STRANGER, &password("correct horse")).await.unwrap();
    set_pace(&hasher, DEADLINE / 2, DEADLINE);
    let imported = IMPORTED.map(|foreign| Some(Phc::import(foreign).unwrap()));
    let device = HashCaller { device: Some((crate::fair_queue::QueueOwner::of(b"alice"), 1)), ..STRANGER };
    for phc in imported.into_iter().chain([Some(ours), None]) {
        for (text, caller) in [("correct horse", STRANGER), ("wrong", STRANGER), ("wrong", device)] {
            let asked = tokio::time::Instant::now();
            let verified = hasher
                .verify(
                    &caller,
                    pending(),
                    &password(text),
                    phc.as_ref().map_or(ComparedHash::Decoy(&name()), ComparedHash::Open),
                )
                .await
                .unwrap();
            verified.wait_for_answer().await;
            assert!(asked.elapsed() >= DEADLINE, "{text} after {:?}", asked.elapsed());
        }
    }
}

#[tokio::test]
async fn the_first_imported_hash_that_is_met_sets_the_deadline_and_the_database_lifts_it() {
    let hasher = hasher(CHEAP);
    assert_eq!(hasher.timing(), None);
    let phc = Phc::import(IMPORTED[3]).unwrap();
    let _ = hasher.verify(&STRANGER, pending(), &password("x"), ComparedHash::Open(&phc)).await.unwrap();
    assert_eq!(hasher.timing().unwrap().slowest_hash.millis, 1);
    let dearer = HashCost { millis: 2, memory_mib: 128 };
    hasher.update_timing(Some(dearer)).await;
    let _ = hasher.verify(&STRANGER, pending(), &password("x"), ComparedHash::Open(&phc)).await.unwrap();
    assert_eq!(hasher.timing().unwrap().slowest_hash, dearer, "a cheaper one does not shorten it");
    hasher.update_timing(None).await;
    assert_eq!(hasher.timing(), None);
}

/// How long a stranger waits for a turn must not tell what the one before computed.
#[tokio::test]
async fn a_strangers_turn_goes_on_after_its_hash_and_a_known_device_does_not_wait_for_it() {
    const HOUR: Duration = Duration::from_secs(3600);
    let hasher = hasher(HashSettings { workers: 2, ..CHEAP });
    drop(hasher.keep_busy(true).await);
    set_pace(&hasher, HOUR, HOUR);
    let strangers = [guess(&hasher, STRANGER), guess(&hasher, STRANGER)];
    until_waiting(&hasher, HashLane::Unsolved, 1).await;
    let device = HashCaller { device: Some((crate::fair_queue::QueueOwner::of(b"alice"), 1)), ..STRANGER };
    let device = guess(&hasher, device);
    while hasher.verifications() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hasher.waiting(HashLane::Unsolved), 1, "the second stranger");
    // A caller that is gone needs no turn.
    strangers[0].abort();
    while hasher.verifications() < 3 {
        tokio::task::yield_now().await;
    }
    strangers[1].abort();
    device.abort();
}

/// What imported passwords make of the queue ends with them.
#[tokio::test]
async fn without_imported_hashes_strangers_use_every_worker_again() {
    let hasher = hasher(HashSettings { workers: 2, ..CHEAP });
    hasher.update_timing(Some(HashCost { millis: 1, memory_mib: 128 })).await;
    assert_eq!(hasher.timing().unwrap().strangers, 1);
    hasher.update_timing(None).await;
    let held = hasher.keep_busy(true).await;
    assert_eq!(held.len(), 2, "each has begun");
}
