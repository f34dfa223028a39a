//! Addresses of Redis that are refused, and what the error says.

use super::refused::told;

#[test]
fn addresses_of_redis_that_mean_nothing() {
    told(&[
        (
            "store.url = 'redis-sentinel://a,b'",
            "store.url: does not end with the name of the master; write it as \"redis-sentinel://user:password@host1:26379,host2:26379/name-of-the-master\"",
        ),
        (
            "store.url = 'redis-sentinel://a,b/main?sentinel_pasword=x'",
            "store.url: has a parameter other than sentinel_user and sentinel_password; write it as \"redis-sentinel://user:password@host1:26379,host2:26379/name-of-the-master\"",
        ),
        (
            "store.url = 'redis-sentinel://a/main?sentinel_user=x'",
            "store.url: has a sentinel_user without a sentinel_password; write it as \"redis-sentinel://user:password@host1:26379,host2:26379/name-of-the-master\"",
        ),
        (
            "store.url = 'redis-cluster://a,b/1'",
            "store.url: has a path; a cluster has only one database; write it as \"redis-cluster://user:password@host1:7000,host2:7001\"",
        ),
        (
            "store.url = 'redis-cluster://a,,b'",
            "store.url: names no host; write it as \"redis-cluster://user:password@host1:7000,host2:7001\"",
        ),
        (
            "store.url = 'redis://a?cluster=true'",
            "store.url: has parameters, which mean nothing here; in a password, write \"?\" as %3F and \"#\" as %23; write it as \"redis://user:password@host:6379/0\"",
        ),
        (
            "store.url = 'redis://a,b'",
            "store.url: names several hosts; use redis-sentinel:// or redis-cluster:// for those",
        ),
        (
            "store.url = 'rediss://a/#insecure'",
            "store.url: has a part after \"#\", which means nothing here; in a password, write \"?\" as %3F and \"#\" as %23; write it as \"redis://user:password@host:6379/0\"",
        ),
        (
            "store.url = 'redis-ring://a'",
            "store.url: has the scheme \"redis-ring\"; use memory:, redis://, redis-sentinel:// or redis-cluster://, or rediss instead of redis for TLS",
        ),
        (
            "store.url = 'memory'",
            "store.url: is not a URL; use memory:, redis://, redis-sentinel:// or redis-cluster://, or rediss instead of redis for TLS",
        ),
        ("store.ca_file = 7", "store.ca_file: is a number; it must be text in quotes"),
        (
            "store.url = 'redis://a/x'",
            "store.url: has a path that is not a database number; write it as \"redis://user:password@host:6379/0\"",
        ),
    ]);
}
