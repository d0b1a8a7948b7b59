//! Opening what somebody names: a file, or a pipe as in `<(zcat x.npy.gz)`.
//!
//! Devices, folders and sockets are refused, for some of them never end (`/dev/zero`). Opening a
//! pipe waits for a program that writes to it, but not for ever; once there is one, reading takes
//! as long as that program does.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a pipe is waited for that no program has opened for writing.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile, in milliseconds.
const LOOK_EVERY: libc::c_int = 50;

/// An open file or pipe.
#[derive(Debug)]
pub struct Source {
    file: File,
    size: Option<u64>,
    /// The byte that was read to find out whether a program writes to the pipe.
    first: Option<u8>,
}

impl Source {
    /// Opens a file or a pipe.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Source> {
        let file = open_at_once(path.as_ref())?;
        let about = file.metadata()?;
        if about.is_file() {
            return Ok(Source { file, size: Some(about.len()), first: None });
        }
        if !about.file_type().is_fifo() {
            return Err(other("neither a file nor a pipe"));
        }
        let first = wait_for_writer(&file)?;
        wait_when_reading(&file)?;
        Ok(Source { file, size: None, first })
    }

    /// How long it is; nothing for a pipe.
    pub fn size(&self) -> Option<u64> {
        self.size
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (buffer.first_mut(), self.first) {
            (Some(to), Some(first)) => {
                *to = first;
                self.first = None;
                Ok(1)
            }
            _ => self.file.read(buffer),
        }
    }
}

/// Opens a regular file, and nothing else.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<File> {
    let file = open_at_once(path.as_ref())?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other("it is not a regular file")) }
}

/// A file that lives in memory alone, with `bytes` in it, and that nothing can change.
#[cfg(target_os = "linux")]
pub(crate) fn file_of(bytes: &[u8]) -> io::Result<File> {
    use std::io::Write;
    use std::os::fd::FromRawFd;

    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string that outlives the call.
    let descriptor = unsafe { libc::memfd_create(c"ansc".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nobody else has it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(bytes)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open, and no pointers are passed.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Other systems name their files in memory otherwise, or have none.
#[cfg(not(target_os = "linux"))]
pub(crate) fn file_of(_bytes: &[u8]) -> io::Result<File> {
    let message = "this system has no files in memory; write the artifact to a file";
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}

/// Opening a pipe would wait for who writes, and opening a modem for a call.
fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

fn other(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Returns when somebody writes, or did and is gone; perhaps with the first byte.
fn wait_for_writer(mut pipe: &File) -> io::Result<Option<u8>> {
    let start = Instant::now();
    loop {
        let mut one = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one structure that outlives the call.
        if unsafe { libc::poll(&raw mut one, 1, LOOK_EVERY) } > 0 {
            return Ok(None);
        }
        // Without a writer the pipe ends here; with one that is silent it would have to be waited
        // for.
        let mut first = [0];
        match pipe.read(&mut first) {
            Ok(0) if start.elapsed() < PATIENCE => {}
            Ok(0) => {
                let what = format!("no program writes to this pipe, even after {PATIENCE:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Ok(_) => return Ok(Some(first[0])),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Takes back that a read of an empty pipe returns at once.
fn wait_when_reading(pipe: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and no pointers are passed.
    let done = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_RDONLY) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    fn pipe_in(dir: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let path = dir.join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        path
    }

    #[test]
    fn what_has_no_end_is_refused() {
        for device in ["/dev/zero", "/dev/null", "/"] {
            assert!(Source::open(device).is_err(), "{device}");
            assert!(open_file(device).is_err(), "{device}");
        }
        let dir = tempfile::tempdir().unwrap();
        let error = open_file(pipe_in(dir.path())).unwrap_err();
        assert!(error.to_string().contains("regular file"), "{error}");
    }

    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::open(pipe_in(dir.path())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_pipe_gives_what_a_slow_writer_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = pipe_in(dir.path());
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                std::thread::sleep(Duration::from_millis(200));
                let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
                for part in ["first ", "second ", "third"] {
                    std::thread::sleep(Duration::from_millis(200));
                    pipe.write_all(part.as_bytes()).unwrap();
                }
            }
        });
        let mut source = Source::open(path).unwrap();
        let mut text = String::new();
        source.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), source.size()), ("first second third", None));
        writer.join().unwrap();
    }
}
