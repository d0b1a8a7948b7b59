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
//! Coefficients are exact fractions, rounded once; constant weights are transformed with 64 bits,
//! and long sums of products are summed by blocks. Sums and differences of inputs lose some bits:
//! with 256 channels and elements of a normal distribution, summed one after another, the largest
//! error is 7e-7 of the largest result for F(2, 3) and 2.3e-6 for F(4, 3), where the direct sum of
//! 2304 terms has 1.5e-6; 4.7e-6 for F(4, 4), of 64 channels under windows of seven by seven.
//! `docs/src/accuracy.md` compares them with another engine. An infinity in the input becomes NaN
//! in results that it would have made infinite or left alone, within its tile.

use std::ops::Range;

use ansc_graph::{BufId, Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::{Convolution, Window};
use super::parts::{self, Deal};
use super::rational::Rational;
use super::toom_cook::{Filter, Part, Row, filter};
use super::{Replacing, Rewritten, Sums};
use crate::packed::{Packing, in_turn};
use crate::task::Task;
use ansc_graph::flat::{flattened, spread};

/// Transformed weights of so many bytes are not worth the memory: each run reads all of them, which
/// takes about as long as the operations that they save.
const MOST_WEIGHTS: usize = 40 << 20;

/// Windows are dealt out if what is left is no more than three quarters of the direct products.
const FEWER: (usize, usize) = (3, 4);

/// When weights are transformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weights {
    /// By the compiler, if they are constant.
    Early,
    /// In each run, though they are constant.
    Late,
}

/// Outputs along each axis of a tile, weights along each axis of a window, and when they are
/// transformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    pub(super) outputs: usize,
    pub(super) window: usize,
    pub(super) weights: Weights,
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
        (self.weights == Weights::Early && deals.len() <= 3 && saves).then_some(deals)
    }
}

/// Input channels of a block of late weights.
const BLOCK: usize = 8;

/// Rows of late weights that are transformed at a time, times their input channels, at most.
const STRIP: usize = 1536;

/// Takes a stage and gives its buffer.
type Push<'f> = dyn FnMut(Stage) -> BufId + 'f;

/// The task with such tiles.
pub(super) fn rewrite(task: &Task, conv: &Convolution, tile: Tile) -> Option<Rewritten> {
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
pub(super) struct Work {
    /// Multiplications of the products.
    pub(super) products: usize,
    /// Bytes of what is transformed, before the products and after them.
    pub(super) transformed: usize,
    /// Bytes of the weights that are read.
    pub(super) weights: usize,
    /// Bytes of weights that are transformed in each run.
    pub(super) late: usize,
}

impl Work {
    /// None where the algorithm is not taken.
    pub(super) fn of(task: &Task, conv: &Convolution, tile: Tile) -> Option<Work> {
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
        let filter = filter(tile.outputs, tile.window);
        let tiling = Tiling { conv, filter, tile, outer, inner: [y, x], tiles, results };
        let fits = match tile.weights {
            Weights::Early => tiling.work().weights <= MOST_WEIGHTS,
            Weights::Late => conv.out.1.is_multiple_of(lanes(task)),
        };
        fits.then_some(tiling)
    }

    fn work(&self) -> Work {
        let (points, channels, out) =
            (self.size() * self.size(), self.conv.channel.1, self.conv.out.1);
        let (bytes, frames) = (DType::F32.size() * points, self.frames());
        let (tiles, results) = (count(&self.tiles), count(&self.results));
        let pairs = frames * channels * out;
        let (weights, late) = match self.tile.weights {
            Weights::Early => (bytes * pairs, 0),
            Weights::Late => (DType::F32.size() * self.tile.window.pow(2) * pairs, bytes * pairs),
        };
        Work {
            products: points * results * pairs,
            transformed: bytes * (tiles * channels + results * out),
            weights,
            late,
        }
    }

    /// None for late weights that are no constant.
    fn rewrite(&self, task: &Task) -> Option<Rewritten> {
        let mut rewritten = task.clone();
        let original = std::mem::replace(
            &mut rewritten.compute,
            Compute { inputs: vec![], stages: vec![], outputs: vec![] },
        );
        let mut compute = Replacing::new(&original, self.conv.stage);
        let constant = task.sole_constant(self.conv.weight);
        let packing = match (self.tile.weights, constant) {
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
                (Weights::Early, None) => {
                    self.weight(&mut push, &rows, DType::F32, &|kernel, c, k| {
                        Expr::Load(of, self.conv.weight_at(kernel, c, k))
                    })
                }
                (Weights::Late, _) => self.late(&mut push, &rows, lanes(task)),
            };
            (rows.clone(), self.product(&mut push, &rows, points, weight))
        };
        let products: Vec<(Range<usize>, BufId)> = self.strips().into_iter().map(product).collect();
        self.results(&mut compute, &products);
        rewritten.compute = compute.done();
        // The transform of the products enlarges what their sums round off.
        rewritten.sums = Sums::Direct;
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

    /// The transformed weights of a constant.
    fn transformed(&self, param: usize, ty: &TensorType) -> Packing {
        let mut compute = Compute { inputs: vec![ty.clone()], stages: vec![], outputs: vec![] };
        let mut push = |stage| compute.push(stage);
        let u = self.weight(&mut push, &(0..self.size()), DType::F64, &|kernel, c, k| {
            Expr::Load(BufId::new(0), self.conv.weight_at(kernel, c, k))
        });
        compute.outputs = compute.stage_of(u).into_iter().collect();
        Packing { param, compute }
    }

    /// The weights as they are, read from front to back where `lanes` output channels are
    /// transformed at a time.
    fn packed(&self, param: usize, ty: &TensorType, lanes: usize) -> Packing {
        let (channels, groups) = (self.conv.channel.1, self.conv.out.1 / lanes);
        let window = self.frame_axis().into_iter().chain([self.tile.window; 2]);
        let shape: Vec<usize> =
            [groups, channels].into_iter().chain(window).chain([lanes]).collect();
        let last = shape.len() - 1;
        let kernel: Vec<Expr> = (2..last).map(Expr::var).collect();
        let k = Expr::var(0) * Expr::index(lanes) + Expr::var(last);
        let at = self.conv.weight_at(&kernel, &Expr::var(1), &k);
        let stage =
            Stage::map("lanes", TensorType::new(ty.dtype, shape), Expr::Load(BufId::new(0), at));
        Packing { param, compute: Compute::single(vec![ty.clone()], stage) }
    }

    /// Some rows of `u`, of packed weights.
    fn late(&self, push: &mut Push<'_>, rows: &Range<usize>, lanes: usize) -> BufId {
        let lanes = lanes as i64;
        self.weight(push, rows, DType::F32, &|kernel, c, k| {
            let (group, lane) = (k.clone().floor_div(lanes), k.clone().floor_mod(lanes));
            let at = [&[group, c.clone()], kernel, &[lane]].concat();
            Expr::Load(self.conv.weight, at)
        })
    }

    /// `u[i, j, c, k] = (G w Gt)[i, j]` for `i` of some rows, computed with the precision of
    /// `dtype`; of each frame of an outer window. An element of `w` is told by its places along the
    /// window, its input and its output channel.
    fn weight(
        &self,
        push: &mut Push<'_>,
        rows: &Range<usize>,
        dtype: DType,
        w: &dyn Fn(&[Expr], &Expr, &Expr) -> Expr,
    ) -> BufId {
        let (size, matrix) = (self.size(), &self.filter.weight);
        let (blocks, channels) = (self.blocks(), self.channels());
        let shape = |columns: usize| -> Vec<usize> {
            let inner = self.frame_axis().into_iter().chain(channels.last().copied());
            let rest = [rows.len(), columns].into_iter().chain(inner).chain([self.conv.out.1]);
            blocks.iter().copied().chain(rest).collect()
        };
        let axes: Vec<Expr> = (0..shape(size).len()).map(Expr::var).collect();
        let (block, axes) = axes.split_at(blocks.len());
        let ([i, j], rest) = axes.split_first_chunk().expect("two axes of points");
        let (frame, of) = rest.split_at(rest.len() - 2);
        let channel = flattened(&[block, &of[..1]].concat(), &channels);
        let body = switch(i, &matrix[rows.clone()], dtype, &|r| {
            let kernel = [frame, &[Expr::index(r), j.clone()]].concat();
            Expr::cast(DType::F32, dtype, w(&kernel, &channel, &of[1]))
        });
        let half =
            push(Stage::map("half_weight", TensorType::new(dtype, shape(self.tile.window)), body));
        let body = switch(j, matrix, dtype, &|s| {
            Expr::Load(half, [block, &[i.clone(), Expr::index(s)], rest].concat())
        });
        let ty = TensorType::new(DType::F32, shape(size));
        push(Stage::map("weight", ty, Expr::cast(dtype, DType::F32, body)))
    }

    /// The input, with zeros where the last tiles reach beyond it.
    fn padded(&self, compute: &mut Replacing<'_>) -> BufId {
        let input = self.conv.input;
        let mut ty = compute.compute.buffer_type(input).clone();
        let mut inside = None;
        for w in self.inner {
            let wanted =
                w.outputs.div_ceil(self.tile.outputs) * self.tile.outputs + self.tile.window - 1;
            if wanted > ty.shape[w.of] {
                let here = Expr::var(w.of).lt(Expr::index(ty.shape[w.of]));
                inside = Some(inside.map_or(here.clone(), |all: Expr| all.and(here)));
                ty.shape[w.of] = wanted;
            }
        }
        let Some(inside) = inside else { return input };
        let element = Expr::Load(input, (0..ty.rank()).map(Expr::var).collect());
        let body = Expr::select(inside, element, Expr::float(ty.dtype, 0.0));
        compute.push(Stage::map("padded", ty, body))
    }

    /// `points[i, j, t, c] = (Bt d B)[i, j]`
    fn points(&self, compute: &mut Replacing<'_>, input: BufId) -> BufId {
        let (channels, size, tiles) = (self.conv.channel.1, self.size(), count(&self.tiles));
        let matrix = &self.filter.input;
        let at = spread(&Expr::var(0), &self.tiles);
        let (batch, rest) = at.split_at(self.conv.batch.len());
        let (frame, first) = rest.split_at(rest.len() - 2);
        let place =
            |tile: &Expr, offset: Expr| tile.clone() * Expr::index(self.tile.outputs) + offset;
        let ty = TensorType::new(DType::F32, [tiles, size, size, channels]);
        let body = switch(&Expr::var(1), matrix, DType::F32, &|a| {
            let tile = [place(&first[0], Expr::index(a)), place(&first[1], Expr::var(2))];
            let windows = [frame, &tile].concat();
            Expr::Load(input, self.conv.input_at(batch, &windows, &Expr::var(3)))
        });
        let half = compute.push(Stage::map("half", ty, body));
        let ty = TensorType::new(DType::F32, [size, size, tiles, channels]);
        let body = switch(&Expr::var(1), matrix, DType::F32, &|b| {
            Expr::Load(half, vec![Expr::var(2), Expr::var(0), Expr::index(b), Expr::var(3)])
        });
        compute.push(Stage::map("points", ty, body))
    }

    /// A product of matrices at each point of some rows.
    fn product(
        &self,
        push: &mut Push<'_>,
        rows: &Range<usize>,
        points: BufId,
        weight: BufId,
    ) -> BufId {
        let (channels, out) = (self.channels(), self.conv.out.1);
        let ty = TensorType::new(DType::F32, [rows.len(), self.size(), count(&self.results), out]);
        let reduced: Vec<usize> = self.frame_axis().into_iter().chain(channels.clone()).collect();
        let [i, j, tile, k] = [0, 1, 2, 3].map(Expr::var);
        let under: Vec<Expr> = (4..4 + reduced.len()).map(Expr::var).collect();
        let (frame, channel) = under.split_at(reduced.len() - channels.len());
        let (block, within) = channel.split_at(channels.len() - 1);
        let tile = self.outer.iter().zip(frame).fold(tile, |tile, (w, frame)| {
            let tiles = count(&self.results) / w.outputs * w.dilation;
            tile + frame.clone() * Expr::index(tiles)
        });
        let channel = flattened(channel, &channels);
        let row = if rows.start == 0 { i.clone() } else { Expr::index(rows.start) + i.clone() };
        let points = Expr::Load(points, vec![row, j.clone(), tile, channel]);
        let weight = Expr::Load(weight, [block, &[i, j], frame, within, &[k]].concat());
        push(Stage::reduction("product", ty, Combiner::Sum, reduced, points * weight))
    }

    /// `(At product A)` of each tile, each element at its place, given the products of all rows.
    fn results(&self, compute: &mut Replacing<'_>, products: &[(Range<usize>, BufId)]) {
        let (size, m) = (self.size(), self.tile.outputs);
        let matrix = &self.filter.output;
        let out = self.conv.out.1;
        let ty = TensorType::new(DType::F32, [count(&self.results), m, size, out]);
        let body = switch(&Expr::var(1), matrix, DType::F32, &|i| {
            let (rows, product) = products.iter().find(|(r, _)| r.contains(&i)).expect("all rows");
            let row = Expr::index(i - rows.start);
            Expr::Load(*product, vec![row, Expr::var(2), Expr::var(0), Expr::var(3)])
        });
        let back = compute.push(Stage::map("back", ty, body));
        let stage = &compute.original.stages[self.conv.stage];
        let [y, x] = self.inner.map(|w| Expr::var(w.axis));
        let within = |axis: &Expr| axis.clone().floor_mod(m as i64);
        let mut at: Vec<Expr> = self.conv.batch.iter().map(|&a| Expr::var(a)).collect();
        at.extend(self.outer.map(|w| Expr::var(w.axis)));
        at.extend([&y, &x].map(|axis| axis.clone().floor_div(m as i64)));
        let tile = flattened(&at, &self.results);
        let k = Expr::var(self.conv.out.0);
        let body = switch(&within(&x), matrix, DType::F32, &|j| {
            Expr::Load(back, vec![tile.clone(), within(&y), Expr::index(j), k.clone()])
        });
        compute.push(Stage::map(&stage.name, stage.ty.clone(), body));
    }
}

fn count(extents: &[usize]) -> usize {
    extents.iter().product()
}

/// Elements of a vector of the machine.
fn lanes(task: &Task) -> usize {
    (task.machine.vector_bytes / DType::F32.size()).max(1)
}

/// Row `at` of the matrix times the vector of `element`s, written out for each row.
fn switch(at: &Expr, matrix: &[Row], dtype: DType, element: &dyn Fn(usize) -> Expr) -> Expr {
    let mut rows = matrix.iter().enumerate().rev();
    let (_, last) = rows.next().expect("a matrix has rows");
    rows.fold(combination(last, dtype, element), |rest, (i, row)| {
        let chosen = at.clone().eq(Expr::index(i));
        Expr::select(chosen, combination(row, dtype, element), rest)
    })
}

/// The sum of the row's parts, each a multiple of a sum of elements.
fn combination(row: &Row, dtype: DType, element: &dyn Fn(usize) -> Expr) -> Expr {
    let inner = |part: &Part| sum(dtype, part.terms.iter().map(|&(i, c)| (element(i), c)));
    sum(dtype, row.iter().map(|part| (inner(part), part.factor)))
}

/// The sum of multiples, none of which is by one or by zero.
fn sum(dtype: DType, terms: impl Iterator<Item = (Expr, Rational)>) -> Expr {
    let times = |e: Expr, c: Rational| match c == Rational::ONE {
        true => e,
        false => e * Expr::float(dtype, c.to_f64()),
    };
    let sum = terms.fold(None, |sum: Option<Expr>, (e, c)| {
        Some(match sum {
            None => times(e, c),
            Some(sum) if c.is_negative() => sum - times(e, c.abs()),
            Some(sum) => sum + times(e, c),
        })
    });
    sum.unwrap_or_else(|| Expr::float(dtype, 0.0))
}
