//! Operands that are fetched ahead: which listings have prefetches, and that what is computed stays the same.

use std::sync::Arc;

use ansc_codegen::{Listing, Target, listing};
use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::default::Machine;
use ansc_sketch::{Program, Task};

use crate::check::{Random, compare, exact, filled};
use crate::kernel::Kernel;

fn f32s(shape: [usize; 2]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// `y[i, j] = sum[k] a[i, k] * b[k, j]`
fn product([m, k, n]: [usize; 3]) -> Compute {
    let at = |input, i, j| Expr::load(input, vec![Expr::var(i), Expr::var(j)]);
    let body = at(0, 0, 2) * at(1, 2, 1);
    let stage = Stage::reduction("y", f32s([m, n]), Combiner::Sum, vec![k], body);
    Compute::single(vec![f32s([m, k]), f32s([k, n])], stage)
}

/// As an untuned compile makes it, and what becomes of `b` if that is a constant.
fn default_program(
    compute: &Compute,
    target: &Target,
    constant: bool,
) -> (Program, Option<Compute>) {
    let machine = Machine { vector_bytes: target.vector_bytes, registers: target.vector_registers };
    let (name, compute, constant) = ("k".into(), compute.clone(), vec![false, constant]);
    let task = Arc::new(Task { name, compute, constant, machine, cores: 1, gpu: None });
    let scheduled = task.default_schedule();
    let packing = scheduled.packings.first().map(|p| p.compute.clone());
    (scheduled.program, packing)
}

#[test]
fn large_operands_are_fetched_ahead() {
    for (cpu, instruction) in
        [("x86-64-v3", "prefetcht1"), ("x86-64-v4", "prefetcht1"), ("aarch64", "prfm\tpldl2keep")]
    {
        let target = Target::parse(cpu).unwrap();
        let fetches = |extents, constant| {
            let (program, _) = default_program(&product(extents), &target, constant);
            listing(&program, "k", &target, Listing::Assembly).unwrap().contains(instruction)
        };
        assert!(fetches([16, 256, 512], true), "{cpu}");
        // Operands that are small, that are read once, and that do not lie in panels.
        assert!(!fetches([64, 64, 64], true), "{cpu}");
        assert!(!fetches([1, 512, 512], true), "{cpu}");
        assert!(!fetches([16, 256, 512], false), "{cpu}");
    }
}

#[test]
fn products_stay_the_same() {
    let target = Target::native().unwrap();
    for extents in [[16, 256, 512], [37, 300, 530]] {
        let compute = product(extents);
        let number = |_, random: &mut Random| (random.unit() * 16.0).trunc();
        let inputs = [0, 1].map(|i| filled(&compute.inputs[i], &mut Random(i as u64 + 1), number));
        let [a, b] = &inputs;
        let expected = interp::eval(&compute, &[a, b]).unwrap();
        let (program, packing) = default_program(&compute, &target, true);
        let packed: Option<Tensor> =
            packing.map(|packing| interp::eval(&packing, &[b]).unwrap().remove(0));
        let found = Kernel::new(&program).run_in(&[a, packed.as_ref().unwrap_or(b)], 3);
        compare(&format!("{extents:?}"), &found, &expected, &exact);
    }
}
