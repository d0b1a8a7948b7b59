//! A convolution of few channels as one of lines, in which a row of the window lies side by side.
//!
//! ```text
//! conv[y, x, k] = sum{r: 7, s: 7, c: 3} f32(in[y * 2 + r, x * 2 + s, c]) * f32(w[r, s, c, k])
//! =>
//! lines[h, i]   = in[h, i // 4, i % 4], zero where i % 4 is 3
//! rows[r, t, k] = w[r, t // 4, t % 4, k], zero where t % 4 is 3
//! conv[y, x, k] = sum{r: 7, t: 28} f32(lines[y * 2 + r, x * 8 + t]) * f32(rows[r, t, k])
//! ```
//!
//! A step of a unit for matrices takes about 32 terms, of which few channels are a small part.
//! Neighbouring windows overlap in a line, which the unit does not mind: its rows may begin
//! anywhere. Channels are filled up with zeros until a row of the window has whole groups.

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Scalar, Stage, TensorType};

use crate::algorithm::convolution::{Convolution, Window};
use crate::algorithm::{Replacing, Rewritten};
use crate::intrinsic::amx::{self, APART};
use crate::task::Task;

/// More channels fill steps well enough.
const MOST_CHANNELS: usize = 8;

/// None where no stage is such a convolution.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let conv = Convolution::of_narrow(&task.compute)?;
    let lines = Lines::of(task, &conv)?;
    Some(lines.rewrite(task))
}

struct Lines<'a> {
    conv: &'a Convolution,
    /// The window that lies in lines, and those around it.
    last: &'a Window,
    outer: &'a [Window],
    /// Channels in a line.
    channels: usize,
}

impl Lines<'_> {
    fn of<'a>(task: &Task, conv: &'a Convolution) -> Option<Lines<'a>> {
        let (last, outer) = conv.windows.split_last()?;
        let stage = &task.compute.stages[conv.stage];
        let group = amx::group(task.compute.buffer_type(conv.input).dtype);
        let fills = |channels: &usize| (last.size * channels).is_multiple_of(group);
        let channels = (conv.channel.1..).find(fills)?;
        let is_sum =
            amx::sum_of([conv.input, conv.weight].map(|b| task.compute.buffer_type(b).dtype));
        let fits = last.dilation == 1
            && last.size > 1
            && last.outputs > 1
            && conv.channel.1 <= MOST_CHANNELS
            && last.stride * channels <= APART
            && conv.out.0 + 1 == stage.ty.rank()
            && last.axis + 1 == conv.out.0
            && is_sum == Some(stage.ty.dtype);
        fits.then_some(Lines { conv, last, outer, channels })
    }

    fn rewrite(&self, task: &Task) -> Rewritten {
        let mut compute = Replacing::new(&task.compute, self.conv.stage);
        let original = &task.compute.stages[self.conv.stage];
        let lines = compute.push(self.lines(&task.compute, original));
        let mut prepared = vec![];
        let rows = compute
            .laid_out(task, self.conv.weight, &mut prepared, |from| self.rows(&task.compute, from));
        compute.push(self.sum(original, &task.compute, [lines, rows]));
        Rewritten { task: Task { compute: compute.done(), ..task.clone() }, prepared }
    }

    /// `lines[batch.., window.., i]`
    fn lines(&self, compute: &Compute, original: &Stage) -> Stage {
        let (conv, dtype) = (self.conv, compute.buffer_type(self.conv.input).dtype);
        let batch = conv.batch.len();
        let mut shape: Vec<usize> = conv.batch.iter().map(|&v| original.ty.shape[v]).collect();
        shape.extend(self.outer.iter().map(length));
        shape.push(length(self.last) * self.channels);
        let (column, channel) = self.split(&Expr::var(shape.len() - 1));
        let mut windows: Vec<Expr> = (batch..shape.len() - 1).map(Expr::var).collect();
        windows.push(column);
        let own: Vec<Expr> = (0..batch).map(Expr::var).collect();
        let load = Expr::Load(conv.input, conv.input_at(&own, &windows, &channel));
        Stage::map("lines", TensorType::new(dtype, shape), self.or_zero(&channel, load, dtype))
    }

    /// `rows[window.., t, k]`
    fn rows(&self, compute: &Compute, from: BufId) -> Stage {
        let (conv, dtype) = (self.conv, compute.buffer_type(self.conv.weight).dtype);
        let mut shape: Vec<usize> = self.outer.iter().map(|w| w.size).collect();
        shape.extend([self.last.size * self.channels, conv.out.1]);
        let n = shape.len();
        let (tap, channel) = self.split(&Expr::var(n - 2));
        let mut kernel: Vec<Expr> = (0..n - 2).map(Expr::var).collect();
        kernel.push(tap);
        let load = Expr::Load(from, conv.weight_at(&kernel, &channel, &Expr::var(n - 1)));
        Stage::map("rows", TensorType::new(dtype, shape), self.or_zero(&channel, load, dtype))
    }

    fn sum(&self, original: &Stage, compute: &Compute, [lines, rows]: [BufId; 2]) -> Stage {
        let (conv, rank) = (self.conv, original.ty.rank());
        let taps = |i: usize| Expr::var(rank + i);
        let term = taps(self.outer.len());
        let mut at: Vec<Expr> = conv.batch.iter().map(|&v| Expr::var(v)).collect();
        at.extend(self.outer.iter().enumerate().map(|(i, w)| {
            Expr::var(w.axis) * Expr::index(w.stride) + taps(i) * Expr::index(w.dilation)
        }));
        at.push(Expr::var(self.last.axis) * Expr::index(self.last.stride * self.channels) + term);
        let mut of_rows: Vec<Expr> = (0..=self.outer.len()).map(taps).collect();
        of_rows.push(Expr::var(conv.out.0));
        let sum = original.ty.dtype;
        let wide = |from: BufId, buffer, at| {
            Expr::cast(compute.buffer_type(from).dtype, sum, Expr::Load(buffer, at))
        };
        let body = wide(conv.input, lines, at) * wide(conv.weight, rows, of_rows);
        let mut extents: Vec<usize> = self.outer.iter().map(|w| w.size).collect();
        extents.push(self.last.size * self.channels);
        Stage::reduction(&original.name, original.ty.clone(), Combiner::Sum, extents, body)
    }

    /// The place along the last window and the channel of an element of a line.
    fn split(&self, i: &Expr) -> (Expr, Expr) {
        let channels = Expr::index(self.channels);
        (
            i.clone().floor_div(self.channels as i64),
            Expr::binary(BinOp::FloorMod, i.clone(), channels),
        )
    }

    fn or_zero(&self, channel: &Expr, load: Expr, dtype: ansc_runtime::DType) -> Expr {
        if self.channels == self.conv.channel.1 {
            return load;
        }
        let inside = Expr::binary(BinOp::Lt, channel.clone(), Expr::index(self.conv.channel.1));
        Expr::select(inside, load, Expr::Const(Scalar::zero(dtype)))
    }
}

/// Places of the input that all windows of an axis cover.
fn length(w: &Window) -> usize {
    (w.outputs - 1) * w.stride + (w.size - 1) * w.dilation + 1
}
