use std::time::Duration;

use super::*;
use crate::db::tests::{TestDatabase, on_both_databases};

on_both_databases!(a_failure_that_is_told_again_is_one,);

async fn a_failure_that_is_told_again_is_one(database: TestDatabase) {
    for clock in [Clock::manual(Micros(1_000_000)), Clock::System] {
        let record = FailureRecord::new(database.open().await, clock.clone());
        let own = SubjectKey([clock.now().0 as u8; 16]);
        let failed = |hit: u8| FailedAttempt { hit: HitId([hit; 6]), own, logs: vec![("x".to_owned(), own)] };
        for hit in [1, 1, 2, 1] {
            record.write(&failed(hit)).await.unwrap();
            if matches!(clock, Clock::Manual(_)) {
                clock.advance(Duration::from_millis(1));
            }
        }
        assert_eq!(record.newest(own, Micros(0), 10).await.unwrap().len(), 2);
        record.forget(own).await.unwrap();
    }
}
