//! Integers that the threads of a block have, all threads at once.
//!
//! A [`Value`] is the same for all threads or has a lane for each; truth is 1. A [`Node`] is an
//! expression whose parts over threads and constants alone are evaluated already.

use ansc_graph::{BinOp, Expr, UnOp, VarId};
use ansc_runtime::DType;

use crate::gpu::Kernel;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Same(i64),
    Lanes(Vec<i64>),
}

/// An operation of indices.
type Op = fn(i64, i64) -> i64;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Known(Value),
    /// A loop, or an axis of the grid.
    Var(VarId),
    Binary(Op, Box<Node>, Box<Node>),
    Select(Box<[Node; 3]>),
}

impl Value {
    pub(super) fn lane(&self, lane: usize) -> i64 {
        match self {
            Value::Same(v) => *v,
            Value::Lanes(lanes) => lanes[lane],
        }
    }

    fn zip(self, other: Value, f: impl Fn(i64, i64) -> i64) -> Value {
        match (self, other) {
            (Value::Same(a), Value::Same(b)) => Value::Same(f(a, b)),
            (Value::Lanes(mut a), Value::Same(b)) => {
                a.iter_mut().for_each(|a| *a = f(*a, b));
                Value::Lanes(a)
            }
            (Value::Same(a), Value::Lanes(mut b)) => {
                b.iter_mut().for_each(|b| *b = f(a, *b));
                Value::Lanes(b)
            }
            (Value::Lanes(mut a), Value::Lanes(b)) => {
                a.iter_mut().zip(b).for_each(|(a, b)| *a = f(*a, b));
                Value::Lanes(a)
            }
        }
    }

    /// The offset with one more axis, of `extent`, at `index`.
    pub(super) fn along(self, extent: usize, index: Value) -> Value {
        let extent = extent as i64;
        self.zip(index, |offset, index| offset.wrapping_mul(extent).wrapping_add(index))
    }

    fn select(self, then: Value, other: Value) -> Value {
        match (self, then, other) {
            (Value::Same(c), then, other) => {
                if c == 0 {
                    other
                } else {
                    then
                }
            }
            (Value::Lanes(mut lanes), then, other) => {
                for (i, lane) in lanes.iter_mut().enumerate() {
                    *lane = if *lane == 0 { other.lane(i) } else { then.lane(i) };
                }
                Value::Lanes(lanes)
            }
        }
    }
}

/// The threads of a block, by the axes along which they are counted.
pub(super) struct Threads {
    axes: Vec<(VarId, Value)>,
    pub(super) count: usize,
}

impl Threads {
    pub(super) fn of(kernel: &Kernel) -> Threads {
        let count = kernel.threads();
        let mut below = 1;
        let mut axes = vec![];
        for axis in kernel.block {
            let position = |lane: usize| (lane / below % axis.extent) as i64;
            let lanes = (0..count).map(position).collect();
            axes.push((
                axis.var,
                if axis.extent == 1 { Value::Same(0) } else { Value::Lanes(lanes) },
            ));
            below *= axis.extent;
        }
        Threads { axes, count }
    }
}

impl Node {
    /// `None` if the value depends on data, or is computed in a way that indices are not.
    pub(super) fn of(e: &Expr, threads: &Threads) -> Option<Node> {
        Some(match e {
            Expr::Const(s) => match s.dtype() {
                DType::I64 | DType::Bool => Node::Known(Value::Same(s.as_i64())),
                _ => return None,
            },
            Expr::Var(v) => match threads.axes.iter().find(|(var, _)| var == v) {
                Some((_, value)) => Node::Known(value.clone()),
                None => Node::Var(*v),
            },
            Expr::Load(..) => return None,
            Expr::Binary(op, a, b) => {
                Node::binary(op.of_indices()?, Node::of(a, threads)?, Node::of(b, threads)?)
            }
            Expr::Unary(op, x) => Node::unary(*op, is_bool(x), Node::of(x, threads)?)?,
            Expr::Select(c, a, b) => {
                let [c, a, b] = [c, a, b].map(|e| Node::of(e, threads));
                Node::Select(Box::new([c?, a?, b?]))
            }
            Expr::Cast(DType::I64, x) => Node::of(x, threads)?,
            Expr::Cast(DType::Bool, x) => {
                Node::binary(BinOp::Ne.of_indices()?, Node::of(x, threads)?, Node::same(0))
            }
            Expr::Cast(..) => return None,
        })
    }

    fn same(value: i64) -> Node {
        Node::Known(Value::Same(value))
    }

    fn unary(op: UnOp, is_bool: bool, x: Node) -> Option<Node> {
        match op {
            UnOp::Neg => Some(Node::binary(BinOp::Sub.of_indices()?, Node::same(0), x)),
            UnOp::Not if is_bool => Some(Node::binary(BinOp::Xor.of_indices()?, x, Node::same(1))),
            _ => None,
        }
    }

    fn binary(op: Op, a: Node, b: Node) -> Node {
        match (a, b) {
            (Node::Known(a), Node::Known(b)) => Node::Known(a.zip(b, op)),
            (a, b) => Node::Binary(op, Box::new(a), Box::new(b)),
        }
    }

    /// `vars` are the values of loops and of the axes of the grid.
    pub(super) fn eval(&self, vars: &[i64]) -> Value {
        match self {
            Node::Known(value) => value.clone(),
            Node::Var(v) => Value::Same(vars[v.index()]),
            Node::Binary(op, a, b) => a.eval(vars).zip(b.eval(vars), op),
            Node::Select(parts) => {
                let [c, a, b] = &**parts;
                c.eval(vars).select(a.eval(vars), b.eval(vars))
            }
        }
    }
}

fn is_bool(e: &Expr) -> bool {
    // Loads are refused before anyone asks for what they are.
    e.dtype(&|_| DType::I64) == DType::Bool
}

/// The threads that do something.
pub(super) enum Mask {
    All,
    Nobody,
    Some(Vec<bool>),
}

impl Mask {
    /// Those for which every condition is as it should be.
    pub(super) fn of(conditions: &[(Node, bool)], vars: &[i64]) -> Mask {
        let mut mask = Mask::All;
        for (condition, holds) in conditions {
            match (condition.eval(vars), &mut mask) {
                (Value::Same(v), _) if (v != 0) == *holds => {}
                (Value::Same(_), _) => return Mask::Nobody,
                (Value::Lanes(lanes), Mask::Some(mask)) => {
                    mask.iter_mut().zip(lanes).for_each(|(m, v)| *m &= (v != 0) == *holds);
                }
                (Value::Lanes(lanes), _) => {
                    mask = Mask::Some(lanes.into_iter().map(|v| (v != 0) == *holds).collect());
                }
            }
        }
        mask
    }

    pub(super) fn has(&self, lane: usize) -> bool {
        match self {
            Mask::All => true,
            Mask::Nobody => false,
            Mask::Some(mask) => mask[lane],
        }
    }

    /// The first of the threads whose value is not below `extent`.
    pub(super) fn outside(&self, value: &Value, extent: usize, threads: usize) -> Option<usize> {
        let is_outside = |v: i64| v < 0 || v as u64 >= extent as u64;
        match (value, self) {
            (Value::Same(v), _) if !is_outside(*v) => None,
            (Value::Lanes(lanes), Mask::All) => lanes.iter().position(|v| is_outside(*v)),
            _ => (0..threads).find(|&lane| self.has(lane) && is_outside(value.lane(lane))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::scalar;
    use ansc_graph::Scalar;

    /// One operation on all lanes is that operation on each.
    #[test]
    fn lanes_are_computed_like_scalars() {
        let numbers = [-7, -3, -1, 0, 1, 2, 5, 1 << 40];
        let ops = BinOp::ALL.into_iter().filter_map(|op| Some((op, op.of_indices()?)));
        for ((op, f), b) in ops.flat_map(|op| numbers.map(|b| (op, b))) {
            let found = Value::Lanes(numbers.to_vec()).zip(Value::Same(b), f);
            let turned = Value::Same(b).zip(Value::Lanes(numbers.to_vec()), f);
            for (lane, a) in numbers.into_iter().enumerate() {
                let [a, b] = [a, b].map(Scalar::index);
                assert_eq!(found.lane(lane), scalar::binary(op, a, b).as_i64(), "{op:?} {a} {b}");
                assert_eq!(turned.lane(lane), scalar::binary(op, b, a).as_i64(), "{op:?} {b} {a}");
            }
        }
    }
}
