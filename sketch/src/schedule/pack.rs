//! pack: a block reads a buffer in the order in which it goes through it.
//!
//! ```text
//! c[i, j] sum= a[i, k] * b[k, j]                                          b: f32[64, 100]
//! => pack(mm, b, (v0, v1) -> (floor_div(v1, 16), v0, floor_mod(v1, 16)))
//! b_packed[p, k, l] = select(p * 16 + l < 100, b[k, p * 16 + l], 0)       b_packed: f32[7, 64, 16]
//! c[i, j] sum= a[i, k] * b_packed[j // 16, k, j % 16]
//! ```
//!
//! A map that leaves gaps, as this one, fills them with zeros: what goes through whole tiles may
//! read them.

use ansc_graph::{BufId, Compute, Expr, Scalar, Stage, TensorType};

use super::cache::redirect_reads;
use super::error::{Cause, Failure, buffer_name};
use super::moves::{renest, writers};
use super::query::{block_at, block_at_mut, block_path, buffer_named};
use super::transform_layout::lay_out;
use super::{Result, Schedule};
use crate::index_map::IndexMap;
use crate::packed::Packing;
use crate::program::verify::{Written, written};
use crate::program::{Access, Block, Body, Iter, IterKind, Program, Scope};
use crate::region::Span;
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `block` finds element `x` of `buffer` at `map(x)` of a new buffer. A new block, whose name
    /// is returned, fills all of that before the outermost loop around `block`;
    /// [`compute_at`](Schedule::compute_at) moves it further in. The whole of `buffer` is written
    /// before.
    pub fn pack(&mut self, block: &str, buffer: &str, map: &IndexMap) -> Result<String> {
        self.apply("pack", |program| {
            let buffer = buffer_named(program, buffer)?;
            pack(program, block, buffer, map)
        })
    }

    /// All blocks find element `x` of the parameter `buffer` at `map(x)`, and nothing copies it:
    /// whoever runs the program gives what the [`Packing`] makes of it. That costs nothing if it is
    /// a constant.
    pub fn pack_input(&mut self, buffer: &str, map: &IndexMap) -> Result<Packing> {
        self.apply("pack_input", |program| {
            let buffer = buffer_named(program, buffer)?;
            pack_input(program, buffer, map)
        })
    }
}

fn pack(program: &mut Program, name: &str, original: BufId, map: &IndexMap) -> Checked<String> {
    let path = block_path(program, name)?;
    let block = block_at(program, &path);
    let buffer = buffer_name(program, original);
    if !block.reads().contains(&original) {
        return Err(Cause::NotAccessed { buffer }.at_block(name));
    }
    if let Some(late) = writers(program, original).into_iter().find(|w| w[0] >= path[0]) {
        let writer = block_at(program, &late).name.clone();
        return Err(Cause::BeforeProducer(writer).at_block(name));
    }
    if program.buffer(original).scope != Scope::Input && written(program, original) != Written::All
    {
        return Err(Cause::PartlyWritten { buffer }.at_buffer(original));
    }
    let ty = program.buffer(original).ty.clone();
    let packed = program.fresh_buffer_name(&format!("{buffer}_packed"));
    let packed = program.add_buffer(packed, ty.clone(), Scope::Global);
    redirect_reads(block_at_mut(program, &path), &|b, at| {
        (b == original).then(|| Expr::Load(packed, at.to_vec()))
    });
    let copied = packed_value(&ty, map, original).ok_or_else(|| no_way_back(original))?;
    lay_out(program, packed, map).map_err(|failure| failure.cause.at_buffer(original))?;
    let copy = copy_block(program, &format!("{buffer}_pack"), packed, copied);
    let name = copy.name.clone();
    let spans: Vec<Span> = copy.iters.iter().map(|i| Span::whole(i.extent)).collect();
    let nest = renest(program, copy, &spans);
    program.body.insert(path[0], nest);
    Ok(name)
}

fn pack_input(program: &mut Program, buffer: BufId, map: &IndexMap) -> Checked<Packing> {
    let param = program.params.iter().position(|p| *p == buffer);
    let Some(param) = param.filter(|_| program.buffer(buffer).scope == Scope::Input) else {
        return Err(Cause::NotAnInput { buffer: buffer_name(program, buffer) }.at_buffer(buffer));
    };
    let ty = program.buffer(buffer).ty.clone();
    let value = packed_value(&ty, map, BufId::new(0)).ok_or_else(|| no_way_back(buffer))?;
    lay_out(program, buffer, map)?;
    let packed = TensorType::new(ty.dtype, program.buffer(buffer).ty.shape.clone());
    let compute = Compute::single(vec![ty], Stage::map("packed", packed, value));
    Ok(Packing { param, compute })
}

fn no_way_back(buffer: BufId) -> Failure {
    Cause::Map("it does not say which element a place holds".into()).at_buffer(buffer)
}

/// The element at the place `v0`, `v1`, ..; zero where no element does.
fn packed_value(ty: &TensorType, map: &IndexMap, original: BufId) -> Option<Expr> {
    let back = map.way_back(&ty.shape)?;
    let inside = back.beyond(&map.shape(&ty.shape)?, &ty.shape);
    let value = Expr::Load(original, back.outputs().to_vec());
    Some(match tree::conjunction(inside) {
        None => value,
        Some(inside) => Expr::select(inside, value, Expr::Const(Scalar::zero(ty.dtype))),
    })
}

/// A block that writes `value`, which is over places, to all places of `to`, yet without loops.
fn copy_block(program: &mut Program, name: &str, to: BufId, value: Expr) -> Block {
    let shape = program.buffer(to).ty.shape.clone();
    let iter = |(axis, &extent): (usize, &usize)| {
        let var = program.add_var(format!("vp{axis}"));
        Iter { var, extent, kind: IterKind::Spatial, binding: Expr::int(0) }
    };
    let iters: Vec<Iter> = shape.iter().enumerate().map(iter).collect();
    let indices: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
    let value = value.substitute(&|v| indices.get(v.index()).cloned());
    let body = Body::Assign { dst: Access { buffer: to, indices }, value };
    Block { name: program.fresh_block_name(name), iters, predicate: None, body }
}
