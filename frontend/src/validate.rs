//! Checks on the protobuf, before anything else looks at it.

use tract_onnx::pb::ModelProto;

use crate::problem::Problem;

pub(crate) fn model(model: &ModelProto) -> Vec<Problem> {
    match model.graph {
        Some(_) => vec![],
        None => vec![Problem::new("the file holds no graph")],
    }
}
