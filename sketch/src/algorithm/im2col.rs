//! A convolution as one product of matrices: the elements under each window, side by side, times
//! the weights.
//!
//! ```text
//! conv[n, y, x, k] = sum{r, s, c} in[n, y * 2 + r, x * 2 + s, c] * w[r, s, c, k]
//! =>
//! columns[p, r, s, c] = in[n, y * 2 + r, x * 2 + s, c]          p: the number of (n, y, x)
//! product[p, k]       = sum{r, s, c} columns[p, r, s, c] * w[r, s, c, k]
//! conv[n, y, x, k]    = product[p, k]
//! ```
//!
//! Rows of the product run over all places at once, where those of a direct convolution end with
//! each row of the image: tiles fit small images better. The schedule makes columns together with
//! the padding; where there is none, the product finds its operands in the image itself. Any
//! stride, dilation and number of axes; a window of one element has no columns.

use ansc_graph::{Combiner, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::Convolution;
use super::{Replacing, Rewritten};
use crate::task::Task;
use ansc_graph::flat::{flattened, spread};

pub(super) fn rewrite(task: &Task, conv: &Convolution) -> Option<Rewritten> {
    let window: Vec<usize> = conv.windows.iter().map(|w| w.size).collect();
    let terms: usize = window.iter().product();
    if terms < 2 {
        return None;
    }
    let original = &task.compute.stages[conv.stage];
    let extent = |axis: &usize| original.ty.shape[*axis];
    let places: Vec<usize> =
        conv.batch.iter().map(extent).chain(conv.windows.iter().map(|w| w.outputs)).collect();
    let count: usize = places.iter().product();
    let (n, channels, out) = (window.len(), conv.channel.1, conv.out.1);
    let mut compute = Replacing::new(&task.compute, conv.stage);

    let at = spread(&Expr::var(0), &places);
    let (batch, outputs) = at.split_at(conv.batch.len());
    let under = |i: usize| {
        let w = &conv.windows[i];
        outputs[i].clone() * Expr::index(w.stride) + Expr::var(1 + i) * Expr::index(w.dilation)
    };
    let windows: Vec<Expr> = (0..n).map(under).collect();
    let body = Expr::Load(conv.input, conv.input_at(batch, &windows, &Expr::var(1 + n)));
    let shape = [&[count], &window[..], &[channels]].concat();
    let columns = compute.push(Stage::map("columns", TensorType::new(DType::F32, shape), body));

    let reduced: Vec<Expr> = (2..3 + n).map(Expr::var).collect();
    let (kernel, channel) = (&reduced[..n], &reduced[n]);
    let row = [&[Expr::var(0)], &reduced[..]].concat();
    let weight = Expr::Load(conv.weight, conv.weight_at(kernel, channel, &Expr::var(1)));
    let ty = TensorType::new(DType::F32, [count, out]);
    let extents = [&window[..], &[channels]].concat();
    let body = Expr::Load(columns, row) * weight;
    let product = compute.push(Stage::reduction("product", ty, Combiner::Sum, extents, body));

    let axes = conv.batch.iter().copied().chain(conv.windows.iter().map(|w| w.axis));
    let place: Vec<Expr> = axes.map(Expr::var).collect();
    let at = vec![flattened(&place, &places), Expr::var(conv.out.0)];
    let body = Expr::Load(product, at);
    compute.push(Stage::map(&original.name, original.ty.clone(), body));
    let task = Task { compute: compute.done(), ..task.clone() };
    Some(Rewritten { task, prepared: vec![] })
}
