//! The stages of Winograd's convolution in a run: the input, points, products and results.

use std::ops::Range;

use ansc_graph::flat::{flattened, spread};
use ansc_graph::{BufId, Combiner, Expr, Stage, TensorType};

use super::combine::{self, switch};
use super::{Push, Tiling, count};
use crate::algorithm::Replacing;

impl Tiling<'_> {
    /// The input, with zeros where the last tiles reach beyond it.
    pub(super) fn padded(&self, compute: &mut Replacing<'_>) -> BufId {
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
    pub(super) fn points(&self, compute: &mut Replacing<'_>, input: BufId) -> BufId {
        let (channels, size, tiles) = (self.conv.channel.1, self.size(), count(&self.tiles));
        let (matrix, numbers) = (&self.filter.input, self.tile.numbers);
        let at = spread(&Expr::var(0), &self.tiles);
        let (batch, rest) = at.split_at(self.conv.batch.len());
        let (frame, first) = rest.split_at(rest.len() - 2);
        let place =
            |tile: &Expr, offset: Expr| tile.clone() * Expr::index(self.tile.outputs) + offset;
        let (half, point, [from, _]) = (numbers.half(), numbers.point(), numbers.factors());
        let rows = combine::rows(matrix, half, &|a| {
            let tile = [place(&first[0], Expr::index(a)), place(&first[1], Expr::var(2))];
            let windows = [frame, &tile].concat();
            let at = self.conv.input_at(batch, &windows, &Expr::var(3));
            Expr::cast(from, half, Expr::Load(input, at))
        });
        let ty = TensorType::new(half, [tiles, size, size, channels]);
        let halves = compute.push(Stage::map("half", ty, switch(&Expr::var(1), rows)));
        let rows = combine::rows(matrix, half, &|b| {
            Expr::Load(halves, vec![Expr::var(2), Expr::var(0), Expr::index(b), Expr::var(3)])
        });
        let rows = rows.into_iter().map(|row| Expr::cast(half, point, row)).collect();
        let ty = TensorType::new(point, [size, size, tiles, channels]);
        compute.push(Stage::map("points", ty, switch(&Expr::var(1), rows)))
    }

    /// A product of matrices at each point of some rows.
    pub(super) fn product(
        &self,
        push: &mut Push<'_>,
        rows: &Range<usize>,
        points: BufId,
        weight: BufId,
    ) -> BufId {
        let (numbers, out) = (self.tile.numbers, self.conv.out.1);
        let mut channels = self.channels();
        *channels.last_mut().expect("a block of channels") /= numbers.per_term();
        let ty =
            TensorType::new(numbers.sum(), [rows.len(), self.size(), count(&self.results), out]);
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
        let point = |n: usize| {
            let channel = match numbers.per_term() {
                1 => channel.clone(),
                terms => channel.clone() * Expr::index(terms) + Expr::index(n),
            };
            Expr::Load(points, vec![row.clone(), j.clone(), tile.clone(), channel])
        };
        let weight =
            Expr::Load(weight, [block, &[i.clone(), j.clone()], frame, within, &[k]].concat());
        let term = numbers.term(&point, weight);
        push(Stage::reduction("product", ty, Combiner::Sum, reduced, term))
    }

    /// `(At product A)` of each tile, each element at its place, given the products of all rows.
    pub(super) fn results(&self, compute: &mut Replacing<'_>, products: &[(Range<usize>, BufId)]) {
        let (size, m) = (self.size(), self.tile.outputs);
        let (matrix, numbers) = (&self.filter.output, self.tile.numbers);
        let (out, sum) = (self.conv.out.1, numbers.sum());
        let ty = TensorType::new(sum, [count(&self.results), m, size, out]);
        let rows = combine::rows(matrix, sum, &|i| {
            let (rows, product) = products.iter().find(|(r, _)| r.contains(&i)).expect("all rows");
            let row = Expr::index(i - rows.start);
            Expr::Load(*product, vec![row, Expr::var(2), Expr::var(0), Expr::var(3)])
        });
        let back = compute.push(Stage::map("back", ty, switch(&Expr::var(1), rows)));
        let stage = &compute.original.stages[self.conv.stage];
        let [y, x] = self.inner.map(|w| Expr::var(w.axis));
        let within = |axis: &Expr| axis.clone().floor_mod(m as i64);
        let mut at: Vec<Expr> = self.conv.batch.iter().map(|&a| Expr::var(a)).collect();
        at.extend(self.outer.map(|w| Expr::var(w.axis)));
        at.extend([&y, &x].map(|axis| axis.clone().floor_div(m as i64)));
        let tile = flattened(&at, &self.results);
        let k = Expr::var(self.conv.out.0);
        let rows = combine::rows(matrix, sum, &|j| {
            Expr::Load(back, vec![tile.clone(), within(&y), Expr::index(j), k.clone()])
        });
        let rows = rows.into_iter().map(|row| numbers.result(row)).collect();
        compute.push(Stage::map(&stage.name, stage.ty.clone(), switch(&within(&x), rows)));
    }
}
