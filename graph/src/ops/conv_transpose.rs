//! Transposed convolution as an ordinary one.
//!
//! The transposed convolution with stride `s` puts `x[i] * w[k]` at `i * s + k`. Outputs with the
//! same remainder by `s` (a *phase*) read the same subset of the kernel, so each phase is an
//! ordinary convolution by every `s`-th weight, reversed. All phases are computed at once as output
//! channels of one convolution, and then put in their places:
//!
//! ```text
//! stride 2, kernel 4:  x[n, c, i] -> conv (kernel 2, 2 * m channels) -> [n, (m, phase), q]
//!                      -> interleave -> y[n, m, q * 2 + phase - pad]
//! ```
//! No product with an inserted zero is computed, but for kernels that are longer than the stride
//! and no multiple of it. Where the stride is longer, only the phases that a weight falls into are
//! computed; the other outputs are zero.
//!
//! Each phase needs only a part of the outputs, another one where padding is cut off. Where results
//! are small that is a large share of them; then every phase becomes a group of its own, which
//! reads a copy of the input that is moved as the phase needs it:
//!
//! ```text
//! stride 2, kernel 4, 4 -> 8:  x[n, c, 4] -> spread [n, (phase, c), 5] -> conv (kernel 2, group for each phase, 4 outputs
//!                              instead of 5) -> [n, (phase, m), 4] -> interleave -> y[n, m, 8]
//! ```

use super::stages::Stages;
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::Expr;
use crate::op::{Channels, ComputeOp, ConvAttrs, Kind};
use crate::scalar::Scalar;

/// A transposed convolution. Output `o` is element `o + pads_begin` of the whole result; elements
/// past its end are zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConvTransposeAttrs {
    /// Extents of the window, for each spatial axis.
    pub kernel: Vec<usize>,
    /// Elements of the result between the windows of neighbouring elements of the input.
    pub strides: Vec<usize>,
    /// Elements of the result between neighbouring points of a window, 1 for dense ones.
    pub dilations: Vec<usize>,
    /// Elements that are cut off before the first element of the result.
    pub pads_begin: Vec<usize>,
    /// Spatial extents of the result.
    pub output: Vec<usize>,
    /// Parts that the channels fall into; each part of the input makes its own part of the result.
    pub groups: usize,
}

/// How a transposed convolution is computed: [`Phases::weight`] of the weight, [`Phases::spread`]
/// of the input where it gives one, [`Phases::conv`], then [`Phases::interleave`] where it gives
/// one.
pub struct Phases {
    axes: Vec<Axis>,
    groups: usize,
    /// Whether phases are groups, each with outputs of its own.
    apart: bool,
    /// The convolution of the spread input with the phases of the weight.
    pub conv: ConvAttrs,
}

/// Outputs of all phases together over those needed, from which on phases are kept apart.
const WASTE: f64 = 1.2;

/// One spatial axis. `taps` weights, `spacing` apart, meet one output; they are weights
/// `phase + stride * tap` of the kernel with its dilation written out (`span` long).
struct Axis {
    kernel: usize,
    stride: usize,
    dilation: usize,
    span: usize,
    /// Phases that have a weight: the first ones.
    phases: usize,
    taps: usize,
    spacing: usize,
    begin: usize,
    output: usize,
    /// The whole result's `stride`-long piece that the convolution's first output is.
    first: usize,
    pads: [usize; 2],
    /// Outputs of the convolution.
    pieces: usize,
}

impl Axis {
    fn new(a: &ConvTransposeAttrs, i: usize, input: usize) -> Option<Axis> {
        let (kernel, stride, dilation) = (a.kernel[i], a.strides[i], a.dilations[i]);
        let (begin, output) = (a.pads_begin[i], a.output[i]);
        let span = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
        let (taps, spacing) = match stride {
            1 => (kernel, dilation),
            s => (span.div_ceil(s), 1),
        };
        let reach = (taps - 1) * spacing;
        let first = (begin / stride).min(reach);
        let last = begin.checked_add(output)?.checked_sub(1)? / stride;
        let pads = [reach - first, (last + 1).saturating_sub(input)];
        let pieces = input.checked_add(pads[1])?.checked_sub(first)?;
        Some(Axis {
            kernel,
            stride,
            dilation,
            span,
            phases: stride.min(span),
            taps,
            spacing,
            begin,
            output,
            first,
            pads,
            pieces,
        })
    }

    /// The kernel element of a phase's tap, counted from the last, and the conditions that there is
    /// one.
    fn weight(&self, phase: Expr, tap: Expr) -> (Expr, Vec<Expr>) {
        let back = Expr::index(self.taps - 1) - tap;
        if self.stride == 1 {
            return (back, vec![]);
        }
        let at = phase + back * Expr::index(self.stride);
        let mut conditions = Vec::new();
        if self.taps * self.phases > self.span {
            conditions.push(at.clone().lt(Expr::index(self.span)));
        }
        if self.dilation == 1 {
            return (at, conditions);
        }
        let d = self.dilation as i64;
        conditions.push(at.clone().floor_mod(d).eq(Expr::int(0)));
        (at.floor_div(d), conditions)
    }

    /// Outputs that are needed of each phase.
    fn needed(&self) -> usize {
        self.output.div_ceil(self.stride)
    }

    /// By how much the copy of the input that the outputs of a phase read is moved: the first of
    /// them is in this piece of the whole result.
    fn offset(&self, phase: Expr) -> Expr {
        let before = (phase - Expr::index(self.begin)).floor_div(self.stride as i64);
        Expr::int(0) - before - Expr::index((self.taps - 1) * self.spacing)
    }

    fn is_whole(&self) -> bool {
        self.stride == 1 && self.first == self.begin && self.pieces == self.output
    }
}

impl Phases {
    /// The plan for spatial extents `input`.
    pub fn new(attrs: &ConvTransposeAttrs, input: &[usize]) -> Result<Phases, OpError> {
        let n = attrs.kernel.len();
        let lists = [&attrs.strides, &attrs.dilations, &attrs.pads_begin, &attrs.output];
        if input.len() != n || lists.iter().any(|l| l.len() != n) {
            return Err(OpError::Invalid(format!(
                "kernel, strides, dilations, pads and output shape must have one entry for each of \
                 the {} spatial axes",
                input.len()
            )));
        }
        if attrs.groups == 0 || attrs.strides.contains(&0) || attrs.dilations.contains(&0) {
            return Err(OpError::Invalid("groups, strides and dilations must be positive".into()));
        }
        let axes: Option<Vec<Axis>> = (0..n).map(|i| Axis::new(attrs, i, input[i])).collect();
        let Some(axes) = axes else {
            return Err(OpError::Invalid(format!(
                "a transposed convolution of spatial extents {input:?} by kernel {:?} has no \
                 output {:?}",
                attrs.kernel, attrs.output
            )));
        };
        let each = |f: fn(&Axis) -> usize| axes.iter().map(f).collect::<Vec<_>>();
        let product = |f: fn(&Axis) -> usize| axes.iter().map(|a| f(a) as f64).product::<f64>();
        let apart = product(|a| a.pieces) >= WASTE * product(Axis::needed);
        let phases = if apart { axes.iter().map(|a| a.phases).product() } else { 1 };
        let groups = attrs.groups.checked_mul(phases).ok_or_else(too_many)?;
        let conv = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: each(|a| a.taps),
            strides: vec![1; n],
            dilations: each(|a| a.spacing),
            pads_begin: if apart { vec![0; n] } else { each(|a| a.pads[0]) },
            pads_end: if apart { vec![0; n] } else { each(|a| a.pads[1]) },
            groups,
        };
        Ok(Phases { axes, groups: attrs.groups, apart, conv })
    }

    /// The input, once for each phase, moved and padded as the phase needs it; `None` where all
    /// share it.
    pub fn spread(&self, x: &TensorType) -> Option<Result<ComputeOp, OpError>> {
        self.apart.then(|| {
            let (channels, extents) = (x.shape[1], x.shape[2..].to_vec());
            let mut shape =
                vec![x.shape[0], channels.checked_mul(self.count()).ok_or_else(too_many)?];
            let reach = |a: &Axis| a.needed() + (a.taps - 1) * a.spacing;
            shape.extend(self.axes.iter().map(reach));
            let ty = sized(TensorType::new(x.dtype, shape))?;
            let (mut s, [x]) = Stages::new([x]);
            let y = s.map("spread", ty, |i| {
                let phases = self.split_phases(&i[1].clone().floor_div(channels as i64)).1;
                let mut element = vec![i[0].clone(), i[1].clone().floor_mod(channels as i64)];
                let mut inside = Vec::new();
                for (((axis, phase), at), &extent) in
                    self.axes.iter().zip(phases).zip(&i[2..]).zip(&extents)
                {
                    let at = at.clone() + axis.offset(phase);
                    inside.push(Expr::int(0).le(at.clone()));
                    inside.push(at.clone().lt(Expr::index(extent)));
                    element.push(at);
                }
                let zero = Expr::Const(Scalar::zero(x.dtype()));
                let inside = inside.into_iter().reduce(Expr::and).expect("there is an axis");
                Expr::select(inside, x.at(&element), zero)
            });
            Ok(s.finish(Kind::Other("ConvTransposeSpread".into()), &[&y]))
        })
    }

    /// Phases of all axes together.
    fn count(&self) -> usize {
        self.axes.iter().map(|a| a.phases).product()
    }

    /// The weight of the convolution from that of the operator, `[c, m / groups, kernel..]`.
    pub fn weight(&self, w: &TensorType) -> Result<ComputeOp, OpError> {
        let kernel: Vec<usize> = self.axes.iter().map(|a| a.kernel).collect();
        let [c, group_out, given @ ..] = w.shape.as_slice() else {
            let (what, expected) = ("the weight of a transposed convolution", "3 or more".into());
            return Err(OpError::Rank { what, expected, found: w.shape.clone() });
        };
        if c % self.groups != 0 || given != kernel {
            return Err(OpError::Invalid(format!(
                "a weight of shape {:?} does not fit {} groups and kernel {kernel:?}",
                w.shape, self.groups
            )));
        }
        let (group_in, group_out) = (c / self.groups, *group_out);
        let channels =
            [self.groups, self.count()].iter().try_fold(group_out, |n, &f| n.checked_mul(f));
        let mut shape = vec![channels.unwrap_or(usize::MAX), group_in];
        shape.extend(self.axes.iter().map(|a| a.taps));
        let ty = sized(TensorType::new(w.dtype, shape))?;
        let (mut s, [w]) = Stages::new([w]);
        let y = s.map("phases", ty, |i| {
            let (channel, phases) = self.split_channel(&i[0], self.groups * group_out);
            let group = channel.clone().floor_div(group_out as i64);
            let input = group * Expr::index(group_in) + i[1].clone();
            let mut element = vec![input, channel.floor_mod(group_out as i64)];
            let mut conditions = Vec::new();
            for ((axis, phase), tap) in self.axes.iter().zip(phases).zip(&i[2..]) {
                let (at, guards) = axis.weight(phase, tap.clone());
                element.push(at);
                conditions.extend(guards);
            }
            let load = w.at(&element);
            match conditions.into_iter().reduce(Expr::and) {
                Some(all) => Expr::select(all, load, Expr::Const(Scalar::zero(w.dtype()))),
                None => load,
            }
        });
        Ok(s.finish(Kind::Other("ConvTransposeWeight".into()), &[&y]))
    }

    /// Output channel, of `channels`, and phases of a channel of the convolution.
    fn split_channel(&self, channel: &Expr, channels: usize) -> (Expr, Vec<Expr>) {
        if !self.apart {
            return self.split_phases(channel);
        }
        let (_, phases) = self.split_phases(&channel.clone().floor_div(channels as i64));
        (channel.clone().floor_mod(channels as i64), phases)
    }

    /// Takes the phases of all axes off a number; gives the rest and the phases.
    fn split_phases(&self, number: &Expr) -> (Expr, Vec<Expr>) {
        let mut rest = number.clone();
        let mut phases = Vec::new();
        for axis in self.axes.iter().rev() {
            phases.push(match axis.phases {
                1 => Expr::int(0),
                n => rest.clone().floor_mod(n as i64),
            });
            if axis.phases > 1 {
                rest = rest.floor_div(axis.phases as i64);
            }
        }
        phases.reverse();
        (rest, phases)
    }

    /// Puts the convolution's result `y` in order; `None` where it is already.
    pub fn interleave(&self, y: &TensorType) -> Option<Result<ComputeOp, OpError>> {
        if !self.apart && self.axes.iter().all(Axis::is_whole) {
            return None;
        }
        let channels = y.shape[1] / self.count();
        let mut shape = vec![y.shape[0], channels];
        shape.extend(self.axes.iter().map(|a| a.output));
        // With a stride that is longer than the kernel it is larger than the convolution's result.
        let ty = match sized(TensorType::new(y.dtype, shape)) {
            Ok(ty) => ty,
            Err(error) => return Some(Err(error)),
        };
        let (mut s, [y]) = Stages::new([y]);
        let out = s.map("interleave", ty, |i| {
            let mut number = if self.apart { Expr::int(0) } else { i[1].clone() };
            let (mut element, mut computed) = (vec![i[0].clone()], vec![]);
            for (axis, o) in self.axes.iter().zip(&i[2..]) {
                let stride = axis.stride as i64;
                let at = o.clone() + Expr::index(axis.begin);
                element.push(match self.apart {
                    true => o.clone().floor_div(stride),
                    false => at.clone().floor_div(stride) - Expr::index(axis.first),
                });
                let phase = at.floor_mod(stride);
                if axis.phases < axis.stride {
                    computed.push(phase.clone().lt(Expr::index(axis.phases)));
                }
                if axis.phases > 1 {
                    number = number * Expr::index(axis.phases) + phase;
                }
            }
            let channel = match self.apart {
                true => number * Expr::index(channels) + i[1].clone(),
                false => number,
            };
            element.insert(1, channel);
            let result = y.at(&element);
            match computed.into_iter().reduce(Expr::and) {
                Some(all) => Expr::select(all, result, Expr::Const(Scalar::zero(y.dtype()))),
                None => result,
            }
        });
        Some(Ok(s.finish(Kind::Other("ConvTransposeInterleave".into()), &[&out])))
    }
}

fn too_many() -> OpError {
    OpError::Invalid("a transposed convolution has more channels than can be counted".into())
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp::eval;
    use crate::ops::conv::conv;

    /// Small whole numbers, so that sums are exact.
    fn numbers(shape: &[usize]) -> Tensor {
        let values = (0..shape.iter().product()).map(|i: usize| ((i * 7 + 3) % 11) as f32 - 5.0);
        Tensor::from_slice(shape, &values.collect::<Vec<_>>())
    }

    /// Every product put where the definition says, for one spatial axis and one batch.
    fn scattered(a: &ConvTransposeAttrs, x: &Tensor, w: &Tensor) -> Vec<f32> {
        let ([_, c, extent], [_, m, taps]) = (x.shape(), w.shape()) else {
            panic!("one axis only")
        };
        let (group, mut y) = (c / a.groups, vec![0.0; a.groups * m * a.output[0]]);
        for (channel, i, o, tap) in (0..*c).flat_map(|channel| {
            let places =
                move |i| (0..*m).flat_map(move |o| (0..*taps).map(move |t| (channel, i, o, t)));
            (0..*extent).flat_map(places)
        }) {
            let at = i * a.strides[0] + tap * a.dilations[0];
            let product = x.as_slice::<f32>()[channel * extent + i]
                * w.as_slice::<f32>()[(channel * m + o) * taps + tap];
            let counted = at.checked_sub(a.pads_begin[0]).filter(|&at| at < a.output[0]);
            if let Some(at) = counted {
                y[(channel / group * m + o) * a.output[0] + at] += product;
            }
        }
        y
    }

    fn computed(phases: &Phases, x: &Tensor, w: &Tensor) -> Vec<f32> {
        let run = |op: ComputeOp, inputs: &[&Tensor]| eval(&op.expr, inputs).unwrap().remove(0);
        let w = run(phases.weight(&TensorType::of(w)).unwrap(), &[w]);
        let spread = phases.spread(&TensorType::of(x)).map(|op| run(op.unwrap(), &[x]));
        let x = spread.as_ref().unwrap_or(x);
        let op = conv(phases.conv.clone(), &TensorType::of(x), &TensorType::of(&w)).unwrap();
        let y = run(op, &[x, &w]);
        let op = phases.interleave(&TensorType::of(&y));
        op.map_or(y.clone(), |op| run(op.unwrap(), &[&y])).as_slice::<f32>().to_vec()
    }

    /// A stride of which few steps fit an index: one input has a result, two have too large a one.
    #[test]
    fn strides_of_any_length_are_computed_or_refused() {
        let stride = usize::MAX / 2;
        for (extent, begin) in [(1, 0), (1, 1), (2, 1)] {
            let attrs = ConvTransposeAttrs {
                kernel: vec![3],
                strides: vec![stride],
                dilations: vec![1],
                pads_begin: vec![begin],
                output: vec![(extent - 1) * stride + 3 - begin],
                groups: 1,
            };
            let (x, w) = (numbers(&[1, 2, extent]), numbers(&[2, 3, 3]));
            let phases = Phases::new(&attrs, &[extent]).unwrap();
            if extent == 1 {
                assert_eq!(computed(&phases, &x, &w), scattered(&attrs, &x, &w), "{attrs:?}");
            } else {
                let y = TensorType::new(ansc_runtime::DType::F32, vec![1, 9, extent]);
                assert!(phases.interleave(&y).unwrap().is_err());
            }
        }
    }

    #[test]
    fn phases_together_and_apart_are_the_definition() {
        let mut apart = [0; 2];
        for (kernel, stride, dilation) in
            [(4, 2, 1), (3, 3, 1), (5, 3, 1), (2, 3, 2), (3, 1, 2), (2, 5, 1), (1, 3, 1)]
        {
            for (groups, extent, begin, end) in
                [(1, 4, 0, 0), (1, 2, 1, 1), (2, 3, 1, 1), (3, 9, 2, 1), (2, 5, 0, 2)]
            {
                let whole: usize = (extent - 1) * stride + (kernel - 1) * dilation + 1;
                let Some(output) = whole.checked_sub(begin + end).filter(|&n| n > 0) else {
                    continue;
                };
                let attrs = ConvTransposeAttrs {
                    kernel: vec![kernel],
                    strides: vec![stride],
                    dilations: vec![dilation],
                    pads_begin: vec![begin],
                    output: vec![output],
                    groups,
                };
                let (x, w) = (numbers(&[1, 2 * groups, extent]), numbers(&[2 * groups, 3, kernel]));
                let phases = Phases::new(&attrs, &[extent]).unwrap();
                apart[usize::from(phases.apart)] += 1;
                assert_eq!(computed(&phases, &x, &w), scattered(&attrs, &x, &w), "{attrs:?}");
            }
        }
        assert!(apart.iter().all(|&n| n > 3), "{apart:?}");
    }
}
