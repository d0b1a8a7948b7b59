//! The generated models declare the shapes of their outputs: those that inference finds.

use ansc_frontend::{ImportOptions, import};
use prost::Message as _;
use tract_onnx::pb::ModelProto;
use tract_onnx::pb::tensor_shape_proto::dimension::Value::DimValue;
use tract_onnx::pb::type_proto::Value::TensorType;

fn declared(model: &ModelProto) -> Option<Vec<Vec<i64>>> {
    let shape = |info: &tract_onnx::pb::ValueInfoProto| {
        let TensorType(tensor) = info.r#type.as_ref()?.value.as_ref()?;
        let size = |d: &tract_onnx::pb::tensor_shape_proto::Dimension| match d.value {
            Some(DimValue(n)) => Some(n),
            _ => None,
        };
        tensor.shape.as_ref()?.dim.iter().map(size).collect::<Option<Vec<i64>>>()
    };
    model.graph.as_ref()?.output.iter().map(shape).collect()
}

#[test]
fn outputs_have_the_shapes_that_generated_models_declare() {
    let folder = tempfile::tempdir().unwrap();
    for generator in ansc_models::all() {
        let bytes = generator.build_at(ansc_models::Scale::Reduced).to_bytes();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, &bytes).unwrap();
        let graph = import::load(&path, &ImportOptions::default()).unwrap();
        let found: Vec<Vec<i64>> = graph
            .outputs
            .iter()
            .map(|(_, v)| graph.ty(*v).shape.iter().map(|&d| d as i64).collect())
            .collect();
        let model = ModelProto::decode(&bytes[..]).unwrap();
        assert_eq!(declared(&model), Some(found), "{}", generator.name);
    }
}
