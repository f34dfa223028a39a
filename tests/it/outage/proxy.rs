//! A connection to a server that a test disturbs: what goes to the server always arrives, what comes back may not; or
//! new connections lead to another server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    Clear,
    /// Answers get lost.
    Mute,
    /// Answers are replaced by garbage.
    Garbage,
    /// The first script is answered; from the second on, answers get lost.
    MuteAfterOneScript,
    /// The first script is answered; at the second the connection breaks.
    CutAfterOneScript,
    /// The first script is answered; the second is lost with its connection.
    LoseAfterOneScript,
    /// New connections are accepted, but nothing is transferred, on old ones either.
    Deaf,
}

pub struct Proxy {
    pub port: u16,
    shared: Arc<ServicesData>,
}

struct ServicesData {
    /// Of the server.
    leads_to: AtomicU16,
    way: AtomicU8,
    scripts: AtomicUsize,
}

impl ServicesData {
    fn is(&self, way: Way) -> bool {
        self.way.load(Ordering::SeqCst) == way as u8
    }

    fn past_the_first_script(&self, way: Way) -> bool {
        self.is(way) && self.scripts.load(Ordering::SeqCst) > 1
    }
}

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let shared = Arc::new(ServicesData {
            leads_to: AtomicU16::new(port),
            way: AtomicU8::new(Way::Clear as u8),
            scripts: AtomicUsize::new(0),
        });
        let proxy = Self { port: listener.local_addr().unwrap().port(), shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let port = shared.leads_to.load(Ordering::SeqCst);
                tokio::spawn(pass(client, port, Arc::clone(&shared)));
            }
        });
        proxy
    }

    pub fn set(&self, way: Way) {
        self.shared.scripts.store(0, Ordering::SeqCst);
        self.shared.way.store(way as u8, Ordering::SeqCst);
    }

    /// New connections go to the server at that port; those that are open stay where they are.
    pub fn lead_to(&self, port: u16) {
        self.shared.leads_to.store(port, Ordering::SeqCst);
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

/// Both directions of one connection, until either end closes. After bytes went missing it never works again,
/// as on a real network.
async fn pass(client: TcpStream, port: u16, shared: Arc<ServicesData>) -> Option<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut sent, mut back) = (vec![0; 65_536], vec![0; 65_536]);
    let mut spoilt = false;
    loop {
        while shared.is(Way::Deaf) {
            spoilt = true;
            tokio::time::sleep(Duration::from_millis(5)).await; // a connection of another process
        }
        tokio::select! {
            read = from_client.read(&mut sent) => {
                let bytes = &sent[..read.ok().filter(|read| *read > 0)?];
                let scripts = bytes.windows(7).filter(|window| window == b"EVALSHA").count();
                shared.scripts.fetch_add(scripts, Ordering::SeqCst);
                if shared.past_the_first_script(Way::LoseAfterOneScript) {
                    return None;
                }
                to_server.write_all(bytes).await.ok()?;
            }
            read = from_server.read(&mut back) => {
                let bytes = &back[..read.ok().filter(|read| *read > 0)?];
                if shared.past_the_first_script(Way::CutAfterOneScript) {
                    return None;
                }
                spoilt |= shared.is(Way::Mute) || shared.past_the_first_script(Way::MuteAfterOneScript);
                if shared.is(Way::Garbage) {
                    to_client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.ok()?;
                } else if !spoilt {
                    to_client.write_all(bytes).await.ok()?;
                }
            }
        }
    }
}
