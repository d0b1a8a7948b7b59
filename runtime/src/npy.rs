//! NumPy's `.npy` files, versions 1 to 3.
//!
//! Reading accepts C and Fortran order and both byte orders, and gives a row-major tensor in the
//! machine's byte order. Writing gives version 1 (version 2 where the header is too long for it),
//! little endian, C order.
//!
//! NumPy has no `bf16`. It is written as `|V2`, two opaque bytes, which is what NumPy itself
//! writes for the `bfloat16` of `ml_dtypes`; `numpy.load(f).view(ml_dtypes.bfloat16)` reads it.
//!
//! ```
//! use ansc_runtime::{Tensor, npy};
//! let tensor = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
//! assert_eq!(npy::from_bytes(&npy::to_bytes(&tensor))?, tensor);
//! # Ok::<(), npy::NpyError>(())
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::dtype::DType;
use crate::source::Source;
use crate::tensor::{Tensor, TensorError, byte_len, check_bools};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy aligns the data to this, so that the file can be mapped.
const DATA_ALIGN: usize = 64;
/// NumPy refuses arrays of a higher rank as well.
const MAX_RANK: usize = 64;
/// Bytes of a header at most; that of an array of numbers has a few hundred.
const MOST_HEADER: u32 = 1 << 20;

/// Why bytes are not an array that can become a [`Tensor`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file was read, but it is not an array.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        source: Box<NpyError>,
    },
    /// Reading the bytes gave an error.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// The bytes do not begin with the magic string of the format.
    #[error("is not a .npy file: the magic bytes are missing")]
    NotNpy,
    /// A later version of the format.
    #[error("version {0} of the .npy format is not supported (1, 2 and 3 are)")]
    Version(u8),
    /// The bytes end inside the header.
    #[error("the file ends inside its header")]
    TruncatedHeader,
    /// The header does not describe an array.
    #[error("its header is malformed: {0}")]
    Header(String),
    /// The element type has no counterpart here.
    #[error("element type `{0}` is not supported")]
    Descr(String),
    /// More than the array comes out of a pipe.
    #[error("the file goes on after the {expected} bytes of the array")]
    Trailing {
        /// Bytes of the array.
        expected: usize,
    },
    /// The bytes after the header are not the array.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Reads an array from a file or a pipe. Of a pipe as much is read as the array's header promises.
pub fn read(path: impl AsRef<Path>) -> Result<Tensor, NpyError> {
    let path = path.as_ref();
    let at = |source| NpyError::Io { path: path.into(), source };
    let mut source = Source::open(path).map_err(at)?;
    let size = source.size();
    array(&mut source, size).map_err(|error| match error {
        NpyError::Read(source) => at(source),
        error => NpyError::File { path: path.into(), source: Box::new(error) },
    })
}

/// Writes an array to a file, which it replaces.
pub fn write(path: impl AsRef<Path>, tensor: &Tensor) -> Result<(), NpyError> {
    let path = path.as_ref();
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(&before_data(tensor))?;
        file.write_all(tensor.bytes())
    };
    write().map_err(|source| NpyError::Io { path: path.into(), source })
}

/// Reads an array from the bytes of a `.npy` file.
pub fn from_bytes(bytes: &[u8]) -> Result<Tensor, NpyError> {
    array(&mut &*bytes, Some(bytes.len() as u64))
}

/// Reads an array; `total` is how many bytes there are, if that is known. Memory is taken once it
/// is known what for.
fn array(from: &mut dyn Read, total: Option<u64>) -> Result<Tensor, NpyError> {
    let (header, before) = header(from)?;
    let Header { dtype, big_endian, fortran_order, shape } = Header::parse(&header)?;
    let expected =
        byte_len(dtype, &shape).ok_or_else(|| TensorError::TooLarge { shape: shape.clone() })?;
    let wrong = |found: u64| {
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        TensorError::WrongLength { dtype, shape: shape.clone(), expected, found }
    };
    if let Some(found) = total.map(|total| total.saturating_sub(before))
        && found != expected as u64
    {
        return Err(wrong(found).into());
    }
    let mut tensor = Tensor::try_zeros(dtype, &shape)?;
    let found = fill(from, tensor.bytes_mut())?;
    if found < expected {
        return Err(wrong(found as u64).into());
    }
    if fill(from, &mut [0])? > 0 {
        return Err(NpyError::Trailing { expected });
    }
    if big_endian {
        tensor.bytes_mut().chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    if fortran_order {
        tensor = row_major(&tensor)?;
    }
    if dtype == DType::Bool {
        check_bools(tensor.bytes())?;
    }
    Ok(tensor)
}

/// Reads until `to` is full or nothing follows; how much.
fn fill(from: &mut dyn Read, to: &mut [u8]) -> Result<usize, NpyError> {
    let mut found = 0;
    while found < to.len() {
        match from.read(&mut to[found..]) {
            Ok(0) => break,
            Ok(n) => found += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(NpyError::Read(e)),
        }
    }
    Ok(found)
}

/// The bytes of a `.npy` file that holds `tensor`.
pub fn to_bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = before_data(tensor);
    bytes.extend(tensor.bytes());
    bytes
}

/// Everything in a file that comes before the elements.
fn before_data(tensor: &Tensor) -> Vec<u8> {
    let dims: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        descr(tensor.dtype()),
        dims.join(", "),
    );
    let version_1 = header.len() + DATA_ALIGN < usize::from(u16::MAX);
    let before = if version_1 { 10 } else { 12 };
    let data_at = (before + header.len() + 1).next_multiple_of(DATA_ALIGN);
    let header_len = data_at - before;

    let mut bytes = Vec::with_capacity(data_at);
    bytes.extend(MAGIC);
    bytes.extend([if version_1 { 1 } else { 2 }, 0]);
    bytes.extend(&(header_len as u32).to_le_bytes()[..before - 8]);
    bytes.extend(header.bytes());
    bytes.resize(data_at - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// The header's text, and how many bytes come before the data.
fn header(from: &mut dyn Read) -> Result<(String, u64), NpyError> {
    let mut magic = [0; MAGIC.len()];
    if fill(from, &mut magic)? < magic.len() || magic != *MAGIC {
        return Err(NpyError::NotNpy);
    }
    let mut whole = |to: &mut [u8]| match fill(from, to)? {
        found if found == to.len() => Ok(()),
        _ => Err(NpyError::TruncatedHeader),
    };
    let mut version = [0; 2];
    whole(&mut version)?;
    let mut len = [0; 4];
    let len_bytes = match version[0] {
        1 => 2,
        2 | 3 => 4,
        other => return Err(NpyError::Version(other)),
    };
    whole(&mut len[..len_bytes])?;
    let len = u32::from_le_bytes(len);
    if len > MOST_HEADER {
        return Err(NpyError::Header(format!("it has {len} bytes, more than {MOST_HEADER}")));
    }
    let mut text = vec![0; len as usize];
    whole(&mut text)?;
    let text =
        String::from_utf8(text).map_err(|_| NpyError::Header("it is not text".to_owned()))?;
    let before = magic.len() + version.len() + len_bytes;
    Ok((text, before as u64 + u64::from(len)))
}

fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::BF16 => "|V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    }
}

/// The element type, and whether its bytes are in big-endian order.
fn parse_descr(text: &str) -> Result<(DType, bool), NpyError> {
    let (order, kind) = match text.as_bytes().first() {
        Some(b'<' | b'>' | b'|' | b'=') => text.split_at(1),
        _ => ("=", text),
    };
    let dtype = DType::ALL
        .into_iter()
        .find(|&d| descr(d)[1..] == *kind)
        .ok_or_else(|| NpyError::Descr(text.to_owned()))?;
    Ok((dtype, order == ">" && dtype.size() > 1))
}

/// Column-major elements in row-major order.
fn row_major(columns: &Tensor) -> Result<Tensor, NpyError> {
    let (shape, data, size) = (columns.shape(), columns.bytes(), columns.dtype().size());
    let mut rows = Tensor::try_zeros(columns.dtype(), shape)?;
    if data.is_empty() {
        return Ok(rows);
    }
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for &dim in shape {
        strides.push(stride);
        stride *= dim;
    }
    let mut index = vec![0usize; shape.len()];
    let mut at = 0;
    for element in rows.bytes_mut().chunks_exact_mut(size) {
        element.copy_from_slice(&data[at..at + size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    Ok(rows)
}

/// The content of the header, a Python dictionary with exactly three known keys.
struct Header {
    dtype: DType,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> Result<Header, NpyError> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        let mut cursor = Cursor { rest: text };
        cursor.expect('{')?;
        while !cursor.eat('}') {
            let key = cursor.string()?;
            cursor.expect(':')?;
            match key {
                "descr" => descr = Some(parse_descr(cursor.descr()?)?),
                "fortran_order" => fortran_order = Some(cursor.boolean()?),
                "shape" => shape = Some(cursor.shape()?),
                other => return Err(NpyError::Header(format!("unknown key `{other}`"))),
            }
            if !cursor.eat(',') {
                cursor.expect('}')?;
                break;
            }
        }
        cursor.end()?;
        let missing = |key: &str| NpyError::Header(format!("key `{key}` is missing"));
        let (dtype, big_endian) = descr.ok_or_else(|| missing("descr"))?;
        Ok(Header {
            dtype,
            big_endian,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// Reads the few Python literals that a header is made of.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, c: char) -> Result<(), NpyError> {
        if self.eat(c) { Ok(()) } else { Err(self.unexpected(&format!("`{c}`"))) }
    }

    fn end(&self) -> Result<(), NpyError> {
        if self.rest.trim().is_empty() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    fn unexpected(&self, wanted: &str) -> NpyError {
        let found: String = self.rest.chars().take(16).collect();
        NpyError::Header(format!("expected {wanted}, found `{found}`"))
    }

    fn string(&mut self) -> Result<&'a str, NpyError> {
        let quote = if self.eat('\'') {
            '\''
        } else if self.eat('"') {
            '"'
        } else {
            return Err(self.unexpected("a string"));
        };
        let (text, rest) = self.rest.split_once(quote).ok_or(NpyError::TruncatedHeader)?;
        self.rest = rest;
        Ok(text)
    }

    /// A structured type is a list; name it as such instead of as a syntax error.
    fn descr(&mut self) -> Result<&'a str, NpyError> {
        if self.rest.trim_start().starts_with('[') {
            return Err(NpyError::Descr("structured array".to_owned()));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("`True` or `False`"))
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyError> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            shape.push(self.number()?);
            if shape.len() > MAX_RANK {
                return Err(NpyError::Header(format!("more than {MAX_RANK} axes")));
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Result<usize, NpyError> {
        self.rest = self.rest.trim_start();
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(digits);
        let value = number.parse().map_err(|_| self.unexpected("a dimension"))?;
        // Python 2 wrote long integers with a suffix.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// A file as NumPy would write it, version 1, from a header and data.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(data);
        bytes
    }

    fn plain(descr: &str, shape: &str, data: &[u8]) -> Result<Tensor, NpyError> {
        from_bytes(&file(
            &format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"),
            data,
        ))
    }

    #[test]
    fn writes_what_numpy_writes() {
        // numpy.save(f, numpy.array([[1, 2, 3]], dtype=numpy.int16))
        let expected = [
            b"\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (1, 3), }"
                .as_slice(),
            &[b' '; 58],
            b"\n\x01\x00\x02\x00\x03\x00",
        ]
        .concat();
        assert_eq!(to_bytes(&Tensor::from_slice(&[1, 3], &[1i16, 2, 3])), expected);
    }

    #[test]
    fn every_type_and_rank_round_trips() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[0], &[3], &[2, 0, 4], &[2, 3, 2]] {
                let mut tensor = Tensor::zeros(dtype, shape);
                let bytes = tensor.bytes_mut().iter_mut().enumerate();
                bytes.for_each(|(i, b)| *b = (i % 2) as u8);
                assert_eq!(from_bytes(&to_bytes(&tensor)).unwrap(), tensor, "{dtype} {shape:?}");
            }
        }
    }

    #[test]
    fn files_round_trip_and_errors_name_them() {
        let dir = tempfile::tempdir().unwrap();
        let tensor = Tensor::scalar(7u64);
        write(dir.path().join("a.npy"), &tensor).unwrap();
        assert_eq!(read(dir.path().join("a.npy")).unwrap(), tensor);
        assert!(read(dir.path().join("b.npy")).unwrap_err().to_string().contains("b.npy"));
        fs::write(dir.path().join("c.npy"), b"no").unwrap();
        assert!(
            read(dir.path().join("c.npy")).unwrap_err().to_string().contains("c.npy: is not a")
        );
    }

    #[test]
    fn fortran_order_is_converted() {
        let header = "{'shape':(2,3),'descr':\"<i2\",'fortran_order':True}";
        let columns: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        let tensor = from_bytes(&file(header, &columns)).unwrap();
        assert_eq!(tensor, Tensor::from_slice(&[2, 3], &[1i16, 2, 3, 4, 5, 6]));
    }

    #[test]
    fn both_byte_orders_are_read() {
        assert_eq!(plain(">i4", "()", &[0, 0, 1, 2]).unwrap(), Tensor::scalar(258i32));
        assert_eq!(plain("=u2", "()", &[1, 2]).unwrap(), Tensor::scalar(513u16));
        assert_eq!(plain("<V2", "()", &[0x80, 0x3f]).unwrap().to_f64_vec(), [1.0]);
    }

    #[test]
    fn longer_headers_of_later_versions_are_read() {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2L,)}";
        for version in [2, 3] {
            let mut bytes = b"\x93NUMPY".to_vec();
            bytes.extend([version, 0]);
            bytes.extend((header.len() as u32).to_le_bytes());
            bytes.extend(header.bytes());
            bytes.extend([8, 9]);
            assert_eq!(from_bytes(&bytes).unwrap(), Tensor::from_slice(&[2], &[8u8, 9]));
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let cases: [(Result<Tensor, NpyError>, &str); 12] = [
            (from_bytes(b"PK\x03\x04"), "not a .npy file"),
            (from_bytes(b"\x93NUMPY\x09\x00"), "version 9"),
            (from_bytes(b"\x93NUMPY\x01\x00\xff\xff{"), "ends inside its header"),
            (plain("<c8", "(1,)", &[0; 8]), "`<c8` is not supported"),
            (plain("<f4", "(2,)", &[0; 7]), "needs 8 bytes, but 7"),
            (plain("<f4", "(2,)", &[0; 9]), "needs 8 bytes, but 9"),
            (plain("|b1", "(1,)", &[2]), "bool must be 0 or 1"),
            (plain("<f4", "(-1,)", &[]), "expected a dimension"),
            (plain("<f4", "(99999999999999999999,)", &[]), "expected a dimension"),
            (plain("<f8", "(4611686018427387904, 8)", &[]), "more elements"),
            (from_bytes(&file("{'descr': [('a', '<f4')]}", &[])), "structured array"),
            (from_bytes(&file("{'descr': '<f4', 'shape': ()}", &[])), "`fortran_order` is missing"),
        ];
        for (result, message) in cases {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(message), "{error:?} does not contain {message:?}");
        }
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(at in 0usize..160, value: u8, cut in 0usize..160) {
            let mut bytes = to_bytes(&Tensor::from_slice(&[2, 3], &[1f32; 6]));
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = from_bytes(&bytes);
            bytes.truncate(cut);
            let _ = from_bytes(&bytes);
        }
    }
}
