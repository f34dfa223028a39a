use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode};

use super::*;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::login::{GuessKeys, GuessSource};
use crate::secret::MasterKey;

on_both_databases!(a_failure_that_is_told_again_is_one, a_repeat_that_is_told_again_is_a_repeat,);

async fn a_failure_that_is_told_again_is_one(database: TestDatabase) {
    for clock in [Clock::manual(Micros(1_000_000)), Clock::System] {
        let record = FailureRecord::new(database.open().await, clock.clone());
        let own = SubjectKey([clock.now().0 as u8; 16]);
        let limit = Limit::new("x", Vec::new(), LimitMode::Enforce).unwrap();
        let logs = [OwnedBucket { limit, key: own }];
        for hit in [1, 1, 2, 1] {
            record.write(HitId([hit; 6]), &logs, None).await.unwrap();
            if matches!(clock, Clock::Manual(_)) {
                clock.advance(Duration::from_millis(1));
            }
        }
        assert_eq!(record.newest(own, Micros(0), 10, false).await.unwrap().len(), 2);
        record.forget(own).await.unwrap();
    }
}

async fn a_repeat_that_is_told_again_is_a_repeat(database: TestDatabase) {
    let clock = Clock::manual(Micros(1_000_000));
    let record = FailureRecord::new(database.open().await, clock.clone());
    let keys = GuessKeys::new(&MasterKey::from_bytes([7; 32]));
    let guess =
        |typed: &[u8]| Some(Guess { tag: keys.tag(typed), source: GuessSource::client(b"here", b"", &keys) });
    let limit = Limit::new("x", Vec::new(), LimitMode::Enforce).unwrap();
    let logs = [OwnedBucket { limit, key: SubjectKey([9; 16]) }];
    for (hit, typed, repeat) in
        [(1, "a", false), (2, "a", true), (2, "a", true), (1, "a", false), (3, "b", false)]
    {
        assert_eq!(
            record.write(HitId([hit; 6]), &logs, guess(typed.as_bytes())).await.unwrap(),
            repeat,
            "{hit}"
        );
        clock.advance(Duration::from_millis(1));
    }
    assert_eq!(record.newest(logs[0].key, Micros(0), 10, false).await.unwrap().len(), 2);
    assert_eq!(record.newest(logs[0].key, Micros(0), 10, true).await.unwrap().len(), 3);
    clock.advance(REMEMBERED_FOR);
    assert_eq!(record.purge_guesses(10).await.unwrap(), 1);
}
