//! A file to the protobuf message in it.

use std::path::Path;

use prost::Message;
use tract_onnx::pb::ModelProto;

use crate::containers::{self, Containers};
use crate::problem::Problem;

/// Protobuf cannot hold more; larger models keep their weights in files of their own.
const MAX_FILE_BYTES: u64 = 1 << 31;

pub(crate) struct Model {
    pub(crate) proto: ModelProto,
    /// The size of the file.
    pub(crate) bytes: usize,
    /// The types of inputs that `proto` leaves out.
    pub(crate) containers: Containers,
}

pub(crate) fn file(path: &Path) -> Result<Model, Problem> {
    bytes(&contents(path)?)
}

/// The bytes of a file, unless no message can be as long.
pub(crate) fn contents(path: &Path) -> Result<Vec<u8>, Problem> {
    let cannot = |e: std::io::Error| Problem::new(format!("cannot be read: {e}"));
    let meta = std::fs::metadata(path).map_err(cannot)?;
    if !meta.is_file() {
        return Err(Problem::new("is not a regular file"));
    }
    if meta.len() > MAX_FILE_BYTES {
        let reason = format!("has {} bytes; an ONNX file has at most 2 GiB", meta.len());
        return Err(Problem::new(reason).remedy("store the weights as external data"));
    }
    std::fs::read(path).map_err(cannot)
}

pub(crate) fn bytes(data: &[u8]) -> Result<Model, Problem> {
    decodable(data)?;
    if data.starts_with(b"version https://git-lfs") {
        return Err(Problem::new("is a Git LFS pointer, not a model").remedy("git lfs pull"));
    }
    let proto =
        ModelProto::decode(data).map_err(|e| Problem::new(format!("is not an ONNX model: {e}")))?;
    Ok(Model { proto, bytes: data.len(), containers: containers::read(data) })
}

/// Whether there is something to decode, and memory for another copy of it: the decoder cannot say
/// so itself.
pub(crate) fn decodable(data: &[u8]) -> Result<(), Problem> {
    if data.is_empty() {
        return Err(Problem::new("is empty"));
    }
    let bytes = data.len();
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| Problem::new(format!("has {bytes} bytes; there is no memory for as many")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_model_is_refused() {
        assert!(bytes(b"").is_err());
        assert!(bytes(b"version https://git-lfs.github.com/spec/v1").is_err());
        assert!(bytes(&[0x3a, 0xff, 0xff, 0xff, 0x0f]).is_err());
        assert!(file(Path::new("/nonexistent.onnx")).is_err());
        assert!(file(Path::new("/")).is_err());
    }
}
