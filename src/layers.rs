//! The values that the results of every kernel are compared with, and how much each kernel rounds
//! by itself.

use std::collections::HashMap;
use std::path::Path;

use ansc_frontend::import;
use ansc_graph::fuse::{self, Group, Item};
use ansc_graph::ops::map;
use ansc_graph::passes::is_product;
use ansc_graph::{Graph, NodeId, TensorType, ValueId, interp};
use ansc_runtime::{DType, Precision, Precisions, Tensor};
use serde::Serialize;

use crate::assemble::kernels::reads_in;
use crate::compare::Difference;
use crate::pipeline::{Options, Silent, optimise};
use crate::{Error, assemble};

/// A result of the model, or of a kernel.
pub struct Layer {
    /// As the artifact calls it that was compiled with
    /// [`Expose::Everything`](assemble::Expose::Everything).
    pub name: String,
    /// The value of the interpreter, with all bits of `f32`.
    pub reference: Tensor,
    /// The error that rounding alone makes up to here, as the interpreter has it.
    pub predicted: Difference,
    /// The error of the kernel alone, if it handles fewer bits.
    pub rounding: Option<Rounding>,
}

/// The accuracy that a kernel alone costs.
#[derive(Clone, Serialize)]
pub struct Rounding {
    /// The coarsest that it reads or writes.
    pub precision: Precision,
    /// The error of its result if all that it reads is right but for being rounded.
    pub own: Difference,
    /// The convolution or matrix product in it, as `--precision` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
}

/// The model's own results, then those of every kernel in the order of execution.
pub fn layers(model: &Path, options: &Options, inputs: &[Tensor]) -> Result<Vec<Layer>, Error> {
    let wide = Options { precision: Precisions::default(), ..options.clone() };
    let [wide, compiled] = [&wide, options].map(|options| {
        let mut graph = import::load(model, &options.import)?;
        optimise(&mut graph, options, &mut options.verifier(), &Silent)?;
        Ok::<Graph, Error>(graph)
    });
    let reference = Reference::of(wide?, compiled?, inputs)?;
    let fusion = options.schedules.fusion();
    let items = fuse::schedule_with(&reference.compiled, fusion);
    let groups = items.into_iter().filter_map(|item| match item {
        Item::Group(group) => Some(*group),
        Item::Node(_) => None,
    });
    let by_result: HashMap<ValueId, Group> = groups.map(|g| (g.outputs[0], g)).collect();
    let mut layers = vec![];
    for (name, value) in assemble::exposed(&reference.compiled, fusion) {
        let Some(tensor) = reference.value(value) else { continue };
        let rounding = match by_result.get(&value) {
            Some(group) if !group.is_view => reference.rounding(group, &tensor)?,
            _ => None,
        };
        let predicted = reference.predicted(value, &tensor);
        layers.push(Layer { name, reference: tensor, predicted, rounding });
    }
    Ok(layers)
}

/// All values of the graph with all bits, and the graph that is compiled. Nodes that both have go
/// by the same ids.
struct Reference {
    wide: Graph,
    compiled: Graph,
    values: HashMap<ValueId, Tensor>,
    /// The values that the interpreter computes for the compiled graph.
    rounded: HashMap<ValueId, Tensor>,
}

/// All values that the interpreter computes for a graph.
fn observed(graph: &Graph, inputs: &[Tensor]) -> Result<HashMap<ValueId, Tensor>, Error> {
    let given = graph.inputs().iter().zip(inputs);
    let given = given.map(|(&node, tensor)| (ValueId { node, out: 0 }, tensor.clone()));
    let mut values: HashMap<ValueId, Tensor> = given.collect();
    interp::run_observed(graph, inputs, &mut |node: NodeId, outputs: &[Tensor]| {
        for (out, tensor) in outputs.iter().enumerate() {
            values.insert(ValueId { node, out: out as u32 }, tensor.clone());
        }
    })?;
    Ok(values)
}

impl Reference {
    fn of(wide: Graph, compiled: Graph, inputs: &[Tensor]) -> Result<Reference, Error> {
        let values = observed(&wide, inputs)?;
        let rounded = observed(&compiled, inputs)?;
        Ok(Reference { wide, compiled, values, rounded })
    }

    fn predicted(&self, value: ValueId, reference: &Tensor) -> Difference {
        let rounded = self.rounded.get(&value).unwrap_or(reference);
        Difference::between(rounded, reference)
    }

    /// A value of the compiled graph as it would be if nothing were rounded. Constants are returned
    /// as they are.
    fn value(&self, value: ValueId) -> Option<Tensor> {
        if let Some(tensor) = self.compiled.const_of(value) {
            return Some(tensor.as_ref().clone());
        }
        let mut origin = value;
        // Nodes that only the compiled graph has round what they read, or reshape it.
        while !self.wide.contains(origin.node) {
            origin = *self.compiled.operands(origin.node).first()?;
        }
        let tensor = self.values.get(&origin)?.clone();
        Some(tensor.reshaped(&self.compiled.ty(value).shape))
    }

    /// The error of a kernel that handles fewer bits, if its operands are right but for being
    /// rounded. None for other kernels.
    fn rounding(&self, group: &Group, result: &Tensor) -> Result<Option<Rounding>, Error> {
        let types = group.compute.inputs.iter().cloned().chain(group.compute.output_types());
        let stored = types.filter_map(|ty| Precision::with_operands(ty.dtype));
        let precisions = stored.chain(reads_in(&group.compute));
        let coarser = |a: Precision, b: Precision| {
            if b.unit_roundoff() > a.unit_roundoff() { b } else { a }
        };
        let Some(precision) = precisions.reduce(coarser) else { return Ok(None) };
        let mut operands = vec![];
        for (value, ty) in group.inputs.iter().zip(&group.compute.inputs) {
            let Some(tensor) = self.value(*value) else { return Ok(None) };
            operands.push(converted(&tensor, ty.dtype)?);
        }
        let own = interp::eval(&group.compute, &operands.iter().collect::<Vec<_>>())?;
        let in_wide = |n: &&NodeId| self.wide.contains(**n) && is_product(&self.wide, **n);
        let product = group.nodes.iter().find(in_wide);
        Ok(Some(Rounding {
            precision,
            own: Difference::between(&own[0], result),
            product: product.map(|n| self.wide.node(*n).name.clone()),
        }))
    }
}

/// A tensor in another type.
pub fn converted(tensor: &Tensor, to: DType) -> Result<Tensor, Error> {
    if tensor.dtype() == to {
        return Ok(tensor.clone());
    }
    let op = map::cast(&TensorType::of(tensor), to).map_err(|e| Error::Data(e.to_string()))?;
    Ok(interp::eval(&op.expr, &[tensor])?.swap_remove(0))
}
