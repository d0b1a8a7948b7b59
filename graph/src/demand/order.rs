//! An order in which sizes are known early.
//!
//! In: items in an order in which each finds its operands computed. Out: another one, in which what
//! decides sizes comes first. What follows a size is computed as far as it is needed; what comes
//! before it, in full.
//!
//! ```text
//! noise, durations, total = amount(..), y = noise[.. total]  ->  durations, total, noise, y
//! ```

use std::collections::{HashMap, HashSet};

use crate::fuse::Item;
use crate::graph::{Graph, ValueId};

/// The items with those first that one of these sizes depends on.
pub fn sizes_first(graph: &Graph, items: Vec<Item>, sizes: &[ValueId]) -> Vec<Item> {
    let outputs = |item: &Item| match item {
        Item::Group(group) => group.outputs.clone(),
        Item::Node(node) => graph.values(*node).collect(),
    };
    let numbered = items.iter().enumerate();
    let made: HashMap<ValueId, usize> =
        numbered.flat_map(|(at, item)| outputs(item).into_iter().map(move |v| (v, at))).collect();
    let mut left: Vec<ValueId> = sizes.to_vec();
    let mut first = HashSet::new();
    while let Some(value) = left.pop() {
        let Some(&at) = made.get(&value).filter(|at| first.insert(**at)) else { continue };
        match &items[at] {
            Item::Group(group) => left.extend(&group.inputs),
            Item::Node(node) => left.extend(graph.operands(*node)),
        }
    }
    let (mut early, mut late) = (vec![], vec![]);
    for (at, item) in items.into_iter().enumerate() {
        if first.contains(&at) { &mut early } else { &mut late }.push(item);
    }
    early.append(&mut late);
    early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::schedule;
    use crate::passes::testing::Builder;

    #[test]
    fn what_a_size_depends_on_comes_first() {
        let mut b = Builder::new(1);
        let [x, y] = [0, 1].map(|_| b.input(&[4]));
        let [noise, number] = [x, y].map(|x| b.relu(x));
        b.graph.outputs = vec![("noise".into(), noise), ("number".into(), number)];
        let ends = |items: &[Item]| -> Vec<ValueId> {
            let groups = items.iter().filter_map(|item| match item {
                Item::Group(group) => Some(group.outputs[0]),
                Item::Node(_) => None,
            });
            groups.collect()
        };
        let items = schedule(&b.graph);
        assert_eq!(ends(&items), [noise, number]);
        assert_eq!(ends(&sizes_first(&b.graph, items.clone(), &[number])), [number, noise]);
        assert_eq!(sizes_first(&b.graph, items.clone(), &[noise]).len(), items.len());
    }
}
