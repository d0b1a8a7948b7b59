use super::*;
use crate::schedule::Annotation;
use crate::testing::*;

/// `for c in 0..2 { for i in 0..n { y[c, i] = -x[c, i] } }`
fn rows(n: usize) -> (Schedule, ansc_graph::Compute) {
    let text = format!(
        "compute(in0: f32[2, {n}]) -> y {{
          y: f32[2, {n}] = neg(in0[i0, i1])
        }}"
    );
    let compute = ansc_graph::Compute::parse(&text).unwrap();
    (Schedule::new(crate::lower("k", &compute)), compute)
}

fn loop_kinds(s: &Schedule, blocks: &[String]) -> Vec<(ForKind, usize)> {
    let innermost = |block: &String| s.loops(block).ok()?.last().copied();
    let of = |l: LoopRef| s.for_loop(l).map(|l| (l.kind, l.extent)).ok();
    blocks.iter().filter_map(|b| of(innermost(b)?)).collect()
}

#[test]
fn no_guard_is_left_whatever_is_split_how() {
    let factors: [&[usize]; 7] =
        [&[0, 4], &[0, 16], &[0, 3], &[0, 4, 16], &[0, 2, 3], &[3, 8], &[0, 5, 4]];
    for (n, factors) in (1..50).flat_map(|n| factors.map(|f| (n, f))) {
        for (rest, inner) in [Rest::Pieces, Rest::Overlap].into_iter().zip(0..3) {
            let (mut s, compute) = rows(n);
            let l = s.loops("y").unwrap()[1];
            let Ok(parts) = s.split(l, factors) else { continue };
            let last = parts[parts.len() - 1];
            match inner {
                0 => s.vectorize(last).unwrap(),
                1 => {
                    s.vectorize(last).and_then(|()| s.unroll(parts[parts.len() - 2])).unwrap_or(())
                }
                _ => s.unroll(last).unwrap(),
            }
            // An unrolled loop may be peeled too.
            s.peel(parts[0], rest).unwrap();
            let text = s.program().to_string();
            assert!(!text.contains("where"), "{n} {factors:?} {rest:?}\n{text}");
            check_program(&compute, s.program());
            check_program(&compute, &crate::finish(s.program().clone()));
        }
    }
}

#[test]
fn the_last_vector_begins_earlier_only_where_that_is_little_and_there() {
    let lanes = |n: usize, rest| {
        let (mut s, _) = rows(n);
        let l = s.loops("y").unwrap()[1];
        let i = s.split(l, &[0, 16]).unwrap();
        s.vectorize(i[1]).unwrap();
        let left = s.peel(i[0], rest).unwrap();
        loop_kinds(&s, &left).into_iter().map(|(_, extent)| extent).collect::<Vec<_>>()
    };
    assert_eq!(lanes(16 + 13, Rest::Overlap), [16]);
    // Beside it there is only the loop over rows.
    assert_eq!(lanes(16 + 13, Rest::Pieces), [8, 4, 2]);
    assert_eq!(lanes(16 + 11, Rest::Overlap), [8, 4]);
    assert_eq!(lanes(16 + 9, Rest::Overlap), [8, 2]);
    assert_eq!(lanes(13, Rest::Overlap), [4, 2], "no vector before");
}

/// Terms would be added twice; and a tile that an iteration computes is gone when the next one
/// begins.
#[test]
fn sums_and_tiles_of_one_iteration_are_not_computed_twice() {
    let c = matmul_bias_relu(3, 29, 4);
    let widths = |s: &Schedule, left: &[String], block: &str| {
        let own: Vec<String> = left.iter().filter(|b| b.starts_with(block)).cloned().collect();
        let vectors = loop_kinds(s, &own).into_iter().filter(|l| l.0 == ForKind::Vectorized);
        vectors.map(|(_, extent)| extent).collect::<Vec<_>>()
    };
    let mut s = Schedule::new(crate::lower("k", &c));
    let l = s.loops("mm").unwrap();
    let j = s.split(l[1], &[0, 16]).unwrap();
    s.reorder(&[j[0], l[2], j[1]]).unwrap();
    s.vectorize(j[1]).unwrap();
    let left = s.peel(j[0], Rest::Overlap).unwrap();
    assert_eq!(widths(&s, &left, "mm"), [8, 4]);
    check_program(&c, s.program());

    let mut s = Schedule::new(crate::lower("k", &c));
    let l = s.loops("relu").unwrap();
    let j = s.split(l[1], &[0, 16]).unwrap();
    s.vectorize(j[1]).unwrap();
    s.compute_at("mm", j[0]).unwrap();
    s.set_scope("mm", crate::program::Scope::Local).unwrap();
    let left = s.peel(j[0], Rest::Overlap).unwrap();
    assert_eq!(widths(&s, &left, "relu"), [8, 4]);
    check_program(&c, &crate::finish(s.into_program()));
}

/// The whole iteration runs again, from lanes of the one before on: sums begin in it.
#[test]
fn an_iteration_whose_sums_begin_in_it_runs_again() {
    let c = matmul_bias_relu(3, 37, 4);
    let mut s = Schedule::new(crate::lower("k", &c));
    let l = s.loops("relu").unwrap();
    let j = s.split(l[1], &[0, 16]).unwrap();
    s.vectorize(j[1]).unwrap();
    s.reorder(&[j[0], l[0]]).unwrap();
    s.compute_at("mm", j[0]).unwrap();
    s.set_scope("mm", crate::program::Scope::Local).unwrap();
    let own = s.loops("mm").unwrap();
    s.reorder(&[own[1], own[3], own[2]]).unwrap();
    s.vectorize(own[2]).unwrap();
    s.decompose_reduction("mm", own[3]).unwrap();
    let left = s.peel(j[0], Rest::Again).unwrap();
    let vectors = loop_kinds(&s, &left).into_iter().filter(|l| l.0 == ForKind::Vectorized);
    assert_eq!(vectors.map(|(_, extent)| extent).collect::<Vec<_>>(), [8, 8, 8], "{}", s.program());
    check_program(&c, &crate::finish(s.into_program()));
}

/// Each row is computed in place: an element that is computed twice is another one.
#[test]
fn what_is_changed_in_place_is_not_computed_twice() {
    let text = "\
program k
x: f32[29] input
t: f32[29] global
y: f32[29] output
params x, y
for i in 0..29 {
  block first (a: spatial 29 = i) {
    t[a] = x[a]
  }
}
for j in 0..29 {
  block again (b: spatial 29 = j) {
    t[b] = mul(t[b], 3.0_f32)
  }
}
for m in 0..29 {
  block y (c: spatial 29 = m) {
    y[c] = t[c]
  }
}
";
    let mut s = Schedule::new(Program::parse(text).unwrap());
    let mut left = |block: &str| {
        let i = s.split(s.loops(block).unwrap()[0], &[0, 16]).unwrap();
        s.vectorize(i[1]).unwrap();
        let left = s.peel(i[0], Rest::Overlap).unwrap();
        loop_kinds(&s, &left).into_iter().map(|(_, extent)| extent).collect::<Vec<_>>()
    };
    assert_eq!(left("again"), [8, 4]);
    assert_eq!(left("y"), [16]);
    let input = ansc_runtime::Tensor::from_slice(&[29], &[1.0f32; 29]);
    let found = crate::exec::run(s.program(), &[&input]).unwrap();
    assert_eq!(found[0].to_f64_vec(), [3.0; 29]);
}

#[test]
fn copies_have_the_annotations() {
    let (mut s, _) = rows(29);
    let l = s.loops("y").unwrap()[1];
    let i = s.split(l, &[0, 16]).unwrap();
    s.vectorize(i[1]).unwrap();
    s.annotate("y", "note", Annotation::Int(1)).unwrap();
    s.annotate_loop(i[1], "lanes", Annotation::Int(2)).unwrap();
    let left = s.peel(i[0], Rest::Pieces).unwrap();
    assert_eq!(left.len(), 3);
    for block in &left {
        assert_eq!(s.annotation(block, "note"), Some(&Annotation::Int(1)));
    }
    let vector = *s.loops(&left[0]).unwrap().last().unwrap();
    assert_eq!(s.loop_annotation(vector, "lanes"), Some(&Annotation::Int(2)));
}
