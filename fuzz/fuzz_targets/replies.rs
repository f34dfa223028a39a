//! Replies of Redis: whatever comes instead of a script's answer is an error, and never a panic or a verdict for a
//! bucket that was not asked about.
#![no_main]

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use libfuzzer_sys::fuzz_target;
use sha1::{Digest, Sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use gatehouse_limiter::{
    HitDecision, HitId, HoldOutcome, Limit, LimitMode, Limiter, RedisStore, Rule, RuleAction, RuleSpan, WindowStore,
};

/// A reply that is whole, since one that never ends is what the timeout is for: each line an item, `(` and `)` around
/// those of a list, `:1`, `nil`, `!an error`, and anything else a string.
fn reply(text: &[u8]) -> Vec<u8> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut out = Vec::new();
    item(&mut lines, &mut out, 0);
    out
}

/// False at the end of a list.
fn item<'t>(lines: &mut impl Iterator<Item = &'t [u8]>, out: &mut Vec<u8>, depth: u8) -> bool {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<i64>().ok();
    match lines.next() {
        None | Some(b")") => return false,
        Some(b"nil") => out.extend(b"$-1\r\n"),
        Some(b"(") if depth < 8 => {
            let (mut inner, mut count) = (Vec::new(), 0);
            while item(lines, &mut inner, depth + 1) {
                count += 1;
            }
            out.extend(format!("*{count}\r\n").bytes());
            out.extend(inner);
        }
        Some([b'!', words @ ..]) => {
            let words: Vec<u8> = words.iter().copied().filter(u8::is_ascii_graphic).collect();
            out.extend([b"-ERR ", words.as_slice(), b"\r\n"].concat());
        }
        Some([b':', digits @ ..]) if number(digits).is_some() => {
            out.extend(format!(":{}\r\n", number(digits).unwrap_or_default()).bytes());
        }
        Some(text) => {
            out.extend(format!("${}\r\n", text.len()).bytes());
            out.extend([text, b"\r\n"].concat());
        }
    }
    true
}

struct Rig {
    runtime: Runtime,
    limiter: Limiter<RedisStore>,
    limits: [Limit; 2],
    reply: Arc<Mutex<Vec<u8>>>,
}

fn limit(tag: &str) -> Limit {
    let rule = |max, then| Rule { max, span: RuleSpan::Sliding(Duration::from_secs(60)), then };
    let rules = vec![rule(3, RuleAction::Captcha), rule(5, RuleAction::Block)];
    Limit::new(tag, rules, LimitMode::Enforce).expect("a limit")
}

/// The words of one command, if it is whole; takes it out.
fn command(kept: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    fn number(bytes: &[u8], mark: u8) -> Option<(usize, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = bytes[..end].strip_prefix(&[mark])?;
        Some((std::str::from_utf8(digits).ok()?.parse().ok()?, end + 2))
    }
    let (count, mut at) = number(kept, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, lead) = number(&kept[at..], b'$')?;
        words.push(kept.get(at + lead..at + lead + length)?.to_vec());
        at += lead + length + 2;
    }
    (kept.len() >= at).then(|| kept.drain(..at));
    Some(words)
}

/// Answers scripts with the reply of the moment, and what the client says before them as Redis would.
async fn answer(listener: TcpListener, reply: Arc<Mutex<Vec<u8>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let reply = Arc::clone(&reply);
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while stream.read_buf(&mut kept).await.is_ok_and(|read| read > 0) {
                while let Some(words) = command(&mut kept) {
                    let bytes = match words[0].to_ascii_uppercase().as_slice() {
                        b"EVALSHA" | b"EVAL" => reply.lock().expect("no panic").clone(),
                        b"SCRIPT" => {
                            let hash = Sha1::digest(&words[2]);
                            let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                            format!("$40\r\n{hex}\r\n").into_bytes()
                        }
                        _ => b"+OK\r\n".to_vec(),
                    };
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let reply = Arc::new(Mutex::new(Vec::new()));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("bound");
    runtime.spawn(answer(listener, Arc::clone(&reply)));
    let client = redis::Client::open(format!("redis://{address}")).expect("a URL");
    let limiter = runtime.block_on(async {
        let store = RedisStore::new(client, Duration::from_millis(50), "gh", Clock::System);
        store.link().ready(Duration::from_secs(2)).await;
        Limiter::new(store, MasterKey::from_bytes([7; 32]).derive("throttle.subject"), &Entropy::Os)
    });
    Rig { runtime, limiter, limits: [limit("one"), limit("two")], reply }
});

fuzz_target!(|text: &[u8]| {
    let rig = &*RIG;
    let reply = reply(text);
    if reply.is_empty() {
        return;
    }
    *rig.reply.lock().expect("no panic") = reply;
    let buckets = [rig.limiter.bucket(&rig.limits[0], b"a"), rig.limiter.bucket(&rig.limits[1], b"b")];
    rig.runtime.block_on(async {
        for buckets in [&buckets[..], &buckets[..1]] {
            match rig.limiter.reserve(buckets, false).await {
                Ok(HitDecision::Refused(refusal)) => {
                    assert!(refusal.bucket < buckets.len() && refusal.rule < 2, "{refusal:?}");
                    // Where only attempts in flight are in the way, a hit is told to block, whatever the rule.
                    let then = rig.limits[refusal.bucket].rules()[refusal.rule].then;
                    assert!(refusal.then == then || refusal.then == RuleAction::Block, "{refusal:?}");
                }
                Ok(HitDecision::Admitted(hit)) => {
                    assert!(
                        hit.room.is_none_or(|room| room.bucket < buckets.len() && room.rule < 2),
                        "{hit:?}"
                    );
                }
                Err(_) => {}
            }
        }
        for buckets in [&buckets[..], &buckets[..1]] {
            if let Ok(states) = rig.limiter.peek_all(buckets).await {
                assert!(states.len() == buckets.len() && states.iter().all(|state| state.rules.len() == 2));
            }
            let keeps = vec![HoldOutcome::Keep; buckets.len()];
            let told = rig.limiter.store().settle(buckets, HitId([0; 6]), &keeps, true).await;
            assert!(told.ok().and_then(|told| told.states).is_none_or(|states| states.len() == buckets.len()));
        }
        drop(rig.limiter.read(buckets[0]).await);
    });
});
