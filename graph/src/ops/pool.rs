//! Pooling over sliding windows, for any spatial rank and either channel order.
//!
//! ```text
//! max_pool(2x2, strides 2, f32[1, 3, 8, 8])
//! ->  max: f32[1, 3, 4, 4] = max[2, 2] b0[v0, v1, v2 * 2 + v4, v3 * 2 + v5]
//! ```
//!
//! Padding never wins a maximum. `pads_end` may be larger than the operator's attribute where the
//! output size is rounded up and the last window sticks out of input and padding.

use ansc_runtime::DType;

use super::OpError;
use super::conv::Window;
use super::reduce::compared;
use super::stages::{Source, Stages, real};
use crate::compute::{Combiner, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::flat::spread;
use crate::op::{ComputeOp, Kind, PoolAttrs, PoolMode};
use crate::scalar::Scalar;

impl PoolAttrs {
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

    /// The type of the result for an input `x`, and the spatial extents in it.
    fn output(&self, x: &TensorType) -> Result<(TensorType, Vec<usize>), OpError> {
        let (first, n) = (self.channels.first_spatial(), self.kernel.len());
        if x.rank() != n + 2 {
            let expected = (n + 2).to_string();
            let found = x.shape.clone();
            return Err(OpError::Rank { what: "the input of a pool", expected, found });
        }
        let spatial = self.window().output(&x.shape[first..first + n])?;
        let mut shape = x.shape.clone();
        shape[first..first + n].copy_from_slice(&spatial);
        Ok((TensorType::new(x.dtype, shape), spatial))
    }

    /// Indices into the padded input of element `k` of the window at `o`.
    fn indices(&self, o: &[Expr], k: &[Expr]) -> Vec<Expr> {
        let (first, window) = (self.channels.first_spatial(), self.window());
        let mut indices = o.to_vec();
        for (i, k) in k.iter().enumerate() {
            indices[first + i] = window.index(i, o[first + i].clone(), k.clone());
        }
        indices
    }
}

/// The largest element of each window.
pub fn max_pool(attrs: PoolAttrs, x: &TensorType) -> Result<ComputeOp, OpError> {
    let (ty, spatial) = attrs.output(x)?;
    let (mut s, [_]) = Stages::new([x]);
    let first = attrs.channels.first_spatial();
    let (dtype, compared) = (x.dtype, compared(x.dtype));
    let x = s.pad(&attrs.window(), first, &spatial, Scalar::lowest(dtype))?;
    let ty = TensorType { dtype: compared, ..ty };
    let y = s.reduce("max", Combiner::Max, ty, &attrs.kernel, |o, k| {
        x.at_as(compared, &attrs.indices(o, k))
    });
    let y = s.cast(y, dtype);
    Ok(s.finish(Kind::Pool(attrs), &[&y]))
}

/// `x -> y, indices`: `indices` are positions in the flattened input, counted with the spatial axes
/// in row-major order, or in column-major order where `column_major`. Of a window that lies in the
/// padding as a whole, the index is that of the nearest element.
pub fn max_pool_with_indices(
    attrs: PoolAttrs,
    column_major: bool,
    x: &TensorType,
) -> Result<ComputeOp, OpError> {
    let (ty, _) = attrs.output(x)?;
    let (mut s, [x]) = Stages::new([x]);
    let positions = TensorType::new(DType::I64, ty.shape.clone());
    let (ordered, below_all) = ordered_type(x.dtype());
    let argmax = Combiner::ArgMax { last: false };
    let best = s.reduce("argmax", argmax, positions.clone(), &attrs.kernel, |o, k| {
        let (indices, inside) = unpadded(&attrs, o, k, &x.ty().shape);
        Expr::select(inside, x.at_as(ordered, &indices), Expr::Const(below_all))
    });
    let shape = &x.ty().shape;
    let winner = |o: &[Expr]| unpadded(&attrs, o, &spread(&best.at(o), &attrs.kernel), shape);
    // Nothing in a window may be above the padding.
    let lowest = Expr::Const(Scalar::lowest(ty.dtype));
    let y = s.map("max", ty, |o| {
        let (indices, inside) = winner(o);
        Expr::select(inside, x.at(&indices), lowest)
    });
    let flat = s.map("indices", positions, |o| {
        let (mut indices, _) = winner(o);
        let first = attrs.channels.first_spatial();
        for (at, &extent) in indices.iter_mut().zip(shape).skip(first).take(attrs.kernel.len()) {
            *at = at.clone().min(Expr::index(extent.max(1) - 1)).max(Expr::int(0));
        }
        flatten(&indices, shape, column_major)
    });
    Ok(s.finish(Kind::Other("MaxPool".into()), &[&y, &flat]))
}

/// Indices into the input of element `k` of the window at `o`, and whether they are inside it.
fn unpadded(attrs: &PoolAttrs, o: &[Expr], k: &[Expr], shape: &[usize]) -> (Vec<Expr>, Expr) {
    let mut indices = attrs.indices(o, k);
    let mut inside = Expr::bool(true);
    for (i, &begin) in attrs.pads_begin.iter().enumerate() {
        let axis = attrs.channels.first_spatial() + i;
        indices[axis] = indices[axis].clone() - Expr::index(begin);
        inside = inside
            .and(Expr::int(0).le(indices[axis].clone()))
            .and(indices[axis].clone().lt(Expr::index(shape[axis])));
    }
    (indices, inside)
}

/// A type that orders as `dtype` does and has a value below all of it, so that no element of the
/// padding can tie with an element of the input.
fn ordered_type(dtype: DType) -> (DType, Scalar) {
    let ordered = match dtype {
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::Bool => DType::I32,
        DType::U32 => DType::I64,
        other => compared(other),
    };
    (ordered, Scalar::lowest(ordered))
}

fn flatten(indices: &[Expr], shape: &[usize], column_major: bool) -> Expr {
    let in_order = |axes: &mut dyn Iterator<Item = usize>, outer: Expr| {
        axes.fold(outer, |sum, a| sum * Expr::index(shape[a]) + indices[a].clone())
    };
    let channel = in_order(&mut (1..2), indices[0].clone());
    if column_major {
        let plane = shape[2..].iter().product();
        channel * Expr::index(plane) + in_order(&mut (2..shape.len()).rev(), Expr::int(0))
    } else {
        in_order(&mut (2..shape.len()), channel)
    }
}

/// Average over the window's elements inside the input, and inside the padding where the mode
/// counts it. `overhang` is the part of `pads_end` that never counts.
pub fn average_pool(
    attrs: PoolAttrs,
    overhang: &[usize],
    x: &TensorType,
) -> Result<ComputeOp, OpError> {
    let (ty, _) = attrs.output(x)?;
    let (mut s, [input]) = Stages::new([x]);
    let acc = x.dtype.accumulator();
    let total = window_sum(&mut s, &attrs, x, |v| v)?;
    let counts_padding = attrs.mode == PoolMode::Average { count_padding: true };
    let first = attrs.channels.first_spatial();
    let y = s.map("average", ty, |o| {
        let sizes = (0..attrs.kernel.len()).map(|i| {
            let counted = match counts_padding {
                true => (attrs.pads_begin[i], attrs.pads_end[i].saturating_sub(overhang[i])),
                false => (0, 0),
            };
            count(&attrs, i, &o[first + i], input.ty().shape[first + i], counted)
        });
        Expr::cast(acc, x.dtype, total.at(o) / as_real(acc, product(sizes)))
    });
    let exact = !counts_padding || overhang.iter().all(|&o| o == 0);
    let kind = if exact { Kind::Pool(attrs) } else { Kind::Other("AveragePool".into()) };
    Ok(s.finish(kind, &[&y]))
}

/// The sum of `f` of the window's elements; `f` of zero must be zero.
fn window_sum(
    s: &mut Stages,
    attrs: &PoolAttrs,
    x: &TensorType,
    f: impl FnOnce(Expr) -> Expr,
) -> Result<Source, OpError> {
    let (ty, spatial) = attrs.output(x)?;
    let first = attrs.channels.first_spatial();
    let padded = s.pad(&attrs.window(), first, &spatial, Scalar::zero(x.dtype))?;
    let acc = x.dtype.accumulator();
    let ty = TensorType::new(acc, ty.shape);
    Ok(s.sum("sum", ty, &attrs.kernel, |o, k| f(padded.at_as(acc, &attrs.indices(o, k)))))
}

/// How many elements the window at `o` has on spatial axis `i` within the input and the `counted`
/// elements before and after it.
fn count(attrs: &PoolAttrs, i: usize, o: &Expr, input: usize, counted: (usize, usize)) -> Expr {
    let (kernel, stride, dilation) = (attrs.kernel[i], attrs.strides[i], attrs.dilations[i]);
    let (before, after) = counted;
    let start = o.clone() * Expr::index(stride) - Expr::index(attrs.pads_begin[i]);
    let mut behind = Expr::index(kernel);
    if attrs.pads_end[i] > after {
        let room = Expr::index(input + after + dilation - 1) - start.clone();
        behind = behind.min(room.floor_div(dilation as i64));
    }
    if attrs.pads_begin[i] <= before {
        return behind;
    }
    let skipped = Expr::int(0) - (start + Expr::index(before)).floor_div(dilation as i64);
    behind - skipped.max(Expr::int(0))
}

/// The product of factors, the constant ones multiplied at once.
fn product(factors: impl Iterator<Item = Expr>) -> Expr {
    let (constant, mut rest): (Vec<Expr>, Vec<Expr>) =
        factors.partition(|f| f.as_const().is_some());
    let constant: i64 = constant.iter().filter_map(Expr::as_const).map(Scalar::as_i64).product();
    if constant != 1 || rest.is_empty() {
        rest.push(Expr::int(constant));
    }
    rest.into_iter().reduce(|a, b| a * b).expect("there is at least the constant")
}

fn as_real(to: DType, count: Expr) -> Expr {
    match count.as_const() {
        Some(n) => real(to, n.as_f64()),
        None => Expr::cast(DType::I64, to, count),
    }
}

/// `(sum |x|^p)^(1/p)` over the window.
pub fn lp_pool(attrs: PoolAttrs, p: i64, x: &TensorType) -> Result<ComputeOp, OpError> {
    let (ty, _) = attrs.output(x)?;
    let (mut s, [_]) = Stages::new([x]);
    let acc = x.dtype.accumulator();
    let total = window_sum(&mut s, &attrs, x, |v| power(acc, v, p))?;
    let y = s.map("norm", ty, |o| Expr::cast(acc, x.dtype, root(acc, total.at(o), p)));
    Ok(s.finish(Kind::Other("LpPool".into()), &[&y]))
}

/// `|x|^p`.
pub(crate) fn power(dtype: DType, x: Expr, p: i64) -> Expr {
    match p {
        1 => Expr::unary(UnOp::Abs, x),
        2 => x.clone() * x,
        _ => Expr::binary(BinOp::Pow, Expr::unary(UnOp::Abs, x), real(dtype, p as f64)),
    }
}

/// `x^(1/p)`.
pub(crate) fn root(dtype: DType, x: Expr, p: i64) -> Expr {
    match p {
        1 => x,
        2 => Expr::unary(UnOp::Sqrt, x),
        _ => Expr::binary(BinOp::Pow, x, real(dtype, 1.0 / p as f64)),
    }
}

/// How a global pool combines all spatial elements of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GlobalPool {
    /// Their mean.
    Average,
    /// The largest one.
    Max,
    /// The norm of this order: the root of the sum of powers of absolute values.
    Lp(i64),
}

/// `[n, c, spatial..] -> [n, c, 1..]`.
pub fn global_pool(mode: GlobalPool, x: &TensorType) -> Result<ComputeOp, OpError> {
    let rank = x.rank();
    if rank < 2 {
        let (what, expected) = ("the input of a global pool", "2 or more".into());
        return Err(OpError::Rank { what, expected, found: x.shape.clone() });
    }
    let spatial = x.shape[2..].to_vec();
    let mut shape = x.shape[..2].to_vec();
    shape.resize(rank, 1);
    let kind = Kind::Reduce { axes: (2..rank).collect(), keep: true };
    let (mut s, [x]) = Stages::new([x]);
    let element = |o: &[Expr], r: &[Expr]| [&o[..2], r].concat();
    let out = TensorType::new(x.dtype(), shape.clone());
    if mode == GlobalPool::Max {
        let compared = compared(x.dtype());
        let out = TensorType { dtype: compared, ..out };
        let y =
            s.reduce("max", Combiner::Max, out, &spatial, |o, r| x.at_as(compared, &element(o, r)));
        let y = s.cast(y, x.dtype());
        return Ok(s.finish(kind, &[&y]));
    }
    let acc = x.dtype().accumulator();
    let total = s.sum("sum", TensorType::new(acc, shape), &spatial, |o, r| {
        let value = x.at_as(acc, &element(o, r));
        if let GlobalPool::Lp(p) = mode { power(acc, value, p) } else { value }
    });
    let count = spatial.iter().product::<usize>() as f64;
    let y = s.map("result", out, |o| {
        let result = match mode {
            GlobalPool::Lp(p) => root(acc, total.at(o), p),
            _ => total.at(o) / real(acc, count),
        };
        Expr::cast(acc, x.dtype(), result)
    });
    Ok(s.finish(kind, &[&y]))
}
