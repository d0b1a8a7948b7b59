//! A sum of products as one product of matrices, whatever its axes are, for the warps of a GPU.
//!
//! ```text
//! conv[n, y, x, m] = sum{r, s, c} f32(in[n, y + r, x + s, c]) * f32(w[r, s, c, m])
//! =>
//! rows[i, t]       = in[n, y + r, x + s, c]      i: the number of (n, y, x), t: that of (r, s, c)
//! columns[t, j]    = w[r, s, c, m]               j: the number of m; zero beyond the last term
//! product[i, j]    = sum{t} f32(rows[i, t]) * f32(columns[t, j])
//! conv[n, y, x, m] = product[i, j]
//! ```
//!
//! Where there are few results, the terms are cut into parts, which make a further batch; what adds
//! them up takes the place of the result:
//!
//! ```text
//! partial[p, i, j] = sum{t} f32(rows[p, i, t]) * f32(columns[p, t, j])
//! conv[n, y, x, m] = sum{p} partial[p, i, j]
//! ```
//!
//! Axes of the result are rows, if the first factor alone walks along them, columns, if the second
//! one alone does, and batches, if both do. The innermost axis is one of columns. Terms come in
//! whole steps of the instruction. A factor keeps side by side what lies side by side in memory, so
//! that `rows` may be `[t, i]`, and `columns` be `[j, t]`.

use ansc_graph::arith::gcd;
use ansc_graph::flat::{flattened, spread};
use ansc_graph::{BufId, Combiner, Compute, Expr, Reduce, Scalar, Stage, TensorType, UnOp, VarId};
use ansc_runtime::DType;

use super::{Replacing, Rewritten};
use crate::gpu::GpuLimits;
use crate::intrinsic::mma;
use crate::lowering::THREAD_BYTES;
use crate::price::mma::Estimate;
use crate::task::Task;
use crate::usage::factors;

/// Instructions whose terms are copied to shared memory together, at least, where there are as
/// many.
const STEPS: usize = 2;

/// Names of the stages of both factors and of the product.
pub(crate) const STAGES: [&str; 3] = ["rows", "columns", "product"];
/// The name of the stage of sums that are not complete.
const PARTIAL: &str = "partial";

/// A stage that is such a sum.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Matrices {
    pub(crate) stage: usize,
    pub(crate) factors: [DType; 2],
    a: Factor,
    b: Factor,
    batch: Axes,
    rows: Axes,
    columns: Axes,
    terms: Axes,
    /// Parts of each sum.
    parts: usize,
}

#[derive(Clone, PartialEq, Debug)]
struct Factor {
    buffer: BufId,
    at: Vec<Expr>,
    /// Whether terms do not lie side by side.
    across: bool,
    /// The extent of its innermost axis.
    row: usize,
}

/// Some axes of a stage.
#[derive(Clone, PartialEq, Debug, Default)]
struct Axes {
    vars: Vec<usize>,
    extents: Vec<usize>,
}

/// None where no stage is such a sum, or the machine has no instructions for it.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    (task.gpu.is_some() && task.machine.units.mma).then_some(())?;
    let compute = Matrices::find(&task.compute)?.rewrite(&task.compute);
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

/// The same in parts; none where whole sums are enough work for a GPU.
pub(super) fn rewrite_in_parts(task: &Task) -> Option<Rewritten> {
    let limits = task.gpu.as_ref().filter(|_| task.machine.units.mma)?;
    let compute = Matrices::find(&task.compute)?.in_parts(limits)?.rewrite(&task.compute);
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

impl Matrices {
    /// The first stage that is one.
    pub(crate) fn find(compute: &Compute) -> Option<Matrices> {
        (0..compute.stages.len()).find_map(|stage| Matrices::of(compute, stage))
    }

    /// The product with sums in parts, if that takes less time.
    pub(crate) fn in_parts(&self, limits: &GpuLimits) -> Option<Matrices> {
        let parts = self.estimate(limits).parts();
        (parts > 1).then(|| Matrices { parts, ..self.clone() })
    }

    /// The numbers that the price of a cut depends on.
    pub(crate) fn estimate<'l>(&self, limits: &'l GpuLimits) -> Estimate<'l> {
        Estimate {
            batches: self.batch.count() * self.parts,
            sides: [self.rows.count(), self.columns.count()],
            steps: self.terms_of_part() / mma::terms(self.factors[0]),
            bytes: self.factors[0].size(),
            limits,
        }
    }

    /// Whether the terms of the factors do not lie side by side.
    pub(crate) fn across(&self) -> [bool; 2] {
        [self.a.across, self.b.across]
    }

    /// How many elements of a factor lie side by side in memory, each time.
    pub(crate) fn together(&self, side: usize) -> usize {
        let (factor, own) = [(&self.a, &self.rows), (&self.b, &self.columns)][side];
        let axes = if factor.across { own } else { &self.terms };
        let wide = axes.vars.iter().zip(&axes.extents).rfind(|(_, extent)| **extent > 1);
        match (wide, factor.at.last()) {
            (Some((v, extent)), Some(last)) if *last == Expr::var(*v) => gcd(*extent, factor.row),
            _ => 1,
        }
    }

    /// Where a point of what goes on with the product lies in it.
    pub(crate) fn place(&self) -> Vec<Expr> {
        match self.parts {
            1 => self.place_of_result(),
            _ => (0..self.batches() + 2).map(Expr::var).collect(),
        }
    }

    /// Axes before those of rows and columns.
    fn batches(&self) -> usize {
        self.batch.vars.len() + usize::from(self.parts > 1)
    }

    fn batch_shape(&self) -> Vec<usize> {
        let parts = (self.parts > 1).then_some(self.parts);
        self.batch.extents.iter().copied().chain(parts).collect()
    }

    /// Where a point of the result lies in a whole product.
    fn place_of_result(&self) -> Vec<Expr> {
        let mut at: Vec<Expr> = self.batch.vars.iter().copied().map(Expr::var).collect();
        at.extend([self.rows.flat(), self.columns.flat()]);
        at
    }

    fn of(compute: &Compute, stage: usize) -> Option<Matrices> {
        let s = &compute.stages[stage];
        let [x, y] = factors(s)?;
        let (x, y) = (factor(compute, s, x)?, factor(compute, s, y)?);
        let sides = [(&x, &y), (&y, &x)];
        sides.into_iter().find_map(|(a, b)| Matrices::with(compute, stage, a, b))
    }

    fn with(
        compute: &Compute,
        stage: usize,
        (x, a): &(DType, Factor),
        (y, b): &(DType, Factor),
    ) -> Option<Matrices> {
        let s = &compute.stages[stage];
        (mma::sum_of([*x, *y]) == Some(s.ty.dtype)).then_some(())?;
        let (rank, extents) = (s.ty.rank(), s.extents());
        let terms = Axes::of((rank..extents.len()).collect(), &extents);
        let [mut batch, mut rows, mut columns] = [(); 3].map(|()| Axes::default());
        for v in (0..rank).filter(|&v| extents[v] > 1) {
            let side = match (a.moves(v), b.moves(v)) {
                (true, true) => &mut batch,
                (true, false) => &mut rows,
                (false, true) => &mut columns,
                (false, false) => return None,
            };
            side.vars.push(v);
            side.extents.push(extents[v]);
        }
        let last = (0..rank).rfind(|&v| extents[v] > 1)?;
        let fits = columns.vars.contains(&last) && !rows.vars.is_empty();
        let (a, b) = (a.clone(), b.clone());
        let factors = [*x, *y];
        fits.then_some(Matrices { stage, factors, a, b, batch, rows, columns, terms, parts: 1 })
    }

    fn rewrite(&self, original: &Compute) -> Compute {
        let mut compute = Replacing::new(original, self.stage);
        let s = &original.stages[self.stage];
        let rows = compute.push(self.factor(STAGES[0], &self.a, &self.rows, self.factors[0]));
        let columns = compute.push(self.factor(STAGES[1], &self.b, &self.columns, self.factors[1]));
        let product = compute.push(self.product(s.ty.dtype, rows, columns));
        let result = match self.parts {
            1 => Stage::map(&s.name, s.ty.clone(), Expr::Load(product, self.place())),
            _ => {
                let shape = self.product_shape();
                let body = Expr::Load(product, self.place());
                let partial = Stage::map(PARTIAL, TensorType::new(s.ty.dtype, shape), body);
                let partial = compute.push(partial);
                let mut at = self.place_of_result();
                at.insert(self.batch.vars.len(), Expr::var(s.ty.rank()));
                let body = Expr::Load(partial, at);
                Stage::reduction(&s.name, s.ty.clone(), Combiner::Sum, vec![self.parts], body)
            }
        };
        compute.push(result);
        compute.done()
    }

    /// `factor[batch.., i, t]`, or the last two in the other order.
    fn factor(&self, name: &str, factor: &Factor, own: &Axes, dtype: DType) -> Stage {
        let n = self.batches();
        let (along, term) = if factor.across { (n + 1, n) } else { (n, n + 1) };
        let own_terms = Expr::index(self.terms_of_part());
        let term = match self.parts {
            1 => Expr::var(term),
            _ => Expr::var(n - 1) * own_terms + Expr::var(term),
        };
        let spread = |axes: &Axes, flat: &Expr| -> Vec<(usize, Expr)> {
            axes.vars.iter().copied().zip(spread(flat, &axes.extents)).collect()
        };
        let mut places: Vec<(usize, Expr)> =
            self.batch.vars.iter().copied().zip((0..).map(Expr::var)).collect();
        places.extend(spread(own, &Expr::var(along)));
        places.extend(spread(&self.terms, &term));
        // Axes of one element, and the number of a point of the other side.
        let place = |v: VarId| {
            let found = places.iter().find(|(axis, _)| *axis == v.index());
            Some(found.map_or(Expr::int(0), |(_, e)| e.clone()))
        };
        let load =
            Expr::Load(factor.buffer, factor.at.iter().map(|e| e.substitute(&place)).collect());
        let (terms, padded) = (self.terms.count(), self.padded_terms());
        let body = match padded == terms {
            true => load,
            false => {
                let inside = inside(&term, terms, THREAD_BYTES / dtype.size());
                Expr::select(inside, load, Expr::Const(Scalar::zero(dtype)))
            }
        };
        let (mut shape, terms) = (self.batch_shape(), self.terms_of_part());
        shape.extend(if factor.across { [terms, own.count()] } else { [own.count(), terms] });
        Stage::map(name, TensorType::new(dtype, shape), body)
    }

    fn product(&self, sum: DType, rows: BufId, columns: BufId) -> Stage {
        let n = self.batches();
        let [i, j, t] = [n, n + 1, n + 2].map(Expr::var);
        let at = |own: &Expr, across: bool| {
            let mut at: Vec<Expr> = (0..n).map(Expr::var).collect();
            let [own, t] = [own.clone(), t.clone()];
            at.extend(if across { [t, own] } else { [own, t] });
            at
        };
        let wide = |dtype, buffer, at| mma::read(dtype, sum, Expr::Load(buffer, at));
        let [x, y] = self.factors;
        let [a, b] = [at(&i, self.a.across), at(&j, self.b.across)];
        Stage {
            name: STAGES[2].into(),
            ty: TensorType::new(sum, self.product_shape()),
            reduce: Some(Reduce { combiner: Combiner::Sum, extents: vec![self.terms_of_part()] }),
            body: wide(x, rows, a) * wide(y, columns, b),
        }
    }

    fn product_shape(&self) -> Vec<usize> {
        let sides = [self.rows.count(), self.columns.count()];
        self.batch_shape().into_iter().chain(sides).collect()
    }

    /// Terms of each part of a sum.
    fn terms_of_part(&self) -> usize {
        self.padded_terms() / self.parts
    }

    /// Terms in whole instructions.
    pub(crate) fn padded_terms(&self) -> usize {
        let (terms, one) = (self.terms.count(), mma::terms(self.factors[0]));
        terms.next_multiple_of(if terms > one { one * STEPS } else { one })
    }
}

impl Axes {
    fn of(vars: Vec<usize>, extents: &[usize]) -> Axes {
        let extents = vars.iter().map(|&v| extents[v]).collect();
        Axes { vars, extents }
    }

    fn count(&self) -> usize {
        self.extents.iter().product()
    }

    /// The number of a point.
    fn flat(&self) -> Expr {
        let at: Vec<Expr> = self.vars.iter().copied().map(Expr::var).collect();
        flattened(&at, &self.extents)
    }
}

impl Factor {
    fn moves(&self, v: usize) -> bool {
        self.at.iter().any(|e| e.vars().contains(&VarId::new(v)))
    }
}

/// Whether a term is one, told for all that one thread loads together.
fn inside(term: &Expr, terms: usize, together: usize) -> Expr {
    match terms.is_multiple_of(together) {
        true => term.clone().floor_div(together as i64).lt(Expr::index(terms / together)),
        false => term.clone().lt(Expr::index(terms)),
    }
}

/// An element that is converted to the type of sums, or of which fewer bits are read.
fn factor(compute: &Compute, s: &Stage, e: &Expr) -> Option<(DType, Factor)> {
    let (Expr::Cast(_, x) | Expr::Unary(UnOp::Tf32, x)) = e else { return None };
    let Expr::Load(buffer, at) = &**x else { return None };
    let ty = compute.buffer_type(*buffer);
    let wide = at.iter().zip(&ty.shape).rfind(|(_, extent)| **extent > 1);
    let innermost = wide.map(|(e, _)| e.vars()).unwrap_or_default();
    let across = !innermost.iter().any(|v| v.index() >= s.ty.rank());
    let row = ty.shape.last().copied().unwrap_or(1);
    Some((ty.dtype, Factor { buffer: *buffer, at: at.clone(), across, row }))
}
