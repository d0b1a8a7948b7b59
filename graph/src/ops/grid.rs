//! `GridSample`: a tensor read at positions that are data; and `AffineGrid`, which makes such
//! positions.
//!
//! ```text
//! grid_sample(f32[n, c, h, w], f32[n, y, x, 2], bilinear)
//! ->  at0, at1: f32[n, y, x] = the position in pixels along each axis, from -1..1
//!     sample: f32[n, c, y, x] = four pixels around it, weighted by how near they are
//! ```
//!
//! Any position leads to indices inside of the tensor, NaN and infinities included. What is mixed
//! at a position that is NaN is NaN; with zeros beyond the tensor, infinitely far away there are
//! zeros.

use ansc_runtime::DType;

use super::index::own;
use super::{OpError, sized};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BufId, Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// Attributes of `GridSample`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GridAttrs {
    /// How elements around a position are mixed.
    pub mode: GridMode,
    /// The values of positions outside of the tensor.
    pub padding: GridPadding,
    /// -1 and 1 are the centres of the outermost pixels, not their outer edges.
    pub align_corners: bool,
}

/// How elements around a position are mixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridMode {
    /// The nearest element alone.
    Nearest,
    /// The two nearest elements of each axis, weighted by their distance.
    Linear,
    /// The four nearest elements of each axis, by a cubic polynomial.
    Cubic,
}

/// The elements that lie beyond the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridPadding {
    /// Nothing but zeros.
    Zeros,
    /// The outermost elements again and again.
    Border,
    /// The tensor mirrored at its edges (or, with `align_corners`, its outermost elements).
    Reflection,
}

/// Up to this number of elements of the input are mixed in one expression; more are summed up by a
/// reduction.
const MAX_POINTS: usize = 8;

/// Keys' constant of cubic convolution.
const CUBIC: f64 = -0.75;

/// `x` is `[n, c, spatial..]`, `grid` is `[n, out.., positions]` with the last axis's position
/// first.
pub fn grid_sample(
    x: &TensorType,
    grid: &TensorType,
    attrs: GridAttrs,
) -> Result<ComputeOp, OpError> {
    let sample = Sample::new(x, grid, attrs)?;
    let mut expr =
        Compute { inputs: vec![x.clone(), grid.clone()], stages: vec![], outputs: vec![] };
    let positions: Vec<BufId> =
        (0..sample.rank()).map(|axis| expr.push(sample.position(axis))).collect();
    sample.push_result(&mut expr, &positions);
    expr.outputs = vec![expr.stages.len() - 1];
    Ok(ComputeOp::new(Kind::Other("GridSample".into()), expr))
}

struct Sample<'a> {
    x: &'a TensorType,
    grid: &'a TensorType,
    attrs: GridAttrs,
    /// The result, in the type that it is computed in.
    out: TensorType,
}

impl<'a> Sample<'a> {
    fn new(
        x: &'a TensorType,
        grid: &'a TensorType,
        attrs: GridAttrs,
    ) -> Result<Sample<'a>, OpError> {
        let rank = x.rank().checked_sub(2).filter(|&r| r > 0);
        let fits =
            |r| grid.rank() == r + 2 && grid.shape[r + 1] == r && grid.shape[0] == x.shape[0];
        if !rank.is_some_and(fits) || !grid.dtype.is_float() {
            return Err(OpError::Invalid(format!("a grid {grid} does not fit a tensor {x}")));
        }
        let shape = [&x.shape[..2], &grid.shape[1..grid.rank() - 1]].concat();
        let out = sized(TensorType::new(working_type(x.dtype, attrs.mode), shape))?;
        if x.is_empty() && !out.is_empty() {
            return Err(OpError::Invalid("there are no elements to sample".into()));
        }
        Ok(Sample { x, grid, attrs, out })
    }

    /// Number of spatial axes.
    fn rank(&self) -> usize {
        self.x.rank() - 2
    }

    fn extent(&self, axis: usize) -> usize {
        self.x.shape[axis + 2].max(1)
    }

    /// The type of positions.
    fn real(&self) -> DType {
        self.grid.dtype.accumulator()
    }

    /// The positions along a spatial axis, in elements, for each point of the grid.
    fn position(&self, axis: usize) -> Stage {
        let real = self.real();
        let number = |v: f64| Expr::float(real, v);
        let n = self.extent(axis) as f64;
        let shape = &self.grid.shape[..self.grid.rank() - 1];
        let mut indices = own(shape.len());
        indices.push(Expr::index(self.rank() - 1 - axis));
        let given = Expr::cast(self.grid.dtype, real, Expr::load(1, indices)) + number(1.0);
        let mut at = match self.attrs.align_corners {
            true => given * number((n - 1.0) / 2.0),
            false => (given * number(n) - number(1.0)) * number(0.5),
        };
        if self.attrs.mode == GridMode::Nearest {
            at = Expr::unary(UnOp::Round, at);
        }
        let at = match self.attrs.padding {
            // Beyond the reach of all taps one place is as good as another.
            GridPadding::Zeros => at.max(number(-4.0)).min(number(n + 4.0)),
            // Each tap is the nearest element by itself.
            GridPadding::Border if self.attrs.mode == GridMode::Cubic => {
                at.max(number(-4.0)).min(number(n + 4.0))
            }
            GridPadding::Border => at.max(number(0.0)).min(number(n - 1.0)),
            GridPadding::Reflection => self.reflected(at, n),
        };
        Stage::map(&format!("at{axis}"), TensorType::new(real, shape), at)
    }

    /// `at` mirrored into the tensor, as a real number.
    fn reflected(&self, at: Expr, n: f64) -> Expr {
        let number = |v: f64| Expr::float(self.real(), v);
        let (low, length) = if self.attrs.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
        if length == 0.0 {
            return number(0.0);
        }
        let period = number(2.0 * length);
        let from = Expr::unary(UnOp::Abs, at - number(low));
        let turns = Expr::unary(UnOp::Floor, from.clone() / period.clone());
        let rest = from - turns * period.clone();
        let back = period - rest.clone();
        Expr::select(rest.clone().le(number(length)), rest, back) + number(low)
    }

    /// Elements mixed along each axis.
    fn taps(&self) -> usize {
        match self.attrs.mode {
            GridMode::Nearest => 1,
            GridMode::Linear => 2,
            GridMode::Cubic => 4,
        }
    }

    fn push_result(&self, expr: &mut Compute, positions: &[BufId]) {
        let rank = self.rank();
        let points = u32::try_from(rank).ok().and_then(|r| self.taps().checked_pow(r));
        let ty = self.out.clone();
        let to = self.x.dtype;
        let convert = |v: Expr| {
            let v = if to.is_int() && ty.dtype != to { Expr::unary(UnOp::Round, v) } else { v };
            Expr::cast(ty.dtype, to, v)
        };
        let result = TensorType::new(to, ty.shape.clone());
        if points.is_some_and(|p| p <= MAX_POINTS) {
            let body = convert(self.mixed(positions, &mut vec![]));
            expr.push(Stage::map("sample", result, body));
            return;
        }
        let taps: Vec<Expr> = (0..rank).map(|axis| Expr::var(ty.rank() + axis)).collect();
        let weights = (0..rank).map(|axis| self.weight(positions[axis], &taps[axis]));
        let body = weights.fold(self.element(positions, &taps), |e, weight| e * weight);
        let extents = vec![self.taps(); rank];
        let sum = expr.push(Stage::reduction("sum", ty.clone(), Combiner::Sum, extents, body));
        if ty.dtype != to {
            let body = convert(Expr::Load(sum, own(ty.rank())));
            expr.push(Stage::map("sample", result, body));
        }
    }

    /// The weighted sum over the taps of the axes after those whose taps are given.
    fn mixed(&self, positions: &[BufId], taps: &mut Vec<Expr>) -> Expr {
        let axis = taps.len();
        if axis == self.rank() {
            return self.element(positions, taps);
        }
        let terms: Vec<Expr> = (0..self.taps())
            .map(|tap| {
                taps.push(Expr::index(tap));
                let inner = self.mixed(positions, taps);
                let tap = taps.pop().expect("pushed above");
                if self.taps() == 1 { inner } else { inner * self.weight(positions[axis], &tap) }
            })
            .collect();
        terms.into_iter().reduce(|a, b| a + b).expect("there is a tap")
    }

    /// Where the point of the grid lies that belongs to this point of the result.
    fn at(&self, position: BufId) -> Expr {
        let indices = (0..self.out.rank()).filter(|&v| v != 1).map(Expr::var).collect();
        Expr::Load(position, indices)
    }

    /// How far tap `tap` lies from the element at or before the position.
    fn offset(&self, tap: &Expr) -> Expr {
        match self.attrs.mode {
            GridMode::Cubic => tap.clone() - Expr::int(1),
            _ => tap.clone(),
        }
    }

    /// The element that the taps lead to, in the type of the sum.
    fn element(&self, positions: &[BufId], taps: &[Expr]) -> Expr {
        let mut indices = vec![Expr::var(0), Expr::var(1)];
        let mut inside = Vec::new();
        for (axis, tap) in taps.iter().enumerate() {
            let floor = Expr::unary(UnOp::Floor, self.at(positions[axis]));
            let at = Expr::cast(self.real(), DType::I64, floor) + self.offset(tap);
            let n = Expr::index(self.extent(axis));
            if self.attrs.padding == GridPadding::Zeros {
                inside.push(Expr::int(0).le(at.clone()).and(at.clone().lt(n)));
            }
            indices.push(self.kept(at, axis));
        }
        let load = Expr::cast(self.x.dtype, self.out.dtype, Expr::load(0, indices));
        match inside.into_iter().reduce(Expr::and) {
            Some(inside) => Expr::select(inside, load, Expr::float(self.out.dtype, 0.0)),
            None => load,
        }
    }

    /// An index inside of the axis, by the rule for what lies beyond.
    fn kept(&self, at: Expr, axis: usize) -> Expr {
        let n = self.extent(axis) as i64;
        match self.attrs.padding {
            GridPadding::Zeros => at,
            GridPadding::Reflection if n > 1 => {
                // Not aligned, the outermost elements are their own first mirror images.
                let period = if self.attrs.align_corners { 2 * (n - 1) } else { 2 * n };
                let back = if self.attrs.align_corners { period } else { period - 1 };
                let at = at.floor_mod(period);
                Expr::select(at.clone().lt(Expr::int(n)), at.clone(), Expr::int(back) - at)
            }
            GridPadding::Border | GridPadding::Reflection => {
                at.max(Expr::int(0)).min(Expr::int(n - 1))
            }
        }
    }

    fn weight(&self, position: BufId, tap: &Expr) -> Expr {
        let real = self.real();
        let number = |v: f64| Expr::float(real, v);
        let at = self.at(position);
        let fraction = at.clone() - Expr::unary(UnOp::Floor, at);
        let tap = Expr::cast(DType::I64, real, self.offset(tap));
        let distance = Expr::unary(UnOp::Abs, tap - fraction);
        let weight = match self.attrs.mode {
            GridMode::Cubic => cubic(distance, &number),
            _ => number(1.0) - distance,
        };
        Expr::cast(real, self.out.dtype, weight)
    }
}

/// Sums are computed in floats; where one element is chosen there is nothing to sum up.
fn working_type(dtype: DType, mode: GridMode) -> DType {
    match dtype {
        _ if mode == GridMode::Nearest => dtype,
        DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U64 => DType::F64,
        _ => DType::F32,
    }
}

/// The kernel of cubic convolution at a distance of up to 2.
fn cubic(x: Expr, number: &impl Fn(f64) -> Expr) -> Expr {
    let a = CUBIC;
    let near = ((number(a + 2.0) * x.clone() - number(a + 3.0)) * x.clone()) * x.clone();
    let far = (number(a) * x.clone() - number(5.0 * a)) * x.clone() + number(8.0 * a);
    let far = far * x.clone() - number(4.0 * a);
    Expr::select(x.le(number(1.0)), near + number(1.0), far)
}

/// The grid that reads a tensor of spatial shape `size` through the affine maps `theta`, which is
/// `[n, r, r + 1]` for `r` spatial axes.
pub fn affine_grid(
    theta: &TensorType,
    size: &[usize],
    align_corners: bool,
) -> Result<ComputeOp, OpError> {
    let r = size.len();
    if theta.rank() != 3 || theta.shape[1..] != [r, r + 1] || !theta.dtype.is_float() {
        return Err(OpError::Invalid(format!(
            "affine maps {theta} do not fit a tensor of {r} spatial axes"
        )));
    }
    let real = theta.dtype.accumulator();
    let number = |v: f64| Expr::float(real, v);
    let out = sized(TensorType::new(theta.dtype, [&[theta.shape[0]], size, &[r]].concat()))?;
    // Component k of the result is that of the k-th axis from the end, and so are columns of theta.
    let map = |column: usize| {
        let indices = vec![Expr::var(0), Expr::var(r + 1), Expr::index(column)];
        Expr::cast(theta.dtype, real, Expr::load(0, indices))
    };
    let position = |axis: usize| {
        let (n, v) = (size[axis], Expr::cast(DType::I64, real, Expr::var(axis + 1)));
        match (align_corners, n) {
            (true, 0 | 1) => number(-1.0),
            (true, n) => v * number(2.0 / (n as f64 - 1.0)) - number(1.0),
            (false, n) => (v * number(2.0) + number(1.0)) / number(n as f64) - number(1.0),
        }
    };
    let body = (0..r).fold(map(r), |sum, column| sum + map(column) * position(r - 1 - column));
    let stage = Stage::map("affine_grid", out, Expr::cast(real, theta.dtype, body));
    let expr = Compute::single(vec![theta.clone()], stage);
    Ok(ComputeOp::new(Kind::Other("AffineGrid".into()), expr))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;

    const LINEAR: GridAttrs =
        GridAttrs { mode: GridMode::Linear, padding: GridPadding::Zeros, align_corners: false };

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    #[test]
    fn a_grid_must_fit() {
        let x = f32s(&[1, 3, 4, 5]);
        let op = grid_sample(&x, &f32s(&[1, 6, 7, 2]), LINEAR).unwrap();
        assert_eq!(op.expr.output_types(), [f32s(&[1, 3, 6, 7])]);
        for bad in [&[2, 6, 7, 2][..], &[1, 6, 7, 3], &[1, 6, 2], &[]] {
            assert!(grid_sample(&x, &f32s(bad), LINEAR).is_err(), "{bad:?}");
        }
        assert!(grid_sample(&f32s(&[1, 3]), &f32s(&[1, 0]), LINEAR).is_err());
        assert!(affine_grid(&f32s(&[1, 2, 3]), &[4, 5, 6], false).is_err());
    }

    /// Squares of 0 to 4 at places beyond both ends, as PyTorch has them.
    #[test]
    fn taps_beyond_a_border_are_its_elements() {
        let x = Tensor::from_slice(&[1, 1, 1, 5], &[0f32, 1.0, 4.0, 9.0, 16.0]);
        let at = [-1.2f32, 0.0, -1.1, 0.0, 1.1, 0.0, 1.3, 0.0, -5.0, 0.0];
        let grid = Tensor::from_slice(&[1, 1, 5, 2], &at);
        let aligned = [-0.108, -0.096, 16.672, 16.504, 0.0];
        let apart = [0.0, -0.03515625, 16.24609375, 16.0, 0.0];
        for (align_corners, expected) in [(true, aligned), (false, apart)] {
            let (mode, padding) = (GridMode::Cubic, GridPadding::Border);
            let attrs = GridAttrs { mode, padding, align_corners };
            let op = grid_sample(&TensorType::of(&x), &TensorType::of(&grid), attrs).unwrap();
            let y = crate::interp::eval(&op.expr, &[&x, &grid]).unwrap();
            let close = y[0].to_f64_vec().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4);
            assert!(close, "{y:?}");
        }
    }

    #[test]
    fn positions_that_are_no_numbers_read_nothing() {
        let x = Tensor::from_slice(&[1, 1, 1, 3], &[1f32, 2.0, 3.0]);
        let at = [f32::NAN, 0.0, f32::INFINITY, 0.0, -1e30, 0.0, 0.0, 0.0];
        let grid = Tensor::from_slice(&[1, 1, 4, 2], &at);
        for mode in [GridMode::Nearest, GridMode::Linear, GridMode::Cubic] {
            for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
                let attrs = GridAttrs { mode, padding, align_corners: false };
                let op = grid_sample(&TensorType::of(&x), &TensorType::of(&grid), attrs).unwrap();
                let y = crate::interp::eval(&op.expr, &[&x, &grid]).unwrap();
                let y = y[0].as_slice::<f32>();
                assert_eq!(y[3], 2.0, "{attrs:?}");
                assert_eq!(y[0].is_nan(), mode != GridMode::Nearest, "{attrs:?}: {y:?}");
                let beyond = match padding {
                    GridPadding::Zeros => Some([0.0, 0.0]),
                    GridPadding::Border => Some([3.0, 1.0]),
                    GridPadding::Reflection => None,
                };
                assert!(beyond.is_none_or(|beyond| y[1..3] == beyond), "{attrs:?}: {y:?}");
            }
        }
    }
}
