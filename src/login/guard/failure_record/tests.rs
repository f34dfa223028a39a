use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode};

use super::*;
use crate::db::tests::{TestDatabase, on_both_databases};

on_both_databases!(a_failure_that_is_told_again_is_one,);

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
