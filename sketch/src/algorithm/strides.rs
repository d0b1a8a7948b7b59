//! Windows that slide along the innermost axis by a stride, over columns that lie a stride apart
//! side by side.
//!
//! ```text
//! pad[n, c, y, x]  = select(.., in[n, c, y - 3, x - 3], 0)
//! conv[n, c, y, x] = sum{r: 7, s: 7} pad[n, c, y * 2 + r, x * 2 + s] * w[c, r, s]
//! =>
//! pad[n, c, y, x]        = the same, with zeros up to whole columns
//! columns[n, c, y, p, x] = pad[n, c, y, x * 2 + p]                                    p: 2
//! conv[n, c, y, x]       = sum{r: 7, s: 7} columns[n, c, y * 2 + r, s % 2, x + s / 2] * w[c, r, s]
//! ```
//!
//! Vectors along the axis load neighbours then, where they would gather each element for each term.
//! Padding stays a stage of its own: vectors that pad and leap at once would choose each element.

use ansc_graph::{BufId, Compute, Expr, Scalar, Stage, TensorType, VarId};

use super::convolution::Term;
use super::{Replacing, Rewritten, without};
use crate::task::Task;
use crate::usage::{has_reuse, is_padding};

/// Longer strides leave most columns out.
const LONGEST: usize = 4;

/// The load of a stage that a window slides over.
struct Sliding {
    stage: usize,
    buffer: BufId,
    at: Vec<Expr>,
    /// The variable that runs over the window.
    term: VarId,
    size: usize,
    stride: usize,
    dilation: usize,
}

/// None where no stage has such a window.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let original = &task.compute;
    let sliding = (0..original.stages.len()).find_map(|stage| Sliding::of(original, stage))?;
    let mut compute = Replacing::new(original, sliding.stage);
    let image = match sliding.map_of(original).map(|stage| sliding.widened(original, stage)) {
        Some(image) => compute.push(image),
        None => sliding.buffer,
    };
    let count = sliding.count(original);
    let columns = compute.push(sliding.columns(&compute.compute, count, image));
    compute.push(sliding.reduced(original, columns));
    let compute = compute.done();
    let source = sliding.map_of(original);
    let compute = source.and_then(|stage| without(&compute, stage)).unwrap_or(compute);
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

impl Sliding {
    fn of(compute: &Compute, stage: usize) -> Option<Sliding> {
        let s = &compute.stages[stage];
        let (rank, extents) = (s.ty.rank(), s.extents());
        s.reduce.as_ref().filter(|_| has_reuse(s))?;
        let last = rank.checked_sub(1)?;
        let sliding = s.body.loads().into_iter().find_map(|(buffer, at)| {
            let (index, others) = at.split_last()?;
            let Term::Window { axis, kernel, stride, dilation } = Term::of(index, rank)? else {
                return None;
            };
            let is_other = |v: &VarId| *v == VarId::new(axis) || *v == kernel;
            let alone = !others.iter().any(|index| index.vars().iter().any(is_other));
            let fits = axis == last && alone && (2..=LONGEST).contains(&stride);
            let (at, size) = (at.to_vec(), extents[kernel.index()]);
            let found = Sliding { stage, buffer, at, term: kernel, size, stride, dilation };
            fits.then_some(found)
        })?;
        let loads = s.body.loads().into_iter().filter(|(buffer, _)| *buffer == sliding.buffer);
        (loads.count() == 1 && sliding.size > 1 && !extents.contains(&0)).then_some(sliding)
    }

    /// The stage that makes what the window slides over, if that is made element by element.
    fn map_of(&self, compute: &Compute) -> Option<usize> {
        compute.stage_of(self.buffer).filter(|&stage| compute.stages[stage].reduce.is_none())
    }

    /// Elements of a column that the windows reach.
    fn count(&self, compute: &Compute) -> usize {
        let outputs = *compute.stages[self.stage].ty.shape.last().expect("an axis to slide along");
        outputs + (self.size - 1) * self.dilation / self.stride
    }

    /// The image that the window slides over, with zeros behind it for whole columns.
    fn widened(&self, compute: &Compute, stage: usize) -> Stage {
        let mut image = compute.stages[stage].clone();
        let last = image.ty.rank() - 1;
        let (extent, whole) = (image.ty.shape[last], self.count(compute) * self.stride);
        image.ty.shape[last] = whole;
        if whole > extent {
            let within = Expr::var(last).lt(Expr::index(extent));
            let is_padding = is_padding(&image.body);
            image.body = match image.body {
                // One choice, which reads nothing.
                Expr::Select(condition, element, outside) if is_padding => {
                    Expr::select(condition.and(within), *element, *outside)
                }
                body => Expr::select(within, body, Expr::Const(Scalar::zero(image.ty.dtype))),
            };
        }
        image
    }

    /// `columns[.., p, x]`, of the element at `x * stride + p`.
    fn columns(&self, compute: &Compute, count: usize, image: BufId) -> Stage {
        let ty = compute.buffer_type(image);
        let last = ty.rank() - 1;
        let mut shape = ty.shape.clone();
        shape[last] = self.stride;
        shape.push(count);
        let place = Expr::var(last + 1) * Expr::index(self.stride) + Expr::var(last);
        let outer = (0..last).map(Expr::var);
        let element = Expr::Load(image, outer.chain([place.clone()]).collect());
        let body = match count * self.stride > ty.shape[last] {
            true => {
                let within = place.lt(Expr::index(ty.shape[last]));
                Expr::select(within, element, Expr::Const(Scalar::zero(ty.dtype)))
            }
            false => element,
        };
        Stage::map("columns", TensorType::new(ty.dtype, shape), body)
    }

    /// The stage itself, over the columns.
    fn reduced(&self, compute: &Compute, columns: BufId) -> Stage {
        let original = &compute.stages[self.stage];
        let last = Expr::var(original.ty.rank() - 1);
        let along = match self.dilation {
            1 => Expr::Var(self.term),
            d => Expr::Var(self.term) * Expr::index(d),
        };
        let stride = self.stride as i64;
        let mut at = self.at.clone();
        at.pop();
        at.extend([along.clone().floor_mod(stride), last + along.floor_div(stride)]);
        let mut stage = original.clone();
        stage.body = original.body.rewrite(&mut |e| match e {
            Expr::Load(buffer, _) if *buffer == self.buffer => {
                Some(Expr::Load(columns, at.clone()))
            }
            _ => None,
        });
        stage
    }
}
