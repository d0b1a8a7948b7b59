//! Printing programs.

use std::fmt::{self, Display, Formatter, Write};

use ansc_graph::text::Label;
use ansc_graph::{BufId, VarId};

use super::expr::expr;
use super::names::Names;
use crate::program::{
    Access, Align, Block, Body, For, ForKind, Iter, IterKind, Program, Scope, Stmt, ThreadAxis,
};

/// The part of a program that an error points at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Loop(VarId),
    Block(String),
    Buffer(BufId),
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self, None))
    }
}

/// The text of `program`; the line of the marked loop, block or buffer ends in `<---`.
pub(crate) fn render(program: &Program, mark: Option<&Mark>) -> String {
    let names = Names::of(program);
    let mut printer = Printer { program, names: &names, mark, out: String::new(), depth: 0 };
    printer.line(&format!("program {}", Label(&program.name)));
    for (index, buffer) in program.buffers.iter().enumerate() {
        let name = names.buffer(BufId::new(index));
        let id = BufId::new(index);
        let align = buffer.align.map_or_else(String::new, |a| format!(" {a}"));
        let pointer = printer.pointer(mark == Some(&Mark::Buffer(id)));
        printer.line(&format!("{name}: {} {}{align}{pointer}", buffer.ty, buffer.scope));
    }
    let params: Vec<String> = program.params.iter().map(|&p| names.buffer(p)).collect();
    printer.line(format!("params {}", params.join(", ")).trim_end());
    program.body.iter().for_each(|s| printer.stmt(s));
    printer.out
}

struct Printer<'a> {
    program: &'a Program,
    names: &'a Names,
    mark: Option<&'a Mark>,
    out: String,
    depth: usize,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        let indent = 2 * self.depth;
        writeln!(self.out, "{:indent$}{text}", "").expect("writing to a string does not fail");
    }

    fn pointer(&self, here: bool) -> &'static str {
        if here { "  <---" } else { "" }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For(l) => self.for_loop(l),
            Stmt::Block(b) => self.block(b),
        }
    }

    fn for_loop(&mut self, l: &For) {
        let pointer = self.pointer(self.mark == Some(&Mark::Loop(l.var)));
        let kind = if l.kind == ForKind::Serial { String::new() } else { format!(" {}", l.kind) };
        let need = self.program.need(l.var);
        let need = need.map(|condition| format!(" while {}", expr(self.names, condition)));
        let (var, need) = (self.names.var(l.var), need.unwrap_or_default());
        self.line(&format!("for {var} in 0..{}{kind}{need} {{{pointer}", l.extent));
        self.depth += 1;
        l.body.iter().for_each(|s| self.stmt(s));
        self.depth -= 1;
        self.line("}");
    }

    fn block(&mut self, b: &Block) {
        let pointer = self.pointer(matches!(self.mark, Some(Mark::Block(name)) if *name == b.name));
        let iters: Vec<String> = b.iters.iter().map(|i| self.iter(i)).collect();
        self.line(&format!("block {} ({}) {{{pointer}", Label(&b.name), iters.join(", ")));
        self.depth += 1;
        if let Some(predicate) = &b.predicate {
            let text = format!("where {}", expr(self.names, predicate));
            self.line(&text);
        }
        let body = self.body(&b.body);
        self.line(&body);
        self.depth -= 1;
        self.line("}");
    }

    fn iter(&self, i: &Iter) -> String {
        let kind = match i.kind {
            IterKind::Spatial => "spatial",
            IterKind::Reduce => "reduce",
        };
        let binding = expr(self.names, &i.binding);
        format!("{}: {kind} {} = {binding}", self.names.var(i.var), i.extent)
    }

    fn access(&self, a: &Access) -> String {
        let indices: Vec<String> = a.indices.iter().map(|i| expr(self.names, i)).collect();
        format!("{}[{}]", self.names.buffer(a.buffer), indices.join(", "))
    }

    fn body(&self, body: &Body) -> String {
        let init = |set: &bool| if *set { "init " } else { "" };
        match body {
            Body::Assign { dst, value } => {
                format!("{} = {}", self.access(dst), expr(self.names, value))
            }
            Body::Reduce { combiner, dst, value, init: i } => {
                let name = combiner.name();
                format!("{}{} {name}= {}", init(i), self.access(dst), expr(self.names, value))
            }
            Body::ArgReduce { combiner, best, position, value, term, init: i } => format!(
                "{}({}, {}) {}= ({}, {})",
                init(i),
                self.access(best),
                self.access(position),
                combiner.name(),
                expr(self.names, value),
                expr(self.names, term),
            ),
        }
    }
}

impl Display for Align {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "align({}, {}, {})", self.axis, self.factor, self.offset)
    }
}

impl Display for Scope {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Input => "input",
            Scope::Output => "output",
            Scope::Global => "global",
            Scope::Local => "local",
            Scope::Shared => "shared",
            Scope::Fragment => "fragment",
        })
    }
}

impl Display for ForKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ForKind::Serial => f.write_str("serial"),
            ForKind::Parallel => f.write_str("parallel"),
            ForKind::Vectorized => f.write_str("vectorized"),
            ForKind::Unrolled => f.write_str("unrolled"),
            ForKind::Pipelined(ahead) if ahead.get() == 1 => f.write_str("pipelined"),
            ForKind::Pipelined(ahead) => write!(f, "pipelined{}", ahead.get()),
            ForKind::Bound(axis) => write!(f, "{axis}"),
            ForKind::Tensor(name) => write!(f, "tensor({name})"),
        }
    }
}

impl Display for ThreadAxis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThreadAxis::BlockX => "block_x",
            ThreadAxis::BlockY => "block_y",
            ThreadAxis::BlockZ => "block_z",
            ThreadAxis::ThreadX => "thread_x",
            ThreadAxis::ThreadY => "thread_y",
            ThreadAxis::ThreadZ => "thread_z",
            ThreadAxis::Virtual => "virtual",
        })
    }
}
