//! Redis servers that belong together: a cluster of six nodes, or a master and its replica under three
//! Sentinels.

use std::time::Duration;

use redis::Connection;
use tempfile::TempDir;

use super::authority::RedisTls;
use super::ports::free_port;
use super::redis::{RedisServer, until};
use super::steered::SteeredClock;

/// The name of the master at the Sentinels.
pub const MASTER: &str = "windows";
const SLOTS: u16 = 16_384;
/// No node is ever suspected: for tests whose clock jumps by days.
pub const NEVER_MS: u64 = 100_000_000_000;

/// Three masters, and a replica for each.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
    tls_ports: Vec<u16>,
    _folder: TempDir,
}

impl RedisCluster {
    /// A node that does not answer for that long is replaced. `options` are those of `redis-server`.
    pub fn failing_over(after: Duration, options: &[&str]) -> Self {
        Self::start(None, after.as_millis() as u64, options, None)
    }

    /// Speaks TLS, among its nodes too.
    pub fn secured(tls: &RedisTls) -> Self {
        Self::start(None, NEVER_MS, &[], Some(tls))
    }

    /// If there is a clock, all nodes use it; it must start a while before the time that the test begins at.
    pub fn start(
        clock: Option<&SteeredClock>,
        timeout_ms: u64,
        options: &[&str],
        tls: Option<&RedisTls>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tls_ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
        let nodes: Vec<(RedisServer, u16)> = tls_ports
            .iter()
            .map(|tls_port| {
                let bus = free_port();
                let port = free_port();
                let server = RedisServer::start_at(port, |command| {
                    command.args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]);
                    command.arg("--cluster-config-file").arg(folder.path().join(format!("{port}.conf")));
                    command.args(["--cluster-node-timeout", &timeout_ms.to_string()]);
                    command.args([
                        "--cluster-require-full-coverage",
                        "no",
                        "--repl-diskless-sync-delay",
                        "0",
                    ]);
                    if let Some(clock) = clock {
                        command.args(["--repl-timeout", "2000000000"]);
                        clock.steer(command);
                    }
                    if let Some(tls) = tls {
                        tls.prepare(*tls_port, command);
                    }
                    command.args(options);
                });
                (server, bus)
            })
            .collect();
        let mut links: Vec<Connection> = nodes.iter().map(|(server, _)| server.connection()).collect();
        let ids: Vec<String> = links.iter_mut().map(|link| cluster(link, &["MYID"])).collect();
        for (index, link) in links.iter_mut().take(3).enumerate() {
            let (first, last) =
                (SLOTS / 3 * index as u16, if index == 2 { SLOTS } else { SLOTS / 3 * (index as u16 + 1) });
            cluster::<()>(link, &["ADDSLOTSRANGE", &first.to_string(), &(last - 1).to_string()]);
            cluster::<()>(link, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for ((server, bus), tls_port) in nodes.iter().zip(&tls_ports).skip(1) {
            let port = if tls.is_some() { *tls_port } else { server.port };
            let (port, bus) = (port.to_string(), bus.to_string());
            cluster::<()>(&mut links[0], &["MEET", "127.0.0.1", &port, &bus]);
        }
        let step = || {
            if let Some(clock) = clock {
                clock.advance(Duration::from_millis(20));
            }
        };
        for index in 3..6 {
            let (master, link) = (&ids[index - 3], &mut links[index]);
            until("a node knows its master", || {
                step();
                redis::cmd("CLUSTER").arg("REPLICATE").arg(master).query::<()>(link).is_ok()
            });
        }
        for link in &mut links {
            until("a node is part of the cluster", || {
                step();
                let state: String = cluster(link, &["INFO"]);
                let nodes: String = cluster(link, &["NODES"]);
                let copies: String = redis::cmd("INFO").arg("replication").query(link).unwrap();
                let linked =
                    copies.contains("connected_slaves:1") || copies.contains("master_link_status:up");
                state.contains("cluster_state:ok")
                    && nodes.matches(" slave ").count() + nodes.matches(",slave ").count() == 3
                    && linked
            });
        }
        Self { nodes: nodes.into_iter().map(|(server, _)| server).collect(), tls_ports, _folder: folder }
    }

    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Of one that is secured.
    pub fn tls_url(&self) -> String {
        let hosts: Vec<_> = self.tls_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("rediss-cluster://{}", hosts.join(","))
    }

    /// The master that has this key.
    pub fn master_of(&self, key: &str) -> usize {
        let slot: u16 = cluster(&mut self.nodes[0].connection(), &["KEYSLOT", key]);
        (slot / (SLOTS / 3)).min(2) as usize
    }
}

fn cluster<T: redis::FromRedisValue>(link: &mut Connection, args: &[&str]) -> T {
    redis::cmd("CLUSTER").arg(args).query(link).unwrap()
}

/// A master and its replica under three Sentinels.
pub struct SentinelTrio {
    /// The first master and the first replica.
    pub servers: [RedisServer; 2],
    pub sentinels: Vec<RedisServer>,
    tls_ports: Vec<u16>,
    _folder: TempDir,
}

impl SentinelTrio {
    /// `options` are those of the two servers.
    pub fn with(options: &[&str]) -> Self {
        Self::start(None, options, None)
    }

    /// All five speak TLS, with each other too.
    pub fn secured(tls: &RedisTls) -> Self {
        Self::start(None, &[], Some(tls))
    }

    /// If there is a clock, the servers use it, and the Sentinels the real one.
    pub fn start(clock: Option<&SteeredClock>, options: &[&str], tls: Option<&RedisTls>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tls_port = free_port();
        let server = |of: Option<u16>, tls_port: u16| {
            RedisServer::start_at(free_port(), |command| {
                command.args(["--repl-diskless-sync-delay", "0"]);
                if let Some(port) = of {
                    command.args(["--replicaof", "127.0.0.1", &port.to_string()]);
                }
                if let Some(clock) = clock {
                    command.args(["--repl-timeout", "2000000000"]);
                    clock.steer(command);
                }
                if let Some(tls) = tls {
                    tls.prepare(tls_port, command);
                }
                command.args(options);
            })
        };
        let master = server(None, tls_port);
        let port = if tls.is_some() { tls_port } else { master.port };
        let replica = server(Some(port), free_port());
        let tls_ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let sentinels = tls_ports
            .iter()
            .map(|tls_port| {
                let options = tls.map(|tls| tls.options(*tls_port));
                sentinel(&folder, port, options.iter().flatten())
            })
            .collect();
        let trio = Self { servers: [master, replica], sentinels, tls_ports, _folder: folder };
        until("the replica has caught up", || trio.servers[1].replication("master_link_status") == "up");
        for sentinel in &trio.sentinels {
            until("a sentinel knows the others", || {
                let mut link = sentinel.connection();
                let ask = |what: &str, link: &mut Connection| -> Vec<redis::Value> {
                    redis::cmd("SENTINEL").arg(what).arg(MASTER).query(link).unwrap()
                };
                ask("SENTINELS", &mut link).len() == 2 && ask("REPLICAS", &mut link).len() == 1
            });
        }
        trio
    }

    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|it| format!("127.0.0.1:{}", it.port)).collect();
        format!("redis-sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// Of one that is secured.
    pub fn tls_url(&self) -> String {
        let hosts: Vec<_> = self.tls_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("rediss-sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// Waits until the Sentinels have made the replica the master.
    pub fn until_replaced(&self) {
        until("the replica is the master", || {
            self.servers[1].replication("role") == "master"
                && self.sentinels.iter().all(|sentinel| {
                    let mut command = redis::cmd("SENTINEL");
                    command.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER);
                    let (_, port): (String, u16) = command.query(&mut sentinel.connection()).unwrap();
                    port == self.servers[1].port
                })
        });
    }
}

fn sentinel<'o>(
    folder: &TempDir,
    master: u16,
    options: impl Iterator<Item = &'o (&'static str, String)>,
) -> RedisServer {
    let port = free_port();
    let file = folder.path().join(format!("{port}.conf"));
    let mut settings: String = options.map(|(name, value)| format!("{name} {value}\n")).collect();
    settings += &format!(
        "sentinel monitor {MASTER} 127.0.0.1 {master} 2\nsentinel down-after-milliseconds {MASTER} 500\n\
         sentinel failover-timeout {MASTER} 5000\n"
    );
    std::fs::write(&file, settings).unwrap();
    RedisServer::sentinel(port, &file)
}
