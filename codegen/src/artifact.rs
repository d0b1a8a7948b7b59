//! The artifact: kernels, weights, manifest and seal in one shared library.
//!
//! Objects are linked; the other sections are written behind the linked library (see `link`), so
//! that weights are copied once, from memory to the file. The same arguments give the same bytes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ansc_runtime::gpu::{GPU_SECTION, GpuCode};
use ansc_runtime::manifest::{
    FORMAT_VERSION, MANIFEST_SECTION, Manifest, SEAL_HASH_AT, SEAL_LEN, SEAL_MAGIC, SEAL_SECTION,
    SealHasher, WEIGHTS_SECTION,
};

use crate::error::CodegenError;
use crate::link::{self, Layout, NewSection};
use crate::target::Target;

/// A page of every machine that we compile for.
const WEIGHTS_ALIGN: u64 = 64 << 10;

/// Bytes of one weight and their offset in the section.
pub type Weight<'a> = (usize, &'a [u8]);

/// Writes the artifact to `path`; on an error nothing is left there. Weights are in the order of
/// their offsets and do not overlap; `manifest.weight_bytes` is the length of their section.
pub fn write(
    path: &Path,
    target: &Target,
    objects: &[&[u8]],
    weights: &[Weight<'_>],
    manifest: &Manifest,
) -> Result<(), CodegenError> {
    write_sections(path, target, objects, weights, manifest, None)
}

/// The same with code for GPUs: a [`GpuCode`] as the section of that name. `target` is the machine
/// that the artifact is loaded on.
pub fn write_gpu(
    path: &Path,
    target: &Target,
    code: &GpuCode,
    weights: &[Weight<'_>],
    manifest: &Manifest,
) -> Result<(), CodegenError> {
    let json = serde_json::to_vec(code)
        .map_err(|e| CodegenError::Artifact(format!("the GPU code has no JSON form: {e}")))?;
    write_sections(path, target, &[], weights, manifest, Some(&json))
}

fn write_sections(
    path: &Path,
    target: &Target,
    objects: &[&[u8]],
    weights: &[Weight<'_>],
    manifest: &Manifest,
    gpu: Option<&[u8]>,
) -> Result<(), CodegenError> {
    check_weights(weights, manifest.weight_bytes)?;
    let json = serde_json::to_vec(manifest)
        .map_err(|e| CodegenError::Artifact(format!("the manifest has no JSON form: {e}")))?;
    let mut sections = vec![
        NewSection {
            name: WEIGHTS_SECTION,
            align: WEIGHTS_ALIGN,
            len: manifest.weight_bytes as u64,
        },
        NewSection { name: MANIFEST_SECTION, align: 8, len: json.len() as u64 },
        NewSection { name: SEAL_SECTION, align: 8, len: SEAL_LEN as u64 },
    ];
    sections.extend(gpu.map(|code| NewSection {
        name: GPU_SECTION,
        align: 8,
        len: code.len() as u64,
    }));
    let layout = link::shared_library(objects, target, &sections)?;
    let partial = partial_path(path);
    let written = write_file(&partial, &layout, weights, &json, gpu)
        .and_then(|()| put_in_place(&partial, path));
    written.map_err(|e| {
        // The error that counts is the first one.
        let _ = std::fs::remove_file(&partial);
        CodegenError::io(path)(e)
    })
}

/// Gives a complete file its name. A device or a socket of that name is not replaced by it.
pub(crate) fn put_in_place(partial: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(other) if !other.is_file() && !other.is_dir() => {
            let what = "there is something of that name that is no regular file; name another one";
            Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, what))
        }
        _ => std::fs::rename(partial, path),
    }
}

fn check_weights(weights: &[Weight<'_>], total: usize) -> Result<(), CodegenError> {
    let mut end = 0;
    for &(offset, bytes) in weights {
        if offset < end {
            return Err(CodegenError::Artifact(format!("weights overlap at offset {offset}")));
        }
        end = offset.saturating_add(bytes.len());
    }
    if end > total {
        let message = format!("weights end at {end}, but the manifest says {total}");
        return Err(CodegenError::Artifact(message));
    }
    Ok(())
}

pub(crate) fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

fn write_file(
    path: &Path,
    layout: &Layout,
    weights: &[Weight<'_>],
    json: &[u8],
    gpu: Option<&[u8]>,
) -> std::io::Result<()> {
    let mut out = Hashed { file: File::create(path)?, hash: SealHasher::default(), at: 0 };
    let [weights_at, json_at, seal_at, ref gpu_at @ ..] = layout.offsets[..] else {
        unreachable!("three sections were laid out, and perhaps a fourth")
    };
    out.put(&layout.front)?;
    for &(offset, bytes) in weights {
        out.pad_to(weights_at + offset as u64)?;
        out.put(bytes)?;
    }
    out.pad_to(json_at)?;
    out.put(json)?;
    out.pad_to(seal_at)?;
    out.put(&unsealed())?;
    for (&at, code) in gpu_at.iter().zip(gpu) {
        out.pad_to(at)?;
        out.put(code)?;
    }
    out.pad_to(layout.back_at)?;
    out.put(&layout.back)?;
    let hash = out.hash.finish();
    out.file.seek(SeekFrom::Start(seal_at + SEAL_HASH_AT as u64))?;
    out.file.write_all(&hash)
}

/// The seal with its hash field zero.
fn unsealed() -> [u8; SEAL_LEN] {
    let mut seal = [0; SEAL_LEN];
    seal[..8].copy_from_slice(&SEAL_MAGIC);
    seal[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    seal
}

/// A file that is hashed while it is written.
struct Hashed {
    file: File,
    hash: SealHasher,
    at: u64,
}

impl Hashed {
    /// In pieces that stay in the cache between hashing and writing.
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        for piece in bytes.chunks(256 << 10) {
            self.hash.update(piece);
            self.file.write_all(piece)?;
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn pad_to(&mut self, offset: u64) -> std::io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.at < offset {
            let len = (offset - self.at).min(ZEROS.len() as u64) as usize;
            self.put(&ZEROS[..len])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let [partial, file, socket] = ["partial", "file", "socket"].map(|n| dir.path().join(n));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::write(&partial, "new").unwrap();
        std::fs::write(&file, "old").unwrap();
        let error = put_in_place(&partial, &socket).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert!(!std::fs::metadata(&socket).unwrap().is_file());
        put_in_place(&partial, &file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    }
}
