//! The walk itself, node after node.
//!
//! In: a validated model. Out: the graph of everything that its outputs depend on. One [`Importer`]
//! serves one model; it keeps a stack of frames (see [`super::scope`]), collects problems, and
//! stops models whose functions would unfold without end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc_graph::ops::nibbles::unpack;
use ansc_graph::{Graph, Op, TensorType, Value, ValueId};
use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::{FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto};

use super::attributes::Attributes;
use super::constants::{Constants, Shared};
use super::context::NodeCtx;
use super::counts::{Counts, is_number};
use super::data::Data;
use super::deciding::is_data;
use super::entry::{Lookup, OpEntry};
use super::fold::{Budget, Decisions};
use super::inputs::{self, Given};
use super::options::ImportOptions;
use super::scope::{Binding, Frame, Scope, element_name, lookup};
use super::unfold::Unfolding;
use super::{cut, function, unsupported};
use crate::external::External;
use crate::memory::Memory;
use crate::nibbles;
use crate::opsets::{canonical_domain, opsets};
use crate::order::{self, Cycle, Plan};
use crate::problem::{Problem, shortened};
use crate::problems::Problems;
use crate::read::Model;

/// Nesting of subgraphs and function calls.
pub(crate) const MAX_DEPTH: usize = 32;

pub(crate) struct Importer {
    /// The operators that can be imported.
    operators: Lookup,
    functions: Functions,
    pub(super) constants: Constants,
    pub(super) frames: Vec<Frame>,
    pub(super) problems: Problems,
    pub(super) budget: Budget,
    unfolding: Unfolding,
    pub(super) depth: usize,
    pub(super) data: Data,
    /// Names of tensors with elements of 4 bits.
    /// Tensors of the model's own graph that become its inputs.
    pub(super) begins: cut::Begins,
    /// If sizes that only the data decides are counted.
    pub(super) counts: Option<Counts>,
    /// Sequences of random numbers that were met.
    pub(super) streams: u32,
    /// The most that numbers may be which become sizes, by name.
    pub(super) most: BTreeMap<String, usize>,
}

/// A model, and what all imports of it share.
pub(crate) struct Origin {
    pub(crate) model: Model,
    functions: Functions,
    /// Where its external data is looked for.
    directory: Option<PathBuf>,
    shared: Arc<Shared>,
    operators: Lookup,
}

impl Origin {
    pub(crate) fn new(model: Model, directory: Option<&Path>, operators: Lookup) -> Origin {
        let (functions, directory) = (functions(&model.proto), directory.map(Path::to_owned));
        Origin { model, functions, directory, shared: Arc::default(), operators }
    }
}

/// Model-local functions by domain and name.
pub(crate) type Functions = BTreeMap<(String, String), Arc<FunctionProto>>;

/// The name of each output of a graph and its binding, which is `None` where a problem is recorded.
pub(super) type Outputs = Vec<(String, Option<Binding>)>;

/// The tensors that stand for an output of the model: itself, or the elements of a sequence.
fn tensors(name: String, output: Option<Binding>) -> Result<Vec<(String, ValueId)>, Problem> {
    match output {
        Some(Binding::Value(value) | Binding::Nibbles(value)) => Ok(vec![(name, value)]),
        Some(Binding::Sequence(elements)) => {
            let named = |(i, &value)| (element_name(&name, i), value);
            Ok(elements.iter().enumerate().map(named).collect())
        }
        Some(Binding::Absent) => Err(Problem::new(format!(
            "the output `{name}` is an optional value without an element"
        ))),
        Some(Binding::Poisoned) | None => Err(Problem::new("the model's outputs are not computed")),
    }
}

/// ONNX Runtime takes an output that is listed twice for one output, and so do we: outputs go by
/// name.
fn add_output(graph: &mut Graph, name: String, value: ValueId) -> Result<(), Problem> {
    match graph.outputs.iter().find(|(known, _)| *known == name) {
        None => graph.outputs.push((name, value)),
        Some((_, known)) if *known == value => {}
        Some(_) => return Err(Problem::new(format!("two outputs have the name `{name}`"))),
    }
    Ok(())
}

pub(crate) fn functions(model: &ModelProto) -> Functions {
    let key = |f: &FunctionProto| {
        let domain = canonical_domain(f.domain.as_deref().unwrap_or_default());
        (domain.to_string(), f.name.clone().unwrap_or_default())
    };
    model.functions.iter().map(|f| (key(f), Arc::new(f.clone()))).collect()
}

impl Importer {
    pub(crate) fn new(origin: &Origin, budget: Budget, counts: Option<Counts>) -> Importer {
        let proto = &origin.model.proto;
        let external = External::beside(origin.directory.as_deref());
        let memory = Memory::for_file(origin.model.bytes);
        let name = proto.graph.as_ref().map_or("", |g| g.name.as_str());
        let scope = Scope::new(opsets(&proto.opset_import), String::new(), false);
        Importer {
            operators: origin.operators,
            functions: origin.functions.clone(),
            constants: Constants::new(external, memory, origin.shared.clone()),
            frames: vec![Frame::new(Graph::new(name), scope)],
            problems: Problems::default(),
            budget,
            unfolding: Unfolding::of(proto),
            depth: 0,
            data: Data::default(),
            begins: cut::Begins::new(),
            counts,
            streams: 0,
            most: BTreeMap::new(),
        }
    }

    pub(crate) fn run(
        mut self,
        model: &Model,
        options: &ImportOptions,
    ) -> Result<(Graph, Decisions), Vec<Problem>> {
        let Some(graph) = &model.proto.graph else {
            return Err(vec![Problem::new("the file holds no graph")]);
        };
        let problems = cut::check(graph, options);
        if !problems.is_empty() {
            return Err(problems);
        }
        self.begins = cut::begins(options);
        self.most.clone_from(&options.most);
        let infos = inputs::required(&model.proto, options);
        let (given, problems) = inputs::given(&infos, &model.containers, options);
        problems.into_iter().for_each(|problem| self.report(problem));
        for (info, given) in infos.iter().zip(given) {
            let binding = match given {
                Given::Tensor(ty) => {
                    let input = self.add_input(&info.name, ty, options);
                    self.amount(&info.name, Binding::Value(input))
                }
                Given::Sequence(elements) => Binding::Sequence(
                    elements
                        .into_iter()
                        .map(|(name, ty)| self.add_input(&name, ty, options))
                        .collect(),
                ),
                Given::Absent => Binding::Absent,
                Given::Unknown => {
                    if inputs::has_rows(info) {
                        self.data.add(&info.name);
                    }
                    Binding::Poisoned
                }
            };
            self.frame().bind(&info.name, binding);
        }
        let own = || graph.output.iter().map(|o| o.name.clone()).collect();
        let ends = if options.outputs.is_empty() { own() } else { options.outputs.clone() };
        let outputs = self.import_outputs(graph, &ends, &Attributes::default());
        self.finish(outputs, options)
    }

    fn finish(
        mut self,
        outputs: Outputs,
        options: &ImportOptions,
    ) -> Result<(Graph, Decisions), Vec<Problem>> {
        let problems = self.problems.into_list();
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut graph = self.frames.swap_remove(0).graph;
        for (name, binding) in outputs {
            for (name, value) in tensors(name, binding).map_err(|problem| vec![problem])? {
                add_output(&mut graph, name, value).map_err(|problem| vec![problem])?;
            }
        }
        let problems = if options.is_cut() { cut::prune(&mut graph, options) } else { vec![] };
        if problems.is_empty() { Ok((graph, self.budget.into_decisions())) } else { Err(problems) }
    }

    /// An input with a known value stays an input, but its readers see a constant.
    fn add_input(&mut self, name: &str, ty: TensorType, options: &ImportOptions) -> ValueId {
        let is_known = options.values.contains_key(name) || options.most.contains_key(name);
        if is_data(&ty) && !is_known {
            self.data.add(name);
        }
        let value = options.values.get(name).cloned().map(Arc::new);
        let graph = &mut self.frame().graph;
        let input = graph.add_input(name, ty, value.clone());
        value.map_or(input, |value| graph.add_const(name, value))
    }

    pub(super) fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("there is a frame until the import ends")
    }

    pub(super) fn scope(&self) -> &Scope {
        self.frames.last().and_then(|f| f.scopes.last()).expect("every frame has a scope")
    }

    pub(super) fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Counts a body that is about to be imported; a silent problem ends the import where the model
    /// unfolds without end.
    pub(super) fn unfold(&mut self, nodes: &[NodeProto]) -> Result<(), Problem> {
        self.unfolding.add(nodes).map_err(|problem| self.stop(problem))
    }

    /// Counts memory that is about to be allocated, likewise.
    pub(super) fn take(&mut self, node: &NodeProto, bytes: usize) -> Result<(), Problem> {
        self.constants.memory.take(bytes).map_err(|reason| {
            let problem = self.problem(node, reason);
            self.stop(problem)
        })
    }

    /// Ends the import; gives what ends the work on the node at hand.
    pub(super) fn stop(&mut self, problem: Problem) -> Problem {
        self.problems.stop(problem);
        Problem::silent()
    }

    /// Imports what the outputs of `graph` depend on into the uppermost scope and gives the
    /// outputs; those without a value have a problem recorded.
    pub(super) fn import_graph(
        &mut self,
        graph: &GraphProto,
        attributes: &Attributes<'_>,
    ) -> Outputs {
        let outputs: Vec<String> = graph.output.iter().map(|o| o.name.clone()).collect();
        self.import_outputs(graph, &outputs, attributes)
    }

    /// As [`Importer::import_graph`], for some of the tensors of `graph`.
    fn import_outputs(
        &mut self,
        graph: &GraphProto,
        outputs: &[String],
        attributes: &Attributes<'_>,
    ) -> Outputs {
        let nothing = || outputs.iter().map(|name| (name.clone(), None)).collect();
        if self.unfold(&graph.node).is_err() {
            return nothing();
        }
        // Tensors that become inputs are imported for their types, whether an output needs them or
        // not.
        let begins = self.begins.keys().filter(|_| self.is_outermost());
        let begins: Vec<String> = begins.cloned().collect();
        let names = outputs.iter().chain(&begins).map(String::as_str);
        match order::plan(&graph.node, names) {
            Ok(plan) => {
                self.initializers(graph, &plan);
                for &index in &plan.nodes {
                    self.import_node(&graph.node[index], attributes);
                }
            }
            Err(Cycle(index)) => {
                let problem = self.problem(&graph.node[index], "is part of a cycle");
                self.report(problem);
                return nothing();
            }
        }
        outputs.iter().map(|name| (name.clone(), self.output(name))).collect()
    }

    fn initializers(&mut self, graph: &GraphProto, plan: &Plan<'_>) {
        for proto in &graph.initializer {
            self.initializer(&proto.name, plan, |importer| importer.constant(&proto.name, proto));
        }
        for proto in &graph.sparse_initializer {
            let name = proto.values.as_ref().map_or("", |values| values.name.as_str());
            self.initializer(name, plan, |importer| {
                let tensor = importer.constants.sparse(proto)?;
                Ok(Binding::Value(importer.known(name, tensor)))
            });
        }
    }

    fn initializer(
        &mut self,
        name: &str,
        plan: &Plan<'_>,
        decode: impl FnOnce(&mut Importer) -> Result<Binding, String>,
    ) {
        if !plan.reads.contains(name) || self.scope().names.contains_key(name) {
            return;
        }
        let binding = match decode(self) {
            Ok(binding) => binding,
            Err(reason) => {
                self.report(Problem::new(format!("initializer `{name}`: {reason}")));
                Binding::Poisoned
            }
        };
        self.frame().bind(name, binding);
    }

    fn known(&mut self, name: &str, tensor: Arc<Tensor>) -> ValueId {
        self.frame().graph.add_const(name, tensor)
    }

    /// A constant of the model, under the name that its node gets.
    pub(super) fn constant(&mut self, name: &str, proto: &TensorProto) -> Result<Binding, String> {
        match nibbles::wide(proto.data_type) {
            Some(dtype) if nibbles::stays_packed(proto) => {
                self.unpacked(name, dtype, proto).map(Binding::Nibbles)
            }
            few => {
                let value = self.constants.dense(proto).map(|tensor| self.known(name, tensor))?;
                Ok(if few.is_some() { Binding::Nibbles(value) } else { Binding::Value(value) })
            }
        }
    }

    /// Elements of 4 bits, which a node unpacks.
    fn unpacked(
        &mut self,
        name: &str,
        dtype: DType,
        proto: &TensorProto,
    ) -> Result<ValueId, String> {
        let (shape, packed) = self.constants.packed(proto)?;
        let op = unpack(dtype, &shape, &TensorType::of(&packed)).map_err(|e| e.to_string())?;
        let packed = self.known(name, packed);
        let graph = &mut self.frame().graph;
        let output = Value::new(format!("{name}:0"), TensorType::new(dtype, shape));
        let node = graph.add(name, Op::Compute(op), &[packed], vec![output]);
        Ok(ValueId { node, out: 0 })
    }

    fn output(&mut self, name: &str) -> Option<Binding> {
        let binding = lookup(&mut self.frames, name);
        if binding.is_none() {
            self.report(Problem::new(format!("nothing computes the graph output `{name}`")));
        }
        binding.filter(|b| *b != Binding::Poisoned)
    }

    /// Adds one node to the uppermost frame and binds its outputs.
    pub(super) fn import_node(&mut self, node: &NodeProto, attributes: &Attributes<'_>) {
        let first_new = self.frame().graph.len();
        self.budget.begin(self.node_name(node));
        let bindings =
            self.bindings(node, attributes).unwrap_or_else(|problem| self.poisoned(node, problem));
        for (index, name) in node.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let binding = bindings.get(index).cloned().unwrap_or_else(|| {
                let reason = format!("its output {index}, `{name}`, is not supported");
                let problem = self.problem(node, reason);
                self.report(problem);
                Binding::Poisoned
            });
            self.bind_output(name, binding, first_new);
        }
        if self.is_outermost() && !self.data.is_empty() {
            let (frame, most) = (&self.frames[0], &self.most);
            let value = |name: &str| frame.find(name).ok()?.value();
            let is_one = |name: &str| value(name).is_some_and(|v| is_number(frame.graph.ty(v)));
            self.data.follow(node, |name| most.contains_key(name), is_one);
        }
    }

    /// Binds the outputs of a node that cannot be imported. If it is skipped for another node's
    /// problem, it is told all the same where it needs to know what depends on data: nothing that
    /// is done about the other would help.
    fn poisoned(&mut self, node: &NodeProto, problem: Problem) -> Vec<Binding> {
        let hidden = problem.is_silent() && self.is_outermost();
        self.report(problem);
        if let Some((i, what)) = self.data.unknown(node).filter(|_| hidden) {
            let reason =
                format!("its {what} (input {i}) must be known at compile time; it depends on data");
            self.report(match self.data.remedy(&node.input[i]) {
                Some(remedy) => self.problem(node, reason).remedy(remedy),
                None => self.problem(node, format!("{reason}: not supported")),
            });
        }
        vec![Binding::Poisoned; node.output.len()]
    }

    /// Whether nodes of the model's own graph are imported, and of no body or function.
    pub(super) fn is_outermost(&self) -> bool {
        self.frames.len() == 1 && self.frames[0].scopes.len() == 1
    }

    /// Values that the node made take the name that the model gives them.
    fn bind_output(&mut self, name: &str, binding: Binding, first_new: usize) {
        let frame = self.frame();
        if let Some(value) = binding.value()
            && value.node.index() >= first_new
        {
            frame.graph.value_mut(value).name = name.into();
        }
        let begins = self.is_outermost() && self.begins.contains_key(name);
        let binding = if begins { self.begin_at(name, binding) } else { binding };
        let binding = self.amount(name, binding);
        self.frame().bind(name, binding);
    }

    /// The bindings of the outputs of a node.
    fn bindings(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes<'_>,
    ) -> Result<Vec<Binding>, Problem> {
        if self.problems.ended() {
            return Err(Problem::silent());
        }
        let bindings = self.bindings_of(node, attributes)?;
        let sequences = bindings.iter().map(|b| match b {
            Binding::Sequence(elements) => size_of_val(&elements[..]),
            _ => 0,
        });
        let names: usize = node.output.iter().map(String::len).sum();
        self.take(node, sequences.sum::<usize>() + names)?;
        Ok(bindings)
    }

    fn bindings_of(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes<'_>,
    ) -> Result<Vec<Binding>, Problem> {
        let domain = canonical_domain(&node.domain);
        let key = (domain.to_string(), node.op_type.clone());
        if let Some(function) = self.functions.get(&key).cloned() {
            return function::call(self, node, &function, attributes);
        }
        let entry = self.supported(node)?;
        let inputs = self.inputs(node)?;
        let opset = self.opset(node);
        let mut ctx = NodeCtx::new(self, node, attributes, opset, inputs);
        let bindings = entry.import.run(&mut ctx);
        ctx.attribute_problem()?;
        bindings
    }

    /// The importer of a node. Said of nodes with poisoned inputs too: it is a cause of its own.
    fn supported(&self, node: &NodeProto) -> Result<&'static OpEntry, Problem> {
        let entry =
            (self.operators)(canonical_domain(&node.domain), &node.op_type).ok_or_else(|| {
                let problem = self.problem(node, "this operator is not supported");
                problem.remedy(unsupported::remedy(canonical_domain(&node.domain), &node.op_type))
            })?;
        let opset = self.opset(node);
        if opset < entry.since {
            let reason = format!("this operator is supported from opset {} on", entry.since);
            let remedy = format!(
                "convert the model to opset {} or newer, for example with onnx.version_converter",
                entry.since
            );
            return Err(self.problem(node, reason).remedy(remedy));
        }
        Ok(entry)
    }

    pub(super) fn opset(&self, node: &NodeProto) -> i64 {
        self.scope().opsets.get(canonical_domain(&node.domain)).copied().unwrap_or(1)
    }

    /// The bindings that a node reads, or a silent problem if one of them is poisoned.
    pub(super) fn inputs(&mut self, node: &NodeProto) -> Result<Vec<Binding>, Problem> {
        let mut bindings = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let binding = match name.as_str() {
                "" => Some(Binding::Absent),
                _ => self.read(name),
            };
            match binding {
                Some(Binding::Poisoned) => return Err(Problem::silent()),
                Some(binding) => bindings.push(binding),
                None => {
                    let reason = format!("nothing computes its input `{name}`");
                    return Err(self.problem(node, reason));
                }
            }
        }
        Ok(bindings)
    }

    pub(super) fn node_name(&self, node: &NodeProto) -> String {
        let own = match node.name.as_str() {
            "" => node.output.iter().find(|o| !o.is_empty()).map_or("", String::as_str),
            name => name,
        };
        shortened(format!("{}{own}", self.scope().prefix))
    }

    pub(super) fn problem(&self, node: &NodeProto, reason: impl Into<String>) -> Problem {
        let domain = canonical_domain(&node.domain);
        Problem::at(&self.node_name(node), &node.op_type, domain, self.opset(node), reason)
    }
}
