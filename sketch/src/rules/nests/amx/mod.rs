//! A product in tiles, by the instructions of a unit for matrices.
//!
//! ```text
//! tiles[i, p, l] = sum[t, g, q] a[i, t * 32 + g * 2 + q] * panels[p, t, g, l, q];  y[i, j] = relu(tiles[i, j // 16, j % 16])
//! =>
//! parallel rows { for columns { for rows {
//!   zero c[2, 2];  for t { load a[2] from a;  load b[2] from panels;  c[x, y] += a[x] * b[y] }
//!   store c to local tiles;  for i { vectorized j { y[i, j] = relu(tiles[..]) } }
//! } } }
//! ```
//!
//! The stage after the sum, which is a map, is cut into blocks of as many rows and columns as sums
//! fit the registers; the sum is computed there. Blocks of rows whose part of the first factor
//! stays in the cache go through all columns.

pub(super) mod panels;
mod shape;

use ansc_graph::{Compute, Expr};
use ansc_runtime::DType;

use super::{Nests, Way};
use crate::intrinsic;
use crate::intrinsic::amx::{Apart, COLUMNS, Names};
use crate::program::Scope;
use crate::schedule::Rest;
use crate::task::Task;
use crate::trace::{BlockVar, LoopVar, Recorder, StepError};
use crate::usage::readers;
use crate::walk::PARALLEL_ITERATIONS;
use shape::{Shape, Tiled};

/// Bytes of the first factor that stay in the cache beside panels.
const KEPT: usize = 1 << 20;

/// Whether the machine has instructions for products of these types.
pub(super) fn has_unit(task: &Task, factors: [DType; 2]) -> bool {
    let zero = Names { factors, rows: 1, groups: 1, apart: Apart::Rows(1) }.zero();
    let native = intrinsic::find(&zero).and_then(|i| i.as_native().copied());
    native.is_some_and(|native| native.unit.is_of(&task.machine))
}

/// Stages that a product in tiles reads are in memory, and so is the last of those that go on with
/// its sum element by element.
pub(super) fn keep_factors(compute: &Compute, kept: &mut [bool]) {
    for stage in 0..compute.stages.len() {
        if Tiled::of(compute, stage).is_none() {
            continue;
        }
        for (buffer, _) in compute.stages[stage].body.loads() {
            compute.stage_of(buffer).into_iter().for_each(|s| kept[s] = true);
        }
        for map in readers(compute, compute.stage_buffer(stage)) {
            keep_last_map(compute, kept, map);
        }
    }
}

/// Keeps the last of the maps that go on with one element by element, and tells which it is.
pub(crate) fn keep_last_map(compute: &Compute, kept: &mut [bool], mut map: usize) -> usize {
    while !kept[map] {
        match readers(compute, compute.stage_buffer(map))[..] {
            [later] if is_pointwise(compute, map, later) => map = later,
            _ => kept[map] = true,
        }
    }
    map
}

/// Whether a map finds each element of another one at its own place.
fn is_pointwise(compute: &Compute, read: usize, reader: usize) -> bool {
    let (stage, buffer) = (&compute.stages[reader], compute.stage_buffer(read));
    let own: Vec<Expr> = (0..stage.ty.rank()).map(Expr::var).collect();
    let loads = stage.body.loads();
    let mut loads = loads.iter().filter(|(b, _)| *b == buffer);
    let is_same = stage.reduce.is_none() && stage.ty.shape == compute.stages[read].ty.shape;
    is_same && loads.all(|(_, at)| is_same_place(at, &own, &stage.ty.shape))
}

/// Whether indices are the same but for those of axes of one element.
fn is_same_place(at: &[Expr], place: &[Expr], shape: &[usize]) -> bool {
    let zero = Expr::int(0);
    let same = |((a, b), &n): ((&Expr, &Expr), &usize)| a == b || (n == 1 && *a == zero);
    at.len() == place.len() && at.iter().zip(place).zip(shape).all(same)
}

/// The sum, and the map that reads it.
pub(super) fn apply(
    nests: &mut Nests,
    stage: usize,
    way: &Way,
) -> Result<Option<usize>, StepError> {
    let Some(plan) = Plan::of(nests, stage, way) else { return Ok(None) };
    plan.write(nests)?;
    Ok(Some(2))
}

/// Everything that is known of a nest before any of it is written.
struct Plan {
    stage: usize,
    tiled: Tiled,
    shape: Shape,
    /// Extents of the axes of the sum and of its terms.
    extents: Vec<usize>,
    /// Names of both factors' buffers.
    factors: [String; 2],
}

/// Loops of the map outside of blocks.
struct Places {
    /// Over rows, and whatever both factors walk along; those of one iteration come last.
    outer: Vec<LoopVar>,
    /// Whether only the first factor walks along each of them.
    is_row: Vec<bool>,
    /// The one of them whose last block is smaller than the others, and has a nest of its own.
    ragged: Option<LoopVar>,
    /// Over blocks of columns.
    block: LoopVar,
    /// The loops from this one on are inside of columns from the beginning.
    within: Option<usize>,
    /// The innermost loop around a block.
    at: LoopVar,
}

/// A block that becomes instructions; copies of it that peeling leaves have its name and a number.
struct Step {
    name: String,
    /// Loops of the instruction.
    loops: usize,
    instruction: Instruction,
}

#[derive(Clone, Copy)]
enum Instruction {
    Zero,
    Rows,
    Panel,
    Dot,
    Store,
}

impl Plan {
    fn of(nests: &Nests, stage: usize, way: &Way) -> Option<Plan> {
        let (compute, s) = (&nests.compute, nests.stage(stage));
        let tiled = Tiled::of(compute, stage)?;
        let [reader] = readers(compute, compute.stage_buffer(stage))[..] else { return None };
        let map = nests.stage(reader);
        // Stages in between would come before what they read.
        let follows = reader == stage + 1 && !compute.outputs.contains(&stage);
        if !follows || map.reduce.is_some() || map.ty.rank() + 1 != s.ty.rank() {
            return None;
        }
        let place = tiled.place();
        let loads = map.body.loads();
        let mut own = loads.iter().filter(|(b, _)| *b == compute.stage_buffer(stage));
        if own.any(|(_, at)| !is_same_place(at, &place, &s.ty.shape)) {
            return None;
        }
        let shape = tiled.shapes(s).into_iter().nth(way.number())?;
        let program = nests.recorder.schedule().program();
        let block = nests.recorder.schedule().block(&s.name).ok()?;
        let loads = block.body.value().loads();
        let factors = [0, 1].map(|i| program.buffer(loads[i].0).name.clone());
        Some(Plan { stage, tiled, shape, extents: s.extents(), factors })
    }

    fn write(&self, nests: &mut Nests) -> Result<(), StepError> {
        let map = nests.block(self.stage + 1)?;
        let places = self.cut(nests, map)?;
        let steps = self.steps(nests, &places)?;
        if let Some(l) = places.ragged {
            nests.recorder.peel(l, Rest::Pieces)?;
        }
        for step in &steps {
            self.tensorize(nests, step)?;
        }
        self.order(nests, &places)
    }

    /// Cuts the map into blocks.
    fn cut(&self, nests: &mut Nests, map: BlockVar) -> Result<Places, StepError> {
        let Shape { rows, high, along, wide } = self.shape;
        let r = &mut nests.recorder;
        let mut outer = r.get_loops(map)?;
        let columns = outer.pop().ok_or(StepError::NoChoice)?;
        let extents = outer.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>, _>>()?;
        let [along, row] = [along, self.tiled.row].map(|axis| self.tiled.axis_of_map(axis));
        let (mut inner, mut ragged) = (vec![], None);
        let mut cut = |r: &mut Recorder, axis: usize, length: usize| {
            let parts = r.split(outer[axis], &[0.into(), length.into()])?;
            outer[axis] = parts[0];
            inner.push(parts[1]);
            ragged = ragged.or((!extents[axis].is_multiple_of(length)).then_some(axis));
            Ok::<_, StepError>(())
        };
        if along == row {
            cut(r, row, rows * high)?;
        } else {
            cut(r, along, high)?;
            cut(r, row, rows)?;
        }
        let parts = r.split(columns, &[0.into(), (wide * COLUMNS).into()])?;
        inner.push(parts[1]);
        // Loops of one iteration inside of others: what peeling leaves is at the root then.
        let mut axes: Vec<usize> = (0..outer.len()).collect();
        axes.sort_by_key(|&axis| extents[axis] == 1);
        let ragged = ragged.map(|axis| outer[axis]);
        let is_row = axes.iter().map(|&axis| self.tiled.is_row_of_map(axis)).collect();
        let outer: Vec<LoopVar> = axes.iter().map(|&axis| outer[axis]).collect();
        let mut places =
            Places { at: parts[0], block: parts[0], outer, is_row, ragged, within: None };
        places.within = self.within(r, &places)?;
        let (outside, inside) = places.outer.split_at(places.within.unwrap_or(places.outer.len()));
        r.reorder(&[outside, &[places.block], inside, &inner[..]].concat())?;
        places.at = inside.last().copied().unwrap_or(places.block);
        r.vectorize(parts[1])?;
        Ok(places)
    }

    /// From which loop on those over rows go inside of columns at once: from the ragged one or one
    /// around it, if all of its rows stay in the cache, and columns are enough for threads. What
    /// peeling leaves then finds the same panels as the rest.
    fn within(&self, r: &Recorder, places: &Places) -> Result<Option<usize>, StepError> {
        let Some(ragged) = places.outer.iter().position(|l| Some(*l) == places.ragged) else {
            return Ok(None);
        };
        let counts = places.outer.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>, _>>()?;
        let (tile, columns) =
            (self.tiled.bytes_of_tile(&self.extents, &self.shape), r.extent(places.block)?);
        let fits = |first: &usize| {
            let (outside, inside) = counts.split_at(*first);
            let iterations = outside.iter().product::<usize>() * columns;
            let are_rows = places.is_row[*first..].iter().all(|is_row| *is_row);
            let bytes = inside.iter().product::<usize>() * tile;
            are_rows && bytes <= KEPT && iterations >= PARALLEL_ITERATIONS
        };
        Ok((0..=ragged).find(fits))
    }

    /// The sum under the loop over blocks: what it reads and what becomes of it in tiles.
    fn steps(&self, nests: &mut Nests, places: &Places) -> Result<Vec<Step>, StepError> {
        let sum = nests.block(self.stage)?;
        let r = &mut nests.recorder;
        let rows = r.re_index_read(sum, &self.factors[0], Scope::Fragment)?;
        let panel = r.cache_read(sum, &self.factors[1], Scope::Fragment)?;
        let store = r.cache_write(sum, Scope::Fragment)?;
        nests.keep_local(store)?;
        let r = &mut nests.recorder;
        r.compute_at(store, places.at)?;
        r.compute_at(sum, places.at)?;
        let n = self.extents.len();
        let first = self.tiled.rank;
        let t = n - 3;
        let own: Vec<usize> = (0..n).collect();
        let loops =
            self.arrange(nests, sum, &own, &[&(first..t).collect::<Vec<_>>()[..], &[t]].concat())?;
        let r = &mut nests.recorder;
        let all = r.get_loops(sum)?;
        let step = all[all.len() - loops - 1];
        r.compute_at(rows, step)?;
        r.compute_at(panel, step)?;
        let outermost = all[all.len() - loops - (t + 1 - first)];
        let zero = r.decompose_reduction(sum, outermost)?;
        let moving = |v: &usize| self.extents[*v] != 1 && self.tiled.first.contains(v);
        let of_rows: Vec<usize> = own.iter().copied().filter(moving).collect();
        self.arrange(nests, rows, &of_rows, &[])?;
        self.arrange(nests, panel, &self.tiled.second, &[])?;
        self.arrange(nests, store, &own[..first], &[])?;
        let made = [
            (rows, 3, Instruction::Rows),
            (panel, 3, Instruction::Panel),
            (zero, 2, Instruction::Zero),
            (sum, 4, Instruction::Dot),
            (store, 2, Instruction::Store),
        ];
        let named = |(block, loops, instruction): (BlockVar, usize, Instruction)| {
            let name = nests.recorder.name_of(block)?;
            Ok(Step { name, loops, instruction })
        };
        made.into_iter().map(named).collect()
    }

    /// Puts the innermost loops of a block, which are over these axes, in the order of tiles: those
    /// over one point, `before`, tiles of rows and of columns, written out, and at last those in a
    /// tile. Tells how many loops follow `before`.
    fn arrange(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        axes: &[usize],
        before: &[usize],
    ) -> Result<usize, StepError> {
        let r = &mut nests.recorder;
        let loops = r.get_loops(block)?;
        let own = &loops[loops.len() - axes.len()..];
        let at = |axis: usize| axes.iter().position(|&a| a == axis).map(|i| own[i]);
        let Shape { rows, high, along, .. } = self.shape;
        let (mut tiles, mut inside) = (vec![], vec![]);
        if along != self.tiled.row {
            tiles.extend(at(along));
            inside.extend(at(self.tiled.row));
        } else if let Some(row) = at(self.tiled.row) {
            let parts = r.split(row, &[high.into(), rows.into()])?;
            tiles.push(parts[0]);
            inside.push(parts[1]);
        }
        tiles.extend(at(self.tiled.panel));
        let n = self.extents.len();
        let (l, g, q) = (self.tiled.rank - 1, n - 2, n - 1);
        let in_tile = match at(l) {
            // Panels go through groups, and then columns.
            Some(_) if inside.is_empty() => [g, l, q],
            _ => [l, g, q],
        };
        inside.extend(in_tile.into_iter().filter_map(at));
        let first: Vec<LoopVar> = before.iter().copied().filter_map(at).collect();
        let taken = [along, self.tiled.row, self.tiled.panel, l, g, q];
        let is_left = |axis: &&usize| !taken.contains(axis) && !before.contains(axis);
        let units: Vec<LoopVar> = axes.iter().filter(is_left).filter_map(|&a| at(a)).collect();
        r.reorder(&[&units[..], &first, &tiles, &inside].concat())?;
        tiles.iter().try_for_each(|&l| r.unroll(l))?;
        Ok(tiles.len() + inside.len())
    }

    /// Makes instructions of a block and of its copies.
    fn tensorize(&self, nests: &mut Nests, step: &Step) -> Result<(), StepError> {
        let r = &mut nests.recorder;
        let blocks = copies(r, &step.name);
        for name in blocks {
            let block = r.get_block(&name)?;
            let loops = r.get_loops(block)?;
            let target = loops[loops.len() - step.loops];
            let names = self.tiled.names(r.extent(target)?);
            let instruction = match step.instruction {
                Instruction::Zero => names.zero(),
                Instruction::Rows => names.load_rows(),
                Instruction::Panel => names.load_panel(),
                Instruction::Dot => names.dot(),
                Instruction::Store => names.store(),
            };
            r.tensorize(target, &instruction)?;
        }
        Ok(())
    }

    /// Loops outside of blocks: blocks of rows, all columns, the rows of a block. What is outside
    /// of columns runs in parallel, with them.
    fn order(&self, nests: &mut Nests, places: &Places) -> Result<(), StepError> {
        let r = &mut nests.recorder;
        if let Some(within) = places.within {
            let all = r.fuse(&[&places.outer[..within], &[places.block]].concat())?;
            return r.parallel(all);
        }
        let (mut outside, mut inside) = (places.outer.clone(), vec![]);
        let mut bytes = self.tiled.bytes_of_tile(&self.extents, &self.shape);
        let counts = outside.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>, _>>()?;
        let mut iterations: usize = counts.iter().product();
        let columns = r.extent(places.block)?;
        // Other loops around the ragged one contain what peeling left, too.
        let ragged = places.ragged.and_then(|l| outside.iter().position(|&o| o == l));
        while let Some(&last) = outside.last() {
            let at = outside.len() - 1;
            let count = counts[at];
            if !places.is_row[at] || ragged.is_some_and(|ragged| at < ragged) {
                break;
            }
            let fits = |n: &usize| {
                let enough = iterations / n * columns >= PARALLEL_ITERATIONS;
                count.is_multiple_of(*n) && bytes * n <= KEPT && enough
            };
            let kept = (1..=count).rev().find(fits).unwrap_or(1);
            if kept == 1 && count > 1 {
                break;
            }
            iterations /= kept;
            outside.pop();
            if kept == count {
                inside.insert(0, last);
                bytes *= count;
                continue;
            }
            let parts = r.split(last, &[0.into(), kept.into()])?;
            outside.push(parts[0]);
            inside.insert(0, parts[1]);
            break;
        }
        if !inside.is_empty() {
            r.reorder(&[&[places.block], &inside[..]].concat())?;
        }
        if ragged.is_some_and(|ragged| ragged > 0) {
            let first = r.fuse(&outside[..1])?;
            return r.parallel(first);
        }
        let all = r.fuse(&[&outside[..], &[places.block]].concat())?;
        r.parallel(all)?;
        match ragged {
            Some(_) => self.parallel_rest(nests, places),
            None => Ok(()),
        }
    }

    /// The nest of the last rows, which the ragged loop was around, goes through blocks of columns
    /// in parallel.
    fn parallel_rest(&self, nests: &mut Nests, places: &Places) -> Result<(), StepError> {
        let name = nests.stage(self.stage + 1).name.clone();
        let r = &mut nests.recorder;
        for copy in copies(r, &name).into_iter().filter(|copy| *copy != name) {
            let block = r.get_block(&copy)?;
            let loops = r.get_loops(block)?;
            let (units, blocks) = loops.split_at(places.outer.len() - 1);
            let blocks = *blocks.first().ok_or(StepError::NoChoice)?;
            r.reorder(&[&[blocks], units].concat())?;
            r.parallel(blocks)?;
        }
        Ok(())
    }
}

/// The block and the copies of it that peeling left: they have its name and a number.
fn copies(r: &Recorder, name: &str) -> Vec<String> {
    let is_copy = |other: &String| {
        other.strip_prefix(name).is_some_and(|rest| {
            let number = rest.strip_prefix('_').unwrap_or(rest);
            number.bytes().all(|b| b.is_ascii_digit())
        })
    };
    r.schedule().blocks().into_iter().filter(is_copy).collect()
}

#[cfg(test)]
mod tests;
