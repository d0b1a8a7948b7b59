//! The title of a kernel, for people. It begins with the nodes of the model, which they know. The
//! name that the compiler gave the kernel comes second.
//!
//! ```text
//! /conv1/Conv + /relu/Relu (conv_map_21)
//! ```

use std::collections::BTreeSet;

/// Nodes that a title lists; the others are counted.
const LISTED: usize = 3;
/// The first character of a name that was shortened.
const CUT: char = '…';

/// The title, however long it is.
pub fn title(nodes: &[String], kernel: &str) -> String {
    let nodes = distinct(nodes);
    match nodes.len() {
        0 => kernel.to_owned(),
        n => format!("{} ({kernel})", first(&nodes, if n > LISTED { LISTED } else { n })),
    }
}

/// The same in `width` characters, if these can hold a node's name of some letters.
pub fn title_in(nodes: &[String], kernel: &str, width: usize) -> String {
    let nodes = distinct(nodes);
    if nodes.is_empty() {
        return shortened(kernel, width);
    }
    let room = width.saturating_sub(kernel.chars().count() + " ()".len());
    let candidates = (1..=nodes.len().min(LISTED)).rev().map(|n| first(&nodes, n));
    let fitting = candidates.into_iter().find(|text| text.chars().count() <= room);
    let text = fitting.unwrap_or_else(|| {
        let more = first(&nodes, 1).chars().count() - nodes[0].chars().count();
        let name = shortened(nodes[0], room.saturating_sub(more));
        if nodes.len() > 1 { format!("{name}{}", rest(nodes.len() - 1)) } else { name }
    });
    format!("{text} ({kernel})")
}

/// The end of a long name, which tells it from others.
pub fn shortened(name: &str, width: usize) -> String {
    let n = name.chars().count();
    if n <= width {
        return name.into();
    }
    let end = name.chars().skip(n + 1 - width.max(1));
    [CUT].into_iter().chain(end).collect()
}

/// A node that became several operators is named once.
fn distinct(nodes: &[String]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    nodes.iter().map(String::as_str).filter(|n| !n.is_empty() && seen.insert(*n)).collect()
}

fn first(nodes: &[&str], n: usize) -> String {
    let more = nodes.len() - n;
    format!("{}{}", nodes[..n].join(" + "), if more > 0 { rest(more) } else { String::new() })
}

fn rest(more: usize) -> String {
    format!(" + {more} more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn the_nodes_of_the_model_come_first() {
        assert_eq!(title(&nodes(&["conv1", "relu1"]), "conv_map_3"), "conv1 + relu1 (conv_map_3)");
        assert_eq!(title(&nodes(&["fc", "fc"]), "matmul_map_3"), "fc (matmul_map_3)");
        assert_eq!(title(&nodes(&["a", "b", "c", "d", "e"]), "k"), "a + b + c + 2 more (k)");
        assert_eq!(title(&[], "k"), "k");
    }

    #[test]
    fn titles_fit() {
        let long = nodes(&["/features/features.0/Conv", "/features/features.2/Relu", "c"]);
        assert_eq!(title_in(&long, "conv_1", 80).chars().count(), 66);
        for width in 30..70 {
            let text = title_in(&long, "conv_1", width);
            assert!(text.chars().count() <= width, "{width}: {text}");
            assert!(text.ends_with(" (conv_1)") && text.contains("Conv"), "{text}");
        }
        assert_eq!(title_in(&long, "conv_1", 30), "…ures.0/Conv + 2 more (conv_1)");
        assert_eq!(shortened("conv_1", 4), "…v_1");
    }
}
