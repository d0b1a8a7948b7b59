use std::sync::Arc;

use ansc_graph::{Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::*;
use crate::exec::run;
use crate::gpu::{GpuLimits, Step};
use crate::program::{Block, Body};
use crate::task::Task;
use crate::testing::*;
use crate::tree;

fn lowered(compute: &Compute) -> GpuProgram {
    let limits = GpuLimits::default();
    Arc::new(Task::on_gpu("k", compute, &limits)).untuned_on_gpu(&limits).unwrap().0
}

/// The program without its barrier number `which`, or `None` if it has fewer.
fn without_barrier(gpu: &GpuProgram, which: usize) -> Option<GpuProgram> {
    fn drop_from(steps: &mut Vec<Step>, left: &mut usize) -> bool {
        for i in 0..steps.len() {
            if steps[i] == Step::Barrier && *left == 0 {
                steps.remove(i);
                return true;
            }
            *left -= usize::from(steps[i] == Step::Barrier);
            if let Step::Loop(l) = &mut steps[i]
                && drop_from(&mut l.body, left)
            {
                return true;
            }
        }
        false
    }
    let (mut gpu, mut left) = (gpu.clone(), which);
    gpu.kernels.iter_mut().any(|k| drop_from(&mut k.body, &mut left)).then_some(gpu)
}

fn each_block(gpu: &mut GpuProgram, f: &mut impl FnMut(&mut Block)) {
    fn go(steps: &mut [Step], f: &mut impl FnMut(&mut Block)) {
        for step in steps {
            match step {
                Step::Loop(l) => go(&mut l.body, f),
                Step::Run(stmt) | Step::Fetch(stmt) => {
                    tree::visit_blocks_mut(std::slice::from_mut(stmt), f);
                }
                Step::Barrier | Step::Commit | Step::Arrive(_) => {}
            }
        }
    }
    gpu.kernels.iter_mut().for_each(|k| go(&mut k.body, f));
}

fn is_race(error: &ExecError) -> bool {
    matches!(error, ExecError::Race { .. } | ExecError::Uninitialised { .. })
}

#[test]
fn a_missing_barrier_of_a_large_grid_is_found_by_a_few_blocks() {
    for compute in [matmul_bias_relu(4096, 4096, 64), conv(64, 64, 224, 224, 1)] {
        let gpu = lowered(&compute);
        let blocks = gpu.kernels[0].blocks();
        let watched = watch(&gpu, Blocks::Sampled).unwrap_or_else(|e| panic!("{e}\n{gpu}"));
        assert!(blocks >= 512 && watched.blocks <= 40, "{watched:?} of {blocks}\n{gpu}");
        assert_eq!(watched.by_value, 0, "{gpu}");
        let mut barriers = 0;
        while let Some(broken) = without_barrier(&gpu, barriers) {
            let found = watch(&broken, Blocks::Sampled);
            assert!(
                matches!(found, Err(ExecError::Race { .. })),
                "{barriers}: {found:?}\n{broken}"
            );
            barriers += 1;
        }
        assert!(barriers > 0, "{gpu}");
    }
}

/// All workloads, with and without each of their barriers: the verdict is that of the interpreter.
#[test]
fn verdicts_are_those_of_a_full_run() {
    let (mut races, mut clean) = (0, 0);
    let workloads = [
        ("matmul", matmul_bias_relu(40, 70, 30)),
        ("small matmul", matmul_bias_relu(13, 11, 7)),
        ("long matmul", matmul_bias_relu(4, 4, 600)),
        ("conv", conv(8, 5, 9, 9, 1)),
        ("strided conv", conv(16, 8, 14, 14, 2)),
        ("softmax", softmax(7, 100)),
        ("long softmax", softmax(2, 700)),
        ("reduce", reduce(5, 300)),
        ("long reduce", reduce(2, 1000)),
        ("arg max", arg_max(3, 50)),
        ("transpose", transpose(3, 17, 35)),
        ("concat", concat(2, 3, 40)),
    ];
    for (name, compute) in workloads {
        let gpu = lowered(&compute);
        let given = inputs(&compute);
        let given: Vec<_> = given.iter().collect();
        let broken = (0..).map_while(|i| without_barrier(&gpu, i));
        for gpu in std::iter::once(gpu.clone()).chain(broken) {
            let (found, expected) = (watch(&gpu, Blocks::All), run(&gpu.checked_form(), &given));
            assert_eq!(found.is_ok(), expected.is_ok(), "{name}: {found:?}, {expected:?}\n{gpu}");
            assert!(found.as_ref().err().is_none_or(is_race), "{name}: {found:?}\n{gpu}");
            *if found.is_ok() { &mut clean } else { &mut races } += 1;
        }
    }
    assert!(races >= 10 && clean >= 10, "{races} races, {clean} clean");
}

/// Only the last blocks of the grid have a tail.
#[test]
fn a_missing_guard_is_found() {
    let mut gpu = lowered(&matmul_bias_relu(1000, 1000, 20));
    watch(&gpu, Blocks::Sampled).unwrap();
    each_block(&mut gpu, &mut |block| block.predicate = None);
    let error = watch(&gpu, Blocks::Sampled).unwrap_err();
    let found = matches!(error, ExecError::OutOfBounds { .. } | ExecError::Iterator { .. });
    assert!(found, "{error}\n{gpu}");
}

#[test]
fn a_sum_that_begins_with_nothing_is_found() {
    let mut gpu = lowered(&matmul_bias_relu(256, 256, 64));
    each_block(&mut gpu, &mut |block| {
        if let Body::Assign { value: Expr::Const(_), .. } = &block.body {
            block.predicate = Some(Expr::bool(false));
        }
    });
    let error = watch(&gpu, Blocks::Sampled).unwrap_err();
    assert!(matches!(error, ExecError::Uninitialised { .. }), "{error}\n{gpu}");
}

#[test]
fn indices_from_data_are_run_on_zeros() {
    let at = TensorType::new(DType::I64, [1000]);
    let gather = |shift| {
        let row = load(1, &[v(0)]) + Expr::int(shift);
        let body = load(0, &[row, v(1)]);
        let stage = Stage::map("g", f32s(&[1000, 64]), body);
        lowered(&Compute::single(vec![f32s(&[50, 64]), at.clone()], stage))
    };
    let watched = watch(&gather(0), Blocks::Sampled).unwrap();
    assert_eq!((watched.kernels, watched.by_value), (1, 1));
    let error = watch(&gather(50), Blocks::Sampled).unwrap_err();
    assert!(matches!(error, ExecError::OutOfBounds { .. }), "{error}");
}

/// Both ways of a branch on data are taken, unless one leads out of bounds.
#[test]
fn branches_on_data() {
    let x = || load(0, &[v(0)]);
    let zero = || Expr::float(DType::F32, 0.0);
    let next = || load(0, &[v(0) + Expr::int(1)]);
    let inside = || v(0).lt(Expr::int(99));
    let verdict = |condition| {
        let stage = Stage::map("y", f32s(&[100]), Expr::select(condition, next(), x()));
        let gpu = lowered(&Compute::single(vec![f32s(&[100])], stage));
        watch(&gpu, Blocks::Sampled).map(|watched| watched.by_value)
    };
    assert_eq!(verdict(inside()), Ok(0));
    assert_eq!(verdict(inside().and(x().lt(zero()))), Ok(0));
    assert_eq!(verdict(x().lt(zero())), Ok(1));
    assert!(matches!(verdict(x().le(zero())), Err(ExecError::OutOfBounds { .. })));
}

/// The second kernel reads where the first one found something: zeros would lead it out of bounds.
#[test]
fn indices_from_an_earlier_kernel() {
    let found = load(1, &[v(0)]) + Expr::int(5);
    let first = Stage::map("at", TensorType::new(DType::I64, [100]), found);
    let second = Stage::map("y", f32s(&[100]), load(0, &[load(2, &[v(0)]) - Expr::int(5)]));
    let inputs = vec![f32s(&[100]), TensorType::new(DType::I64, [100])];
    let compute = Compute { inputs, stages: vec![first, second], outputs: vec![0, 1] };
    let gpu = lowered(&compute);
    assert_eq!(gpu.kernels.len(), 2, "{gpu}");
    assert_eq!(watch(&gpu, Blocks::Sampled).map(|watched| watched.by_value), Ok(1));
}
