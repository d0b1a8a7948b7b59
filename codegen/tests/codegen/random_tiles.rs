//! Random products in tiles: the unit for matrices and the loops that stand for its instructions,
//! both against the reference evaluator.
//!
//! `ANSC_TRACES=500 cargo test --release -p ansc-codegen --test codegen random_products` draws so
//! many for each pair of factors; a few are drawn otherwise.

use std::sync::Arc;

use ansc_codegen::Target;
use ansc_graph::{Compute, interp};
use ansc_runtime::Tensor;
use ansc_sketch::Task;
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Machine, Scheduled};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::amx::operand;
use crate::check::{Random, compare, exact, packed};
use crate::kernel::Kernel;

/// Types of factors and of their sum.
const FACTORS: [[&str; 3]; 5] = [
    ["bf16", "bf16", "f32"],
    ["i8", "i8", "i32"],
    ["u8", "i8", "i32"],
    ["i8", "u8", "i32"],
    ["u8", "u8", "i32"],
];

/// A processor without the unit, on which the instructions are loops.
const PLAIN: &str = "x86-64-v3";

#[test]
fn random_products_in_tiles_compute_the_same() {
    let wanted = std::env::var("ANSC_TRACES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for factors in FACTORS {
        let mut random = Random(7);
        let mut held = 0;
        while held < wanted {
            held += usize::from(product_computes_the_same(factors, &mut random));
        }
    }
}

/// Draws a product and a way to compute it in tiles; false if there is none.
fn product_computes_the_same(factors: [&str; 3], random: &mut Random) -> bool {
    let text = product(factors, random);
    let compute = Compute::parse(&text).unwrap();
    let Some(scheduled) = way(&compute, random) else { return false };
    let seeds = compute.inputs.iter().zip(1..);
    let inputs: Vec<Tensor> = seeds.map(|(ty, seed)| operand(ty, seed)).collect();
    let expected = interp::eval(&compute, &inputs.iter().collect::<Vec<_>>()).unwrap();
    let given = packed(&scheduled, &inputs);
    let pieces = 1 + random.next() % 3;
    for target in [Target::native().unwrap(), Target::parse(PLAIN).unwrap()] {
        let kernel = Kernel::for_target(&scheduled.program, &target);
        let found = kernel.run_in(&given.iter().collect::<Vec<_>>(), pieces);
        compare(
            &format!("{}\n{text}\n{}", target.cpu, scheduled.program),
            &found,
            &expected,
            &exact,
        );
    }
    true
}

/// One of the programs with instructions for tiles, if the product has some.
fn way(compute: &Compute, random: &mut Random) -> Option<Scheduled> {
    let mut machine = Machine::new(64, 32);
    (machine.units.amx_bf16, machine.units.amx_int8) = (true, true);
    let is_constant = random.next().is_multiple_of(2);
    let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| i == 1 && is_constant).collect();
    let task = Arc::new(Task {
        cores: 1 + (random.next() % 4) as usize,
        ..Task::on_cpu("k", compute, &constant, &machine)
    });
    let tiled = |sketch: &ansc_sketch::rules::Sketch| {
        sketch.trace.to_string().contains("algorithm(tiles)").then_some(sketch.trace.clone())
    };
    let traces: Vec<_> = task.sketches().iter().filter_map(tiled).collect();
    let rng = &mut StdRng::seed_from_u64(random.next());
    let trace = traces.get(random.next() as usize % traces.len().max(1))?;
    let sample = task.sample(trace, Unfit::Refuse, rng).unwrap();
    sample.scheduled.program.to_string().contains("tensor(").then_some(sample.scheduled)
}

/// A product, a batch of products or a convolution, of many channels or few, of any extents.
fn product([a, b, c]: [&str; 3], random: &mut Random) -> String {
    let mut draw = |low: usize, high: usize| low + random.next() as usize % (high - low + 1);
    let group = if a == "bf16" { 2 } else { 4 };
    let terms = group * draw(2, 40);
    let (rows, columns, batch) = (draw(2, 90), draw(1, 70), draw(1, 3));
    let (window, stride) = (draw(1, 3), draw(1, 3));
    let (high, wide) = (draw(1, 9), draw(2, 20));
    match draw(0, 4) {
        0 => format!(
            "compute(in0: {a}[{rows}, {terms}], in1: {b}[{terms}, {columns}]) -> y {{
               s: {c}[{rows}, {columns}] = sum{{r0: {terms}}} mul({c}(in0[i0, r0]), {c}(in1[r0, i1]))
               y: {c}[{rows}, {columns}] = max(s[i0, i1], {zero})
             }}",
            zero = zero(c),
        ),
        1 => format!(
            "compute(in0: {a}[{rows}, {terms}], in1: {b}[{columns}, {terms}]) -> s {{
               s: {c}[{rows}, {columns}] = sum{{r0: {terms}}} mul({c}(in0[i0, r0]), {c}(in1[i1, r0]))
             }}",
        ),
        2 => format!(
            "compute(in0: {a}[{batch}, {rows}, {terms}], in1: {b}[{batch}, {terms}, {columns}]) -> y {{
               s: {c}[{batch}, {rows}, {columns}] = sum{{r0: {terms}}} mul({c}(in0[i0, i1, r0]), {c}(in1[i0, r0, i2]))
               y: {c}[{batch}, {rows}, {columns}] = neg(s[i0, i1, i2])
             }}",
        ),
        3 => {
            let [in_high, in_wide] = [high, wide].map(|n| (n - 1) * stride + window);
            let terms = group * draw(2, 12);
            format!(
                "compute(in0: {a}[1, {in_high}, {in_wide}, {terms}], in1: {b}[{window}, {window}, {terms}, {columns}]) -> y {{
                   s: {c}[1, {high}, {wide}, {columns}] = sum{{r0: {window}, r1: {window}, r2: {terms}}} mul({c}(in0[i0, add(mul(i1, {stride}), r0), add(mul(i2, {stride}), r1), r2]), {c}(in1[r0, r1, r2, i3]))
                   y: {c}[1, {high}, {wide}, {columns}] = max(s[0, i1, i2, i3], {zero})
                 }}",
                zero = zero(c),
            )
        }
        _ => {
            let (channels, window) = (draw(1, 8), draw(2, 7));
            let [in_high, in_wide] = [high, wide].map(|n| (n - 1) * stride + window);
            let x = format!("add(mul(i1, {stride}), r0), add(mul(i2, {stride}), r1)");
            let (shape, at) = match draw(0, 1) {
                0 => (format!("{in_high}, {in_wide}, {channels}"), format!("{x}, r2")),
                _ => (format!("{channels}, {in_high}, {in_wide}"), format!("r2, {x}")),
            };
            format!(
                "compute(in0: {a}[1, {shape}], in1: {b}[{window}, {window}, {channels}, {columns}]) -> s {{
                   s: {c}[1, {high}, {wide}, {columns}] = sum{{r0: {window}, r1: {window}, r2: {channels}}} mul({c}(in0[i0, {at}]), {c}(in1[r0, r1, r2, i3]))
                 }}",
            )
        }
    }
}

fn zero(ty: &str) -> &'static str {
    if ty == "f32" { "0.0_f32" } else { "0_i32" }
}
