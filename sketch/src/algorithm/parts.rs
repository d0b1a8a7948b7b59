//! Convolutions of large or strided windows as ones of small windows, of stride one and more
//! channels.
//!
//! ```text
//! conv[n, y, x, k] = sum{r: 7, s: 7, c: 3} in[n, 2 y + r, 2 x + s, c] * w[r, s, c, k]
//! =>
//! parts[n, y, x, (p, q, c)] = in[n, 2 y + p, 2 x + q, c]                                   p, q: 2
//! conv[n, y, x, k]          = sum{r: 4, s: 4, e: 12} parts[n, y + r, x + s, e] * dealt[r, s, e, k]
//! dealt[r, s, (p, q, c), k] = w[2 r + p, 2 s + q, c, k], zero beyond the window             made when compiling
//! ```
//!
//! The weights under a window are dealt out: those a stride apart stay neighbours, in a part for
//! each remainder, and of so many that a part would be too long, further parts begin. A dilation
//! may divide the stride: what lies between is never read. Parts reach as far as whole tiles of
//! outputs do; what lies beyond the input is zero.

use ansc_graph::{BufId, Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::{Convolution, Window};
use super::{Replacing, Rewritten};
use crate::packed::Packing;
use crate::task::Task;
use ansc_graph::flat::spread;

/// How the weights along a window are dealt out: weight `phases * (group * taps + tap) + phase`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deal {
    groups: usize,
    phases: usize,
    taps: usize,
    /// Outputs are computed by tiles of so many.
    tile: usize,
}

impl Deal {
    /// Parts of `taps` weights; of all that lie a stride apart, where there is no limit. None where
    /// that is not possible, or parts would hold less than that.
    pub(super) fn of(w: &Window, taps: Option<usize>, tile: usize) -> Option<Deal> {
        if !w.stride.is_multiple_of(w.dilation) {
            return None;
        }
        let phases = w.stride / w.dilation;
        let apart = w.size.div_ceil(phases);
        let taps = taps.unwrap_or(apart);
        (taps <= apart).then(|| Deal { groups: apart.div_ceil(taps), phases, taps, tile })
    }

    pub(super) fn parts(&self) -> usize {
        self.groups * self.phases
    }

    /// How many weights there are then, those that are zero included.
    pub(super) fn weights(&self) -> usize {
        self.parts() * self.taps
    }

    /// Elements along an axis of the parts.
    fn extent(&self, w: &Window) -> usize {
        w.outputs.div_ceil(self.tile) * self.tile + self.taps - 1
    }

    fn group_and_phase(&self, part: &Expr) -> [Expr; 2] {
        let [group, phase] = &spread(part, &[self.groups, self.phases])[..] else {
            unreachable!("an index for each extent")
        };
        [group.clone(), phase.clone()]
    }

    /// Where the first weight of a part lies over the input, for the output `y`.
    fn place(&self, w: &Window, part: &Expr, y: &Expr) -> Expr {
        let [group, phase] = self.group_and_phase(part);
        let output = scaled(&group, self.taps) + y.clone();
        scaled(&output, w.stride) + scaled(&phase, w.dilation)
    }

    /// Which of the weights along the window it is.
    fn weight(&self, part: &Expr, tap: &Expr) -> Expr {
        let [group, phase] = self.group_and_phase(part);
        scaled(&(scaled(&group, self.taps) + tap.clone()), self.phases) + phase
    }
}

fn scaled(index: &Expr, by: usize) -> Expr {
    if by == 1 { index.clone() } else { index.clone() * Expr::index(by) }
}

/// The task with each window dealt out: a deal for each of the convolution's.
pub(super) fn rewrite(task: &Task, conv: &Convolution, deals: &[Deal]) -> Rewritten {
    Dealing { conv, deals }.rewrite(task)
}

struct Dealing<'a> {
    conv: &'a Convolution,
    deals: &'a [Deal],
}

impl Dealing<'_> {
    fn rewrite(&self, task: &Task) -> Rewritten {
        let mut compute = Replacing::new(&task.compute, self.conv.stage);
        let input = self.parts(&mut compute);
        let constant = task.sole_constant(self.conv.weight);
        let packing = constant.map(|param| self.prepared(param, &task.compute.inputs[param]));
        let weight = match &packing {
            Some(packing) => {
                compute.compute.inputs[packing.param] = packing.compute.output_types().remove(0);
                self.conv.weight
            }
            None => compute.push(self.dealt(self.conv.weight)),
        };
        self.convolution(&mut compute, input, weight);
        let task = Task { compute: compute.done(), ..task.clone() };
        Rewritten { task, prepared: packing.into_iter().collect() }
    }

    fn prepared(&self, param: usize, ty: &TensorType) -> Packing {
        let compute = Compute::single(vec![ty.clone()], self.dealt(BufId::new(0)));
        Packing { param, compute }
    }

    /// Extents of the axis of channels: parts along each window, and channels.
    fn channels(&self) -> Vec<usize> {
        self.deals.iter().map(Deal::parts).chain([self.conv.channel.1]).collect()
    }

    /// `parts[batch.., windows.., e]`
    fn parts(&self, compute: &mut Replacing<'_>) -> BufId {
        let (conv, batch) = (self.conv, self.conv.batch.len());
        let original = &compute.original.stages[conv.stage];
        let pairs = || conv.windows.iter().zip(self.deals);
        let along = pairs().map(|(w, deal)| deal.extent(w));
        let channels = self.channels();
        let shape: Vec<usize> = conv
            .batch
            .iter()
            .map(|&axis| original.ty.shape[axis])
            .chain(along)
            .chain([channels.iter().product()])
            .collect();
        let axes: Vec<Expr> = (0..shape.len()).map(Expr::var).collect();
        let dealt = spread(axes.last().expect("an axis of channels"), &channels);
        let places = pairs().zip(&dealt).zip(&axes[batch..]);
        let places: Vec<Expr> =
            places.map(|(((w, deal), part), y)| deal.place(w, part, y)).collect();
        let from = compute.compute.buffer_type(conv.input);
        let at = conv.input_at(&axes[..batch], &places, dealt.last().expect("channels"));
        let inside = pairs().zip(places).filter_map(|((w, deal), place)| {
            let last = deal.extent(w) - 1 + deal.taps * (deal.groups - 1);
            let last = last * w.stride + (deal.phases - 1) * w.dilation;
            (last >= from.shape[w.of]).then(|| place.lt(Expr::index(from.shape[w.of])))
        });
        let inside = inside.reduce(Expr::and);
        let element = Expr::Load(conv.input, at);
        let body = inside.map_or(element.clone(), |inside| {
            Expr::select(inside, element, Expr::float(DType::F32, 0.0))
        });
        compute.push(Stage::map("parts", TensorType::new(DType::F32, shape), body))
    }

    /// `dealt[taps.., e, k]` of the weights in a buffer.
    fn dealt(&self, weights: BufId) -> Stage {
        let (conv, n) = (self.conv, self.deals.len());
        let channels = self.channels();
        let taps = self.deals.iter().map(|deal| deal.taps);
        let shape: Vec<usize> = taps.chain([channels.iter().product(), conv.out.1]).collect();
        let parts = spread(&Expr::var(n), &channels);
        let places = self.deals.iter().zip(&parts).enumerate();
        let kernel: Vec<Expr> =
            places.map(|(i, (deal, part))| deal.weight(part, &Expr::var(i))).collect();
        let element = Expr::Load(weights, conv.weight_at(&kernel, &parts[n], &Expr::var(n + 1)));
        let sizes = conv.windows.iter().zip(self.deals).zip(kernel);
        let inside = sizes.filter_map(|((w, deal), at)| {
            (deal.weights() > w.size).then(|| at.lt(Expr::index(w.size)))
        });
        let body = inside.reduce(Expr::and).map_or(element.clone(), |inside| {
            Expr::select(inside, element, Expr::float(DType::F32, 0.0))
        });
        Stage::map("dealt", TensorType::new(DType::F32, shape), body)
    }

    /// The convolution of the parts, in place of the original one.
    fn convolution(&self, compute: &mut Replacing<'_>, input: BufId, weight: BufId) {
        let (conv, n) = (self.conv, self.deals.len());
        let original = &compute.original.stages[conv.stage];
        let rank = original.ty.rank();
        let under: Vec<Expr> = (rank..=rank + n).map(Expr::var).collect();
        let batch = conv.batch.iter().map(|&axis| Expr::var(axis));
        let windows = conv.windows.iter().zip(&under).map(|(w, r)| Expr::var(w.axis) + r.clone());
        let at = batch.chain(windows).chain([under[n].clone()]).collect();
        let weight_at = [&under[..], &[Expr::var(conv.out.0)]].concat();
        let extents = self.deals.iter().map(|deal| deal.taps);
        let extents = extents.chain([self.channels().iter().product()]).collect();
        let body = Expr::Load(input, at) * Expr::Load(weight, weight_at);
        let (name, ty) = (&original.name, original.ty.clone());
        compute.push(Stage::reduction(name, ty, Combiner::Sum, extents, body));
    }
}
