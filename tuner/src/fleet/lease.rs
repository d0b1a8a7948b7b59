//! The device of a machine belongs to one worker at a time: what runs beside another is not timed.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

use super::FleetError;

const PAUSE: Duration = Duration::from_millis(50);

/// The device is ours until this is dropped, or the process ends, whatever ends it.
pub(super) struct Lease {
    _lock: File,
}

impl Lease {
    /// Waits for its turn; none if `give_up` says so before that.
    pub(super) fn take(
        path: &Path,
        give_up: impl Fn() -> bool,
    ) -> Result<Option<Lease>, FleetError> {
        let failed = |source| FleetError::Lease { path: path.to_path_buf(), source };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Lease { _lock: file })),
                Err(TryLockError::Error(e)) => return Err(failed(e)),
                Err(TryLockError::WouldBlock) if give_up() => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu");
        let first = Lease::take(&path, || true).unwrap();
        assert!(first.is_some());
        assert!(Lease::take(&path, || true).unwrap().is_none());
        drop(first);
        assert!(Lease::take(&path, || true).unwrap().is_some());
        let error = Lease::take(&dir.path().join("no/cpu"), || true).err().unwrap();
        assert!(error.to_string().contains("--lease"), "{error}");
    }
}
