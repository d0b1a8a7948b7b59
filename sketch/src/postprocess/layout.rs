//! Constants lie in memory in the order in which the tiles of their reader go through them.
//!
//! ```text
//! for jo in 0..4 { for k in 0..64 { for ji in 0..16 { c[i, jo * 16 + ji] sum= a[i, k] * b[k, jo * 16 + ji] } } }
//! =>
//! for jo in 0..4 { for k in 0..64 { for ji in 0..16 { c[i, jo * 16 + ji] sum= a[i, k] * b[jo, k, ji] } } }
//! ```
//! An axis that loops cut into tiles becomes an axis for each tile; all are ordered like the loops.
//! As the axis is cut whatever reads it, every other reader finds its elements, too. An axis that
//! loops do not simply cut (a window, a group) stays whole.

use ansc_graph::{BufId, Expr, VarId};

use crate::affine::{Extents, Source, Sum};
use crate::disjoint::bound;
use crate::index_map::IndexMap;
use crate::packed::Packing;
use crate::program::{Block, Program, Scope};
use crate::rules::needs_tiling;
use crate::schedule::Schedule;
use crate::tree;

/// A layout may take this many times the room: of tiles that do not divide their axes.
const MOST_PADDING: usize = 2;

/// Lays out the constants among the parameters; says how each is made of the original.
pub(super) fn pack_constants(schedule: &mut Schedule, constant: &[bool]) -> Vec<Packing> {
    let params = schedule.program().params.clone();
    let is_constant = |(at, _): &(usize, BufId)| constant.get(*at).copied().unwrap_or(false);
    let constants = params.into_iter().enumerate().filter(is_constant);
    constants.filter_map(|(_, buffer)| pack(schedule, buffer)).collect()
}

fn pack(schedule: &mut Schedule, buffer: BufId) -> Option<Packing> {
    let program = schedule.program();
    let original = program.buffer(buffer).ty.clone();
    if program.buffer(buffer).scope != Scope::Input || is_looked_up(program, buffer) {
        return None;
    }
    let tiles = order_of(schedule, buffer)?;
    let map = layout(&tiles, original.rank())?;
    let shape = map.shape(&original.shape)?;
    if shape.iter().product::<usize>() > MOST_PADDING * original.len() {
        return None;
    }
    let name = program.buffer(buffer).name.clone();
    schedule.pack_input(&name, &map).ok()
}

/// Whether data decides what is read: a table is not read in order.
fn is_looked_up(program: &Program, buffer: BufId) -> bool {
    let exprs = program.blocks().into_iter().flat_map(Block::exprs);
    let loads = exprs.flat_map(Expr::loads).filter(|(b, _)| *b == buffer);
    loads.into_iter().any(|(_, at)| at.iter().any(|e| !e.loads().is_empty()))
}

/// `(axis // stride) % extent`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tile {
    axis: usize,
    stride: usize,
    extent: usize,
    /// Whether it is the outermost tile of its axis.
    outermost: bool,
    /// The depth of the loop that runs over it.
    depth: usize,
}

/// The tiles in the order of the loops around the reader that runs most often, if that is not the
/// order in which the elements lie anyway.
fn order_of(schedule: &Schedule, buffer: BufId) -> Option<Vec<Tile>> {
    let program = schedule.program();
    let extents = Extents::of(program);
    let mut readers = vec![];
    tree::visit_nests(&program.body, &mut |loops, block| {
        let mut loads: Vec<&[Expr]> = vec![];
        for (b, at) in block.exprs().into_iter().flat_map(Expr::loads) {
            if b == buffer && !loads.contains(&at) {
                loads.push(at);
            }
        }
        let iterations: u128 = loops.iter().map(|l| l.extent as u128).product();
        let order: Vec<VarId> = loops.iter().map(|l| l.var).collect();
        readers.extend(loads.into_iter().map(|at| (iterations, order.clone(), block, at)));
    });
    let (_, order, block, at) = readers.into_iter().max_by_key(|(n, ..)| *n)?;
    if !needs_tiling(schedule, &block.name) {
        return None;
    }
    let shape = &program.buffer(buffer).ty.shape;
    let mut tiles: Vec<Tile> = at
        .iter()
        .enumerate()
        .flat_map(|(axis, e)| {
            tiles_of(axis, shape[axis], &Sum::of(&bound(block, e), &extents), &order)
        })
        .collect();
    let as_it_lies = tiles.clone();
    tiles.sort_by_key(|tile| tile.depth);
    (tiles != as_it_lies).then_some(tiles)
}

/// The tiles of one axis, outermost first.
fn tiles_of(axis: usize, extent: usize, index: &Sum, order: &[VarId]) -> Vec<Tile> {
    cut(axis, extent, index, order).unwrap_or_else(|| {
        let depth_of = |v: VarId| order.iter().position(|o| *o == v).unwrap_or(0);
        let vars = index.to_expr().vars();
        let depth = vars.into_iter().map(depth_of).max().unwrap_or(0);
        vec![Tile { axis, stride: 1, extent, outermost: true, depth }]
    })
}

/// `index` is a sum of loops, each of which counts in what those below it cover.
fn cut(axis: usize, extent: usize, index: &Sum, order: &[VarId]) -> Option<Vec<Tile>> {
    let mut terms: Vec<(usize, usize)> = vec![];
    for (digit, coefficient) in index.terms.iter() {
        let Source::Var(v) = digit.source else { return None };
        let is_loop = digit.divisor == 1 && digit.modulus.is_none();
        let depth = order.iter().position(|o| *o == v).filter(|_| is_loop)?;
        terms.push((usize::try_from(coefficient).ok()?, depth));
    }
    terms.sort_unstable();
    if index.constant != 0 || terms.first()?.0 != 1 {
        return None;
    }
    let ends = terms.iter().skip(1).map(|(stride, _)| *stride).chain([0]);
    let mut tiles = vec![];
    for (&(stride, depth), end) in terms.iter().zip(ends) {
        let outermost = end == 0;
        let length = if outermost { extent.div_ceil(stride) } else { end / stride };
        if !outermost && (length < 2 || !end.is_multiple_of(stride)) {
            return None;
        }
        tiles.push(Tile { axis, stride, extent: length, outermost, depth });
    }
    tiles.reverse();
    Some(tiles)
}

fn layout(tiles: &[Tile], rank: usize) -> Option<IndexMap> {
    let place = |tile: &Tile| {
        let outer = Expr::var(tile.axis).floor_div(tile.stride as i64);
        if tile.outermost { outer } else { outer.floor_mod(tile.extent as i64) }
    };
    IndexMap::new(rank, tiles.iter().map(place).collect()).ok()
}
