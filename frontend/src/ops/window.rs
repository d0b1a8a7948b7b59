//! Attributes of sliding windows: kernel, strides, dilations and every way to say padding.

use ansc_graph::op::{Channels, ConvAttrs, PoolAttrs, PoolMode};

use crate::problem::Problem;
use crate::walk::NodeCtx;

/// Resolved attributes, one entry per spatial axis.
pub(crate) struct WindowAttrs {
    pub(crate) kernel: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) dilations: Vec<usize>,
    pub(crate) pads_begin: Vec<usize>,
    pub(crate) pads_end: Vec<usize>,
    /// The part of `pads_end` that only rounding the output size up asks for.
    pub(crate) overhang: Vec<usize>,
}

/// Where the surplus element of an odd padding goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    Explicit,
    SameUpper,
    SameLower,
    Valid,
}

fn auto_pad(ctx: &NodeCtx<'_>) -> Result<AutoPad, Problem> {
    match ctx.string("auto_pad", "NOTSET").as_str() {
        "NOTSET" | "" => Ok(AutoPad::Explicit),
        "SAME_UPPER" => Ok(AutoPad::SameUpper),
        "SAME_LOWER" => Ok(AutoPad::SameLower),
        "VALID" => Ok(AutoPad::Valid),
        other => Err(ctx.problem(format!("its auto_pad is `{other}`"))),
    }
}

impl WindowAttrs {
    /// For an input of spatial extents `input`.
    pub(crate) fn read(
        ctx: &NodeCtx<'_>,
        input: &[usize],
        kernel: Vec<usize>,
    ) -> Result<WindowAttrs, Problem> {
        let n = input.len();
        let strides = per_axis(ctx, "strides", n, 1)?;
        let dilations = per_axis(ctx, "dilations", n, 1)?;
        ctx.check(kernel.len() == n, || format!("its kernel {kernel:?} does not have {n} axes"))?;
        let positive = [&kernel, &strides, &dilations].iter().all(|l| !l.contains(&0));
        ctx.check(positive, || "its kernel, strides and dilations must be positive".into())?;
        let (pads_begin, pads_end) = explicit_pads(ctx, n)?;
        let overhang = vec![0; n];
        let mut attrs = WindowAttrs { kernel, strides, dilations, pads_begin, pads_end, overhang };
        match auto_pad(ctx)? {
            AutoPad::Explicit => {}
            AutoPad::Valid => (attrs.pads_begin, attrs.pads_end) = (vec![0; n], vec![0; n]),
            AutoPad::SameUpper => attrs.pad_to_same(ctx, input, false)?,
            AutoPad::SameLower => attrs.pad_to_same(ctx, input, true)?,
        }
        Ok(attrs)
    }

    /// As many windows as strides fit in the input.
    fn pad_to_same(
        &mut self,
        ctx: &NodeCtx<'_>,
        input: &[usize],
        lower: bool,
    ) -> Result<(), Problem> {
        for (i, &input) in input.iter().enumerate() {
            let steps = input.div_ceil(self.strides[i]).saturating_sub(1);
            let reach = steps.checked_mul(self.strides[i]).zip(self.span(i));
            let reach = reach.and_then(|(a, b)| a.checked_add(b));
            let reach = reach.ok_or_else(|| ctx.problem("its window overflows"))?;
            let total = reach.saturating_sub(input);
            let (small, large) = (total / 2, total - total / 2);
            let (begin, end) = if lower { (large, small) } else { (small, large) };
            (self.pads_begin[i], self.pads_end[i]) = (begin, end);
        }
        Ok(())
    }

    /// Lets the last window stick out where strides do not divide, unless it would start in the
    /// padding at the end.
    pub(crate) fn round_up(&mut self, input: &[usize]) {
        for (i, &input) in input.iter().enumerate() {
            let Some(room) = self.room(i, input) else { continue };
            let stride = self.strides[i];
            let steps = room.div_ceil(stride);
            let starts_inside = steps * stride < input + self.pads_begin[i];
            if steps * stride > room && starts_inside {
                self.overhang[i] = steps * stride - room;
                self.pads_end[i] += self.overhang[i];
            }
        }
    }

    /// How far the window can move over the padded input.
    fn room(&self, i: usize, input: usize) -> Option<usize> {
        let padded = input.checked_add(self.pads_begin[i])?.checked_add(self.pads_end[i])?;
        padded.checked_sub(self.span(i)?)
    }

    /// Elements from the first to the last that a window covers.
    fn span(&self, i: usize) -> Option<usize> {
        (self.kernel[i] - 1).checked_mul(self.dilations[i])?.checked_add(1)
    }

    pub(crate) fn conv(self, groups: usize) -> ConvAttrs {
        ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: self.kernel,
            strides: self.strides,
            dilations: self.dilations,
            pads_begin: self.pads_begin,
            pads_end: self.pads_end,
            groups,
        }
    }

    pub(crate) fn pool(self, mode: PoolMode) -> PoolAttrs {
        PoolAttrs {
            channels: Channels::First,
            mode,
            kernel: self.kernel,
            strides: self.strides,
            dilations: self.dilations,
            pads_begin: self.pads_begin,
            pads_end: self.pads_end,
        }
    }
}

/// An attribute with one entry per spatial axis.
pub(crate) fn per_axis(
    ctx: &NodeCtx<'_>,
    name: &str,
    n: usize,
    default: usize,
) -> Result<Vec<usize>, Problem> {
    let Some(values) = ctx.ints(name).filter(|v| !v.is_empty()) else {
        return Ok(vec![default; n]);
    };
    ctx.check(values.len() == n, || format!("its {name} {values:?} do not have {n} entries"))?;
    ctx.sizes(&values, name)
}

fn explicit_pads(ctx: &NodeCtx<'_>, n: usize) -> Result<(Vec<usize>, Vec<usize>), Problem> {
    let mut begin = per_axis(ctx, "pads", 2 * n, 0)?;
    let end = begin.split_off(n);
    Ok((begin, end))
}

/// The spatial extents of an activation `[n, c, spatial..]`.
pub(crate) fn spatial<'a>(ctx: &NodeCtx<'_>, shape: &'a [usize]) -> Result<&'a [usize], Problem> {
    match shape {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial),
        _ => Err(ctx.problem(format!("its input of shape {shape:?} has no spatial axis"))),
    }
}
