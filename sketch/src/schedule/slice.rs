//! slice: each nest computes its part for one slice of the result after another.
//!
//! ```text
//! t: f32[8, 6]
//! for i in 0..8 { for j in 0..6 { t[i, j] = .. } }
//! for i in 0..8 { y[i] = sum t[i, ..] }
//! => slice([4], "slices")
//! t: f32[2, 4, 6]
//! parallel p in 0..2 { for i in 0..4 { for j in 0..6 { t[p, i, j] = .. } } }
//! parallel p in 0..2 { for i in 0..4 { y[p * 4 + i] = sum t[p, i, ..] } }
//! ```
//!
//! Nests are still whole ones, and what stands between them has an axis over slices. So every
//! primitive applies to them, and [`join_noted`](Schedule::join_noted) makes one loop of all at
//! last. What does not belong to one slice alone stays as it is, before the others.

use ansc_graph::{BufId, Compute, Expr, VarId};

use super::annotate::Annotation;
use super::collapse::own_block;
use super::error::{Cause, Failure};
use super::moves::check_parallel;
use super::{LoopRef, Result, Schedule};
use crate::program::{Access, Block, For, ForKind, Iter, IterKind, Program, Scope, Shared, Stmt};
use crate::raise::raise;
use crate::slices::{Part, Reads, Slices};
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Cuts what the last nest computes into slices of `lengths` along its first axes, and each
    /// nest before it that feeds one slice at a time. The new loops over slices have the note
    /// `key`. Nothing was done to the program yet but inlining: each block has a nest of serial
    /// loops of its own, which are its iterators.
    pub fn slice(&mut self, lengths: &[usize], key: &str) -> Result<()> {
        let loops = self.apply("slice", |program| slice(program, lengths))?;
        loops.into_iter().try_for_each(|l| self.annotate_loop(l, key, Annotation::Int(0)))
    }
}

fn slice(program: &mut Program, lengths: &[usize]) -> Checked<Vec<LoopRef>> {
    program.body.iter().try_for_each(|nest| own_block(nest).map(drop))?;
    let refused = || Cause::NoSlices { lengths: lengths.to_vec() };
    let compute = raise(program).ok_or_else(refused)?;
    let slices = Slices::of(&Reads::new(&compute), lengths).ok_or_else(refused)?;
    let slicing = Slicing { compute: &compute, slices: &slices, buffers: buffers(program)? };
    let mut loops = vec![];
    for (nest, part) in slices.parts() {
        loops.push(slicing.nest(program, nest, part));
    }
    check_parallel(program)?;
    Ok(loops)
}

/// The program's buffers in the order of the tensor expression.
fn buffers(program: &Program) -> Checked<Vec<BufId>> {
    let inputs = program.params.iter().filter(|b| program.buffer(**b).scope == Scope::Input);
    let mut all: Vec<BufId> = inputs.copied().collect();
    for nest in &program.body {
        all.extend(own_block(nest)?.body.writes().last().map(|access| access.buffer));
    }
    Ok(all)
}

struct Slicing<'a> {
    compute: &'a Compute,
    slices: &'a Slices<'a>,
    buffers: Vec<BufId>,
}

impl Slicing<'_> {
    /// The nest computes its part of each slice, in a loop over slices.
    fn nest(&self, program: &mut Program, nest: usize, part: &Part) -> LoopRef {
        let (mut loops, mut block) = apart(program.body[nest].clone());
        let count = self.slices.count();
        let (var, number) = (program.add_var("p"), program.add_var("vp"));
        let mut lengths = part.shape.iter();
        for (l, iter) in loops.iter_mut().zip(&mut block.iters) {
            if iter.kind == IterKind::Spatial
                && let Some(&length) = lengths.next()
            {
                (l.extent, iter.extent) = (length, length);
            }
        }
        self.place(program, nest, part, (&mut block, number));
        let slice =
            Iter { var: number, extent: count, kind: IterKind::Spatial, binding: Expr::Var(var) };
        block.iters.insert(0, slice);
        loops.insert(0, For { var, extent: count, kind: ForKind::Parallel, body: vec![] });
        let made = tree::nest(loops, vec![Stmt::Block(Shared::new(block))]);
        program.body.splice(nest..=nest, made);
        LoopRef(var)
    }

    /// The block reads and writes its part of the slice `number`.
    fn place(
        &self,
        program: &mut Program,
        nest: usize,
        part: &Part,
        (block, number): (&mut Block, VarId),
    ) {
        let of_kind = |kind| {
            let own = block.iters.iter().filter(move |iter| iter.kind == kind);
            own.map(|iter| Expr::Var(iter.var)).collect::<Vec<_>>()
        };
        let at = of_kind(IterKind::Spatial);
        let axes = [&at[..], &of_kind(IterKind::Reduce)].concat();
        let slice = Expr::Var(number);
        *block.body.value_mut() = self.value((nest, part), &axes, &slice);
        let place = |(axis, e): (usize, &Expr)| self.slices.place(part, axis, (&slice, e));
        let moved: Vec<Expr> = at.iter().enumerate().map(place).collect();
        let end = |axis: usize| Expr::index(self.compute.stages[nest].ty.shape[axis]);
        let inside = |&axis: &usize| moved[axis].clone().lt(end(axis));
        let is_result = self.compute.outputs.contains(&nest);
        let beyond = self.slices.beyond(nest, part);
        // A buffer that stays in the slice may be larger than the part that is read.
        let beyond = beyond.iter().filter(|_| is_result);
        block.predicate = tree::conjunction(beyond.map(inside));
        let own = self.buffers[self.compute.stage_buffer(nest).index()];
        block.body.writes_mut().into_iter().for_each(|access: &mut Access| {
            access.indices = match is_result && access.buffer == own {
                true => moved.clone(),
                false => [std::slice::from_ref(&slice), &at[..]].concat(),
            };
        });
        for buffer in block.body.writes().into_iter().map(|access| access.buffer) {
            if !(is_result && buffer == own) {
                let shape = &mut program.buffers[buffer.index()].ty.shape;
                shape.clone_from(&part.shape);
                shape.insert(0, self.slices.count());
            }
        }
    }

    /// The value at a point of the part, over the program's buffers.
    fn value(&self, (nest, part): (usize, &Part), axes: &[Expr], slice: &Expr) -> Expr {
        let value = self.slices.value(nest, part);
        let value = value.substitute(&|v| axes.get(v.index()).cloned());
        let mut value = self.slices.numbered(&value, slice);
        value.visit_mut(&mut |e| {
            if let Expr::Load(buffer, indices) = e {
                self.find(*buffer, indices, slice);
                *buffer = self.buffers[buffer.index()];
            }
        });
        value
    }

    /// Where an element of a part of the slice is.
    fn find(&self, buffer: BufId, indices: &mut Vec<Expr>, slice: &Expr) {
        let is_it = |(stage, _): &(usize, &Part)| self.compute.stage_buffer(*stage) == buffer;
        let Some((stage, part)) = self.slices.parts().find(is_it) else { return };
        if !self.compute.outputs.contains(&stage) {
            return indices.insert(0, slice.clone());
        }
        for (axis, index) in indices.iter_mut().enumerate() {
            *index = self.slices.place(part, axis, (slice, index));
        }
    }
}

/// The loops of a nest, without their bodies, and its block.
fn apart(mut at: Stmt) -> (Vec<For>, Block) {
    let mut loops = vec![];
    loop {
        match at {
            Stmt::Block(block) => return (loops, block.into_inner()),
            Stmt::For(mut l) => {
                at = l.body.remove(0);
                loops.push(l.into_inner());
            }
        }
    }
}
