//! A server that takes connections and never answers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

pub struct HangingServer {
    pub url: String,
    taken: Arc<Mutex<Vec<TcpStream>>>,
    taking: tokio::task::JoinHandle<()>,
}

impl HangingServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&taken);
        let taking = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                shared.lock().push(connection);
            }
        });
        Self { url, taken, taking }
    }

    /// How many connections there were.
    pub fn taken(&self) -> usize {
        self.taken.lock().len()
    }

    /// How many of them still wait for an answer.
    pub fn waiting(&self) -> usize {
        let waits = |connection: &&TcpStream| {
            let mut buffer = [0; 4096];
            loop {
                match connection.try_read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
        };
        self.taken.lock().iter().filter(waits).count()
    }
}

impl Drop for HangingServer {
    fn drop(&mut self) {
        self.taking.abort();
    }
}
