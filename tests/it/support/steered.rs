//! A wall clock for another process: a file from which a preloaded library reads the time.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use gatehouse_limiter::clock::Micros;

pub struct SteeredClock {
    file: tempfile::NamedTempFile,
    now: std::sync::atomic::AtomicI64,
}

impl SteeredClock {
    pub fn at(start: Micros) -> Self {
        let clock = Self { file: tempfile::NamedTempFile::new().unwrap(), now: Default::default() };
        clock.set(start);
        clock
    }

    pub fn set(&self, to: Micros) {
        self.now.store(to.0, std::sync::atomic::Ordering::SeqCst);
        self.file.as_file().write_all_at(&to.0.to_le_bytes(), 0).unwrap();
    }

    pub fn now(&self) -> Micros {
        Micros(self.now.load(std::sync::atomic::Ordering::SeqCst))
    }

    pub fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }

    /// Makes a program use this clock.
    pub fn steer(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    /// With which a program uses this clock.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", library()), ("STEERED_CLOCK", self.file.path())]
    }
}

/// The preloaded library, compiled once for each state of its source: each test is a process of its own. Processes
/// that start at once may each compile it and rename it to the same path.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = include_bytes!("steered_clock.c");
        let state = blake3::hash(source).to_hex();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join(format!("steered_clock-{}.so", &state[..16]));
        if library.exists() {
            return library;
        }
        let draft = folder.join(format!("steered_clock.{}.so", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&draft).stdin(Stdio::piped());
        let mut compiler = compiler.spawn().expect("a C compiler (Debian: apt-get install gcc)");
        compiler.stdin.take().unwrap().write_all(source).unwrap();
        assert!(compiler.wait().unwrap().success());
        std::fs::rename(&draft, &library).unwrap();
        library
    })
}
