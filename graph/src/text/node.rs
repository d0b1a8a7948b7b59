//! Nodes: what they give, what they do, what they read.
//!
//! ```text
//! %3: f32[2] "values", i64[2] "indices" = host "topk" (%1) {"op":"top_k","axis":0,..}
//! ```

use std::fmt::{self, Write};

use ansc_runtime::host::HostOp;

use super::cursor::{Cursor, Result};
use super::error::Cause;
use super::tensor::{self, Constants};
use super::token::{Quoted, Token};
use super::{compute, graph, kind};
use crate::graph::{Node, Value};
use crate::op::{ComputeOp, IfOp, LoopOp, Op, ScanAxis};

/// The name of a value unless the text says otherwise.
fn default_name(node: &str, op: &str, position: usize) -> String {
    match op {
        "input" | "const" => node.to_owned(),
        _ => format!("{node}:{position}"),
    }
}

fn word_of(op: &Op) -> &'static str {
    match op {
        Op::Input { .. } => "input",
        Op::Const(_) => "const",
        Op::Compute(_) => "compute",
        Op::Host(_) => "host",
        Op::If(_) => "if",
        Op::Loop(_) => "loop",
    }
}

/// `number` is the node's, `operands` is what it reads, as text.
pub(super) fn print(
    out: &mut dyn Write,
    number: usize,
    node: &Node,
    operands: &[String],
    indent: &str,
) -> fmt::Result {
    write!(out, "{indent}%{number}:")?;
    for (position, value) in node.outputs.iter().enumerate() {
        let comma = if position > 0 { "," } else { "" };
        write!(out, "{comma} {}{}", value.ty, if value.dynamic { " dynamic" } else { "" })?;
        if value.name != default_name(&node.name, word_of(&node.op), position) {
            write!(out, " {}", Quoted(&value.name))?;
        }
    }
    out.write_str(" = ")?;
    match &node.op {
        Op::Compute(op) => kind::print(out, &op.kind)?,
        op => out.write_str(word_of(op))?,
    }
    write!(out, " {}", Quoted(&node.name))?;
    if !matches!(node.op, Op::Input { .. } | Op::Const(_)) {
        write!(out, " ({})", operands.join(", "))?;
    }
    details(out, &node.op, indent)?;
    out.write_char('\n')
}

fn details(out: &mut dyn Write, op: &Op, indent: &str) -> fmt::Result {
    match op {
        Op::Input { bound: None } => Ok(()),
        Op::Input { bound: Some(tensor) } => {
            out.write_str(" bound ")?;
            tensor::print(out, tensor)
        }
        Op::Const(tensor) => {
            out.write_char(' ')?;
            tensor::print(out, tensor)
        }
        Op::Compute(op) => {
            out.write_char(' ')?;
            compute::print(out, &op.expr, indent)
        }
        Op::Host(op) => {
            let json = serde_json::to_string(op).map_err(|_| fmt::Error)?;
            write!(out, " {json}")
        }
        Op::If(op) => {
            out.write_str(" then ")?;
            graph::print(out, &op.then_branch, indent)?;
            out.write_str(" else ")?;
            graph::print(out, &op.else_branch, indent)
        }
        Op::Loop(op) => loop_details(out, op, indent),
    }
}

fn loop_details(out: &mut dyn Write, op: &LoopOp, indent: &str) -> fmt::Result {
    write!(out, " at most {}", op.max_trip)?;
    out.write_str(if op.has_trip { " trip" } else { "" })?;
    out.write_str(if op.has_condition { " condition" } else { "" })?;
    write!(out, " carried {}", op.carried)?;
    for (word, axes) in [("scans", &op.scan_inputs), ("gives", &op.scan_outputs)] {
        let axis = |a: &ScanAxis| format!("{}{}", a.axis, if a.reverse { " reverse" } else { "" });
        write!(out, " {word} [{}]", axes.iter().map(axis).collect::<Vec<_>>().join(", "))?;
    }
    out.write_char(' ')?;
    graph::print(out, &op.body, indent)
}

/// Reads the text that [`print`] wrote after the node's number. `operand` reads each operand.
pub(super) fn read<T>(
    cursor: &mut Cursor,
    constants: &dyn Constants,
    operand: impl FnMut(&mut Cursor) -> Result<T>,
) -> Result<(Node, Vec<T>)> {
    cursor.mark(':')?;
    let values = cursor.list('=', |c| {
        let ty = c.tensor_type()?;
        let dynamic = c.take_word("dynamic");
        Ok((c.take_quoted(), ty, dynamic))
    })?;
    let place = cursor.place();
    let kind = kind::read(cursor)?;
    let word = match &kind {
        Some(_) => "compute".to_owned(),
        None => cursor.word("an operator")?,
    };
    if !["input", "const", "compute", "host", "if", "loop"].contains(&word.as_str()) {
        let cause = Cause::Unknown { what: "operator", name: word };
        return Err(cursor.error_at(place, cause));
    }
    let name = cursor.quoted("the name of the node, between quotes")?;
    let mut operands = Vec::new();
    if !matches!(word.as_str(), "input" | "const") {
        cursor.mark('(')?;
        operands = cursor.list(')', operand)?;
    }
    let ty = values.first().map(|(_, ty, _)| ty);
    let op = match (word.as_str(), kind, ty) {
        (_, Some(kind), _) => Op::Compute(ComputeOp { kind, expr: compute::read(cursor)?.into() }),
        ("input", ..) if !cursor.take_word("bound") => Op::Input { bound: None },
        ("input", _, Some(ty)) => Op::Input { bound: Some(tensor::read(cursor, ty, constants)?) },
        ("const", _, Some(ty)) => Op::Const(tensor::read(cursor, ty, constants)?),
        ("host", ..) => Op::Host(host(cursor)?),
        ("if", ..) => Op::If(Box::new(branches(cursor, constants)?)),
        ("loop", ..) => Op::Loop(Box::new(read_loop(cursor, constants)?)),
        _ => return Err(cursor.error_at(place, Cause::NoValue { operator: word })),
    };
    let outputs = values.into_iter().enumerate().map(|(position, (named, ty, dynamic))| {
        let value_name = named.unwrap_or_else(|| default_name(&name, &word, position));
        Value { name: value_name, ty, dynamic }
    });
    Ok((Node { outputs: outputs.collect(), name, op }, operands))
}

/// The tokens between two braces are those of JSON.
fn host(cursor: &mut Cursor) -> Result<HostOp> {
    let place = cursor.place();
    cursor.mark('{')?;
    let mut json = String::from("{");
    while !json.ends_with('}') {
        match cursor.next() {
            Token::Word(text) | Token::Number(text) => json += &text,
            Token::Text(text) => json += &serde_json::Value::String(text).to_string(),
            Token::Mark(mark) => json.push(mark),
            token => {
                let cause = super::token::expected("the end of a host operator", &token);
                return Err(cursor.error_at(place, cause));
            }
        }
    }
    serde_json::from_str(&json)
        .map_err(|error| cursor.error_at(place, Cause::Host(error.to_string())))
}

fn branches(cursor: &mut Cursor, constants: &dyn Constants) -> Result<IfOp> {
    cursor.keyword("then")?;
    let then_branch = graph::read(cursor, constants)?;
    cursor.keyword("else")?;
    Ok(IfOp { then_branch, else_branch: graph::read(cursor, constants)? })
}

fn read_loop(cursor: &mut Cursor, constants: &dyn Constants) -> Result<LoopOp> {
    cursor.keyword("at")?;
    cursor.keyword("most")?;
    let max_trip = cursor.number("a number of iterations")?;
    let has_trip = cursor.take_word("trip");
    let has_condition = cursor.take_word("condition");
    cursor.keyword("carried")?;
    let carried = cursor.number("a number of values")?;
    cursor.keyword("scans")?;
    let scan_inputs = scan_axes(cursor)?;
    cursor.keyword("gives")?;
    let scan_outputs = scan_axes(cursor)?;
    let body = graph::read(cursor, constants)?;
    Ok(LoopOp { body, max_trip, has_trip, has_condition, carried, scan_inputs, scan_outputs })
}

fn scan_axes(cursor: &mut Cursor) -> Result<Vec<ScanAxis>> {
    cursor.mark('[')?;
    cursor.list(']', |c| {
        let axis = c.number("an axis")?;
        Ok(ScanAxis { axis, reverse: c.take_word("reverse") })
    })
}
