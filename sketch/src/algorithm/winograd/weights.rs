//! Weights of Winograd's convolution, transformed when compiling or in each run.

use std::ops::Range;

use ansc_graph::flat::flattened;
use ansc_graph::{BufId, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::combine::{self, switch};
use super::numbers::{self, Numbers, Widths};
use super::{Push, Tiling};
use crate::packed::Packing;

/// Floats all along.
pub(super) const PLAIN: Widths = Widths { from: DType::F32, through: DType::F32, to: DType::F32 };

impl Tiling<'_> {
    /// The transformed weights of a constant.
    pub(super) fn transformed(&self, param: usize, ty: &TensorType) -> Packing {
        let mut compute = Compute { inputs: vec![ty.clone()], stages: vec![], outputs: vec![] };
        let widths = self.tile.numbers.prepared();
        let u = self.weight(
            &mut |stage| compute.push(stage),
            &(0..self.size()),
            widths,
            &|kernel, c, k| Expr::Load(BufId::new(0), self.conv.weight_at(kernel, c, k)),
        );
        let u = match self.tile.numbers {
            Numbers::Floats => u,
            Numbers::Words => self.in_pairs(&mut compute, u),
        };
        compute.outputs = compute.stage_of(u).into_iter().collect();
        Packing { param, compute }
    }

    /// The weights as they are, read from front to back where `lanes` output channels are
    /// transformed at a time.
    pub(super) fn packed(&self, param: usize, ty: &TensorType, lanes: usize) -> Packing {
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
    pub(super) fn late(&self, push: &mut Push<'_>, rows: &Range<usize>, lanes: usize) -> BufId {
        let lanes = lanes as i64;
        self.weight(push, rows, PLAIN, &|kernel, c, k| {
            let (group, lane) = (k.clone().floor_div(lanes), k.clone().floor_mod(lanes));
            let at = [&[group, c.clone()], kernel, &[lane]].concat();
            Expr::Load(self.conv.weight, at)
        })
    }

    /// `u[i, j, c, k] = (G w Gt)[i, j]` for `i` of some rows, computed with these
    /// widths; of each frame of an outer window. An element of `w` is told by its places along the
    /// window, its input and its output channel.
    pub(super) fn weight(
        &self,
        push: &mut Push<'_>,
        rows: &Range<usize>,
        widths: Widths,
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
        let Widths { from, through, to } = widths;
        let halves = combine::rows(&matrix[rows.clone()], through, &|r| {
            let kernel = [frame, &[Expr::index(r), j.clone()]].concat();
            Expr::cast(from, through, w(&kernel, &channel, &of[1]))
        });
        let ty = TensorType::new(through, shape(self.tile.window));
        let half = push(Stage::map("half_weight", ty, switch(i, halves)));
        let all = combine::rows(matrix, through, &|s| {
            Expr::Load(half, [block, &[i.clone(), Expr::index(s)], rest].concat())
        });
        let ty = TensorType::new(to, shape(size));
        push(Stage::map("weight", ty, Expr::cast(through, to, switch(j, all))))
    }

    /// Neighbouring input channels of transformed weights as pairs.
    fn in_pairs(&self, compute: &mut Compute, u: BufId) -> BufId {
        let TensorType { dtype, mut shape } = compute.buffer_type(u).clone();
        let channel = shape.len() - 2;
        shape[channel] /= 2;
        let word = |j: usize| {
            let mut at: Vec<Expr> = (0..shape.len()).map(Expr::var).collect();
            at[channel] = Expr::var(channel) * Expr::index(2) + Expr::index(j);
            Expr::Load(u, at)
        };
        let pair = numbers::pair(&|j| if j == 0 { numbers::lower(word(0)) } else { word(j) });
        compute.push(Stage::map("pairs", TensorType::new(dtype, shape.clone()), pair))
    }
}
