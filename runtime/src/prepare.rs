//! Constants that are made when a model is loaded, of weights that take less room in the file.
//!
//! In: an artifact whose manifest was checked, its [`Preparation`] and the functions of that. Out:
//! the memory that its plan wrote, read-only from then on; all sessions of the model share it.
//!
//! ```text
//! weights 9.4 MB --kernels, once--> prepared 37.7 MB     the pages of the weights are given back
//! ```

use std::collections::BTreeSet;
use std::io;

use memmap2::{Mmap, MmapMut};

use crate::artifact::Artifact;
use crate::exec::{Exec, OnThreads};
use crate::float::Denormals;
use crate::host::Chance;
use crate::manifest::{Manifest, Preparation, Storage};
use crate::model::Kernel;
use crate::pool::{Pool, PoolError, PoolOptions};
use crate::program::{Program, Writes};
use crate::run_error::RunError;
use crate::session::Memory;
use crate::tables::Places;
use crate::validate::{ManifestError, bytes_of};

/// Why weights could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreparationError {
    /// There is no memory for them.
    #[error("they need {bytes} bytes of memory: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// There are no threads.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A step of the plan failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

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
    let mut prepared = MmapMut::map_anon(bytes.max(1)).map_err(no_memory(bytes))?;
    // Where there are no large pages, so be it.
    #[cfg(target_os = "linux")]
    let _ = prepared.advise(memmap2::Advice::HugePage);
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
    let offset = |storage| match storage {
        Storage::Weight { offset } => Some(offset),
        _ => None,
    };
    let buffers = manifest.specialisations.iter().flat_map(|one| &one.buffers);
    let in_use: BTreeSet<usize> = buffers.filter_map(|buffer| offset(buffer.storage)).collect();
    for buffer in &preparation.plan.buffers {
        if let Some(at) = offset(buffer.storage).filter(|at| !in_use.contains(at)) {
            artifact.give_back(at..at + bytes_of(buffer));
        }
    }
}
