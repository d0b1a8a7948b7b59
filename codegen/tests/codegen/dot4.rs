//! Sums of products of four bytes, or of two words: every machine's instructions against the
//! interpreter.

use ansc_codegen::{Listing, Target, compile_program, listing};
use ansc_graph::{BinOp, Combiner, Compute, Expr, Stage, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::{Program, Task};

use crate::check::{MARKS, Random, compare, exact, marked};
use crate::kernel::{Kernel, runs_here};

/// x86 processors: without instructions for it, with those for products of 16 bits of each width,
/// and with those for bytes. Then those of ARM, whose results `tests/aarch64` looks at.
const CPUS: [&str; 9] = [
    "x86-64",
    "x86-64-v3",
    "x86-64-v4",
    "alderlake",
    "cascadelake",
    "znver5",
    "native",
    "cortex-a76",
    "neoverse-n2",
];

fn bytes(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let random = &mut Random(seed);
    let ty = TensorType::new(dtype, shape);
    let mut byte = || match random.next() % 8 {
        0 => 0,
        1 => 127,
        2 => 128,
        3 => 255,
        _ => (random.next() % 256) as u8,
    };
    let all: Vec<u8> = (0..ty.bytes()).map(|_| byte()).collect();
    let mut tensor = Tensor::zeros(dtype, shape);
    tensor.bytes_mut().copy_from_slice(&all);
    tensor
}

fn words(n: usize) -> TensorType {
    TensorType::new(DType::I32, [n])
}

/// `y[i] = sum{k} dot4(a[k, i], b[k])`, or the same of words, the right side or the left one the
/// same in all lanes. With a mask, `a & mask` is what is multiplied.
fn sums(dot: BinOp, n: usize, turned: bool, mask: Option<i64>) -> Compute {
    let a = Expr::load(0, vec![Expr::var(1), Expr::var(0)]);
    let b = Expr::load(1, vec![Expr::var(1)]);
    let body = if turned { [b, a] } else { [a, b] };
    let [a, b] = body;
    let a = mask.map_or(a.clone(), |mask| a.and(Expr::float(DType::I32, mask as f64)));
    let body = Expr::binary(dot, a, b);
    let stage = Stage::reduction("y", words(n), Combiner::Sum, vec![5], body);
    Compute::single(vec![TensorType::new(DType::I32, [5, n]), words(5)], stage)
}

#[test]
fn every_width_on_every_machine() {
    for cpu in CPUS {
        let target = Target::parse(cpu).unwrap();
        let sizes = [(16, false), (16, true), (8, false), (8, true), (4, false), (3, true)];
        // Seven bits fit every instruction; the last mask leaves eight in one byte.
        let masks = [None, Some(0x7f7f_7f7f), Some(0x0f0f_0f0f), Some(0x7fff_7f7f)];
        let masks = masks.map(|mask| (BinOp::Dot4, mask)).into_iter().chain([(BinOp::Dot2, None)]);
        for ((dot, mask), (n, turned)) in masks.flat_map(|m| sizes.map(|size| (m, size))) {
            let compute = sums(dot, n, turned, mask);
            let inputs = [bytes(DType::I32, &[5, n], 1), bytes(DType::I32, &[5], 2)];
            let given: Vec<&Tensor> = inputs.iter().collect();
            let expected = interp::eval(&compute, &given).unwrap();
            for marks in MARKS {
                let program = marked(ansc_sketch::lower("k", &compute), marks);
                if !runs_here(&target) {
                    compile_program(&program, "k", &target).unwrap();
                    continue;
                }
                let found = Kernel::for_target(&program, &target).run_in(&given, 1);
                compare(
                    &format!("{cpu} {} {n} {mask:?} {marks:?}", dot.name()),
                    &found,
                    &expected,
                    &exact,
                );
            }
        }
    }
}

/// A product of matrices of bytes as an untuned compile makes it; its second operand is a constant.
fn product(target: &Target, n: usize) -> (Program, [Tensor; 2], Vec<Tensor>) {
    let at = |input, i, j| {
        Expr::cast(DType::U8, DType::I32, Expr::load(input, vec![Expr::var(i), Expr::var(j)]))
    };
    let (a, b) = (TensorType::new(DType::U8, [18, 72]), TensorType::new(DType::I8, [72, n]));
    let ty = TensorType::new(DType::I32, [18, n]);
    let stage = Stage::reduction("y", ty, Combiner::Sum, vec![72], at(0, 0, 2) * at(1, 2, 1));
    let compute = Compute::single(vec![a, b], stage);
    let inputs = [bytes(DType::U8, &[18, 72], 3), bytes(DType::I8, &[72, n], 4)];
    let expected = interp::eval(&compute, &[&inputs[0], &inputs[1]]).unwrap();
    let machine = target.facts();
    let constant = vec![false, true];
    let task = Task::on_cpu("k", &compute, &constant, &machine);
    let scheduled = task.scheduled();
    let packing = &scheduled.packings[0];
    let packed = interp::eval(&packing.compute, &[&inputs[1]]).unwrap().remove(0);
    assert_eq!(packed.dtype(), DType::I32);
    // A program may know operands and results by fewer axes: it is the same memory.
    let program = scheduled.program;
    let packed = packed.reshaped(&program.buffer(program.params[1]).ty.shape);
    let [a, _] = inputs;
    (program, [a, packed], expected)
}

#[test]
fn products_of_bytes_on_every_machine() {
    for cpu in CPUS.into_iter().chain(["aarch64"]) {
        let target = Target::parse(cpu).unwrap();
        // Whole vectors, one of four lanes, and a scalar; and one column, whose terms are in
        // vectors.
        for n in [53, 1] {
            let (program, [a, b], expected) = product(&target, n);
            if !runs_here(&target) {
                compile_program(&program, "k", &target).unwrap();
                continue;
            }
            let found = Kernel::for_target(&program, &target).run(&[&a, &b]);
            let found = found.into_iter().zip(&expected).map(|(y, e)| y.reshaped(e.shape()));
            compare(&format!("{cpu} {n}"), &found.collect::<Vec<_>>(), &expected, &exact);
        }
    }
}

/// ARM multiplies by instructions of its own: one for each vector, or, without `i8mm`, one more for
/// each vector of the weight.
#[test]
fn instructions_of_arm() {
    for (cpu, instruction) in [("neoverse-n2", "usdot"), ("cortex-a76", "sdot")] {
        let (program, ..) = product(&Target::parse(cpu).unwrap(), 48);
        let assembly =
            listing(&program, "k", &Target::parse(cpu).unwrap(), Listing::Assembly).unwrap();
        assert!(assembly.contains(instruction), "{cpu}\n{assembly}");
        assert!(!assembly.contains("mul\tv") && !assembly.contains("mla\tv"), "{cpu}\n{assembly}");
    }
}

/// One instruction for each vector of a register tile, and one load for the four bytes of a row.
#[test]
fn instructions_of_a_tile() {
    for (cpu, instruction, others) in [
        ("cascadelake", "vpdpbusd", ["vpaddd", "vpmulld"]),
        ("alderlake", "vpdpbusd", ["vpaddd", "vpmulld"]),
        ("x86-64-v3", "vpmaddwd", ["vpmaddubsw", "vpmulld"]),
    ] {
        let target = Target::parse(cpu).unwrap();
        let (program, ..) = product(&target, 48);
        let assembly = listing(&program, "k", &target, Listing::Assembly).unwrap();
        assert!(assembly.contains(instruction), "{cpu}\n{assembly}");
        assert!(assembly.contains("vpbroadcastd"), "{cpu}\n{assembly}");
        for other in others.into_iter().chain(["movzb", "vpinsrb"]) {
            assert!(!assembly.contains(other), "{cpu}: {other}\n{assembly}");
        }
    }
}
