//! Node-based crossover: for each node of the subgraph the decisions of the parent whose node the
//! cost model scores higher.
//!
//! ```text
//! scores of a: mm 0.2, softmax 0.6    of b: mm 0.5, softmax 0.1    child: mm as in b, softmax as in a
//! ```
//!
//! A node is a stage of the subgraph; its score is the sum over the buffers that were made of it.
//! Parents are of one sketch. What does not replay with these decisions is no child. A model that
//! reads traces scores no buffers: then each node is that of either parent, at random.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ansc_sketch::{Features, Task};
use rand::{Rng, RngExt};

use super::point::Point;
use crate::candidate::Candidate;
use crate::model::{CostModel, Needs, View};

/// None if the parents are not of one sketch, differ in no node, or the one is better in all of
/// them: then the child would be a copy.
pub(super) fn cross(
    task: &Arc<Task>,
    a: &Point,
    b: &Point,
    model: &dyn CostModel,
    random: &mut dyn Rng,
) -> Option<Point> {
    if !a.trace.same_sketch(&b.trace) {
        return None;
    }
    let nodes = Nodes::of(task);
    let subjects = a.trace.subjects();
    let better = match model.needs() {
        Needs::Program => nodes.better(a, b, model),
        Needs::Trace => nodes.drawn(random),
    };
    let better_in_b = |node: &str| better.contains(node);
    let of_step = |step: usize| subjects.get(&step).map_or("", |name| nodes.node(name));
    let differ = |step: &usize| a.trace.steps[*step] != b.trace.steps[*step];
    let sides: BTreeSet<bool> = a
        .trace
        .choices()
        .into_iter()
        .filter(differ)
        .map(|step| better_in_b(of_step(step)))
        .collect();
    if sides.len() < 2 {
        return None;
    }
    let child = a.trace.crossed(&b.trace, &|step| better_in_b(of_step(step)))?;
    match model.needs() {
        Needs::Program => Some(Point::of(&Candidate::exactly(task, &child)?, Needs::Program)),
        Needs::Trace => Some(Point::unmade(child)),
    }
}

/// The names of a subgraph's stages.
struct Nodes<'a>(Vec<&'a str>);

impl<'a> Nodes<'a> {
    fn of(task: &'a Task) -> Nodes<'a> {
        Nodes(task.compute.stages.iter().map(|s| s.name.as_str()).collect())
    }

    /// What a block or buffer was made of: `mm_local` and `mm_rf` of `mm`. Empty if of none.
    fn node(&self, name: &str) -> &'a str {
        let is_of = |node: &&&str| {
            name.strip_prefix(**node).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        self.0.iter().filter(is_of).max_by_key(|node| node.len()).copied().unwrap_or("")
    }

    /// Those that the model scores higher in `b`.
    fn better(&self, a: &Point, b: &Point, model: &dyn CostModel) -> BTreeSet<&'a str> {
        let (of_a, of_b) = (self.scores(a, model), self.scores(b, model));
        of_b.keys().copied().filter(|node| of_b.get(node) > of_a.get(node)).collect()
    }

    /// Each as likely as not.
    fn drawn(&self, random: &mut dyn Rng) -> BTreeSet<&'a str> {
        self.0.iter().copied().chain([""]).filter(|_| random.random_range(0..2) == 1).collect()
    }

    fn scores(&self, point: &Point, model: &dyn CostModel) -> BTreeMap<&'a str, f32> {
        let rows = point.features().into_iter().flat_map(|f| &f.rows);
        let alone: Vec<Features> =
            rows.map(|row| Features { rows: vec![*row], ..Features::default() }).collect();
        let scores = model.predict(&alone.iter().map(View::of_program).collect::<Vec<_>>());
        let mut all = BTreeMap::new();
        for (buffer, score) in point.stored().iter().zip(scores) {
            *all.entry(self.node(buffer)).or_insert(0.0) += score;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;
    use ansc_sketch::features;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::model::Sample;
    use crate::testing::task;

    /// Likes the rows with many operations to be deep in loops, whatever they compute:
    /// deterministic.
    struct Depth;

    impl CostModel for Depth {
        fn name(&self) -> &'static str {
            "depth"
        }
        fn train(&mut self, _: &[Sample]) {}
        fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
            let row = |row: &[f32; features::LEN]| row.iter().sum::<f32>();
            candidates.iter().map(|c| c.rows().iter().map(row).sum()).collect()
        }
    }

    /// Two products, each with tiles of its own.
    fn two_products() -> Arc<Task> {
        let text = "compute(in0: f32[32, 48], in1: f32[48, 24], in2: f32[24, 40]) -> bb {
           aa: f32[32, 24] = sum{r0: 48} mul(in0[i0, r0], in1[r0, i1])
           bb: f32[32, 40] = sum{r0: 24} mul(aa[i0, r0], in2[r0, i1])
         }";
        task(Compute::parse(text).unwrap())
    }

    #[test]
    fn each_node_is_that_of_the_better_parent() {
        let task = two_products();
        let nodes = Nodes::of(&task);
        let mut crossed = 0;
        for (number, sketch) in task.sketches().iter().enumerate().skip(1) {
            for seed in 0..4 {
                let random = &mut StdRng::seed_from_u64(100 * number as u64 + seed);
                let mut sample = || {
                    Candidate::of(&task, &sketch.trace, random)
                        .map(|c| Point::of(&c, Needs::Program))
                };
                let (Some(a), Some(b)) = (sample(), sample()) else { continue };
                let any = &mut StdRng::seed_from_u64(0);
                let Some(child) = cross(&task, &a, &b, &Depth, any) else { continue };
                let (of_a, of_b) = (nodes.scores(&a, &Depth), nodes.scores(&b, &Depth));
                for (step, name) in child.trace.subjects() {
                    let node = nodes.node(&name);
                    let parent = if of_b.get(node) > of_a.get(node) { &b } else { &a };
                    assert_eq!(child.trace.steps[step], parent.trace.steps[step]);
                }
                assert!(child.id != a.id || child.id != b.id);
                crossed += 1;
            }
        }
        assert!(crossed > 5, "{crossed}");
    }

    /// Reads traces.
    struct Blind;

    impl CostModel for Blind {
        fn name(&self) -> &'static str {
            "blind"
        }
        fn needs(&self) -> Needs {
            Needs::Trace
        }
        fn train(&mut self, _: &[Sample]) {}
        fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
            vec![0.0; candidates.len()]
        }
    }

    #[test]
    fn without_scores_of_nodes_each_is_that_of_either_parent() {
        let task = two_products();
        let mut children = BTreeSet::new();
        let sketches = task.sketches();
        let replayed = |sketch: usize, seed| {
            let random = &mut StdRng::seed_from_u64(seed);
            let candidate = Candidate::of(&task, &sketches[sketch].trace, random)?;
            Some(Point::of(&candidate, Needs::Trace))
        };
        for sketch in 1..sketches.len() {
            let (Some(a), Some(b)) = (replayed(sketch, 1), replayed(sketch, 2)) else { continue };
            for seed in 0..20 {
                let random = &mut StdRng::seed_from_u64(seed);
                let Some(child) = cross(&task, &a, &b, &Blind, random) else { continue };
                assert!(child.features().is_none());
                for (step, s) in child.trace.steps.iter().enumerate() {
                    assert!(*s == a.trace.steps[step] || *s == b.trace.steps[step]);
                }
                children.insert(child.id);
            }
        }
        assert!(children.len() > 3, "{}", children.len());
    }

    #[test]
    fn names_that_were_made_belong_to_their_node() {
        let nodes = Nodes(vec!["mm", "mm_2", "relu"]);
        let table = [
            ("mm", "mm"),
            ("mm_local", "mm"),
            ("mm_2", "mm_2"),
            ("mm_2_rf", "mm_2"),
            ("mmx", ""),
            ("relu_local", "relu"),
        ];
        for (name, node) in table {
            assert_eq!(nodes.node(name), node, "{name}");
        }
    }
}
