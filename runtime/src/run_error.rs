//! Why a run did not happen, or did not end well.

use std::fmt;
use std::ops::RangeInclusive;

use crate::driver::CudaError;
use crate::dtype::DType;
use crate::host::{HostError, in_words};
use crate::tensor::TensorError;

/// Which list of ports an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// An input of the model.
    Input,
    /// An output of the model.
    Output,
    /// A tensor that a session keeps.
    State,
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Input => "input",
            PortKind::Output => "output",
            PortKind::State => "state",
        })
    }
}

/// An input and a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
}

/// An input and the shapes that a specialisation takes: `x [1, 17..=32]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// The smallest and the largest extent of each axis. Of those between, the sizes that inputs
    /// have in common may allow some only.
    pub extents: Vec<RangeInclusive<usize>>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |of: &RangeInclusive<usize>| match of.start() == of.end() {
            true => of.end().to_string(),
            false => format!("{of:?}"),
        };
        let axes: Vec<String> = self.extents.iter().map(axis).collect();
        write!(f, "{} [{}]", self.name, axes.join(", "))
    }
}

/// An index that an axis does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "node `{node}`: index {index} at {position:?} of {} `{tensor}` is out of range; {}",
    if *is_input { "input" } else { "tensor" },
    in_words(legal)
)]
pub struct BadIndex {
    /// The ONNX node that takes the indices.
    pub node: String,
    /// The name of the tensor that holds them.
    pub tensor: String,
    /// Whether that is an input of the model; otherwise it is computed inside.
    pub is_input: bool,
    /// Where in the tensor the index is.
    pub position: Vec<usize>,
    /// The index.
    pub index: i64,
    /// The indices that the axis has; negative ones count from its end.
    pub legal: RangeInclusive<i64>,
}

fn list(inputs: &[impl fmt::Display]) -> String {
    inputs.iter().map(|input| input.to_string()).collect::<Vec<_>>().join(", ")
}

/// Why a run failed. The first group is found before anything runs; after an error of the second,
/// outputs hold unspecified values, and the session can be used again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A name that the model does not have.
    #[error("the model has no {kind} `{name}`; it has {}", known.join(", "))]
    Unknown {
        /// Whether an input or an output was named.
        kind: PortKind,
        /// The name that was given.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// An input was not given.
    #[error("input `{name}` is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A name was given twice.
    #[error("{kind} `{name}` is given twice")]
    Duplicate {
        /// Whether it is an input or an output.
        kind: PortKind,
        /// The name.
        name: String,
    },
    /// Wrong element type.
    #[error("{kind} `{name}` is of type {expected}, but {found} was given")]
    Type {
        /// Whether it is an input or an output.
        kind: PortKind,
        /// Its name.
        name: String,
        /// The type that the model has.
        expected: DType,
        /// The type that was given.
        found: DType,
    },
    /// Wrong shape.
    #[error("{kind} `{name}` has shape {expected:?}, but {found:?} was given")]
    Shape {
        /// Whether it is an input or an output.
        kind: PortKind,
        /// Its name.
        name: String,
        /// The shape that the model was compiled for.
        expected: Vec<usize>,
        /// The shape that was given.
        found: Vec<usize>,
    },
    /// No specialisation of the model takes inputs of these shapes.
    #[error(
        "the model was not compiled for {}, only for {}",
        list(given),
        available.iter().map(|one| list(one)).collect::<Vec<_>>().join("; ")
    )]
    Specialisation {
        /// The given inputs among those whose shapes there is a choice of.
        given: Vec<Named>,
        /// The shapes of the same inputs in each specialisation.
        available: Vec<Vec<Taken>>,
    },
    /// Inputs that share a size have different ones.
    #[error("the inputs do not agree on `{size}`: {}", list(given))]
    Sizes {
        /// The name of the size in the model.
        size: String,
        /// The inputs that tell it.
        given: Vec<Named>,
    },
    /// There is no room for what the run would add to the states of the session.
    #[error(
        "the session keeps {}, and the model was not compiled for more; `reset` or `truncate` the \
         session, or compile the model for a longer range",
        list(kept)
    )]
    Full {
        /// The states that grow.
        kept: Vec<Named>,
    },
    /// A state cannot be cut, because runs do not add to it along one axis.
    #[error("state `{name}` does not grow along one axis; `reset` is the only way back")]
    Truncate {
        /// Its name.
        name: String,
    },
    /// The model was compiled for one value of this input.
    #[error("input `{name}` was fixed to another value when the model was compiled")]
    Bound {
        /// Its name.
        name: String,
    },

    /// There is no memory for a value. What the session has of its own was taken when it was made.
    #[error("`{name}`: {source}")]
    Memory {
        /// The value.
        name: String,
        /// How much it needs.
        source: TensorError,
    },
    /// An index is out of range of the axis that it is an index of.
    #[error("{0}")]
    Index(Box<BadIndex>),
    /// A host operator refused its inputs.
    #[error("`{step}`: {source}")]
    Host {
        /// The step.
        step: String,
        /// The error of the operator.
        source: HostError,
    },
    /// A host operator gave something else than the plan says.
    #[error("`{step}`: result {index} does not fit its buffer; it is {result:?}")]
    HostResult {
        /// The step.
        step: String,
        /// Which result.
        index: usize,
        /// Its type and shape, if there is one.
        result: Option<(DType, Vec<usize>)>,
    },
    /// Compiled code left bytes that are no elements of the type.
    #[error("`{step}`: {source}")]
    Value {
        /// The step that read them.
        step: String,
        /// The problem with them.
        source: TensorError,
    },
    /// A loop would run longer than it was compiled for.
    #[error("`{step}`: the loop needs more than the {max_trip} iterations it was compiled for")]
    LoopLimit {
        /// The step.
        step: String,
        /// The limit.
        max_trip: u64,
    },
    /// A value turned out smaller than declared where that is not possible.
    #[error("`{step}`: `{buffer}` has a size that is only known at run time")]
    Dynamic {
        /// The step.
        step: String,
        /// The value.
        buffer: String,
    },
    /// The GPU or its driver failed. After some of its errors the process can use the GPU no more.
    #[error("the GPU failed: {0}")]
    Device(#[from] CudaError),
}

impl RunError {
    /// Whether it is the machine that failed, or has too little memory, and not the data.
    pub fn is_of_the_machine(&self) -> bool {
        let lacking = |e: &TensorError| matches!(e, TensorError::NoMemory { .. });
        match self {
            RunError::Device(_)
            | RunError::Memory { .. }
            | RunError::Host { source: HostError::Memory { .. }, .. } => true,
            RunError::Host { source: HostError::Tensor { source, .. }, .. } => lacking(source),
            RunError::Value { source, .. } => lacking(source),
            _ => false,
        }
    }
}
