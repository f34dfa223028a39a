//! Files as the operating system hands them out: how many may be open at once, and none that holds its reader up.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// What is assumed where the system does not say: the least that Linux starts a process with.
const USUAL: u64 = 1024;

/// Raises the number of files that may be open to the most that the system allows, and says how many that are.
///
/// A connection is a file. Shells and service managers start a process with few and let it ask for more: the
/// low figure is there for programs that use `select`, and this one does not.
#[expect(unsafe_code, reason = "the standard library has no call for the limits of a process")]
pub fn raise_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the one structure they are given, which lives until they return.
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

/// Opens a file that a person named, for reading. Whatever else stands at its path (a FIFO that nobody writes to
/// would be waited for without end) is refused; a link to a regular file is as good as the file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // To open a device may already do something, so it is looked at first,
    only_regular(std::fs::metadata(path)?.file_type())?;
    // and once more when it is open, since another may have taken its place.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    only_regular(file.metadata()?.file_type())?;
    Ok(file)
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
