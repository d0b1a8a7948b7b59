use crate::*;
pub struct Group { pub name: String, pub nodes: Vec<NodeId>, pub inputs: Vec<ValueId>, pub outputs: Vec<ValueId>, pub compute: Compute, pub anchor: Option<Kind>, pub is_view: bool }
pub enum Item { Group(Group), Node(NodeId) }
pub fn schedule(g: &Graph) -> Vec<Item> {
    g.topological().into_iter().map(|n| match g.compute_of(n) {
        None => Item::Node(n),
        Some(c) => Item::Group(Group { name: g.node(n).name.clone(), nodes: vec![n], inputs: g.operands(n), outputs: g.values(n).collect(), compute: (*c.expr).clone(), anchor: None, is_view: c.kind == Kind::Reshape }),
    }).collect()
}
