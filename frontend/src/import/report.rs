//! The report of `ansc check` about a model.

use std::collections::BTreeMap;

use serde::Serialize;
use tract_onnx::pb::{ModelProto, NodeProto};

use crate::ops;
use crate::opsets::{canonical_domain, opsets};
use crate::order::subgraphs;
use crate::problem::Problem;
use crate::walk::functions;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    pub file: String,
    /// Version by domain; ONNX's own is "".
    pub opsets: BTreeMap<String, i64>,
    /// Operators of the file, bodies and functions included, by domain and name.
    pub operators: Vec<OperatorCount>,
    pub problems: Vec<Problem>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OperatorCount {
    pub domain: String,
    pub op: String,
    pub count: usize,
    /// Whether there is an importer, or a function of the model, of that name.
    pub known: bool,
}

impl OperatorCount {
    /// `Conv`, or `com.microsoft.FusedConv` where the domain is not ONNX's own.
    pub fn qualified(&self) -> String {
        if self.domain.is_empty() {
            self.op.clone()
        } else {
            format!("{}.{}", self.domain, self.op)
        }
    }
}

impl Report {
    pub(crate) fn unreadable(file: String) -> Report {
        Report { file, opsets: BTreeMap::new(), operators: vec![], problems: vec![] }
    }

    pub(crate) fn of(file: String, model: &ModelProto) -> Report {
        let mut counts = BTreeMap::new();
        let main = model.graph.iter().flat_map(|g| &g.node);
        for node in main.chain(model.functions.iter().flat_map(|f| &f.node)) {
            count(node, &mut counts);
        }
        let functions = functions(model);
        let operators = counts
            .into_iter()
            .map(|((domain, op), count)| {
                let key = (domain.to_string(), op.to_string());
                let known = ops::lookup(domain, op).is_some() || functions.contains_key(&key);
                OperatorCount { domain: key.0, op: key.1, count, known }
            })
            .collect();
        let opsets = (*opsets(&model.opset_import)).clone();
        Report { opsets, operators, ..Report::unreadable(file) }
    }
}

fn count<'m>(node: &'m NodeProto, counts: &mut BTreeMap<(&'m str, &'m str), usize>) {
    *counts.entry((canonical_domain(&node.domain), &node.op_type)).or_default() += 1;
    for inner in subgraphs(node).flat_map(|g| &g.node) {
        count(inner, counts);
    }
}
