use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::{DType, Tensor};

use super::*;
use crate::lower::lower;

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn v(i: usize) -> Expr {
    Expr::var(i)
}

fn innermost(stmts: &mut [Stmt]) -> &mut For {
    let Stmt::For(l) = &mut stmts[0] else { panic!("a loop") };
    if matches!(l.body[0], Stmt::For(_)) { innermost(&mut l.body) } else { l }
}

fn matmul() -> Compute {
    let body = Expr::load(0, vec![v(0), v(2)]) * Expr::load(1, vec![v(2), v(1)]);
    let stage = Stage::reduction("mm", f32s(&[2, 2]), Combiner::Sum, vec![3], body);
    Compute::single(vec![f32s(&[2, 3]), f32s(&[3, 2])], stage)
}

fn operands() -> [Tensor; 2] {
    [
        Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]),
        Tensor::from_slice(&[3, 2], &[1f32, 0.0, 0.0, 1.0, 1.0, 1.0]),
    ]
}

#[test]
fn a_matrix_product() {
    let [a, b] = operands();
    let results = run(&lower("mm", &matmul()), &[&a, &b]).unwrap();
    assert_eq!(results[0].as_slice::<f32>(), [4.0, 5.0, 10.0, 11.0]);
}

#[test]
fn arg_max_takes_the_first_of_equals() {
    let body = Expr::load(0, vec![v(0), v(1)]);
    let ty = TensorType::new(DType::I64, [2]);
    let run_with = |last| {
        let combiner = Combiner::ArgMax { last };
        let stage = Stage::reduction("am", ty.clone(), combiner, vec![3], body.clone());
        let compute = Compute::single(vec![f32s(&[2, 3])], stage);
        let inf = f32::NEG_INFINITY;
        let x = Tensor::from_slice(&[2, 3], &[1f32, 7.0, 7.0, inf, inf, inf]);
        run(&lower("am", &compute), &[&x]).unwrap().remove(0).to_i64_vec().unwrap()
    };
    assert_eq!(run_with(false), [1, 0]);
    assert_eq!(run_with(true), [2, 2]);
}

#[test]
fn an_empty_reduction_is_the_identity() {
    let body = Expr::load(0, vec![v(0), v(1)]);
    let stage = Stage::reduction("s", f32s(&[2]), Combiner::Max, vec![0], body);
    let program = lower("s", &Compute::single(vec![f32s(&[2, 0])], stage));
    let x = Tensor::zeros(DType::F32, &[2, 0]);
    assert_eq!(run(&program, &[&x]).unwrap()[0].as_slice::<f32>(), [f32::NEG_INFINITY; 2]);
}

#[test]
fn reads_out_of_bounds_are_found() {
    let stage = Stage::map("m", f32s(&[2]), Expr::load(0, vec![v(0) + Expr::int(1)]));
    let program = lower("m", &Compute::single(vec![f32s(&[2])], stage));
    let x = Tensor::zeros(DType::F32, &[2]);
    let error = run(&program, &[&x]).unwrap_err();
    assert!(matches!(error, ExecError::OutOfBounds { indices, .. } if indices == [2]));
}

#[test]
fn guarded_reads_are_not_done() {
    let guard = v(0).lt(Expr::int(1));
    let load = Expr::load(0, vec![v(0) + Expr::int(1)]);
    let body = Expr::select(guard, load, Expr::float(DType::F32, 9.0));
    let program = lower("m", &Compute::single(vec![f32s(&[2])], Stage::map("m", f32s(&[2]), body)));
    let x = Tensor::from_slice(&[2], &[1f32, 2.0]);
    assert_eq!(run(&program, &[&x]).unwrap()[0].as_slice::<f32>(), [2.0, 9.0]);
}

#[test]
fn a_parallel_reduction_is_a_race() {
    let mut program = lower("mm", &matmul());
    finish::decompose_inits(&mut program);
    let [a, b] = operands();
    let Stmt::For(rows) = &mut program.body[0] else { panic!("a loop") };
    innermost(&mut rows.body).kind = ForKind::Parallel;
    assert!(run(&program, &[&a, &b]).is_ok(), "the assignment of zero is parallel over columns");
    let mut program = lower("mm", &matmul());
    innermost(&mut program.body).kind = ForKind::Parallel;
    assert!(matches!(run(&program, &[&a, &b]), Err(ExecError::Race { .. })));
}

#[test]
fn local_values_do_not_outlive_their_loop() {
    let mut compute = Compute { inputs: vec![f32s(&[4])], stages: vec![], outputs: vec![1] };
    compute.push(Stage::map("t", f32s(&[4]), Expr::load(0, vec![v(0)])));
    compute.push(Stage::map("u", f32s(&[4]), Expr::load(1, vec![v(0)])));
    let mut program = lower("k", &compute);
    let x = Tensor::from_slice(&[4], &[1f32, 2.0, 3.0, 4.0]);
    program.buffers[1].scope = Scope::Local;
    assert_eq!(run(&program, &[&x]).unwrap()[0], x);

    // Reading the element of the iteration before finds nothing when each has its own copy.
    let Stmt::For(mut second) = program.body.remove(1) else { panic!("a loop") };
    let Stmt::For(first) = &mut program.body[0] else { panic!("a loop") };
    let Stmt::Block(mut block) = second.body.remove(0) else { panic!("a block") };
    block.iters[0].binding = Expr::Var(first.var);
    first.body.push(Stmt::Block(block));
    assert_eq!(run(&program, &[&x]).unwrap()[0], x);
    let Stmt::For(l) = &mut program.body[0] else { panic!("a loop") };
    let Stmt::Block(block) = &mut l.body[1] else { panic!("a block") };
    let Body::Assign { value: Expr::Load(_, at), .. } = &mut block.body else { panic!("a load") };
    at[0] = (at[0].clone() - Expr::int(1)).max(Expr::int(0));
    assert!(matches!(run(&program, &[&x]), Err(ExecError::Uninitialised { .. })));
}

#[test]
fn results_must_be_complete_and_inputs_fit() {
    let [a, b] = operands();
    let mut program = lower("mm", &matmul());
    assert!(matches!(run(&program, &[&a]), Err(ExecError::InputCount { .. })));
    let short = Tensor::from_slice(&[1], &[0.0_f32]);
    assert!(matches!(run(&program, &[&short, &b]), Err(ExecError::Input { index: 0, .. })));
    let Stmt::For(l) = &mut program.body[0] else { panic!("a loop") };
    l.extent = 1;
    assert!(matches!(run(&program, &[&a, &b]), Err(ExecError::Incomplete { .. })));
}
