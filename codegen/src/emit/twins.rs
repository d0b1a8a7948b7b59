//! Pieces that do the same elsewhere have their code once.
//!
//! The taps of a convolution are nests that differ in where they read and write, and in nothing
//! else. The first one is written; the others call it, with arguments of their own that begin as
//! much further as the accesses lie apart.
//!
//! In: the pieces of a program. Out: for each, an earlier one that it is a twin of, and where each
//! argument of that one is to begin.
//!
//! ```text
//! for i in 0..8 parallel { s[i] = w[0] * x[i] }  for i in 0..8 parallel { t[i] = w[1] * x[i + 3] }
//! =>
//! k_0(s, t, w, x) { .. }  k_1(s, t, w, x) { k_0(t, .., w + 4, x + 12) }
//! ```

use std::collections::BTreeMap;

use ansc_graph::{BufId, Combiner, Expr, TensorType, VarId};
use ansc_runtime::manifest::Launch;
use ansc_sketch::program::{For, ForKind};
use ansc_sketch::{Access, Block, Body, Buffer, Program, Scope as BufferScope, Stmt};
use inkwell::values::{BasicMetadataValueEnum, FunctionValue};

use super::{Buffers, Piece};
use crate::affine::{Affine, Scope, affine};
use crate::emit::function::{ALIGN, kernel};
use crate::emit::tiles::contains_choice;
use crate::ir::Ir;
use crate::target::Target;

/// A piece that is another one, elsewhere.
pub(super) struct Twin {
    /// The piece that is written.
    pub(super) of: usize,
    arguments: Vec<Moved>,
}

/// An argument of this piece that the other one gets for one of its own.
struct Moved {
    /// The place among the other piece's arguments.
    to: usize,
    /// The place among this one's.
    from: usize,
    /// The other piece finds it so many bytes behind its beginning.
    by: i64,
}

/// For each piece, whose twin it is.
pub(super) fn twins(
    program: &Program,
    pieces: &[Piece<'_>],
    buffers: &Buffers,
) -> Vec<Option<Twin>> {
    if pieces.len() < 2 {
        return pieces.iter().map(|_| None).collect();
    }
    let mut written: Vec<(usize, Form)> = vec![];
    let mut all = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.iter().enumerate() {
        let form = Form::of(program, buffers, piece);
        let twin = form.as_ref().and_then(|form| {
            written.iter().find_map(|(of, first)| {
                let arguments = form.moved(first, program, buffers)?;
                Some(Twin { of: *of, arguments })
            })
        });
        written.extend(form.filter(|_| twin.is_none()).map(|form| (index, form)));
        all.push(twin);
    }
    all
}

/// The work of a piece, without the places in its arguments.
struct Form {
    lines: Vec<Line>,
    /// Its buffers, by number.
    buffers: Vec<BufId>,
    /// Where its accesses to arguments begin, in elements, in their order.
    places: Vec<(BufId, i64)>,
}

#[derive(PartialEq)]
enum Line {
    Loop(usize, ForKind),
    End,
    /// The first use of a buffer.
    Buffer(TensorType, BufferScope, Owner),
    /// An element that the value behind it loads, or that the value in front of it goes to.
    At(Number, Affine),
    Assign(Expr),
    Reduce(Combiner, Expr),
    ArgReduce(Combiner, [Expr; 2]),
}

/// Who has the memory of a buffer, which decides what code may rely on.
#[derive(PartialEq)]
enum Owner {
    Caller,
    Kernel,
    Piece,
}

/// Buffers are numbered in the order of their first use.
type Number = BufId;

impl Form {
    /// None where a piece does not do the same in each iteration: what may be read without being
    /// asked for depends on where the buffer ends.
    fn of(program: &Program, buffers: &Buffers, piece: &Piece<'_>) -> Option<Form> {
        let form = Form { lines: vec![], buffers: vec![], places: vec![] };
        let (values, extents) = Default::default();
        let mut reader = Reader { program, arguments: &buffers.arguments, values, extents, form };
        match piece {
            Piece::Parallel(l) => reader.loop_of(l)?,
            Piece::Serial(stmts) => stmts.iter().try_for_each(|stmt| reader.stmt(stmt))?,
        }
        Some(reader.form)
    }

    /// The arguments with which `first` does the work of this one, if they are twins.
    fn moved(&self, first: &Form, program: &Program, buffers: &Buffers) -> Option<Vec<Moved>> {
        if self.lines != first.lines {
            return None;
        }
        let mut apart: BTreeMap<Number, i64> = BTreeMap::new();
        for (&(number, here), (_, there)) in self.places.iter().zip(&first.places) {
            let distance = here.wrapping_sub(*there);
            if *apart.entry(number).or_insert(distance) != distance {
                return None;
            }
        }
        let position = |buffer: &BufId| buffers.arguments.iter().position(|b| b == buffer);
        let moved = |(number, elements): (Number, i64)| {
            let [from, to] = [self, first].map(|form| &form.buffers[number.index()]);
            let by = elements.checked_mul(program.buffer(*from).ty.dtype.size() as i64)?;
            let keeps_its_place = program.params.contains(from) || by % ALIGN as i64 == 0;
            keeps_its_place.then_some(Moved { to: position(to)?, from: position(from)?, by })
        };
        apart.into_iter().map(moved).collect()
    }
}

/// Reads a piece, with numbers for loops and buffers.
struct Reader<'p> {
    program: &'p Program,
    arguments: &'p [BufId],
    /// Loops that are open, and the iterators of the block.
    values: BTreeMap<VarId, Expr>,
    /// The extent of each loop, by its number.
    extents: Vec<usize>,
    form: Form,
}

impl Scope for Reader<'_> {
    fn binding(&self, _: VarId) -> Option<Affine> {
        None
    }

    fn range(&self, var: VarId) -> Option<(i64, i64)> {
        Some((0, *self.extents.get(var.index())? as i64 - 1))
    }
}

impl Reader<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Option<()> {
        match stmt {
            Stmt::Block(block) => self.block(block),
            Stmt::For(l) => self.loop_of(l),
        }
    }

    fn loop_of(&mut self, l: &For) -> Option<()> {
        if self.program.need(l.var).is_some() {
            return None;
        }
        self.values.insert(l.var, Expr::var(self.extents.len()));
        self.extents.push(l.extent);
        self.form.lines.push(Line::Loop(l.extent, l.kind));
        l.body.iter().try_for_each(|stmt| self.stmt(stmt))?;
        self.form.lines.push(Line::End);
        Some(())
    }

    fn block(&mut self, block: &Block) -> Option<()> {
        if block.predicate.is_some() {
            return None;
        }
        for iter in &block.iters {
            let binding = self.over_loops(&iter.binding);
            self.values.insert(iter.var, binding);
        }
        match &block.body {
            Body::Assign { dst, value } => {
                let value = self.value(value)?;
                self.form.lines.push(Line::Assign(value));
                self.at(dst)
            }
            Body::Reduce { combiner, dst, value, init: false } => {
                let value = self.value(value)?;
                self.form.lines.push(Line::Reduce(*combiner, value));
                self.at(dst)
            }
            Body::ArgReduce { combiner, best, position, value, term, init: false } => {
                let values = [self.value(value)?, self.value(term)?];
                self.form.lines.push(Line::ArgReduce(*combiner, values));
                self.at(best)?;
                self.at(position)
            }
            Body::Reduce { init: true, .. } | Body::ArgReduce { init: true, .. } => None,
        }
    }

    fn over_loops(&self, e: &Expr) -> Expr {
        e.substitute(&|v| self.values.get(&v).cloned())
    }

    /// The value; the elements that it loads have lines of their own.
    fn value(&mut self, e: &Expr) -> Option<Expr> {
        if contains_choice(e) {
            return None;
        }
        for (buffer, indices) in e.loads() {
            self.element(buffer, indices)?;
        }
        let without_place = e.rewrite(&mut |e| match e {
            Expr::Load(buffer, _) => Some(Expr::Load(self.number(*buffer), vec![])),
            _ => None,
        });
        Some(self.over_loops(&without_place))
    }

    fn at(&mut self, access: &Access) -> Option<()> {
        self.element(access.buffer, &access.indices)
    }

    fn element(&mut self, buffer: BufId, indices: &[Expr]) -> Option<()> {
        if indices.iter().any(|index| !index.loads().is_empty()) {
            return None;
        }
        let shape = &self.program.buffer(buffer).ty.shape;
        let mut flat = Affine::default();
        for (index, &extent) in indices.iter().zip(shape) {
            flat = flat.times(extent as i64).plus(&affine(&self.over_loops(index), self));
        }
        let number = self.number(buffer);
        if self.arguments.contains(&buffer) {
            self.form.places.push((number, flat.constant));
            flat = flat.variable_part();
        }
        self.form.lines.push(Line::At(number, flat));
        Some(())
    }

    fn number(&mut self, buffer: BufId) -> Number {
        if let Some(known) = self.form.buffers.iter().position(|&b| b == buffer) {
            return Number::new(known);
        }
        let Buffer { ty, scope, .. } = self.program.buffer(buffer);
        let owner = match self.arguments.contains(&buffer) {
            true if self.program.params.contains(&buffer) => Owner::Caller,
            true => Owner::Kernel,
            false => Owner::Piece,
        };
        self.form.lines.push(Line::Buffer(ty.clone(), *scope, owner));
        self.form.buffers.push(buffer);
        Number::new(self.form.buffers.len() - 1)
    }
}

impl Twin {
    /// The launch of the piece, given that of the other one: by a function of its own, `symbol`, if
    /// that gets other arguments.
    pub(super) fn launch(
        &self,
        ir: &Ir<'_>,
        target: &Target,
        of: Launch,
        symbol: String,
    ) -> Launch {
        if self.arguments.iter().all(|moved| moved.from == moved.to && moved.by == 0) {
            return of;
        }
        let other = ir.module.get_function(&of.symbol).expect("it was written");
        self.call(ir, kernel(ir, target, &symbol), other);
        Launch { symbol, ..of }
    }

    /// Writes the body of `function`: a call of the other one.
    fn call<'c>(&self, ir: &Ir<'c>, function: FunctionValue<'c>, other: FunctionValue<'c>) {
        const POSITIONED: &str = "the builder is positioned";
        ir.builder.position_at_end(ir.context.append_basic_block(function, "entry"));
        let parameters = function.get_params();
        let pointer = ir.context.ptr_type(Default::default());
        let count = self.arguments.iter().map(|moved| moved.to + 1).max().unwrap_or(0);
        let list = pointer.array_type(u32::try_from(count).expect("arguments are few"));
        let list = ir.builder.build_alloca(list, "").expect(POSITIONED);
        let place = |list, argument: usize| ir.offset(list, ir.index(8 * argument as i64));
        for Moved { to, from, by } in &self.arguments {
            let given = ir.load(pointer, place(parameters[0].into_pointer_value(), *from), 8);
            let begin = ir.offset(given.into_pointer_value(), ir.index(*by));
            ir.store(begin.into(), place(list, *to), 8);
        }
        let mut arguments: Vec<BasicMetadataValueEnum<'c>> =
            parameters.into_iter().map(Into::into).collect();
        arguments[0] = list.into();
        ir.builder.build_call(other, &arguments, "").expect(POSITIONED);
        ir.builder.build_return(None).expect(POSITIONED);
    }
}
