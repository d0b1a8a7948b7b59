//! The number of a program, whatever its names are.
//!
//! In: any program, and which of its loops are over terms. Out: the same number for programs that
//! differ in names of buffers, blocks and variables, or in the numbers of variables, only; and, but
//! for chance, another one for all others. It is written to files: what goes into it must not
//! change. [`code`] makes a program plain before, so that programs of the same code have one
//! number.

mod code;

use ansc_graph::{Combiner, Expr, Scalar, VarId};
use xxhash_rust::xxh3::xxh3_64;

use crate::program::{Access, Block, Body, For, ForKind, IterKind, Program, Scope, Stmt};

/// Loops differ if they do in whether they are over `terms`, by variable.
pub(crate) fn of(program: &Program, terms: &[bool]) -> u64 {
    let vars = vec![None; program.vars.len()];
    let mut walk = Walk { bytes: Vec::with_capacity(4096), vars, next: 0, terms };
    walk.number(program.buffers.len());
    for buffer in program.buffers.iter() {
        walk.text(buffer.ty.dtype.name());
        walk.numbers(&buffer.ty.shape);
        walk.tag(scope(buffer.scope));
        let align = buffer.align.map_or([0; 3], |a| [a.axis + 1, a.factor, a.offset]);
        walk.numbers(&align);
    }
    program.params.iter().for_each(|p| walk.number(p.index()));
    walk.stmts(&program.body);
    xxh3_64(&walk.bytes)
}

fn scope(scope: Scope) -> u8 {
    match scope {
        Scope::Input => 0,
        Scope::Output => 1,
        Scope::Global => 2,
        Scope::Local => 3,
        Scope::Shared => 4,
        Scope::Fragment => 5,
    }
}

/// A walk through a program, which collects the bytes that are hashed.
struct Walk<'t> {
    bytes: Vec<u8>,
    /// Variables by the order in which they appear.
    vars: Vec<Option<usize>>,
    next: usize,
    /// Whether each loop is one over terms of a sum.
    terms: &'t [bool],
}

impl Walk<'_> {
    fn tag(&mut self, tag: u8) {
        self.bytes.push(tag);
    }

    fn number(&mut self, n: usize) {
        self.bytes.extend((n as u64).to_le_bytes());
    }

    fn numbers(&mut self, all: &[usize]) {
        self.number(all.len());
        all.iter().for_each(|&n| self.number(n));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.bytes.extend(text.as_bytes());
    }

    fn var(&mut self, var: VarId) {
        let number = *self.vars[var.index()].get_or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        self.number(number);
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        self.number(stmts.len());
        for stmt in stmts {
            match stmt {
                Stmt::For(l) => self.for_loop(l),
                Stmt::Block(block) => self.block(block),
            }
        }
    }

    fn for_loop(&mut self, l: &For) {
        self.tag(b'f');
        self.var(l.var);
        self.number(l.extent);
        self.tag(u8::from(self.terms[l.var.index()]));
        match l.kind {
            ForKind::Serial => self.tag(0),
            ForKind::Parallel => self.tag(1),
            ForKind::Vectorized => self.tag(2),
            ForKind::Unrolled => self.tag(3),
            ForKind::Pipelined(ahead) => {
                self.tag(5);
                self.number(ahead.get());
            }
            ForKind::Bound(axis) => {
                self.tag(4);
                self.tag(axis as u8);
            }
            ForKind::Tensor(name) => {
                self.tag(6);
                self.text(name.as_str());
            }
        }
        self.stmts(&l.body);
    }

    fn block(&mut self, block: &Block) {
        self.tag(b'b');
        self.number(block.iters.len());
        for iter in &block.iters {
            self.var(iter.var);
            self.number(iter.extent);
            self.tag(u8::from(iter.kind == IterKind::Reduce));
            self.expr(&iter.binding);
        }
        self.tag(u8::from(block.predicate.is_some()));
        block.predicate.iter().for_each(|p| self.expr(p));
        self.body(&block.body);
    }

    fn body(&mut self, body: &Body) {
        match body {
            Body::Assign { dst, value } => {
                self.tag(0);
                self.access(dst);
                self.expr(value);
            }
            Body::Reduce { combiner, dst, value, init } => {
                self.tag(1);
                self.combiner(*combiner, *init);
                self.access(dst);
                self.expr(value);
            }
            Body::ArgReduce { combiner, best, position, value, term, init } => {
                self.tag(2);
                self.combiner(*combiner, *init);
                self.access(best);
                self.access(position);
                self.expr(value);
                self.expr(term);
            }
        }
    }

    fn combiner(&mut self, combiner: Combiner, init: bool) {
        self.tag(match combiner {
            Combiner::Sum => 0,
            Combiner::Prod => 1,
            Combiner::Max => 2,
            Combiner::Min => 3,
            Combiner::ArgMax { last } => 4 + u8::from(last),
            Combiner::ArgMin { last } => 6 + u8::from(last),
        });
        self.tag(u8::from(init));
    }

    fn access(&mut self, access: &Access) {
        self.number(access.buffer.index());
        self.exprs(&access.indices);
    }

    fn exprs(&mut self, all: &[Expr]) {
        self.number(all.len());
        all.iter().for_each(|e| self.expr(e));
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Const(value) => {
                self.tag(0);
                self.scalar(*value);
            }
            Expr::Var(var) => {
                self.tag(1);
                self.var(*var);
            }
            Expr::Load(buffer, indices) => {
                self.tag(2);
                self.number(buffer.index());
                self.exprs(indices);
            }
            Expr::Unary(op, x) => {
                self.tag(3);
                self.text(op.name());
                self.expr(x);
            }
            Expr::Binary(op, a, b) => {
                self.tag(4);
                self.text(op.name());
                self.expr(a);
                self.expr(b);
            }
            Expr::Select(condition, a, b) => {
                self.tag(5);
                [condition, a, b].into_iter().for_each(|e| self.expr(e));
            }
            Expr::Cast(to, x) => {
                self.tag(6);
                self.text(to.name());
                self.expr(x);
            }
        }
    }

    fn scalar(&mut self, value: Scalar) {
        self.text(value.dtype().name());
        let bits = match value.dtype().is_float() {
            true => value.as_f64().to_bits(),
            false => value.as_i64() as u64,
        };
        self.bytes.extend(bits.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use crate::program::Program;
    use crate::rules::Space;
    use crate::testing::*;
    use crate::trace::Unfit;

    /// The text of a program says everything, and names besides: of programs in their plain form,
    /// those of one hash differ in names only.
    #[test]
    fn hashes_and_texts_agree() {
        let mut texts: BTreeMap<u64, String> = BTreeMap::new();
        let mut programs = 0;
        for compute in [matmul_bias_relu(12, 7, 10), conv(4, 3, 6, 5, 2)] {
            for sketch in Space::cpu(2).sketches(crate::lower("k", &compute)) {
                for seed in 0..30 {
                    let random = &mut StdRng::seed_from_u64(seed);
                    let program = crate::lower("k", &compute);
                    let replayed = sketch.trace.replay(program, Unfit::Refuse, random).unwrap();
                    let program = crate::finish(replayed.into_parts().0.into_program());
                    let (plain, terms) = program.plain();
                    let text = format!("{}{terms:?}", nameless(&plain));
                    let known = texts.entry(program.code_hash()).or_insert(text.clone());
                    assert_eq!(*known, text);
                    let parsed = Program::parse(&program.to_string()).unwrap();
                    assert_eq!(parsed.code_hash(), program.code_hash());
                    programs += 1;
                }
            }
        }
        assert!(texts.len() > programs / 2, "{} of {programs}", texts.len());
    }

    /// The text with every name replaced by its place.
    fn nameless(program: &Program) -> String {
        let mut plain = program.clone();
        plain.name = "p".into();
        for (i, buffer) in plain.buffers.iter_mut().enumerate() {
            buffer.name = format!("buf{i}");
        }
        let mut order = vec![];
        crate::tree::visit_loops(&plain.body, &mut |l| order.push(l.var));
        for (i, var) in order.into_iter().enumerate() {
            plain.vars[var.index()] = format!("loop{i}");
        }
        let mut blocks = 0;
        crate::tree::visit_blocks_mut(&mut plain.body, &mut |block| {
            block.name = format!("block{blocks}");
            blocks += 1;
        });
        plain.to_string()
    }

    #[test]
    fn whatever_differs_counts() {
        let text = "program k\nx: f32[8] input\ny: f32[8] output\nparams x, y\nfor i in 0..8 {\n  block b (v: spatial 8 = i) {\n    y[v] = mul(x[v], 2.0_f32)\n  }\n}\n";
        let hash = |text: &str| Program::parse(text).unwrap().code_hash();
        let original = hash(text);
        for (from, to) in [("block b", "block other"), ("y", "z"), ("for i in", "for j in")] {
            let renamed = match from {
                "for i in" => text.replace("for i in", "for j in").replace("= i)", "= j)"),
                _ => text.replace(from, to),
            };
            assert_eq!(hash(&renamed), original, "{renamed}");
        }
        for (from, to) in [("2.0_f32", "3.0_f32"), ("mul", "add"), ("0..8", "0..7"), ("f32", "f64")]
        {
            assert_ne!(hash(&text.replace(from, to)), original, "{from} {to}");
        }
    }
}
