//! Normalisation by statistics of the same tensor, each operator one compute of a few stages.
//!
//! ```text
//! layer_norm(axis 1, f32[4, 8], scale f32[8])
//! ->  sum: f32[4, 1] = sum[8] b0[v0, v2]
//!     mean: f32[4, 1] = div(b2[v0, 0], 8)
//!     squares: f32[4, 1] = sum[8] (b0[v0, v2] - b3[v0, 0])^2
//!     inverse: f32[4, 1] = div(1, sqrt(add(div(b4[v0, 0], 8), epsilon)))
//!     result: f32[4, 8] = mul(mul(sub(b0[v0, v1], b3[v0, 0]), b5[v0, 0]), b1[v1])
//! ```
//!
//! Statistics of half floats are kept in `f32`, and so is everything up to the result.

use ansc_runtime::DType;

use super::OpError;
use super::map::broadcast_shapes;
use super::pool::{power, root};
use super::stages::{Source, Stages, real};
use crate::compute::TensorType;
use crate::expr::{BinOp, Expr, UnOp};
use crate::op::{ComputeOp, Kind};

type Locate<'a> = dyn Fn(&[Expr], &[Expr]) -> Vec<Expr> + 'a;

/// Which elements share their statistics: the statistics' shape, the extents reduced, and where the
/// element for a statistic and a reduction point lies.
struct Region<'a> {
    shape: Vec<usize>,
    extents: Vec<usize>,
    element: Box<Locate<'a>>,
}

impl Region<'_> {
    /// All of the `axes`, which the statistics keep as extent 1.
    fn axes(shape: &[usize], axes: Vec<usize>) -> Region<'static> {
        let mut kept = shape.to_vec();
        axes.iter().for_each(|&a| kept[a] = 1);
        let extents = axes.iter().map(|&a| shape[a]).collect();
        let element = move |i: &[Expr], r: &[Expr]| {
            let mut element = i.to_vec();
            for (&axis, r) in axes.iter().zip(r) {
                element[axis] = r.clone();
            }
            element
        };
        Region { shape: kept, extents, element: Box::new(element) }
    }

    fn count(&self) -> f64 {
        self.extents.iter().product::<usize>() as f64
    }

    fn ty(&self, acc: DType) -> TensorType {
        TensorType::new(acc, self.shape.clone())
    }

    fn sum(
        &self,
        s: &mut Stages,
        name: &str,
        acc: DType,
        f: impl Fn(&[Expr], &[Expr]) -> Expr,
    ) -> Source {
        s.sum(name, self.ty(acc), &self.extents, |i, r| f(i, &(self.element)(i, r)))
    }

    fn mean(&self, s: &mut Stages, x: &Source, acc: DType) -> Source {
        let sum = self.sum(s, "sum", acc, |_, e| x.at_as(acc, e));
        s.map("mean", self.ty(acc), |i| sum.at(i) / real(acc, self.count()))
    }

    /// The sum of squared distances from `mean`.
    fn squares(&self, s: &mut Stages, x: &Source, mean: &Source, acc: DType) -> Source {
        self.sum(s, "squares", acc, |i, e| {
            let centred = x.at_as(acc, e) - mean.at(i);
            centred.clone() * centred
        })
    }

    /// `1 / sqrt(squares / count + epsilon)`.
    fn inverse(&self, s: &mut Stages, squares: &Source, epsilon: f32, acc: DType) -> Source {
        s.map("inverse", self.ty(acc), |i| {
            let variance = squares.at(i) / real(acc, self.count());
            real(acc, 1.0) / Expr::unary(UnOp::Sqrt, variance + real(acc, epsilon))
        })
    }
}

/// `x` over its last axes from `axis` on: `(x - mean) / sqrt(variance + epsilon) * scale + bias`.
///
/// Results: y, mean, inverse of the standard deviation (both of `stash` type).
pub fn layer_norm(
    axis: usize,
    epsilon: f32,
    stash: DType,
    x: &TensorType,
    scale: &TensorType,
    bias: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    check_axis(axis, x)?;
    check_broadcast(x, scale)?;
    let region = Region::axes(&x.shape, (axis..x.rank()).collect());
    bias.map_or(Ok(()), |bias| check_broadcast(x, bias))?;
    let inputs: Vec<&TensorType> = [x, scale].into_iter().chain(bias).collect();
    let mut s = Stages::of(&inputs);
    let (x, scale, bias) = (s.source(0), s.source(1), bias.map(|_| s.source(2)));
    let acc = x.dtype().accumulator();
    let mean = region.mean(&mut s, &x, acc);
    let squares = region.squares(&mut s, &x, &mean, acc);
    let inverse = region.inverse(&mut s, &squares, epsilon, acc);
    let y = s.map("result", x.ty().clone(), |i| {
        let normal = (x.at_as(acc, i) - mean.broadcast(acc, i)) * inverse.broadcast(acc, i);
        let bias = bias.as_ref().map(|b| b.broadcast(acc, i));
        Expr::cast(acc, x.dtype(), scaled(normal, scale.broadcast(acc, i), bias))
    });
    let mean = s.cast(mean, stash);
    let inverse = s.cast(inverse, stash);
    Ok(s.finish(Kind::Other("LayerNormalization".into()), &[&y, &mean, &inverse]))
}

/// `x / sqrt(mean of squares + epsilon) * scale`, over the last axes from `axis` on.
///
/// Results: y, inverse of the root mean square (of `stash` type).
pub fn rms_norm(
    axis: usize,
    epsilon: f32,
    stash: DType,
    x: &TensorType,
    scale: &TensorType,
) -> Result<ComputeOp, OpError> {
    check_axis(axis, x)?;
    check_broadcast(x, scale)?;
    let region = Region::axes(&x.shape, (axis..x.rank()).collect());
    let (mut s, [x, scale]) = Stages::new([x, scale]);
    let acc = x.dtype().accumulator();
    let squares = region.sum(&mut s, "squares", acc, |_, e| power(acc, x.at_as(acc, e), 2));
    let inverse = region.inverse(&mut s, &squares, epsilon, acc);
    let ty = TensorType::new(scale.dtype(), x.ty().shape.clone());
    let y = s.map("result", ty, |i| {
        let normal = x.at_as(acc, i) * inverse.broadcast(acc, i);
        Expr::cast(acc, scale.dtype(), scaled(normal, scale.broadcast(acc, i), None))
    });
    let inverse = s.cast(inverse, stash);
    Ok(s.finish(Kind::Other("RMSNormalization".into()), &[&y, &inverse]))
}

/// `x[n, c, ..]` normalised over groups of channels and all spatial axes. `scale` and `bias` have
/// one element per channel, or per group.
pub fn group_norm(
    groups: usize,
    epsilon: f32,
    x: &TensorType,
    scale: &TensorType,
    bias: &TensorType,
) -> Result<ComputeOp, OpError> {
    let channels = *x.shape.get(1).ok_or_else(|| rank_error(x, "2 or more"))?;
    let fits = |p: &TensorType| p.rank() == 1 && (p.shape[0] == channels || p.shape[0] == groups);
    // Without channels there need be no groups.
    let divides = groups > 0 && channels % groups == 0 || channels == 0;
    if !divides || !fits(scale) || !fits(bias) {
        return Err(OpError::Invalid(format!(
            "{groups} groups with scale {:?} and bias {:?} do not fit an input of shape {:?}",
            scale.shape, bias.shape, x.shape
        )));
    }
    let groups = groups.max(1);
    let per_group = channels / groups;
    let region = grouped(&x.shape, groups);
    let group_of = |channel: &Expr| match per_group {
        1 => channel.clone(),
        n => channel.clone().floor_div(n as i64),
    };
    let (mut s, [x, scale, bias]) = Stages::new([x, scale, bias]);
    let acc = x.dtype().accumulator();
    let mean = region.mean(&mut s, &x, acc);
    let squares = region.squares(&mut s, &x, &mean, acc);
    let inverse = region.inverse(&mut s, &squares, epsilon, acc);
    let parameter = |p: &Source, i: &[Expr]| {
        let per_channel = p.ty().shape[0] == channels;
        p.at_as(acc, &[if per_channel { i[1].clone() } else { group_of(&i[1]) }])
    };
    let y = s.map("result", x.ty().clone(), |i| {
        let group = [i[0].clone(), group_of(&i[1])];
        let normal = (x.at_as(acc, i) - mean.at(&group)) * inverse.at(&group);
        let y = scaled(normal, parameter(&scale, i), Some(parameter(&bias, i)));
        Expr::cast(acc, x.dtype(), y)
    });
    Ok(s.finish(Kind::Other("GroupNormalization".into()), &[&y]))
}

/// Statistics `[n, group]` over `x[n, c, ..]`.
fn grouped(shape: &[usize], groups: usize) -> Region<'static> {
    let per_group = shape[1] / groups;
    let mut extents = shape[1..].to_vec();
    extents[0] = per_group;
    let element = move |i: &[Expr], r: &[Expr]| {
        let channel = match per_group {
            1 => i[1].clone(),
            n => i[1].clone() * Expr::index(n) + r[0].clone(),
        };
        [&[i[0].clone(), channel], &r[1..]].concat()
    };
    Region { shape: vec![shape[0], groups], extents, element: Box::new(element) }
}

/// `(x - mean) / (standard deviation + 1e-9)` over `axes`.
pub fn mean_variance_norm(axes: &[usize], x: &TensorType) -> Result<ComputeOp, OpError> {
    axes.iter().try_for_each(|&a| check_axis(a, x))?;
    let region = Region::axes(&x.shape, axes.to_vec());
    let (mut s, [x]) = Stages::new([x]);
    let acc = x.dtype().accumulator();
    let mean = region.mean(&mut s, &x, acc);
    let squares = region.squares(&mut s, &x, &mean, acc);
    let deviation = s.map("deviation", region.ty(acc), |i| {
        Expr::unary(UnOp::Sqrt, squares.at(i) / real(acc, region.count())) + real(acc, 1e-9)
    });
    let y = s.map("result", x.ty().clone(), |i| {
        let centred = x.at_as(acc, i) - mean.broadcast(acc, i);
        Expr::cast(acc, x.dtype(), centred / deviation.broadcast(acc, i))
    });
    Ok(s.finish(Kind::Other("MeanVarianceNormalization".into()), &[&y]))
}

/// `x / |x|_p` along `axis`; zero where the norm is zero.
pub fn lp_norm(axis: usize, p: i64, x: &TensorType) -> Result<ComputeOp, OpError> {
    check_axis(axis, x)?;
    let region = Region::axes(&x.shape, vec![axis]);
    let (mut s, [x]) = Stages::new([x]);
    let acc = x.dtype().accumulator();
    let sum = region.sum(&mut s, "sum", acc, |_, e| power(acc, x.at_as(acc, e), p));
    let norm = s.map("norm", region.ty(acc), |i| root(acc, sum.at(i), p));
    let y = s.map("result", x.ty().clone(), |i| {
        let norm = norm.broadcast(acc, i);
        let zero = || real(acc, 0.0);
        let y = Expr::select(norm.clone().eq(zero()), zero(), x.at_as(acc, i) / norm);
        Expr::cast(acc, x.dtype(), y)
    });
    Ok(s.finish(Kind::Other("LpNormalization".into()), &[&y]))
}

/// Attributes of [`local_response_norm`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lrn {
    /// Channels that are summed up around each.
    pub size: usize,
    /// The factor of the mean of the squares.
    pub alpha: f32,
    /// The exponent of the divisor.
    pub beta: f32,
    /// The constant that is added before the power.
    pub bias: f32,
}

/// `x / (bias + alpha / size * sum of squares of the nearest channels)^beta`.
pub fn local_response_norm(lrn: Lrn, x: &TensorType) -> Result<ComputeOp, OpError> {
    let channels = *x.shape.get(1).ok_or_else(|| rank_error(x, "2 or more"))?;
    if lrn.size == 0 {
        return Err(OpError::Invalid("the size of a window must be positive".into()));
    }
    let before = (lrn.size - 1) / 2;
    let (mut s, [x]) = Stages::new([x]);
    let acc = x.dtype().accumulator();
    let ty = TensorType::new(acc, x.ty().shape.clone());
    let squares = s.sum("squares", ty, &[lrn.size], |i, k| {
        let channel = i[1].clone() + k[0].clone() - Expr::index(before);
        let inside =
            Expr::int(0).le(channel.clone()).and(channel.clone().lt(Expr::index(channels)));
        let mut element = i.to_vec();
        element[1] = channel;
        Expr::select(inside, power(acc, x.at_as(acc, &element), 2), real(acc, 0.0))
    });
    let factor = f64::from(lrn.alpha) / lrn.size as f64;
    let y = s.map("result", x.ty().clone(), |i| {
        let base = real(acc, lrn.bias) + real(acc, factor) * squares.at(i);
        let divisor = Expr::binary(BinOp::Pow, base, real(acc, lrn.beta));
        Expr::cast(acc, x.dtype(), x.at_as(acc, i) / divisor)
    });
    Ok(s.finish(Kind::Other("LRN".into()), &[&y]))
}

/// Batch normalisation by the statistics of the batch itself, as in training.
///
/// Inputs: x, scale, bias, running mean, running variance. Results: y, and the running mean and
/// variance updated as `running * momentum + batch * (1 - momentum)`.
pub fn batch_norm_training(
    epsilon: f32,
    momentum: f32,
    x: &TensorType,
    scale: &TensorType,
    mean: &TensorType,
) -> Result<ComputeOp, OpError> {
    let channels = *x.shape.get(1).ok_or_else(|| rank_error(x, "2 or more"))?;
    if scale.shape != [channels] || mean.shape != [channels] {
        return Err(OpError::Broadcast { a: x.shape.clone(), b: scale.shape.clone() });
    }
    let region = per_channel(&x.shape);
    let (mut s, [x, scale, bias, old_mean, old_variance]) =
        Stages::new([x, scale, scale, mean, mean]);
    let acc = x.dtype().accumulator();
    let mean = region.mean(&mut s, &x, acc);
    let squares = region.squares(&mut s, &x, &mean, acc);
    let inverse = region.inverse(&mut s, &squares, epsilon, acc);
    let y = s.map("result", x.ty().clone(), |i| {
        let channel = std::slice::from_ref(&i[1]);
        let normal = (x.at_as(acc, i) - mean.at(channel)) * inverse.at(channel);
        let y = scaled(normal, scale.at_as(acc, channel), Some(bias.at_as(acc, channel)));
        Expr::cast(acc, x.dtype(), y)
    });
    let mut running = |name: &str, old: &Source, batch: &dyn Fn(&[Expr]) -> Expr| {
        s.map(name, old.ty().clone(), |i| {
            let kept = old.at_as(acc, i) * real(acc, momentum);
            Expr::cast(acc, old.dtype(), kept + batch(i) * real(acc, 1.0 - momentum))
        })
    };
    let new_mean = running("running_mean", &old_mean, &|i| mean.at(i));
    let variance = |i: &[Expr]| squares.at(i) / real(acc, region.count());
    let new_variance = running("running_var", &old_variance, &variance);
    Ok(s.finish(Kind::Other("BatchNormalization".into()), &[&y, &new_mean, &new_variance]))
}

/// Statistics `[c]` over `x[n, c, ..]`.
fn per_channel(shape: &[usize]) -> Region<'static> {
    let mut extents = shape.to_vec();
    extents.remove(1);
    let element = |i: &[Expr], r: &[Expr]| [&[r[0].clone(), i[0].clone()], &r[1..]].concat();
    Region { shape: vec![shape[1]], extents, element: Box::new(element) }
}

/// `normal * scale + bias`.
fn scaled(normal: Expr, scale: Expr, bias: Option<Expr>) -> Expr {
    match bias {
        Some(bias) => normal * scale + bias,
        None => normal * scale,
    }
}

fn check_axis(axis: usize, x: &TensorType) -> Result<(), OpError> {
    if axis < x.rank() { Ok(()) } else { Err(OpError::Axis { axis, rank: x.rank() }) }
}

/// `p` must broadcast to `x` without enlarging it.
fn check_broadcast(x: &TensorType, p: &TensorType) -> Result<(), OpError> {
    if broadcast_shapes([x.shape.as_slice(), &p.shape])? == x.shape {
        return Ok(());
    }
    Err(OpError::Broadcast { a: x.shape.clone(), b: p.shape.clone() })
}

fn rank_error(x: &TensorType, expected: &str) -> OpError {
    let what = "the input of a normalisation";
    OpError::Rank { what, expected: expected.into(), found: x.shape.clone() }
}
