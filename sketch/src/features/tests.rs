use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::postprocess::{Machine, postprocess};
use crate::rules::Space;
use crate::testing::*;
use crate::trace::Unfit;

const MATMUL: &str = "
program matmul
a: f32[4, 8] input
b: f32[8, 16] input
c: f32[4, 16] output
params a, b, c
for i in 0..4 {
  for j in 0..16 {
    block init (vi: spatial 4 = i, vj: spatial 16 = j) { c[i, j] = 0.0_f32 }
    for k in 0..8 {
      block mm (vi_1: spatial 4 = i, vj_1: spatial 16 = j, vk: reduce 8 = k) {
        c[i, j] sum= mul(a[i, k], b[k, j])
      }
    }
  }
}
";

/// Tiles of 4 x 16, `p` counts them.
const TILED: &str = "
program tiled
a: f32[64, 32] input
b: f32[32, 64] input
c: f32[64, 64] output
t: f32[4, 16] local
params a, b, c
for p in 0..64 parallel {
  for i in 0..4 unrolled {
    for j in 0..16 vectorized {
      block init (v0: spatial 64 = add(mul(floor_div(p, 4), 4), i), v1: spatial 64 = add(mul(floor_mod(p, 4), 16), j)) { t[i, j] = 0.0_f32 }
    }
  }
  for k in 0..32 {
    for i_1 in 0..4 unrolled {
      for j_1 in 0..16 vectorized {
        block mm (v2: spatial 64 = add(mul(floor_div(p, 4), 4), i_1), v3: spatial 64 = add(mul(floor_mod(p, 4), 16), j_1), v4: reduce 32 = k) {
          t[i_1, j_1] sum= mul(a[add(mul(floor_div(p, 4), 4), i_1), k], b[k, add(mul(floor_mod(p, 4), 16), j_1)])
        }
      }
    }
  }
  for i_2 in 0..4 {
    for j_2 in 0..16 vectorized {
      block relu (v5: spatial 64 = add(mul(floor_div(p, 4), 4), i_2), v6: spatial 64 = add(mul(floor_mod(p, 4), 16), j_2)) {
        c[add(mul(floor_div(p, 4), 4), i_2), add(mul(floor_mod(p, 4), 16), j_2)] = max(t[i_2, j_2], 0.0_f32)
      }
    }
  }
}
";

/// The first half of a softmax.
const ROWS: &str = "
program rows
x: f32[8, 16] input
e: f32[8, 16] global
m: f32[8] global
s: f32[8] output
params x, s
for i in 0..8 {
  block m_init (v0: spatial 8 = i) { m[i] = -1.0_f32 }
  for j in 0..16 {
    block m (v1: spatial 8 = i, v2: reduce 16 = j) { m[i] max= x[i, j] }
  }
  for j_1 in 0..16 {
    block e (v3: spatial 8 = i, v4: spatial 16 = j_1) { e[i, j_1] = exp(sub(x[i, j_1], m[i])) }
  }
}
for i_1 in 0..8 {
  block s (v5: spatial 8 = i_1) { s[i_1] = e[i_1, 0] }
}
";

fn of(text: &str) -> Features {
    features(&Program::parse(text).unwrap())
}

/// The number as it was before it was scaled.
fn value(row: &[f32; LEN], name: &str) -> f64 {
    let at = names().iter().position(|n| n == name).unwrap_or_else(|| panic!("no name {name}"));
    f64::from(row[at]).exp2() - 1.0
}

fn assert_values(row: &[f32; LEN], prefix: &str, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        let name = format!("{prefix}{name}");
        let found = value(row, &name);
        assert!((found - expected).abs() <= 1e-4 * (1.0 + expected), "{name}: {found}, {expected}");
    }
}

#[test]
fn the_layout_is_that_of_the_reference() {
    let names = names();
    assert_eq!(names.len(), LEN);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), LEN);
    let places = [
        (0, "float_mad"),
        (15, "select_op"),
        (16, "vec_num"),
        (27, "unroll_num"),
        (38, "parallel_num"),
        (49, "is_gpu"),
        (56, "vthread_len"),
        (57, "B0.acc_type.read"),
        (75, "B1.acc_type.read"),
        (57 + 18 * 4 + 17, "B4.stride"),
        (147, "arith_intensity_curve_0"),
        (157, "alloc_size"),
        (161, "outer_prod"),
        (163, "auto_unroll_max_step"),
    ];
    for (place, name) in places {
        assert_eq!(names[place], name);
    }
}

#[test]
fn a_naive_product() {
    let rows = of(MATMUL).rows;
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    let general = [
        ("float_addsub", 512.0),
        ("float_mul", 512.0),
        ("int_addsub", 0.0),
        ("vec_num", 0.0),
        ("vec_type.none", 1.0),
        ("is_gpu", 0.0),
        ("blockIdx_x_len", 1.0),
        ("vthread_len", 1.0),
        ("outer_prod", 512.0),
        ("num_loops", 3.0),
        ("alloc_size", 0.0),
        ("B3.bytes", 0.0),
    ];
    assert_values(row, "", &general);
    // b, of which every access is a line of its own; then a; then c.
    let b = [
        ("acc_type.read", 1.0),
        ("bytes", 2048.0),
        ("unique_bytes", 512.0),
        ("lines", 512.0),
        ("unique_lines", 8.0),
        ("reuse_type.loop_multiple_read", 1.0),
        ("reuse_dis_iter", 128.0),
        // Under j: c by both stores, a row of a, all of b.
        ("reuse_dis_bytes", 4.0 * (16.0 + 16.0 + 8.0 + 128.0)),
        ("reuse_ct", 4.0),
        ("bytes_d_reuse_ct", 512.0),
        ("unique_lines_d_reuse_ct", 2.0),
        ("stride", 16.0),
    ];
    assert_values(row, "B0.", &b);
    let a = [
        ("bytes", 2048.0),
        ("unique_bytes", 128.0),
        ("lines", 32.0),
        ("unique_lines", 4.0),
        ("reuse_dis_iter", 8.0),
        ("reuse_dis_bytes", 68.0),
        ("reuse_ct", 16.0),
        ("stride", 1.0),
    ];
    assert_values(row, "B1.", &a);
    let c = [
        ("acc_type.read_write", 1.0),
        ("unique_bytes", 256.0),
        ("lines", 4.0),
        ("unique_lines", 4.0),
        ("reuse_dis_iter", 1.0),
        ("reuse_dis_bytes", 12.0),
        ("reuse_ct", 8.0),
        ("lines_d_reuse_ct", 0.5),
        ("stride", 0.0),
    ];
    assert_values(row, "B2.", &c);
}

#[test]
fn the_intensity_of_a_naive_product() {
    let row = &of(MATMUL).rows[0];
    // One run of k, of j, of i.
    let points =
        [(16.0, 16.0 / 68.0), (256.0, 256.0 / (4.0 * 152.0)), (1024.0, 1024.0 / (4.0 * 224.0))];
    for tenth in 1..=10 {
        let ops = 102.4 * f64::from(tenth);
        let (left, right) =
            if ops < 256.0 { (points[0], points[1]) } else { (points[1], points[2]) };
        let expected = left.1 + (right.1 - left.1) * (ops - left.0) / (right.0 - left.0);
        let found = value(row, &format!("arith_intensity_curve_{}", tenth - 1));
        assert!((found - expected).abs() < 1e-5, "{tenth}: {found}, {expected}");
    }
}

#[test]
fn a_tiled_product() {
    let rows = of(TILED).rows;
    assert_eq!(rows.len(), 2);
    let update = 131_072.0;
    let general = [
        ("float_addsub", update),
        ("float_mul", update),
        ("int_addsub", 2.0 * update),
        ("int_mul", 2.0 * update),
        ("int_divmod", 2.0 * update),
        ("vec_num", 1.0),
        ("vec_prod", 16.0),
        ("vec_len", 16.0),
        ("vec_type.none", 0.0),
        ("vec_type.mixed", 1.0),
        ("unroll_prod", 4.0),
        ("parallel_len", 64.0),
        ("alloc_size", 256.0),
        ("alloc_prod", 4096.0),
        ("alloc_outer_prod", 64.0),
        ("alloc_inner_prod", 2048.0),
        ("num_loops", 4.0),
    ];
    assert_values(&rows[0], "", &general);
    let t = [
        ("acc_type.read_write", 1.0),
        ("lines", 8192.0),
        ("unique_bytes", 256.0),
        ("unique_lines", 4.0),
        ("reuse_dis_iter", 64.0),
        ("reuse_dis_bytes", 336.0),
        ("reuse_ct", 32.0),
        ("stride", 1.0),
    ];
    assert_values(&rows[0], "B0.", &t);
    let a = [
        ("lines", 8192.0),
        ("unique_bytes", 8192.0),
        ("unique_lines", 128.0),
        ("reuse_dis_iter", 1.0),
        ("reuse_dis_bytes", 12.0),
        ("reuse_ct", 16.0),
        ("stride", 0.0),
    ];
    assert_values(&rows[0], "B1.", &a);
    let b = [("reuse_dis_iter", 16.0), ("reuse_dis_bytes", 132.0), ("reuse_ct", 4.0)];
    assert_values(&rows[0], "B2.", &b);
    let last = [("float_cmp", 4096.0), ("alloc_size", 0.0), ("B0.acc_type.write", 1.0)];
    assert_values(&rows[1], "", &last);
}

#[test]
fn rows_that_are_read_again_by_another_statement() {
    let rows = of(ROWS).rows;
    assert_eq!(rows.len(), 3);
    let e = &rows[1];
    let general = [
        ("float_addsub", 128.0),
        ("float_mathfunc", 128.0),
        ("alloc_size", 512.0),
        ("alloc_prod", 128.0),
        ("alloc_outer_prod", 1.0),
        ("alloc_inner_prod", 128.0),
    ];
    assert_values(e, "", &general);
    let written = [("reuse_type.none", 1.0), ("reuse_ct", 0.0), ("bytes_d_reuse_ct", 1024.0)];
    assert_values(e, "B0.", &written);
    let x = [
        ("reuse_type.serial_multiple_read_write", 1.0),
        ("reuse_dis_iter", 16.0),
        // All that the stores so far touch: m, m and x, e and x and m.
        ("reuse_dis_bytes", 4.0 * (8.0 + 8.0 + 128.0 + 128.0 + 128.0 + 8.0) / 8.0),
        ("reuse_ct", 1.0),
    ];
    assert_values(e, "B1.", &x);
    assert_values(e, "B2.", &[("reuse_type.loop_multiple_read", 1.0), ("reuse_ct", 16.0)]);
}

#[test]
fn axes_of_a_gpu_count_as_loops() {
    let text = "
program k
x: f32[64, 4] input
y: f32[64, 4] output
params x, y
for i in 0..16 block_x {
  for j in 0..4 thread_x {
    for v in 0..2 virtual {
      for w in 0..2 virtual {
        block y (v0: spatial 64 = add(mul(i, 4), j), v1: spatial 4 = add(mul(v, 2), w)) {
          y[add(mul(i, 4), j), add(mul(v, 2), w)] = x[add(mul(i, 4), j), add(mul(v, 2), w)]
        }
      }
    }
  }
}
";
    let expected = [
        ("is_gpu", 1.0),
        ("blockIdx_x_len", 16.0),
        ("blockIdx_y_len", 1.0),
        ("threadIdx_x_len", 4.0),
        ("vthread_len", 4.0),
        ("outer_prod", 256.0),
        ("num_loops", 4.0),
    ];
    assert_values(&of(text).rows[0], "", &expected);
}

#[test]
fn a_store_outside_of_loops() {
    let text = "
program k
x: f32[] input
y: f32[] output
params x, y
block y () { y[] = x[] }
";
    let expected = [
        ("B0.bytes", 4.0),
        ("B0.unique_bytes", 4.0),
        ("B0.lines", 1.0),
        ("B0.unique_lines", 1.0),
        ("B0.stride", 0.0),
        ("B0.reuse_type.none", 1.0),
        ("arith_intensity_curve_9", 0.0),
        ("outer_prod", 1.0),
        ("num_loops", 0.0),
    ];
    assert_values(&of(text).rows[0], "", &expected);
    assert_eq!(of("program k\nparams").rows.len(), 0);
}

#[test]
fn the_configuration_sets_lines_and_slots() {
    let program = Program::parse(MATMUL).unwrap();
    let found = features_with(&program, &Config { cache_line: 128, max_buffers: 1 });
    let expected = [("B0.lines", 256.0), ("B0.stride", 16.0), ("B1.bytes", 0.0)];
    assert_values(&found.rows[0], "", &expected);
}

#[test]
fn numbers_of_samples_are_finite_and_the_same_every_time() {
    let machine = Machine { cores: 2, vector_bytes: 16 };
    let cases = [matmul_bias_relu(12, 7, 10), conv(4, 3, 6, 5, 2), softmax(6, 10), arg_max(3, 5)];
    for c in &cases {
        for sketch in Space::cpu(2).sketches(crate::lower("k", c)) {
            for seed in 0..4 {
                let random = &mut StdRng::seed_from_u64(seed);
                let program = crate::lower("k", c);
                let Ok(sample) = sketch.trace.replay(program, Unfit::Refuse, random) else {
                    continue;
                };
                check_properties(&postprocess(sample.into_parts().0, &[], &machine).program);
            }
        }
    }
}

fn check_properties(program: &Program) {
    let found = features(program);
    assert_eq!(found, features(program));
    assert_eq!(found, features(&Program::parse(&program.to_string()).unwrap()));
    let written = program.blocks().into_iter().flat_map(|b| b.body.writes());
    let written: BTreeSet<BufId> = written.map(|a| a.buffer).collect();
    assert_eq!(found.rows.len(), written.len());
    for row in &found.rows {
        assert!(row.iter().all(|v| v.is_finite() && *v >= 0.0), "{row:?}\n{program}");
        let used = row[ACCESS..INTENSITY].chunks(access::LEN).filter(|slot| slot[3] > 0.0);
        for slot in used {
            assert_eq!(slot[0..3].iter().sum::<f32>(), 1.0, "{program}");
            assert_eq!(slot[7..10].iter().sum::<f32>(), 1.0, "{program}");
            assert!(slot[6] <= slot[4] && slot[5] >= 1.0, "{slot:?}\n{program}");
        }
    }
}
