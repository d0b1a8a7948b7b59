//! The folder of a run's artifacts, which is removed at its end, or by the next run if it had no
//! end.
//!
//! ```text
//! TMPDIR/ansc-tune-x1y2z3/lock      locked as long as the run lives; the system lets go of it, whatever ends the run
//!                         0.ansc ..
//! ```

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "ansc-tune-";
const LOCK: &str = "lock";

pub(super) struct Folder {
    dir: TempDir,
    /// Held until the folder is gone.
    _lock: File,
}

impl Folder {
    pub(super) fn new() -> io::Result<Folder> {
        Folder::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> io::Result<Folder> {
        remove_left_over(parent);
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            let path = dir.path().join(LOCK);
            let lock = File::create(&path)?;
            // Another run may have taken it for left over before it was locked, and may be removing
            // it.
            let ours = lock.try_lock().is_ok() && is_same(&lock, &path);
            if ours {
                return Ok(Folder { dir, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let id = |about: Metadata| (about.dev(), about.ino());
    file.metadata().ok().map(id) == path.metadata().ok().map(id)
}

/// Removes folders of runs that were killed. What cannot be removed is left to others.
fn remove_left_over(parent: &Path) {
    // SAFETY: no arguments, no state.
    let user = unsafe { libc::geteuid() };
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.path().symlink_metadata().is_ok_and(|m| m.is_dir() && m.uid() == user);
        if !ours {
            continue;
        }
        // Without the file it may be in the making.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_removed_by_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let make = |name: &str| {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("0.ansc"), "x").unwrap();
        };
        for left_over in ["ansc-tune-a", "ansc-tune-b"] {
            make(left_over);
            std::fs::write(at(left_over).join(LOCK), "").unwrap();
        }
        make("ansc-tune-in-the-making");
        make("another");
        std::fs::write(at("another").join(LOCK), "").unwrap();
        let first = Folder::new_in(parent.path()).unwrap();
        assert!(!at("ansc-tune-a").exists() && !at("ansc-tune-b").exists());
        assert!(at("ansc-tune-in-the-making").exists() && at("another").exists());
        let second = Folder::new_in(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
