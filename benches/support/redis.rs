//! Drives a private Redis server with many callers at once.
#![expect(clippy::disallowed_methods, reason = "how long a round takes is what is measured")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use gatehouse::clock::Clock;
use gatehouse_limiter::{Limiter, RedisStore};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::contest::Round;
use super::harness::redis::RedisServer;

/// So long that a busy machine does not end a bench; the length does not change the cost of a call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One worker of a web server: one thread that runs every caller.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A store on this server, configured by `with`.
pub fn store(
    runtime: &Runtime,
    server: &RedisServer,
    with: impl FnOnce(RedisStore) -> RedisStore,
) -> Limiter<RedisStore> {
    let _inside = runtime.enter();
    let limiter = super::limiter(with(RedisStore::new(server.client(), TIMEOUT, "gh", Clock::System)));
    assert!(runtime.block_on(limiter.store().link().ready(TIMEOUT)), "the server is up");
    limiter
}

/// A connection as the store opens it, without the store.
pub fn connection(runtime: &Runtime, server: &RedisServer) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let client = server.client();
    runtime.block_on(client.get_multiplexed_async_connection_with_config(&config)).expect("a connection")
}

/// This many decisions, shared evenly by this many callers that each wait for their own answers. `decide`
/// gets the number of the decision, counted from `from`.
pub fn drive<D>(runtime: &Runtime, callers: u64, from: u64, decisions: u64, decide: &Rc<D>) -> Round
where
    D: AsyncFn(u64) + 'static,
{
    let tasks = LocalSet::new();
    let start = Instant::now();
    let call = |caller| {
        let decide = Rc::clone(decide);
        tasks.spawn_local(async move {
            for turn in 0..decisions / callers {
                decide(from + turn * callers + caller).await;
            }
        })
    };
    let callers_tasks: Vec<_> = (0..callers).map(call).collect();
    tasks.block_on(runtime, async {
        for task in callers_tasks {
            task.await.expect("a caller ends well");
        }
    });
    Round { decisions: decisions / callers * callers, took: start.elapsed() }
}
