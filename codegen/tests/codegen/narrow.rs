//! Floats that become integers of few bits, and floats again: every machine against the
//! interpreter.

use ansc_codegen::{Listing, Target, compile_program, listing};
use ansc_graph::{Compute, interp};
use ansc_runtime::Tensor;
use ansc_sketch::Task;

use crate::check::{MARKS, Random, marked};
use crate::kernel::{Kernel, runs_here};

const CPUS: [&str; 6] = ["x86-64", "x86-64-v3", "x86-64-v4", "alderlake", "native", "neoverse-n2"];

/// Halves, which round to even; what is beyond every limit; and no numbers.
fn floats(n: usize) -> Tensor {
    let random = &mut Random(5);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -0.3, 3e9, -3e9, 1e20, -1e20];
    let mut float = |i: usize| match random.next() % 4 {
        0 => special[i % special.len()] as f32,
        1 => (random.next() % 700) as f32 / 2.0 - 175.0,
        2 => (random.next() % 200_000) as f32 - 100_000.0,
        _ => (random.unit() * 600.0 - 300.0) as f32,
    };
    Tensor::from_slice(&[n], &(0..n).map(&mut float).collect::<Vec<f32>>())
}

fn check(body: &str, to: &str) {
    let n = 643;
    let text = format!("compute(in0: f32[{n}]) -> y {{ y: {to}[{n}] = {body} }}");
    let compute = Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let given = floats(n);
    let expected = interp::eval(&compute, &[&given]).unwrap();
    for cpu in CPUS {
        let target = Target::parse(cpu).unwrap();
        let machine = target.facts();
        let task = Task::on_cpu("k", &compute, &[false], &machine);
        let plain = MARKS.map(|marks| marked(ansc_sketch::lower("k", &compute), marks));
        for program in plain.into_iter().chain([task.scheduled().program]) {
            if !runs_here(&target) {
                compile_program(&program, "k", &target).unwrap();
                continue;
            }
            let found = Kernel::for_target(&program, &target).run(&[&given]);
            assert_eq!(found[0].bytes(), expected[0].bytes(), "{cpu}: {text}");
        }
    }
}

#[test]
fn conversions_round_and_saturate_alike() {
    for to in ["u8", "i8", "u16", "i16"] {
        for value in ["round(in0[i0])", "in0[i0]", "floor(in0[i0])"] {
            check(&format!("{to}({value})"), to);
            check(&format!("{to}(add({value}, 3.0_f32))"), to);
            check(&format!("{to}(add({value}, -128.0_f32))"), to);
            check(&format!("{to}(add({value}, 0.5_f32))"), to);
        }
    }
}

#[test]
fn what_was_narrow_is_a_float_again() {
    for to in ["u8", "i8", "u16", "i16"] {
        for value in ["round(in0[i0])", "in0[i0]", "max(round(in0[i0]), 2.0_f32)"] {
            check(&format!("f32({to}({value}))"), "f32");
            check(&format!("f32(i32({to}({value})))"), "f32");
            check(&format!("f32(sub({to}({value}), 5_{to}))"), "f32");
            check(&format!("f32(sub(i32({to}(add({value}, 3.0_f32))), 3_i32))"), "f32");
            check(&format!("f32(sub(i32({to}(add({value}, -5.0_f32))), 70_i32))"), "f32");
        }
    }
}

/// One instruction rounds and converts; bytes are packed; and no integer is made of what becomes a
/// float again.
#[test]
fn instructions_of_requantisation() {
    let assembly = |body: &str, to: &str, cpu: &str| {
        let text = format!("compute(in0: f32[64]) -> y {{ y: {to}[64] = {body} }}");
        let compute = Compute::parse(&text).unwrap();
        let target = Target::parse(cpu).unwrap();
        let machine = target.facts();
        let program = Task::on_cpu("k", &compute, &[false], &machine).scheduled().program;
        listing(&program, "k", &target, Listing::Assembly).unwrap()
    };
    let bytes = assembly("u8(add(round(in0[i0]), 3.0_f32))", "u8", "x86-64-v3");
    assert!(bytes.contains("vcvtps2dq") && bytes.contains("vpackuswb"), "{bytes}");
    assert!(!bytes.contains("vroundps") && !bytes.contains("vmaxps"), "{bytes}");
    let back =
        assembly("f32(sub(i32(u8(add(round(in0[i0]), 3.0_f32))), 3_i32))", "f32", "x86-64-v3");
    assert!(back.contains("vroundps") && !back.contains("vcvt"), "{back}");
}
