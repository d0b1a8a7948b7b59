//! Maps of half floats compute in 32 bits, and say where they round.
//!
//! ```text
//! y: f16 = max(add(x: f16, b: f16), 0_f16)
//! ->
//! y: f16 = f16(max(f32(f16(add(f32(x), f32(b)))), 0_f32))
//! ```
//!
//! A processor without arithmetic of halves does nothing else for each operation, so that values
//! stay the same. Once it is written down, fusion drops the roundings between the operators of a
//! kernel, which take longer than the operators (`fuse::excess`).

use ansc_runtime::DType;

use super::rewrite::{close, open_map, set_op};
use super::{Options, PassError};
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId};
use crate::scalar::Scalar;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let halves = [&options.widen[..], &options.widen_groups].concat();
    let mut changed = false;
    for node in graph.topological() {
        changed |= widen(graph, node, &halves);
    }
    Ok(changed)
}

/// Writes down where the map at the node widens and rounds.
fn widen(graph: &mut Graph, node: NodeId, halves: &[DType]) -> bool {
    let Some(body) = open_map(graph, node) else { return false };
    let operands = graph.operands(node);
    let dtype = |b: BufId| graph.ty(operands[b.index()]).dtype;
    let wide = body.rewrite(&mut |e| rounded(e, halves, &dtype));
    if wide == body {
        return false;
    }
    let ty = graph.node(node).outputs[0].ty.clone();
    let (op, inputs) = close(graph, &operands, ty, &wide);
    set_op(graph, node, op, &inputs);
    true
}

/// An operation of halves as one of 32 bits. Elements that are only moved are none.
fn rounded(e: &Expr, halves: &[DType], dtype: &impl Fn(BufId) -> DType) -> Option<Expr> {
    let operand = match e {
        Expr::Unary(_, x) | Expr::Binary(_, x, _) => x.dtype(dtype),
        _ => return None,
    };
    if !halves.contains(&operand) {
        return None;
    }
    let computed = e.map_children(|x| match x {
        Expr::Const(c) => Expr::Const(Scalar::from_f64(DType::F32, c.as_f64())),
        x => Expr::cast(operand, DType::F32, x.clone()),
    });
    let result = e.dtype(dtype);
    Some(if result == operand { Expr::cast(DType::F32, result, computed) } else { computed })
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::compute::TensorType;
    use crate::expr::{BinOp, UnOp};
    use crate::fuse::fuse;
    use crate::interp;
    use crate::ops::map;
    use crate::passes::testing::{Builder, check_all};

    const SHAPE: [usize; 2] = [4, 6];

    fn options(dtype: DType) -> Options {
        Options { widen: vec![dtype], ..Options::default() }
    }

    fn load(slot: usize) -> Expr {
        Expr::load(slot, vec![])
    }

    /// `max(x + b, 0)`, and whether it is larger than `b`.
    fn graph(dtype: DType) -> Graph {
        let mut b = Builder::new(1);
        let given = [(); 2].map(|()| {
            let x = b.input(&SHAPE);
            let op = map::cast(b.graph.ty(x), dtype).unwrap();
            b.emit(op, &[x])
        });
        let body = (load(0) + load(1)).max(Expr::float(dtype, 0.0));
        let half = TensorType::new(dtype, SHAPE);
        let (op, inputs) = close(&b.graph, &given, half, &body);
        let sum = b.emit(op, &inputs);
        let is_larger = Expr::binary(BinOp::Lt, load(1), Expr::unary(UnOp::Neg, load(0)));
        let bools = TensorType::new(DType::Bool, SHAPE);
        let (op, inputs) = close(&b.graph, &[sum, given[1]], bools, &is_larger);
        let larger = b.emit(op, &inputs);
        b.finish(&[sum, larger])
    }

    #[test]
    fn values_stay_the_same() {
        for dtype in [DType::F16, DType::BF16] {
            let after = check_all(graph(dtype), |graph| {
                assert!(run(graph, &options(dtype))?);
                assert!(!run(graph, &options(dtype))?, "it is done");
                Ok(())
            });
            let text = after.to_string();
            assert!(!text.contains(&format!("0.0_{dtype}")), "{text}");
        }
    }

    /// A kernel rounds what it stores, and not the sum before that.
    #[test]
    fn kernels_round_once() {
        let mut graph = graph(DType::F16);
        run(&mut graph, &options(DType::F16)).unwrap();
        assert!(graph.to_string().contains("f16(add("), "{graph}");
        let kernels: Vec<String> = fuse(&graph).iter().map(|g| g.compute.to_string()).collect();
        let kernels = kernels.concat();
        assert!(kernels.contains("f16(max(add(") && !kernels.contains("f16(add("), "{kernels}");
    }

    #[test]
    fn other_types_stay() {
        let mut other = graph(DType::F16);
        let before = other.to_string();
        assert!(!run(&mut other, &options(DType::BF16)).unwrap());
        assert_eq!(other.to_string(), before);
        let x = Tensor::from_slice(&SHAPE, &[0.5f32; 24]);
        assert_eq!(interp::run(&other, &[x.clone(), x]).unwrap()[0].to_f64_vec(), [1.0; 24]);
    }
}
