//! Marks of answered challenges on Redis, visible to every instance.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::Value;

use super::spent::{MarksError, SpendFuture, SpentMarks};
use crate::throttle::{CallError, RedisLink};

pub struct RedisMarks {
    link: RedisLink,
    prefix: String,
}

impl RedisMarks {
    /// Keys are named `{prefix}:spent:{keyed hash}`.
    pub fn new(link: RedisLink, prefix: impl Into<String>) -> Self {
        Self { link, prefix: prefix.into() }
    }

    async fn set(&self, id_hash: [u8; 16], ttl: Duration) -> Result<bool, MarksError> {
        let mut command = redis::cmd("SET");
        command.arg(format!("{}:spent:{}", self.prefix, URL_SAFE_NO_PAD.encode(id_hash)));
        command.arg(1).arg("NX").arg("PX").arg(ttl.as_millis() as u64);
        match self.link.call(&command).await {
            Ok(Value::Nil) => Ok(false),
            Ok(_) => Ok(true),
            Err(CallError::Store(error)) => Err(MarksError::Unavailable(error.into())),
            Err(CallError::Server(error)) => Err(MarksError::Unavailable(error.into())),
        }
    }
}

impl SpentMarks for RedisMarks {
    fn spend(&self, id_hash: [u8; 16], ttl: Duration) -> SpendFuture<'_> {
        Box::pin(self.set(id_hash, ttl))
    }
}
