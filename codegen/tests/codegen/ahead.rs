//! Operands that are fetched ahead: which listings have prefetches, and that what is computed stays
//! the same.

use std::sync::Arc;

use ansc_codegen::{Listing, Target, listing};
use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::{Program, Task};

use crate::check::{Random, compare, exact, filled};
use crate::kernel::Kernel;

/// Processors, and their instructions.
const CPUS: [(&str, &str); 3] =
    [("x86-64-v3", "prefetcht1"), ("x86-64-v4", "prefetcht1"), ("aarch64", "prfm\tpldl2keep")];

fn f32s(shape: [usize; 2]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn at(input: usize, i: usize, j: usize) -> Expr {
    Expr::load(input, vec![Expr::var(i), Expr::var(j)])
}

/// `y[i, j] = sum[k] a[i, k] * b[k, j]`
fn product([m, k, n]: [usize; 3]) -> Compute {
    let body = at(0, 0, 2) * at(1, 2, 1);
    let stage = Stage::reduction("y", f32s([m, n]), Combiner::Sum, vec![k], body);
    Compute::single(vec![f32s([m, k]), f32s([k, n])], stage)
}

/// The same, and `x[i, j]` added to it.
fn residual(extents: [usize; 3]) -> Compute {
    let [m, _, n] = extents;
    let mut compute = product(extents);
    compute.inputs.push(f32s([m, n]));
    let sum = Expr::Load(compute.stage_buffer(0), vec![Expr::var(0), Expr::var(1)]);
    compute.push(Stage::map("z", f32s([m, n]), sum + at(2, 0, 1)));
    compute.outputs = vec![1];
    compute
}

/// `s[i] = max[j] x[i, j]`, `q[i] = sum[j] (x[i, j] - s[i])^2`, `y[i, j] = x[i, j] - q[i]`
fn normalised([rows, columns]: [usize; 2]) -> Compute {
    let of_rows = || TensorType::new(DType::F32, [rows]);
    let most = Stage::reduction("s", of_rows(), Combiner::Max, vec![columns], at(0, 0, 1));
    let mut compute = Compute::single(vec![f32s([rows, columns])], most);
    let of_row = |buffer| Expr::Load(buffer, vec![Expr::var(0)]);
    let apart = at(0, 0, 1) - of_row(compute.stage_buffer(0));
    let squares = apart.clone() * apart;
    compute.push(Stage::reduction("q", of_rows(), Combiner::Sum, vec![columns], squares));
    let value = at(0, 0, 1) - of_row(compute.stage_buffer(1));
    compute.push(Stage::map("y", f32s([rows, columns]), value));
    compute.outputs = vec![2];
    compute
}

/// As an untuned compile makes it, and what becomes of `b` if that is a constant.
fn untuned(compute: &Compute, target: &Target, constant: bool) -> (Program, Option<Compute>) {
    let machine = target.facts();
    let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| i == 1 && constant).collect();
    let task = Arc::new(Task::on_cpu("k", compute, &constant, &machine));
    let scheduled = task.scheduled();
    let packing = scheduled.packings.first().map(|p| p.compute.clone());
    (scheduled.program, packing)
}

/// Prefetches in the assembly of a program.
fn fetches(compute: &Compute, constant: bool, (cpu, instruction): (&str, &str)) -> usize {
    let target = Target::parse(cpu).unwrap();
    let (program, _) = untuned(compute, &target, constant);
    let text = listing(&program, "k", &target, Listing::Assembly).unwrap();
    text.matches(instruction).count()
}

#[test]
fn panels_of_large_operands_are_fetched() {
    for cpu in CPUS {
        assert!(fetches(&product([16, 256, 512]), true, cpu) > 0, "{cpu:?}");
        // Operands that are small, that are read once, and that do not lie in panels.
        assert_eq!(fetches(&product([64, 64, 64]), true, cpu), 0, "{cpu:?}");
        assert_eq!(fetches(&product([1, 512, 512]), true, cpu), 0, "{cpu:?}");
        assert_eq!(fetches(&product([16, 256, 512]), false, cpu), 0, "{cpu:?}");
    }
}

#[test]
fn what_is_added_to_a_sum_is_fetched() {
    for cpu in CPUS {
        // A tile has at least as many lines as rows.
        assert!(fetches(&residual([512, 64, 128]), true, cpu) >= 4, "{cpu:?}");
        assert_eq!(fetches(&residual([64, 64, 128]), true, cpu), 0, "{cpu:?}");
    }
}

#[test]
fn rows_that_are_read_again_are_fetched() {
    // The loop goes through two rows together, and each has its own prefetch of the next and of
    // what is written.
    let short = normalised([64, 768]);
    for cpu in ["x86-64-v3", "x86-64-v4"] {
        assert!(fetches(&short, false, (cpu, "prefetcht0")) >= 4, "{cpu}");
    }
    assert!(fetches(&short, false, ("aarch64", "pstl1keep")) >= 2);
    // Rows that stay in the nearest cache, and rows so long that what is fetched would not.
    assert_eq!(fetches(&normalised([8, 768]), false, ("x86-64-v3", "prefetcht0")), 0);
    assert_eq!(fetches(&normalised([64, 4096]), false, ("x86-64-v3", "prefetcht0")), 0);
}

#[test]
fn what_is_computed_stays_the_same() {
    let target = Target::native().unwrap();
    let all = [
        product([16, 256, 512]),
        product([37, 300, 530]),
        residual([512, 64, 128]),
        residual([301, 200, 203]),
        normalised([64, 768]),
        normalised([102, 771]),
    ];
    for compute in all {
        let number = |_: usize, random: &mut Random| (random.unit() * 16.0).trunc();
        let seeds = compute.inputs.iter().zip(1..);
        let inputs: Vec<Tensor> =
            seeds.map(|(ty, seed)| filled(ty, &mut Random(seed), number)).collect();
        let expected = interp::eval(&compute, &inputs.iter().collect::<Vec<_>>()).unwrap();
        let (program, packing) = untuned(&compute, &target, true);
        let mut given = inputs.clone();
        if let Some(packing) = packing {
            given[1] = interp::eval(&packing, &[&inputs[1]]).unwrap().remove(0);
        }
        let found = Kernel::new(&program).run_in(&given.iter().collect::<Vec<_>>(), 3);
        compare(&format!("{:?}", compute.inputs), &found, &expected, &exact);
    }
}
