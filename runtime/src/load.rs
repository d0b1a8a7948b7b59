//! Loading an artifact: file, seal, target, manifest, code, in this order.
//!
//! In: a path, or bytes. Out: a [`Model`], or a [`LoadError`] that names the file and the first
//! thing that is wrong with it. Nothing of the file is executed before everything else about it was
//! checked.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use memmap2::Mmap;

use crate::artifact::Artifact;
use crate::cuda;
use crate::exec::{Kernel, Launch};
use crate::gpu::{GPU_SECTION, GpuCode};
pub use crate::load_error::{IN_MEMORY, LoadError, LoadErrorKind};
use crate::manifest::{KernelFn, KernelInfo, Manifest};
use crate::model::Model;
use crate::parts::Parts;
use crate::prepare;
use crate::program::{Program, Writes};
use crate::target;
use crate::validate::{self, ManifestError};

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Leaves the weights in the pages of the file, which all processes share that do so. Else
    /// weights of 16 MiB or more move to larger pages, which makes models faster that wait for
    /// them, as language models do.
    pub share_weights: bool,
}

impl Model {
    /// Loads an artifact.
    ///
    /// Checked, in this order: the file is a readable ELF shared library; its seal, format version
    /// and hash; that it was compiled for this machine and its CPU features; that the manifest is
    /// sound to the last offset. Only then is its code mapped. If the artifact has code to prepare
    /// weights, that now runs on all cores. Many weights are copied to larger pages than those of
    /// a mapped file; [`LoadOptions`] can leave them there.
    ///
    /// # Trust
    ///
    /// An artifact is machine code, and running it is as safe as running a program: no check can
    /// tell what it does. The hash finds damage, not malice. So **load only what you or somebody
    /// you trust compiled**; the function is not `unsafe` for the reason that starting a
    /// process is not. Replace an artifact by renaming a new file over it (as the compiler does),
    /// never by writing into the file while a program has it loaded. A loaded model goes on with
    /// the file that it opened.
    ///
    /// ```no_run
    /// use ansc_runtime::{Model, Tensor};
    ///
    /// let model = Model::load("mobilenet.ansc")?;
    /// let mut session = model.session()?;
    /// let image = Tensor::from_slice(&[1, 3, 224, 224], &vec![0.5f32; 3 * 224 * 224]);
    /// for (name, tensor) in session.run(&[("image", &image)])? {
    ///     println!("{name}: {tensor:?}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Model, LoadError> {
        Model::load_with(path, &LoadOptions::default())
    }

    /// Loads an artifact with options.
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model, LoadError> {
        let path = path.as_ref();
        let loaded = Artifact::open(path).and_then(|artifact| load(artifact, path, options));
        loaded.map_err(|kind| LoadError { path: path.to_owned(), kind })
    }

    /// Loads an artifact that lies in memory, with the checks, and under the condition, of
    /// [`Model::load`].
    ///
    /// The model keeps a copy, so `bytes` may change or go afterwards. A file is better where there
    /// is one: its weights get larger pages, or are shared by processes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model, LoadError> {
        let (path, options) = (Path::new(IN_MEMORY), LoadOptions { share_weights: true });
        let loaded = Artifact::in_memory(bytes).and_then(|artifact| load(artifact, path, &options));
        loaded.map_err(|kind| LoadError { path: path.to_owned(), kind })
    }

    /// The manifest of an artifact for any machine. Nothing of the artifact is loaded for
    /// execution.
    pub fn read_manifest(path: impl AsRef<Path>) -> Result<Manifest, LoadError> {
        let path = path.as_ref();
        let read = || -> Result<Manifest, LoadErrorKind> {
            let artifact = Artifact::open(path)?;
            Ok(serde_json::from_slice(artifact.manifest()).map_err(ManifestError::from)?)
        };
        read().map_err(|kind| LoadError { path: path.to_owned(), kind })
    }

    /// The GPU code of an artifact; `None` in one for a CPU.
    pub fn read_gpu_code(path: impl AsRef<Path>) -> Result<Option<GpuCode>, LoadError> {
        let path = path.as_ref();
        let read = || -> Result<Option<GpuCode>, LoadErrorKind> {
            let artifact = Artifact::open(path)?;
            let Some(bytes) = artifact.gpu() else { return Ok(None) };
            Ok(Some(serde_json::from_slice(bytes).map_err(ManifestError::from)?))
        };
        read().map_err(|kind| LoadError { path: path.to_owned(), kind })
    }
}

fn load(
    mut artifact: Artifact,
    path: &Path,
    options: &LoadOptions,
) -> Result<Model, LoadErrorKind> {
    let manifest: Manifest =
        serde_json::from_slice(artifact.manifest()).map_err(ManifestError::from)?;
    target::check(&manifest.target)?;
    validate::check(&manifest, artifact.weights().len())?;
    let (all, kernels) = (&manifest.specialisations, &manifest.kernels);
    let programs = all.iter().map(|one| Program::new(one, kernels, Writes::Outputs));
    let programs = programs.collect::<Result<Vec<_>, _>>()?;
    if manifest.target.gpus().is_some() {
        return load_on_gpu(artifact, manifest, programs);
    }
    let library = open_library(&artifact, path)?;
    let kernels = resolve_all(&artifact, &library, &manifest.kernels)?;
    let prepared = prepared(&artifact, &library, &manifest)?;
    if !options.share_weights {
        artifact.move_weights(&prepare::ranges_in_use(&manifest));
    }
    let (_library, gpu) = (Some(library), None);
    Ok(Model::from_parts(Parts { manifest, programs, kernels, _library, gpu, prepared, artifact }))
}

/// Runs the code that makes constants of weights, if there is any.
fn prepared(
    artifact: &Artifact,
    library: &Library,
    manifest: &Manifest,
) -> Result<Option<Mmap>, LoadErrorKind> {
    let Some(preparation) = &manifest.preparation else { return Ok(None) };
    let program = prepare::program(preparation)?;
    let kernels = resolve_all(artifact, library, &preparation.kernels)?;
    let prepared = prepare::prepare(artifact, preparation, &program, &kernels)?;
    prepare::forget_sources(artifact, manifest, preparation);
    Ok(Some(prepared))
}

/// The library holds no code then; the driver translates that of the GPU section.
fn load_on_gpu(
    artifact: Artifact,
    manifest: Manifest,
    programs: Vec<Program>,
) -> Result<Model, LoadErrorKind> {
    if manifest.preparation.is_some() {
        let problem = "there is one, but weights are not prepared on a GPU";
        return Err(ManifestError::at("preparation", problem).into());
    }
    if let Some(state) = manifest.specialisations.iter().flat_map(|one| &one.states).next() {
        let place = format!("state `{}`", state.input.name);
        return Err(ManifestError::at(place, "sessions keep none on a GPU").into());
    }
    let bytes = artifact.gpu().ok_or(LoadErrorKind::Section(GPU_SECTION))?;
    let code: GpuCode = serde_json::from_slice(bytes).map_err(ManifestError::from)?;
    let gpu = cuda::load(&manifest, &programs, &code, artifact.weights())?;
    let (_library, gpu, kernels, prepared) = (None, Some(Arc::new(gpu)), vec![], None);
    Ok(Model::from_parts(Parts { manifest, programs, kernels, _library, gpu, prepared, artifact }))
}

/// Loads the code from the very file that was checked, whatever `path` names by now. Going by
/// the path would also make the dynamic linker return an older library that had the same path.
fn open_library(artifact: &Artifact, path: &Path) -> Result<Library, LoadErrorKind> {
    let by_descriptor = new_name(&artifact.file);
    // Without /proc only the path is left; the slash keeps the linker from searching for it.
    let name = if by_descriptor.exists() { by_descriptor } else { path.canonicalize()? };
    // SAFETY: initialisers of the library run here. Its integrity was checked; that it is benign
    // is the condition stated in the documentation of `Model::load`.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map_err(LoadErrorKind::Library)
}

/// A name of an open file that no load had before. The dynamic linker keeps every name under which
/// it was asked for a library as long as that library is loaded; a descriptor's number belongs to
/// the next file as soon as it is closed.
///
/// ```text
/// /proc/self/fd/7    /proc/self/./fd/7    /proc/self/.//fd/7    /proc/self/././fd/7
/// ```
fn new_name(file: &File) -> PathBuf {
    static LOADS: AtomicU64 = AtomicU64::new(0);
    let number = LOADS.fetch_add(1, Ordering::Relaxed);
    let digits = u64::BITS - number.leading_zeros();
    let digit = |i: u32| if number >> i & 1 == 1 { "./" } else { "/" };
    let spelt: String = (0..digits).rev().map(digit).collect();
    PathBuf::from(format!("/proc/self/{spelt}fd/{}", file.as_raw_fd()))
}

fn resolve_all(
    artifact: &Artifact,
    library: &Library,
    kernels: &[KernelInfo],
) -> Result<Vec<Kernel>, LoadErrorKind> {
    kernels.iter().map(|kernel| resolve(artifact, library, kernel)).collect()
}

fn resolve(
    artifact: &Artifact,
    library: &Library,
    kernel: &KernelInfo,
) -> Result<Kernel, LoadErrorKind> {
    let launches = kernel.launches.iter().map(|launch| {
        let missing = || LoadErrorKind::Symbol(launch.symbol.clone());
        // The linker would go on to search in libc: `exit` must not become a kernel.
        if !artifact.defines(&launch.symbol) {
            return Err(missing());
        }
        // SAFETY: the library defines the symbol, and the compiler that sealed it exports no
        // function that the manifest names but those of the type `KernelFn`.
        let function = unsafe { library.get::<KernelFn>(launch.symbol.as_bytes()) };
        let run = *function.map_err(|_| missing())?;
        let needed = launch.needed.clone();
        Ok(Launch { run, extent: launch.extent, scratch: launch.scratch, needed })
    });
    launches.collect::<Result<_, _>>().map(|launches| Kernel { launches })
}
