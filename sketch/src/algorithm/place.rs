//! The position of an extreme as two reductions that vectors can do: the extreme, and then the
//! first place that has it.
//!
//! ```text
//! y[i] = argmax{r: 300} x[i, r]
//! =>
//! best[i]  = max{r: 300} x[i, r]
//! place[i] = min{r: 300} select(x[i, r] == best[i] or x[i, r] is NaN, r, 300)
//! y[i]     = i64(place[i])
//! ```
//!
//! A maximum or minimum is NaN if a term is, and then no term equals it: the first NaN is found.
//! Where the last place is wanted, it is a maximum of places. All results are those of the one
//! reduction.

use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType, UnOp};
use ansc_runtime::DType;

use super::{Replacing, Rewritten};
use crate::task::Task;
use ansc_graph::flat::flattened;

/// Positions up to here are computed as `i32`, twice as many in a vector as of `i64`.
const MOST: usize = i32::MAX as usize;

/// None where no stage is the position of an extreme.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let stages = &task.compute.stages;
    let (stage, extreme) =
        stages.iter().enumerate().find_map(|(i, s)| Some((i, Extreme::of(s)?)))?;
    let compute = extreme.rewrite(&task.compute, stage)?;
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

struct Extreme {
    combiner: Combiner,
    last: bool,
}

impl Extreme {
    fn of(stage: &Stage) -> Option<Extreme> {
        match stage.reduce.as_ref()?.combiner {
            Combiner::ArgMax { last } => Some(Extreme { combiner: Combiner::Max, last }),
            Combiner::ArgMin { last } => Some(Extreme { combiner: Combiner::Min, last }),
            Combiner::Sum | Combiner::Prod | Combiner::Max | Combiner::Min => None,
        }
    }

    fn rewrite(&self, compute: &Compute, stage: usize) -> Option<Compute> {
        let s = &compute.stages[stage];
        let extents = s.reduce.as_ref()?.extents.clone();
        let terms: usize = extents.iter().product();
        if terms > MOST || s.extents().contains(&0) {
            return None;
        }
        let (rank, dtype) = (s.ty.rank(), s.body.dtype(&|b| compute.buffer_type(b).dtype));
        let of = |dtype| TensorType::new(dtype, s.ty.shape.clone());
        let here: Vec<Expr> = (0..rank).map(Expr::var).collect();
        let mut result = Replacing::new(compute, stage);
        let best =
            Stage::reduction("best", of(dtype), self.combiner, extents.clone(), s.body.clone());
        let best = Expr::Load(result.push(best), here.clone());
        let mut found = s.body.clone().eq(best);
        if dtype.is_float() {
            found = found.or(Expr::unary(UnOp::IsNan, s.body.clone()));
        }
        let term = (rank..rank + extents.len()).map(Expr::var).collect::<Vec<_>>();
        let place = Expr::cast(DType::I64, DType::I32, flattened(&term, &extents));
        let (combiner, none) = match self.last {
            false => (Combiner::Min, terms as f64),
            true => (Combiner::Max, -1.0),
        };
        let place = Expr::select(found, place, Expr::float(DType::I32, none));
        let place = Stage::reduction("place", of(DType::I32), combiner, extents, place);
        let place = Expr::Load(result.push(place), here);
        let value = Expr::cast(DType::I32, DType::I64, place);
        result.push(Stage::map(&s.name, s.ty.clone(), value));
        Some(result.done())
    }
}
