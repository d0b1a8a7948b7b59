//! Graphs: inputs in order, nodes by number, results by name.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};

use super::cursor::{Cursor, Result};
use super::error::{Cause, ParseError};
use super::node;
use super::tensor::{Constants, NoConstants};
use super::token::Quoted;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Op;

/// Loops and conditionals inside of each other.
const MAX_BODIES: usize = 64;

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        print(f, self, "")?;
        f.write_char('\n')
    }
}

impl Graph {
    /// Reads a text that holds all of its constants.
    pub fn parse(text: &str) -> std::result::Result<Graph, ParseError> {
        Graph::parse_with(text, &NoConstants)
    }

    /// Reads what `Display` writes. What it describes may still be wrong: `verify` tells.
    pub fn parse_with(
        text: &str,
        constants: &dyn Constants,
    ) -> std::result::Result<Graph, ParseError> {
        let mut cursor = Cursor::new(text)?;
        let graph = read(&mut cursor, constants)?;
        cursor.end()?;
        Ok(graph)
    }
}

/// Numbers of nodes, in the order in which they are printed.
struct Numbers {
    order: Vec<NodeId>,
    of: BTreeMap<NodeId, usize>,
}

impl Numbers {
    /// Nodes on a cycle, which no valid graph has, come last.
    fn of(graph: &Graph) -> Numbers {
        let mut order = graph.try_topological();
        let sorted: std::collections::BTreeSet<NodeId> = order.iter().copied().collect();
        order.extend(graph.node_ids().into_iter().filter(|n| !sorted.contains(n)));
        let of = order.iter().enumerate().map(|(number, &node)| (node, number)).collect();
        Numbers { order, of }
    }

    fn node(&self, node: NodeId) -> String {
        self.of.get(&node).map_or("%?".into(), |number| format!("%{number}"))
    }

    fn value(&self, value: ValueId) -> String {
        let node = self.node(value.node);
        if value.out == 0 { node } else { format!("{node}#{}", value.out) }
    }
}

/// `indent` stands before every line but the first.
pub(super) fn print(out: &mut dyn Write, graph: &Graph, indent: &str) -> fmt::Result {
    let numbers = Numbers::of(graph);
    let inputs: Vec<String> = graph.inputs().iter().map(|&n| numbers.node(n)).collect();
    writeln!(out, "graph {} ({}) {{", Quoted(&graph.name), inputs.join(", "))?;
    let inner = format!("{indent}  ");
    for (number, &id) in numbers.order.iter().enumerate() {
        let operands: Vec<String> =
            graph.operands(id).into_iter().map(|v| numbers.value(v)).collect();
        node::print(out, number, graph.node(id), &operands, &inner)?;
    }
    for (name, value) in &graph.outputs {
        writeln!(out, "{inner}output {} = {}", Quoted(name), numbers.value(*value))?;
    }
    write!(out, "{indent}}}")
}

/// Nodes by the numbers in the text.
type Nodes = BTreeMap<u32, NodeId>;

pub(super) fn read(cursor: &mut Cursor, constants: &dyn Constants) -> Result<Graph> {
    if cursor.bodies == MAX_BODIES {
        return Err(cursor.error(Cause::TooDeep));
    }
    cursor.bodies += 1;
    cursor.keyword("graph")?;
    let mut graph = Graph::new(cursor.quoted("the name of the graph, between quotes")?);
    cursor.mark('(')?;
    let inputs = cursor.list(')', |c| Ok((c.place(), number(c)?)))?;
    cursor.mark('{')?;
    let mut nodes = Nodes::new();
    while cursor.at_mark('%') {
        node(cursor, constants, &mut graph, &mut nodes)?;
    }
    while cursor.take_word("output") {
        let name = cursor.quoted("the name of a result, between quotes")?;
        cursor.mark('=')?;
        let value = value(cursor, &graph, &nodes)?;
        graph.outputs.push((name, value));
    }
    cursor.mark('}')?;
    let inputs = inputs.into_iter().map(|(place, number)| {
        let node = nodes.get(&number).copied();
        let is_input = |n: &NodeId| matches!(graph.node(*n).op, Op::Input { .. });
        let unknown = Cause::Unknown { what: "input", name: format!("%{number}") };
        node.filter(is_input).ok_or_else(|| cursor.error_at(place, unknown))
    });
    let inputs = inputs.collect::<Result<_>>()?;
    graph.set_inputs(inputs);
    cursor.bodies -= 1;
    Ok(graph)
}

fn node(
    cursor: &mut Cursor,
    constants: &dyn Constants,
    graph: &mut Graph,
    nodes: &mut Nodes,
) -> Result<()> {
    let place = cursor.place();
    let number = number(cursor)?;
    let (node, operands) = node::read(cursor, constants, |c| value(c, graph, nodes))?;
    let id = graph.add(&node.name, node.op, &operands, node.outputs);
    if nodes.insert(number, id).is_some() {
        let cause = Cause::Duplicate { what: "node", name: format!("%{number}") };
        return Err(cursor.error_at(place, cause));
    }
    Ok(())
}

/// `%3`
fn number(cursor: &mut Cursor) -> Result<u32> {
    cursor.mark('%')?;
    cursor.number("the number of a node")
}

/// `%3`, or `%3#1`
fn value(cursor: &mut Cursor, graph: &Graph, nodes: &Nodes) -> Result<ValueId> {
    let place = cursor.place();
    let number = number(cursor)?;
    let out = if cursor.take_mark('#') { cursor.number("the position of a value")? } else { 0 };
    let found = nodes.get(&number).map(|&node| ValueId { node, out });
    let exists = |v: &ValueId| (v.out as usize) < graph.node(v.node).outputs.len();
    found.filter(exists).ok_or_else(|| {
        let name = if out == 0 { format!("%{number}") } else { format!("%{number}#{out}") };
        cursor.error_at(place, Cause::Unknown { what: "value", name })
    })
}
