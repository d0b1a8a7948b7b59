//! Random shapes and attributes on random machines.

use ansc_graph::op::{Channels, ComputeOp, ConvAttrs};
use ansc_graph::ops::*;
use ansc_graph::{BinOp, TensorType, UnOp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::Machine;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;

use crate::support::{MACHINES, f32s, operand, run};

fn machine() -> impl Strategy<Value = Machine> {
    select(MACHINES.to_vec())
}

fn holds(op: Result<ComputeOp, OpError>, machine: &Machine, constants: bool) -> TestCaseResult {
    // Attributes that do not go together are not for this test.
    let Ok(op) = op else { return Err(TestCaseError::reject("not an operator")) };
    let inputs: Vec<Tensor> =
        op.expr.inputs.iter().enumerate().map(|(i, ty)| operand(ty, i)).collect();
    holds_for(&op, &inputs, machine, constants)
}

fn holds_for(
    op: &ComputeOp,
    inputs: &[Tensor],
    machine: &Machine,
    constants: bool,
) -> TestCaseResult {
    run(&op.expr, inputs, constants, machine)
        .map_err(|problem| TestCaseError::fail(format!("{problem}\n{}", op.expr)))
}

/// Values that differ along every axis: where all are equal, nothing but rounding errors is
/// normalised. 101 divides no stride of the shapes below.
fn spread(ty: &TensorType) -> Tensor {
    let values = (0..ty.len()).map(|i| ((i * 37 + i / 7) % 101) as f32 / 8.0 - 6.0);
    Tensor::from_slice(&ty.shape, &values.collect::<Vec<_>>())
}

/// Extents around those of vectors and tiles.
fn extent() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..5, 1usize..40]
}

fn shape(rank: std::ops::Range<usize>) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![Just(1usize), 1usize..7, 1usize..20], rank)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(300), failure_persistence: None, max_global_rejects: 1 << 20, max_shrink_iters: 64, ..Default::default() })]

    #[test]
    fn products(m in extent(), n in extent(), k in extent(), batch in 1usize..3, shared: bool, constants: bool, dtype in select(vec![DType::F32, DType::I8, DType::F16]), machine in machine()) {
        let a = TensorType::new(dtype, [batch, m, k]);
        let b = TensorType::new(dtype, if shared { vec![k, n] } else { vec![batch, k, n] });
        holds(matmul::matmul(&a, &b), &machine, constants)?;
    }

    #[test]
    fn contractions(a in prop::collection::vec(0usize..4, 1..4), b in prop::collection::vec(0usize..4, 1..4), extents in prop::collection::vec(1usize..12, 4), out in prop::collection::vec(0usize..4, 0..4), constants: bool, machine in machine()) {
        // Labels of the result that no operand has are left out, and each comes once.
        let mut output: Vec<usize> = Vec::new();
        for label in out {
            if !output.contains(&label) && (a.contains(&label) || b.contains(&label)) {
                output.push(label);
            }
        }
        let ty = |labels: &[usize]| f32s(&labels.iter().map(|&l| extents[l]).collect::<Vec<_>>());
        let types = [ty(&a), ty(&b)];
        let labels = einsum::Labels { operands: vec![a, b], output };
        holds(einsum::einsum(&labels, &types), &machine, constants)?;
    }

    #[test]
    fn convolutions(
        per_group in (1usize..4, 1usize..18),
        groups in select(vec![1usize, 1, 1, 2, 3, 8]),
        spatial in prop::collection::vec(1usize..9, 1..3),
        kernel in prop::collection::vec(1usize..4, 2),
        strides in prop::collection::vec(1usize..3, 2),
        dilations in prop::collection::vec(1usize..3, 2),
        pads in prop::collection::vec(0usize..3, 4),
        last: bool,
        constants: bool,
        machine in machine(),
    ) {
        let n = spatial.len();
        let channels = if last { Channels::Last } else { Channels::First };
        let attrs = ConvAttrs {
            channels,
            input: channels,
            kernel: kernel[..n].to_vec(),
            strides: strides[..n].to_vec(),
            dilations: dilations[..n].to_vec(),
            pads_begin: pads[..n].to_vec(),
            pads_end: pads[2..2 + n].to_vec(),
            groups,
        };
        let (c, m) = (per_group.0 * groups, per_group.1 * groups);
        let (x, w) = if last {
            ([&[1], &spatial[..], &[c]].concat(), [&kernel[..n], &[per_group.0, m]].concat())
        } else {
            ([&[1, c], &spatial[..]].concat(), [&[m, per_group.0], &kernel[..n]].concat())
        };
        holds(conv::conv(attrs, &f32s(&x), &f32s(&w)), &machine, constants)?;
    }

    #[test]
    fn reductions(shape in shape(1..5), chosen in 1usize..16, keep: bool, kind in select(vec![reduce::Reduction::Sum, reduce::Reduction::Mean, reduce::Reduction::Max, reduce::Reduction::L2]), dtype in select(vec![DType::F32, DType::F16, DType::F64]), machine in machine()) {
        let axes: Vec<usize> = (0..shape.len()).filter(|axis| chosen >> axis & 1 == 1).collect();
        holds(reduce::reduce(kind, &axes, keep, &TensorType::new(dtype, shape)), &machine, false)?;
    }

    #[test]
    fn extremes(shape in shape(1..5), axis in 0usize..4, largest: bool, last: bool, machine in machine()) {
        let axis = axis % shape.len();
        let attrs = arg_extreme::ArgExtreme { axis, largest, keep: false, last };
        holds(arg_extreme::arg_extreme(attrs, &f32s(&shape)), &machine, false)?;
    }

    #[test]
    fn normalisations(shape in shape(1..5), axis in 0usize..4, which in 0usize..4, machine in machine()) {
        let axis = axis % shape.len();
        let (x, rest) = (f32s(&shape), f32s(&shape[axis..]));
        let op = match which {
            0 => softmax::softmax(&[axis], &x),
            1 => softmax::log_softmax(&[axis], &x),
            2 => normalize::layer_norm(axis, 1e-5, DType::F32, &x, &rest, Some(&rest)),
            _ => normalize::mean_variance_norm(&[axis], &x),
        };
        let op = op.unwrap();
        let inputs: Vec<Tensor> = op.expr.inputs.iter().map(spread).collect();
        holds_for(&op, &inputs, &machine, false)?;
    }

    #[test]
    fn broadcasting(shape in shape(1..5), ones in 0usize..256, drop in 0usize..4, machine in machine()) {
        let with_ones = |bits: usize| -> Vec<usize> {
            let extent = |(axis, &e): (usize, &usize)| if bits >> axis & 1 == 1 { 1 } else { e };
            shape.iter().enumerate().map(extent).collect()
        };
        let (a, b) = (with_ones(ones), with_ones(ones >> 4));
        let b = &b[drop.min(b.len())..];
        holds(map::binary(BinOp::Add, &f32s(&a), &f32s(b)), &machine, true)?;
    }

    #[test]
    fn transposes(extents in shape(1..5), order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(), machine in machine()) {
        let perm: Vec<usize> = order.into_iter().filter(|&axis| axis < extents.len()).collect();
        holds(shape::transpose(&f32s(&extents), &perm), &machine, false)?;
    }

    #[test]
    fn elementwise(extents in shape(0..5), dtype in select(DType::ALL.to_vec()), to in select(DType::ALL.to_vec()), machine in machine()) {
        let x = TensorType::new(dtype, extents);
        if dtype != DType::Bool {
            holds(map::unary(UnOp::Abs, &x), &machine, false)?;
        }
        holds(map::cast(&x, to), &machine, false)?;
    }

    #[test]
    fn slices_and_pads(extents in shape(1..4), ends in prop::collection::vec(-2i64..4, 8), machine in machine()) {
        let n = extents.len();
        let zero = pad::PadMode::Constant(ansc_graph::Scalar::zero(DType::F32));
        let x = f32s(&extents);
        holds(pad::pad(std::slice::from_ref(&x), zero, &ends[..n], &ends[4..4 + n]), &machine, false)?;
    }
}
