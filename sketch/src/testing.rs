//! Tensor expressions to schedule, and the comparison with the reference.

use std::sync::Arc;

use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType, UnOp, interp};
use ansc_runtime::{DType, Tensor};

use crate::exec;
use crate::intrinsic::operand;
use crate::machine::Machine;
use crate::program::Program;
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{Instruction, Trace};
use crate::verify::verify;

/// A subgraph as text, no input of which is constant, for a CPU with vectors of 32 bytes.
pub(crate) fn task(text: &str) -> Arc<Task> {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let constant = vec![false; compute.inputs.len()];
    let machine = Machine::new(32, 16);
    Arc::new(Task::on_cpu("k", &compute, &constant, &machine))
}

/// Rows that are reduced lie side by side already.
pub(crate) const SOFTMAX: &str = "compute(in0: f32[64, 100]) -> y {
  m: f32[64] = max{r0: 100} in0[i0, r0]
  e: f32[64, 100] = exp(sub(in0[i0, i1], m[i0]))
  s: f32[64] = sum{r0: 100} e[i0, r0]
  y: f32[64, 100] = div(e[i0, i1], s[i0])
}";

pub(crate) fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

pub(crate) fn v(i: usize) -> Expr {
    Expr::var(i)
}

fn int(i: i64) -> Expr {
    Expr::int(i)
}

pub(crate) fn f32c(value: f64) -> Expr {
    Expr::float(DType::F32, value)
}

pub(crate) fn load(buffer: usize, indices: &[Expr]) -> Expr {
    Expr::load(buffer, indices.to_vec())
}

fn compute(inputs: &[&[usize]], stages: Vec<Stage>) -> Compute {
    let outputs = vec![stages.len() - 1];
    Compute { inputs: inputs.iter().map(|s| f32s(s)).collect(), stages, outputs }
}

pub(crate) fn matmul_bias_relu(m: usize, n: usize, k: usize) -> Compute {
    let product = load(0, &[v(0), v(2)]) * load(1, &[v(2), v(1)]);
    let mm = Stage::reduction("mm", f32s(&[m, n]), Combiner::Sum, vec![k], product);
    let add = load(3, &[v(0), v(1)]) + load(2, &[v(1)]);
    let add = Stage::map("add", f32s(&[m, n]), add);
    let relu = Stage::map("relu", f32s(&[m, n]), load(4, &[v(0), v(1)]).max(f32c(0.0)));
    let mut c = compute(&[&[m, k], &[k, n], &[n]], vec![mm, add, relu]);
    // Bias and relu in one stage, as fusion leaves them.
    let fused = load(3, &[v(0), v(1)]) + load(2, &[v(1)]);
    c.stages.remove(1);
    c.stages[1].body = fused.max(f32c(0.0));
    c.outputs = vec![1];
    c
}

/// A padded 3x3 convolution of stride `s` over `[c, h, w]`, with a bias after it.
pub(crate) fn conv(m: usize, c: usize, h: usize, w: usize, s: usize) -> Compute {
    let (oh, ow) = (h.div_ceil(s), w.div_ceil(s));
    let inside =
        |x: Expr, n: usize| int(0).le(x.clone() - int(1)).and((x - int(1)).lt(Expr::index(n)));
    let guard = inside(v(1), h).and(inside(v(2), w));
    let source = load(0, &[v(0), v(1) - int(1), v(2) - int(1)]);
    let pad = Stage::map("pad", f32s(&[c, h + 2, w + 2]), Expr::select(guard, source, f32c(0.0)));
    let stride = int(s as i64);
    let x = load(3, &[v(3), v(1) * stride.clone() + v(4), v(2) * stride + v(5)]);
    let product = x * load(1, &[v(0), v(3), v(4), v(5)]);
    let conv = Stage::reduction("conv", f32s(&[m, oh, ow]), Combiner::Sum, vec![c, 3, 3], product);
    let bias = load(4, &[v(0), v(1), v(2)]) + load(2, &[v(0)]);
    let bias = Stage::map("bias", f32s(&[m, oh, ow]), bias);
    compute(&[&[c, h, w], &[m, c, 3, 3], &[m]], vec![pad, conv, bias])
}

pub(crate) fn softmax(rows: usize, columns: usize) -> Compute {
    let (row, all) = (f32s(&[rows]), f32s(&[rows, columns]));
    let x = || load(0, &[v(0), v(1)]);
    let max = Stage::reduction("max", row.clone(), Combiner::Max, vec![columns], x());
    let exp = Expr::unary(UnOp::Exp, x() - load(1, &[v(0)]));
    let exp = Stage::map("exp", all.clone(), exp);
    let sum = Stage::reduction("sum", row, Combiner::Sum, vec![columns], load(2, &[v(0), v(1)]));
    let div = Stage::map("div", all, load(2, &[v(0), v(1)]) / load(3, &[v(0)]));
    compute(&[&[rows, columns]], vec![max, exp, sum, div])
}

pub(crate) fn reduce(rows: usize, columns: usize) -> Compute {
    let x = load(0, &[v(0), v(1)]);
    let sum = Stage::reduction("sum", f32s(&[]), Combiner::Sum, vec![rows, columns], x);
    let root = Stage::map("root", f32s(&[]), Expr::unary(UnOp::Abs, load(1, &[])));
    compute(&[&[rows, columns]], vec![sum, root])
}

pub(crate) fn arg_max(rows: usize, columns: usize) -> Compute {
    let combiner = Combiner::ArgMax { last: false };
    let ty = TensorType::new(DType::I64, [rows]);
    let stage = Stage::reduction("arg", ty, combiner, vec![columns], load(0, &[v(0), v(1)]));
    compute(&[&[rows, columns]], vec![stage])
}

pub(crate) fn transpose(a: usize, b: usize, c: usize) -> Compute {
    let abs = Expr::unary(UnOp::Abs, load(0, &[v(0), v(1), v(2)]));
    let abs = Stage::map("abs", f32s(&[a, b, c]), abs);
    let t = Stage::map("t", f32s(&[c, a, b]), load(1, &[v(1), v(2), v(0)]));
    compute(&[&[a, b, c]], vec![abs, t])
}

pub(crate) fn concat(a: usize, b: usize, columns: usize) -> Compute {
    let (first, second) = (load(0, &[v(0), v(1)]), load(1, &[v(0) - Expr::index(a), v(1)]));
    let body = Expr::select(v(0).lt(Expr::index(a)), first, second);
    let cat = Stage::map("cat", f32s(&[a + b, columns]), body);
    let twice = load(2, &[v(0), v(1)]) * f32c(2.0);
    let twice = Stage::map("twice", f32s(&[a + b, columns]), twice);
    compute(&[&[a, columns], &[b, columns]], vec![cat, twice])
}

/// Small integers as floats, so that sums are exact in any order.
pub(crate) fn inputs(compute: &Compute) -> Vec<Tensor> {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % 9) as f32 - 4.0
    };
    compute
        .inputs
        .iter()
        .enumerate()
        .map(|(i, ty)| match ty.dtype {
            DType::F32 => {
                Tensor::from_slice(&ty.shape, &(0..ty.len()).map(|_| next()).collect::<Vec<f32>>())
            }
            _ => operand(ty, 31 + i as u64),
        })
        .collect()
}

/// Runs `program` with every check and compares with the reference evaluation of `compute`.
pub(crate) fn check_program(compute: &Compute, program: &Program) {
    if let Err(problem) = compare(compute, program) {
        panic!("{problem}\n{program}");
    }
}

pub(crate) fn compare(compute: &Compute, program: &Program) -> Result<(), String> {
    compare_scheduled(compute, &Scheduled { program: program.clone(), packings: vec![] })
}

/// The same with constants in the layouts that the program wants.
pub(crate) fn compare_scheduled(compute: &Compute, scheduled: &Scheduled) -> Result<(), String> {
    verify(&scheduled.program).map_err(|fault| fault.to_string())?;
    let inputs = inputs(compute);
    let expected = interp::eval(compute, &inputs.iter().collect::<Vec<_>>());
    let expected = expected.map_err(|e| e.to_string())?;
    let mut given = inputs.clone();
    for packing in &scheduled.packings {
        let packed = interp::eval(&packing.compute, &[&inputs[packing.param]]);
        given[packing.param] = packed.map_err(|e| format!("packing: {e}"))?.remove(0);
    }
    let found = exec::run(&scheduled.program, &given.iter().collect::<Vec<_>>());
    let found = found.map_err(|e| e.to_string())?;
    for (e, f) in expected.iter().zip(&found) {
        if e.len() != f.len() || e.dtype() != f.dtype() {
            return Err(format!("expected {e:?}, found {f:?}"));
        }
        let scale =
            e.to_f64_vec().iter().filter(|x| x.is_finite()).fold(1.0, |m: f64, x| m.max(x.abs()));
        let close = |(a, b): (f64, f64)| a == b || (a - b).abs() <= 1e-5 * scale;
        if !e.to_f64_vec().into_iter().zip(f.to_f64_vec()).all(close) {
            return Err(format!("expected {e:?}, found {f:?}"));
        }
    }
    Ok(())
}

/// How many candidates a choice of the trace has.
pub(crate) fn candidates(trace: &Trace, step: usize) -> usize {
    match &trace.steps[step] {
        Instruction::SampleCategorical { candidates, .. } => candidates.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naive_programs_agree_with_the_reference() {
        let computes = [
            matmul_bias_relu(5, 7, 3),
            conv(3, 2, 5, 7, 1),
            conv(3, 2, 5, 7, 2),
            softmax(3, 5),
            reduce(3, 5),
            arg_max(3, 5),
            transpose(2, 3, 5),
            concat(3, 2, 4),
        ];
        for c in computes {
            let program = crate::lower("k", &c);
            check_program(&c, &program);
            check_program(&c, &crate::finish(program));
        }
    }
}
