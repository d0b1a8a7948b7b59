//! How the readers of a value take it: with few bits, with all, or as it comes.

use std::collections::{BTreeMap, BTreeSet};

use ansc_runtime::{DType, Precision, Precisions};

use super::products::{fits, is_product};
use crate::compute::{Compute, Stage};
use crate::expr::{BufId, Expr, UnOp};
use crate::fuse::{Group, fuse};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Kind;
use crate::ops::stored::only_moves;

/// How a node uses the bits of its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Sums products of operands of this type, or of all bits.
    Product(Option<DType>),
    /// Moves elements, and gives what it takes.
    Movement,
    /// Everything else.
    Other,
}

/// How a value is read, by all that reads it outside of the kernel that makes it.
#[derive(Default, Debug)]
pub(super) struct Readers {
    /// Something needs all bits.
    pub(super) wide: bool,
    /// A normalisation reads it.
    pub(super) norm: bool,
    /// Something takes it as it comes.
    pub(super) any: bool,
    /// The types of the products that read it.
    pub(super) products: BTreeSet<DType>,
}

impl Readers {
    /// The type that all readers take operands of products in, if they do nothing else.
    pub(super) fn only_products(&self) -> Option<DType> {
        let mut types = self.products.iter().copied();
        let only = types.next().filter(|_| types.next().is_none());
        only.filter(|_| !self.wide && !self.norm && !self.any)
    }
}

/// The graph before the pass, and the kernels that fusion will make of it.
pub(super) struct Survey {
    graph: Graph,
    groups: Vec<Group>,
    group_of: BTreeMap<NodeId, usize>,
    roles: BTreeMap<NodeId, Role>,
    /// Products that read what tensor cores do of operands which stay `f32`.
    tf32: BTreeSet<NodeId>,
}

impl Survey {
    pub(super) fn of(graph: &Graph, precisions: &Precisions) -> Survey {
        let groups = fuse(graph);
        let members =
            groups.iter().enumerate().flat_map(|(i, g)| g.nodes.iter().map(move |n| (*n, i)));
        let role = |node: NodeId| {
            let op = graph.compute_of(node)?;
            let role = match is_product(graph, node) {
                true => {
                    let dtype = precisions.of(&graph.node(node).name).operands();
                    Role::Product(dtype.filter(|dtype| fits(graph, node, *dtype)))
                }
                false if only_moves(op) && op.expr.outputs.len() == 1 => Role::Movement,
                false => Role::Other,
            };
            Some((node, role))
        };
        let reads_tf32 = |n: &NodeId| {
            is_product(graph, *n) && precisions.of(&graph.node(*n).name) == Precision::Tf32
        };
        Survey {
            tf32: graph.node_ids().into_iter().filter(reads_tf32).collect(),
            group_of: members.collect(),
            roles: graph.node_ids().into_iter().filter_map(role).collect(),
            groups,
            graph: graph.clone(),
        }
    }

    /// The type of a value before the pass.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        self.graph.ty(value).dtype
    }

    /// Whether any product reads operands of fewer bits.
    pub(super) fn reduces(&self) -> bool {
        !self.tf32.is_empty()
            || self.roles.values().any(|role| matches!(role, Role::Product(Some(_))))
    }

    pub(super) fn reads_tf32(&self, node: NodeId) -> bool {
        self.tf32.contains(&node)
    }

    pub(super) fn role(&self, node: NodeId) -> Role {
        self.roles.get(&node).copied().unwrap_or(Role::Other)
    }

    /// The kernel that a node becomes a part of.
    pub(super) fn group(&self, node: NodeId) -> Option<&Group> {
        self.group_of.get(&node).map(|&i| &self.groups[i])
    }

    /// How `value` is read. What only moves it hands the question on to its own readers.
    pub(super) fn readers(&self, value: ValueId) -> Readers {
        let mut readers = Readers::default();
        let mut seen = BTreeSet::new();
        let mut open = vec![value];
        while let Some(next) = open.pop() {
            if !seen.insert(next) {
                continue;
            }
            readers.wide |= self.graph.is_output(next);
            for (user, slot) in self.graph.users(next) {
                let inside = self.same_kernel(value.node, user);
                match self.role(user) {
                    Role::Movement if self.graph.ty(next).dtype == DType::F32 => {
                        open.push(ValueId { node: user, out: 0 });
                    }
                    _ if inside => readers.wide = true,
                    Role::Product(Some(dtype)) => drop(readers.products.insert(dtype)),
                    Role::Product(None) => readers.wide = true,
                    _ => self.add(&mut readers, next, user, slot as usize),
                }
            }
        }
        readers
    }

    fn same_kernel(&self, a: NodeId, b: NodeId) -> bool {
        let group = |node| self.group_of.get(&node);
        group(a).is_some() && group(a) == group(b)
    }

    /// Counts a reader that neither sums products nor moves elements only.
    fn add(&self, readers: &mut Readers, value: ValueId, user: NodeId, slot: usize) {
        let Some(op) = self.graph.compute_of(user) else {
            readers.wide = true;
            return;
        };
        let expr = &op.expr;
        let gives_floats = expr.output_types().iter().all(|ty| ty.dtype.is_float());
        let several = expr.stages.len() > 1 && !matches!(op.kind, Kind::Conv(_) | Kind::Pool(_));
        let reduces =
            self.group(user).is_some_and(|g| matches!(g.anchor, Some(Kind::Reduce { .. })));
        let sums = expr.stages.iter().any(|s| s.reduce.is_some());
        if !gives_floats
            || steers(expr, slot)
            || sums && exponentiates(expr)
            || reduces && self.normalises(user, value)
        {
            readers.wide = true;
        } else if several && !matches!(op.kind, Kind::Reduce { .. }) {
            readers.norm = true;
        } else {
            readers.any = true;
        }
    }

    /// Whether what the kernel of `reader` reduces `value` to meets `value` again without a product
    /// between them, as in `x - mean(x)`. In a gate such as `x * sigmoid(conv(mean(x)))` there is
    /// one.
    fn normalises(&self, reader: NodeId, value: ValueId) -> bool {
        let mut open: Vec<ValueId> = self.group(reader).map_or(vec![], |g| g.outputs.clone());
        let mut seen = BTreeSet::new();
        while let Some(next) = open.pop() {
            for (user, _) in self.graph.users(next) {
                if matches!(self.role(user), Role::Product(_)) || !seen.insert(user) {
                    continue;
                }
                if self.graph.operands(user).iter().any(|v| self.origin(*v) == self.origin(value)) {
                    return true;
                }
                open.extend(self.graph.values(user));
            }
        }
        false
    }

    /// The value whose elements `value` has.
    fn origin(&self, mut value: ValueId) -> ValueId {
        while self.role(value.node) == Role::Movement
            && let [only] = self.graph.operands(value.node)[..]
        {
            value = only;
        }
        value
    }
}

/// Whether elements of the operand at `slot` decide which elements of others are read.
fn steers(expr: &Compute, slot: usize) -> bool {
    let mut from = BTreeSet::from([BufId::new(slot)]);
    for (i, Stage { body, .. }) in expr.stages.iter().enumerate() {
        let mut as_index = false;
        for (_, indices) in body.loads() {
            let mut inner = indices.iter().flat_map(Expr::loads);
            as_index |= inner.any(|(buffer, _)| from.contains(&buffer));
        }
        if as_index {
            return true;
        }
        if body.loads().iter().any(|(buffer, _)| from.contains(buffer)) {
            from.insert(expr.stage_buffer(i));
        }
    }
    false
}

/// Whether an error of an operand becomes a larger part of what depends on it, as in a softmax.
fn exponentiates(expr: &Compute) -> bool {
    let mut found = false;
    for stage in &expr.stages {
        stage.body.visit(&mut |e| {
            found |= matches!(e, Expr::Unary(UnOp::Exp | UnOp::Log, _));
        });
    }
    found
}
