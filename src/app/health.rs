//! The state of what the server depends on, for `/readyz` and for operators.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::AppParts;
use crate::config::BackendKind;
use crate::throttle::RedisLink;
use crate::web::kit::health::{Health, Limits, Report, State};

impl AppParts {
    async fn database_is_up(&self) -> bool {
        let answer = tokio::time::timeout(Duration::from_secs(1), self.db.ping()).await;
        matches!(answer, Ok(Ok(()))) && self.db.is_writable()
    }

    pub(super) fn store_is_up(&self) -> bool {
        self.link.as_ref().is_none_or(RedisLink::is_up)
    }
}

impl Health for AppParts {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async {
            let state = |up| if up { State::Up } else { State::Down };
            Report {
                database: state(self.database_is_up().await),
                store: state(self.store_is_up()),
                limits: Limits {
                    version: self.live.version(),
                    refused: self.live.last_refused().is_some(),
                    home: match self.live.backend() {
                        BackendKind::Fixed | BackendKind::File => None,
                        BackendKind::Redis | BackendKind::Nacos => {
                            Some(state(self.live.backend_down().is_none()))
                        }
                    },
                },
            }
        })
    }
}
