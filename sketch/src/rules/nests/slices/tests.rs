use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::machine::Machine;
use crate::rules::Sketch;
use crate::rules::nests::{every_slice, sliced_sketches};
use crate::task::Sums;
use crate::task::Task;
use crate::testing::{compare_scheduled, task};
use crate::trace::{Decision, Instruction, Trace, Unfit};
use crate::{ForKind, Program, Scope, Stmt};

/// The name of a form, which of its inputs are constant, in how many ways it is cut at least, and
/// its expression.
const FORMS: [(&str, &[bool], usize, &str); 6] = [
    (
        "two products",
        &[false, true, true],
        3,
        "compute(in0: f32[24, 10], in1: f32[10, 20], in2: f32[20, 12]) -> y {
          a: f32[24, 20] = sum{r0: 10} mul(in0[i0, r0], in1[r0, i1])
          b: f32[24, 20] = max(a[i0, i1], 0.0_f32)
          c: f32[24, 12] = sum{r0: 20} mul(b[i0, r0], in2[r0, i1])
          y: f32[24, 12] = exp(c[i0, i1])
        }",
    ),
    (
        "rows that no length divides",
        &[false, true, true],
        1,
        "compute(in0: f32[23, 10], in1: f32[10, 21], in2: f32[21, 11]) -> y {
          a: f32[23, 21] = sum{r0: 10} mul(in0[i0, r0], in1[r0, i1])
          c: f32[23, 11] = sum{r0: 21} mul(a[i0, r0], in2[r0, i1])
          y: f32[23, 11] = add(c[i0, i1], 1.0_f32)
        }",
    ),
    (
        "a result in between",
        &[false, true, true],
        1,
        "compute(in0: f32[2, 6, 8], in1: f32[8, 16], in2: f32[16, 8]) -> b, y {
          a: f32[2, 6, 16] = sum{r0: 8} mul(in0[i0, i1, r0], in1[r0, i2])
          b: f32[2, 6, 16] = max(a[i0, i1, i2], 0.0_f32)
          c: f32[2, 6, 8] = sum{r0: 16} mul(b[i0, i1, r0], in2[r0, i2])
          y: f32[2, 6, 8] = neg(c[i0, i1, i2])
        }",
    ),
    (
        "rows are numbered",
        &[false, true, true],
        1,
        "compute(in0: f32[24, 10], in1: f32[10, 20], in2: f32[20, 12]) -> y {
          a: f32[24, 20] = sum{r0: 10} mul(in0[i0, r0], in1[r0, i1])
          c: f32[24, 12] = sum{r0: 20} mul(a[i0, r0], in2[r0, i1])
          y: f32[4, 6, 12] = exp(c[add(mul(i0, 6), i1), i2])
        }",
    ),
    (
        "a product at the end, tiles of which leave a rest",
        &[false, true, true],
        1,
        "compute(in0: f32[26, 10], in1: f32[10, 20], in2: f32[20, 12]) -> c {
          a: f32[26, 20] = sum{r0: 10} mul(in0[i0, r0], in1[r0, i1])
          c: f32[26, 12] = sum{r0: 20} mul(a[i0, r0], in2[r0, i1])
        }",
    ),
    (
        "attention of two heads for each matrix of keys, which end somewhere",
        &[false; 4],
        2,
        "compute(in0: f32[2, 2, 6, 20], in1: f32[2, 1, 20, 36], in2: f32[2, 1, 36, 12], in3: i64[])
           -> y {
          s: f32[2, 2, 6, 36] = sum{r0: 20} mul(in0[i0, i1, i2, r0], in1[i0, 0, r0, i3])
          m: f32[2, 2, 6, 1] = max{r0: 36} select(lt(r0, in3[]), s[i0, i1, i2, r0], -inf_f32)
          e: f32[2, 2, 6, 36] = exp(sub(s[i0, i1, i2, i3], m[i0, i1, i2, 0]))
          t: f32[2, 2, 6, 1] = sum{r0: 36} select(lt(r0, in3[]), e[i0, i1, i2, r0], 0.0_f32)
          d: f32[2, 2, 6, 36] = div(e[i0, i1, i2, i3], t[i0, i1, i2, 0])
          p: f32[2, 2, 6, 36] = select(lt(i3, in3[]), d[i0, i1, i2, i3], 0.0_f32)
          y: f32[2, 2, 6, 12] = sum{r0: 36} mul(p[i0, i1, i2, r0], in2[i0, 0, r0, i3])
        }",
    ),
];

fn tasks() -> impl Iterator<Item = (&'static str, usize, Arc<Task>)> {
    FORMS.into_iter().map(|(name, constant, cuts, text)| {
        let (constant, machine) = (constant.to_vec(), Machine::new(16, 16));
        let task = Task { constant, machine, ..Task::clone(&task(text)) };
        (name, cuts, Arc::new(task))
    })
}

/// Every nest is under one loop, and what stands between nests is in the slice. Before it there are
/// only copies of operands in panels.
fn is_one_loop(program: &Program) -> bool {
    let is_panels = |b: &crate::Buffer| b.scope == Scope::Global && b.name.ends_with("_packed");
    let is_local = |b: &crate::Buffer| b.scope != Scope::Global || is_panels(b);
    let Some((Stmt::For(last), copies)) = program.body.split_last() else { return false };
    let copies_panels = |s: &Stmt| {
        let mut all = true;
        s.visit_blocks(&mut |block| {
            let written = block.body.writes();
            all &= written.iter().all(|w| is_panels(program.buffer(w.buffer)));
        });
        all
    };
    last.kind == ForKind::Parallel
        && copies.iter().all(copies_panels)
        && program.buffers.iter().all(is_local)
}

fn candidates(trace: &Trace, step: usize) -> usize {
    match &trace.steps[step] {
        Instruction::SampleCategorical { candidates, .. } => candidates.len(),
        _ => 0,
    }
}

/// Slices of every length, and every other choice of each.
#[test]
fn every_choice_computes_the_same() {
    let random = &mut crate::rules::fixed_random();
    let mut decided = 0;
    for (name, cuts, task) in tasks() {
        let all = every_slice(&task, None);
        assert!(all.len() >= cuts, "{name}: {}", all.len());
        for made in all {
            let (Sketch { trace, .. }, first) = made.unwrap_or_else(|| panic!("{name}"));
            assert!(is_one_loop(&first.program), "{name}: {}", first.program);
            let again = task.sample(&trace, Unfit::Refuse, random).unwrap();
            assert_eq!(again.scheduled, first, "{name}");
            for step in trace.choices() {
                for choice in 0..candidates(&trace, step) {
                    let trace = trace.clone().decide(step, Decision::Choice(choice as i64));
                    let sample = task.sample(&trace, Unfit::Refuse, random);
                    let sample = sample.unwrap_or_else(|e| panic!("{name}: {e}\n{trace}"));
                    compare_scheduled(&task.compute, &sample.scheduled)
                        .unwrap_or_else(|e| panic!("{name}: {e}\n{}", sample.trace));
                    decided += 1;
                }
            }
        }
    }
    assert!(decided > 200, "{decided}");
}

const LARGE: &str = "compute(in0: f32[512, 64], in1: f32[64, 512], in2: f32[512, 64]) -> y {
  a: f32[512, 512] = sum{r0: 64} mul(in0[i0, r0], in1[r0, i1])
  b: f32[512, 512] = max(a[i0, i1], 0.0_f32)
  y: f32[512, 64] = sum{r0: 512} mul(b[i0, r0], in2[r0, i1])
}";

/// The bytes between stages decide: less than the cache keeps is not cut.
#[test]
fn slices_are_cut_where_that_pays() {
    let of = |text: &str| {
        let constant = vec![false, true, true];
        let task = Task { constant, machine: Machine::new(64, 32), ..Task::clone(&task(text)) };
        sliced_sketches(&Arc::new(task), None)
    };
    let sketch = &of(LARGE)[0].0;
    assert_eq!(sketch.rules, ["slices", "contraction", "contraction"]);
    let slices = sketch.trace.steps.iter().find(|step| step.name() == "slice").unwrap();
    assert!(sketch.trace.choices().len() > 5, "{slices}");
    assert!(of(&LARGE.replace("512", "128")).is_empty());
}

/// A map stores rows that no length divides, and its last slice reaches beyond them.
#[test]
fn rows_of_a_prime_number_are_cut() {
    let text = LARGE.replace("512", "521");
    let machine = Machine::new(64, 32);
    let task = Arc::new(Task { constant: vec![false; 3], machine, ..Task::clone(&task(&text)) });
    let (sketch, made) = sliced_sketches(&task, None).swap_remove(0);
    assert_eq!(sketch.rules, ["slices", "contraction", "contraction"]);
    let step = |name: &str| sketch.trace.steps.iter().any(|step| step.name() == name);
    assert!(step("cache_write") && is_one_loop(&made.program), "{}", sketch.trace);
    compare_scheduled(&task.compute, &made).unwrap_or_else(|e| panic!("{e}\n{}", made.program));
}

/// Keys that go along terms, in slices of every length.
#[test]
fn panels_of_slices_compute_the_same() {
    let text =
        "compute(in0: f32[3, 2, 21, 20], in1: f32[3, 1, 36, 20], in2: f32[3, 1, 36, 12]) -> y {
      s: f32[3, 2, 21, 36] = sum{r0: 20} mul(in0[i0, i1, i2, r0], in1[i0, 0, i3, r0])
      e: f32[3, 2, 21, 36] = max(s[i0, i1, i2, i3], 0.0_f32)
      y: f32[3, 2, 21, 12] = sum{r0: 36} mul(e[i0, i1, i2, r0], in2[i0, 0, r0, i3])
    }";
    let mut packed = 0;
    for machine in [Machine::new(16, 16), Machine::new(64, 32)] {
        let constant = vec![false; 3];
        let task = Arc::new(Task { constant, machine, ..Task::clone(&task(text)) });
        for (_, made) in every_slice(&task, None).into_iter().flatten() {
            assert!(is_one_loop(&made.program), "{}", made.program);
            compare_scheduled(&task.compute, &made)
                .unwrap_or_else(|e| panic!("{e}\n{}", made.program));
            packed += usize::from(made.program.to_string().contains("in1_packed: f32[3, "));
        }
    }
    assert!(packed > 2, "{packed}");
}

/// Products of halves in slices of every length: pairs of what slices do not make are there before.
#[test]
fn pairs_of_slices_compute_the_same() {
    let text = "compute(in0: bf16[3, 21, 20], in1: bf16[3, 90, 20], in2: bf16[3, 90, 12]) -> y {
      s: f32[3, 21, 90] = sum{r0: 20} mul(f32(in0[i0, i1, r0]), f32(in1[i0, i2, r0]))
      p: bf16[3, 21, 90] = bf16(select(lt(0.0_f32, s[i0, i1, i2]), 1.5_f32, -0.25_f32))
      y: f32[3, 21, 12] = sum{r0: 90} mul(f32(p[i0, i1, r0]), f32(in2[i0, r0, i2]))
    }";
    let mut packed = 0;
    for mut machine in [Machine::new(16, 16), Machine::new(64, 32)] {
        machine.units.bf16 = true;
        let constant = vec![false; 3];
        let task = Arc::new(Task { constant, machine, ..Task::clone(&task(text)) });
        for (_, made) in every_slice(&task, Some(Algorithm::DotBf16)).into_iter().flatten() {
            let program = made.program.to_string();
            compare_scheduled(&task.compute, &made).unwrap_or_else(|e| panic!("{e}\n{program}"));
            packed += usize::from(program.contains("pairs_packed: i32[3, "));
        }
    }
    assert!(packed > 2, "{packed}");
}

/// Attention is cut along rows of a head, whose keys are packed before; rows are one nest.
#[test]
fn attention_is_cut_along_rows() {
    let text = "compute(in0: f32[8, 512, 64], in1: f32[8, 512, 64], in2: f32[8, 512, 64]) -> y {
      s: f32[8, 512, 512] = sum{r0: 64} mul(in0[i0, i1, r0], in1[i0, i2, r0])
      m: f32[8, 512, 1] = max{r0: 512} s[i0, i1, r0]
      e: f32[8, 512, 512] = exp(sub(s[i0, i1, i2], m[i0, i1, 0]))
      t: f32[8, 512, 1] = sum{r0: 512} e[i0, i1, r0]
      p: f32[8, 512, 512] = div(e[i0, i1, i2], t[i0, i1, 0])
      y: f32[8, 512, 64] = sum{r0: 512} mul(p[i0, i1, r0], in2[i0, r0, i2])
    }";
    let machine = Machine::new(64, 32);
    let task = Arc::new(Task { constant: vec![false; 3], machine, ..Task::clone(&task(text)) });
    let (sketch, made) = sliced_sketches(&task, None).swap_remove(0);
    assert_eq!(sketch.rules, ["slices", "contraction", "rows", "contraction"]);
    assert!(made.program.to_string().contains("in1_packed: f32[8, "), "{}", made.program);
    assert!(is_one_loop(&made.program), "{}", made.program);
    let slices = sketch.trace.steps.iter().find(|step| step.name() == "slice").unwrap();
    assert!(slices.to_string().starts_with("slice([1, "), "{slices}");
    assert_eq!(task.choice().unwrap().sketch.rules[0], "slices");
}

/// Convolutions of a network's size, by each algorithm that has stages to cut.
#[test]
fn convolutions_of_winograd_are_cut() {
    let text = "compute(in0: f32[1, 58, 58, 64], in1: f32[64, 64, 3, 3], in2: f32[64]) -> y {
      c: f32[1, 56, 56, 64] = sum{r0: 64, r1: 3, r2: 3} mul(in0[i0, add(i1, r1), add(i2, r2), r0], in1[i3, r0, r1, r2])
      y: f32[1, 56, 56, 64] = max(add(c[i0, i1, i2, i3], in2[i3]), 0.0_f32)
    }";
    let constant = vec![false, true, true];
    let machine = Machine::new(64, 32);
    let task = Arc::new(Task { constant, machine, sums: Sums::Any, ..Task::clone(&task(text)) });
    for by in [Algorithm::Winograd2, Algorithm::Winograd4] {
        let sketches = sliced_sketches(&task, Some(by));
        let (sketch, made) = &sketches[0];
        assert_eq!(sketch.rules[..4], ["slices", "transform", "contraction", "transform"], "{by}");
        assert!(is_one_loop(&made.program), "{}", made.program);
    }
}
