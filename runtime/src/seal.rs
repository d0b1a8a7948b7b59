//! The seal: how an artifact proves that it is whole.
//!
//! The hash is made of the xxh3-128 digests of the file's chunks of 1 MiB, so that all cores can
//! share the work: `xxh3_128(digest of chunk 0, digest of chunk 1, .., length of the file as u64)`,
//! everything little endian, with the 16 bytes of the hash itself taken as zeros. It finds damage,
//! not malice: whoever can write the file can also seal it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{LittleEndian, Object, ObjectSection};
use xxhash_rust::xxh3::Xxh3Default;

/// The ELF section of the seal, which tells damaged and foreign files.
pub const SEAL_SECTION: &str = ".ansc.seal";
/// Incremented whenever an older runtime could misread a newer artifact, or the reverse.
pub const FORMAT_VERSION: u32 = 7;
/// The first bytes of the seal.
pub const SEAL_MAGIC: [u8; 8] = *b"ANSCSEAL";

/// The fixed-size seal, little endian: 8 bytes of magic, version u32, zero u32, 16 bytes of
/// [`seal_hash`] of the file.
pub const SEAL_LEN: usize = 32;
/// Where the hash begins in the seal.
pub const SEAL_HASH_AT: usize = 16;

const CHUNK: usize = 1 << 20;
const HASH_LEN: usize = 16;
/// More threads than this do not read memory faster.
const MAX_THREADS: usize = 8;
/// Below this many chunks per thread, starting it costs more than it saves.
const CHUNKS_PER_THREAD: usize = 4;

/// Why a file could not be sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is no 64-bit little-endian ELF file.
    #[error("not an ELF file: {0}")]
    NotElf(String),
    /// It has no section of the right size for the seal.
    #[error("the file has no section `.ansc.seal` of {SEAL_LEN} bytes")]
    NoSection,
}

/// The hash that belongs into the seal of the file `bytes`, whose hash field is still zero.
pub fn seal_hash(bytes: &[u8]) -> [u8; 16] {
    hash_without(bytes, 0..0)
}

/// [`seal_hash`] of a file that comes in pieces, of any sizes.
///
/// ```
/// use ansc_runtime::manifest::{SealHasher, seal_hash};
/// let mut hasher = SealHasher::default();
/// hasher.update(b"any");
/// hasher.update(b"thing");
/// assert_eq!(hasher.finish(), seal_hash(b"anything"));
/// ```
#[derive(Default)]
pub struct SealHasher {
    chunk: Xxh3Default,
    /// Digests of the chunks that are full.
    digests: Xxh3Default,
    len: u64,
}

impl SealHasher {
    /// The next bytes of the file; zeros for the hash itself.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = CHUNK - (self.len % CHUNK as u64) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.chunk.update(now);
            self.len += now.len() as u64;
            if self.len.is_multiple_of(CHUNK as u64) {
                self.end_chunk();
            }
            bytes = later;
        }
    }

    /// The hash of everything.
    pub fn finish(mut self) -> [u8; 16] {
        if !self.len.is_multiple_of(CHUNK as u64) {
            self.end_chunk();
        }
        self.digests.update(&self.len.to_le_bytes());
        self.digests.digest128().to_le_bytes()
    }

    fn end_chunk(&mut self) {
        self.digests.update(&self.chunk.digest128().to_le_bytes());
        self.chunk = Xxh3Default::new();
    }
}

/// Writes magic, format version and hash into the section `.ansc.seal` of the ELF file `bytes`.
pub fn seal(bytes: &mut [u8]) -> Result<(), SealError> {
    let elf = ElfFile::<FileHeader64<LittleEndian>>::parse(&*bytes)
        .map_err(|e| SealError::NotElf(e.to_string()))?;
    let at = section(&elf, SEAL_SECTION).ok_or(SealError::NoSection)?;
    let seal = bytes.get_mut(at.clone()).filter(|s| s.len() == SEAL_LEN);
    let seal = seal.ok_or(SealError::NoSection)?;
    seal.fill(0);
    seal[..SEAL_MAGIC.len()].copy_from_slice(&SEAL_MAGIC);
    seal[SEAL_MAGIC.len()..][..4].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let hash = seal_hash(bytes);
    bytes[at.start + SEAL_HASH_AT..][..HASH_LEN].copy_from_slice(&hash);
    Ok(())
}

/// Where the bytes of a section lie in the file; `None` if there is no such section in it.
pub(crate) fn section(
    elf: &ElfFile<'_, FileHeader64<LittleEndian>>,
    name: &str,
) -> Option<Range<usize>> {
    let (at, len) = elf.section_by_name(name)?.file_range()?;
    let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
    (at.checked_add(len)? <= elf.data().len()).then_some(at..at + len)
}

/// The hash of `bytes` with zeros in place of `zeroed`, which lies inside.
pub(crate) fn hash_without(bytes: &[u8], zeroed: Range<usize>) -> [u8; 16] {
    let chunks = bytes.len().div_ceil(CHUNK);
    let cores = crate::pool::cores();
    let threads = cores.min(MAX_THREADS).min(chunks / CHUNKS_PER_THREAD).max(1);
    let next = AtomicUsize::new(0);
    let take_chunks = || digest_chunks(bytes, &zeroed, &next);
    let mut digests = vec![[0; HASH_LEN]; chunks];
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(take_chunks)).collect();
        let mut all = vec![take_chunks()];
        all.extend(helpers.into_iter().map(|h| h.join().expect("hashing does not panic")));
        all.into_iter().flatten().for_each(|(chunk, digest)| digests[chunk] = digest);
    });
    let mut hasher = Xxh3Default::new();
    hasher.update(digests.as_flattened());
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.digest128().to_le_bytes()
}

/// Digests of the chunks that no other thread has taken: a thread that gets no core is no brake.
fn digest_chunks(
    bytes: &[u8],
    zeroed: &Range<usize>,
    next: &AtomicUsize,
) -> Vec<(usize, [u8; HASH_LEN])> {
    let chunks = bytes.len().div_ceil(CHUNK);
    std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed))
        .take_while(|&chunk| chunk < chunks)
        .map(|chunk| {
            let range = chunk * CHUNK..bytes.len().min((chunk + 1) * CHUNK);
            (chunk, digest_range(bytes, range, zeroed).to_le_bytes())
        })
        .collect()
}

fn digest_range(bytes: &[u8], range: Range<usize>, zeroed: &Range<usize>) -> u128 {
    let zeros = zeroed.start.max(range.start)..zeroed.end.min(range.end);
    if zeros.is_empty() {
        return xxhash_rust::xxh3::xxh3_128(&bytes[range]);
    }
    let mut hasher = Xxh3Default::new();
    hasher.update(&bytes[range.start..zeros.start]);
    hasher.update(&[0; HASH_LEN][..zeros.len()]);
    hasher.update(&bytes[zeros.end..range.end]);
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// The definition in the module's documentation, word by word.
    fn defined(bytes: &[u8]) -> [u8; 16] {
        let mut all = Vec::new();
        for chunk in bytes.chunks(1 << 20) {
            all.extend(xxhash_rust::xxh3::xxh3_128(chunk).to_le_bytes());
        }
        all.extend((bytes.len() as u64).to_le_bytes());
        xxhash_rust::xxh3::xxh3_128(&all).to_le_bytes()
    }

    #[test]
    fn hash_is_the_defined_one() {
        for len in [0, 1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 9 * CHUNK + 5, 16 * CHUNK] {
            let bytes = noise(len);
            assert_eq!(seal_hash(&bytes), defined(&bytes), "{len}");
            let mut hasher = SealHasher::default();
            bytes.chunks(70_001).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.finish(), defined(&bytes), "{len} in pieces");
        }
    }

    #[test]
    fn the_hash_field_counts_as_zeros() {
        let bytes = noise(2 * CHUNK + 100);
        for at in [0, 77, CHUNK - 16, CHUNK - 7, CHUNK, 2 * CHUNK + 84] {
            let mut zeroed = bytes.clone();
            zeroed[at..at + 16].fill(0);
            assert_eq!(hash_without(&bytes, at..at + 16), defined(&zeroed), "{at}");
        }
    }

    #[test]
    fn only_elf_files_with_a_seal_section_are_sealed() {
        assert!(matches!(seal(&mut noise(100)), Err(SealError::NotElf(_))));
    }
}
