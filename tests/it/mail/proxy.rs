//! What is between Gatehouse and a mail server without TLS: a test closes it, or holds connections at a step of its choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::support::ports::free_port;

/// How far a connection gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    Whole,
    /// It ends at once.
    None,
    /// The server's greeting never comes.
    Silent,
    /// The server takes the mail, and its answer to that never comes.
    Unanswered,
    /// The server takes the mail, and the connection ends before its answer comes.
    Cut,
    /// The server does not offer STARTTLS, whatever it says.
    Stripped,
}

pub struct MailProxy {
    pub port: u16,
    shared: Arc<Shared>,
    listening: Option<AbortHandle>,
}

struct Shared {
    server: u16,
    /// By the number of connections before it.
    passage: Mutex<Box<dyn Fn(usize) -> Passage + Send>>,
    connections: AtomicUsize,
    taken: AtomicUsize,
    held: AtomicUsize,
}

impl MailProxy {
    /// In front of the server at that port. It is closed.
    pub fn to(server: u16) -> Self {
        let shared = Shared {
            server,
            passage: Mutex::new(Box::new(|_| Passage::Whole)),
            connections: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
        };
        Self { port: free_port(), shared: Arc::new(shared), listening: None }
    }

    pub async fn open(&mut self) {
        // Another program may have the port for a moment.
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", self.port)).await {
                Ok(listener) => break listener,
                // Whoever has it is another program, which has no clock of ours.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        };
        let shared = Arc::clone(&self.shared);
        let listening = tokio::spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                passing.spawn(pass(client, Arc::clone(&shared)));
            }
        });
        self.listening = Some(listening.abort_handle());
    }

    /// Ends all connections, and refuses new ones.
    pub async fn close(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
            while !listening.is_finished() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// How far later connections get, by the number of connections before each.
    pub fn lets(&self, passage: impl Fn(usize) -> Passage + Send + 'static) {
        *self.shared.passage.lock() = Box::new(passage);
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Mails that the server has taken.
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::SeqCst)
    }

    /// Connections that have come as far as they get.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }
}

impl Drop for MailProxy {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }
}

impl Shared {
    async fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

/// Both directions of one connection, until either end closes.
async fn pass(client: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let before = shared.connections.fetch_add(1, Ordering::SeqCst);
    let passage = shared.passage.lock()(before);
    match passage {
        Passage::None => return None,
        Passage::Silent => shared.hold().await,
        Passage::Whole | Passage::Unanswered | Passage::Cut | Passage::Stripped => {}
    }
    let server = TcpStream::connect(("127.0.0.1", shared.server)).await.ok()?;
    let (mut from_client, mut to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let answers = async {
        let (mut from_server, mut line, mut is_end) = (BufReader::new(from_server), Vec::new(), false);
        loop {
            line.clear();
            from_server.read_until(b'\n', &mut line).await.ok().filter(|read| *read > 0)?;
            if is_end && line.starts_with(b"250") {
                shared.taken.fetch_add(1, Ordering::SeqCst);
                match passage {
                    Passage::Unanswered => shared.hold().await,
                    Passage::Cut => return None,
                    Passage::Whole | Passage::None | Passage::Silent | Passage::Stripped => {}
                }
            }
            is_end = line.starts_with(b"354");
            if passage == Passage::Stripped && line[4..].starts_with(b"STARTTLS") {
                line.splice(4.., *b"X-STARTLES\r\n");
            }
            to_client.write_all(&line).await.ok()?;
        }
    };
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => None,
        ended = answers => ended,
    }
}
