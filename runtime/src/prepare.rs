//! Constants that are made when a model is loaded, of weights that take less room in the file.
//!
//! In: an artifact whose manifest was checked, its [`Preparation`] and the functions of that. Out:
//! the memory that its plan wrote, read-only from then on; all sessions of the model share it.
//!
//! ```text
//! weights 9.4 MB --kernels, once--> prepared 37.7 MB     the pages of the weights are given back
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use memmap2::Mmap;

use crate::artifact::Artifact;
use crate::exec::{Exec, Kernel, OnThreads};
use crate::float::Denormals;
use crate::host::Chance;
use crate::load_error::PreparationError;
use crate::manifest::{Manifest, Preparation, Storage};
use crate::memory::Memory;
use crate::pages;
use crate::pool::{Pool, PoolOptions};
use crate::program::{Program, Writes};
use crate::tables::Places;
use crate::validate::{ManifestError, bytes_of};

pub(crate) fn program(preparation: &Preparation) -> Result<Program, ManifestError> {
    Program::new(&preparation.plan, &preparation.kernels, Writes::Prepared)
}

/// Runs the plan, on all cores. Denormal numbers are kept: sessions of either kind share what is
/// made, and what the compiler makes of constants keeps them too.
pub(crate) fn prepare(
    artifact: &Artifact,
    preparation: &Preparation,
    program: &Program,
    kernels: &[Kernel],
) -> Result<Mmap, PreparationError> {
    let no_memory = |bytes| move |source| PreparationError::Memory { bytes, source };
    let bytes = preparation.bytes;
    let mut prepared = pages::map(bytes).map_err(no_memory(bytes))?;
    let pool = Pool::new(&PoolOptions::default())?;
    let arena = preparation.plan.arena_bytes;
    let memory = Memory::new(kernels, arena, pool.threads()).map_err(no_memory(arena))?;
    let places = Places {
        arena: memory.arena(),
        weights: artifact.weights().as_ptr().cast_mut(),
        prepared: prepared.as_mut_ptr(),
        sizes: std::ptr::null_mut(),
    };
    let addresses = places.of(&preparation.plan.buffers);
    let args: Vec<*mut u8> = program.args.iter().map(|id| addresses[id.0 as usize]).collect();
    let (scratch, denormals) = (memory.scratch(), Denormals::Keep);
    Exec {
        program,
        kernels: &mut OnThreads { kernels, pool: &pool, scratch, denormals, trace: None },
        buffers: &preparation.plan.buffers,
        addresses: &addresses,
        args: &args,
        actual: &mut vec![None; addresses.len()],
        times: None,
        chance: Chance::default(),
    }
    .run()?;
    prepared.make_read_only().map_err(no_memory(bytes))
}

/// Gives back the pages of weights that nothing reads any more.
pub(crate) fn forget_sources(artifact: &Artifact, manifest: &Manifest, preparation: &Preparation) {
    let in_use = weights_in_use(manifest);
    for buffer in &preparation.plan.buffers {
        if let Storage::Weight { offset } = buffer.storage
            && !in_use.contains_key(&offset)
        {
            artifact.give_back(offset..offset + bytes_of(buffer));
        }
    }
}

/// The weights that runs read, in order and apart.
pub(crate) fn ranges_in_use(manifest: &Manifest) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = vec![];
    for (start, end) in weights_in_use(manifest) {
        match all.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => all.push(start..end),
        }
    }
    all
}

/// Where the weights begin that runs read, and where they end.
fn weights_in_use(manifest: &Manifest) -> BTreeMap<usize, usize> {
    let mut all = BTreeMap::new();
    for buffer in manifest.specialisations.iter().flat_map(|one| &one.buffers) {
        if let Storage::Weight { offset } = buffer.storage {
            let end = all.entry(offset).or_default();
            *end = (offset + bytes_of(buffer)).max(*end);
        }
    }
    all
}
