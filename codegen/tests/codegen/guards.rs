//! Conditions that a loop asks once for all that is under it.

use ansc_runtime::Tensor;
use ansc_sketch::{Program, exec};

use crate::check::{Random, compare, exact, filled};
use crate::kernel::Kernel;

/// Rows of a convolution with padding above, below and at both sides.
const ROWS: &str = "program k
x: f32[4, 6] input
w: f32[3, 3] input
y: f32[4, 6] output
s: f32[6] local
params x, w, y
for i in 0..4 parallel {
  for j in 0..6 unrolled {
    block start (v: spatial 6 = j) {
      s[v] = 0.0_f32
    }
  }
  for r in 0..3 {
    for q in 0..3 unrolled {
      for k in 0..6 unrolled {
        block sum (vi: spatial 4 = i, vk: spatial 6 = k, vr: reduce 3 = r, vq: reduce 3 = q) {
          s[vk] sum= mul(select(and(and(le(1, add(vi, vr)), lt(add(vi, vr), 5)), and(le(1, add(vk, vq)), lt(add(vk, vq), 7))), x[sub(add(vi, vr), 1), sub(add(vk, vq), 1)], 0.0_f32), w[vr, vq])
        }
      }
    }
  }
  for l in 0..6 unrolled {
    block end (ui: spatial 4 = i, ul: spatial 6 = l) {
      y[ui, ul] = s[ul]
    }
  }
}
";

fn parsed(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn inputs(program: &Program) -> [Tensor; 2] {
    let fill = |b: usize| {
        let ty = &program.buffers[b].ty;
        filled(ty, &mut Random(b as u64 + 3), |_, random| (8.0 * random.unit()).round())
    };
    [fill(0), fill(1)]
}

#[test]
fn rows_of_padding_are_passed_over() {
    for text in [ROWS.to_owned(), ROWS.replace("for r in 0..3 {", "for r in 0..3 unrolled {")] {
        let program = parsed(&text);
        let [x, w] = inputs(&program);
        let expected = exec::run(&program, &[&x, &w]).unwrap();
        compare("rows", &Kernel::new(&program).run(&[&x, &w]), &expected, &exact);
        // Padding adds nothing, whatever its weight: the first row of results meets the first row
        // of weights nowhere else.
        let mut weights = w.as_slice::<f32>().to_vec();
        weights[..3].fill(f32::NAN);
        let w = Tensor::from_slice(&[3, 3], &weights);
        let found = Kernel::new(&program).run(&[&x, &w]).remove(0);
        let is_known: Vec<bool> =
            found.as_slice::<f32>().chunks(6).map(|row| row.iter().all(|y| !y.is_nan())).collect();
        assert_eq!(is_known, [true, false, false, false], "{text}");
    }
}

/// Another block under the loop may have something to do where the sum has nothing.
#[test]
fn nothing_is_passed_over_for_others() {
    let other = "    block other (oi: spatial 4 = i, or: spatial 3 = r) {
      t[oi, or] = x[oi, or]
    }
    for q in 0..3 unrolled {";
    let text = ROWS
        .replace("y: f32[4, 6] output", "y: f32[4, 6] output\nt: f32[4, 3] output")
        .replace("params x, w, y", "params x, w, y, t")
        .replace("    for q in 0..3 unrolled {", other);
    let program = parsed(&text);
    let [x, w] = inputs(&program);
    let expected = exec::run(&program, &[&x, &w]).unwrap();
    compare("others", &Kernel::new(&program).run(&[&x, &w]), &expected, &exact);
}

/// Whether an iteration is needed at a size.
type Needed = fn(i64, i64) -> bool;

/// Conditions of a loop over 24 iterations: they end it, end rows of it, or are asked in each.
const CONDITIONS: [(&str, Needed); 7] = [
    ("lt(i, n[])", |i, n| i < n),
    ("lt(add(mul(i, 3), 2), n[])", |i, n| i * 3 + 2 < n),
    ("lt(add(5, i), sub(n[], 4))", |i, n| 5 + i < n - 4),
    ("lt(floor_mod(i, 6), n[])", |i, n| i % 6 < n),
    ("and(lt(floor_mod(i, 8), n[]), lt(i, add(n[], 9)))", |i, n| i % 8 < n && i < n + 9),
    ("and(lt(floor_div(i, 4), n[]), lt(floor_mod(i, 4), sub(n[], 1)))", |i, n| {
        i / 4 < n && i % 4 < n - 1
    }),
    ("lt(sub(23, i), n[])", |i, n| 23 - i < n),
];

/// A loop writes the elements that are needed and no others, whatever part of it a thread has.
#[test]
fn loops_end_where_nothing_more_is_needed() {
    for (condition, is_needed) in CONDITIONS {
        for kind in ["", " parallel"] {
            let program = parsed(&format!(
                "program k
n: i64[] input
x: i64[24] input
y: i64[24] output
params n, x, y
for i in 0..24{kind} while {condition} {{
  block copy (v: spatial 24 = i) {{
    y[v] = x[v]
  }}
}}
"
            ));
            let kernel = Kernel::new(&program);
            let x = Tensor::from_slice(&[24], &(0..24).collect::<Vec<i64>>());
            for size in (0..=80).chain([i64::from(i32::MAX)]) {
                let n = Tensor::from_slice(&[], &[size]);
                for pieces in [1, 2, 5, 24] {
                    let y = kernel.run_in(&[&n, &x], pieces).remove(0);
                    let written: Vec<bool> =
                        y.as_slice::<i64>().iter().zip(0..24).map(|(y, i)| *y == i).collect();
                    let needed: Vec<bool> = (0..24).map(|i| is_needed(i, size)).collect();
                    assert_eq!(written, needed, "{condition} at {size}, {pieces} pieces");
                }
            }
        }
    }
}
