//! A convolution as one product of matrices, whose results are then added up: each tap of the
//! window has columns of its own.
//!
//! ```text
//! conv[n, y, x, k] = sum{r, s, c} in[n, y * 2 + r, x * 2 + s, c] * w[r, s, c, k]
//! =>
//! taps[p, t]       = sum{c} in[n, i, j, c] * m[c, t]          p: the number of (n, i, j), t that of (r, s, k)
//! conv[n, y, x, k] = sum{r, s} taps[(n, y * 2 + r, x * 2 + s), (r, s, k)]
//! ```
//!
//! Where there are few output channels, vectors along them are mostly empty; here they are as long
//! as the window has taps. Places that a stride leaves out are multiplied in vain: where most are,
//! or where the products take many times the memory of all else, the algorithm does not apply. `m`
//! is made of constant weights when compiling.

use ansc_graph::{BufId, Combiner, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::Convolution;
use super::{Replacing, Rewritten};
use crate::task::Task;
use ansc_graph::flat::{flattened, spread};

/// Places that are multiplied, for each one that is wanted, at most: a stride of two along three
/// axes has as many.
const MOST_PLACES: usize = 8;
/// Products that are kept, for each element of the image and of the result, at most.
const MOST_PRODUCTS: usize = 32;

pub(super) fn rewrite(task: &Task, conv: &Convolution) -> Option<Rewritten> {
    let taps = Taps::of(task, conv)?;
    let mut compute = Replacing::new(&task.compute, conv.stage);
    let mut prepared = vec![];
    let matrix = compute.laid_out(task, conv.weight, &mut prepared, |from| taps.matrix(from));
    let products = compute.push(taps.products(matrix));
    compute.push(taps.added(products, &task.compute.stages[conv.stage]));
    Some(Rewritten { task: Task { compute: compute.done(), ..task.clone() }, prepared })
}

struct Taps<'a> {
    conv: &'a Convolution,
    /// Extents of the window, then the output channels.
    columns: Vec<usize>,
    /// Extents of the batch axes, then of what windows slide over.
    places: Vec<usize>,
}

impl<'a> Taps<'a> {
    /// None of a window of one tap.
    fn of(task: &Task, conv: &'a Convolution) -> Option<Taps<'a>> {
        let sizes: Vec<usize> = conv.windows.iter().map(|w| w.size).collect();
        if sizes.iter().product::<usize>() < 2 {
            return None;
        }
        let stage = &task.compute.stages[conv.stage];
        let batch = conv.batch.iter().map(|&axis| stage.ty.shape[axis]);
        let reached =
            conv.windows.iter().map(|w| (w.outputs - 1) * w.stride + (w.size - 1) * w.dilation + 1);
        let places: Vec<usize> = batch.clone().chain(reached).collect();
        let taps = Taps { conv, columns: [&sizes[..], &[conv.out.1]].concat(), places };
        let multiplied = taps.places.iter().product::<usize>();
        let wanted = batch.chain(conv.windows.iter().map(|w| w.outputs)).product::<usize>();
        let elements = multiplied * conv.channel.1 + wanted * conv.out.1;
        let few = multiplied <= MOST_PLACES * wanted
            && multiplied.checked_mul(taps.width())? <= MOST_PRODUCTS * elements;
        few.then_some(taps)
    }

    fn width(&self) -> usize {
        self.columns.iter().product()
    }

    fn matrix_type(&self) -> TensorType {
        TensorType::new(DType::F32, [self.conv.channel.1, self.width()])
    }

    /// The weights as input channels by columns.
    fn matrix(&self, weight: BufId) -> Stage {
        let column = spread(&Expr::var(1), &self.columns);
        let (kernel, out) = column.split_at(self.columns.len() - 1);
        let at = self.conv.weight_at(kernel, &Expr::var(0), &out[0]);
        Stage::map("matrix", self.matrix_type(), Expr::Load(weight, at))
    }

    fn products(&self, matrix: BufId) -> Stage {
        let place = spread(&Expr::var(0), &self.places);
        let (batch, windows) = place.split_at(self.conv.batch.len());
        let channel = Expr::var(2);
        let element = Expr::Load(self.conv.input, self.conv.input_at(batch, windows, &channel));
        let weight = Expr::Load(matrix, vec![channel, Expr::var(1)]);
        let ty = TensorType::new(DType::F32, [self.places.iter().product(), self.width()]);
        Stage::reduction("taps", ty, Combiner::Sum, vec![self.conv.channel.1], element * weight)
    }

    /// In place of the convolution.
    fn added(&self, products: BufId, conv: &Stage) -> Stage {
        let rank = conv.ty.rank();
        let term = |i: usize| Expr::var(rank + i);
        let batch = self.conv.batch.iter().map(|&axis| Expr::var(axis));
        let windows = self.conv.windows.iter().enumerate().map(|(i, w)| {
            Expr::var(w.axis) * Expr::index(w.stride) + term(i) * Expr::index(w.dilation)
        });
        let place: Vec<Expr> = batch.chain(windows).collect();
        let count = self.conv.windows.len();
        let column: Vec<Expr> = (0..count).map(term).chain([Expr::var(self.conv.out.0)]).collect();
        let at = vec![flattened(&place, &self.places), flattened(&column, &self.columns)];
        let window = self.columns[..count].to_vec();
        let (name, ty) = (&conv.name, conv.ty.clone());
        Stage::reduction(name, ty, Combiner::Sum, window, Expr::Load(products, at))
    }
}
