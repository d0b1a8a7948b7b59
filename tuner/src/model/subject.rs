//! The data that models have of a subgraph besides its schedules: a few numbers for each stage, and
//! its kind.
//!
//! ```text
//! mm: f32[64, 48] = sum{r0: 32} mul(a[i0, r0], b[r0, i1])
//! => combiner 1, 4 bytes, 2 loads, 1 operation, 2 axes of results 64 48, 1 of terms 32;  tag `dense`
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BinOp, Combiner, Compute, Expr, Stage, UnOp, VarId};
use ansc_sketch::Task;

/// A subgraph as models see it. That of an unknown one has no stages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// For each stage: the combiner (0 for none), bytes of an element, loads, operations, the
    /// number of its spatial axes and of its reduced ones, products of both, and their extents,
    /// reduced ones first.
    pub stages: Vec<Vec<i64>>,
    /// For each of [`TAGS`] whether a stage is of that kind.
    pub tags: [bool; TAGS.len()],
}

/// The kinds of operators that TenSet tells apart, and one place more, as in its own inputs.
pub const TAGS: [&str; 10] = [
    "max",
    "min",
    "add",
    "conv2d",
    "winograd",
    "depthwise",
    "dense",
    "softmax",
    "batch_matmul",
    "other",
];

impl Subject {
    /// The subject of a task.
    pub fn of(task: &Task) -> Subject {
        Subject::of_compute(&task.compute)
    }

    pub(super) fn of_compute(compute: &Compute) -> Subject {
        let mut tags = [false; TAGS.len()];
        let mut tag = |name: &str| {
            let known = TAGS.iter().position(|t| *t == name);
            tags[known.unwrap_or(TAGS.len() - 1)] = true;
        };
        for (at, stage) in compute.stages.iter().enumerate() {
            stage.reduce.as_ref().into_iter().for_each(|_| tag(reduction(stage)));
            if is_softmax(compute, at) {
                tag("softmax");
            }
        }
        Subject { stages: compute.stages.iter().map(numbers).collect(), tags }
    }
}

fn numbers(stage: &Stage) -> Vec<i64> {
    let (mut loads, mut operations) = (0, 0);
    stage.body.visit(&mut |e| match e {
        Expr::Load(..) => loads += 1,
        Expr::Const(_) | Expr::Var(_) | Expr::Cast(..) => {}
        Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => operations += 1,
    });
    let spatial = &stage.ty.shape;
    let terms: &[usize] = stage.reduce.as_ref().map_or(&[], |r| &r.extents);
    let product = |all: &[usize]| all.iter().fold(1i64, |p, &n| p.saturating_mul(n as i64));
    let head = [
        stage.reduce.as_ref().map_or(0, |r| combiner(r.combiner)),
        stage.ty.dtype.size() as i64,
        loads,
        operations,
        spatial.len() as i64,
        terms.len() as i64,
        product(spatial),
        product(terms),
    ];
    let extents = terms.iter().chain(spatial).map(|&n| n as i64);
    head.into_iter().chain(extents).collect()
}

fn combiner(combiner: Combiner) -> i64 {
    match combiner {
        Combiner::Sum => 1,
        Combiner::Prod => 2,
        Combiner::Max => 3,
        Combiner::Min => 4,
        Combiner::ArgMax { .. } | Combiner::ArgMin { .. } => 5,
    }
}

/// The tag of a stage that reduces.
fn reduction(stage: &Stage) -> &'static str {
    let Some(reduce) = &stage.reduce else { return "other" };
    match reduce.combiner {
        Combiner::Max => return "max",
        Combiner::Min => return "min",
        Combiner::Sum => {}
        _ => return "other",
    }
    let Expr::Binary(BinOp::Mul, a, b) = &stage.body else { return "add" };
    let (a, b) = (Operand::of(a, stage), Operand::of(b, stage));
    if a.loads == 0 || b.loads == 0 {
        return "add";
    }
    let shared = a.spatial.intersection(&b.spatial).next().is_some();
    let channels = reduce.extents.len() > a.windows.max(b.windows);
    match a.windows + b.windows > 0 {
        true if channels => "conv2d",
        true => "depthwise",
        false if shared => "batch_matmul",
        false => "dense",
    }
}

/// One side of a product.
struct Operand {
    loads: usize,
    /// Axes of the result that it varies along.
    spatial: BTreeSet<VarId>,
    /// Reduced axes that are added to one of the result in an index.
    windows: usize,
}

impl Operand {
    fn of(side: &Expr, stage: &Stage) -> Operand {
        let rank = stage.ty.rank();
        let is_spatial = |v: &VarId| v.index() < rank;
        let (mut loads, mut spatial, mut windows) = (0, BTreeSet::new(), BTreeSet::new());
        side.visit(&mut |e| {
            let Expr::Load(_, indices) = e else { return };
            loads += 1;
            for vars in indices.iter().map(Expr::vars) {
                if vars.iter().any(is_spatial) {
                    windows.extend(vars.iter().copied().filter(|v| !is_spatial(v)));
                }
                spatial.extend(vars.into_iter().filter(|v| is_spatial(v)));
            }
        });
        Operand { loads, spatial, windows: windows.len() }
    }
}

/// Whether the stage adds up exponentials that an earlier one computes, or computes itself.
fn is_softmax(compute: &Compute, at: usize) -> bool {
    let stage = &compute.stages[at];
    let is_exp = |e: &Expr| matches!(e, Expr::Unary(UnOp::Exp, _));
    let sums = stage.reduce.as_ref().is_some_and(|r| r.combiner == Combiner::Sum);
    let first = compute.inputs.len();
    let exponentials = |e: &Expr| match e {
        Expr::Load(buffer, _) => {
            let of = buffer.index().checked_sub(first).and_then(|s| compute.stages.get(s));
            of.is_some_and(|s| is_exp(&s.body))
        }
        e => is_exp(e),
    };
    sums && exponentials(&stage.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(text: &str) -> Subject {
        Subject::of_compute(&Compute::parse(text).unwrap())
    }

    fn tags(text: &str) -> Vec<&'static str> {
        let tags = subject(text).tags;
        TAGS.into_iter().zip(tags).filter(|(_, is)| *is).map(|(name, _)| name).collect()
    }

    #[test]
    fn stages_are_told_by_their_loops() {
        let text = "compute(in0: f32[64, 32], in1: f32[32, 48], in2: f32[48]) -> y {
           mm: f32[64, 48] = sum{r0: 32} mul(in0[i0, r0], in1[r0, i1])
           y: f32[64, 48] = max(add(mm[i0, i1], in2[i1]), 0.0_f32)
         }";
        let found = subject(text);
        let mm = vec![1, 4, 2, 1, 2, 1, 64 * 48, 32, 32, 64, 48];
        let y = vec![0, 4, 2, 2, 2, 0, 64 * 48, 1, 64, 48];
        assert_eq!(found.stages, [mm, y]);
        assert_eq!(tags(text), ["dense"]);
    }

    #[test]
    fn operators_have_tags() {
        let cases = [
            (
                "in0: f32[2, 4, 6], in1: f32[2, 6, 5]",
                "f32[2, 4, 5] = sum{r0: 6} mul(in0[i0, i1, r0], in1[i0, r0, i2])",
                "batch_matmul",
            ),
            (
                "in0: f32[8, 9], in1: f32[3, 8, 4]",
                "f32[7, 4] = sum{r0: 3, r1: 8} mul(in0[r1, add(i0, r0)], in1[r0, r1, i1])",
                "conv2d",
            ),
            (
                "in0: f32[9, 8], in1: f32[3, 8]",
                "f32[7, 8] = sum{r0: 3} mul(in0[add(i0, r0), i1], in1[r0, i1])",
                "depthwise",
            ),
            ("in0: f32[4, 6]", "f32[4] = sum{r0: 6} in0[i0, r0]", "add"),
            ("in0: f32[4, 6]", "f32[4] = max{r0: 6} in0[i0, r0]", "max"),
        ];
        for (inputs, stage, tag) in cases {
            let text = format!("compute({inputs}) -> y {{\n  y: {stage}\n}}");
            assert_eq!(tags(&text), [tag], "{stage}");
        }
        let softmax = "compute(in0: f32[4, 6]) -> d {
           e: f32[4, 6] = exp(in0[i0, i1])
           s: f32[4] = sum{r0: 6} e[i0, r0]
           d: f32[4, 6] = div(e[i0, i1], s[i0])
         }";
        assert_eq!(tags(softmax), ["add", "softmax"]);
    }
}
