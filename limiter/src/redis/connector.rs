//! Opens connections to Redis servers, and notices when another server has become the master.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::sentinel::SentinelClient;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, RedisError, Script, ServerErrorKind, Value,
};
use tokio::time::timeout;

use super::info::{self, EvictionPolicy};
use super::servers::RedisServers;

/// Connecting takes several round trips (TCP, TLS, greeting), however short the timeout of a call is.
const CONNECT_AT_LEAST: Duration = Duration::from_millis(250);
/// Finding the master takes a connection to a Sentinel and one to the master, which is asked whether it is one;
/// finding the nodes of a cluster takes a connection to each.
const FIND_AT_MOST: Duration = Duration::from_secs(3);
/// How often a cluster's node may send a call on: to where the slot is now, and once more while it moves.
const MOST_REDIRECTS: u32 = 3;
/// Between two of them, in milliseconds.
const REDIRECT_PAUSE: u64 = 5;

/// One connection to a server, or to all masters of a cluster. Clones share it.
#[derive(Clone)]
pub(super) enum RedisConnection {
    Node(MultiplexedConnection),
    Cluster {
        connection: ClusterConnection,
        /// How many masters there were when it was made; see [`Self::check`].
        masters: usize,
    },
}

impl RedisConnection {
    /// One round trip; in a cluster, to the node that has the command's key.
    pub async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Node(connection) => connection.send_packed_command(command).await,
            Self::Cluster { connection, .. } => connection.req_packed_command(command).await,
        }
    }

    /// Sends a command to every master; one answer each, or an error.
    pub async fn send_to_masters(&mut self, command: &Cmd) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Node(connection) => {
                Ok(vec![connection.send_packed_command(command).await?.extract_error()?])
            }
            Self::Cluster { connection, masters } => {
                let (masters, answers) = (*masters, ask_masters(connection, command).await?);
                // A master that it is not connected to is left out.
                if answers.len() != masters {
                    return Err(not_all());
                }
                Ok(answers)
            }
        }
    }

    /// Whether the server answers at all, even with an error, and whether it evicts; of a cluster, whether all masters
    /// answer, agree that every slot has one, and are as many as when the connection was made.
    pub async fn check(&mut self) -> Result<EvictionPolicy, RedisError> {
        if let Self::Cluster { connection, masters } = self
            && count_masters(connection).await? != *masters
        {
            return Err(not_all());
        }
        self.eviction_policy().await
    }

    async fn eviction_policy(&mut self) -> Result<EvictionPolicy, RedisError> {
        match self.send_to_masters(&info::policy_command()).await {
            Err(error) if error.is_timeout() || error.is_unrecoverable_error() => Err(error),
            Err(_) => Ok(EvictionPolicy::Unknown),
            Ok(answers) => Ok(EvictionPolicy::worst(answers.iter().map(EvictionPolicy::read))),
        }
    }
}

/// The answer of each master that the connection leads to.
async fn ask_masters(connection: &mut ClusterConnection, command: &Cmd) -> Result<Vec<Value>, RedisError> {
    let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    match connection.route_command(command.clone(), masters).await? {
        Value::Map(answers) => answers.into_iter().map(|(_, answer)| answer.extract_error()).collect(),
        other => {
            let got = format!("{other:?}");
            Err((ErrorKind::UnexpectedReturnType, "not an answer of each node", got).into())
        }
    }
}

/// How many masters there are, by their own account; an error if the connection does not lead to all of them, or if
/// one says that a slot is not served.
async fn count_masters(connection: &mut ClusterConnection) -> Result<usize, RedisError> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let answers = ask_masters(connection, &info).await?;
    let masters = answers.len();
    for state in answers {
        let state: String = redis::from_redis_value(state)?;
        let says = |line: String| state.lines().any(|other| other.trim_end() == line);
        if !says("cluster_state:ok".to_owned()) || !says(format!("cluster_size:{masters}")) {
            return Err(not_all());
        }
    }
    Ok(masters)
}

fn not_all() -> RedisError {
    (ErrorKind::Server(ServerErrorKind::ClusterDown), "a slot has no master, or a master cannot be reached")
        .into()
}

/// How connections are made.
#[derive(Clone)]
pub(super) struct ConnectionOptions {
    pub servers: RedisServers,
    /// Bounds each call and, if it is longer than 250 ms, each attempt to connect.
    pub timeout: Duration,
    /// Loaded at every connection to a single server.
    pub scripts: Vec<Script>,
    pub allow_eviction: bool,
}

impl ConnectionOptions {
    fn connecting(&self) -> Duration {
        self.timeout.max(CONNECT_AT_LEAST)
    }

    async fn node(&self, client: &Client) -> Result<RedisConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connecting()))
            .set_response_timeout(Some(self.timeout));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        for script in &self.scripts {
            script.load_async(&mut connection).await?;
        }
        Ok(RedisConnection::Node(connection))
    }
}

/// Makes one connection after the other.
pub(super) struct Connector {
    options: ConnectionOptions,
    sentinels: Option<SentinelClient>,
    /// The master that the Sentinels named when we connected.
    master: Option<ConnectionAddr>,
}

impl Connector {
    pub const fn new(options: ConnectionOptions) -> Self {
        Self { options, sentinels: None, master: None }
    }

    pub const fn allows_eviction(&self) -> bool {
        self.options.allow_eviction
    }

    /// A connection, and whether its servers evict.
    pub async fn connect(&mut self) -> Result<(RedisConnection, EvictionPolicy), RedisError> {
        let mut connection = self.open().await?;
        let policy = connection.eviction_policy().await?;
        Ok((connection, policy))
    }

    async fn open(&mut self) -> Result<RedisConnection, RedisError> {
        match &self.options.servers {
            RedisServers::Standalone(client) => self.options.node(client).await,
            RedisServers::Sentinel(_) => {
                let client = self.ask_sentinels().await?;
                self.master = Some(client.get_connection_info().addr().clone());
                self.options.node(&client).await
            }
            RedisServers::Cluster(servers) => {
                let client = servers
                    .builder()
                    .connection_timeout(CONNECT_AT_LEAST)
                    .response_timeout(self.options.timeout)
                    .retries(MOST_REDIRECTS)
                    .min_retry_wait(REDIRECT_PAUSE)
                    .max_retry_wait(2 * REDIRECT_PAUSE)
                    .build()?;
                let at_most = FIND_AT_MOST.max(2 * self.options.connecting());
                let connection = timeout(at_most, client.get_async_connection()).await;
                let mut connection = connection.map_err(|_| too_slow())??;
                let masters = count_masters(&mut connection).await?;
                Ok(RedisConnection::Cluster { connection, masters })
            }
        }
    }

    /// Why the connection leads to a server that is no longer the master, if the Sentinels say so. A master that
    /// is cut off from them notices nothing itself.
    pub async fn moved(&mut self) -> Option<String> {
        // Sentinels that do not answer leave everything as it is; so does a server that has none.
        let client = self.ask_sentinels().await.ok()?;
        let named = client.get_connection_info().addr();
        (self.master.as_ref() != Some(named)).then(|| format!("the sentinels name another master, {named}"))
    }

    async fn ask_sentinels(&mut self) -> Result<Client, RedisError> {
        let RedisServers::Sentinel(servers) = &self.options.servers else {
            return Err((ErrorKind::InvalidClientConfig, "no sentinels").into());
        };
        let sentinels = match &mut self.sentinels {
            Some(sentinels) => sentinels,
            none => none.insert(servers.client()?),
        };
        timeout(FIND_AT_MOST, sentinels.async_get_client()).await.map_err(|_| too_slow())?
    }
}

fn too_slow() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
