//! Winograd's convolution: of the products of windows of three by three a quarter (F(4, 3)) or four
//! ninths (F(2, 3)), of those of four by four a fifth (F(4, 4)).
//!
//! ```text
//! conv[n, y, x, k] = sum{r, s, c} in[n, y + r, x + s, c] * w[r, s, c, k]
//! =>
//! half[t, i, b, c]    = (Bt d)[i, b]               d: the tile t of the input, m + 2 by m + 2, or m + 3 by m + 3
//! points[i, j, t, c]  = (half B)[i, j]
//! product[i, j, t, k] = sum{c} points[i, j, t, c] * u[i, j, c, k]       u = G w Gt, made when compiling
//! back[t, y, j, k]    = (At product)[y, j]
//! conv[n, y, x, k]    = (back A)[y % m, x % m] of the tile of (y, x)
//! ```
//!
//! Windows have stride and dilation one, or are dealt out to some of that kind (`parts`); axes may
//! be in any order. Tiles that reach beyond the input read zeros.
//!
//! A third window, of any size and dilation, is left to the products: its frames of the input are
//! transformed one by one, and a product of frame `d` sums over frames `d + q`. As `t` counts tiles
//! frame by frame, that is so many tiles on:
//!
//! ```text
//! product[i, j, t, k] = sum{q, c} points[i, j, t + q * (tiles of a frame), c] * u[i, j, q, c, k]
//! ```
//!
//! Transformed weights take four times the room (F(4, 3)), and where images are small each run
//! waits for them. *Late* ones stay as they are, the lanes of a vector side by side, and `u` is
//! made in each run: by slices of a few output channels, which stay in the cache.
//!
//! ```text
//! packed[k / 16, c, r, s, k % 16] = w[r, s, c, k]                           made when compiling
//! parallel k / 16 { u' = G packed Gt;  product' = sum{c} points * u';  conv[.., k] = .. }
//! ```
//!
//! Bytes become words, with which F(2, 3) is exact (`numbers`). For floats, coefficients are exact
//! fractions, rounded once; constant weights are transformed with 64 bits,
//! and long sums of products are summed by blocks. Sums and differences of inputs lose some bits:
//! with 256 channels and elements of a normal distribution, summed one after another, the largest
//! error is 7e-7 of the largest result for F(2, 3) and 2.3e-6 for F(4, 3), where the direct sum of
//! 2304 terms has 1.5e-6; 4.7e-6 for F(4, 4), of 64 channels under windows of seven by seven.
//! `docs/src/accuracy.md` compares them with another engine. An infinity in the input becomes NaN
//! in results that it would have made infinite or left alone, within its tile.

mod combine;
mod numbers;
mod stages;
mod weights;

use std::ops::Range;

use ansc_graph::{BufId, Compute, Expr, Stage};
use ansc_runtime::DType;

use super::convolution::{Convolution, Window};
use super::parts::{self, Deal};
use super::toom_cook::Filter;
use super::{Replacing, Rewritten, of_floats};
use crate::packed::in_turn;
use crate::task::Sums;
use crate::task::Task;
pub(crate) use numbers::Numbers;
use weights::PLAIN;

/// Transformed weights of so many bytes are not worth the memory: each run reads all of them, which
/// takes about as long as the operations that they save.
const MOST_WEIGHTS: usize = 40 << 20;

/// Windows are dealt out if what is left is no more than three quarters of the direct products.
const FEWER: (usize, usize) = (3, 4);

/// When weights are transformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weights {
    /// By the compiler, if they are constant.
    Early,
    /// In each run, though they are constant.
    Late,
}

/// Outputs along each axis of a tile, weights along each axis of a window, when they are
/// transformed, and in what numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) outputs: usize,
    pub(crate) window: usize,
    pub(crate) weights: Weights,
    pub(crate) numbers: Numbers,
}

impl Tile {
    /// Points along each axis.
    fn size(&self) -> usize {
        self.outputs + self.window - 1
    }

    /// Whether nothing has to be dealt out.
    fn fits(&self, conv: &Convolution) -> bool {
        let fits = |w: &Window| w.size == self.window && w.stride == 1 && w.dilation == 1;
        match &conv.windows[..] {
            [y, x] => fits(y) && fits(x),
            [outer, y, x] => outer.stride == 1 && fits(y) && fits(x),
            _ => false,
        }
    }

    /// How windows are dealt out, if that leaves clearly fewer products.
    fn deals(&self, conv: &Convolution) -> Option<Vec<Deal>> {
        let (outer, inner) = conv.windows.split_at(conv.windows.len().checked_sub(2)?);
        let outer = outer.iter().map(|w| Deal::of(w, None, 1));
        let inner = inner.iter().map(|w| Deal::of(w, Some(self.window), self.outputs));
        let deals: Vec<Deal> = outer.chain(inner).collect::<Option<_>>()?;
        let direct: usize = conv.windows.iter().map(|w| w.size).product();
        let dealt: usize = deals.iter().map(Deal::weights).product();
        let [products, outputs] = [self.size(), self.outputs * self.window].map(|n| n * n);
        let saves = FEWER.1 * products * dealt <= FEWER.0 * outputs * direct;
        let may = self.weights == Weights::Early && self.numbers == Numbers::Floats;
        (may && deals.len() <= 3 && saves).then_some(deals)
    }
}

/// Input channels of a block of late weights.
const BLOCK: usize = 8;

/// Rows of late weights that are transformed at a time, times their input channels, at most.
const STRIP: usize = 1536;

/// Takes a stage and gives its buffer.
type Push<'f> = dyn FnMut(Stage) -> BufId + 'f;

/// The task with such tiles.
pub(super) fn rewrite(task: &Task, tile: Tile) -> Option<Rewritten> {
    match tile.numbers {
        Numbers::Words => in_tiles(task, &Convolution::of_narrow(&task.compute)?, tile),
        Numbers::Floats => of_floats(task, |task, conv| in_tiles(task, conv, tile)),
    }
}

fn in_tiles(task: &Task, conv: &Convolution, tile: Tile) -> Option<Rewritten> {
    let Some(dealt) = dealt(task, conv, tile)? else {
        return Tiling::of(task, conv, tile)?.rewrite(task);
    };
    let conv = Convolution::find(&dealt.task.compute)?;
    let made = Tiling::of(&dealt.task, &conv, tile)?.rewrite(&dealt.task)?;
    Some(Rewritten { prepared: in_turn(dealt.prepared, made.prepared), ..made })
}

/// The task with windows that fit the tiles, if those of the task do not.
fn dealt(task: &Task, conv: &Convolution, tile: Tile) -> Option<Option<Rewritten>> {
    if tile.fits(conv) {
        return Some(None);
    }
    Some(Some(parts::rewrite(task, conv, &tile.deals(conv)?)))
}

/// The amount of work that the algorithm takes.
pub(crate) struct Work {
    /// Multiplications of the products.
    pub(crate) products: usize,
    /// Bytes of what is transformed, before the products and after them.
    pub(crate) transformed: usize,
    /// Bytes of the weights that are read.
    pub(crate) weights: usize,
    /// Bytes of weights that are transformed in each run.
    pub(crate) late: usize,
}

impl Work {
    /// None where the algorithm is not taken.
    pub(crate) fn of(task: &Task, conv: &Convolution, tile: Tile) -> Option<Work> {
        let Some(dealt) = dealt(task, conv, tile)? else {
            return Some(Tiling::of(task, conv, tile)?.work());
        };
        let conv = Convolution::find(&dealt.task.compute)?;
        let work = Tiling::of(&dealt.task, &conv, tile)?.work();
        let parts = dealt.task.compute.buffer_type(conv.input).bytes();
        Some(Work { transformed: work.transformed + parts, ..work })
    }
}

struct Tiling<'a> {
    conv: &'a Convolution,
    filter: Filter,
    tile: Tile,
    /// The window that is left to the products.
    outer: Option<&'a Window>,
    /// Those of the tiles.
    inner: [&'a Window; 2],
    /// Batch axes, frames of the input, and tiles along each window.
    tiles: Vec<usize>,
    /// The same of the results.
    results: Vec<usize>,
}

impl<'a> Tiling<'a> {
    /// None where the algorithm does not apply, or is not worth its memory.
    fn of(task: &Task, conv: &'a Convolution, tile: Tile) -> Option<Tiling<'a>> {
        let (outer, [y, x]) = match &conv.windows[..] {
            [y, x] => (None, [y, x]),
            [outer, y, x] => (Some(outer), [y, x]),
            _ => return None,
        };
        let extents = &task.compute.stages[conv.stage].ty.shape;
        let batch: Vec<usize> = conv.batch.iter().map(|&a| extents[a]).collect();
        // With several images, the frames of one would be followed by those of the next.
        if !tile.fits(conv) || (outer.is_some() && count(&batch) > 1) {
            return None;
        }
        let input = &task.compute.buffer_type(conv.input).shape;
        let tiled = |frames: Option<usize>| {
            let along = [y, x].map(|w| w.outputs.div_ceil(tile.outputs));
            batch.iter().copied().chain(frames).chain(along).collect()
        };
        let (tiles, results) = (tiled(outer.map(|w| input[w.of])), tiled(outer.map(|w| w.outputs)));
        let filter = tile.numbers.filter(&tile);
        let tiling = Tiling { conv, filter, tile, outer, inner: [y, x], tiles, results };
        let factors = [conv.input, conv.weight].map(|b| task.compute.buffer_type(b).dtype);
        let of_these = task.compute.stages[conv.stage].ty.dtype == tile.numbers.sum()
            && factors == tile.numbers.factors();
        let window = tile.window.pow(2) * tiling.frames();
        let fits = match tile.weights {
            _ if !of_these || !tile.numbers.fit(window, conv.channel.1) => false,
            Weights::Early => tiling.work().weights <= MOST_WEIGHTS,
            Weights::Late => conv.out.1.is_multiple_of(lanes(task)),
        };
        fits.then_some(tiling)
    }

    fn work(&self) -> Work {
        let (points, channels, out) =
            (self.size() * self.size(), self.conv.channel.1, self.conv.out.1);
        let (numbers, frames) = (self.tile.numbers, self.frames());
        let (tiles, results) = (count(&self.tiles), count(&self.results));
        let pairs = frames * channels * out;
        let bytes = numbers.weight_bytes() * pairs;
        let (weights, late) = match self.tile.weights {
            Weights::Early => (points * bytes, 0),
            Weights::Late => (self.tile.window.pow(2) * bytes, points * bytes),
        };
        let inputs = numbers.point().size() * tiles * channels;
        let outputs = numbers.sum().size() * results * out;
        Work {
            products: points * results * pairs,
            transformed: points * (inputs + outputs),
            weights,
            late,
        }
    }

    /// None for late weights, or words, that are no constant.
    fn rewrite(&self, task: &Task) -> Option<Rewritten> {
        let mut rewritten = task.clone();
        let original = std::mem::replace(
            &mut rewritten.compute,
            Compute { inputs: vec![], stages: vec![], outputs: vec![] },
        );
        let mut compute = Replacing::new(&original, self.conv.stage);
        let constant = task.sole_constant(self.conv.weight);
        let packing = match (self.tile.weights, constant) {
            (Weights::Early, None) if self.tile.numbers == Numbers::Words => return None,
            (Weights::Early, param) => param.map(|p| self.transformed(p, &original.inputs[p])),
            (Weights::Late, param) => {
                Some(self.packed(param?, &original.inputs[param?], lanes(task)))
            }
        };
        let input = self.padded(&mut compute);
        let points = self.points(&mut compute, input);
        if let Some(packing) = &packing {
            compute.compute.inputs[packing.param] = packing.compute.output_types().remove(0);
        }
        let product = |rows: Range<usize>| {
            let mut push = |stage| compute.push(stage);
            let of = self.conv.weight;
            let weight = match (self.tile.weights, &packing) {
                (Weights::Early, Some(_)) => of,
                (Weights::Early, None) => self.weight(&mut push, &rows, PLAIN, &|kernel, c, k| {
                    Expr::Load(of, self.conv.weight_at(kernel, c, k))
                }),
                (Weights::Late, _) => self.late(&mut push, &rows, lanes(task)),
            };
            (rows.clone(), self.product(&mut push, &rows, points, weight))
        };
        let products: Vec<(Range<usize>, BufId)> = self.strips().into_iter().map(product).collect();
        self.results(&mut compute, &products);
        rewritten.compute = compute.done();
        // The transform of the products enlarges what their sums round off.
        if self.tile.numbers == Numbers::Floats {
            rewritten.sums = Sums::Direct;
        }
        Some(Rewritten { task: rewritten, prepared: packing.into_iter().collect() })
    }

    /// Points of a tile along each axis.
    fn size(&self) -> usize {
        self.tile.size()
    }

    /// Extents of the axes of input channels. What is written of late weights at a time lies
    /// together: a block of channels of all points, where whole planes of points would be a power
    /// of two apart and meet in the cache.
    fn channels(&self) -> Vec<usize> {
        let all = self.conv.channel.1;
        match self.tile.weights {
            Weights::Early => vec![all],
            Weights::Late => {
                let block = (1..=BLOCK).rev().find(|n| all.is_multiple_of(*n)).unwrap_or(1);
                vec![all / block, block]
            }
        }
    }

    /// Those of blocks, outermost in the transformed weights.
    fn blocks(&self) -> Vec<usize> {
        self.channels().split_last().map(|(_, blocks)| blocks.to_vec()).unwrap_or_default()
    }

    /// Rows of points that are multiplied together. Where there are many channels, late weights are
    /// transformed for a few of them at a time, so that a slice stays in the cache.
    fn strips(&self) -> Vec<Range<usize>> {
        let size = self.size();
        let fits = |rows: &usize| {
            size.is_multiple_of(*rows) && rows * self.frames() * self.conv.channel.1 <= STRIP
        };
        let rows = match self.tile.weights {
            Weights::Early => size,
            Weights::Late => (2..=size).rev().find(fits).unwrap_or(2),
        };
        (0..size).step_by(rows).map(|first| first..first + rows).collect()
    }

    /// Frames under the outer window.
    fn frames(&self) -> usize {
        self.outer.map_or(1, |w| w.size)
    }

    /// The extent of the axis that counts them, if there is one.
    fn frame_axis(&self) -> Option<usize> {
        self.outer.map(|w| w.size)
    }
}

fn count(extents: &[usize]) -> usize {
    extents.iter().product()
}

/// Elements of a vector of the machine.
fn lanes(task: &Task) -> usize {
    (task.machine.vector_bytes / DType::F32.size()).max(1)
}
