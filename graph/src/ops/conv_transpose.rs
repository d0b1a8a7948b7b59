//! Transposed convolution as an ordinary one.
//!
//! The transposed convolution with stride `s` puts `x[i] * w[k]` at `i * s + k`. Outputs with the
//! same remainder by `s` (a *phase*) read the same subset of the kernel, so each phase is an
//! ordinary convolution by every `s`-th weight, reversed. All phases are computed at once as output
//! channels of one convolution, and then put in their places:
//!
//! ```text
//! stride 2, kernel 4:  x[n, c, i] -> conv (kernel 2, 2 * m channels) -> [n, (phase, m), q]
//!                      -> interleave -> y[n, m, q * 2 + phase - pad]
//! ```
//! No product with an inserted zero is computed, but for kernels that are longer than the stride
//! and no multiple of it. Where the stride is longer, only the phases that a weight falls into are
//! computed; the other outputs are zero.
//!
//! Where many zeros would be multiplied, each element of the input is multiplied by all weights of
//! its channel, and each output of a phase adds up the products that belong to it:
//!
//! ```text
//! stride 2, kernel 3:  x[n, c, i] -> conv (kernel 1, 3 * m channels) -> [n, (tap, m), i]
//!                      -> gather -> [n, (phase, m), q]
//!                      -> interleave -> y[n, m, q * 2 + phase - pad]
//! ```
//!
//! Each phase needs only a part of the outputs, another one where padding is cut off. Where results
//! are small that is a large share of them; then every phase becomes a group of its own, which
//! reads a copy of the input that is moved as the phase needs it:
//!
//! ```text
//! stride 2, kernel 4, 4 -> 8:  x[n, c, 4] -> spread [n, (phase, c), 5] -> conv (kernel 2, group for each phase, 4 outputs
//!                              instead of 5) -> [n, (phase, m), 4] -> interleave -> y[n, m, 8]
//! ```

use ansc_runtime::DType;

use super::stages::Stages;
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::Expr;
use crate::flat::{flattened, spread};
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
/// of the input where it gives one, [`Phases::conv`], then [`Phases::gather`] and
/// [`Phases::interleave`] where they give one.
pub struct Phases {
    axes: Vec<Axis>,
    groups: usize,
    plan: Plan,
    /// The convolution of the spread input with the phases of the weight.
    pub conv: ConvAttrs,
}

/// The results that the convolution computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// The outputs of all phases, as channels.
    Together,
    /// The same, with phases as groups, each with outputs of its own.
    Apart,
    /// The products of every element by every weight, as channels.
    Taps,
}

/// Outputs of all phases together over those needed, from which on phases are kept apart.
const WASTE: f64 = 1.2;
/// The share of operations that is left where Winograd's convolution computes the phases.
const WINOGRADS: f64 = 0.45;
/// Operations in the time in which a product is written, and read again.
const PER_PRODUCT: f64 = 10.0;
/// Products that are added up for an output, at most: each is a term of an expression.
const MOST_TERMS: f64 = 27.0;

/// One spatial axis. `taps` weights, `spacing` apart, meet one output; they are weights
/// `phase + stride * tap` of the kernel with its dilation written out (`span` long).
struct Axis {
    kernel: usize,
    stride: usize,
    dilation: usize,
    span: usize,
    /// Elements of the input.
    input: usize,
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
            input,
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
    fn weight(&self, phase: Expr, back: Expr) -> (Expr, Vec<Expr>) {
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

    /// The element of the input that the weight of this tap, counted from the last, meets for the
    /// output `piece` of a phase, and the conditions that there is one.
    fn met(&self, piece: Expr, back: usize) -> (Expr, Vec<Expr>) {
        let at = piece + Expr::index(self.first) - Expr::index(back * self.spacing);
        let mut conditions = Vec::new();
        if back * self.spacing > self.first {
            conditions.push(Expr::int(0).le(at.clone()));
        }
        if self.pieces + self.first > self.input + back * self.spacing {
            conditions.push(at.clone().lt(Expr::index(self.input)));
        }
        (at, conditions)
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

/// The plan that multiplies least, if `settle` lets each choice be.
fn plan(
    axes: &[Axis],
    attrs: &ConvTransposeAttrs,
    [x, w]: [&TensorType; 2],
    mut settle: impl FnMut(bool) -> bool,
) -> Plan {
    let all = |f: fn(&Axis) -> usize| axes.iter().map(|a| f(a) as f64).product::<f64>();
    let (pieces, needed) = (all(|a| a.pieces), all(Axis::needed));
    let (in_phases, outputs) = match settle(pieces >= WASTE * needed) {
        true => (Plan::Apart, needed),
        false => (Plan::Together, pieces),
    };
    // Operations for an output channel, and for each place that they are done at.
    let each = 2.0 * (w.shape.first().copied().unwrap_or(0) / attrs.groups) as f64;
    let taps = all(|a| a.input) * all(|a| a.kernel) * (each + PER_PRODUCT);
    let phases = outputs * all(|a| a.phases) * all(|a| a.taps) * each;
    let fast = axes.len() == 2 && axes.iter().all(|a| a.taps >= 3 && a.spacing == 1);
    let phases = if fast { WINOGRADS * phases } else { phases };
    let few = all(|a| a.taps) <= MOST_TERMS;
    // Narrower elements would round each product, and groups are no plain product of matrices.
    let may = few && x.dtype == DType::F32 && attrs.groups == 1;
    if settle(may && taps < phases) { Plan::Taps } else { in_phases }
}

impl Phases {
    /// The plan for an input and a weight of these types. `settle` gets what is best here, and
    /// gives what is to be done: a model for other sizes may have chosen before.
    pub fn new(
        attrs: &ConvTransposeAttrs,
        [x, w]: [&TensorType; 2],
        settle: impl FnMut(bool) -> bool,
    ) -> Result<Phases, OpError> {
        let n = attrs.kernel.len();
        let input = x.shape.get(2..).unwrap_or_default();
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
        let plan = plan(&axes, attrs, [x, w], settle);
        Phases::planned(axes, attrs.groups, plan)
    }

    fn planned(axes: Vec<Axis>, groups: usize, plan: Plan) -> Result<Phases, OpError> {
        let n = axes.len();
        let each = |f: fn(&Axis) -> usize| axes.iter().map(f).collect::<Vec<_>>();
        let phases = if plan == Plan::Apart { axes.iter().map(|a| a.phases).product() } else { 1 };
        let (is_taps, is_padded) = (plan == Plan::Taps, plan == Plan::Together);
        let conv = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: if is_taps { vec![1; n] } else { each(|a| a.taps) },
            strides: vec![1; n],
            dilations: if is_taps { vec![1; n] } else { each(|a| a.spacing) },
            pads_begin: if is_padded { each(|a| a.pads[0]) } else { vec![0; n] },
            pads_end: if is_padded { each(|a| a.pads[1]) } else { vec![0; n] },
            groups: groups.checked_mul(phases).ok_or_else(too_many)?,
        };
        Ok(Phases { axes, groups, plan, conv })
    }

    /// The input, once for each phase, moved, and padded by `fill` as the phase needs it; `None`
    /// where all share it.
    pub fn spread(&self, x: &TensorType, fill: Scalar) -> Option<Result<ComputeOp, OpError>> {
        (self.plan == Plan::Apart).then(|| {
            let (channels, extents) = (x.shape[1], x.shape[2..].to_vec());
            let mut shape =
                vec![x.shape[0], channels.checked_mul(self.count()).ok_or_else(too_many)?];
            let reach = |a: &Axis| a.needed() + (a.taps - 1) * a.spacing;
            shape.extend(self.axes.iter().map(reach));
            let ty = sized(TensorType::new(x.dtype, shape))?;
            let (mut s, [x]) = Stages::new([x]);
            let y = s.map("spread", ty, |i| {
                let split = [&self.phases()[..], &[channels]].concat();
                let mut phases = spread(&i[1], &split);
                let channel = phases.pop().expect("the innermost axis");
                let mut element = vec![i[0].clone(), channel];
                let mut inside = Vec::new();
                for (((axis, phase), at), &extent) in
                    self.axes.iter().zip(phases).zip(&i[2..]).zip(&extents)
                {
                    let at = at.clone() + axis.offset(phase);
                    inside.push(Expr::int(0).le(at.clone()));
                    inside.push(at.clone().lt(Expr::index(extent)));
                    element.push(at);
                }
                or_else(inside, x.at(&element), fill)
            });
            Ok(s.finish(Kind::Other("ConvTransposeSpread".into()), &[&y]))
        })
    }

    /// Phases along each axis.
    fn phases(&self) -> Vec<usize> {
        self.axes.iter().map(|a| a.phases).collect()
    }

    /// Weights along each axis.
    fn kernel(&self) -> Vec<usize> {
        self.axes.iter().map(|a| a.kernel).collect()
    }

    /// Phases of all axes together.
    fn count(&self) -> usize {
        self.phases().iter().product()
    }

    /// The extents that a channel of a result with `parts` of each channel consists of: groups,
    /// parts, and channels of a group; groups behind parts where these are groups.
    fn channels(&self, parts: &[usize], group_out: usize) -> Vec<usize> {
        match self.plan {
            Plan::Apart => [parts, &[self.groups, group_out]].concat(),
            Plan::Together | Plan::Taps => [&[self.groups], parts, &[group_out]].concat(),
        }
    }

    /// The group, the parts and the channel of the group of a channel.
    fn split(&self, channel: &Expr, parts: &[usize], group_out: usize) -> (Expr, Vec<Expr>, Expr) {
        let mut split = spread(channel, &self.channels(parts, group_out));
        let innermost = split.pop().expect("the innermost axis");
        let group = split.remove(if self.plan == Plan::Apart { parts.len() } else { 0 });
        (group, split, innermost)
    }

    /// The channel of which [`Phases::split`] gives these.
    fn joined(&self, group: Expr, at: &[Expr], parts: &[usize], (m, of): (Expr, usize)) -> Expr {
        let indices = match self.plan {
            Plan::Apart => [at, &[group, m]].concat(),
            Plan::Together | Plan::Taps => [&[group], at, &[m]].concat(),
        };
        flattened(&indices, &self.channels(parts, of))
    }

    /// The weight of the convolution from that of the operator, `[c, m / groups, kernel..]`.
    pub fn weight(&self, w: &TensorType) -> Result<ComputeOp, OpError> {
        let kernel = self.kernel();
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
        let (is_taps, spatial) = (self.plan == Plan::Taps, self.conv.kernel.clone());
        let parts = if is_taps { kernel } else { self.phases() };
        let mut factors = parts.iter().copied().chain([self.groups]);
        let channels = factors.try_fold(group_out, usize::checked_mul);
        let shape = [&[channels.unwrap_or(usize::MAX), group_in], &spatial[..]].concat();
        let ty = sized(TensorType::new(w.dtype, shape))?;
        let (mut s, [w]) = Stages::new([w]);
        let y = s.map("parts", ty, |i| {
            let (group, parts, channel) = self.split(&i[0], &parts, group_out);
            let mut element = vec![group * Expr::index(group_in) + i[1].clone(), channel];
            if is_taps {
                element.extend(parts);
                return w.at(&element);
            }
            let mut conditions = Vec::new();
            for ((axis, phase), tap) in self.axes.iter().zip(parts).zip(&i[2..]) {
                let back = Expr::index(axis.taps - 1) - tap.clone();
                let (at, guards) = axis.weight(phase, back);
                element.push(at);
                conditions.extend(guards);
            }
            guarded(conditions, w.at(&element), w.dtype())
        });
        Ok(s.finish(Kind::Other("ConvTransposeWeight".into()), &[&y]))
    }

    /// The outputs of all phases from products; `None` where the convolution gives them itself.
    pub fn gather(&self, products: &TensorType) -> Option<Result<ComputeOp, OpError>> {
        (self.plan == Plan::Taps).then(|| {
            let (kernel, phases) = (self.kernel(), self.phases());
            let channels = products.shape[1] / kernel.iter().product::<usize>();
            let outputs = channels.checked_mul(self.count()).ok_or_else(too_many)?;
            let mut shape = vec![products.shape[0], outputs];
            shape.extend(self.axes.iter().map(|a| a.pieces));
            let ty = sized(TensorType::new(products.dtype, shape))?;
            let group_out = channels / self.groups;
            let (mut s, [products]) = Stages::new([products]);
            let y = s.map("gather", ty, |i| {
                let (group, phases, channel) = self.split(&i[1], &phases, group_out);
                let terms = self.backs().into_iter().map(|backs| {
                    let (mut taps, mut places, mut conditions) = (vec![], vec![], vec![]);
                    let each = self.axes.iter().zip(&phases).zip(&backs).zip(&i[2..]);
                    for (((axis, phase), &back), piece) in each {
                        let (tap, is_weight) = axis.weight(phase.clone(), Expr::index(back));
                        let (at, is_inside) = axis.met(piece.clone(), back);
                        taps.push(tap);
                        places.push(at);
                        conditions.extend(is_weight.into_iter().chain(is_inside));
                    }
                    let innermost = (channel.clone(), group_out);
                    let number = self.joined(group.clone(), &taps, &kernel, innermost);
                    let element = [&[i[0].clone(), number], &places[..]].concat();
                    guarded(conditions, products.at(&element), products.dtype())
                });
                terms.reduce(|sum, term| sum + term).expect("a window has a tap")
            });
            Ok(s.finish(Kind::Other("ConvTransposeGather".into()), &[&y]))
        })
    }

    /// The taps of a phase along all axes, each counted from the last.
    fn backs(&self) -> Vec<Vec<usize>> {
        self.axes.iter().fold(vec![vec![]], |all, axis| {
            let longer = |backs: &Vec<usize>| {
                let backs = backs.clone();
                (0..axis.taps).map(move |back| [&backs[..], &[back]].concat())
            };
            all.iter().flat_map(longer).collect()
        })
    }

    /// Puts the convolution's result `y` in order; `None` where it is already.
    pub fn interleave(&self, y: &TensorType) -> Option<Result<ComputeOp, OpError>> {
        let apart = self.plan == Plan::Apart;
        if !apart && self.axes.iter().all(Axis::is_whole) {
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
        let (extents, group_out) = (self.phases(), channels / self.groups);
        let out = s.map("interleave", ty, |i| {
            let (mut phases, mut pieces, mut computed) = (vec![], vec![], vec![]);
            for (axis, o) in self.axes.iter().zip(&i[2..]) {
                let stride = axis.stride as i64;
                let at = o.clone() + Expr::index(axis.begin);
                pieces.push(match apart {
                    true => o.clone().floor_div(stride),
                    false => at.clone().floor_div(stride) - Expr::index(axis.first),
                });
                let phase = at.floor_mod(stride);
                if axis.phases < axis.stride {
                    computed.push(phase.clone().lt(Expr::index(axis.phases)));
                }
                phases.push(phase);
            }
            let [group, channel] = &spread(&i[1], &[self.groups, group_out])[..] else {
                unreachable!("an index for each extent")
            };
            let innermost = (channel.clone(), group_out);
            let number = self.joined(group.clone(), &phases, &extents, innermost);
            let element = [&[i[0].clone(), number], &pieces[..]].concat();
            guarded(computed, y.at(&element), y.dtype())
        });
        Some(Ok(s.finish(Kind::Other("ConvTransposeInterleave".into()), &[&out])))
    }
}

/// The element where all of the conditions hold, and zero elsewhere.
fn guarded(conditions: Vec<Expr>, element: Expr, dtype: DType) -> Expr {
    or_else(conditions, element, Scalar::zero(dtype))
}

/// The element where all of the conditions hold, and `other` elsewhere.
fn or_else(conditions: Vec<Expr>, element: Expr, other: Scalar) -> Expr {
    match conditions.into_iter().reduce(Expr::and) {
        Some(all) => Expr::select(all, element, Expr::Const(other)),
        None => element,
    }
}

fn too_many() -> OpError {
    OpError::Invalid("a transposed convolution has more channels than can be counted".into())
}

#[cfg(test)]
mod tests;
