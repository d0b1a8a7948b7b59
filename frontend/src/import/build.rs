//! The walk over a model's nodes.
//!
//! In: a validated model. Out: the graph of everything that its outputs depend on. One [`Importer`]
//! serves one model; it keeps a stack of frames (see [`super::scope`]), collects problems, and
//! stops models whose functions would unfold without end.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_graph::{Graph, TensorType, ValueId};
use tract_onnx::pb::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};

use super::context::NodeCtx;
use super::fold::Budget;
use super::inputs::{self, Given};
use super::scope::{Binding, Frame, Opsets, Scope, element_name, lookup};
use super::{ImportOptions, function};
use crate::external::External;
use crate::order::{self, Cycle, Plan};
use crate::problem::Problem;
use crate::read::Model;
use crate::{ops, tensor};

/// Nesting of subgraphs and function calls.
pub(crate) const MAX_DEPTH: usize = 32;

pub(crate) struct Importer {
    pub(super) functions: Functions,
    pub(super) external: External,
    pub(super) frames: Vec<Frame>,
    pub(super) problems: Vec<Problem>,
    pub(super) budget: Budget,
    pub(super) depth: usize,
}

/// Model-local functions by domain and name.
pub(super) type Functions = BTreeMap<(String, String), Arc<FunctionProto>>;

/// What each output of a graph is; nothing where a problem is recorded.
pub(super) type Outputs = Vec<(String, Option<Binding>)>;

/// The tensors that stand for an output of the model: itself, or the elements of a sequence.
fn tensors(name: String, output: Option<Binding>) -> Result<Vec<(String, ValueId)>, Problem> {
    match output {
        Some(Binding::Value(value)) => Ok(vec![(name, value)]),
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

/// "ai.onnx" is another name of the default domain.
pub(crate) fn canonical_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Version by domain.
pub(super) fn versions(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    imports.iter().map(|o| (canonical_domain(&o.domain).to_string(), o.version)).collect()
}

/// Files older than the notion of opsets are of opset 1.
pub(crate) fn opsets(imports: &[OperatorSetIdProto]) -> Opsets {
    let mut versions = versions(imports);
    if versions.is_empty() {
        versions.insert(String::new(), 1);
    }
    Arc::new(versions)
}

pub(super) fn functions(model: &ModelProto) -> Functions {
    let key = |f: &FunctionProto| {
        let domain = canonical_domain(f.domain.as_deref().unwrap_or_default());
        (domain.to_string(), f.name.clone().unwrap_or_default())
    };
    model.functions.iter().map(|f| (key(f), Arc::new(f.clone()))).collect()
}

impl Importer {
    pub(crate) fn new(model: &ModelProto, external: External) -> Importer {
        let name = model.graph.as_ref().map_or("", |g| g.name.as_str());
        let scope = Scope::new(opsets(&model.opset_import), String::new(), false);
        Importer {
            functions: functions(model),
            external,
            frames: vec![Frame::new(Graph::new(name), scope)],
            problems: Vec::new(),
            budget: Budget::default(),
            depth: 0,
        }
    }

    pub(crate) fn run(
        mut self,
        model: &Model,
        options: &ImportOptions,
    ) -> Result<Graph, Vec<Problem>> {
        let Some(graph) = &model.proto.graph else {
            return Err(vec![Problem::new("the file holds no graph")]);
        };
        let infos = inputs::required(&model.proto, options);
        let given = inputs::given(&infos, &model.containers, options, &mut self.problems);
        for (info, given) in infos.iter().zip(given) {
            let binding = match given {
                Given::Tensor(ty) => Binding::Value(self.add_input(&info.name, ty, options)),
                Given::Sequence(elements) => Binding::Sequence(
                    elements
                        .into_iter()
                        .map(|(name, ty)| self.add_input(&name, ty, options))
                        .collect(),
                ),
                Given::Absent => Binding::Absent,
                Given::Unknown => Binding::Poisoned,
            };
            self.frame().bind(&info.name, binding);
        }
        let outputs = self.import_graph(graph);
        self.finish(outputs)
    }

    fn finish(mut self, outputs: Outputs) -> Result<Graph, Vec<Problem>> {
        if !self.problems.is_empty() {
            let mut seen = Vec::new();
            for problem in self.problems {
                if !seen.contains(&problem) {
                    seen.push(problem);
                }
            }
            return Err(seen);
        }
        let mut graph = self.frames.swap_remove(0).graph;
        for (name, binding) in outputs {
            let tensors = tensors(name, binding).map_err(|problem| vec![problem])?;
            graph.outputs.extend(tensors);
        }
        Ok(graph)
    }

    /// An input with a known value stays an input, but its readers see a constant.
    fn add_input(&mut self, name: &str, ty: TensorType, options: &ImportOptions) -> ValueId {
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
        if !problem.is_silent() {
            self.problems.push(problem);
        }
    }

    /// Imports what the outputs of `graph` depend on into the uppermost scope and gives the outputs;
    /// those without a value have a problem recorded.
    pub(super) fn import_graph(&mut self, graph: &GraphProto) -> Outputs {
        let names = graph.output.iter().map(|o| o.name.as_str());
        match order::plan(&graph.node, names) {
            Ok(plan) => {
                self.initializers(graph, &plan);
                for &index in &plan.nodes {
                    self.import_node(&graph.node[index]);
                }
            }
            Err(Cycle(index)) => {
                let problem = self.problem(&graph.node[index], "is part of a cycle");
                self.report(problem);
                return graph.output.iter().map(|o| (o.name.clone(), None)).collect();
            }
        }
        graph.output.iter().map(|o| (o.name.clone(), self.output(&o.name))).collect()
    }

    fn initializers(&mut self, graph: &GraphProto, plan: &Plan<'_>) {
        for proto in graph.initializer.iter().filter(|t| plan.reads.contains(t.name.as_str())) {
            if self.scope().names.contains_key(&proto.name) {
                continue;
            }
            let decoded = tensor::decode(proto, &self.external)
                .and_then(|tensor| self.budget.constant(tensor.bytes().len()).map(|()| tensor));
            let binding = match decoded {
                Ok(tensor) => Binding::Value(self.frame().graph.add_const(&proto.name, tensor)),
                Err(reason) => {
                    self.report(Problem::new(format!("initializer `{}`: {reason}", proto.name)));
                    Binding::Poisoned
                }
            };
            self.frame().bind(&proto.name, binding);
        }
    }

    fn output(&mut self, name: &str) -> Option<Binding> {
        let binding = lookup(&mut self.frames, name);
        if binding.is_none() {
            self.report(Problem::new(format!("nothing computes the graph output `{name}`")));
        }
        binding.filter(|b| *b != Binding::Poisoned)
    }

    /// Adds one node to the uppermost frame and binds its outputs.
    pub(super) fn import_node(&mut self, node: &NodeProto) {
        let first_new = self.frame().graph.len();
        match self.bindings(node) {
            Ok(bindings) => {
                for (index, name) in node.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
                    let binding = bindings.get(index).cloned().unwrap_or_else(|| {
                        let reason = format!("its output {index}, `{name}`, is not supported");
                        let problem = self.problem(node, reason);
                        self.report(problem);
                        Binding::Poisoned
                    });
                    self.bind_output(name, binding, first_new);
                }
            }
            Err(problem) => {
                self.report(problem);
                for name in node.output.iter().filter(|n| !n.is_empty()) {
                    self.frame().bind(name, Binding::Poisoned);
                }
            }
        }
    }

    /// Values that the node made take the name that the model gives them.
    fn bind_output(&mut self, name: &str, binding: Binding, first_new: usize) {
        let frame = self.frame();
        if let Binding::Value(value) = &binding
            && value.node.index() >= first_new
        {
            frame.graph.value_mut(*value).name = name.into();
        }
        frame.bind(name, binding);
    }

    /// What the outputs of a node are.
    fn bindings(&mut self, node: &NodeProto) -> Result<Vec<Binding>, Problem> {
        self.budget.node().map_err(|reason| self.problem(node, reason))?;
        let domain = canonical_domain(&node.domain);
        let key = (domain.to_string(), node.op_type.clone());
        if let Some(function) = self.functions.get(&key).cloned() {
            return function::call(self, node, &function);
        }
        let entry = self.supported(node)?;
        let inputs = self.inputs(node)?;
        let opset = self.opset(node);
        let mut ctx = NodeCtx::new(self, node, opset, inputs);
        let bindings = entry.import.run(&mut ctx);
        ctx.attribute_problem()?;
        bindings
    }

    /// The importer of a node. Said of nodes with poisoned inputs too: it is a cause of its own.
    fn supported(&self, node: &NodeProto) -> Result<&'static ops::OpEntry, Problem> {
        let entry =
            ops::lookup(canonical_domain(&node.domain), &node.op_type).ok_or_else(|| {
                self.problem(node, "this operator is not supported")
                    .remedy("export the model without it, or define it as a model-local function")
            })?;
        let opset = self.opset(node);
        if opset < entry.since {
            let reason = format!("this operator is supported from opset {} on", entry.since);
            let remedy = "convert the model to a newer opset";
            return Err(self.problem(node, reason).remedy(remedy));
        }
        Ok(entry)
    }

    pub(super) fn opset(&self, node: &NodeProto) -> i64 {
        self.scope().opsets.get(canonical_domain(&node.domain)).copied().unwrap_or(1)
    }

    /// What a node reads; a silent problem where one of them is poisoned.
    pub(super) fn inputs(&mut self, node: &NodeProto) -> Result<Vec<Binding>, Problem> {
        let mut bindings = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let binding = match name.as_str() {
                "" => Some(Binding::Absent),
                _ => lookup(&mut self.frames, name),
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
        format!("{}{own}", self.scope().prefix)
    }

    pub(super) fn problem(&self, node: &NodeProto, reason: impl Into<String>) -> Problem {
        let domain = canonical_domain(&node.domain);
        Problem::at(&self.node_name(node), &node.op_type, domain, self.opset(node), reason)
    }
}
