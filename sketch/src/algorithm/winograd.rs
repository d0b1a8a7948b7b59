//! Winograd's convolution of windows of three by three: a quarter of the products (F(4, 3)) or four ninths (F(2, 3)).
//!
//! ```text
//! conv[n, y, x, k] = sum{r, s, c} in[n, y + r, x + s, c] * w[r, s, c, k]
//! =>
//! half[t, i, b, c]    = (Bt d)[i, b]               d: the tile t of the input, m + 2 by m + 2
//! points[i, j, t, c]  = (half B)[i, j]
//! product[i, j, t, k] = sum{c} points[i, j, t, c] * u[i, j, c, k]       u = G w Gt, made when compiling
//! back[t, y, j, k]    = (At product)[y, j]
//! conv[n, y, x, k]    = (back A)[y % m, x % m] of the tile of (y, x)
//! ```
//!
//! Windows have stride and dilation one; axes may be in any order. Tiles that reach beyond the input read zeros.
//!
//! A third window, of any size and dilation, is left to the products: its frames of the input are transformed one by
//! one, and a product of frame `d` sums over frames `d + q`. As `t` counts tiles frame by frame, that is so many tiles on:
//!
//! ```text
//! product[i, j, t, k] = sum{q, c} points[i, j, t + q * (tiles of a frame), c] * u[i, j, q, c, k]
//! ```
//!
//! Coefficients are exact fractions, rounded once; constant weights are transformed with 64 bits. Sums and differences of
//! inputs lose some bits: with 256 channels and elements of a normal distribution the largest error is 7e-7 of the
//! largest result for F(2, 3) and 3e-6 for F(4, 3), where the direct sum of 2304 terms one after another has 1.5e-6.
//! An infinity in the input becomes NaN in results that it would have made infinite or left alone, within its tile.

use ansc_graph::{BufId, Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::{Convolution, Window};
use super::rational::Rational;
use super::toom_cook::{Filter, Matrix, filter};
use super::{Replacing, Rewritten};
use crate::flat::{flattened, spread};
use crate::packed::Packing;
use crate::task::Task;

/// Weights of a window along each axis.
const WINDOW: usize = 3;

/// Transformed weights of so many bytes are not worth the memory: each run reads all of them, which takes about as long
/// as the operations that they save.
const MOST_WEIGHTS: usize = 40 << 20;

/// The task with tiles of `m` by `m` outputs.
pub(super) fn rewrite(task: &Task, conv: &Convolution, m: usize) -> Option<Rewritten> {
    Some(Tiling::of(task, conv, m)?.rewrite(task))
}

/// What there is to do.
pub(super) struct Work {
    /// Multiplications of the products.
    pub(super) products: usize,
    /// Bytes of what is transformed, before the products and after them.
    pub(super) transformed: usize,
    /// Bytes of the transformed weights.
    pub(super) weights: usize,
}

impl Work {
    /// None where the algorithm is not taken.
    pub(super) fn of(task: &Task, conv: &Convolution, m: usize) -> Option<Work> {
        Some(Tiling::of(task, conv, m)?.work())
    }
}

struct Tiling<'a> {
    conv: &'a Convolution,
    filter: Filter,
    m: usize,
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
    fn of(task: &Task, conv: &'a Convolution, m: usize) -> Option<Tiling<'a>> {
        let fits = |w: &Window| w.size == WINDOW && w.stride == 1 && w.dilation == 1;
        let (outer, [y, x]) = match &conv.windows[..] {
            [y, x] => (None, [y, x]),
            [outer, y, x] if outer.stride == 1 => (Some(outer), [y, x]),
            _ => return None,
        };
        let extents = &task.compute.stages[conv.stage].ty.shape;
        let batch: Vec<usize> = conv.batch.iter().map(|&a| extents[a]).collect();
        // With several images, the frames of one would be followed by those of the next.
        if !fits(y) || !fits(x) || (outer.is_some() && count(&batch) > 1) {
            return None;
        }
        let input = &task.compute.buffer_type(conv.input).shape;
        let tiled = |frames: Option<usize>| {
            let along = [y, x].map(|w| w.outputs.div_ceil(m));
            batch.iter().copied().chain(frames).chain(along).collect()
        };
        let (tiles, results) = (tiled(outer.map(|w| input[w.of])), tiled(outer.map(|w| w.outputs)));
        let filter = filter(m, WINDOW);
        let tiling = Tiling { conv, filter, m, outer, inner: [y, x], tiles, results };
        (tiling.work().weights <= MOST_WEIGHTS).then_some(tiling)
    }

    fn work(&self) -> Work {
        let (points, channels, out) =
            (self.size() * self.size(), self.conv.channel.1, self.conv.out.1);
        let (bytes, frames) = (DType::F32.size() * points, self.frames());
        let (tiles, results) = (count(&self.tiles), count(&self.results));
        Work {
            products: points * results * frames * channels * out,
            transformed: bytes * (tiles * channels + results * out),
            weights: bytes * frames * channels * out,
        }
    }

    fn rewrite(&self, task: &Task) -> Rewritten {
        let mut task = task.clone();
        let original = std::mem::replace(
            &mut task.compute,
            Compute { inputs: vec![], stages: vec![], outputs: vec![] },
        );
        let mut compute = Replacing::new(&original, self.conv.stage);
        let mut prepared = vec![];
        let is_constant = |n: &usize| task.constant.get(*n).copied().unwrap_or(false);
        let weight = match self.conv.sole_weight(&original).filter(is_constant) {
            Some(param) => {
                let packing = self.packing(param, &original.inputs[param]);
                compute.compute.inputs[param] = packing.compute.output_types().remove(0);
                prepared.push(packing);
                self.conv.weight
            }
            None => self.weight(&mut |stage| compute.push(stage), self.conv.weight, DType::F32),
        };
        let input = self.padded(&mut compute);
        let points = self.points(&mut compute, input);
        let product = self.product(&mut compute, points, weight);
        self.results(&mut compute, product);
        task.compute = compute.done();
        Rewritten { task, prepared }
    }

    /// Points of a tile along each axis.
    fn size(&self) -> usize {
        self.m + WINDOW - 1
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
    fn packing(&self, param: usize, ty: &TensorType) -> Packing {
        let mut compute = Compute { inputs: vec![ty.clone()], stages: vec![], outputs: vec![] };
        let u = self.weight(&mut |stage| compute.push(stage), BufId::new(0), DType::F64);
        compute.outputs = compute.stage_of(u).into_iter().collect();
        Packing { param, compute }
    }

    /// `u[i, j, c, k] = (G w Gt)[i, j]`, computed with the precision of `dtype`; of each frame of an outer window.
    fn weight(&self, push: &mut dyn FnMut(Stage) -> BufId, weight: BufId, dtype: DType) -> BufId {
        let (channels, out, size) = (self.conv.channel.1, self.conv.out.1, self.size());
        let matrix = &self.filter.weight;
        let shape = |rows: [usize; 2]| -> Vec<usize> {
            rows.into_iter().chain(self.frame_axis()).chain([channels, out]).collect()
        };
        let rest: Vec<Expr> = (2..shape([size; 2]).len()).map(Expr::var).collect();
        let (frame, of) = rest.split_at(rest.len() - 2);
        let body = switch(&Expr::var(0), matrix, dtype, &|r| {
            let kernel = [frame, &[Expr::index(r), Expr::var(1)]].concat();
            let at = self.conv.weight_at(&kernel, &of[0], &of[1]);
            Expr::cast(DType::F32, dtype, Expr::Load(weight, at))
        });
        let half =
            push(Stage::map("half_weight", TensorType::new(dtype, shape([size, WINDOW])), body));
        let body = switch(&Expr::var(1), matrix, dtype, &|s| {
            Expr::Load(half, [&[Expr::var(0), Expr::index(s)], &rest[..]].concat())
        });
        let ty = TensorType::new(DType::F32, shape([size; 2]));
        push(Stage::map("weight", ty, Expr::cast(dtype, DType::F32, body)))
    }

    /// The input, with zeros where the last tiles reach beyond it.
    fn padded(&self, compute: &mut Replacing<'_>) -> BufId {
        let input = self.conv.input;
        let mut ty = compute.compute.buffer_type(input).clone();
        let mut inside = None;
        for w in self.inner {
            let wanted = w.outputs.div_ceil(self.m) * self.m + WINDOW - 1;
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
        let place = |tile: &Expr, offset: Expr| tile.clone() * Expr::index(self.m) + offset;
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

    /// A product of matrices at each point.
    fn product(&self, compute: &mut Replacing<'_>, points: BufId, weight: BufId) -> BufId {
        let (channels, out) = (self.conv.channel.1, self.conv.out.1);
        let ty = TensorType::new(DType::F32, [self.size(), self.size(), count(&self.results), out]);
        let reduced: Vec<usize> = self.frame_axis().into_iter().chain([channels]).collect();
        let [i, j, tile, k] = [0, 1, 2, 3].map(Expr::var);
        let under: Vec<Expr> = (4..4 + reduced.len()).map(Expr::var).collect();
        let (channel, tile) = match self.outer {
            None => (under[0].clone(), tile),
            Some(w) => {
                let frame = count(&self.results) / w.outputs * w.dilation;
                (under[1].clone(), tile + under[0].clone() * Expr::index(frame))
            }
        };
        let points = Expr::Load(points, vec![i.clone(), j.clone(), tile, channel]);
        let weight = Expr::Load(weight, [&[i, j], &under[..], &[k]].concat());
        compute.push(Stage::reduction("product", ty, Combiner::Sum, reduced, points * weight))
    }

    /// `(At product A)` of each tile, each element at its place.
    fn results(&self, compute: &mut Replacing<'_>, product: BufId) {
        let (size, m) = (self.size(), self.m);
        let matrix = &self.filter.output;
        let out = self.conv.out.1;
        let ty = TensorType::new(DType::F32, [count(&self.results), m, size, out]);
        let body = switch(&Expr::var(1), matrix, DType::F32, &|i| {
            Expr::Load(product, vec![Expr::index(i), Expr::var(2), Expr::var(0), Expr::var(3)])
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

/// Row `at` of the matrix times the vector of `element`s, written out for each row.
fn switch(at: &Expr, matrix: &Matrix, dtype: DType, element: &dyn Fn(usize) -> Expr) -> Expr {
    let mut rows = matrix.iter().enumerate().rev();
    let (_, last) = rows.next().expect("a matrix has rows");
    rows.fold(combination(last, dtype, element), |rest, (i, row)| {
        let chosen = at.clone().eq(Expr::index(i));
        Expr::select(chosen, combination(row, dtype, element), rest)
    })
}

/// The sum of elements with these coefficients, none of which is multiplied with one or with zero.
fn combination(row: &[Rational], dtype: DType, element: &dyn Fn(usize) -> Expr) -> Expr {
    let term = |i: usize, c: Rational| match c == Rational::ONE {
        true => element(i),
        false => element(i) * Expr::float(dtype, c.to_f64()),
    };
    let terms = row.iter().enumerate().filter(|(_, c)| !c.is_zero());
    let sum = terms.fold(None, |sum: Option<Expr>, (i, &c)| {
        Some(match sum {
            None => term(i, c),
            Some(sum) if c.is_negative() => sum - term(i, c.abs()),
            Some(sum) => sum + term(i, c),
        })
    });
    sum.unwrap_or_else(|| Expr::float(dtype, 0.0))
}
