//! A model as one relocatable object and a header, for programs that have no runtime.
//!
//! In: what an artifact is made of, for one size and without work of the runtime. Out: `NAME.o`
//! with one global function, `NAME.h`, and the weights in the object or in `NAME.weights`. The same
//! arguments give the same bytes.
//!
//! ```text
//! kernels' objects + entry (`entry`) --link--> NAME.o        plan (`plan`) --header--> NAME.h
//! ```

mod entry;
mod header;
mod names;
mod plan;

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ansc_runtime::manifest::{Manifest, WEIGHT_ALIGN};

use crate::artifact::Weight;
use crate::error::CodegenError;
use crate::link::{self, Carried};
use crate::target::Target;
use entry::Weights;
pub use names::symbol;

/// The function returns one of these: all is well; a pointer is not aligned; an index from data is
/// out of range.
const OK: u32 = 0;
const MISALIGNED: u32 = 1;
const INDEX_OUT_OF_RANGE: u32 = 2;

/// The files of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    pub object: PathBuf,
    pub header: PathBuf,
    /// `None` if the object holds the weights.
    pub weights: Option<PathBuf>,
}

impl Files {
    /// The object and its neighbours.
    pub fn beside(object: &Path, weights_beside: bool) -> Files {
        Files {
            object: object.to_owned(),
            header: object.with_extension("h"),
            weights: weights_beside.then(|| object.with_extension("weights")),
        }
    }

    /// The prefix of what the bundle defines.
    fn symbol(&self) -> String {
        symbol(&self.object.file_stem().unwrap_or_default().to_string_lossy())
    }
}

/// Writes the bundle. Arguments are as [`crate::artifact::write`] takes them; nothing is prepared
/// when loading.
pub fn write(
    files: &Files,
    target: &Target,
    objects: &[&[u8]],
    weights: &[Weight<'_>],
    manifest: &Manifest,
) -> Result<(), CodegenError> {
    let plan = plan::plan(manifest)?;
    let symbol = files.symbol();
    let run = format!("{symbol}_run");
    let kind = if files.weights.is_some() { Weights::Given } else { Weights::Embedded };
    let entry = entry::object(&plan, &run, kind, target)?;
    let mut objects = objects.to_vec();
    objects.push(&entry);
    let carried = Carried {
        symbol: entry::WEIGHTS,
        bytes: manifest.weight_bytes as u64,
        align: WEIGHT_ALIGN as u64,
    };
    let carried = (kind == Weights::Embedded).then_some(&carried);
    let layout = link::relocatable(&objects, target, &run, carried)?;
    let header = header::text(&plan, &symbol, kind, manifest, &layout.imports);
    put(&files.object, |out| {
        out.write_all(&layout.front)?;
        if kind == Weights::Embedded {
            write_weights(out, layout.weights_at, weights)?;
        }
        out.seek(SeekFrom::Start(layout.back_at))?;
        out.write_all(&layout.back)
    })?;
    put(&files.header, |out| out.write_all(header.as_bytes()))?;
    match &files.weights {
        None => Ok(()),
        Some(path) => put(path, |out| {
            write_weights(out, 0, weights)?;
            out.flush()?;
            // Nothing but gaps is left between the last weight and the end.
            out.get_ref().set_len(manifest.weight_bytes as u64)
        }),
    }
}

/// Gaps stay zero.
fn write_weights(
    out: &mut BufWriter<File>,
    base: u64,
    weights: &[Weight<'_>],
) -> std::io::Result<()> {
    for &(offset, bytes) in weights {
        out.seek(SeekFrom::Start(base + offset as u64))?;
        out.write_all(bytes)?;
    }
    Ok(())
}

/// Writes a file as a whole or not at all.
fn put(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), CodegenError> {
    let partial = crate::artifact::partial_path(path);
    let written = File::create(&partial).map(BufWriter::new).and_then(|mut out| {
        write(&mut out)?;
        out.flush()?;
        crate::artifact::put_in_place(&partial, path)
    });
    written.map_err(|e| {
        // The error that counts is the first one.
        let _ = std::fs::remove_file(&partial);
        CodegenError::io(path)(e)
    })
}
