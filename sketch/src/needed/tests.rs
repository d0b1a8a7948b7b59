//! `leave_out` writes conditions into small programs; these tests read them back as text.

use super::*;

const TEXT: &str = "program k
x: f32[64, 8] input
w: f32[8, 8] input
y: f32[64, 8] output
t: f32[4, 8] local
params x, w, y
for i in 0..16 parallel {
  for j in 0..4 unrolled {
    for n in 0..8 vectorized {
      block zero (a: spatial 4 = j, b: spatial 8 = n) {
        t[j, n] = 0.0_f32
      }
    }
  }
  for k in 0..8 {
    for j2 in 0..4 unrolled {
      for n2 in 0..8 vectorized {
        block sum (c: spatial 64 = add(mul(i, 4), j2), d: spatial 8 = n2, e: reduce 8 = k) {
          t[j2, n2] sum= mul(x[add(mul(i, 4), j2), k], w[k, n2])
        }
      }
    }
  }
  for j3 in 0..4 unrolled {
    for n3 in 0..8 vectorized {
      block out (f: spatial 64 = add(mul(i, 4), j3), g: spatial 8 = n3) {
        y[add(mul(i, 4), j3), n3] = t[j3, n3]
      }
    }
  }
}
";

fn program() -> Program {
    Program::parse(TEXT).unwrap_or_else(|e| panic!("{e}"))
}

fn compute() -> Compute {
    let text = "compute(in0: f32[4, 16, 8], in1: f32[8, 8]) -> y {
            y: f32[64, 1, 8] = sum{r0: 8}
                mul(in0[floor_div(i0, 16), floor_mod(i0, 16), r0], in1[r0, i2])
        }";
    Compute::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

fn demand() -> Demand {
    Demand {
        sizes: vec![None, None],
        zeros: vec![vec![None, None, Some(Extent::Size(1))], vec![Some(Extent::Size(1)), None]],
        needed: vec![vec![Some(Extent::Size(0)), None, None]],
        empty: vec![],
    }
}

#[test]
fn rows_and_terms_are_left_out() {
    let mut program = program();
    assert_eq!(leave_out(&mut program, &compute(), &demand()), [0, 1]);
    let text = program.to_string();
    assert!(text.contains("params x, w, size0, size1, y"), "{text}");
    assert!(text.contains("for i in 0..16 parallel while lt(mul(i, 4), size0[]) {"), "{text}");
    assert!(text.contains("for k in 0..8 while lt(k, size1[]) {"), "{text}");
    assert_eq!(Program::parse(&text).unwrap().to_string(), text);
    assert_eq!(crate::verify::verify(&program), Ok(()));
}

/// A window of five elements reads four more than it gives.
#[test]
fn what_windows_read_is_needed() {
    let text = "program k
x: f32[64] input
y: f32[64] output
pad: f32[68] global
params x, y
for p in 0..68 parallel {
  block pad (a: spatial 68 = p) {
    pad[p] = select(and(le(2, p), lt(p, 66)), x[sub(p, 2)], 0.0_f32)
  }
}
for i in 0..64 parallel {
  block zero (b: spatial 64 = i) {
    y[i] = 0.0_f32
  }
  for r in 0..5 {
    block sum (c: spatial 64 = i, d: reduce 5 = r) {
      y[i] sum= pad[add(i, r)]
    }
  }
}
";
    let padded = "compute(in0: f32[64]) -> y {
            pad: f32[68] = select(and(le(2, i0), lt(i0, 66)), in0[sub(i0, 2)], 0.0_f32)
            y: f32[64] = sum{r0: 5} pad[add(i0, r0)]
        }";
    let mut program = Program::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let demand = Demand {
        sizes: vec![None],
        zeros: vec![vec![None]],
        needed: vec![vec![Some(Extent::Size(0))]],
        empty: vec![],
    };
    let compute = Compute::parse(padded).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(leave_out(&mut program, &compute, &demand), [0]);
    let text = program.to_string();
    assert!(text.contains("for p in 0..68 parallel while lt(sub(p, 4), size0[]) {"), "{text}");
    assert!(text.contains("for i in 0..64 parallel while lt(i, size0[]) {"), "{text}");
    assert_eq!(crate::verify::verify(&program), Ok(()));
}

/// Where no loop goes over what may not be needed, the outermost one asks.
#[test]
fn nothing_may_be_needed() {
    let text = TEXT.replace("for i in 0..16 parallel {", "for i in 0..1 parallel {");
    let text = text.replace("add(mul(i, 4), j2)", "j2").replace("add(mul(i, 4), j3)", "j3");
    let text = text.replace("64", "4");
    let rows = "compute(in0: f32[4, 1, 8], in1: f32[8, 8]) -> y {
            y: f32[4, 1, 8] = sum{r0: 8} mul(in0[i0, 0, r0], in1[r0, i2])
        }";
    let rows = Compute::parse(rows).unwrap_or_else(|e| panic!("{e}"));
    let written = |empty: Vec<u32>| {
        let mut program = Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        leave_out(&mut program, &rows, &Demand { empty, ..demand() });
        assert_eq!(crate::verify::verify(&program), Ok(()));
        program.to_string()
    };
    let asks = "for i in 0..1 parallel while lt(0, size0[]) {";
    assert!(written(vec![0]).contains(asks), "{}", written(vec![0]));
    assert!(!written(vec![]).contains("lt(0"), "{}", written(vec![]));
    assert!(!written(vec![1]).contains("lt(0"), "{}", written(vec![1]));
}

#[test]
fn terms_beyond_an_end_are_counted() {
    let beyond = |text: &str| {
        let program = Program::parse(text).unwrap_or_else(|e| panic!("{e}"));
        terms_beyond(&program, &compute(), &demand())
    };
    assert_eq!(beyond(TEXT), Some(0));
    let text = TEXT.replace("for k in 0..8 {", "for k in 0..2 { for kk in 0..4 unrolled {");
    let text = text.replace("= k) {", "= add(mul(k, 4), kk)) {");
    let text = text.replace(
        "j2), k], w[k, n2])\n        }",
        "j2), add(mul(k, 4), kk)], w[add(mul(k, 4), kk), n2])\n        } }",
    );
    assert_eq!(beyond(&text), Some(3), "{text}");
    assert_eq!(beyond(&TEXT.replace("for k in 0..8 {", "for k in 0..8 unrolled {")), None);
}

/// An instruction adds two terms, of which the first may be the last that is no zero.
#[test]
fn terms_of_pairs_are_counted() {
    let pairs = |term: &str| {
        let text = TEXT
            .replace("x: f32[64, 8]", "x: bf16[64, 8]")
            .replace("w: f32[8, 8]", "w: i32[4, 8]")
            .replace("for k in 0..8 {", "for k in 0..2 { for kk in 0..2 unrolled {")
            .replace("reduce 8 = k) {", "reduce 4 = add(mul(k, 2), kk)) {")
            .replace("n2])\n        }", "n2])\n        } }")
            .replace("mul(x[add(mul(i, 4), j2), k], w[k, n2])", term);
        let program = Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let halves =
            "compute(in0: bf16[4, 16, 8], in1: i32[4, 8]) -> y { y: f32[64, 1, 8] = 0.0_f32 }";
        let demand = Demand { zeros: vec![demand().zeros[0].clone(), vec![]], ..demand() };
        terms_beyond(&program, &Compute::parse(halves).unwrap(), &demand)
    };
    let load = |more: usize| {
        let at = "add(mul(k, 4), mul(kk, 2))";
        format!("f32(x[add(mul(i, 4), j2), add({at}, {more})])")
    };
    let dot = |first: usize, second: usize| {
        let pair = format!("pair_bf16({}, {})", load(first), load(second));
        pairs(&format!("dot_bf16({pair}, w[add(mul(k, 2), kk), n2])"))
    };
    // Two instructions at a time: of the last pair that is needed the second term, and two more.
    assert_eq!(dot(0, 1), Some(3));
    // A pair that ends before it begins tells nothing.
    assert_eq!(dot(1, 0), None);
    let unknown = format!("add({}, f32(w[add(mul(k, 2), kk), n2]))", load(0));
    assert_eq!(pairs(&unknown), None);
}

/// Zeros that a block selects in place of what it read are no terms beyond an end.
#[test]
fn terms_that_are_dropped_are_not_counted() {
    let text = SUMS.replace("x: f32[64, 8] input", "x: f32[64, 8] input\nn: i64[] input");
    let text = text.replace("params x, y", "params x, n, y");
    let text = text.replace("for k in 0..8 {", "for k in 0..2 { for kk in 0..4 unrolled {");
    let text = text.replace("= k) {", "= add(mul(k, 4), kk)) {");
    let sum = |value: &str| {
        let text = text.replace("sum= x[i, k]\n    }", &format!("sum= {value}\n    }} }}"));
        let program = Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let size = TensorType::new(DType::I64, []);
        let compute = Compute { inputs: vec![ty(&[64, 8]), size], ..compute() };
        let demand = Demand {
            sizes: vec![None, Some(0)],
            zeros: vec![vec![], vec![]],
            needed: vec![vec![]],
            empty: vec![],
        };
        terms_beyond(&program, &compute, &demand)
    };
    let selected = "select(lt(add(mul(k, 4), kk), n[]), x[i, add(mul(k, 4), kk)], 0.0_f32)";
    assert_eq!(sum(selected), Some(0));
    assert_eq!(sum(&format!("mul({selected}, x[i, add(mul(k, 4), kk)])")), Some(3));
}

/// Rows of `y` scaled by their sums, which are computed before.
const SUMS: &str = "program k
x: f32[64, 8] input
y: f32[64, 8] output
m: f32[64] global
params x, y
for i in 0..64 parallel {
  block zero (a: spatial 64 = i) {
    m[i] = 0.0_f32
  }
  for k in 0..8 {
    block sum (b: spatial 64 = i, c: reduce 8 = k) {
      m[i] sum= x[i, k]
    }
  }
}
for i2 in 0..32 parallel {
  for n in 0..8 vectorized {
    block even (d: spatial 64 = mul(i2, 2), e: spatial 8 = n) {
      y[mul(i2, 2), n] = mul(x[mul(i2, 2), n], m[mul(i2, 2)])
    }
  }
  for n2 in 0..8 vectorized {
    block odd (f: spatial 64 = add(mul(i2, 2), 1), g: spatial 8 = n2) {
      y[add(mul(i2, 2), 1), n2] = mul(x[add(mul(i2, 2), 1), n2], m[add(mul(i2, 2), 1)])
    }
  }
}
";

fn sums(text: &str) -> String {
    let mut program = Program::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let compute = Compute::parse(
        "compute(in0: f32[64, 8]) -> y {
                m: f32[64] = sum{r0: 8} in0[i0, r0]
                y: f32[64, 8] = mul(in0[i0, i1], m[i0])
            }",
    );
    let demand = Demand {
        sizes: vec![None],
        zeros: vec![vec![]],
        needed: vec![vec![Some(Extent::Size(0)), None]],
        empty: vec![],
    };
    leave_out(&mut program, &compute.unwrap_or_else(|e| panic!("{e}")), &demand);
    assert_eq!(crate::verify::verify(&program), Ok(()));
    program.to_string()
}

/// The first of two rows may be there alone.
#[test]
fn the_weaker_condition_of_two_blocks_is_asked() {
    let text = sums(SUMS);
    assert!(text.contains("for i2 in 0..32 parallel while lt(mul(i2, 2), size0[]) {"), "{text}");
}

#[test]
fn what_no_needed_row_is_made_of_is_left_out() {
    let text = sums(SUMS);
    assert!(text.contains("for i in 0..64 parallel while lt(i, size0[]) {"), "{text}");
    // A row that is needed is made of all of them.
    let text = sums(&SUMS.replace("m[mul(i2, 2)]", "m[sub(63, mul(i2, 2))]"));
    assert!(text.contains("for i in 0..64 parallel {"), "{text}");
}

/// A copy of what is multiplied, of which a sum of four terms at a time reads some beyond the
/// end: they have to be zeros, for another factor that is never computed may be no number.
#[test]
fn zeros_that_are_added_are_copied() {
    const COPIED: &str = "program k
x: f32[8] input
y: f32[1] output
p: f32[8] global
params x, y
for i in 0..8 {
  block copy (a: spatial 8 = i) {
    p[i] = x[i]
  }
}
block zero () {
  y[0] = 0.0_f32
}
for k in 0..2 {
  for k2 in 0..4 unrolled {
    block sum (b: reduce 8 = add(mul(k, 4), k2)) {
      y[0] sum= mul(x[add(mul(k, 4), k2)], p[add(mul(k, 4), k2)])
    }
  }
}
";
    let mut program = Program::parse(COPIED).unwrap_or_else(|e| panic!("{e}"));
    let text = "compute(in0: f32[8]) -> y {
            p: f32[8] = in0[i0]
            y: f32[1] = sum{r0: 8} mul(in0[r0], p[r0])
        }";
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let demand = Demand {
        sizes: vec![None],
        zeros: vec![vec![Some(Extent::Size(0))]],
        needed: vec![vec![None]],
        empty: vec![],
    };
    leave_out(&mut program, &compute, &demand);
    let text = program.to_string();
    assert!(text.contains("for k in 0..2 while lt(mul(k, 4), size0[]) {"), "{text}");
    assert!(text.contains("for i in 0..8 while lt(sub(i, 3), size0[]) {"), "{text}");
}

/// Shares of a row that are zero from an end on, in a buffer of the kernel's own: the sum over them
/// ends there, and so does what they are made of, four terms at a time.
#[test]
fn zeros_between_blocks_are_left_out() {
    const SHARES: &str = "program k
x: f32[8] input
v: f32[8] input
n: i64[] input
y: f32[1] output
e: f32[8] global
p: f32[8] global
params x, v, n, y
for i in 0..8 {
  block exp (a: spatial 8 = i) {
    e[i] = exp(x[i])
  }
}
for j in 0..8 {
  block shares (b: spatial 8 = j) {
    p[j] = select(lt(j, n[]), e[j], 0.0_f32)
  }
}
block zero () {
  y[0] = 0.0_f32
}
for k in 0..2 {
  for k2 in 0..4 unrolled {
    block sum (c: reduce 8 = add(mul(k, 4), k2)) {
      y[0] sum= mul(p[add(mul(k, 4), k2)], v[add(mul(k, 4), k2)])
    }
  }
}
";
    let text = "compute(in0: f32[8], in1: f32[8], in2: i64[]) -> y {
            e: f32[8] = exp(in0[i0])
            p: f32[8] = select(lt(i0, in2[]), e[i0], 0.0_f32)
            y: f32[1] = sum{r0: 8} mul(p[r0], in1[r0])
        }";
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let demand = Demand {
        sizes: vec![None, None, Some(0)],
        zeros: vec![vec![], vec![], vec![]],
        needed: vec![vec![None]],
        empty: vec![],
    };
    let conditions = |text: &str| {
        let mut program = Program::parse(text).unwrap_or_else(|e| panic!("{e}"));
        leave_out(&mut program, &compute, &demand);
        assert_eq!(crate::verify::verify(&program), Ok(()));
        let text = program.to_string();
        ["for i in 0..8 while lt(", "for j in 0..8 while lt(", "for k in 0..2 while lt("]
            .map(|start| text.lines().any(|line| line.starts_with(start)))
    };
    assert_eq!(conditions(SHARES), [true; 3]);
    // Some other value begins at the end.
    let other = SHARES.replace("e[j], 0.0_f32", "e[j], 1.0_f32");
    assert_eq!(conditions(&other), [false; 3]);
}

#[test]
fn nothing_is_left_out_that_somebody_needs() {
    let mut program = program();
    let needed = vec![vec![None; 3]];
    let zeros = vec![vec![], vec![]];
    let none = Demand { needed, zeros, ..demand() };
    assert!(leave_out(&mut program, &compute(), &none).is_empty());
    assert!(program.needs.is_empty() && program.to_string() == TEXT);
}

/// A half and a quarter of a tile's rows have code of their own.
#[test]
fn tiles_end_where_rows_do() {
    let mut program = program();
    leave_out(&mut program, &compute(), &demand());
    let text = program.to_string();
    for line in [
        "for rows4 in 0..1 while lt(add(mul(i, 4), 2), size0[]) {",
        "for rows2 in 0..1 while and(lt(add(mul(i, 4), 1), size0[]), lt(size0[], add(mul(i, 4), 3))) {",
        "for rows1 in 0..1 while lt(size0[], add(mul(i, 4), 2)) {",
        "for j_1 in 0..2 unrolled {",
        "for j2_2 in 0..1 unrolled {",
        "for k_2 in 0..8 while lt(k_2, size1[]) {",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// Rows that are too few for another tile wait for a condition of their own, and are a tile.
#[test]
fn a_rest_of_rows_is_left_out() {
    let rest = "t2: f32[4, 8] local
params x, w, y
for j in 0..4 unrolled {
  for n in 0..8 vectorized {
    block zero (a: spatial 4 = j, b: spatial 8 = n) {
      t2[j, n] = 0.0_f32
    }
  }
}
for k in 0..8 {
  for j2 in 0..4 unrolled {
    for n2 in 0..8 vectorized {
      block sum (c: spatial 64 = add(60, j2), d: spatial 8 = n2, e: reduce 8 = k) {
        t2[j2, n2] sum= mul(x[add(60, j2), k], w[k, n2])
      }
    }
  }
}
for j3 in 0..4 unrolled {
  for n3 in 0..8 vectorized {
    block out (f: spatial 64 = add(60, j3), g: spatial 8 = n3) {
      y[add(60, j3), n3] = t2[j3, n3]
    }
  }
}
";
    let (buffers, _) = TEXT.split_once("params").unwrap();
    let text = format!("{buffers}{rest}");
    let mut program = Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    leave_out(&mut program, &compute(), &demand());
    let found = program.to_string();
    for line in [
        "for rest in 0..1 while lt(60, size0[]) {",
        "for rows4 in 0..1 while lt(62, size0[]) {",
        "for rows1 in 0..1 while lt(size0[], 62) {",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
}
