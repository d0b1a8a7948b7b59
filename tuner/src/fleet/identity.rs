//! Who a tuner is, also after it was killed: a name for its subjects, and a secret that seals what
//! it asks for.
//!
//! ```text
//! RECORDS.fleet-0    the secret, then a line for each answer that was taken, with its name and its
//!                    print, and one for each that was written down; locked as long as the tuner
//!                    lives
//! RECORDS.fleet-1    of a second one that runs at the same time
//! ```
//!
//! An answer repeats what was asked, and the seal over it (an HMAC with SHA-256). So a tuner takes
//! answers that an earlier life of it asked for, without having written down what it asked; and
//! nobody can make up an answer to what was never asked. A candidate may be measured twice where
//! something was killed: the second answer is known by its name, however late it comes. The first
//! one, which a tuner that was killed took and perhaps did not write down, is known by its print.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::FleetError;

/// Bytes of a secret.
const SECRET: usize = 32;
/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// Bytes of an answer's name, and of its print.
const NAME: usize = 16;
/// Bytes of both.
const LINE: usize = 2 * NAME;
/// Lines that are kept: two of an answer.
const MOST_LINES: usize = 1 << 17;
/// Tuners that share a file of records at a time, at most.
const MOST: usize = 64;

/// A line of the file: a tuner keeps it of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The answer `name` was taken, and is not written down yet.
    Taken { name: u128, print: u128 },
    /// The answer of that name is written down.
    Written(u128),
}

/// The name and the secret of a tuner.
#[derive(Debug)]
pub struct Identity {
    /// A word for subjects.
    pub name: String,
    secret: Vec<u8>,
    /// The newest notes of earlier lives.
    pub(super) earlier: Vec<Note>,
    path: PathBuf,
    /// Locked as long as the tuner lives; the system lets go of it, whatever ends the tuner.
    file: File,
}

impl Identity {
    /// The first one beside a file of records that no living tuner has.
    pub fn take(beside: &Path) -> Result<Identity, FleetError> {
        for number in 0..MOST {
            let mut name = beside.as_os_str().to_owned();
            name.push(format!(".fleet-{number}"));
            let path = PathBuf::from(name);
            let failed = |reason: String| FleetError::File { path: path.clone(), reason };
            let io = |e: std::io::Error| failed(format!("{e}; make its folder writable"));
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = options.open(&path).map_err(io)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(e)) => return Err(io(e)),
                Ok(()) => {}
            }
            let secret_and_earlier = read(&mut file).map_err(io)?;
            let (secret, earlier) = secret_and_earlier.ok_or_else(|| {
                failed("holds no secret of a tuner; remove it, and a new one is made".into())
            })?;
            let name = word(&seal(&secret, &["name"]));
            return Ok(Identity { name, secret, earlier, path, file });
        }
        let reason = format!("{MOST} tuners work for these records already; wait for one to end");
        Err(FleetError::File { path: beside.to_path_buf(), reason })
    }

    /// Keeps what became of answers.
    pub(super) fn note(&mut self, notes: &[Note]) -> Result<(), FleetError> {
        let bytes: Vec<u8> = notes.iter().flat_map(|note| note.line()).collect();
        self.file.write_all(&bytes).map_err(|e| FleetError::File {
            path: self.path.clone(),
            reason: format!("names of answers cannot be kept: {e}"),
        })
    }

    /// The seal on what is asked for, 32 digits.
    pub fn seal(&self, parts: &[&str]) -> String {
        seal(&self.secret, parts)
    }

    /// Whether this tuner asked for that.
    pub fn is_sealed(&self, parts: &[&str], found: &str) -> bool {
        let expected = self.seal(parts);
        // The time that this takes tells nothing about where they differ.
        let differ = expected.bytes().zip(found.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        expected.len() == found.len() && differ == 0
    }
}

/// The secret and the names that the file holds, a new secret where it is empty; none where it is
/// something else. Afterwards names of answers go to its end.
fn read(file: &mut File) -> std::io::Result<Option<(Vec<u8>, Vec<Note>)>> {
    let mut secret = Vec::new();
    file.read_to_end(&mut secret)?;
    if secret.is_empty() {
        secret = vec![0; SECRET];
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        file.write_all(&secret)?;
        file.sync_all()?;
    }
    if secret.len() < SECRET {
        return Ok(None);
    }
    let lines = secret.split_off(SECRET);
    let mut notes: Vec<Note> = lines.chunks_exact(LINE).map(Note::of_line).collect();
    notes.drain(..notes.len().saturating_sub(MOST_LINES));
    // Old lines go, and half a line that a killed tuner left.
    if lines.len() != notes.len() * LINE {
        file.set_len(SECRET as u64)?;
        file.seek(SeekFrom::End(0))?;
        let kept: Vec<u8> = notes.iter().flat_map(|note| note.line()).collect();
        file.write_all(&kept)?;
    }
    Ok(Some((secret, notes)))
}

impl Note {
    pub(super) fn name(&self) -> u128 {
        match *self {
            Note::Taken { name, .. } | Note::Written(name) => name,
        }
    }

    /// The name and the print; no print, which is 0, where the answer is written down.
    fn line(&self) -> [u8; LINE] {
        let (name, print) = match *self {
            Note::Taken { name, print } => (name, print),
            Note::Written(name) => (name, 0),
        };
        let mut line = [0; LINE];
        line[..NAME].copy_from_slice(&name.to_le_bytes());
        line[NAME..].copy_from_slice(&print.to_le_bytes());
        line
    }

    fn of_line(line: &[u8]) -> Note {
        let number = |bytes: &[u8]| u128::from_le_bytes(bytes.try_into().expect("16 bytes"));
        match (number(&line[..NAME]), number(&line[NAME..])) {
            (name, 0) => Note::Written(name),
            (name, print) => Note::Taken { name, print },
        }
    }
}

/// The HMAC of the parts, each with its length before it, as 32 digits.
fn seal(secret: &[u8], parts: &[&str]) -> String {
    let pad = |with: u8| {
        let mut block = [with; BLOCK];
        block.iter_mut().zip(secret).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let mut inner = Sha256::new();
    inner.update(pad(0x36));
    for part in parts {
        inner.update((part.len() as u64).to_le_bytes());
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(pad(0x5c));
    outer.update(inner.finalize());
    outer.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A word that no other process has.
pub(super) fn random_word() -> String {
    let word = || RandomState::new().hash_one(std::process::id());
    format!("{:08x}{:08x}", word() as u32, word() as u32)
}

fn word(digits: &str) -> String {
    digits[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuner_is_itself_after_its_death_and_nobody_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let records = dir.path().join("r.db");
        let first = Identity::take(&records).unwrap();
        let second = Identity::take(&records).unwrap();
        assert_ne!(first.name, second.name);
        let (name, seal) = (first.name.clone(), first.seal(&["a", "bc"]));
        assert_eq!(seal.len(), 32);
        assert!(first.is_sealed(&["a", "bc"], &seal));
        for (parts, seal) in [(["ab", "c"], seal.as_str()), (["a", "bc"], &seal[..31])] {
            assert!(!first.is_sealed(&parts, seal));
        }
        assert!(!second.is_sealed(&["a", "bc"], &seal));
        let mut first = first;
        let taken = |name, print| Note::Taken { name, print };
        first.note(&[taken(7, 1), Note::Written(7)]).unwrap();
        first.note(&[taken(8, 2)]).unwrap();
        drop(first);
        let again = Identity::take(&records).unwrap();
        assert_eq!((again.name.clone(), again.seal(&["a", "bc"])), (name, seal));
        assert_eq!(again.earlier, [taken(7, 1), Note::Written(7), taken(8, 2)]);
        drop(again);
        // Half a name, as of a tuner that was killed.
        let path = dir.path().join("r.db.fleet-0");
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let mut again = Identity::take(&records).unwrap();
        assert_eq!(again.earlier, [taken(7, 1), Note::Written(7)]);
        again.note(&[taken(9, 3)]).unwrap();
        drop(again);
        let again = Identity::take(&records).unwrap();
        assert_eq!(again.earlier, [taken(7, 1), Note::Written(7), taken(9, 3)]);
        drop((again, second));
        std::fs::write(dir.path().join("r.db.fleet-0"), "something else").unwrap();
        let error = Identity::take(&records).unwrap_err().to_string();
        assert!(error.contains("r.db.fleet-0: holds no secret"), "{error}");
    }

    /// Case 2 of RFC 4231, made of one part: the length before it is a part of the text here.
    #[test]
    fn the_seal_is_an_hmac() {
        let text = "what do ya want for nothing?";
        let with_length: Vec<u8> =
            (text.len() as u64).to_le_bytes().into_iter().chain(text.bytes()).collect();
        let plain = |key: &[u8], text: &[u8]| {
            let mut block = key.to_vec();
            block.resize(BLOCK, 0);
            let xor = |with: u8| block.iter().map(|b| b ^ with).collect::<Vec<u8>>();
            let inner = Sha256::digest([xor(0x36), text.to_vec()].concat());
            Sha256::digest([xor(0x5c), inner.to_vec()].concat())
        };
        let known = plain(b"Jefe", text.as_bytes());
        assert_eq!(known[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        let expected: String =
            plain(b"Jefe", &with_length).iter().take(16).map(|b| format!("{b:02x}")).collect();
        assert_eq!(seal(b"Jefe", &[text]), expected);
    }
}
