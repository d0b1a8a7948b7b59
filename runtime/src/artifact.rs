//! The file of an artifact, mapped and verified, before any of its code is loaded.
//!
//! In: a path, or bytes. Out: an [`Artifact`] that is an ELF shared library for this kind of
//! machine, of the format's version, undamaged, with our sections.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};
use object::elf::{ET_DYN, FileHeader64};
use object::read::elf::ElfFile;
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};

use crate::gpu::GPU_SECTION;
use crate::load_error::LoadErrorKind;
use crate::manifest::{
    FORMAT_VERSION, MANIFEST_SECTION, SEAL_HASH_AT, SEAL_LEN, SEAL_MAGIC, SEAL_SECTION,
    WEIGHT_ALIGN, WEIGHTS_SECTION,
};
use crate::{pages, seal, source};

type Elf<'a> = ElfFile<'a, FileHeader64<LittleEndian>>;

pub(crate) struct Artifact {
    /// Open as long as the model lives: code and weights must come from the same file even if
    /// another one takes over its path.
    pub(crate) file: File,
    map: Mmap,
    manifest: Range<usize>,
    weights: Range<usize>,
    /// Those in use, in large pages.
    copied: Option<Mmap>,
    /// Code for GPUs, if that is what the artifact holds.
    gpu: Option<Range<usize>>,
    /// Names of the functions that the library defines.
    functions: BTreeSet<String>,
}

impl Artifact {
    pub(crate) fn open(path: &Path) -> Result<Artifact, LoadErrorKind> {
        let file = source::open_file(path).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput => LoadErrorKind::NotAnArtifact(e.to_string()),
            _ => LoadErrorKind::Io(e),
        })?;
        Artifact::of(file)
    }

    /// A copy of `bytes` that goes the way of a file: the dynamic linker takes nothing else.
    pub(crate) fn in_memory(bytes: &[u8]) -> Result<Artifact, LoadErrorKind> {
        Artifact::of(source::file_of(bytes)?)
    }

    fn of(file: File) -> Result<Artifact, LoadErrorKind> {
        // SAFETY: the mapping is read-only and private. That nobody writes into the file
        // meanwhile is the condition under which any program runs from a mapped file; it is
        // stated in the documentation of `Model::load`.
        let map = unsafe { MmapOptions::new().populate().map(&file) }?;
        let elf = Elf::parse(&*map).map_err(|e| LoadErrorKind::NotAnArtifact(e.to_string()))?;
        check_kind(&elf)?;
        check_seal(&elf)?;
        let manifest = seal::section(&elf, MANIFEST_SECTION)
            .ok_or(LoadErrorKind::Section(MANIFEST_SECTION))?;
        // A model without constants has no such section.
        let weights = seal::section(&elf, WEIGHTS_SECTION).unwrap_or(0..0);
        if !weights.is_empty() && !weights.start.is_multiple_of(WEIGHT_ALIGN) {
            return Err(LoadErrorKind::Section(WEIGHTS_SECTION));
        }
        let gpu = seal::section(&elf, GPU_SECTION);
        let functions = functions(&elf);
        Ok(Artifact { file, map, manifest, weights, copied: None, gpu, functions })
    }

    pub(crate) fn manifest(&self) -> &[u8] {
        &self.map[self.manifest.clone()]
    }

    pub(crate) fn weights(&self) -> &[u8] {
        self.copied.as_deref().unwrap_or(&self.map[self.weights.clone()])
    }

    /// Moves the weights that are in use to large pages, if they are many.
    pub(crate) fn move_weights(&mut self, in_use: &[Range<usize>]) {
        self.copied = pages::copied(self.weights(), in_use, |range| self.give_back(range));
    }

    /// Lets the system take back the memory of a range of the weights; what reads there again reads
    /// the file again.
    pub(crate) fn give_back(&self, range: Range<usize>) {
        // SAFETY: the mapping is of a file and never written: its pages come back as they were.
        #[cfg(target_os = "linux")]
        let _ = unsafe {
            let at = self.weights.start + range.start;
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, at, range.len())
        };
    }

    pub(crate) fn gpu(&self) -> Option<&[u8]> {
        self.gpu.clone().map(|at| &self.map[at])
    }

    pub(crate) fn defines(&self, function: &str) -> bool {
        self.functions.contains(function)
    }
}

fn check_kind(elf: &Elf<'_>) -> Result<(), LoadErrorKind> {
    if elf.elf_header().e_type.get(LittleEndian) != ET_DYN {
        return Err(LoadErrorKind::NotAnArtifact("it is not a shared library".to_owned()));
    }
    Ok(())
}

fn check_seal(elf: &Elf<'_>) -> Result<(), LoadErrorKind> {
    let at = seal::section(elf, SEAL_SECTION).filter(|at| at.len() == SEAL_LEN);
    let at = at.ok_or(LoadErrorKind::NotSealed)?;
    let rest = elf.data()[at.clone()].strip_prefix(&SEAL_MAGIC);
    let version = rest.and_then(<[u8]>::first_chunk::<4>).ok_or(LoadErrorKind::NotSealed)?;
    let found = u32::from_le_bytes(*version);
    if found != FORMAT_VERSION {
        return Err(LoadErrorKind::Version { found });
    }
    let hash = at.start + SEAL_HASH_AT..at.end;
    if seal::hash_without(elf.data(), hash.clone()) != elf.data()[hash] {
        return Err(LoadErrorKind::Damaged);
    }
    Ok(())
}

fn functions(elf: &Elf<'_>) -> BTreeSet<String> {
    elf.dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .collect()
}
