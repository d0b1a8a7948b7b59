//! Builds programs nest by nest.
//!
//! A [`Path`] is the list of loops around a point; bodies are written over the loops' own symbols, and
//! [`Builder::block`] turns them into a block whose iterators are bound to those loops.

use ansc_graph::{BufId, Compute, Expr, TensorType, VarId};

use super::Machine;
use super::knobs::Knobs;
use super::tile::Layout;
use crate::flat::spread;
use crate::packed::Packing;
use crate::program::{Access, Block, Body, For, ForKind, Iter, IterKind, Program, Scope, Stmt};

/// One loop around a point, or one component of a fused loop.
#[derive(Clone)]
pub(super) struct Step {
    /// What bodies call it.
    symbol: VarId,
    extent: usize,
    kind: IterKind,
    /// Its value, over loop variables.
    binding: Expr,
}

pub(super) type Path = Vec<Step>;

/// What stands inside of loops, given their indices.
type Inside<'a, 'f> = dyn FnMut(&mut Builder<'a>, &Path, Vec<Expr>) -> Vec<Stmt> + 'f;

pub(super) struct Builder<'a> {
    pub(super) compute: &'a Compute,
    pub(super) constant: &'a [bool],
    pub(super) machine: &'a Machine,
    pub(super) knobs: &'a Knobs,
    pub(super) program: Program,
    pub(super) packings: Vec<Packing>,
    /// The program's buffer for each source of the compute's stages, and how many leading axes of the source
    /// it lacks.
    sources: Vec<(BufId, usize)>,
    packed: Vec<Packed>,
    /// Statements at the end of the root, before which all others stand.
    copies: usize,
}

/// Loads of `buffer` at `indices` in the body of a stage read `packed` instead.
pub(super) struct Packed {
    pub(super) stage: usize,
    pub(super) buffer: BufId,
    pub(super) indices: Vec<Expr>,
    pub(super) packed: BufId,
    pub(super) layout: Layout,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        name: &str,
        compute: &'a Compute,
        constant: &'a [bool],
        machine: &'a Machine,
        knobs: &'a Knobs,
    ) -> Builder<'a> {
        // The naive program has the buffers and parameters that are wanted, with nothing repeated.
        let mut program = crate::lower::lower(name, compute);
        let copies = copies(compute);
        program.body = program.body.split_off(program.body.len() - copies);
        let sources =
            (0..compute.inputs.len() + compute.stages.len()).map(|i| (BufId::new(i), 0)).collect();
        Builder {
            compute,
            constant,
            machine,
            knobs,
            program,
            packings: Vec::new(),
            sources,
            packed: Vec::new(),
            copies,
        }
    }

    pub(super) fn done(self) -> (Program, Vec<Packing>) {
        (self.program, self.packings)
    }

    pub(super) fn source(&self, buffer: BufId) -> BufId {
        self.sources[buffer.index()].0
    }

    /// Lets stages that are built from now on find `buffer` in `to`, which lacks its `skip` leading axes.
    pub(super) fn redirect(&mut self, buffer: BufId, to: BufId, skip: usize) {
        self.sources[buffer.index()] = (to, skip);
    }

    pub(super) fn add_packed(&mut self, packed: Packed) {
        self.packed.push(packed);
    }

    pub(super) fn packed(&self, stage: usize, buffer: BufId, indices: &[Expr]) -> Option<&Packed> {
        self.packed.iter().find(|p| p.stage == stage && p.buffer == buffer && p.indices == indices)
    }

    /// The load of a source, as a load of the program's buffer.
    pub(super) fn load(&self, buffer: BufId, indices: &[Expr]) -> Expr {
        let (buffer, skip) = self.sources[buffer.index()];
        Expr::Load(buffer, indices[skip..].to_vec())
    }

    pub(super) fn global(&mut self, name: &str, ty: TensorType) -> BufId {
        let number = self.program.buffers.len();
        self.program.add_buffer(format!("{name}{number}"), ty, Scope::Global)
    }

    pub(super) fn local(&mut self, name: &str, ty: TensorType) -> BufId {
        let number = self.program.buffers.len();
        self.program.add_buffer(format!("{name}{number}"), ty, Scope::Local)
    }

    /// Appends statements at the root, before the copies of repeated results.
    pub(super) fn push(&mut self, stmts: Vec<Stmt>) {
        let at = self.program.body.len() - self.copies;
        self.program.body.splice(at..at, stmts);
    }

    /// `for symbol in 0..extent { body }`, left out for a single iteration.
    fn repeat(
        &mut self,
        path: &Path,
        (name, extent): (&str, usize),
        (kind, iter): (ForKind, IterKind),
        body: impl FnOnce(&mut Self, &Path, Expr) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        if extent == 1 {
            return body(self, path, Expr::int(0));
        }
        let var = self.program.add_var(name);
        let mut inner = path.clone();
        inner.push(Step { symbol: var, extent, kind: iter, binding: Expr::Var(var) });
        let body = body(self, &inner, Expr::Var(var));
        vec![Stmt::For(Box::new(For { var, extent, kind, body }))]
    }

    pub(super) fn serial(
        &mut self,
        path: &Path,
        extent: usize,
        iter: IterKind,
        body: impl FnOnce(&mut Self, &Path, Expr) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let name = if iter == IterKind::Reduce { "r" } else { "i" };
        self.repeat(path, (name, extent), (ForKind::Serial, iter), body)
    }

    pub(super) fn unrolled(
        &mut self,
        path: &Path,
        extent: usize,
        iter: IterKind,
        body: impl FnOnce(&mut Self, &Path, Expr) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        self.repeat(path, ("u", extent), (ForKind::Unrolled, iter), body)
    }

    pub(super) fn vector(
        &mut self,
        path: &Path,
        lanes: usize,
        body: impl FnOnce(&mut Self, &Path, Expr) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        self.repeat(path, ("l", lanes), (ForKind::Vectorized, IterKind::Spatial), body)
    }

    /// Serial loops over all `extents`; `body` gets one index for each.
    pub(super) fn serial_all(
        &mut self,
        path: &Path,
        extents: &[usize],
        iter: IterKind,
        body: &mut Inside<'a, '_>,
    ) -> Vec<Stmt> {
        self.all(path, extents, (ForKind::Serial, iter), Vec::new(), body)
    }

    /// The same, with all loops written out.
    pub(super) fn unrolled_all(
        &mut self,
        path: &Path,
        extents: &[usize],
        iter: IterKind,
        body: &mut Inside<'a, '_>,
    ) -> Vec<Stmt> {
        self.all(path, extents, (ForKind::Unrolled, iter), Vec::new(), body)
    }

    fn all(
        &mut self,
        path: &Path,
        extents: &[usize],
        (kind, iter): (ForKind, IterKind),
        indices: Vec<Expr>,
        body: &mut Inside<'a, '_>,
    ) -> Vec<Stmt> {
        let Some((&first, rest)) = extents.split_first() else {
            return body(self, path, indices);
        };
        let inside = |b: &mut Self, path: &Path, i| {
            let indices = [&indices[..], &[i]].concat();
            b.all(path, rest, (kind, iter), indices, body)
        };
        match kind {
            ForKind::Unrolled => self.unrolled(path, first, iter, inside),
            _ => self.serial(path, first, iter, inside),
        }
    }

    /// One parallel loop over all `extents`, fused; `body` gets one index for each.
    pub(super) fn parallel(
        &mut self,
        extents: &[usize],
        worthwhile: bool,
        body: impl FnOnce(&mut Self, &Path, Vec<Expr>) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let total: usize = extents.iter().product();
        if total == 0 {
            return Vec::new();
        }
        if total == 1 {
            return body(self, &Path::new(), vec![Expr::int(0); extents.len()]);
        }
        let var = self.program.add_var("p");
        let mut path = Path::new();
        let mut indices = Vec::new();
        let bindings = spread(&Expr::Var(var), extents).into_iter().zip(extents);
        for (position, (binding, &extent)) in bindings.enumerate() {
            if extent == 1 {
                indices.push(binding);
                continue;
            }
            let symbol = self.program.add_var(format!("p{position}"));
            path.push(Step { symbol, extent, kind: IterKind::Spatial, binding });
            indices.push(Expr::Var(symbol));
        }
        let body = body(self, &path, indices);
        let kind = if worthwhile { ForKind::Parallel } else { ForKind::Serial };
        vec![Stmt::For(Box::new(For { var, extent: total, kind, body }))]
    }

    /// A block with one iterator for each step of the path that `body` mentions.
    pub(super) fn block(&mut self, path: &Path, name: &str, body: Body) -> Vec<Stmt> {
        self.guarded_block(path, name, None, body)
    }

    /// A block that runs where `predicate` holds.
    pub(super) fn guarded_block(
        &mut self,
        path: &Path,
        name: &str,
        predicate: Option<Expr>,
        body: Body,
    ) -> Vec<Stmt> {
        let mut iters = Vec::new();
        let mut names = std::collections::BTreeMap::new();
        let mut used = mentioned(&body);
        used.extend(predicate.iter().flat_map(Expr::vars));
        for step in path.iter().filter(|s| used.contains(&s.symbol)) {
            let name = self.program.vars.get(step.symbol.index()).map_or("s", String::as_str);
            let var = self.program.add_var(format!("v{name}"));
            names.insert(step.symbol, var);
            iters.push(Iter {
                var,
                extent: step.extent,
                kind: step.kind,
                binding: step.binding.clone(),
            });
        }
        let renamed = |v: VarId| names.get(&v).map(|&v| Expr::Var(v));
        let predicate = predicate.map(|p| p.substitute(&renamed));
        let expr = |e: Expr| e.substitute(&renamed);
        let body = map(body, &expr, &|a: Access| Access {
            buffer: a.buffer,
            indices: a.indices.into_iter().map(expr).collect(),
        });
        vec![Stmt::Block(Box::new(Block { name: name.into(), iters, predicate, body }))]
    }

    /// A stage's body at the point `at` (an expression for each of its axes), over the program's buffers.
    pub(super) fn body_at(&self, stage: usize, at: &[Expr]) -> Expr {
        self.expr_at(&self.compute.stages[stage].body, at)
    }

    pub(super) fn expr_at(&self, e: &Expr, at: &[Expr]) -> Expr {
        let body = e.rewrite(&mut |e| match e {
            Expr::Load(b, indices) => Some(self.load(*b, indices)),
            _ => None,
        });
        body.substitute(&|v| at.get(v.index()).cloned())
    }
}

/// Results that are copies of other results: the naive program ends with a statement for each.
fn copies(compute: &Compute) -> usize {
    let outputs = &compute.outputs;
    (0..outputs.len()).filter(|&i| outputs[..i].contains(&outputs[i])).count()
}

fn mentioned(body: &Body) -> std::collections::BTreeSet<VarId> {
    let mut vars = body.value().vars();
    for access in body.writes() {
        vars.extend(access.indices.iter().flat_map(Expr::vars));
    }
    if let Body::ArgReduce { term, .. } = body {
        vars.extend(term.vars());
    }
    vars
}

/// The body with other expressions, and other places that it writes.
fn map(body: Body, expr: &impl Fn(Expr) -> Expr, place: &impl Fn(Access) -> Access) -> Body {
    match body {
        Body::Assign { dst, value } => Body::Assign { dst: place(dst), value: expr(value) },
        Body::Reduce { combiner, dst, value, init } => {
            Body::Reduce { combiner, dst: place(dst), value: expr(value), init }
        }
        Body::ArgReduce { combiner, best, position, value, term, init } => Body::ArgReduce {
            combiner,
            best: place(best),
            position: place(position),
            value: expr(value),
            term: expr(term),
            init,
        },
    }
}
