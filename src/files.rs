//! Files: how many may be open at once, how to open one without blocking, and whether one has changed.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Assumed if the system does not say: the lowest limit with which Linux starts a process.
const USUAL: u64 = 1024;

/// Raises the number of files that may be open to the most that the system allows, and returns that.
///
/// A connection is a file. Shells and service managers start a process with a low limit and let it ask for
/// more: the low limit is for programs that use `select`, which this one does not.
#[expect(unsafe_code, reason = "the standard library has no call for the limits of a process")]
pub fn raise_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls access only the structure that they are given, which lives until they return.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return USUAL;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
            return raised.rlim_cur;
        }
    }
    limit.rlim_cur
}

/// Opens a file that an operator named, for reading. Anything else at its path is refused (opening a FIFO
/// without a writer would block for ever); a link to a regular file is accepted.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may already have an effect, so its type is checked first,
    only_regular(std::fs::metadata(path)?.file_type())?;
    // and again when it is open, because it may have been replaced.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    only_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// What changes with a file's content or with who may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl FileState {
    /// Reads the state of a file; None if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let file = path.metadata().ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(Self {
            bytes: file.len(),
            modified,
            changed: (file.ctime(), file.ctime_nsec()),
            inode: file.ino(),
        })
    }
}

fn only_regular(found: FileType) -> io::Result<()> {
    let kind = match found {
        file if file.is_file() => return Ok(()),
        other if other.is_dir() => "a directory",
        other if other.is_fifo() => "a FIFO",
        other if other.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("it is {kind}; it must be a regular file")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(io::read_to_string(open_regular(&at(name)).unwrap()).unwrap(), "text");
        }
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        let _listener = UnixListener::bind(at("socket")).unwrap();
        symlink(at("fifo"), at("link to fifo")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        for (name, told) in [
            ("fifo", "a FIFO"),
            ("link to fifo", "a FIFO"),
            ("socket", "a socket"),
            ("device", "a device"),
            (".", "a directory"),
        ] {
            let refused = open_regular(&at(name)).unwrap_err().to_string();
            assert_eq!(refused, format!("it is {told}; it must be a regular file"), "{name}");
        }
        assert_eq!(open_regular(&at("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
