//! The kind of a file, told by its first bytes, so that a file in the wrong place is named and not
//! misread.
//!
//! In: a path. Out: a [`Kind`], or an error that says what the file is and what was wanted. Files
//! of an unknown kind are left to the code that reads them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Error;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Or any other ELF file.
    Artifact,
    Model,
    Records,
    /// Records as lines of JSON.
    Lines,
    Array,
    /// A zip archive, which `.npz` is.
    Archive,
    Unknown,
}

/// More than the first tag and number of a model take.
const BEGINNING: usize = 16;
/// The IR versions of ONNX files that are recognised. The newest so far is 13.
const IR_VERSIONS: std::ops::RangeInclusive<u8> = 1..=31;

impl Kind {
    /// The kind of a regular file. Other files are unknown: only the code that wants their content
    /// reads them.
    pub fn of(path: &Path) -> Result<Kind, Error> {
        let failed = |e: std::io::Error| Error::file(path, e);
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Ok(Kind::Unknown);
        }
        let mut start = Vec::with_capacity(BEGINNING);
        let file = File::open(path).map_err(failed)?;
        file.take(BEGINNING as u64).read_to_end(&mut start).map_err(failed)?;
        Ok(Kind::of_bytes(&start))
    }

    fn of_bytes(start: &[u8]) -> Kind {
        match start {
            [0x7f, b'E', b'L', b'F', ..] => Kind::Artifact,
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Kind::Array,
            [b'P', b'K', 3, 4, ..] => Kind::Archive,
            // Field 1, the version, which all exporters write first; the next field is a string, a
            // message or a number.
            [0x08, version, tag, ..] if IR_VERSIONS.contains(version) && tag & 5 == 0 => {
                Kind::Model
            }
            _ if start.starts_with(b"SQLite format 3\0") => Kind::Records,
            _ if start.starts_with(b"{\"format\":") => Kind::Lines,
            _ => Kind::Unknown,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Artifact => "compiled code, such as `ansc compile` writes",
            Kind::Model => "an ONNX model",
            Kind::Records => "a database, such as `ansc tune` keeps records in",
            Kind::Lines => "records as lines of JSON",
            Kind::Array => "an array of NumPy (.npy)",
            Kind::Archive => "a zip archive (.npz)",
            Kind::Unknown => "of an unknown kind",
        })
    }
}

/// The kind of a file that must be one of `wanted`.
pub fn expect(path: &Path, wanted: &[Kind]) -> Result<Kind, Error> {
    let found = Kind::of(path)?;
    if found == Kind::Unknown || wanted.contains(&found) {
        return Ok(found);
    }
    let names: Vec<&str> = wanted.iter().map(|kind| kind.short()).collect();
    let mut reason = format!("is {found}, not {}", names.join(" or "));
    if let Some(way) = way(path, found, wanted) {
        reason = format!("{reason}; {way}");
    }
    Err(Error::file(path, reason))
}

/// As [`expect`], if there is such a file.
pub fn expect_if_there(path: &Path, wanted: &[Kind]) -> Result<(), Error> {
    if path.exists() { expect(path, wanted).map(drop) } else { Ok(()) }
}

impl Kind {
    fn short(self) -> &'static str {
        match self {
            Kind::Artifact => "an artifact",
            Kind::Model => "an ONNX model",
            Kind::Records => "a file of records",
            Kind::Lines => "records as lines of JSON",
            Kind::Array => "a .npy file",
            Kind::Archive => "an .npz file",
            Kind::Unknown => "another file",
        }
    }
}

/// How one comes from what is there to what is wanted.
fn way(path: &Path, found: Kind, wanted: &[Kind]) -> Option<String> {
    let path = path.display();
    match found {
        Kind::Model if wanted.contains(&Kind::Artifact) => {
            Some(format!("`ansc compile {path}` makes one of it"))
        }
        Kind::Lines if wanted.contains(&Kind::Records) => {
            Some(format!("`ansc records import NEW.db {path}` makes one of it"))
        }
        Kind::Records if wanted.contains(&Kind::Lines) => {
            Some(format!("`ansc records merge` adds what is in {path}"))
        }
        Kind::Records if wanted.contains(&Kind::Model) => {
            Some(format!("give records after a model, as in `MODEL --records {path}`"))
        }
        Kind::Archive if wanted.contains(&Kind::Array) => {
            Some(format!("`--input NAME={path}:KEY` takes one of its arrays"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_their_first_bytes() {
        let table: [(&[u8], Kind); 9] = [
            (b"\x7fELF\x02", Kind::Artifact),
            (b"\x93NUMPY\x01", Kind::Array),
            (b"PK\x03\x04", Kind::Archive),
            (b"\x08\x0a\x12\x07pytorch", Kind::Model),
            (b"\x08\x08\x3a\x04", Kind::Model),
            (b"SQLite format 3\0", Kind::Records),
            (b"{\"format\":1,\"k", Kind::Lines),
            (b"not a model", Kind::Unknown),
            (b"", Kind::Unknown),
        ];
        for (start, kind) in table {
            assert_eq!(Kind::of_bytes(start), kind, "{start:?}");
        }
    }

    #[test]
    fn what_is_wanted_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.onnx");
        std::fs::write(&path, b"\x08\x08\x12\x04ansc").unwrap();
        assert_eq!(expect(&path, &[Kind::Model, Kind::Artifact]).unwrap(), Kind::Model);
        let error = expect(&path, &[Kind::Artifact]).unwrap_err().to_string();
        assert!(
            error.contains("m.onnx: is an ONNX model, not an artifact; `ansc compile"),
            "{error}"
        );
        assert!(error.contains("ansc compile"), "{error}");
        assert!(expect_if_there(&directory.path().join("no"), &[Kind::Records]).is_ok());
    }
}
