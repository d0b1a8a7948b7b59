//! Tensor data in files beside the model.
//!
//! In: the `external_data` entries of a tensor. Out: the tensor. A model must not be able to read
//! what is not its own, so a location is a relative path without `..`, opened component by
//! component from the model's directory without following a link, and must end at a regular file
//! that has no other name (a hard link would reach any file of the same file system). Offset and
//! length are compared with the file's size before anything is read.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::TensorProto;

use crate::memory::Memory;
use crate::tensor_type::{allocated, checked_bytes};

/// Access to the files that lie beside a model.
pub(crate) struct External {
    base: Option<PathBuf>,
    /// The file that was read last: the tensors of a model mostly share one.
    open: RefCell<Option<(String, Rc<File>, u64)>>,
    /// The files that were read, by device and inode: one may have several paths.
    known: RefCell<HashSet<(u64, u64)>>,
}

/// Pieces of a sparse file that are counted; the rest counts as if it had no holes.
const MAX_PIECES: usize = 1 << 12;

struct Location {
    path: String,
    offset: u64,
    length: Option<u64>,
}

impl External {
    #[cfg(test)]
    pub(crate) fn none() -> External {
        External::beside(None)
    }

    pub(crate) fn beside(directory: Option<&Path>) -> External {
        External {
            base: directory.map(Path::to_path_buf),
            open: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// A tensor of this type with the bytes of the file, as they are.
    pub(crate) fn read(
        &self,
        proto: &TensorProto,
        dtype: DType,
        shape: &[usize],
        memory: &Memory,
    ) -> Result<Tensor, String> {
        let location = location(proto)?;
        let in_file = |reason: String| format!("external data `{}`: {reason}", location.path);
        let expected = checked_bytes(dtype, shape)?;
        let (file, size) = self.file(&location.path, memory).map_err(in_file)?;
        check_range(&location, expected as u64, size).map_err(in_file)?;
        memory.take(expected).map_err(in_file)?;
        let mut tensor = allocated(dtype, shape).map_err(in_file)?;
        file.read_exact_at(tensor.bytes_mut(), location.offset)
            .map_err(|e| in_file(e.to_string()))?;
        Ok(tensor)
    }

    fn file(&self, path: &str, memory: &Memory) -> Result<(Rc<File>, u64), String> {
        let mut open = self.open.borrow_mut();
        if let Some((_, file, size)) = open.as_ref().filter(|(name, ..)| name == path) {
            return Ok((Rc::clone(file), *size));
        }
        let nowhere = "the model was given as bytes, without a directory to look for its data in";
        let base = self.base.as_ref().ok_or(nowhere)?;
        let file = open_beneath(base, path)?;
        let meta = checked(&file)?;
        let size = meta.len();
        if self.known.borrow_mut().insert((meta.dev(), meta.ino())) {
            memory.add_source(held(&file, size));
        }
        let file = Rc::new(file);
        *open = Some((path.into(), Rc::clone(&file), size));
        Ok((file, size))
    }
}

fn check_range(location: &Location, expected: u64, size: u64) -> Result<(), String> {
    if let Some(length) = location.length.filter(|&length| length != expected) {
        return Err(format!("{length} bytes are given, but type and shape need {expected}"));
    }
    match location.offset.checked_add(expected) {
        Some(end) if end <= size => Ok(()),
        _ => Err(format!(
            "{expected} bytes at offset {} do not lie within the file's {size} bytes",
            location.offset
        )),
    }
}

fn location(proto: &TensorProto) -> Result<Location, String> {
    let get = |key: &str| {
        let mut values = proto.external_data.iter().filter(|e| e.key == key).map(|e| &e.value);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(format!("external data: `{key}` is given twice")),
            (value, None) => Ok(value),
        }
    };
    let number = |key: &str| {
        let parsed = get(key)?.map(|text| text.parse::<u64>());
        parsed.transpose().map_err(|_| format!("external data: `{key}` is not a size"))
    };
    Ok(Location {
        path: get("location")?.ok_or("external data: no `location`")?.clone(),
        offset: number("offset")?.unwrap_or(0),
        length: number("length")?,
    })
}

/// The components of a relative path that does not leave its directory.
fn components(path: &str) -> Result<Vec<CString>, String> {
    let parts: Option<Vec<CString>> = Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => CString::new(name.as_encoded_bytes()).ok(),
            _ => None,
        })
        .collect();
    parts
        .filter(|parts| !parts.is_empty())
        .ok_or_else(|| "the location must be a relative path without `..`".into())
}

fn open_beneath(base: &Path, path: &str) -> Result<File, String> {
    let parts = components(path)?;
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    let mut at = File::open(base).map_err(|e| e.to_string())?;
    for (index, part) in parts.iter().enumerate() {
        let directory = index + 1 < parts.len();
        at = open_at(&at, part, directory).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => "symbolic links are not followed; copy the file".to_string(),
            _ => error.to_string(),
        })?;
    }
    Ok(at)
}

fn open_at(directory: &File, name: &CString, is_directory: bool) -> std::io::Result<File> {
    // Without O_NONBLOCK a named pipe would block here for ever.
    let kind = if is_directory { libc::O_DIRECTORY } else { libc::O_NONBLOCK };
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC | kind;
    // SAFETY: `directory` is open and `name` is a C string, both for the whole call.
    let fd = unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// How much of the file's size is data: a sparse file of a terabyte may hold none.
fn held(file: &File, size: u64) -> u64 {
    // SAFETY: the descriptor is open for the whole call.
    let seek = |at: u64, whence| unsafe { libc::lseek(file.as_raw_fd(), at as i64, whence) };
    let (mut at, mut held) = (0, 0);
    for _ in 0..MAX_PIECES {
        let Ok(begin) = u64::try_from(seek(at, libc::SEEK_DATA)) else { return held };
        at = u64::try_from(seek(begin, libc::SEEK_HOLE)).unwrap_or(size);
        held += at.saturating_sub(begin);
    }
    held + size.saturating_sub(at)
}

fn checked(file: &File) -> Result<Metadata, String> {
    let meta = file.metadata().map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("not a regular file".into());
    }
    if meta.nlink() > 1 {
        return Err("the file has hard links, by which a model could reach foreign files; copy it"
            .to_string());
    }
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::StringStringEntryProto;

    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> TensorProto {
        let external_data = pairs
            .iter()
            .map(|(k, v)| StringStringEntryProto { key: k.to_string(), value: v.to_string() })
            .collect();
        TensorProto { external_data, ..TensorProto::default() }
    }

    fn read(base: &Path, pairs: &[(&str, &str)], expected: usize) -> Result<Vec<u8>, String> {
        let memory = Memory::for_file(0);
        let external = External::beside(Some(base));
        let tensor = external.read(&entries(pairs), DType::U8, &[expected], &memory)?;
        Ok(tensor.bytes().to_vec())
    }

    #[test]
    fn holes_are_no_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 37).unwrap();
        file.write_all_at(&[1; 8], 1 << 36).unwrap();
        let file = File::open(&path).unwrap();
        assert!((8..1 << 24).contains(&held(&file, 1 << 37)));
        // The bytes that the file holds are read. A tensor of the file's whole size is refused,
        // since nearly all of it is a hole.
        let at = (1u64 << 36).to_string();
        let part = [("location", "sparse"), ("offset", at.as_str())];
        assert_eq!(read(dir.path(), &part, 8), Ok(vec![1; 8]));
        let error = read(dir.path(), &[("location", "sparse")], 1 << 37).unwrap_err();
        assert!(error.contains("out of proportion"), "{error}");
    }

    #[test]
    fn reads_what_lies_beside_the_model_and_nothing_else() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), [9; 8]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        std::fs::create_dir(base.join("sub")).unwrap();
        std::fs::write(base.join("sub/w"), [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        std::fs::write(base.join("linked"), [1; 8]).unwrap();
        std::fs::hard_link(base.join("linked"), base.join("hard")).unwrap();
        std::os::unix::fs::symlink(base.join("sub/w"), base.join("soft")).unwrap();
        std::os::unix::fs::symlink(outside.path(), base.join("away")).unwrap();

        let part = read(base, &[("location", "sub/w"), ("offset", "2"), ("length", "4")], 4);
        assert_eq!(part.unwrap(), [3, 4, 5, 6]);
        assert_eq!(read(base, &[("location", "./sub/w")], 8).unwrap().len(), 8);

        let absolute = outside.path().join("secret");
        let refused: &[&[(&str, &str)]] = &[
            &[("location", absolute.to_str().unwrap())],
            &[("location", "../secret")],
            &[("location", "sub/../../secret")],
            &[("location", "away/secret")],
            &[("location", "soft")],
            &[("location", "hard")],
            &[("location", "sub")],
            &[("location", "")],
            &[("location", "sub/w\0")],
            &[("location", "missing")],
            &[("location", "sub/w"), ("location", "sub/w")],
            &[("location", "sub/w"), ("offset", "1")],
            &[("location", "sub/w"), ("offset", "-1")],
            &[("location", "sub/w"), ("offset", "18446744073709551615")],
            &[("location", "sub/w"), ("length", "7")],
            &[],
        ];
        for case in refused {
            assert!(read(base, case, 8).is_err(), "{case:?}");
        }
        let memory = Memory::for_file(0);
        let nowhere = entries(&[("location", "w")]);
        assert!(External::none().read(&nowhere, DType::U8, &[8], &memory).is_err());
    }
}
