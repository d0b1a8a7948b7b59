//! Bodies of branches and loops.
//!
//! A body becomes a graph of its own ([`NodeCtx::import_body`], [`NodeCtx::build_body`]) or, where
//! it is known which one runs and how often, part of the graph around it
//! ([`NodeCtx::inline_body`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use ansc_graph::{Graph, TensorType, ValueId};
use tract_onnx::pb::GraphProto;

use super::build::MAX_DEPTH;
use super::context::NodeCtx;
use super::scope::{Binding, Frame, Scope};
use crate::problem::Problem;

/// A graph whose last inputs stand for `captures`, values of the graph around it.
pub(crate) struct Body {
    pub(crate) graph: Graph,
    pub(crate) captures: Vec<ValueId>,
}

/// The name of a body's input or output that the model has no name for.
pub(crate) fn nameless(index: usize) -> String {
    format!("#{index}")
}

impl NodeCtx<'_> {
    /// Imports a body as a graph of its own. Its inputs are `hidden` ones, which the model's body
    /// does not know of, those that it lists, of types `inputs`, and then what it captures:
    /// `captures` in any case, and what it reads of the graph around it.
    pub(crate) fn import_body(
        &mut self,
        graph: &GraphProto,
        hidden: &[TensorType],
        inputs: &[TensorType],
        captures: &[ValueId],
    ) -> Result<Body, Problem> {
        self.count_inputs(graph, inputs.len())?;
        let mut frame = Frame::new(Graph::new(&graph.name), self.inner_scope());
        for (index, ty) in hidden.iter().enumerate() {
            frame.graph.add_input(&nameless(index), ty.clone(), None);
        }
        for (info, ty) in graph.input.iter().zip(inputs) {
            let value = frame.graph.add_input(&info.name, ty.clone(), None);
            frame.bind(&info.name, Binding::Value(value));
        }
        let outer = self.graph_here();
        for &value in captures {
            frame.captured(&outer.value(value).name, outer, value);
        }
        self.importer.frames.push(frame);
        let outputs = self.inner_outputs(graph);
        let frame = self.importer.frames.pop().expect("pushed above");
        let mut body = Body { graph: frame.graph, captures: frame.captures };
        body.graph.outputs = self.tensors_only(outputs?)?;
        self.fixed_sizes(&body.captures)?;
        Ok(body)
    }

    /// Imports a body into this graph, as if its nodes stood in place of this one; gives its
    /// outputs.
    pub(crate) fn inline_body(
        &mut self,
        graph: &GraphProto,
        inputs: &[Binding],
    ) -> Result<Vec<Binding>, Problem> {
        self.count_inputs(graph, inputs.len())?;
        let scope = self.inner_scope();
        let frame = self.importer.frame();
        frame.scopes.push(scope);
        for (info, binding) in graph.input.iter().zip(inputs) {
            frame.bind(&info.name, binding.clone());
        }
        let outputs = self.inner_outputs(graph);
        self.importer.frame().scopes.pop();
        Ok(outputs?.into_iter().map(|(_, binding)| binding).collect())
    }

    /// Makes a body that is not in the model: what `build` adds, which gets the values of `inputs`
    /// and gives those of the outputs.
    pub(crate) fn build_body(
        &mut self,
        inputs: &[TensorType],
        build: impl FnOnce(&mut Self, &[ValueId]) -> Result<Vec<ValueId>, Problem>,
    ) -> Result<Graph, Problem> {
        let mut frame = Frame::new(Graph::new(self.name()), self.inner_scope());
        let named = inputs.iter().enumerate();
        let values: Vec<ValueId> =
            named.map(|(i, ty)| frame.graph.add_input(&nameless(i), ty.clone(), None)).collect();
        self.importer.frames.push(frame);
        let outputs = build(self, &values);
        let mut graph = self.importer.frames.pop().expect("pushed above").graph;
        graph.outputs = outputs?.into_iter().enumerate().map(|(i, v)| (nameless(i), v)).collect();
        Ok(graph)
    }

    /// The result of `f`, or the problems that it met. These problems are not reported.
    pub(crate) fn attempt<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Vec<Problem>> {
        let before = self.importer.problems.len();
        f(self).map_err(|problem| {
            let mut problems = self.importer.problems.split_off(before);
            problems.extend(Some(problem).filter(|p| !p.is_silent()));
            problems
        })
    }

    /// Reports what an [`NodeCtx::attempt`] met after all.
    pub(crate) fn give_up(&mut self, problems: Vec<Problem>) -> Problem {
        problems.into_iter().for_each(|problem| self.importer.report(problem));
        Problem::silent()
    }

    /// Bodies know nothing of sizes that only the data decides.
    pub(crate) fn fixed_sizes(&self, values: &[ValueId]) -> Result<(), Problem> {
        match values.iter().find(|&&v| self.is_dynamic(v)) {
            None => Ok(()),
            Some(&value) => {
                let name = &self.graph_here().value(value).name;
                let reason = format!("its body reads `{name}`, whose size only the data decides");
                Err(self.problem(reason))
            }
        }
    }

    fn inner_scope(&self) -> Scope {
        let opsets = Arc::clone(&self.importer.scope().opsets);
        Scope::new(opsets, format!("{}/", self.name()), true)
    }

    fn count_inputs(&self, graph: &GraphProto, given: usize) -> Result<(), Problem> {
        if self.importer.depth >= MAX_DEPTH {
            return Err(self.problem(format!("subgraphs nest more than {MAX_DEPTH} deep")));
        }
        if graph.input.len() != given {
            let reason = format!("its body takes {} inputs, not {given}", graph.input.len());
            return Err(self.problem(reason));
        }
        Ok(())
    }

    /// The outputs of a body; a silent problem where one has no value, for which there is a problem
    /// already.
    fn inner_outputs(&mut self, graph: &GraphProto) -> Result<Vec<(String, Binding)>, Problem> {
        self.importer.depth += 1;
        let outputs = self.importer.import_graph(graph, self.attributes);
        self.importer.depth -= 1;
        let complete = outputs.into_iter().map(|(name, binding)| Some((name, binding?))).collect();
        Option::ok_or_else(complete, Problem::silent)
    }

    /// Lets through what a graph of its own can give. A sequence only leaves a body that is
    /// inlined. Outputs of a body go by position: one that is listed twice gets a name of its own
    /// the second time.
    fn tensors_only(
        &self,
        outputs: Vec<(String, Binding)>,
    ) -> Result<Vec<(String, ValueId)>, Problem> {
        let mut names = BTreeSet::new();
        let mut tensors = Vec::with_capacity(outputs.len());
        for (index, (name, binding)) in outputs.into_iter().enumerate() {
            let Some(value) = binding.value() else {
                return Err(self.problem(format!(
                    "its body gives `{name}`, a sequence or an optional value; then \
                     which body runs, and how often, must be known at compile time"
                )));
            };
            let is_new = names.insert(name.clone());
            tensors.push((if is_new { name } else { nameless(index) }, value));
        }
        Ok(tensors)
    }
}
