use super::*;
use crate::lower::lower;
use crate::program::{IterKind, Program, Scope};
use crate::testing::*;
use ansc_graph::{Compute, Expr};

fn start(compute: &Compute) -> Schedule {
    Schedule::new(lower("k", compute))
}

/// Checks the program as it is and as it is finished.
fn check(compute: &Compute, s: &Schedule) {
    check_program(compute, s.program());
    check_program(compute, &crate::finish(s.program().clone()));
}

fn cause<T: std::fmt::Debug>(result: Result<T>) -> Cause {
    result.unwrap_err().cause
}

#[test]
fn split_reorder_fuse() {
    let c = matmul_bias_relu(5, 7, 3);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[0, 2]).unwrap();
    let j = s.split(l[1], &[2, 2, 2]).unwrap();
    s.reorder(&[l[2], j[1], i[1], i[0]]).unwrap();
    check(&c, &s);
    let order = s.loops("mm").unwrap();
    assert_eq!(order, [l[2], j[1], j[0], i[1], j[2], i[0]]);
    let f = s.fuse(&order[3..5]).unwrap();
    let f = s.split(f, &[0, 3]).unwrap();
    s.unroll(f[1]).unwrap();
    check(&c, &s);
}

#[test]
fn invalid_primitives_change_nothing() {
    let c = matmul_bias_relu(5, 7, 3);
    let mut s = start(&c);
    let before = s.clone();
    let l = s.loops("mm").unwrap();
    let relu = s.loops("relu").unwrap();
    assert!(matches!(cause(s.split(l[0], &[2, 2])), Cause::Factors { .. }));
    assert_eq!(cause(s.split(LoopRef(VarId(99)), &[2, 3])), Cause::NoSuchLoop);
    assert_eq!(cause(s.fuse(&[l[0], l[2]])), Cause::NotAChain);
    assert_eq!(cause(s.fuse(&[l[1], l[2]])), Cause::MixedLoops);
    assert_eq!(cause(s.reorder(&[l[0], relu[0]])), Cause::NotAChain);
    assert_eq!(cause(s.parallel(l[1])), Cause::NotOutermost);
    assert_eq!(cause(s.vectorize(l[2])), Cause::ReductionLoop("mm".into()));
    assert_eq!(cause(s.compute_inline("mm")), Cause::IsReduction);
    assert_eq!(cause(s.compute_inline("relu")), Cause::WritesResult);
    assert_eq!(cause(s.compute_at("relu", l[0])), Cause::WritesResult);
    assert_eq!(cause(s.reverse_compute_at("relu", l[2])), Cause::ReductionLoop("mm".into()));
    assert_eq!(cause(s.loops("nothing")), Cause::NoSuchBlock("nothing".into()));
    assert_eq!(s, before);
    let text = s.vectorize(l[2]).unwrap_err().to_string();
    assert!(text.contains("for r0 in 0..3 {  <---"), "{text}");
}

#[test]
fn producers_move_under_consumers() {
    for stride in [1, 2] {
        let c = conv(3, 2, 5, 7, stride);
        for depth in 0..6 {
            let mut s = start(&c);
            let l = s.loops("conv").unwrap();
            let split = s.split(l[1], &[0, 2]).unwrap();
            let loops = [l[0], split[0], split[1], l[2], l[3], l[4]];
            s.set_scope("pad", Scope::Local).unwrap();
            s.compute_at("pad", loops[depth]).unwrap();
            check(&c, &s);
        }
    }
}

#[test]
fn consumers_move_under_producers() {
    let c = conv(3, 2, 5, 7, 1);
    for depth in 0..5 {
        let mut s = start(&c);
        let l = s.loops("conv").unwrap();
        let h = s.split(l[1], &[0, 2]).unwrap();
        let w = s.split(l[2], &[0, 3]).unwrap();
        s.reorder(&[h[0], w[0], l[3], h[1], w[1]]).unwrap();
        s.reorder(&[l[0], h[0], w[0], h[1], w[1], l[3]]).unwrap();
        let loops = s.loops("conv").unwrap();
        s.set_scope("conv", Scope::Local).unwrap();
        s.reverse_compute_at("bias", loops[depth]).unwrap();
        check(&c, &s);
    }
}

#[test]
fn a_part_that_is_not_a_box_is_refused() {
    let c = matmul_bias_relu(10, 4, 3);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    // Two levels of tiles that do not divide: the inner one would overrun into the next outer one.
    let i = s.split(l[0], &[0, 4]).unwrap();
    let inner = s.split(i[1], &[0, 3]).unwrap();
    s.reverse_compute_at("relu", i[0]).unwrap();
    check(&c, &s);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[0, 4]).unwrap();
    let tail = s.split(i[1], &[0, 3]).unwrap();
    assert!(matches!(cause(s.reverse_compute_at("relu", tail[0])), Cause::NotABox { .. }));
    drop(inner);
}

#[test]
fn rows_of_softmax() {
    let c = softmax(4, 6);
    let mut s = start(&c);
    let row = s.loops("max").unwrap()[0];
    for block in ["exp", "sum", "div"] {
        s.reverse_compute_at(block, row).unwrap();
    }
    for buffer in ["max", "exp", "sum"] {
        s.set_scope(buffer, Scope::Local).unwrap();
    }
    s.parallel(row).unwrap();
    check(&c, &s);
    let finished = crate::finish(s.program().clone());
    let exp = finished.buffers.iter().find(|b| b.name == "exp").unwrap();
    assert_eq!(exp.ty.shape, [1, 6]);
}

#[test]
fn inlining() {
    let c = transpose(2, 3, 5);
    let mut s = start(&c);
    s.compute_inline("abs").unwrap();
    assert_eq!(s.blocks(), ["t"]);
    check(&c, &s);
    let mut s = start(&c);
    s.reverse_compute_inline("t").unwrap();
    assert_eq!(s.blocks(), ["abs"]);
    check(&c, &s);
    let c = conv(3, 2, 5, 7, 2);
    let mut s = start(&c);
    s.compute_inline("pad").unwrap();
    check(&c, &s);
    assert_eq!(cause(s.reverse_compute_inline("bias")), Cause::NotOneProducer);
}

#[test]
fn caches() {
    let c = matmul_bias_relu(5, 7, 3);
    let mut s = start(&c);
    let copy = s.cache_write("relu", Scope::Local).unwrap();
    let read = s.cache_read("mm", "in0", Scope::Local).unwrap();
    check(&c, &s);
    let l = s.loops("relu").unwrap();
    s.reverse_compute_at(&copy, l[0]).unwrap();
    let l = s.loops("mm").unwrap();
    s.compute_at(&read, l[0]).unwrap();
    check(&c, &s);
    s.parallel(l[0]).unwrap();
    check(&c, &s);
    assert!(matches!(cause(s.cache_read("mm", "in2", Scope::Local)), Cause::NotAccessed { .. }));
}

#[test]
fn a_padded_operand_needs_no_guard() {
    let c = matmul_bias_relu(5, 7, 3);
    let mut s = start(&c);
    let pack = s.cache_read("mm", "in1", Scope::Global).unwrap();
    s.pad(&pack, 1, 4).unwrap();
    s.set_scope("mm", Scope::Local).unwrap();
    s.pad("mm", 1, 4).unwrap();
    check(&c, &s);
    assert!(!s.program().to_string().contains("in1_global[vr0, min"), "{}", s.program());
    assert!(matches!(cause(s.pad("relu", 0, 4)), Cause::Fixed { .. }));
    assert_eq!(cause(s.pad("mm", 2, 4)), Cause::IsReduction);
}

#[test]
fn decomposed_reductions() {
    let c = matmul_bias_relu(5, 7, 3);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let k = s.split(l[2], &[0, 2]).unwrap();
    s.reorder(&[l[0], k[0], l[1], k[1]]).unwrap();
    assert_eq!(cause(s.decompose_reduction("mm", k[1])), Cause::ReductionFurtherOut);
    assert_eq!(s.decompose_reduction("mm", k[0]).unwrap(), "mm_init");
    check(&c, &s);
    assert_eq!(cause(s.decompose_reduction("mm", k[0])), Cause::NotInitialising);
    let c = arg_max(3, 5);
    let mut s = start(&c);
    let l = s.loops("arg").unwrap();
    let r = s.split(l[1], &[0, 2]).unwrap();
    assert_eq!(cause(s.reorder(&[r[1], r[0]])), Cause::TermOrder);
    s.decompose_reduction("arg", l[0]).unwrap();
    check(&c, &s);
}

#[test]
fn parallel_writes_must_be_apart() {
    let c = conv(3, 2, 6, 7, 1);
    let mut s = start(&c);
    let l = s.loops("conv").unwrap();
    s.reorder(&[l[1], l[0]]).unwrap();
    s.compute_at("pad", l[1]).unwrap();
    // Neighbouring rows of the convolution both compute the rows of the padding that they share.
    let expected = Cause::SharedWrites { block: "pad".into(), buffer: "pad".into() };
    assert_eq!(cause(s.parallel(l[1])), expected);
    s.set_scope("pad", Scope::Local).unwrap();
    s.parallel(l[1]).unwrap();
    check(&c, &s);
    let c = matmul_bias_relu(5, 7, 3);
    let mut s = start(&c);
    let l = s.loops("relu").unwrap();
    let fused = s.fuse(&l).unwrap();
    let f = s.split(fused, &[0, 4]).unwrap();
    s.parallel(f[0]).unwrap();
    s.vectorize(f[1]).unwrap();
    check(&c, &s);
}

#[test]
fn annotations_are_notes() {
    let mut s = start(&transpose(2, 3, 5));
    s.annotate("t", "tile", Annotation::Ints(vec![1, 2])).unwrap();
    let l = s.loops("t").unwrap()[0];
    s.annotate_loop(l, "unroll", Annotation::Int(16)).unwrap();
    assert_eq!(s.annotation("t", "tile"), Some(&Annotation::Ints(vec![1, 2])));
    assert_eq!(s.unannotate_loop(l, "unroll"), Some(Annotation::Int(16)));
    assert_eq!(s.loop_annotation(l, "unroll"), None);
    let u = s.add_unit_loop("t").unwrap();
    assert_eq!(s.extent(u).unwrap(), 1);
    check(&transpose(2, 3, 5), &s);
}

#[test]
fn reductions_factor_along_any_of_their_loops() {
    for (m, n, k, inner) in [(2, 3, 12, 4), (1, 1, 7, 3), (3, 2, 8, 8)] {
        let c = matmul_bias_relu(m, n, k);
        for (which, axis) in [(0, 0), (1, 1), (0, 2), (1, 2)] {
            let mut s = start(&c);
            let l = s.loops("mm").unwrap();
            let parts = s.split(l[2], &[0, inner]).unwrap();
            let partial = s.rfactor("mm", parts[which], axis).unwrap();
            assert_eq!(partial, "mm_rf");
            check(&c, &s);
            let loops = s.loops("mm_rf").unwrap();
            let factored = parts[which];
            let order: Vec<LoopRef> =
                loops.iter().copied().filter(|l| *l != factored).chain([factored]).collect();
            s.reorder(&order).unwrap();
            s.vectorize(factored).unwrap();
            check(&c, &s);
        }
    }
}

#[test]
fn what_cannot_be_factored_is_refused() {
    let c = matmul_bias_relu(2, 3, 4);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    assert_eq!(cause(s.rfactor("mm", l[0], 0)), Cause::NotAReductionLoop);
    assert_eq!(cause(s.rfactor("mm", l[2], 3)), Cause::NoSuchAxis { axis: 3 });
    assert_eq!(cause(s.rfactor("relu", l[2], 0)), Cause::NotUnder);
}

/// `fold_tree` adds each partial result once, however many there are.
#[test]
fn partial_results_are_folded() {
    for n in (1..40).chain([48, 64, 96, 127, 128]) {
        let text = format!(
            "compute(in0: f32[3, {n}]) -> s {{
              t: f32[3, {n}] = neg(in0[i0, i1])
              s: f32[3] = sum{{r0: {n}}} t[i0, r0]
            }}"
        );
        let c = Compute::parse(&text).unwrap();
        let mut s = start(&c);
        let row = s.loops("t").unwrap()[0];
        s.reverse_compute_at("s", row).unwrap();
        s.set_scope("t", Scope::Local).unwrap();
        s.fold_tree("s").unwrap();
        check(&c, &s);
        assert!(s.block("s").unwrap().iters.iter().all(|i| i.kind == IterKind::Spatial));
    }
}

#[test]
fn too_many_partial_results_are_not_folded() {
    let c = Compute::parse(
        "compute(in0: f32[129]) -> s { t: f32[129] = neg(in0[i0]) s: f32[] = sum{r0: 129} t[r0] }",
    );
    let mut s = start(&c.unwrap());
    assert_eq!(cause(s.fold_tree("s")), Cause::TooManyIterations { extent: 129, most: 128 });
}

/// A loop over `t`, whose elements are `value`, and one that takes them.
fn joined(scope: &str, value: &str, taken: &str) -> Result<()> {
    let text = format!(
        "\
program k
x: f32[4] input
t: f32[4] {scope}
y: f32[4] output
params x, y
for i in 0..4 {{
  block t (v: spatial 4 = i) {{
    t[v] = {value}
  }}
}}
for j in 0..4 {{
  block y (w: spatial 4 = j) {{
    y[w] = {taken}
  }}
}}
"
    );
    let mut s = Schedule::new(Program::parse(&text).unwrap());
    let (i, j) = (s.loops("t").unwrap()[0], s.loops("y").unwrap()[0]);
    s.fuse_siblings(i, j)
}

#[test]
fn loops_are_joined_if_iterations_stay_among_themselves() {
    let running = "add(x[v], select(lt(0, v), t[max(sub(v, 1), 0)], 0.0_f32))";
    assert_eq!(joined("local", "x[v]", "t[w]"), Ok(()));
    assert_eq!(joined("global", running, "t[w]"), Ok(()));
    // After each iteration of the one loop, its content would be lost.
    assert!(matches!(cause(joined("local", running, "t[w]")), Cause::Dependent { .. }));
    assert!(matches!(cause(joined("global", "x[v]", "t[sub(3, w)]")), Cause::Dependent { .. }));
    assert!(matches!(cause(joined("global", "x[v]", "t[0]")), Cause::Dependent { .. }));
}

/// Borders before, after, and on both sides of tiles of rows; columns stay guarded.
#[test]
fn nothing_is_guarded_inside_of_borders() {
    for (stride, tile) in [(1, 1), (1, 3), (1, 7), (2, 2)] {
        let c = conv(3, 2, 12, 7, stride);
        let mut s = start(&c);
        s.compute_inline("pad").unwrap();
        let row = s.loops("conv").unwrap()[1];
        let rows = s.split(row, &[0, tile]).unwrap();
        let parts = s.partition_guards(rows[0]).unwrap();
        check(&c, &s);
        let conditions = |l: &LoopRef| {
            let path = query::loop_path(s.program(), *l).unwrap();
            let block = query::blocks_under(query::loop_at(s.program(), &path))[0];
            let mut count = 0;
            block.body.value().visit(&mut |e| {
                if let Expr::Select(condition, ..) = e {
                    count += condition.conjuncts().len();
                }
            });
            count
        };
        let counts: Vec<usize> = parts.iter().map(conditions).collect();
        let expected: &[usize] = match (stride, tile) {
            // Both ends are in tiles of their own.
            (1, 1 | 3) => &[3, 2, 3],
            // No tile is complete.
            (1, _) => &[4],
            // Windows of every other row end with the padding below.
            _ => &[3, 2],
        };
        assert_eq!(counts, expected, "{stride} {tile}");
    }
}

/// The sum of each row of `x`, to which a block adds something.
const ADDED: &str = "\
program k
x: f32[5, 4] input
c: f32[5] input
d: f32[5] local
t: f32[5] global
y: f32[5] output
params x, c, y
for i in 0..5 {
  block t_init (vi: spatial 5 = i) {
    t[vi] = 0.0_f32
  }
  block d (vd: spatial 5 = i) {
    d[vd] = c[vd]
  }
  for k in 0..4 {
    block t (vt: spatial 5 = i, vk: reduce 4 = k) {
      t[vt] sum= x[vt, vk]
    }
  }
  block y (vy: spatial 5 = i) {
    y[vy] = neg(add(c[vy], t[vy]))
  }
}
";

#[test]
fn sums_begin_with_what_is_added_in_any_case() {
    let lifted = |from: &str, to: &str| {
        assert!(ADDED.contains(from), "{from}");
        let mut s = Schedule::new(Program::parse(&ADDED.replace(from, to)).unwrap());
        s.lift_addend("t_init").map(|()| s.into_program())
    };
    let added = "neg(add(c[vy], t[vy]))";
    let made = lifted(added, added).unwrap();
    let [begins, .., reads] = &made.blocks()[..] else { panic!("{made}") };
    assert!(matches!(begins.body.value(), Expr::Load(..)), "{made}");
    let Expr::Unary(_, sum) = reads.body.value() else { panic!("{made}") };
    assert!(matches!(**sum, Expr::Load(..)), "{made}");
    for (from, to, expected) in [
        ("t[vi] = 0.0_f32", "t[vi] = 1.0_f32", Cause::NoSum),
        ("t[vt] sum=", "t[vt] max=", Cause::NoSum),
        (added, "neg(max(c[vy], t[vy]))", Cause::NoAddend),
        (added, "select(lt(vy, 3), add(c[vy], t[vy]), 0.0_f32)", Cause::NoAddend),
        (added, "add(t[vy], t[vy])", Cause::OtherReaders { buffer: "t".into() }),
        (added, "add(t[sub(4, vy)], c[vy])", Cause::IndexNotPlain),
        (added, "add(t[vy], d[vy])", Cause::BeforeProducer("d".into())),
        (
            "    y[vy]",
            "    where lt(vy, 3)\n    y[vy]",
            Cause::ConditionalRead { buffer: "c".into() },
        ),
    ] {
        assert_eq!(cause(lifted(from, to).map(drop)), expected, "{to}");
    }
}
