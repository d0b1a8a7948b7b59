//! Node-based crossover, as in Ansor: for each node of the subgraph the decisions of either parent,
//! at random.
//!
//! ```text
//! a: mm by 8, softmax unrolled    b: mm by 4, softmax not    child: mm as in b, softmax as in a
//! ```
//!
//! A node is a stage of the subgraph. Parents are of one sketch. What does not replay with these
//! decisions is no child. If a model reads traces, no program is made of a child.

use std::collections::BTreeSet;

use ansc_sketch::Task;
use rand::{Rng, RngExt};

use super::point::Point;
use crate::candidate::Search;
use crate::model::Needs;

/// None if the parents are not of one sketch, or if all in which they differ is of one of them:
/// then the child would be a copy.
pub(super) fn cross(
    search: &Search,
    a: &Point,
    b: &Point,
    needs: Needs,
    random: &mut dyn Rng,
) -> Option<Point> {
    if !a.trace.same_sketch(&b.trace) {
        return None;
    }
    let nodes = Nodes::of(&search.task);
    let subjects = a.trace.subjects();
    let of_b = nodes.drawn(random);
    let is_of_b = |node: &str| of_b.contains(node);
    let of_step = |step: usize| subjects.get(&step).map_or("", |name| nodes.node(name));
    let differ = |step: &usize| a.trace.steps[*step] != b.trace.steps[*step];
    let sides: BTreeSet<bool> =
        a.trace.choices().into_iter().filter(differ).map(|step| is_of_b(of_step(step))).collect();
    if sides.len() < 2 {
        return None;
    }
    let child = a.trace.crossed(&b.trace, &|step| is_of_b(of_step(step)))?;
    match needs {
        Needs::Program => Some(Point::of(&search.replay_exactly(&child)?, Needs::Program)),
        Needs::Trace => Some(Point::unmade(child)),
    }
}

/// The names of a subgraph's stages.
struct Nodes<'a>(Vec<&'a str>);

impl<'a> Nodes<'a> {
    fn of(task: &'a Task) -> Nodes<'a> {
        Nodes(task.compute.stages.iter().map(|s| s.name.as_str()).collect())
    }

    /// The node that a block or buffer was made of: `mm` for `mm_local` and `mm_rf`. Empty if there
    /// is none.
    fn node(&self, name: &str) -> &'a str {
        let is_of = |node: &&&str| {
            name.strip_prefix(**node).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        self.0.iter().filter(is_of).max_by_key(|node| node.len()).copied().unwrap_or("")
    }

    /// Each as likely as not.
    fn drawn(&self, random: &mut dyn Rng) -> BTreeSet<&'a str> {
        self.0.iter().copied().chain([""]).filter(|_| random.random_range(0..2) == 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ansc_graph::Compute;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::candidate::Candidate;
    use crate::testing::task;

    /// Two products, each with tiles of its own.
    fn two_products() -> Arc<Task> {
        let text = "compute(in0: f32[32, 48], in1: f32[48, 24], in2: f32[24, 40]) -> bb {
           aa: f32[32, 24] = sum{r0: 48} mul(in0[i0, r0], in1[r0, i1])
           bb: f32[32, 40] = sum{r0: 24} mul(aa[i0, r0], in2[r0, i1])
         }";
        task(Compute::parse(text).unwrap())
    }

    /// Whether programs are made or not, each node is that of one parent, and both have their turn.
    #[test]
    fn each_node_is_that_of_either_parent() {
        let task = two_products();
        let search = Search::new(task.clone());
        let (nodes, sketches) = (Nodes::of(&task), &search.sketches);
        for needs in [Needs::Trace, Needs::Program] {
            let mut children = BTreeSet::new();
            let replayed = |sketch: usize, seed| {
                let random = &mut StdRng::seed_from_u64(seed);
                let candidate = Candidate::of(&task, &sketches[sketch].trace, random)?;
                Some(Point::of(&candidate, needs))
            };
            for sketch in 1..sketches.len() {
                let (Some(a), Some(b)) = (replayed(sketch, 1), replayed(sketch, 2)) else {
                    continue;
                };
                for seed in 0..20 {
                    let random = &mut StdRng::seed_from_u64(seed);
                    let Some(child) = cross(&search, &a, &b, needs, random) else { continue };
                    assert_eq!(child.features.is_some(), needs == Needs::Program);
                    let mut owners: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
                    for (step, name) in child.trace.subjects() {
                        let [own, of_a, of_b] =
                            [&child, &a, &b].map(|point| point.trace.steps[step].clone());
                        assert!(own == of_a || own == of_b);
                        if of_a != of_b {
                            owners.entry(nodes.node(&name)).or_default().insert(own == of_b);
                        }
                    }
                    assert!(owners.values().all(|of| of.len() == 1), "{owners:?}");
                    children.insert(child.id);
                }
            }
            assert!(children.len() > 3, "{}", children.len());
        }
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
