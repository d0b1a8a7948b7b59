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
