//! The id of a request: in its response, in each of its log lines, and in each event.
//!
//! It is stored with the task that answers the request, so that it need not be passed through every call. A
//! task that runs beside the request has the id if it was started by [`spawn`].

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::entropy::Entropy;
use crate::secret::UniqueIds;
use crate::spans;

/// The longest id that is accepted from a proxy.
const LONGEST: usize = 64;

tokio::task_local! {
    static CURRENT: RequestId;
}

/// Letters, digits, `.`, `_` and `-`: valid without escaping in a header, a log line and a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let text = Some(text).filter(|text| (1..=LONGEST).contains(&text.len()) && text.iter().all(fits))?;
        std::str::from_utf8(text).ok().map(|text| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the request that is being answered here.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }
}

/// `tokio::spawn` for tasks that a request waits for, or leaves behind: they keep its id
/// and its span.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(keep(future))
}

/// Does the work when it is its turn, on a thread that serves nobody else, because it computes for long, and keeps the
/// turn to the end, even if the caller hangs up. None if it is not its turn within the patience.
pub async fn in_turn<F>(turn: &Arc<Mutex<()>>, patience: Duration, work: F) -> Option<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let turn = tokio::time::timeout(patience, Arc::clone(turn).lock_owned()).await.ok()?;
    let (runtime, work) = (Handle::current(), keep(work));
    let working = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        runtime.block_on(work)
    });
    Some(working.await.expect("the work does not panic"))
}

/// Keeps the id for what cannot leave its thread: the future, with the id of the request that is being answered here.
pub fn keep<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let (id, future) = (RequestId::current(), spans::keep(future));
    async move {
        match id {
            Some(id) => id.scope(future).await,
            None => future.await,
        }
    }
}

/// Makes ids that do not reveal how many came before. Clones share the count.
#[derive(Clone)]
pub struct RequestIds(Arc<UniqueIds>);

impl RequestIds {
    pub fn new(entropy: &Entropy) -> Self {
        Self(Arc::new(UniqueIds::new(entropy, "web.request")))
    }

    pub fn make(&self) -> RequestId {
        let mut text = [0; 22];
        let length =
            URL_SAFE_NO_PAD.encode_slice(self.0.make(), &mut text).expect("22 letters hold 16 bytes");
        RequestId(std::str::from_utf8(&text[..length]).expect("its letters are ASCII").into())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn what_could_forge_a_line_or_a_header_is_no_id() {
        for good in ["a", "4bf92f3577b34da6a3ce929d0e0e4736", "A.b_c-9", &"x".repeat(64)] {
            assert_eq!(RequestId::parse(good.as_bytes()).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a\nb", "a=b", "é", "a,b", &"x".repeat(65)] {
            assert_eq!(RequestId::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn each_is_its_own_and_known_where_it_is_answered() {
        let (one, other) = (RequestIds::new(&Entropy::Os), RequestIds::new(&Entropy::Os));
        let made = [one.make(), one.make(), other.make()];
        assert!(made[0] != made[1] && made[0] != made[2]);
        assert_eq!(RequestId::parse(made[0].as_str().as_bytes()).as_ref(), Some(&made[0]));
        assert_eq!(RequestId::current(), None);
        let inside = made[0].clone().scope(async { RequestId::current() }).await;
        assert_eq!(inside.as_ref(), Some(&made[0]));
        let beside = async { spawn(async { RequestId::current() }).await.unwrap() };
        assert_eq!(made[1].clone().scope(beside).await.as_ref(), Some(&made[1]));
        assert_eq!(RequestId::current(), None);
    }

    #[tokio::test]
    async fn one_works_at_a_time_and_nobody_waits_for_long() {
        let turn = Arc::default();
        let second = in_turn(&turn, PATIENCE, {
            let turn = Arc::clone(&turn);
            async move { in_turn(&turn, Duration::ZERO, async {}).await }
        });
        assert_eq!(second.await, Some(None));
        assert_eq!(in_turn(&turn, Duration::ZERO, async { 1 }).await, Some(1));
    }

    /// The database goes on with a statement that nobody waits for.
    #[tokio::test]
    async fn hanging_up_ends_no_turn() {
        let (turn, (done, wait)) = (Arc::default(), tokio::sync::oneshot::channel::<()>());
        let mut work = Box::pin(in_turn(&turn, PATIENCE, async { wait.await.unwrap() }));
        assert!((&mut work).now_or_never().is_none());
        drop(work);
        assert!(in_turn(&turn, Duration::ZERO, async {}).await.is_none(), "its statement still runs");
        done.send(()).unwrap();
        assert!(in_turn(&turn, PATIENCE, async {}).await.is_some());
    }
}
