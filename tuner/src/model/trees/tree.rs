//! One regression tree.

use serde::{Deserialize, Serialize};

/// Nodes in preorder: the left child of a node follows it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
}

/// In JSON a leaf is its value and a split `[feature, threshold, right]`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Node {
    Leaf(f32),
    /// A row goes to the node `right` if its number is more than the threshold.
    Split(u16, f32, u32),
}

impl Tree {
    pub(super) fn predict(&self, row: &[f32]) -> f32 {
        let mut at = 0;
        loop {
            match self.nodes[at] {
                Node::Leaf(value) => return value,
                Node::Split(feature, threshold, right) => {
                    at =
                        if row[usize::from(feature)] > threshold { right as usize } else { at + 1 };
                }
            }
        }
    }

    /// Whether every row of so many numbers ends at a finite leaf.
    pub(super) fn is_sound(&self, width: usize) -> bool {
        let last = self.nodes.len().saturating_sub(1);
        let sound = |(at, node): (usize, &Node)| match *node {
            Node::Leaf(value) => value.is_finite(),
            Node::Split(feature, threshold, right) => {
                let right = right as usize;
                usize::from(feature) < width
                    && threshold.is_finite()
                    && right > at + 1
                    && right <= last
            }
        };
        !self.nodes.is_empty() && self.nodes.iter().enumerate().all(sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a row.
    const WIDTH: usize = 164;

    fn tree(nodes: &[Node]) -> Tree {
        Tree { nodes: nodes.to_vec() }
    }

    #[test]
    fn rows_go_right_if_they_are_more() {
        use Node::*;
        let tree = tree(&[Split(3, 1.0, 4), Split(0, 0.0, 3), Leaf(1.0), Leaf(2.0), Leaf(3.0)]);
        assert!(tree.is_sound(WIDTH));
        let predict = |first, fourth| {
            let mut row = [0.0; WIDTH];
            (row[0], row[3]) = (first, fourth);
            tree.predict(&row)
        };
        assert_eq!([predict(0.0, 1.0), predict(0.1, 1.0), predict(0.0, 1.1)], [1.0, 2.0, 3.0]);
        assert_eq!(predict(f32::NAN, f32::NAN), 1.0);
    }

    #[test]
    fn unsound_trees_are_found() {
        use Node::*;
        let cases = [
            vec![],
            vec![Leaf(f32::NAN)],
            vec![Split(0, 0.0, 2), Leaf(0.0)],
            vec![Split(0, 0.0, 0), Leaf(0.0)],
            vec![Split(0, 0.0, 1), Leaf(0.0)],
            vec![Split(164, 0.0, 2), Leaf(0.0), Leaf(0.0)],
            vec![Split(0, f32::INFINITY, 2), Leaf(0.0), Leaf(0.0)],
            // The left child of the last node would be beyond the end.
            vec![Split(0, 0.0, 2), Leaf(0.0), Split(0, 0.0, 2)],
        ];
        for nodes in cases {
            assert!(!tree(&nodes).is_sound(WIDTH), "{nodes:?}");
        }
    }
}
