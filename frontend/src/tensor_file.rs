//! A file that holds one tensor, as the folders of ONNX's test data do: `input_0.pb`.

use std::path::Path;

use ansc_runtime::Tensor;
use prost::Message;
use tract_onnx::pb::TensorProto;

use crate::external::External;
use crate::memory::Memory;
use crate::problem::Problem;
use crate::{read, tensor};

/// The tensor in a file that is a `TensorProto`. The problem does not name the file.
pub fn read(path: &Path) -> Result<Tensor, Problem> {
    let data = read::contents(path)?;
    read::decodable(&data)?;
    let proto = TensorProto::decode(&data[..])
        .map_err(|e| Problem::new(format!("is not a tensor of ONNX (a `TensorProto`): {e}")))?;
    let beside = External::beside(path.parent());
    tensor::decode(&proto, &beside, &Memory::for_file(data.len())).map_err(Problem::new)
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::tensor_proto::DataType;

    use super::*;

    #[test]
    fn a_tensor_or_the_reason_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input_0.pb");
        let proto = TensorProto {
            data_type: DataType::Float as i32,
            dims: vec![2],
            float_data: vec![1.5, -2.0],
            ..TensorProto::default()
        };
        let bytes = proto.encode_to_vec();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path), Ok(Tensor::from_slice(&[2], &[1.5f32, -2.0])));
        let refused = |bytes: &[u8], reason: &str| {
            std::fs::write(&path, bytes).unwrap();
            let problem = read(&path).unwrap_err().to_string();
            assert!(problem.contains(reason), "{problem}");
        };
        refused(b"", "is empty");
        refused(&bytes[..bytes.len() - 1], "not a tensor of ONNX");
        refused(b"\x93NUMPY\x01\x00", "not a tensor of ONNX");
        let strings = TensorProto { data_type: DataType::String as i32, ..proto };
        refused(&strings.encode_to_vec(), "STRING is not supported");
    }
}
