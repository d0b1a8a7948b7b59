//! Products in tiles: the unit for matrices, where there is one, against the interpreter; and the
//! loops that stand for its instructions elsewhere.

use ansc_codegen::{Listing, Target, compile_program, listing};
use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::Task;
use ansc_sketch::{Machine, Scheduled};

use crate::check::{Random, compare, exact, packed};
use crate::kernel::Kernel;

/// Processors with the unit, and with vectors alone.
const CPUS: [&str; 4] = ["native", "sapphirerapids", "x86-64-v4", "x86-64-v3"];

/// Whole blocks of tiles; tails of rows and columns; windows with strides; blocks of rows that
/// leave a smaller one; bytes.
const PRODUCTS: [&str; 5] = [
    "compute(in0: bf16[64, 64], in1: bf16[64, 96], in2: f32[96]) -> y {
      s: f32[64, 96] = sum{r0: 64} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      y: f32[64, 96] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: bf16[37, 40], in1: bf16[40, 41]) -> s {
      s: f32[37, 41] = sum{r0: 40} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
    }",
    "compute(in0: bf16[1, 17, 19, 8], in1: bf16[3, 3, 8, 24]) -> y {
      s: f32[1, 8, 9, 24] = sum{r0: 3, r1: 3, r2: 8} mul(f32(in0[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2]), f32(in1[r0, r1, r2, i3]))
      y: bf16[1, 8, 9, 24] = bf16(s[i0, i1, i2, i3])
    }",
    "compute(in0: bf16[1, 9, 9, 32], in1: bf16[3, 3, 32, 512]) -> s {
      s: f32[1, 7, 7, 512] = sum{r0: 3, r1: 3, r2: 32} mul(f32(in0[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
    }",
    "compute(in0: u8[30, 128], in1: i8[128, 32]) -> y {
      s: i32[30, 32] = sum{r0: 128} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
      y: f32[30, 32] = mul(f32(s[i0, i1]), 0.5_f32)
    }",
];

/// Small whole numbers, so that sums are exact in any order; bytes of any value.
pub(crate) fn operand(ty: &TensorType, seed: u64) -> Tensor {
    let random = &mut Random(seed);
    let mut tensor = Tensor::zeros(ty.dtype, &ty.shape);
    match ty.dtype {
        DType::F32 => tensor.as_mut_slice::<f32>().iter_mut().for_each(|x| {
            *x = (random.next() % 9) as f32 - 4.0;
        }),
        DType::BF16 => tensor.as_mut_slice::<half::bf16>().iter_mut().for_each(|x| {
            *x = half::bf16::from_f32((random.next() % 9) as f32 - 4.0);
        }),
        _ => tensor.bytes_mut().iter_mut().for_each(|x| *x = (random.next() % 256) as u8),
    }
    tensor
}

/// The product for a machine with units, whatever the target is.
pub(crate) fn in_tiles(text: &str, target: &Target) -> (Compute, Scheduled) {
    let compute = Compute::parse(text).unwrap();
    let mut machine = Machine::new(target.vector_bytes, target.vector_registers);
    (machine.units.amx_bf16, machine.units.amx_int8) = (true, true);
    let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| i == 1).collect();
    let task = Task::on_cpu("k", &compute, &constant, &machine);
    (compute, task.scheduled())
}

#[test]
fn products_in_tiles_on_every_machine() {
    let native = Target::native().unwrap();
    for cpu in CPUS {
        let target = Target::parse(cpu).unwrap();
        for (n, text) in PRODUCTS.into_iter().enumerate() {
            let (compute, scheduled) = in_tiles(text, &target);
            assert!(scheduled.program.to_string().contains("tensor("), "{}", scheduled.program);
            if !target.features.iter().all(|f| native.has(f)) {
                compile_program(&scheduled.program, "k", &target).unwrap();
                continue;
            }
            let inputs: Vec<Tensor> =
                compute.inputs.iter().zip(1..).map(|(ty, seed)| operand(ty, seed)).collect();
            let expected = interp::eval(&compute, &inputs.iter().collect::<Vec<_>>()).unwrap();
            let given = packed(&scheduled, &inputs);
            let kernel = Kernel::for_target(&scheduled.program, &target);
            for pieces in [1, 2] {
                let found = kernel.run_in(&given.iter().collect::<Vec<_>>(), pieces);
                compare(&format!("{cpu} {n}"), &found, &expected, &exact);
            }
        }
    }
}

/// Tiles are configured once for a launch, sums stay in them, and a block loads each tile once.
#[test]
fn instructions_of_a_block() {
    let target = Target::parse("sapphirerapids").unwrap();
    let (_, scheduled) = in_tiles(PRODUCTS[0], &target);
    let assembly = listing(&scheduled.program, "k", &target, Listing::Assembly).unwrap();
    let count = |word: &str| assembly.lines().filter(|line| line.contains(word)).count();
    let counts = ["ldtilecfg", "tilerelease", "tdpbf16ps", "tileloadd", "tilestored", "tilezero"];
    assert_eq!(counts.map(count), [1, 1, 4, 4, 4, 4], "{assembly}");
}

/// A last tile of fewer rows, or a last block of fewer tiles, has a configuration of its own.
#[test]
fn tails_of_rows_are_tiles_too() {
    for product in [PRODUCTS[1], PRODUCTS[3]] {
        both_in_tiles(product);
    }
}

fn both_in_tiles(product: &str) {
    let target = Target::parse("sapphirerapids").unwrap();
    let (_, scheduled) = in_tiles(product, &target);
    let assembly = listing(&scheduled.program, "k", &target, Listing::Assembly).unwrap();
    let count = |word: &str| assembly.lines().filter(|line| line.contains(word)).count();
    assert_eq!(count("ldtilecfg"), 2, "{assembly}");
    assert_eq!(count("tdpbf16ps"), count("tilezero"), "{assembly}");
}

fn lines_with(text: &str, word: &str) -> usize {
    let target = Target::parse("sapphirerapids").unwrap();
    let (_, scheduled) = in_tiles(text, &target);
    let assembly = listing(&scheduled.program, "k", &target, Listing::Assembly).unwrap();
    assembly.lines().filter(|line| line.contains(word)).count()
}

/// Each step of a sum keeps the adders of vectors awake.
#[test]
fn steps_of_sums_have_an_addition() {
    assert_eq!(lines_with(PRODUCTS[0], "%ymm15, %ymm15, %ymm15"), 1);
}

fn product_of(terms: usize, residual: &str) -> String {
    let added = if residual.is_empty() { "0.0_f32" } else { "in2[i0, i1]" };
    format!(
        "compute(in0: bf16[128, {terms}], in1: bf16[{terms}, 512]{residual}) -> y {{
          s: f32[128, 512] = sum{{r0: {terms}}} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
          y: f32[128, 512] = add(s[i0, i1], {added})
        }}"
    )
}

/// Rows that are added to a block of 32 by 32 sums have two lines each.
#[test]
fn tiles_fetch_what_is_added_to_them() {
    let [alone, added] =
        ["", ", in2: f32[128, 512]"].map(|r| lines_with(&product_of(64, r), "prefetch"));
    assert!(added >= alone + 32, "{alone}, {added}");
}

/// Panels of 32 columns: of 512 terms they are small, of 16,384 the cache holds one.
#[test]
fn panels_that_fill_the_cache_are_not_fetched_ahead() {
    assert_ne!(lines_with(&product_of(512, ""), "prefetch"), 0);
    assert_eq!(lines_with(&product_of(16384, ""), "prefetch"), 0);
}
