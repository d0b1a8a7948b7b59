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
use ansc_runtime::DType;

use super::cache::redirect_reads;
use super::error::{Cause, Failure, buffer_name};
use super::moves::{renest, writers};
use super::query::{block_at, block_at_mut, block_path, buffer_named};
use super::split::is_cover;
use super::transform_layout::lay_out;
use super::{Result, Schedule};
use crate::index_map::IndexMap;
use crate::packed::Packing;
use crate::program::{Access, Block, Body, Iter, IterKind, Program, Scope};
use crate::region::Span;
use crate::tree;
use crate::verify::{Written, written};

type Checked<T> = std::result::Result<T, Failure>;

/// One of the axes that a map leads to is cut into panels: its places in a panel become the last
/// axis.
///
/// ```text
/// b[k, j], (v0, v1) -> (v1, v0), axis 0 in panels of 16     =>   b'[j // 16, k, j % 16]
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panels {
    /// The axis, among those that the map gives.
    pub axis: usize,
    /// Places of a panel.
    pub width: usize,
}

impl Panels {
    /// The map with its axis cut.
    fn cut(self, map: &IndexMap) -> Option<IndexMap> {
        let mut outputs = map.outputs().to_vec();
        let width = i64::try_from(self.width).ok().filter(|width| *width > 0)?;
        let whole = outputs.get(self.axis)?.clone();
        outputs[self.axis] = whole.clone().floor_div(width);
        outputs.push(whole.floor_mod(width));
        IndexMap::new(map.inputs(), outputs).ok()
    }
}

/// Where elements lie in the new buffer, which may be longer than the map leads.
struct Places {
    map: IndexMap,
    shape: Vec<usize>,
}

impl Places {
    fn of(ty: &TensorType, map: &IndexMap) -> Checked<Places> {
        let shape = map.shape(&ty.shape);
        let shape = shape.ok_or_else(|| Cause::Map("places are not numbered from 0".into()))?;
        Ok(Places { map: map.clone(), shape })
    }

    /// All panels are complete.
    fn in_panels(ty: &TensorType, map: &IndexMap, panels: Panels) -> Checked<Places> {
        let Panels { axis, width } = panels;
        let map = panels.cut(map).ok_or(Cause::NoSuchAxis { axis })?;
        let mut places = Places::of(ty, &map)?;
        let last = places.shape.len() - 1;
        let elements = places.shape[..last].iter().product::<usize>().checked_mul(width);
        elements.filter(|&n| is_cover(n, ty.len())).ok_or(Cause::TooLarge)?;
        places.shape[last] = width;
        Ok(places)
    }
}

impl Schedule {
    /// `block` finds element `x` of `buffer` at `map(x)` of a new buffer. A new block, whose name
    /// is returned, fills all of that before the outermost loop around `block`;
    /// [`compute_at`](Schedule::compute_at) moves it further in. The whole of `buffer` is written
    /// before.
    pub fn pack(&mut self, block: &str, buffer: &str, map: &IndexMap) -> Result<String> {
        self.apply("pack", |program| {
            let buffer = buffer_named(program, buffer)?;
            let places = Places::of(&program.buffer(buffer).ty, map)?;
            pack(program, block, buffer, &places)
        })
    }

    /// The same with complete panels, with zeros beyond the last element of the axis.
    pub fn pack_panels(
        &mut self,
        block: &str,
        buffer: &str,
        map: &IndexMap,
        panels: Panels,
    ) -> Result<String> {
        self.apply("pack_panels", |program| {
            let buffer = buffer_named(program, buffer)?;
            let places = Places::in_panels(&program.buffer(buffer).ty, map, panels)?;
            pack(program, block, buffer, &places)
        })
    }

    /// All blocks find element `x` of the parameter `buffer` at `map(x)`, and nothing copies it:
    /// whoever runs the program gives what the [`Packing`] makes of it. That costs nothing if it is
    /// a constant.
    pub fn pack_input(&mut self, buffer: &str, map: &IndexMap) -> Result<Packing> {
        self.apply("pack_input", |program| {
            let buffer = buffer_named(program, buffer)?;
            let places = Places::of(&program.buffer(buffer).ty, map)?;
            pack_input(program, buffer, &places)
        })
    }

    /// The same with complete panels, with zeros beyond the last element of the axis.
    pub fn pack_input_panels(
        &mut self,
        buffer: &str,
        map: &IndexMap,
        panels: Panels,
    ) -> Result<Packing> {
        self.apply("pack_input_panels", |program| {
            let buffer = buffer_named(program, buffer)?;
            let places = Places::in_panels(&program.buffer(buffer).ty, map, panels)?;
            pack_input(program, buffer, &places)
        })
    }
}

fn pack(program: &mut Program, name: &str, original: BufId, places: &Places) -> Checked<String> {
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
    let copied = Packed::of(&ty, places, original).ok_or_else(|| no_way_back(original))?;
    lay_out(program, packed, &places.map).map_err(|failure| failure.cause.at_buffer(original))?;
    program.buffers[packed.index()].ty.shape.clone_from(&places.shape);
    let value = copied.or_zero(ty.dtype);
    let copy = copy_block(program, &format!("{buffer}_pack"), packed, value);
    let name = copy.name.clone();
    let spans: Vec<Span> = copy.iters.iter().map(|i| Span::whole(i.extent)).collect();
    let nest = renest(program, copy, &spans);
    program.body.insert(path[0], nest);
    Ok(name)
}

fn pack_input(program: &mut Program, buffer: BufId, places: &Places) -> Checked<Packing> {
    let param = program.params.iter().position(|p| *p == buffer);
    let Some(param) = param.filter(|_| program.buffer(buffer).scope == Scope::Input) else {
        return Err(Cause::NotAnInput { buffer: buffer_name(program, buffer) }.at_buffer(buffer));
    };
    let ty = program.buffer(buffer).ty.clone();
    let value = Packed::of(&ty, places, BufId::new(0)).ok_or_else(|| no_way_back(buffer))?;
    let value = value.or_zero(ty.dtype);
    lay_out(program, buffer, &places.map)?;
    program.buffers[buffer.index()].ty.shape.clone_from(&places.shape);
    let packed = TensorType::new(ty.dtype, places.shape.clone());
    let compute = Compute::single(vec![ty], Stage::map("packed", packed, value));
    Ok(Packing { param, compute })
}

fn no_way_back(buffer: BufId) -> Failure {
    Cause::Map("it does not say which element a place holds".into()).at_buffer(buffer)
}

/// The element at the place `v0`, `v1`, .., and where there is one.
struct Packed {
    value: Expr,
    inside: Option<Expr>,
}

impl Packed {
    fn of(ty: &TensorType, places: &Places, original: BufId) -> Option<Packed> {
        let back = places.map.way_back(&ty.shape)?;
        let inside = tree::conjunction(back.beyond(&places.shape, &ty.shape));
        Some(Packed { value: Expr::Load(original, back.outputs().to_vec()), inside })
    }

    fn or_zero(self, dtype: DType) -> Expr {
        match self.inside {
            None => self.value,
            Some(inside) => Expr::select(inside, self.value, Expr::Const(Scalar::zero(dtype))),
        }
    }
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
