//! The post-dominator tree of the dataflow graph.

use super::pattern::Pattern;

/// A node's immediate post-dominator: the first node that all paths from it to the results of the
/// graph pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dominator {
    /// Position of the post-dominator; `None` where the paths only meet outside of the graph.
    pub(super) parent: Option<usize>,
    /// Length of the way to the root.
    depth: usize,
    /// The hardest pattern on any edge on the paths up to the post-dominator.
    pub(super) pattern: Pattern,
}

const ROOT: Dominator = Dominator { parent: None, depth: 1, pattern: Pattern::Opaque };

/// The tree, given for each node, in topological order, its readers; `None` for a node that is read
/// outside of the graph as well.
pub(super) fn post_dominators(readers: &[Option<Vec<(usize, Pattern)>>]) -> Vec<Dominator> {
    let mut tree = vec![ROOT; readers.len()];
    for (node, readers) in readers.iter().enumerate().rev() {
        if let Some(readers) = readers {
            tree[node] = dominator(&tree, readers);
        }
    }
    tree
}

fn dominator(tree: &[Dominator], readers: &[(usize, Pattern)]) -> Dominator {
    let Some(&(first, mut pattern)) = readers.first() else { return ROOT };
    let mut parent = Some(first);
    for &(reader, edge) in &readers[1..] {
        parent = common(tree, parent, Some(reader), &mut pattern);
        pattern = pattern.max(edge);
    }
    match parent {
        Some(p) => Dominator { parent, depth: tree[p].depth + 1, pattern },
        None => ROOT,
    }
}

/// The least common ancestor; `pattern` grows by the edges on the way to it.
fn common(
    tree: &[Dominator],
    mut a: Option<usize>,
    mut b: Option<usize>,
    pattern: &mut Pattern,
) -> Option<usize> {
    while a != b {
        let (x, y) = (a?, b?);
        if tree[x].depth >= tree[y].depth {
            *pattern = (*pattern).max(tree[x].pattern);
            a = tree[x].parent;
        }
        if tree[y].depth >= tree[x].depth {
            *pattern = (*pattern).max(tree[y].pattern);
            b = tree[y].parent;
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::Pattern::*;
    use super::*;

    #[test]
    fn a_diamond_meets_at_its_end() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3, 3 -> 4 (read outside)
        let readers = vec![
            Some(vec![(1, Elementwise), (2, Elementwise)]),
            Some(vec![(3, Elementwise)]),
            Some(vec![(3, Injective)]),
            Some(vec![(4, Elementwise)]),
            None,
        ];
        let tree = post_dominators(&readers);
        let parents: Vec<_> = tree.iter().map(|d| d.parent).collect();
        assert_eq!(parents, [Some(3), Some(3), Some(3), Some(4), None]);
        assert_eq!(tree[0].pattern, Injective);
        assert_eq!(tree[1].pattern, Elementwise);
    }

    #[test]
    fn paths_that_end_outside_have_no_dominator() {
        // 0 -> 1, 0 -> 2; both are results.
        let tree = post_dominators(&[Some(vec![(1, Elementwise), (2, Elementwise)]), None, None]);
        assert_eq!(tree[0].parent, None);
    }
}
