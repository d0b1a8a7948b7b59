//! Files that a verb writes.
//!
//! None of them is a file that the same command reads, and none is left in part.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Error;

/// An error if `output` cannot be a new file: it is one that the command reads, by any of its
/// names, or a folder.
pub fn check(output: &Path, read: &[&Path]) -> Result<(), Error> {
    let Ok(there) = output.metadata() else { return Ok(()) };
    if there.is_dir() {
        return Err(Error::file(output, "is a folder; name a file in it"));
    }
    let is_it = |path: &&&Path| {
        path.metadata().is_ok_and(|read| (read.dev(), read.ino()) == (there.dev(), there.ino()))
    };
    match read.iter().find(is_it) {
        None => Ok(()),
        Some(_) => Err(Error::Usage(format!(
            "{} is what this command reads; name another file for what it writes",
            output.display()
        ))),
    }
}

/// Writes a file as a whole. If that fails, a file that was not there before is gone again.
pub fn write<E: Into<Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
) -> Result<(), Error> {
    let is_new = !path.exists();
    let file = File::create(path).map_err(|e| Error::io(path, e))?;
    let mut out = BufWriter::new(&file);
    let filled = fill(&mut out).map_err(Into::into);
    let written = filled.and_then(|()| out.flush().map_err(|e| Error::io(path, e)));
    // The rest of the buffer is not tried again.
    let _ = out.into_parts();
    if written.is_err() && is_new {
        let _ = std::fs::remove_file(path);
    }
    written
}

/// The same with bytes that are there.
pub fn write_bytes(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
    write(path, |out| out.write_all(bytes.as_ref()).map_err(|e| Error::io(path, e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{EXIT_DATA, EXIT_MACHINE, EXIT_USAGE};

    #[test]
    fn what_is_read_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [model, link, other] = ["m", "l", "o"].map(|name| folder.path().join(name));
        std::fs::write(&model, "model").unwrap();
        std::fs::hard_link(&model, &link).unwrap();
        for output in [&model, &link] {
            assert_eq!(check(output, &[&other, &model]).unwrap_err().exit_code(), EXIT_USAGE);
        }
        assert!(check(&other, &[&model]).is_ok());
        let error = check(folder.path(), &[]).unwrap_err();
        assert!(error.to_string().ends_with("is a folder; name a file in it"), "{error}");
    }

    #[test]
    fn nothing_is_left_in_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o");
        let fail = |out: &mut BufWriter<&File>| {
            out.write_all(b"the beginning").unwrap();
            Err(Error::Data("no more".into()))
        };
        assert_eq!(write(&path, fail).unwrap_err().exit_code(), EXIT_DATA);
        assert!(!path.exists());
        write_bytes(&path, "all").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"all");
    }

    #[test]
    fn a_full_disk_is_no_fault_of_the_data() {
        let error = write_bytes(Path::new("/dev/full"), "all").unwrap_err();
        assert_eq!(error.exit_code(), EXIT_MACHINE);
        assert!(error.to_string().starts_with("/dev/full: "), "{error}");
    }
}
