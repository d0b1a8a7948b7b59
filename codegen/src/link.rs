//! Objects to a shared library, by the linker that is at hand.
//!
//! The library depends on nothing but the C library's mathematical functions, and on those only if it
//! calls them. The same objects give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use inkwell::context::Context;
use inkwell::targets::FileType;

use crate::error::CodegenError;
use crate::math::LIBM_FUNCTIONS;
use crate::target::{Arch, Target};

/// Links `objects` into a shared library and returns its bytes.
pub(crate) fn shared_library(objects: &[&[u8]], target: &Target) -> Result<Vec<u8>, CodegenError> {
    let linker = Linker::find(target)?;
    let dir = tempfile::tempdir().map_err(CodegenError::io(std::env::temp_dir()))?;
    let write = |name: String, bytes: &[u8]| {
        let path = dir.path().join(&name);
        std::fs::write(&path, bytes).map_err(CodegenError::io(path))?;
        Ok::<String, CodegenError>(name)
    };
    write("libm.so".into(), &libm_library(target, &linker)?)?;
    let mut inputs = Vec::with_capacity(objects.len());
    for (index, object) in objects.iter().enumerate() {
        inputs.push(write(format!("{index}.o"), object)?);
    }
    if inputs.is_empty() {
        inputs.push(write("empty.o".into(), &object_of(target, &[])?)?);
    }
    let mut args: Vec<&str> = inputs.iter().map(String::as_str).collect();
    args.extend(["--as-needed", "libm.so"]);
    linker.run(dir.path(), "out.so", &args)?;
    let out = dir.path().join("out.so");
    std::fs::read(&out).map_err(CodegenError::io(out))
}

struct Linker {
    path: PathBuf,
}

impl Linker {
    fn find(target: &Target) -> Result<Linker, CodegenError> {
        let names: &[&str] = match (target.arch, std::env::consts::ARCH) {
            (Arch::X86_64, "x86_64") => &[
                "ld",
                "ld.lld-22",
                "ld.lld",
                "ld.lld-19",
                "x86_64-linux-gnu-ld",
                "ld.bfd",
                "ld.gold",
            ],
            (Arch::X86_64, _) => &["ld.lld-22", "ld.lld", "ld.lld-19", "x86_64-linux-gnu-ld"],
            (Arch::Aarch64, "aarch64") => {
                &["ld", "ld.lld-22", "ld.lld", "ld.lld-19", "aarch64-linux-gnu-ld", "ld.bfd"]
            }
            // GPU code is no object; what carries it is linked for the machine it is loaded on.
            (Arch::Nvptx, _) => &[],
            (Arch::Aarch64, _) => &["ld.lld-22", "ld.lld", "ld.lld-19", "aarch64-linux-gnu-ld"],
        };
        names
            .iter()
            .find_map(|name| on_path(name))
            .map(|path| Linker { path })
            .ok_or_else(|| CodegenError::NoLinker { tried: names.join(", ") })
    }

    /// Runs in `dir`, so that no path of this machine reaches the output.
    fn run(&self, dir: &Path, output: &str, args: &[&str]) -> Result<(), CodegenError> {
        let common = [
            "-shared",
            "--build-id=none",
            "--hash-style=gnu",
            "-z",
            "noexecstack",
            "--strip-all",
            "-o",
            output,
        ];
        let linker = self.path.display().to_string();
        let result = Command::new(&self.path)
            .current_dir(dir)
            .args(common)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(CodegenError::io(&self.path))?;
        if result.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&result.stderr).trim().to_owned();
        Err(CodegenError::Link { linker, message })
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A library that stands for the real one while linking: it names what `libm` defines. It is made once by a
/// process and architecture.
fn libm_library(target: &Target, linker: &Linker) -> Result<Arc<[u8]>, CodegenError> {
    static MADE: Mutex<BTreeMap<Arch, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = made.get(&target.arch) {
        return Ok(library.clone());
    }
    let both = LIBM_FUNCTIONS.iter().flat_map(|f| [(*f).to_owned(), format!("{f}f")]);
    let object = object_of(target, &both.collect::<Vec<_>>())?;
    let dir = tempfile::tempdir().map_err(CodegenError::io(std::env::temp_dir()))?;
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("libm.o"), object).map_err(CodegenError::io(file("libm.o")))?;
    linker.run(dir.path(), "libm.so", &["-soname", "libm.so.6", "libm.o"])?;
    let library = std::fs::read(file("libm.so")).map_err(CodegenError::io(file("libm.so")))?;
    Ok(made.entry(target.arch).or_insert(library.into()).clone())
}

/// An object that defines empty functions.
fn object_of(target: &Target, functions: &[String]) -> Result<Vec<u8>, CodegenError> {
    let context = Context::create();
    let module = context.create_module("stub");
    let machine = target.machine()?;
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let builder = context.create_builder();
    for name in functions {
        let function = module.add_function(name, context.void_type().fn_type(&[], false), None);
        builder.position_at_end(context.append_basic_block(function, ""));
        builder.build_return(None).expect("the builder is positioned");
    }
    let object = machine.write_to_memory_buffer(&module, FileType::Object).map_err(|e| {
        CodegenError::Llvm {
            program: "stub".into(),
            stage: "code generation",
            message: e.to_string(),
        }
    })?;
    Ok(object.as_slice().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_objects_make_a_library_for_every_target() {
        for name in ["x86-64-v2", "x86-64-v4", "aarch64"] {
            let target = Target::parse(name).unwrap();
            let library = shared_library(&[], &target).unwrap();
            assert_eq!(&library[..4], b"\x7fELF", "{name}");
            assert_eq!(library, shared_library(&[], &target).unwrap(), "{name}");
        }
    }

    #[test]
    fn linker_errors_are_reported() {
        let target = Target::native().unwrap();
        let error = shared_library(&[b"not an object"], &target).unwrap_err();
        assert!(matches!(error, CodegenError::Link { .. }), "{error}");
    }
}
