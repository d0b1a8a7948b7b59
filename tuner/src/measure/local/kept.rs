//! Artifacts that are kept because their programs are likely to be measured again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The artifacts of a task's fastest programs.
#[derive(Default)]
pub(super) struct Kept {
    /// By the bits of the time, which for positive numbers are in the order of the numbers.
    by_time: BTreeMap<(u64, u64), PathBuf>,
    /// No longer among the fastest. A candidate of the same batch may still wait for one.
    outdated: Vec<PathBuf>,
}

/// Artifacts of one task.
const MOST: usize = 16;

impl Kept {
    pub(super) fn of(&self, program: u64) -> Option<&Path> {
        self.by_time.iter().find(|((_, p), _)| *p == program).map(|(_, path)| path.as_path())
    }

    /// Takes an artifact in if it is among the fastest; the next sweep removes what is not. A
    /// program that was measured again has its last time.
    pub(super) fn offer(&mut self, program: u64, seconds: f64, path: PathBuf) {
        self.by_time.retain(|(_, known), _| *known != program);
        self.by_time.insert((seconds.to_bits(), program), path);
        if self.by_time.len() > MOST
            && let Some((_, path)) = self.by_time.pop_last()
        {
            self.outdated.push(path);
        }
    }

    /// After a batch: removes what is not needed any more.
    pub(super) fn sweep(&mut self) {
        self.outdated.drain(..).for_each(|path| remove(&path));
    }
}

/// Removes a file. If that fails, the file is removed with the folder.
pub(super) fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = |i: u64| dir.path().join(i.to_string());
        let mut kept = Kept::default();
        for i in 0..20 {
            std::fs::write(path(i), "").unwrap();
            kept.offer(i, 1.0 / (i + 1) as f64, path(i));
        }
        // Whoever waits for one of them finds it.
        assert!((0..20).all(|i| path(i).exists()));
        kept.sweep();
        for i in 0..20 {
            assert_eq!(kept.of(i).is_some(), i >= 4, "{i}");
            assert_eq!(path(i).exists(), i >= 4, "{i}");
        }
    }

    /// A second entry of a program would take its artifact from the first when it goes.
    #[test]
    fn a_program_that_is_measured_again_keeps_its_artifact() {
        let dir = tempfile::tempdir().unwrap();
        let path = |i: u64| dir.path().join(i.to_string());
        let mut kept = Kept::default();
        for i in 0..MOST as u64 {
            std::fs::write(path(i), "").unwrap();
            kept.offer(i, 1.0 + i as f64, path(i));
        }
        for seconds in [90.0, 0.5, 0.25] {
            kept.offer(3, seconds, path(3));
            kept.sweep();
            assert!((0..MOST as u64).all(|i| path(i).exists() && kept.of(i).is_some()));
        }
    }
}
