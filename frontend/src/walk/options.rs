//! The choices that the user makes for one compilation.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_runtime::{Quantization, Tensor};

/// Shapes and values that the model leaves open, or that the user wants otherwise.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Shapes of inputs, by name (`--shape NAME=1x3x224x224`).
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Sizes of symbolic dimensions, by name (`--dim NAME=N`).
    pub dims: BTreeMap<String, usize>,
    /// Dimensions that follow from others, by name (`--dim total=past+1`).
    pub follows: BTreeMap<String, String>,
    /// Inputs whose value is known when compiling (`--value NAME=FILE.npy`). They stay inputs of the
    /// graph, but their readers see a constant.
    pub values: BTreeMap<String, Tensor>,
    /// The most that numbers may be which the data decides and the model uses as sizes, by the
    /// names of their tensors (`--most NAME=N`).
    pub most: BTreeMap<String, usize>,
    /// Tensors that become the inputs (`--inputs a,b`), by name; empty for the model's own.
    pub inputs: Vec<String>,
    /// Tensors that become the outputs (`--outputs c`), by name; empty for the model's own.
    pub outputs: Vec<String>,
    /// Nodes that compute with integers of 8 bits (`--precision int8`), and their scalings.
    pub quantization: Option<Arc<Quantization>>,
}
