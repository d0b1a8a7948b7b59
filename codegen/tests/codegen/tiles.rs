//! Stages that read an operand, or store a product, across its rows, under the untuned schedule.

use ansc_codegen::{Listing, Target, listing};
use ansc_graph::ops::{OpError, shape};
use ansc_graph::{BinOp, Combiner, Compute, ComputeOp, Expr, Stage, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::{Machine, Program, Task};

use crate::check::{Random, compare, exact, filled, from_f64};
use crate::kernel::Kernel;

fn check(name: &str, compute: &Compute) {
    let inputs: Vec<Tensor> = compute
        .inputs
        .iter()
        .enumerate()
        .map(|(i, ty)| filled(ty, &mut Random(i as u64), |_, r| (r.unit() * 1000.0).trunc()))
        .collect();
    let given: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(compute, &given).unwrap();
    let constant = vec![false; compute.inputs.len()];
    for vector_bytes in [16, 32, 64] {
        let machine = Machine::new(vector_bytes, 16);
        let scheduled = Task::on_cpu(name, compute, &constant, &machine).scheduled_as(None);
        // Axes that everything walks as one are one in the program.
        let program = &scheduled.program;
        let as_read: Vec<Tensor> = program
            .params
            .iter()
            .zip(&inputs)
            .map(|(id, input)| input.clone().reshaped(&program.buffer(*id).ty.shape))
            .collect();
        let found = Kernel::new(program).run_in(&as_read.iter().collect::<Vec<_>>(), 3);
        let found: Vec<Tensor> =
            found.iter().zip(&expected).map(|(f, e)| f.clone().reshaped(e.shape())).collect();
        compare(&format!("{name}, {vector_bytes} bytes"), &found, &expected, &exact);
    }
}

fn transpose(dtype: DType, extents: &[usize], perm: &[usize]) -> Result<ComputeOp, OpError> {
    shape::transpose(&TensorType::new(dtype, extents), perm)
}

/// Lanes that lie near one another in an order of their own.
#[test]
fn lanes_near_one_another() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64, DType::U8] {
        for place in [
            "add(mul(floor_div(i1, 4), 4), 3)",
            "mul(floor_div(i1, 3), 2)",
            "floor_div(i1, 5)",
            "floor_mod(i1, 6)",
            "sub(39, mul(floor_div(i1, 2), 2))",
            "add(floor_mod(i1, 4), mul(floor_div(i1, 8), 8))",
        ] {
            // Rows of whole vectors, and others.
            for columns in [40, 64] {
                let x = format!("{dtype}[9, {columns}]");
                let text =
                    format!("compute(in0: {x}) -> y {{ y: {dtype}[9, 37] = in0[i0, {place}] }}");
                check(&text, &Compute::parse(&text).unwrap());
            }
        }
    }
}

#[test]
fn transposes_of_all_types_and_with_tails() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I32, DType::I64, DType::U8] {
        for (extents, perm) in [
            (&[64usize, 48][..], &[1usize, 0][..]),
            (&[37, 29], &[1, 0]),
            (&[2, 24, 14, 14], &[0, 2, 3, 1]),
            (&[2, 7, 9, 19], &[0, 3, 1, 2]),
            (&[3, 17, 5, 33], &[3, 2, 1, 0]),
        ] {
            let op = transpose(dtype, extents, perm).unwrap();
            check(&format!("{dtype} {extents:?} {perm:?}"), &op.expr);
        }
    }
}

#[test]
fn operands_along_and_across_in_one_stage() {
    let matrix = TensorType::new(DType::F32, [40, 27]);
    let inputs = vec![TensorType::new(DType::F32, [27, 40]), matrix.clone()];
    let across = Expr::load(0, vec![Expr::var(1), Expr::var(0)]);
    let along = Expr::load(1, vec![Expr::var(0), Expr::var(1)]);
    let body = Expr::binary(BinOp::Max, across.clone() - along, across);
    check("max", &Compute::single(inputs, Stage::map("max", matrix, body)));
}

#[test]
fn one_operand_read_both_ways() {
    let square = TensorType::new(DType::F32, [33, 33]);
    let at = |i, j| Expr::load(0, vec![Expr::var(i), Expr::var(j)]);
    let stage = Stage::map("symmetric", square.clone(), at(0, 1) + at(1, 0));
    check("symmetric", &Compute::single(vec![square], stage));
}

/// `y[.., j, i] = max(sum[k] a[.., i, k] * b[k, j] + bias[j], 0)`, its axes in the order `perm`.
fn stored_product(dtype: DType, [n, m, k, j]: [usize; 4], perm: [usize; 3]) -> Compute {
    let ty = |shape: &[usize]| TensorType::new(dtype, shape);
    let v = Expr::var;
    let product = Expr::load(0, vec![v(0), v(1), v(3)]) * Expr::load(1, vec![v(3), v(2)]);
    let extents = [n, m, j];
    let mut compute = Compute {
        inputs: vec![ty(&[n, m, k]), ty(&[k, j]), ty(&[j])],
        stages: vec![],
        outputs: vec![1],
    };
    let shape = TensorType::new(dtype, extents);
    let sum = compute.push(Stage::reduction("product", shape, Combiner::Sum, vec![k], product));
    // Axis `perm[i]` of the product is axis `i` of the result.
    let at: Vec<Expr> =
        (0..3).map(|axis| v(perm.iter().position(|p| *p == axis).unwrap())).collect();
    let biased = Expr::Load(sum, at.clone()) + Expr::load(2, vec![at[2].clone()]);
    let zero = Expr::Const(ansc_graph::Scalar::zero(dtype));
    let result = TensorType::new(dtype, perm.map(|p| extents[p]));
    compute.push(Stage::map("stored", result, Expr::binary(BinOp::Max, biased, zero)));
    compute
}

#[test]
fn products_are_stored_in_any_order_of_axes() {
    for dtype in [DType::F32, DType::F64, DType::I32] {
        for extents in [[1, 48, 9, 32], [2, 13, 5, 40], [3, 6, 4, 17], [1, 100, 3, 7]] {
            for perm in [[0, 2, 1], [1, 0, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0]] {
                let compute = stored_product(dtype, extents, perm);
                check(&format!("{dtype} {extents:?} {perm:?}"), &compute);
            }
        }
    }
}

/// Places `8 * t + u` of rows that are `stride` apart, transposed where they are below 50.
fn guarded(stride: usize, at: &str) -> Program {
    let text = format!(
        "program guarded
x: f32[8, {stride}] input
y: f32[5, 10, 8] output
params x, y
for t in 0..7 {{
  for l in 0..8 vectorized {{
    for u in 0..8 unrolled {{
      block y (vp: spatial 50 = add(mul(t, 8), u), vl: spatial 8 = l) {{
        where lt({at}, 5)
        y[floor_div(vp, 10), floor_mod(vp, 10), vl] = x[vl, vp]
      }}
    }}
  }}
}}
"
    );
    Program::parse(&text).unwrap()
}

#[test]
fn tiles_that_do_not_all_run() {
    let at = "floor_div(add(mul(t, 8), u), 10)";
    // Rows that are read to the end of the last tile, and rows that have nothing there.
    for stride in [56, 50] {
        let ty = TensorType::new(DType::F32, [8, stride]);
        let x = filled(&ty, &mut Random(1), |_, r| (r.unit() * 1000.0).trunc());
        let x_values = x.to_f64_vec();
        let values: Vec<f64> = (0..50 * 8).map(|i| x_values[i % 8 * stride + i / 8]).collect();
        let expected = from_f64(&TensorType::new(DType::F32, [5, 10, 8]), &values);
        let program = guarded(stride, at);
        let found = Kernel::new(&program).run(&[&x]);
        compare(&format!("rows of {stride}"), &found, &[expected], &exact);
        let native = Target::native().unwrap();
        let text = listing(&program, "k", &native, Listing::Ir).unwrap();
        assert_eq!(text.contains("shufflevector"), stride == 56, "rows of {stride}");
    }
}
