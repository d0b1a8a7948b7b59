//! Functions of one byte, by lookups: every machine against the interpreter.

use ansc_codegen::{Listing, Target, compile_program, listing};
use ansc_graph::{Compute, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::Task;

use crate::check::{MARKS, compare, marked, relative};
use crate::kernel::{Kernel, runs_here};

/// Without bytes in registers, with them, and an ARM.
const CPUS: [&str; 6] =
    ["x86-64", "x86-64-v3", "x86-64-v4", "icelake-server", "native", "neoverse-n2"];

/// `gelu`, dequantised before and quantised after it.
fn gelu(byte: &str, to: &str) -> String {
    let x = format!("mul(f32(sub(i32({byte}), 140_i32)), 0.0355_f32)");
    let gelu = format!("mul({x}, add(erf(div({x}, 1.4142135_f32)), 1.0_f32))");
    match to {
        "f32" => gelu,
        _ => format!("{to}(add(round(div({gelu}, 0.0667_f32)), 10.0_f32))"),
    }
}

fn program(compute: &Compute, target: &Target) -> ansc_sketch::Program {
    let machine = target.facts();
    Task::on_cpu("k", compute, &[false], &machine).scheduled().program
}

/// Results have the bits of the interpreter's, which makes the tables.
fn check(input: &str, body: &str, to: &str) {
    let n = 83;
    let text = format!("compute(in0: {input}[{n}]) -> y {{ y: {to}[{n}] = {body} }}");
    let compute = Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let ty = &compute.inputs[0];
    let mut given = Tensor::zeros(ty.dtype, &[n]);
    match ty.dtype {
        DType::F32 => (0..n).for_each(|i| given.as_mut_slice::<f32>()[i] = i as f32 - 300.5),
        _ => (0..n).for_each(|i| given.bytes_mut()[i] = (i * 7) as u8),
    }
    let expected = interp::eval(&compute, &[&given]).unwrap();
    for cpu in CPUS {
        let target = Target::parse(cpu).unwrap();
        let plain = MARKS.map(|marks| marked(ansc_sketch::lower("k", &compute), marks));
        for program in plain.into_iter().chain([program(&compute, &target)]) {
            if !runs_here(&target) {
                compile_program(&program, "k", &target).unwrap();
                continue;
            }
            let found = Kernel::for_target(&program, &target).run(&[&given]);
            if to == "f32" {
                // Few lanes are computed, and `1 + erf(x)` may be a difference of numbers near one.
                let close = |f: f64, e: f64| relative(1e-4)(f, e) || (f - e).abs() <= 1e-6;
                compare(&format!("{cpu}: {text}"), &found, &expected, &close);
            } else {
                assert_eq!(found[0].bytes(), expected[0].bytes(), "{cpu}: {text}");
            }
        }
    }
}

#[test]
fn lookups_are_what_was_computed() {
    for to in ["u8", "i8", "f32", "i32"] {
        check("u8", &gelu("in0[i0]", to), to);
        check("i8", &gelu("in0[i0]", to), to);
        check("f32", &gelu("u8(round(div(in0[i0], 3.0_f32)))", to), to);
    }
    // Two functions of one byte in a sum with something else.
    let both = format!("add({}, in0[i0])", gelu("u8(round(in0[i0]))", "f32"));
    check("f32", &both, "f32");
}

#[test]
fn instructions_of_lookups() {
    let text = format!("compute(in0: u8[640]) -> y {{ y: u8[640] = {} }}", gelu("in0[i0]", "u8"));
    let compute = Compute::parse(&text).unwrap();
    for (cpu, picks) in [("icelake-server", true), ("x86-64-v4", false), ("x86-64-v3", false)] {
        let target = Target::parse(cpu).unwrap();
        let assembly =
            listing(&program(&compute, &target), "k", &target, Listing::Assembly).unwrap();
        assert_eq!(assembly.contains("vpermi2b") || assembly.contains("vpermt2b"), picks);
        assert!(!assembly.contains("vdivps"), "{cpu}: {assembly}");
    }
    // Less than a lookup takes.
    let cheap = "compute(in0: u8[640]) -> y { y: f32[640] = mul(f32(in0[i0]), 0.5_f32) }";
    let target = Target::parse("icelake-server").unwrap();
    let program = program(&Compute::parse(cheap).unwrap(), &target);
    let assembly = listing(&program, "k", &target, Listing::Assembly).unwrap();
    assert!(assembly.contains("vmulps") && !assembly.contains("2b"), "{assembly}");
}
