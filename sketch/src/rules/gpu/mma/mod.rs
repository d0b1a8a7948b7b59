//! A product of matrices by the tensor cores of a GPU.
//!
//! ```text
//! product[i, j] = sum{t} f32(rows[i, t]) * f32(columns[t, j]);  y[i, j] = relu(product[i, j])
//! =>
//! blocks of threads { warps of rows (thread_z) { warps of columns (thread_y) {
//!   zero product[4, 8];
//!   for steps pipelined {
//!     rows, columns: copies in shared memory, by all threads
//!     for step { load a[4] from rows;  load b[8] from columns;  product[x, y] += a[x] * b[y] }
//!   }
//!   for lanes (thread_x) { y[i, j] = relu(product[.., lane, e]) }
//! } } }
//! ```
//!
//! The task is rewritten by the algorithm [`matrices`](crate::algorithm::Algorithm::Matrices), so
//! that convolutions and batches are products of two matrices; or, if whole sums would be too few
//! blocks of threads, by [`matrices_in_parts`](crate::algorithm::Algorithm::MatricesInParts).
//! Tiles at the border compute too much, from elements that nothing reads, and only what is part
//! of the result is stored. How many warps there are, how many fragments each has, how many steps
//! are copied at once, how many elements a thread copies, and how many rounds early copies are
//! begun are free decisions; the first candidates are those that take the fewest cycles by the
//! estimate of `price/mma`.

mod shape;

use std::sync::Arc;

use ansc_graph::Expr;

use crate::algorithm::Algorithm;
use crate::algorithm::matrices::Matrices;
use crate::index_map::IndexMap;
use crate::inline::{self, Padding};
use crate::intrinsic::mma::{self, COLUMNS, LANES, LOADED, Names, ROWS, Side};
use crate::lowering::THREAD_BYTES;
use crate::notes::PIPELINE;
use crate::program::{Scope, ThreadAxis};
use crate::rules::{Sketch, nests};
use crate::task::Task;
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};
use shape::Choices;

type Result<T> = std::result::Result<T, StepError>;

/// Words of shared memory that are loaded at once.
const BANKS: usize = 32;
/// Copies of a thread in a round that are written out.
const MOST_COPIES: usize = 16;

/// The sketches of a task that is a product of matrices, if the machine multiplies such. The first
/// one is that of the lowest estimate.
pub(crate) fn sketches(task: &Arc<Task>) -> Vec<Sketch> {
    let ways = [Algorithm::MatricesInParts, Algorithm::Matrices];
    ways.into_iter().filter_map(|by| sketch(task, by)).collect()
}

fn sketch(task: &Arc<Task>, by: Algorithm) -> Option<Sketch> {
    let recorder = Product::of(task, by)?.scheduled(task).ok()?;
    let rules = vec![by.name().to_owned(), "tensor cores".to_owned()];
    Some(Sketch { trace: recorder.into_parts().1, rules })
}

/// The facts that the rule knows before it writes anything.
struct Product {
    by: Algorithm,
    matrices: Matrices,
    names: Names,
    /// Axes of batches.
    batch: usize,
    choices: Choices,
}

/// Names of blocks; a stage's buffer is named like its block.
struct Blocks {
    factors: [String; 2],
    product: String,
    /// The last map that goes on with the product element by element.
    consumer: String,
}

/// Decisions.
struct Tile {
    /// Warps of a block of threads: along rows, and along columns.
    warps: [Number; 2],
    /// Rows and columns of a warp: whole fragments.
    tiles: [Number; 2],
    /// Steps that are copied together.
    steps: Number,
    /// Elements that a thread copies at once.
    vectors: [Number; 2],
    /// Rounds that copies are begun early.
    ahead: Number,
}

/// Loops of the product that others are placed at.
struct Places {
    warp: LoopVar,
    copied: LoopVar,
    step: LoopVar,
    /// Over rows and columns of a warp, and over terms of a step.
    tile: [LoopVar; 3],
}

impl Product {
    fn of(task: &Task, by: Algorithm) -> Option<Product> {
        let limits = task.gpu.as_ref().filter(|_| task.machine.units.mma)?;
        let whole = Matrices::find(&task.compute)?;
        let matrices = match by {
            Algorithm::MatricesInParts => whole.in_parts(limits)?,
            _ => whole,
        };
        let choices = Choices::of(&matrices, limits)?;
        let (names, batch) = (Names { factors: matrices.factors }, matrices.place().len() - 2);
        Some(Product { by, matrices, names, batch, choices })
    }

    fn scheduled(&self, task: &Arc<Task>) -> Result<Recorder> {
        let mut recorder = Recorder::of_task(task.clone());
        let r = &mut recorder;
        r.algorithm(self.by)?;
        let blocks = self.inlined(r)?;
        let tile = self.tile(r)?;
        self.pad(r, &blocks, &tile)?;
        let fragments = self.fragments(r, &blocks)?;
        let places = self.cut(r, &blocks, &tile)?;
        let product = r.get_block(&blocks.product)?;
        for (side, &fragment) in fragments.iter().enumerate() {
            r.compute_at(fragment, places.step)?;
            let copy = r.get_block(&blocks.factors[side])?;
            r.compute_at(copy, places.copied)?;
            self.copy(r, copy, side, &tile)?;
        }
        let zero = r.decompose_reduction(product, places.copied)?;
        let [rows, columns, terms] = places.tile;
        let dot = in_fragments(r, [rows, columns], &[terms])?;
        let loops = r.get_loops(zero)?;
        let zero = in_fragments(r, [loops[loops.len() - 2], loops[loops.len() - 1]], &[])?;
        self.finish(r, &blocks, &places)?;
        self.lay_out(r, &blocks, fragments)?;
        r.tensorize(zero, &self.names.zero())?;
        r.tensorize(dot, &self.names.dot())?;
        self.load(r, fragments)?;
        r.annotate_loop(places.copied, PIPELINE, tile.ahead)?;
        // Once steps are written out, the loads for the next one run while this one multiplies.
        r.unroll(places.step)?;
        Ok(recorder)
    }

    /// Lets stages vanish into their readers, but for factors, product and the last map.
    fn inlined(&self, r: &mut Recorder) -> Result<Blocks> {
        let task = r.task.clone().ok_or(StepError::NoTask)?;
        let compute = &task.compute;
        let first = self.matrices.stage;
        let mut kept = inline::inlined(compute, Padding::Inlined).1;
        kept[first..first + 3].fill(true);
        let last = nests::keep_last_map(compute, &mut kept, first + 3);
        nests::inline_all(r, &kept)?;
        let name = |stage: usize| compute.stages[stage].name.clone();
        Ok(Blocks {
            factors: [name(first), name(first + 1)],
            product: name(first + 2),
            consumer: name(last),
        })
    }

    fn tile(&self, r: &mut Recorder) -> Result<Tile> {
        let mut sample =
            |candidates: &[i64]| Ok::<_, StepError>(r.sample_first(candidates)?.into());
        let c = &self.choices;
        Ok(Tile {
            warps: [sample(&c.warps[0])?, sample(&c.warps[1])?],
            tiles: [sample(&c.tiles[0])?, sample(&c.tiles[1])?],
            steps: sample(&c.steps)?,
            vectors: [sample(&c.vectors[0])?, sample(&c.vectors[1])?],
            ahead: sample(&c.ahead)?,
        })
    }

    /// The row or column of a factor is this axis of it.
    fn along(&self, side: usize) -> usize {
        self.batch + usize::from(self.matrices.across()[side])
    }

    /// Makes whole tiles of rows and columns.
    fn pad(&self, r: &mut Recorder, blocks: &Blocks, tile: &Tile) -> Result<()> {
        for side in 0..2 {
            let whole = [tile.warps[side], tile.tiles[side]];
            let factor = r.get_block(&blocks.factors[side])?;
            r.pad(factor, self.along(side), &whole)?;
            let product = r.get_block(&blocks.product)?;
            r.pad(product, self.batch + side, &whole)?;
        }
        Ok(())
    }

    /// Copies of both factors in fragments; the product is in fragments, the factors in shared
    /// memory.
    fn fragments(&self, r: &mut Recorder, blocks: &Blocks) -> Result<[BlockVar; 2]> {
        let product = r.get_block(&blocks.product)?;
        let mut copies = vec![];
        for factor in &blocks.factors {
            copies.push(r.cache_read(product, factor, Scope::Fragment)?);
            r.set_scope(factor, Scope::Shared)?;
        }
        r.set_scope(&blocks.product, Scope::Fragment)?;
        Ok([copies[0], copies[1]])
    }

    /// Cuts the loops of the product: blocks of threads, warps, what is copied at once, steps, and
    /// what a warp does in a step.
    fn cut(&self, r: &mut Recorder, blocks: &Blocks, tile: &Tile) -> Result<Places> {
        let product = r.get_block(&blocks.product)?;
        let loops = r.get_loops(product)?;
        let (batch, own) = loops.split_at(self.batch);
        let [[wi, wj], [ti, tj]] = [tile.warps, tile.tiles];
        let i = r.split(own[0], &[0.into(), wi, ti])?;
        let j = r.split(own[1], &[0.into(), wj, tj])?;
        let terms = mma::terms(self.matrices.factors[0]);
        let t = r.split(own[2], &[0.into(), tile.steps, terms.into()])?;
        let grid = [batch, &[i[0], j[0]]].concat();
        let inner = [i[1], j[1], t[0], t[1], i[2], j[2], t[2]];
        r.reorder(&[&grid[..], &inner].concat())?;
        let grid = r.fuse(&grid)?;
        r.bind(grid, ThreadAxis::BlockX)?;
        r.bind(i[1], ThreadAxis::ThreadZ)?;
        r.bind(j[1], ThreadAxis::ThreadY)?;
        Ok(Places { warp: j[1], copied: t[0], step: t[1], tile: [i[2], j[2], t[2]] })
    }

    /// Brings a factor to shared memory, by all threads of the block. Its rows there are an odd
    /// number of vectors apart, so that eight of them are in different banks; or, where each lane
    /// loads one word of four rows and eight columns, eight words more than all banks.
    fn copy(&self, r: &mut Recorder, copy: BlockVar, side: usize, tile: &Tile) -> Result<()> {
        let loops = r.get_loops(copy)?;
        let fused = r.fuse(&loops[loops.len() - 2..])?;
        let [warps_of_rows, warps_of_columns] = tile.warps;
        let threads = [warps_of_rows, warps_of_columns, LANES.into(), tile.vectors[side]];
        let parts = r.split(fused, &[&[0.into()], &threads[..]].concat())?;
        // The places of many copies, all known at once, do not fit the registers.
        if r.extent(parts[0])? <= MOST_COPIES {
            r.unroll(parts[0])?;
        }
        r.bind(parts[1], ThreadAxis::ThreadZ)?;
        r.bind(parts[2], ThreadAxis::ThreadY)?;
        r.bind(parts[3], ThreadAxis::ThreadX)?;
        r.vectorize(parts[4])?;
        let vector = THREAD_BYTES / self.matrices.factors[side].size();
        let name = r.name_of(copy)?;
        let by_words = self.matrices.across()[side] && self.matrices.factors[side].size() == 4;
        let (factor, offset) = if by_words { (BANKS, COLUMNS) } else { (2 * vector, vector) };
        r.storage_align(&name, self.batch, factor, offset)
    }

    /// The stages that follow the product, by the lanes that hold it.
    fn finish(&self, r: &mut Recorder, blocks: &Blocks, places: &Places) -> Result<()> {
        let consumer = r.get_block(&blocks.consumer)?;
        let rank = r.schedule().block(&blocks.consumer)?.iters.len();
        let place = self.matrices.place();
        let own: Vec<Expr> = (0..rank).map(Expr::var).collect();
        if place != own {
            let map = IndexMap::new(rank, place).map_err(|_| StepError::Unfit)?;
            r.transform_block_layout(consumer, &map)?;
        }
        r.reverse_compute_at(consumer, places.warp)?;
        let loops = r.get_loops(consumer)?;
        let [i, j] = [loops[loops.len() - 2], loops[loops.len() - 1]];
        let i = r.split(i, &[0.into(), 2.into(), (ROWS / 2).into()])?;
        let j = r.split(j, &[0.into(), (COLUMNS / 2).into(), 2.into()])?;
        r.reorder(&[i[0], j[0], i[1], i[2], j[1], j[2]])?;
        [i[0], j[0], i[1]].into_iter().try_for_each(|l| r.unroll(l))?;
        let lane = r.fuse(&[i[2], j[1]])?;
        r.bind(lane, ThreadAxis::ThreadX)?;
        r.vectorize(j[2])
    }

    /// Spreads fragments over lanes.
    fn lay_out(&self, r: &mut Recorder, blocks: &Blocks, copies: [BlockVar; 2]) -> Result<()> {
        let (rank, [x, y], [a, b]) =
            (self.batch + 2, self.matrices.factors, self.matrices.across());
        let maps = [mma::rows_in_fragments(rank, x, a), mma::columns_in_fragments(rank, y, b)];
        for (copy, map) in copies.into_iter().zip(maps) {
            let name = r.name_of(copy)?;
            let written = r.schedule().block(&name)?.body.writes()[0].buffer;
            let buffer = r.schedule().program().buffer(written).name.clone();
            r.transform_layout(&buffer, &map.ok_or(StepError::Unfit)?)?;
        }
        let sums = mma::sums_in_fragments(rank).ok_or(StepError::Unfit)?;
        r.transform_layout(&blocks.product, &sums)
    }

    /// Factors come from shared memory, a fragment or two at a time.
    fn load(&self, r: &mut Recorder, copies: [BlockVar; 2]) -> Result<()> {
        let sides = [(Side::Rows, ROWS), (Side::Columns, LOADED)];
        for (index, (side, length)) in sides.into_iter().enumerate() {
            let loops = r.get_loops(copies[index])?;
            let mut own = loops[loops.len() - 2..].to_vec();
            let along = self.along(index) - self.batch;
            let parts = r.split(own[along], &[0.into(), length.into()])?;
            own[along] = parts[1];
            r.reorder(&[parts[0], own[0], own[1]])?;
            r.unroll(parts[0])?;
            r.tensorize(own[0], &self.names.load(side, self.matrices.across()[index]))?;
        }
        Ok(())
    }
}

/// Cuts loops over rows and columns of a warp into fragments, written out, with the terms inside.
/// Gives the outermost loop of a fragment.
fn in_fragments(r: &mut Recorder, [i, j]: [LoopVar; 2], terms: &[LoopVar]) -> Result<LoopVar> {
    let i = r.split(i, &[0.into(), ROWS.into()])?;
    let j = r.split(j, &[0.into(), COLUMNS.into()])?;
    r.reorder(&[&[i[0], j[0], i[1], j[1]], terms].concat())?;
    r.unroll(i[0])?;
    r.unroll(j[0])?;
    Ok(i[1])
}

#[cfg(test)]
mod tests;
