//! NumPy's archives: a zip file of `NAME.npy` for each array.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ansc_runtime::{Tensor, npy};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::{Error, output};

/// The arrays of an archive by name, packed or not.
pub fn read(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::file(path, e.to_string());
    let mut archive = open(path)?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|e| failed(&e))?;
        let file = entry.name().map_err(|e| failed(&e))?.into_owned();
        let Some(name) = file.strip_suffix(".npy").map(str::to_owned) else { continue };
        let tensor = tensor(path, &name, entry)?;
        arrays.insert(name, tensor);
    }
    Ok(arrays)
}

/// One array of an archive.
pub fn read_one(path: &Path, name: &str) -> Result<Tensor, Error> {
    let mut archive = open(path)?;
    let Ok(entry) = archive.by_name(&format!("{name}.npy")) else {
        let files = archive.file_names().flatten();
        let names: Vec<String> =
            files.filter_map(|file| file.strip_suffix(".npy").map(str::to_owned)).collect();
        let reason = format!("has no array `{name}`; it has {}", listed(&names));
        return Err(Error::file(path, reason));
    };
    tensor(path, name, entry)
}

/// The names of an archive's arrays, as many as a line takes.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "none".into(),
        n if n > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}

fn open(path: &Path) -> Result<ZipArchive<BufReader<File>>, Error> {
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    ZipArchive::new(BufReader::new(file)).map_err(|e| Error::file(path, e))
}

fn tensor(path: &Path, name: &str, entry: impl Read + HasSize) -> Result<Tensor, Error> {
    let of_entry = |e: &dyn std::fmt::Display| Error::file(path, format!("`{name}`: {e}"));
    let bytes = contents(entry).map_err(|e| of_entry(&e))?;
    npy::from_bytes(&bytes).map_err(|e| of_entry(&e))
}

/// No more than the entry says that it has, which must fit the memory.
fn contents(entry: impl Read + HasSize) -> io::Result<Vec<u8>> {
    let size = entry.size();
    let mut bytes = Vec::new();
    let room = usize::try_from(size).ok().and_then(|size| bytes.try_reserve_exact(size).ok());
    room.ok_or_else(|| io::Error::other(format!("there is no memory for its {size} bytes")))?;
    // One more than there should be: only at the end is the checksum compared.
    entry.take(size.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(io::Error::other(format!(
            "it does not have the {size} bytes that the archive says"
        ))),
    }
}

trait HasSize {
    fn size(&self) -> u64;
}

impl<R: Read> HasSize for zip::read::ZipFile<'_, R> {
    fn size(&self) -> u64 {
        zip::read::ZipFile::size(self)
    }
}

/// Not packed, as `numpy.savez` writes it.
pub fn write(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), Error> {
    let options =
        SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    output::write(path, |out| {
        let mut out = Lenient { out, failed: None };
        let mut archive = ZipWriter::new(&mut out);
        for (name, tensor) in arrays {
            let started = archive.start_file(format!("{name}.npy"), options);
            started.map_err(|e| Error::file(path, e))?;
            archive.write_all(&npy::to_bytes(tensor)).map_err(|e| Error::io(path, e))?;
        }
        archive.finish().map_err(|e| Error::file(path, e))?;
        out.failed.map_or(Ok(()), |e| Err(Error::io(path, e)))
    })
}

/// Keeps the first error for later: an archive that cannot be finished prints it.
struct Lenient<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W> Lenient<W> {
    fn kept<T>(&mut self, otherwise: T, act: impl FnOnce(&mut W) -> io::Result<T>) -> T {
        if self.failed.is_some() {
            return otherwise;
        }
        act(&mut self.out).unwrap_or_else(|e| {
            self.failed = Some(e);
            otherwise
        })
    }
}

impl<W: Write> Write for Lenient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.kept(bytes.len(), |out| out.write_all(bytes).map(|()| bytes.len())))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.kept((), Write::flush);
        Ok(())
    }
}

impl<W: Seek> Seek for Lenient<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(self.kept(0, |out| out.seek(to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        let arrays = vec![
            ("x".to_owned(), Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])),
            ("layer/ids".to_owned(), Tensor::from_slice(&[2], &[7i64, -1])),
        ];
        write(&path, &arrays).unwrap();
        let found = read(&path).unwrap();
        assert_eq!(found.len(), 2);
        for (name, tensor) in &arrays {
            assert_eq!(found[name].to_f64_vec(), tensor.to_f64_vec());
            assert_eq!(found[name].shape(), tensor.shape());
            assert_eq!(&read_one(&path, name).unwrap(), tensor);
        }
        let message = read_one(&path, "y").unwrap_err().to_string();
        assert!(message.ends_with("a.npz: has no array `y`; it has x, layer/ids"), "{message}");
    }

    #[test]
    fn an_archive_that_has_no_space_is_an_error_of_the_machine() {
        let arrays = [("x".to_owned(), Tensor::from_slice(&[1 << 16], &[1.0f32; 1 << 16]))];
        let error = write(Path::new("/dev/full"), &arrays).unwrap_err();
        assert_eq!(error.exit_code(), crate::error::EXIT_MACHINE);
    }

    #[test]
    fn a_bit_that_changed_is_told_by_the_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        write(&path, &[("x".into(), Tensor::from_slice(&[64], &[1.0f32; 64]))]).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // In the middle of the elements, all of which are alike.
        let at = bytes.windows(8).rposition(|w| w == [0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f]).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("`x`"));
    }

    #[test]
    fn what_is_no_archive_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        std::fs::write(&path, b"PK\x03\x04 and then nothing").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("a.npz"), "{message}");
    }
}
