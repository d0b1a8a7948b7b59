//! Large results that are written past the caches.

use ansc_codegen::{Listing, Target, listing};
use ansc_graph::ops::concat::concat;
use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::DType;
use ansc_sketch::{Task, lower};

use crate::check::{Marks, Random, compare, exact, filled, marked};
use crate::kernel::Kernel;

fn doubled(rows: usize) -> Compute {
    let text = format!(
        "compute(in0: f32[{rows}, 1024]) -> y {{ y: f32[{rows}, 1024] = add(in0[i0, i1], in0[i0, i1]) }}"
    );
    Compute::parse(&text).unwrap()
}

#[test]
fn large_results_arrive_wherever_they_begin() {
    let compute = doubled(4096);
    let input = filled(&compute.inputs[0], &mut Random(1), |_, random| random.unit());
    let expected = interp::eval(&compute, &[&input]).unwrap();
    let kernel = Kernel::new(&marked(lower("k", &compute), Marks::Vector));
    for shift in [0, 1, 4, 16] {
        let found = kernel.run_at(&[&input], 3, shift);
        compare(&format!("from element {shift}"), &found, &expected, &exact);
    }
}

/// Stores past the caches are followed by a fence; results that caches hold are stored as ever.
#[test]
fn only_large_results_pass_the_caches() {
    let target = Target::parse("x86-64-v4").unwrap();
    for (rows, is_streamed) in [(4096, true), (64, false)] {
        let program = marked(lower("k", &doubled(rows)), Marks::Vector);
        let assembly = listing(&program, "k", &target, Listing::Assembly).unwrap();
        for word in ["vmovntps", "sfence"] {
            assert_eq!(assembly.contains(word), is_streamed, "{rows} {word}\n{assembly}");
        }
    }
}

/// Each side of a join writes half of some lines, long before the other one comes there.
#[test]
fn parts_of_lines_pass_no_cache_if_others_write_the_rest() {
    let side = TensorType::new(DType::F32, [1 << 17, 24]);
    let join = concat(&[side.clone(), side], 1).unwrap();
    for (cpu, whole, half) in [("x86-64-v3", false, false), ("x86-64-v4", true, false)] {
        let target = Target::parse(cpu).unwrap();
        let task = Task::on_cpu("k", &join.expr, &[false; 2], &target.facts());
        let program = task.scheduled().program;
        let assembly = listing(&program, "k", &target, Listing::Assembly).unwrap();
        let streams = |register: &str| {
            let mut lines = assembly.lines();
            lines.any(|line| line.contains("vmovntps") && line.contains(register))
        };
        assert_eq!([streams("%zmm"), streams("%ymm")], [whole, half], "{cpu}\n{assembly}");
    }
}
