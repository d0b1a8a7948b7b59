//! Convolution of any spatial rank, with strides, dilations, padding and groups.
//!
//! ```text
//! conv(3x3, f32[1, 2, 5, 5], f32[4, 2, 3, 3])
//! ->  conv: f32[1, 4, 3, 3] = sum[2, 3, 3] mul(b0[v0, v4, v2 + v5, v3 + v6], b1[v1, v4, v5, v6])
//! ```
//!
//! Where there is padding, a stage `pad` comes first; it ends where the last window ends, so that a
//! padding that strides skip costs nothing. Reduction axes are in the order of the weight: channel,
//! kernel for [`Channels::First`], kernel, channel for [`Channels::Last`].

use ansc_runtime::DType;

use super::{OpError, cast_result, sized, sum_types};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BufId, Expr};
use crate::op::{Channels, ComputeOp, ConvAttrs, Kind};
use crate::scalar::Scalar;

/// A window that slides over the spatial axes: shared by convolutions and pools.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Extents of the window.
    pub kernel: &'a [usize],
    /// Elements between neighbouring windows.
    pub strides: &'a [usize],
    /// Elements between neighbouring points of a window, 1 for dense ones.
    pub dilations: &'a [usize],
    /// Elements of padding before the first element.
    pub pads_begin: &'a [usize],
    /// Elements of padding after the last element.
    pub pads_end: &'a [usize],
}

impl Window<'_> {
    /// The number of spatial axes.
    pub fn rank(&self) -> usize {
        self.kernel.len()
    }

    /// Extents of the result for spatial extents `input`, rounded down.
    pub fn output(&self, input: &[usize]) -> Result<Vec<usize>, OpError> {
        self.check(input)?;
        (0..self.rank()).map(|i| self.output_axis(i, input[i])).collect()
    }

    fn check(&self, input: &[usize]) -> Result<(), OpError> {
        let lists = [self.strides, self.dilations, self.pads_begin, self.pads_end, input];
        if lists.iter().any(|l| l.len() != self.rank()) {
            return Err(OpError::Invalid(format!(
                "kernel, strides, dilations and pads must have one entry for each of the {} \
                 spatial axes",
                input.len()
            )));
        }
        if [self.strides, self.dilations, self.kernel].iter().any(|l| l.contains(&0)) {
            return Err(OpError::Invalid("kernel, strides and dilations must be positive".into()));
        }
        Ok(())
    }

    fn output_axis(&self, i: usize, input: usize) -> Result<usize, OpError> {
        let too_large = || OpError::Invalid("the window overflows".into());
        let padded = input.checked_add(self.pads_begin[i]).ok_or_else(too_large)?;
        let padded = padded.checked_add(self.pads_end[i]).ok_or_else(too_large)?;
        let span = self.span(i).ok_or_else(too_large)?;
        if padded.checked_add(self.strides[i]) == Some(span) {
            // One step short of the first window: there is none.
            return Ok(0);
        }
        let slack = padded.checked_sub(span).ok_or_else(|| {
            OpError::Invalid(format!(
                "a window of {span} is larger than the padded input of {padded} on spatial axis {i}"
            ))
        })?;
        Ok(slack / self.strides[i] + 1)
    }

    /// Distance from the first to behind the last element that one window covers.
    fn span(&self, i: usize) -> Option<usize> {
        (self.kernel[i] - 1).checked_mul(self.dilations[i])?.checked_add(1)
    }

    /// Extent of the padded input that windows read, for an `output` that [`Window::output`] gave.
    fn extent(&self, i: usize, output: usize) -> usize {
        match output.checked_sub(1) {
            Some(steps) => steps * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1,
            None => 0,
        }
    }

    /// Index into the padded input of kernel element `k` of the window at `o`.
    pub fn index(&self, i: usize, o: Expr, k: Expr) -> Expr {
        scaled(o, self.strides[i]) + scaled(k, self.dilations[i])
    }
}

fn scaled(x: Expr, by: usize) -> Expr {
    if by == 1 { x } else { x * Expr::index(by) }
}

/// Appends a stage that surrounds the input at slot 0 by `fill` where `window` needs it, and
/// returns the buffer that windows read. `first` is the first spatial axis of the input. The stage
/// has the type of `fill`, which may be a wider one than the input's.
pub fn push_pad(
    expr: &mut Compute,
    window: &Window<'_>,
    first: usize,
    output: &[usize],
    fill: Scalar,
) -> Result<BufId, OpError> {
    let input = expr.inputs[0].clone();
    let mut shape = input.shape.clone();
    let mut indices: Vec<Expr> = (0..input.rank()).map(Expr::var).collect();
    let mut guards = Vec::new();
    for (i, &out) in output.iter().enumerate() {
        let (axis, begin, extent) = (first + i, window.pads_begin[i], window.extent(i, out));
        let behind = begin + input.shape[axis];
        if begin == 0 && extent <= behind {
            continue;
        }
        shape[axis] = extent;
        if begin > 0 {
            guards.push(Expr::index(begin).le(Expr::var(axis)));
            indices[axis] = Expr::var(axis) - Expr::index(begin);
        }
        if extent > behind {
            guards.push(Expr::var(axis).lt(Expr::index(behind)));
        }
    }
    let load = Expr::cast(input.dtype, fill.dtype(), Expr::load(0, indices));
    let Some(guard) = guards.into_iter().reduce(Expr::and) else {
        return Ok(BufId::new(0));
    };
    let ty = sized(TensorType::new(fill.dtype(), shape))?;
    Ok(expr.push(Stage::map("pad", ty, Expr::select(guard, load, Expr::Const(fill)))))
}

/// Extents of a convolution's axes.
struct Extents {
    batch: usize,
    /// Input channels and output channels, each of one group.
    group_in: usize,
    group_out: usize,
    output: Vec<usize>,
}

/// `x` convolved with `w`; for their layouts see [`ConvAttrs`].
pub fn conv(attrs: ConvAttrs, x: &TensorType, w: &TensorType) -> Result<ComputeOp, OpError> {
    sum_types(x.dtype, w.dtype)?;
    widened_conv(attrs, x, w)
}

/// As [`conv`], but half floats `x` may go with weights `w` of 32 bits, in which the result is then
/// too. They are widened where they are surrounded by zeros.
pub fn widened_conv(
    attrs: ConvAttrs,
    x: &TensorType,
    w: &TensorType,
) -> Result<ComputeOp, OpError> {
    let extents = extents(&attrs, x, w)?;
    let is_widened = x.dtype.is_float() && x.dtype.accumulator() == w.dtype;
    let element = if is_widened { w.dtype } else { x.dtype };
    let (acc, out) = sum_types(element, w.dtype)?;
    let window = attrs.window();
    let ty = sized(TensorType::new(acc, output_shape(&attrs, &extents)))?;
    let mut expr = Compute { inputs: vec![x.clone(), w.clone()], stages: vec![], outputs: vec![] };
    let first = attrs.input.first_spatial();
    let source = push_pad(&mut expr, &window, first, &extents.output, Scalar::zero(element))?;
    let from = expr.buffer_type(source).dtype;
    let body = conv_body(&attrs, &extents, source, [from, w.dtype], acc);
    let mut reduced = attrs.kernel.clone();
    match attrs.channels {
        Channels::First => reduced.insert(0, extents.group_in),
        Channels::Last => reduced.push(extents.group_in),
    }
    expr.push(Stage::reduction("conv", ty, Combiner::Sum, reduced, body));
    expr.outputs = vec![expr.stages.len() - 1];
    Ok(ComputeOp::new(Kind::Conv(attrs), cast_result(expr, out)))
}

impl ConvAttrs {
    /// The window that moves over the input.
    pub fn window(&self) -> Window<'_> {
        Window {
            kernel: &self.kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        }
    }
}

impl Channels {
    /// The axis of activations that holds channels.
    pub fn axis(self, rank: usize) -> usize {
        match self {
            Channels::First => 1,
            Channels::Last => rank - 1,
        }
    }

    /// The first spatial axis of activations.
    pub fn first_spatial(self) -> usize {
        match self {
            Channels::First => 2,
            Channels::Last => 1,
        }
    }
}

fn extents(attrs: &ConvAttrs, x: &TensorType, w: &TensorType) -> Result<Extents, OpError> {
    let rank = attrs.kernel.len() + 2;
    for (what, ty) in [("the input of a convolution", x), ("the weight of a convolution", w)] {
        if ty.rank() != rank {
            let expected = rank.to_string();
            return Err(OpError::Rank { what, expected, found: ty.shape.clone() });
        }
    }
    let first = attrs.input.first_spatial();
    let (m, group_in, kernel) = match attrs.channels {
        Channels::First => (w.shape[0], w.shape[1], &w.shape[2..]),
        Channels::Last => (w.shape[rank - 1], w.shape[rank - 2], &w.shape[..rank - 2]),
    };
    let channels = x.shape[attrs.input.axis(rank)];
    let groups = attrs.groups;
    let fits = groups > 0 && group_in.checked_mul(groups) == Some(channels) && m % groups == 0;
    if !fits || kernel != attrs.kernel {
        return Err(OpError::Invalid(format!(
            "a weight of shape {:?} does not fit an input of shape {:?} with {groups} groups and \
             kernel {:?}",
            w.shape, x.shape, attrs.kernel
        )));
    }
    let output = attrs.window().output(&x.shape[first..first + attrs.kernel.len()])?;
    Ok(Extents { batch: x.shape[0], group_in, group_out: m / groups, output })
}

fn output_shape(attrs: &ConvAttrs, extents: &Extents) -> Vec<usize> {
    let m = extents.group_out * attrs.groups;
    let mut shape = vec![extents.batch];
    shape.extend(&extents.output);
    shape.insert(attrs.channels.axis(shape.len() + 1), m);
    shape
}

fn conv_body(
    attrs: &ConvAttrs,
    extents: &Extents,
    source: BufId,
    [x, w]: [DType; 2],
    acc: DType,
) -> Expr {
    let spatial = attrs.kernel.len();
    let rank = spatial + 2;
    let m = Expr::var(attrs.channels.axis(rank));
    let (reduced, kernel) = match attrs.channels {
        Channels::First => (Expr::var(rank), rank + 1),
        Channels::Last => (Expr::var(rank + spatial), rank),
    };
    let k = |i| Expr::var(kernel + i);
    let window = attrs.window();
    let first = attrs.channels.first_spatial();
    let mut input = vec![Expr::var(0)];
    input.extend((0..spatial).map(|i| window.index(i, Expr::var(first + i), k(i))));
    input.insert(attrs.input.axis(rank), input_channel(attrs.groups, extents, &m, &reduced));
    let mut weight: Vec<Expr> = (0..spatial).map(k).collect();
    match attrs.channels {
        Channels::First => weight.splice(0..0, [m, reduced]).for_each(drop),
        Channels::Last => weight.extend([reduced, m]),
    }
    Expr::cast(x, acc, Expr::Load(source, input)) * Expr::cast(w, acc, Expr::load(1, weight))
}

/// The input channel for output channel `m` and channel `reduced` of its group.
fn input_channel(groups: usize, extents: &Extents, m: &Expr, reduced: &Expr) -> Expr {
    if groups == 1 {
        return reduced.clone();
    }
    let group = match extents.group_out {
        1 => m.clone(),
        n => m.clone().floor_div(n as i64),
    };
    match extents.group_in {
        1 => group,
        n => group * Expr::index(n) + reduced.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs(channels: Channels, kernel: &[usize], groups: usize) -> ConvAttrs {
        let n = kernel.len();
        ConvAttrs {
            channels,
            input: channels,
            kernel: kernel.into(),
            strides: vec![1; n],
            dilations: vec![1; n],
            pads_begin: vec![0; n],
            pads_end: vec![0; n],
            groups,
        }
    }

    fn f32(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    #[test]
    fn padding_that_strides_skip_is_not_computed() {
        let mut a = attrs(Channels::First, &[2, 2], 1);
        (a.strides, a.pads_end) = (vec![2, 2], vec![1, 1]);
        let op = conv(a, &f32(&[1, 3, 4, 4]), &f32(&[8, 3, 2, 2])).unwrap();
        assert_eq!(op.expr.stages.len(), 1);
        assert_eq!(op.expr.output_types(), [f32(&[1, 8, 2, 2])]);
    }

    #[test]
    fn channels_last_and_half_floats() {
        let mut a = attrs(Channels::Last, &[3], 2);
        (a.pads_begin, a.pads_end) = (vec![1], vec![1]);
        let half = |shape: &[usize]| TensorType::new(DType::F16, shape);
        let op = conv(a, &half(&[2, 5, 4]), &half(&[3, 2, 6])).unwrap();
        let names: Vec<&str> = op.expr.stages.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["pad", "conv", "cast"]);
        assert_eq!(op.expr.stages[1].ty, f32(&[2, 5, 6]));
        assert_eq!(op.expr.output_types(), [half(&[2, 5, 6])]);
    }

    #[test]
    fn half_floats_are_widened_between_zeros() {
        let mut a = attrs(Channels::Last, &[3], 2);
        (a.pads_begin, a.pads_end) = (vec![1], vec![1]);
        let x = TensorType::new(DType::F16, [2, 5, 4]);
        assert!(conv(a.clone(), &x, &f32(&[3, 2, 6])).is_err());
        let op = widened_conv(a, &x, &f32(&[3, 2, 6])).unwrap();
        let types: Vec<&TensorType> = op.expr.stages.iter().map(|s| &s.ty).collect();
        assert_eq!(types, [&f32(&[2, 7, 4]), &f32(&[2, 5, 6])]);
    }

    #[test]
    fn a_window_one_step_too_large_gives_nothing() {
        let op = |x: &[usize]| {
            let attrs = attrs(Channels::First, &[3, 3], 1);
            conv(attrs, &f32(x), &f32(&[8, 4, 3, 3])).map(|op| op.expr.output_types().remove(0))
        };
        assert_eq!(op(&[1, 4, 2, 5]).unwrap(), f32(&[1, 8, 0, 3]));
        assert!(op(&[1, 4, 1, 5]).is_err());
    }

    #[test]
    fn operands_that_do_not_fit_are_errors() {
        let x = f32(&[1, 4, 5, 5]);
        let conv_first = |kernel: &[usize], groups, w: &[usize]| {
            conv(attrs(Channels::First, kernel, groups), &x, &f32(w))
        };
        assert!(conv_first(&[3, 3], 1, &[8, 4, 3, 3]).is_ok());
        assert!(conv_first(&[3, 3], 2, &[8, 4, 3, 3]).is_err());
        assert!(conv_first(&[3, 3], 0, &[8, 4, 3, 3]).is_err());
        assert!(conv_first(&[3, 3], 2, &[7, 2, 3, 3]).is_err());
        assert!(conv_first(&[7, 7], 1, &[8, 4, 7, 7]).is_err());
        assert!(conv_first(&[3], 1, &[8, 4, 3]).is_err());
    }
}
