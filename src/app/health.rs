//! How what the server stands on is doing, for `/readyz` and for operators.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::Parts;
use crate::config::HomeKind;
use crate::throttle::Link;
use crate::web::status::{Health, Limits, Report, State};

impl Parts {
    async fn database_is_up(&self) -> bool {
        let answer = tokio::time::timeout(Duration::from_secs(1), self.db.ping()).await;
        matches!(answer, Ok(Ok(()))) && self.db.is_writable()
    }

    pub(super) fn store_is_up(&self) -> bool {
        self.link.as_ref().is_none_or(Link::is_up)
    }
}

impl Health for Parts {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>> {
        Box::pin(async {
            let state = |up| if up { State::Up } else { State::Down };
            Report {
                database: state(self.database_is_up().await),
                store: state(self.store_is_up()),
                limits: Limits {
                    version: self.live.version(),
                    refused: self.live.last_refused().is_some(),
                    home: match self.live.home() {
                        HomeKind::Fixed | HomeKind::File => None,
                        HomeKind::Redis | HomeKind::Nacos => Some(state(self.live.home_down().is_none())),
                    },
                },
            }
        })
    }
}
