//! The reference evaluator.
//!
//! [`eval`] gives the value of a [`Compute`], [`run`] that of a whole graph. They follow the
//! semantics of [`crate::expr`] and [`crate::op`] to the letter: what all other engines are
//! compared with. A load out of bounds that is not guarded by a select is an error, not a panic.
//!
//! It walks no tree per element: a body is compiled to instructions over vectors of some hundred
//! lanes (`code`), which run chunk by chunk (`exec`).

mod code;
mod control;
mod domain;
mod exec;
pub(crate) mod kernels;
mod lanes;
mod math;
mod points;
mod run;
pub(crate) mod scalar;
mod sink;
#[cfg(test)]
mod tests;

pub use points::{PointError, Points};
pub use run::{run, run_observed};

use ansc_runtime::Tensor;
use ansc_runtime::host::HostError;

use crate::compute::{Compute, TensorType};
use crate::expr::BufId;

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InterpError {
    /// The graph has another number of inputs.
    #[error("{expected} inputs are needed, {found} were given")]
    InputCount {
        /// How many it has.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A value does not have the type of the input.
    #[error("input {index} must be {expected}, but is {found}")]
    Input {
        /// Which input, from 0 on.
        index: usize,
        /// The type that the input declares.
        expected: TensorType,
        /// The type of the value.
        found: TensorType,
    },
    /// A stage loads beside a buffer.
    #[error(
        "stage {stage}: index {index} on axis {axis} of {buffer} is outside 0..{extent}, at {point:?}"
    )]
    OutOfBounds {
        /// The name of the stage.
        stage: String,
        /// The buffer as its expression names it.
        buffer: BufId,
        /// Which index of the load, from 0 on.
        axis: usize,
        /// The value of that index.
        index: i64,
        /// Elements of the axis.
        extent: usize,
        /// The values of the stage's axes.
        point: Vec<i64>,
    },
    /// The expression means nothing, which verifiers rule out.
    #[error("stage {stage}: {reason}")]
    Malformed {
        /// The name of the stage.
        stage: String,
        /// The reason.
        reason: String,
    },
    /// The graph cannot be executed; the text says why.
    #[error("{0}")]
    Graph(String),
    /// A node gave another type than its output declares.
    #[error("output {name} must be {expected}, but is {found}")]
    Output {
        /// The name of the output.
        name: String,
        /// The type that it declares.
        expected: TensorType,
        /// The type that was found.
        found: TensorType,
    },
    /// An input whose value was fixed got another value.
    #[error("the model was compiled for another value of this input")]
    Bound,
    /// A host operator failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An error inside of a node.
    #[error("node {node}: {source}")]
    Node {
        /// The name of the node.
        node: String,
        /// The error.
        source: Box<InterpError>,
    },
}

impl InterpError {
    fn at(self, node: &str) -> InterpError {
        InterpError::Node { node: node.into(), source: Box::new(self) }
    }
}

/// The outputs of `compute` for these inputs.
pub fn eval(compute: &Compute, inputs: &[&Tensor]) -> Result<Vec<Tensor>, InterpError> {
    check_inputs(&compute.inputs, inputs)?;
    let mut stages: Vec<Tensor> = Vec::with_capacity(compute.stages.len());
    for index in 0..compute.stages.len() {
        let buffers: Vec<&Tensor> = inputs.iter().copied().chain(&stages).collect();
        let result = exec::run_stage(compute, index, &buffers)?;
        stages.push(result);
    }
    compute.outputs.iter().map(|&stage| output(&stages, stage)).collect()
}

fn output(stages: &[Tensor], index: usize) -> Result<Tensor, InterpError> {
    stages.get(index).cloned().ok_or_else(|| InterpError::Malformed {
        stage: index.to_string(),
        reason: "an output that does not exist".into(),
    })
}

fn check_inputs(types: &[TensorType], inputs: &[&Tensor]) -> Result<(), InterpError> {
    if types.len() != inputs.len() {
        return Err(InterpError::InputCount { expected: types.len(), found: inputs.len() });
    }
    for (index, (expected, input)) in types.iter().zip(inputs).enumerate() {
        let found = TensorType::of(input);
        if found != *expected {
            return Err(InterpError::Input { index, expected: expected.clone(), found });
        }
    }
    Ok(())
}
