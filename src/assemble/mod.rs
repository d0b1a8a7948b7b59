//! From a fused graph to an executable plan.
//!
//! In: a [`Graph`] whose passes have run. Out: an [`Assembly`]: numbered buffers, the plan of steps
//! over them, the kernels to compile and the constants to pack. Nothing here generates code; the
//! [`pipeline`](crate::pipeline) compiles the kernels and then [`storage`] gives every buffer its
//! place.
//!
//! The graphs of one model for several shapes share kernels and constants: each is a [`Draft`].
//!
//! Views (a lone reshape) and the inputs of loop bodies share the buffer of what they look at; an
//! [`Alias`](storage::Classes) class holds all buffers of one piece of memory.

mod control;
pub(crate) mod kernels;
mod once;
mod prepared;
pub mod storage;
mod values;
mod weights;

use std::collections::{HashMap, HashSet};

use ansc_graph::demand::{Demand, Ends, demands, sizes_first};
use ansc_graph::fuse::{self, Group, Item};
use ansc_graph::verify::Verifier;
use ansc_graph::{Graph, NodeId, Op, TensorType, ValueId};
use ansc_runtime::Extent;
use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{
    BufferId, BufferInfo, Plan, Port, Specialisation, State, Step, Storage,
};

pub use kernels::{Kernel, KernelTable, KernelUse};
pub use prepared::Prepared;
pub use weights::Weights;

use crate::Error;
use crate::choice::{Aim, Schedules};
use crate::sizes::Sizes;
use crate::states::Kept;
use kernels::Subgraph;
use storage::Classes;
use values::Values;

/// A model on its way to an artifact.
pub struct Assembly {
    pub kernels: KernelTable,
    /// The kernel that each `Step::Kernel` runs. The `kernel` field of the step is an index into
    /// this list.
    pub uses: Vec<KernelUse>,
    pub weights: Weights,
    pub prepared: Prepared,
    pub drafts: Vec<Draft>,
    /// Checks the graphs on their way here, and what fusion makes of them.
    pub verifier: Verifier,
}

/// A specialisation on its way to the manifest.
#[derive(Default)]
pub struct Draft {
    pub specialisation: Specialisation,
    pub classes: Classes,
}

/// Puts together the draft of one graph.
struct Builder<'a> {
    kernels: &'a mut KernelTable,
    uses: &'a mut Vec<KernelUse>,
    weights: &'a mut Weights,
    prepared: &'a mut Prepared,
    verifier: &'a mut Verifier,
    draft: Draft,
    /// Buffers of constants, by their place.
    constants: HashMap<(Storage, TensorType), BufferId>,
    /// The sizes that a run chooses, then those that the graph computes.
    sizes: Vec<ValueId>,
}

/// Which values become outputs of the artifact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expose {
    Outputs,
    /// Every kernel's results become outputs too, so that they can be compared one by one.
    Everything,
}

impl Assembly {
    pub fn new(schedules: &Schedules, verifier: Verifier) -> Assembly {
        Assembly {
            kernels: KernelTable::new(schedules.clone()),
            uses: Vec::new(),
            weights: Weights::default(),
            prepared: Prepared::default(),
            drafts: Vec::new(),
            verifier,
        }
    }

    /// Adds a specialisation. Its inputs have other shapes than those of all others. If it is for
    /// ranges of `sizes`, they are the last inputs of the graph. `states` are inputs and outputs
    /// that the caller does not see.
    pub fn add(
        &mut self,
        name: &str,
        graph: &Graph,
        (sizes, states): (&Sizes, &[Kept]),
        expose: Expose,
    ) -> Result<(), Error> {
        let mut builder = Builder {
            kernels: &mut self.kernels,
            uses: &mut self.uses,
            weights: &mut self.weights,
            prepared: &mut self.prepared,
            verifier: &mut self.verifier,
            draft: Draft::new(name),
            constants: HashMap::new(),
            sizes: vec![],
        };
        let mut values = Values::default();
        builder.take_inputs(graph, (sizes, states), &mut values)?;
        let counts = &graph.outputs[graph.outputs.len() - sizes.counts.len()..];
        builder.sizes.extend(counts.iter().map(|(_, value)| *value));
        let mut plan = builder.walk(graph, sizes, &mut values)?;
        let results = match expose {
            Expose::Outputs => graph.outputs[..graph.outputs.len() - sizes.counts.len()].to_vec(),
            Expose::Everything => exposed(graph, builder.kernels.fusion()),
        };
        builder.give_outputs(graph, (&results, states), &mut values, &mut plan)?;
        let mut draft = builder.draft;
        draft.specialisation.plan = plan;
        draft.take_sizes(sizes, states);
        let taken = self.drafts.iter().find(|other| other.takes_the_same(&draft));
        if let Some(other) = taken {
            let other = &other.specialisation.name;
            let message = format!("`{name}` and `{other}` are the same shapes of inputs");
            return Err(Error::Usage(message));
        }
        self.drafts.push(draft);
        self.kernels.settle();
        Ok(())
    }
}

/// The model's own results, then those of every kernel in the order of execution, named by value
/// and node.
pub fn exposed(graph: &Graph, fusion: fuse::Options) -> Vec<(String, ValueId)> {
    let mut results = graph.outputs.clone();
    for item in fuse::schedule_with(graph, fusion) {
        let Item::Group(group) = item else { continue };
        for value in group.outputs {
            if !results.iter().any(|(_, v)| *v == value) {
                results.push((
                    format!("{}#{}.{}", graph.value(value).name, value.node.index(), value.out),
                    value,
                ));
            }
        }
    }
    results
}

fn subgraph(graph: &Graph, group: &Group) -> Subgraph {
    let flags = group.inputs.iter().map(|value| graph.const_of(*value).is_some()).collect();
    (group.compute.clone(), flags)
}

/// Without those of states, whose numbers are given.
fn callers<'e>(
    all: &'e [Vec<Extent>],
    states: &[Kept],
    number: fn(&Kept) -> usize,
) -> Vec<&'e Vec<Extent>> {
    let is_state = |i: usize| states.iter().any(|state| number(state) == i);
    all.iter().enumerate().filter(|(i, _)| !is_state(*i)).map(|(_, extents)| extents).collect()
}

impl Draft {
    fn new(name: &str) -> Draft {
        let specialisation = Specialisation { name: name.into(), ..Specialisation::default() };
        Draft { specialisation, ..Draft::default() }
    }

    fn new_buffer(&mut self, name: &str, ty: &TensorType) -> BufferId {
        let buffers = &mut self.specialisation.buffers;
        let id = BufferId(buffers.len() as u32);
        // The storage is decided at the end, by class.
        let storage = Storage::Arena { offset: 0 };
        let shape = ty.shape.clone();
        buffers.push(BufferInfo { name: name.into(), dtype: ty.dtype, shape, storage });
        self.classes.add();
        id
    }

    /// A buffer for a kernel's own use during one step.
    pub fn workspace(&mut self, ty: &TensorType) -> BufferId {
        self.new_buffer("workspace", ty)
    }

    /// Tells which extents of inputs and outputs vary, and how.
    fn take_sizes(&mut self, sizes: &Sizes, states: &[Kept]) {
        let one = &mut self.specialisation;
        one.sizes.clone_from(&sizes.all);
        let inputs = callers(&sizes.inputs, states, |state| state.place.input);
        let outputs = callers(&sizes.outputs, states, |state| state.place.output);
        let inputs = one.inputs.iter_mut().zip(inputs);
        for (port, extents) in inputs.chain(one.outputs.iter_mut().zip(outputs)) {
            if extents.iter().any(|extent| !extent.is_constant()) {
                port.extents.clone_from(extents);
            }
        }
        for (port, dense) in one.inputs.iter_mut().zip(&sizes.dense) {
            port.dense = *dense;
        }
    }

    fn takes_the_same(&self, other: &Draft) -> bool {
        let (own, other) = (&self.specialisation, &other.specialisation);
        let mut ports = own.inputs.iter().zip(&other.inputs);
        let mut states = own.states.iter().zip(&other.states);
        own.sizes.is_empty() == other.sizes.is_empty()
            && ports.all(|(a, b)| a.shape == b.shape)
            && states.all(|(a, b)| a.input.extents == b.input.extents)
    }
}

impl Builder<'_> {
    fn new_buffer(&mut self, name: &str, ty: &TensorType) -> BufferId {
        self.draft.new_buffer(name, ty)
    }

    /// Another look at the memory of `of`.
    fn view(&mut self, name: &str, ty: &TensorType, of: BufferId) -> BufferId {
        let id = self.new_buffer(name, ty);
        self.draft.classes.join(id, of);
        id
    }

    fn take_inputs(
        &mut self,
        graph: &Graph,
        (sizes, states): (&Sizes, &[Kept]),
        values: &mut Values,
    ) -> Result<(), Error> {
        let (inputs, of_sizes) = graph.inputs().split_at(graph.inputs().len() - sizes.all.len());
        for (i, &node) in of_sizes.iter().enumerate() {
            let value = ValueId { node, out: 0 };
            let buffer = self.new_buffer(&graph.node(node).name, graph.ty(value));
            self.draft.classes.fix(buffer, Storage::Size(i as u32));
            values.insert(value, buffer);
            self.sizes.push(value);
        }
        for (i, &node) in inputs.iter().enumerate() {
            let value = ValueId { node, out: 0 };
            if let Some(state) = states.iter().position(|state| state.place.input == i) {
                let buffer = self.new_buffer(&graph.node(node).name, graph.ty(value));
                self.draft.classes.fix(buffer, Storage::State(state as u32));
                values.insert(value, buffer);
                continue;
            }
            let Op::Input { bound } = &graph.node(node).op else {
                unreachable!("inputs are input nodes")
            };
            let (name, ty) = (&graph.node(node).name, graph.ty(value));
            let buffer = self.new_buffer(name, ty);
            let number = self.draft.specialisation.inputs.len() as u32;
            self.draft.classes.fix(buffer, Storage::Input(number));
            values.insert(value, buffer);
            let bound = bound.as_ref().map(|tensor| self.constant(name, tensor));
            self.draft.specialisation.inputs.push(Port {
                name: name.clone(),
                dtype: ty.dtype,
                shape: ty.shape.clone(),
                extents: vec![],
                dense: false,
                buffer,
                bound,
            });
        }
        Ok(())
    }

    /// Lets each result live in the caller's memory; where it cannot (an input, a constant, a
    /// second name for one value), copies it there at the end.
    fn give_outputs(
        &mut self,
        graph: &Graph,
        (results, states): (&[(String, ValueId)], &[Kept]),
        values: &mut Values,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        for (number, state) in states.iter().enumerate() {
            self.give_state(graph, (number as u32, state), values, plan);
        }
        for (i, (name, value)) in results.iter().enumerate() {
            if states.iter().any(|state| state.place.output == i) {
                continue;
            }
            let ty = graph.ty(*value).clone();
            let from = self.buffer_of(graph, *value, values);
            let number = self.draft.specialisation.outputs.len() as u32;
            let buffer = self.lands(from, (name, &ty), Storage::Output(number), plan);
            self.draft.specialisation.outputs.push(Port {
                name: name.clone(),
                dtype: ty.dtype,
                shape: ty.shape,
                extents: vec![],
                dense: false,
                buffer,
                bound: None,
            });
        }
        Ok(())
    }

    /// Lets a run leave a state where the next one finds it: in place, if the value lies there.
    fn give_state(
        &mut self,
        graph: &Graph,
        (number, state): (u32, &Kept),
        values: &mut Values,
        plan: &mut Plan,
    ) {
        let (before, after) = state.place.values(graph);
        let ty = graph.ty(after).clone();
        let input = self.buffer_of(graph, before, values);
        let from = self.buffer_of(graph, after, values);
        let (name, _) = &graph.outputs[state.place.output];
        let output = match self.draft.classes.fixed(from) {
            Some(Storage::State(of)) if of == number => input,
            _ => self.lands(from, (name, &ty), Storage::NextState(number), plan),
        };
        let port = |name: &str, buffer, extents: &[Extent]| Port {
            name: name.to_owned(),
            dtype: ty.dtype,
            shape: ty.shape.clone(),
            extents: extents.to_vec(),
            dense: false,
            buffer,
            bound: None,
        };
        let input = port(&graph.node(before.node).name, input, &state.before);
        let output = port(name, output, &state.after);
        self.draft.specialisation.states.push(State { input, output });
    }

    /// The buffer of a value in memory that is not the plan's own: the very one that a step writes
    /// (a host operator tells its actual shape), or a copy, if that lies elsewhere.
    fn lands(
        &mut self,
        from: BufferId,
        (name, ty): (&str, &TensorType),
        storage: Storage,
        plan: &mut Plan,
    ) -> BufferId {
        if self.draft.classes.fixed(from).is_none() {
            self.draft.classes.fix(from, storage);
            return from;
        }
        let to = self.new_buffer(name, ty);
        self.draft.classes.fix(to, storage);
        plan.steps.push(Step::Copy { from, to });
        to
    }

    /// The buffer of a value; constants get theirs when something first reads them.
    fn buffer_of(&mut self, graph: &Graph, value: ValueId, values: &mut Values) -> BufferId {
        if let Some(buffer) = values.buffer(value) {
            return buffer;
        }
        let name = &graph.value(value).name;
        let buffer = match (graph.const_of(value), values.place(value)) {
            (Some(tensor), _) => self.constant(name, tensor),
            (None, Some((storage, ty))) => self.constant_at(name, *storage, ty.clone()),
            (None, None) => unreachable!("operands are computed before they are read"),
        };
        values.insert(value, buffer);
        buffer
    }

    /// The part of each group's results that is needed, at the sizes that a run chooses. All groups
    /// have kernels.
    fn demands(&self, graph: &Graph, items: &[Item], sizes: &Sizes) -> Vec<Demand> {
        if sizes.all.is_empty() && sizes.counts.is_empty() {
            return vec![];
        }
        let lows = sizes.all.iter().map(|size| size.low as i64);
        let lows: Vec<i64> = lows.chain(sizes.counts.iter().copied()).collect();
        let ends = Ends { sizes: &self.sizes, lows: &lows, outputs: &sizes.outputs };
        let mut beyond = |group: &Group, demand: &Demand| {
            self.kernels.terms_beyond(self.kernels.find(&subgraph(graph, group))?, demand)
        };
        demands(graph, items, &ends, &mut beyond)
    }

    /// Steps that compute everything in `graph`, whose inputs are in `values` already. Only a whole
    /// model has sizes to choose; in a body all is needed.
    fn walk(&mut self, graph: &Graph, sizes: &Sizes, values: &mut Values) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        let mut items = fuse::schedule_with(graph, self.kernels.fusion());
        if !sizes.counts.is_empty() {
            items = sizes_first(graph, items, &self.sizes);
        }
        self.schedule_groups(graph, &items)?;
        let mut demands = self.demands(graph, &items, sizes).into_iter();
        for item in items {
            match item {
                Item::Group(group) => {
                    let demand = demands.next().unwrap_or_default();
                    self.group(graph, &group, &demand, values, &mut plan)?;
                }
                Item::Node(node) => self.node(graph, node, values, &mut plan)?,
            }
        }
        Ok(plan)
    }

    /// Kernels for all groups that have none yet, in their order.
    fn schedule_groups(&mut self, graph: &Graph, items: &[Item]) -> Result<(), Error> {
        let (mut new, mut known): (Vec<Subgraph>, HashSet<Subgraph>) = Default::default();
        for item in items {
            let Item::Group(group) = item else { continue };
            let subgraph = subgraph(graph, group);
            if group.is_view || self.kernels.find(&subgraph).is_some() {
                continue;
            }
            if known.insert(subgraph.clone()) {
                self.verifier.compute("fusion", &group.name, &group.compute)?;
                new.push(subgraph);
            }
        }
        self.kernels.add(new)
    }

    fn group(
        &mut self,
        graph: &Graph,
        group: &Group,
        demand: &Demand,
        values: &mut Values,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        if group.is_view {
            let value = group.outputs[0];
            if let Some((storage, _)) = values.place(group.inputs[0]) {
                values.settle(value, (*storage, graph.ty(value).clone()));
                return Ok(());
            }
            let from = self.buffer_of(graph, group.inputs[0], values);
            let view = self.view(&graph.value(value).name, graph.ty(value), from);
            values.insert(value, view);
            return Ok(());
        }
        if self.once(graph, group, values)? {
            return Ok(());
        }
        let constants: Vec<_> = group.inputs.iter().map(|v| graph.const_of(*v).cloned()).collect();
        let whole = self.kernels.find(&subgraph(graph, group)).expect("all groups have kernels");
        let index = self.kernels.make(whole, demand);
        let mut args = Vec::new();
        for (param, (value, constant)) in group.inputs.iter().zip(&constants).enumerate() {
            let packing = self.kernels.packing(index, param).cloned();
            args.push(match (constant, packing) {
                (Some(tensor), Some(packing)) => {
                    self.packed(&graph.value(*value).name, tensor, &packing)?
                }
                _ => self.buffer_of(graph, *value, values),
            });
        }
        let sizes = self.kernels.sizes(index).to_vec();
        args.extend(sizes.iter().map(|size| self.buffer_of(graph, self.sizes[*size], values)));
        let sizes = sizes.len();
        for value in &group.outputs {
            let buffer = self.new_buffer(&graph.value(*value).name, graph.ty(*value));
            values.insert(*value, buffer);
            args.push(buffer);
        }
        let kernel = self.uses.len() as u32;
        self.uses.push(KernelUse::new(graph, group, index, sizes));
        plan.steps.push(Step::Kernel { kernel, args });
        Ok(())
    }

    fn node(
        &mut self,
        graph: &Graph,
        node: NodeId,
        values: &mut Values,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        match &graph.node(node).op {
            Op::Input { .. } | Op::Const(_) => Ok(()),
            Op::Compute(_) => unreachable!("compute nodes are in groups"),
            Op::Host(call) => {
                let inputs = self.buffers_of(graph, &graph.operands(node), values);
                if graph.node(node).op.is_check() && !self.is_checked(&inputs) {
                    return Ok(());
                }
                let outputs = match call {
                    HostOp::Append { .. } => vec![self.appended(graph, node, inputs[0], values)],
                    _ => self.outputs_of(graph, node, values),
                };
                plan.steps.push(Step::Host {
                    name: graph.node(node).name.clone(),
                    call: call.clone(),
                    inputs,
                    outputs,
                });
                Ok(())
            }
            Op::If(op) => self.branch(graph, node, op, values, plan),
            Op::Loop(op) => self.repeat(graph, node, op, values, plan),
        }
    }

    /// The result of rows that are appended to a state: the state.
    fn appended(
        &mut self,
        graph: &Graph,
        node: NodeId,
        state: BufferId,
        values: &mut Values,
    ) -> BufferId {
        let value = ValueId { node, out: 0 };
        let view = self.view(&graph.value(value).name, graph.ty(value), state);
        values.insert(value, view);
        view
    }

    /// Whether to check these indices. What a GPU computes it does not check: a run would wait for
    /// the host.
    fn is_checked(&self, indices: &[BufferId]) -> bool {
        let is_input =
            |id: &BufferId| matches!(self.draft.classes.fixed(*id), Some(Storage::Input(_)));
        !matches!(self.kernels.aim(), Aim::Gpu(_)) || indices.iter().all(is_input)
    }

    fn buffers_of(&mut self, graph: &Graph, of: &[ValueId], values: &mut Values) -> Vec<BufferId> {
        of.iter().map(|v| self.buffer_of(graph, *v, values)).collect()
    }

    fn outputs_of(&mut self, graph: &Graph, node: NodeId, values: &mut Values) -> Vec<BufferId> {
        graph
            .values(node)
            .map(|value| {
                let buffer = self.new_buffer(&graph.value(value).name, graph.ty(value));
                values.insert(value, buffer);
                buffer
            })
            .collect()
    }
}
