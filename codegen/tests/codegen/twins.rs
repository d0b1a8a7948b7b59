//! Pieces that do the same elsewhere: which have their code once, and that each computes what its
//! program says.

use ansc_codegen::{Listing, Target, listing};
use ansc_graph::{Compute, interp};
use ansc_runtime::Tensor;
use ansc_sketch::algorithm::Algorithm;
use ansc_sketch::{Program, Task, exec};

use crate::amx::operand;
use crate::check::{Random, compare, exact, filled, packed};
use crate::kernel::Kernel;

/// The second nest reads and writes elsewhere, by way of a buffer of its own.
const TWINS: &str = "program k
x: f32[40] input
w: f32[2] input
y: f32[2, 16] output
s: f32[16] global
t: f32[16] global
params x, w, y
for i in 0..4 parallel {
  for j in 0..4 {
    block a (v: spatial 16 = add(mul(i, 4), j)) {
      s[v] = mul(w[0], x[v])
    }
  }
}
for k in 0..4 parallel {
  for l in 0..4 {
    block b (u: spatial 16 = add(mul(k, 4), l)) {
      t[u] = mul(w[1], x[add(u, 21)])
    }
  }
}
for m in 0..16 parallel {
  block c () {
    y[0, m] = s[m]
  }
}
for n in 0..16 parallel {
  block d () {
    y[1, n] = t[n]
  }
}
";

fn program(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// How many of the program's pieces call another one, on a processor of this kind.
fn calls(program: &Program, cpu: &str) -> usize {
    let target = Target::parse(cpu).unwrap();
    let assembly = listing(program, "k", &target, Listing::Assembly).unwrap();
    let is_call = |line: &&str| {
        let mut words = line.split_whitespace();
        let branches = ["call", "callq", "jmp", "bl", "b"];
        branches.contains(&words.next().unwrap_or("")) && words.any(|to| to.starts_with("k_"))
    };
    assembly.lines().filter(is_call).count()
}

fn computes_the_same(program: &Program) {
    let inputs = program.params.iter().map(|&b| program.buffer(b));
    let inputs: Vec<Tensor> = inputs
        .filter(|b| b.scope == ansc_sketch::Scope::Input)
        .map(|b| filled(&b.ty, &mut Random(7), |_, random| random.unit()))
        .collect();
    let given: Vec<&Tensor> = inputs.iter().collect();
    let expected = exec::run(program, &given).unwrap();
    for pieces in [1, 3] {
        compare("k", &Kernel::new(program).run_in(&given, pieces), &expected, &exact);
    }
}

#[test]
fn nests_that_differ_in_places_have_their_code_once() {
    let program = program(TWINS);
    for cpu in ["x86-64-v3", "aarch64"] {
        assert_eq!(calls(&program, cpu), 2, "{cpu}");
    }
    computes_the_same(&program);
}

/// Code relies on all but the place: extents, strides, operations, guards.
#[test]
fn nests_that_differ_otherwise_have_code_of_their_own() {
    for (from, to) in [
        ("x[add(u, 21)]", "x[mul(u, 2)]"),
        ("mul(w[1], x[add(u, 21)])", "add(w[1], x[add(u, 21)])"),
        ("mul(w[1], x[add(u, 21)])", "mul(x[add(u, 21)], w[1])"),
        ("x[add(u, 21)]", "x[sub(15, u)]"),
        ("x[add(u, 21)]", "select(lt(u, 9), x[add(u, 21)], x[u])"),
        ("for l in 0..4", "for l in 0..4 unrolled"),
    ] {
        assert!(TWINS.contains(from), "{from}");
        let program = program(&TWINS.replace(from, to));
        assert!(calls(&program, "x86-64-v3") <= 1, "{from} {to}");
        computes_the_same(&program);
    }
}

/// Workspace begins at whole lines, which code relies on.
#[test]
fn places_in_workspace_are_whole_lines_apart() {
    for (distance, shared) in [(16, 2), (20, 0)] {
        let text = TWINS.replace("s: f32[16] global\nt: f32[16]", "s: f32[36]");
        let text = text.replace("t[u]", &format!("s[add(u, {distance})]"));
        let program = program(&text.replace("t[n]", &format!("s[add(n, {distance})]")));
        assert_eq!(calls(&program, "x86-64-v3"), shared, "{distance}");
        computes_the_same(&program);
    }
}

/// The same nest twice is one function.
#[test]
fn equal_nests_are_one_function() {
    let again = TWINS.replace("t[u] = mul(w[1], x[add(u, 21)])", "s[u] = mul(w[0], x[u])");
    let again = again.replace("y[1, n] = t[n]", "y[1, n] = s[n]");
    let program = program(&again);
    assert_eq!(calls(&program, "x86-64-v3"), 1);
    computes_the_same(&program);
}

/// Taps inside of an image: their nests are of a few kinds, by where the image ends.
#[test]
fn taps_share_code() {
    let compute = Compute::parse(
        "compute(in0: f32[1, 16, 16, 16], in1: f32[3, 3, 16, 24]) -> y {
          p: f32[1, 28, 28, 16] = select(and(and(le(6, i1), lt(i1, 22)), and(le(6, i2), lt(i2, 22))), in0[i0, sub(i1, 6), sub(i2, 6), i3], 0.0_f32)
          y: f32[1, 16, 16, 24] = sum{r0: 3, r1: 3, r2: 16} mul(p[i0, add(i1, mul(r0, 6)), add(i2, mul(r1, 6)), r2], in1[r0, r1, r2, i3])
        }",
    )
    .unwrap();
    let native = Target::native().unwrap();
    let machine = native.facts();
    let task = Task::on_cpu("k", &compute, &[false, true], &machine);
    let scheduled = task.scheduled_as(Some(Algorithm::Inside));
    let shared = calls(&scheduled.program, "native");
    assert!(shared >= 4, "{shared} of {}", scheduled.program);

    let inputs: Vec<Tensor> =
        compute.inputs.iter().zip(1..).map(|(ty, seed)| operand(ty, seed)).collect();
    let expected = interp::eval(&compute, &inputs.iter().collect::<Vec<_>>()).unwrap();
    let given = packed(&scheduled, &inputs);
    let found = Kernel::new(&scheduled.program).run_in(&given.iter().collect::<Vec<_>>(), 2);
    compare("taps", &found, &expected, &exact);
}
