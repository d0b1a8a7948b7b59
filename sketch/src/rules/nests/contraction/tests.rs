use std::collections::BTreeSet;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::machine::Machine;
use crate::program::Scope;
use crate::rules::Sketch;
use crate::rules::nests::contraction_sketches;
use crate::task::Sums;
use crate::task::Task;
use crate::testing::{candidates, compare_scheduled, task};
use crate::trace::{Decision, Unfit};

/// The name of a form, which of its inputs are constant, and its expression.
const FORMS: [(&str, &[bool], &str); 31] = [
    (
        "product with bias and relu",
        &[false, true, true],
        "compute(in0: f32[60, 40], in1: f32[40, 64], in2: f32[64]) -> y {
          c: f32[60, 64] = sum{r0: 40} mul(in0[i0, r0], in1[r0, i1])
          y: f32[60, 64] = max(add(c[i0, i1], in2[i1]), 0.0_f32)
        }",
    ),
    (
        "product alone",
        &[false, true],
        "compute(in0: f32[60, 40], in1: f32[40, 64]) -> c {
          c: f32[60, 64] = sum{r0: 40} mul(in0[i0, r0], in1[r0, i1])
        }",
    ),
    (
        "ragged rows and columns",
        &[false, true, true],
        "compute(in0: f32[61, 15], in1: f32[15, 117], in2: f32[117]) -> y {
          c: f32[61, 117] = sum{r0: 15} mul(in0[i0, r0], in1[r0, i1])
          y: f32[61, 117] = add(c[i0, i1], in2[i1])
        }",
    ),
    (
        "few columns",
        &[false, true],
        "compute(in0: f32[50, 16], in1: f32[16, 10]) -> c {
          c: f32[50, 10] = sum{r0: 16} mul(in0[i0, r0], in1[r0, i1])
        }",
    ),
    (
        "one row",
        &[false, true],
        "compute(in0: f32[1, 64], in1: f32[64, 100]) -> c {
          c: f32[1, 100] = sum{r0: 64} mul(in0[i0, r0], in1[r0, i1])
        }",
    ),
    (
        "second factor transposed",
        &[false, true],
        "compute(in0: f32[60, 40], in1: f32[72, 40]) -> c {
          c: f32[60, 72] = sum{r0: 40} mul(in0[i0, r0], in1[i1, r0])
        }",
    ),
    (
        "first factor transposed",
        &[false, true],
        "compute(in0: f32[40, 60], in1: f32[40, 72]) -> c {
          c: f32[60, 72] = sum{r0: 40} mul(in0[r0, i0], in1[r0, i1])
        }",
    ),
    (
        "packed at run time",
        &[false, false],
        "compute(in0: f32[60, 40], in1: f32[40, 100]) -> c {
          c: f32[60, 100] = sum{r0: 40} mul(in0[i0, r0], in1[r0, i1])
        }",
    ),
    (
        "packed at run time, transposed, many",
        &[false, false],
        "compute(in0: f32[17, 170], in1: f32[101, 170]) -> c {
          c: f32[17, 101] = sum{r0: 170} mul(in0[i0, r0], in1[i1, r0])
        }",
    ),
    (
        "packed at run time, transposed, of several axes of terms",
        &[false, false],
        "compute(in0: f32[18, 3, 37], in1: f32[83, 3, 37]) -> c {
          c: f32[18, 83] = sum{r0: 37, r1: 3} mul(in0[i0, r1, r0], in1[i1, r1, r0])
        }",
    ),
    (
        "batched, transposed",
        &[false, false],
        "compute(in0: f32[3, 20, 40], in1: f32[3, 52, 40]) -> y {
          c: f32[3, 20, 52] = sum{r0: 40} mul(in0[i0, i1, r0], in1[i0, i2, r0])
          y: f32[3, 20, 52] = max(c[i0, i1, i2], 0.0_f32)
        }",
    ),
    (
        "fewer columns than lanes, transposed",
        &[false, false],
        "compute(in0: f32[70, 36], in1: f32[7, 36]) -> c {
          c: f32[70, 7] = sum{r0: 36} mul(in0[i0, r0], in1[i1, r0])
        }",
    ),
    (
        "two columns, transposed",
        &[false, false],
        "compute(in0: f32[70, 36], in1: f32[2, 36]) -> c {
          c: f32[70, 2] = sum{r0: 36} mul(in0[i0, r0], in1[i1, r0])
        }",
    ),
    (
        "fewer terms than lanes, transposed",
        &[false, false],
        "compute(in0: f32[70, 5], in1: f32[75, 5]) -> c {
          c: f32[70, 75] = sum{r0: 5} mul(in0[i0, r0], in1[i1, r0])
        }",
    ),
    (
        "batched",
        &[false, false],
        "compute(in0: f32[3, 33, 32], in1: f32[3, 32, 49]) -> c {
          c: f32[3, 33, 49] = sum{r0: 32} mul(in0[i0, i1, r0], in1[i0, r0, i2])
        }",
    ),
    (
        "heads of attention, scores",
        &[false, false],
        "compute(in0: f32[49, 96], in1: f32[49, 96]) -> y {
          c: f32[3, 49, 49] = sum{r0: 32} mul(in0[i1, add(mul(i0, 32), r0)], in1[i2, add(mul(i0, 32), r0)])
          y: f32[3, 49, 49] = mul(c[i0, i1, i2], 0.125_f32)
        }",
    ),
    (
        "heads of attention, stored side by side",
        &[false, false],
        "compute(in0: f32[3, 49, 49], in1: f32[3, 49, 32]) -> y {
          c: f32[3, 49, 32] = sum{r0: 49} mul(in0[i0, i1, r0], in1[i0, r0, i2])
          y: f32[49, 3, 32] = c[i1, i0, i2]
        }",
    ),
    (
        "stored transposed",
        &[false, true],
        "compute(in0: f32[48, 40], in1: f32[40, 64]) -> y {
          c: f32[48, 64] = sum{r0: 40} mul(in0[i0, r0], in1[r0, i1])
          y: f32[64, 48] = max(c[i1, i0], 0.0_f32)
        }",
    ),
    (
        "rows numbered",
        &[false, true, true],
        "compute(in0: f32[70, 24], in1: f32[24, 40], in2: f32[40]) -> y {
          c: f32[70, 40] = sum{r0: 24} mul(in0[i0, r0], in1[r0, i1])
          y: f32[2, 5, 7, 40] = max(add(c[add(mul(add(mul(i0, 5), i1), 7), i2), i3], in2[i3]), 0.0_f32)
        }",
    ),
    (
        "convolution, one point",
        &[false, true, true],
        "compute(in0: f32[1, 14, 14, 24], in1: f32[40, 24], in2: f32[40]) -> y {
          c: f32[1, 14, 14, 40] = sum{r0: 24} mul(in0[i0, i1, i2, r0], in1[i3, r0])
          y: f32[1, 14, 14, 40] = max(add(c[i0, i1, i2, i3], in2[i3]), 0.0_f32)
        }",
    ),
    (
        "convolution in few, small rows",
        &[false, true],
        "compute(in0: f32[1, 7, 7, 24], in1: f32[40, 24]) -> c {
          c: f32[1, 7, 7, 40] = sum{r0: 24} mul(in0[i0, i1, i2, r0], in1[i3, r0])
        }",
    ),
    (
        "convolution, padded when read",
        &[false, true],
        "compute(in0: f32[30, 18, 3], in1: f32[3, 3, 3, 24]) -> c {
          c: f32[30, 18, 24] = sum{r0: 3, r1: 3, r2: 3} mul(select(and(and(le(1, add(i0, r0)), lt(add(i0, r0), 31)), and(le(1, add(i1, r1)), lt(add(i1, r1), 19))), in0[sub(add(i0, r0), 1), sub(add(i1, r1), 1), r2], 0.0_f32), in1[r0, r1, r2, i2])
        }",
    ),
    (
        "convolution, stride 2",
        &[false, true, true],
        "compute(in0: f32[30, 30, 5], in1: f32[32, 5, 3, 3], in2: f32[32]) -> y {
          c: f32[14, 14, 32] = sum{r0: 5, r1: 3, r2: 3} mul(in0[add(mul(i0, 2), r1), add(mul(i1, 2), r2), r0], in1[i2, r0, r1, r2])
          y: f32[14, 14, 32] = max(add(c[i0, i1, i2], in2[i2]), 0.0_f32)
        }",
    ),
    (
        "depthwise convolution",
        &[false, true, true],
        "compute(in0: f32[16, 16, 32], in1: f32[3, 3, 32], in2: f32[32]) -> y {
          c: f32[14, 14, 32] = sum{r0: 3, r1: 3} mul(in0[add(i0, r0), add(i1, r1), i2], in1[r0, r1, i2])
          y: f32[14, 14, 32] = min(max(add(c[i0, i1, i2], in2[i2]), 0.0_f32), 6.0_f32)
        }",
    ),
    (
        "groups of channels",
        &[false, true],
        "compute(in0: f32[6, 9, 64], in1: f32[64, 32, 2, 2]) -> c {
          c: f32[5, 8, 64] = sum{r0: 32, r1: 2, r2: 2} mul(in0[add(i0, r1), add(i1, r2), add(mul(floor_div(i2, 32), 32), r0)], in1[i2, r0, r1, r2])
        }",
    ),
    (
        "a map between others",
        &[false, true],
        "compute(in0: f32[64, 48], in1: f32[48, 64]) -> y {
          x: f32[64, 48] = exp(in0[i0, i1])
          c: f32[64, 64] = sum{r0: 48} mul(x[i0, r0], in1[r0, i1])
          y: f32[64, 64] = max(c[i0, i1], 0.0_f32)
        }",
    ),
    (
        "nested sums",
        &[false, true, true, false],
        "compute(in0: f32[5, 6, 8], in1: f32[6, 8, 48], in2: f32[6, 48], in3: f32[5, 6]) -> y {
          part: f32[5, 6, 48] = sum{r0: 8} mul(in0[i0, i1, r0], in1[i1, r0, i2])
          y: f32[5, 48] = sum{r0: 6} mul(add(part[i0, r0, i1], in3[i0, r0]), in2[r0, i1])
        }",
    ),
    (
        "nested sums, ragged, with a map after them",
        &[false, true, true, false, true],
        "compute(in0: f32[31, 6, 9], in1: f32[6, 9, 37], in2: f32[6, 37], in3: f32[31, 6], in4: f32[37]) -> z {
          part: f32[31, 6, 37] = sum{r0: 9} mul(in0[i0, i1, r0], in1[i1, r0, i2])
          y: f32[31, 37] = sum{r0: 6} mul(add(part[i0, r0, i1], in3[i0, r0]), in2[r0, i1])
          z: f32[31, 37] = add(y[i0, i1], in4[i1])
        }",
    ),
    (
        "nested sums, packed at run time",
        &[false, false, false],
        "compute(in0: f32[40, 6, 8], in1: f32[6, 8, 70], in2: f32[6, 70]) -> y {
          part: f32[40, 6, 70] = sum{r0: 8} mul(in0[i0, i1, r0], in1[i1, r0, i2])
          y: f32[40, 70] = sum{r0: 6} mul(add(part[i0, r0, i1], in2[r0, i1]), in2[r0, i1])
        }",
    ),
    (
        "nested sums of two axes of terms, the inner one first",
        &[false, true, true],
        "compute(in0: f32[3, 4, 7, 8], in1: f32[3, 4, 8, 32], in2: f32[4, 3, 32]) -> y {
          part: f32[4, 7, 3, 32] = sum{r0: 8} mul(in0[i2, i0, i1, r0], in1[i2, i0, r0, i3])
          y: f32[7, 32] = sum{r0: 3, r1: 4} mul(part[r1, i0, r0, i1], in2[r1, r0, i1])
        }",
    ),
    (
        "nested sums of integers",
        &[false, true, true, false],
        "compute(in0: i32[21, 4, 8], in1: i32[4, 8, 40], in2: f32[4, 40], in3: i32[21, 4]) -> y {
          part: i32[21, 4, 40] = sum{r0: 8} mul(in0[i0, i1, r0], in1[i1, r0, i2])
          y: f32[21, 40] = sum{r0: 4} mul(f32(add(part[i0, r0, i1], in3[i0, r0])), in2[r0, i1])
        }",
    ),
];

static MACHINES: [Machine; 2] = [Machine::new(32, 16), Machine::new(64, 32)];

fn tasks() -> impl Iterator<Item = (&'static str, Arc<Task>)> {
    let task_of = |(name, constant, text): (&'static str, &[bool], &str), machine: &Machine| {
        let (constant, machine) = (constant.to_vec(), machine.clone());
        (name, Arc::new(Task { constant, machine, ..Task::clone(&task(text)) }))
    };
    let all =
        FORMS.into_iter().flat_map(move |form| MACHINES.iter().map(move |m| task_of(form, m)));
    all.chain(by_blocks()).chain(rewritten())
}

/// Convolutions as Winograd computes them.
fn rewritten() -> impl Iterator<Item = (&'static str, Arc<Task>)> {
    use Algorithm::*;
    let of = |(algorithm, text): (Algorithm, String)| {
        let constant = vec![false, true, true];
        let machine = MACHINES[1].clone();
        let task = Task { constant, machine, ..Task::clone(&task(&text)) };
        let made = algorithm.rewrite(&task).unwrap_or_else(|| panic!("{algorithm} {text}"));
        (algorithm.name(), Arc::new(made.task))
    };
    let all = [
        (Winograd2, convolution([9, 12, 24], 40, 3)),
        (Winograd2, convolution([6, 6, 5], 6, 3)),
        (Winograd2, convolution([8, 6, 1], 16, 3)),
        (Winograd4, convolution([12, 14, 24], 48, 3)),
        (Winograd4, convolution([18, 11, 3], 17, 3)),
        (WinogradLarge, convolution([15, 13, 16], 27, 4)),
        (Winograd4Late, convolution([12, 13, 24], 32, 3)),
    ];
    all.into_iter().map(of)
}

/// Without padding, of `k` channels, with a map that reads it.
fn convolution([h, w, c]: [usize; 3], k: usize, window: usize) -> String {
    let (y, x) = (h + 1 - window, w + 1 - window);
    format!(
        "compute(in0: f32[1, {h}, {w}, {c}], in1: f32[{k}, {c}, {window}, {window}], in2: f32[{k}]) -> y {{
          c: f32[1, {y}, {x}, {k}] = sum{{r0: {c}, r1: {window}, r2: {window}}} mul(in0[i0, add(i1, r1), add(i2, r2), r0], in1[i3, r0, r1, r2])
          y: f32[1, {y}, {x}, {k}] = max(add(c[i0, i1, i2, i3], in2[i3]), 0.0_f32)
        }}"
    )
}

/// Sums of so many terms that they are summed by blocks, where rounding matters.
fn by_blocks() -> impl Iterator<Item = (&'static str, Arc<Task>)> {
    let direct = |(name, text): (&'static str, &str)| {
        let (constant, machine) = (vec![false, true], MACHINES[1].clone());
        let task = Task { constant, machine, sums: Sums::Direct, ..Task::clone(&task(text)) };
        (name, Arc::new(task))
    };
    let product = "compute(in0: f32[9, 256], in1: f32[256, 21]) -> c {
      c: f32[9, 21] = sum{r0: 256} mul(in0[i0, r0], in1[r0, i1])
    }";
    let convolution = "compute(in0: f32[7, 9, 48], in1: f32[16, 48, 3, 3]) -> y {
      c: f32[5, 7, 16] = sum{r0: 3, r1: 3, r2: 48} mul(in0[add(i0, r0), add(i1, r1), r2], in1[i2, r2, r0, r1])
      y: f32[5, 7, 16] = max(c[i0, i1, i2], 0.0_f32)
    }";
    let shared = "compute(in0: f32[6, 40, 5, 7], in1: f32[40, 35, 16]) -> c {
      c: f32[6, 16] = sum{r0: 40, r1: 5, r2: 7} mul(in0[i0, r0, r1, r2], in1[r0, add(mul(r1, 7), r2), i1])
    }";
    // Rows slide along an axis of terms whose place in a block is another one.
    let groups = "compute(in0: f32[9, 11, 10, 32], in1: f32[3, 3, 3, 16, 2]) -> y {
      y: f32[7, 9, 8, 2] = sum{r0: 3, r1: 3, r2: 3, r3: 16} mul(in0[add(i0, r0), add(i1, r1), add(i2, r2), add(mul(i3, 16), r3)], in1[r0, r1, r2, r3, i3])
    }";
    let all = [
        ("by blocks", product),
        ("blocks of a window", convolution),
        ("all of it", shared),
        ("groups of a volume", groups),
    ];
    all.into_iter().map(direct)
}

#[test]
fn contractions_compute_the_same() {
    for (name, task) in tasks() {
        let made = contraction_sketches(&task, None).into_iter().next();
        let (Sketch { trace, .. }, made) = made.unwrap_or_else(|| panic!("{name}: no sketch"));
        compare_scheduled(&task.compute, &made)
            .unwrap_or_else(|e| panic!("{name}: {e}\n{trace}\n{}", made.program));
    }
}

/// Each choice is changed: to its second candidate, one in the middle or the last one, in turn.
#[test]
fn every_choice_of_a_contraction_computes_the_same() {
    let random = &mut crate::rules::fixed_random();
    let mut others = 0;
    // Both machines in turn.
    for (_, (name, task)) in tasks().enumerate().filter(|(i, _)| matches!(i % 4, 0 | 3)) {
        for (Sketch { trace, .. }, first) in contraction_sketches(&task, None) {
            let again = task.sample(&trace, Unfit::Refuse, random).unwrap();
            assert_eq!(again.scheduled, first, "{name}");
            for step in trace.choices() {
                let last = candidates(&trace, step) as i64 - 1;
                if last == 0 {
                    continue;
                }
                let choice = [1, (last / 2).max(1), last][others % 3];
                let trace = trace.clone().decide(step, Decision::Choice(choice));
                let sample = task.sample(&trace, Unfit::Refuse, random);
                let sample = sample.unwrap_or_else(|e| panic!("{name}: {e}\n{trace}"));
                others += 1;
                compare_scheduled(&task.compute, &sample.scheduled)
                    .unwrap_or_else(|e| panic!("{name}: {e}\n{}", sample.trace));
            }
        }
    }
    assert!(others > 50, "{others}");
}

/// One thread copies each panel for itself. Where panels are few for all threads, these copy them
/// together first.
#[test]
fn panels_are_copied_beside_tiles_or_before_them() {
    for (cores, scope) in [(1, Scope::Local), (2, Scope::Local), (8, Scope::Global)] {
        for index in ["r0, i1", "i1, r0"] {
            let shape = if index == "r0, i1" { "40, 500" } else { "500, 40" };
            let text = format!(
                "compute(in0: f32[24, 40], in1: f32[{shape}]) -> c {{
                  c: f32[24, 500] = sum{{r0: 40}} mul(in0[i0, r0], in1[{index}])
                }}"
            );
            let (constant, machine) = (vec![false; 2], MACHINES[1].clone());
            let task = Arc::new(Task { constant, machine, cores, ..Task::clone(&task(&text)) });
            let (_, made) = contraction_sketches(&task, None).swap_remove(0);
            let packed = made.program.buffers.iter().filter(|b| b.name.contains("packed"));
            let scopes: BTreeSet<Scope> = packed.map(|b| b.scope).collect();
            assert_eq!(scopes, BTreeSet::from([scope]), "{cores} {index}\n{}", made.program);
            compare_scheduled(&task.compute, &made).unwrap();
        }
    }
}

const NARROW: &str = "compute(in0: f32[7, 128], in1: u8[33, 64], in2: f32[33, 4]) -> y {
  w: f32[33, 128] = mul(f32(sub(and(shr(i32(in1[i0, floor_div(i1, 2)]), i32(mul(floor_mod(i1, 2), 4))), 15_i32), 8_i32)), in2[i0, floor_div(i1, 32)])
  y: f32[7, 33] = sum{r0: 128} mul(in0[i0, r0], w[i1, r0])
}";

/// Sums of blocks are in registers, and begin with what the zero points of weights add to them.
#[test]
fn a_weight_of_four_bits_is_multiplied_in_one_nest() {
    let constant = vec![false, true, true];
    let whole = Task { constant, ..Task::clone(&task(NARROW)) };
    let task = Arc::new(Algorithm::Narrow.rewrite(&whole).unwrap().task);
    let (Sketch { rules, .. }, made) = contraction_sketches(&task, None).swap_remove(0);
    assert_eq!(rules.iter().filter(|rule| *rule == "contraction").count(), 1);
    let part = made.program.buffers.iter().find(|buffer| buffer.name == "part").unwrap();
    assert_eq!(part.scope, Scope::Local);
    let begins = made.program.blocks().into_iter().find(|block| block.name == "part_init").unwrap();
    assert!(!begins.body.value().loads().is_empty());
    compare_scheduled(&task.compute, &made).unwrap();
}

/// Rows of a depthwise convolution share no panel: panels go inside of many rows, not of few.
#[test]
fn panels_that_no_rows_share_are_inside_of_many_rows() {
    let first_place = |rows: usize| {
        let text = format!(
            "compute(in0: f32[1, {}, 34, 64], in1: f32[3, 3, 64]) -> y {{
              y: f32[1, {rows}, 32, 64] = sum{{r0: 3, r1: 3}} mul(in0[i0, add(i1, r0), add(i2, r1), i3], in1[r0, r1, i3])
            }}",
            rows + 2
        );
        let mut task = Task::clone(&task(&text));
        task.constant = vec![false, true];
        let (sketch, _) = contraction_sketches(&Arc::new(task), None).remove(0);
        let trace = sketch.trace.to_string();
        let place = |first: &str| trace.contains(&format!("sample_categorical({first}"));
        [place("[500, 200]"), place("[200, 500]")]
    };
    assert_eq!(first_place(32), [true, false]);
    assert_eq!(first_place(7), [false, true]);
}
