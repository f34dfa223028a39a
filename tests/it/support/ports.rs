//! Ports that nothing else takes between the check and the bind.
//!
//! They are below those that the system gives to outgoing connections, and each is locked with a file as long
//! as this process lives, so that no other test, in this process or another, gets the same one.

use std::fs::File;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use gatehouse_limiter::entropy::Entropy;

/// Linux gives 32768 and above to outgoing connections (ip_local_port_range).
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// The locks of this process, which end with it.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

pub fn free_port() -> u16 {
    free_ports(&[0])
}

/// The first of several ports at these distances from it.
pub fn free_ports(distances: &[u16]) -> u16 {
    loop {
        let port = FIRST + u16::from_le_bytes(Entropy::Os.bytes()) % COUNT;
        let locks: Option<Vec<File>> = distances.iter().map(|distance| lock(port + distance)).collect();
        if let Some(locks) = locks {
            LOCKS.lock().unwrap_or_else(PoisonError::into_inner).extend(locks);
            return port;
        }
    }
}

/// None if another test has it, or another program.
fn lock(port: u16) -> Option<File> {
    let folder = std::env::temp_dir().join("gatehouse-test-ports");
    std::fs::create_dir_all(&folder).unwrap();
    let file = File::options().create(true).append(true).open(folder.join(port.to_string())).unwrap();
    file.try_lock().ok()?;
    TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(file)
}
