//! Sampling for deformable convolution: the input between its elements, at offsets that are data.
//!
//! ```text
//! sample(x f32[n, c, h, w], offset f32[n, 2 * 9 * g, p, q])  ->  f32[n, c, 3, 3, p, q]
//! ```
//! The convolution itself is then a matrix product of the weight with the samples.

use ansc_runtime::DType;

use super::conv::Window;
use super::stages::{Source, Stages, real};
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::{Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// Linear interpolation of `x[n, c, spatial..]` at every kernel element of every window, moved by
/// `offset[n, (groups, kernel.., axis), output..]` and weighted by `mask[n, (groups, kernel..),
/// output..]`; elements outside of `x` are zero.
pub fn deformed_samples(
    window: &Window<'_>,
    groups: usize,
    x: &TensorType,
    offset: &TensorType,
    mask: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let n = window.rank();
    if x.rank() != n + 2 {
        let (what, expected) = ("the input of a convolution", (n + 2).to_string());
        return Err(OpError::Rank { what, expected, found: x.shape.clone() });
    }
    let output = window.output(&x.shape[2..])?;
    check_offsets(window, groups, x, &output, [Some((offset, n)), mask.map(|m| (m, 1))])?;
    let inputs: Vec<&TensorType> = [x, offset].into_iter().chain(mask).collect();
    let mut s = Stages::of(&inputs);
    let sampler = Sampler {
        kernel: window.kernel,
        groups,
        channels_per_group: x.shape[1] / groups,
        acc: x.dtype.accumulator(),
        x: s.source(0),
        offset: s.source(1),
        mask: mask.map(|_| s.source(2)),
    };
    let positions = sampler.push_positions(&mut s, window, &output)?;
    let shape = [&x.shape[..2], window.kernel, &output].concat();
    let ty = sized(TensorType::new(x.dtype, shape))?;
    let y = s.map("sample", ty, |i| sampler.sample(&positions, i));
    Ok(s.finish(Kind::Other("DeformConvSample".into()), &[&y]))
}

fn check_offsets(
    window: &Window<'_>,
    groups: usize,
    x: &TensorType,
    output: &[usize],
    tensors: [Option<(&TensorType, usize)>; 2],
) -> Result<(), OpError> {
    let fits = |(ty, per_element): (&TensorType, usize)| {
        let factors = [&[groups, per_element], window.kernel].concat();
        let channels = factors.into_iter().try_fold(1, usize::checked_mul);
        ty.rank() == x.rank()
            && ty.shape[0] == x.shape[0]
            && Some(ty.shape[1]) == channels
            && ty.shape[2..] == *output
    };
    let divides = groups > 0 && x.shape[1].is_multiple_of(groups);
    if divides && tensors.into_iter().flatten().all(fits) {
        return Ok(());
    }
    Err(OpError::Invalid(format!(
        "offsets or mask do not fit an input of shape {:?}, {groups} groups, kernel {:?} and output \
         {output:?}",
        x.shape, window.kernel
    )))
}

struct Sampler<'a> {
    kernel: &'a [usize],
    groups: usize,
    channels_per_group: usize,
    acc: DType,
    x: Source,
    offset: Source,
    mask: Option<Source>,
}

impl Sampler<'_> {
    /// The row-major position of group and kernel element.
    fn kernel_position(&self, group: &Expr, k: &[Expr]) -> Expr {
        let outer = group.clone();
        k.iter().zip(self.kernel).fold(outer, |p, (k, &e)| p * Expr::index(e) + k.clone())
    }

    /// `[axis, n, groups, kernel.., output..]`: where in `x` each sample lies.
    fn push_positions(
        &self,
        s: &mut Stages,
        window: &Window<'_>,
        output: &[usize],
    ) -> Result<Vec<Source>, OpError> {
        let n = self.kernel.len();
        let batch = self.x.ty().shape[0];
        let shape = [&[batch, self.groups], self.kernel, output].concat();
        let ty = sized(TensorType::new(self.acc, shape))?;
        let push = |axis: usize| {
            s.map("position", ty.clone(), |i| {
                let (k, o) = (&i[2..2 + n], &i[2 + n..]);
                let element = self.kernel_position(&i[1], k);
                let channel = element * Expr::index(n) + Expr::index(axis);
                let mut at = vec![i[0].clone(), channel];
                at.extend_from_slice(o);
                let begin = Expr::index(window.pads_begin[axis]);
                let regular = window.index(axis, o[axis].clone(), k[axis].clone()) - begin;
                let regular = Expr::cast(DType::I64, self.acc, regular);
                self.bounded(axis, regular + self.offset.at_as(self.acc, &at))
            })
        };
        Ok((0..n).map(push).collect())
    }

    /// Moves a position that lies far outside, or that is not a number, to one just outside.
    /// Then it is a number, and an index made of it still compares as outside.
    fn bounded(&self, axis: usize, position: Expr) -> Expr {
        let outside = real(self.acc, -2.0);
        let last = self.x.ty().shape[2 + axis] as f32 + 1.0;
        let is_none = Expr::unary(UnOp::IsNan, position.clone());
        let near = position.max(outside.clone()).min(real(self.acc, last));
        Expr::select(is_none, outside, near)
    }

    fn sample(&self, positions: &[Source], i: &[Expr]) -> Expr {
        let n = self.kernel.len();
        let group = i[1].clone().floor_div(self.channels_per_group as i64);
        let moved = [&[i[0].clone(), group.clone()], &i[2..]].concat();
        let positions: Vec<Expr> = positions.iter().map(|p| p.at(&moved)).collect();
        let corners = (0..1usize << n).map(|corner| self.corner(corner, &positions, i));
        let sum = corners.reduce(|a, b| a + b).expect("there is at least one corner");
        let weighted = match &self.mask {
            Some(mask) => {
                let element = self.kernel_position(&group, &i[2..2 + n]);
                let at = [&[i[0].clone(), element], &i[2 + n..]].concat();
                sum * mask.at_as(self.acc, &at)
            }
            None => sum,
        };
        Expr::cast(self.acc, self.x.dtype(), weighted)
    }

    /// One of the `2^n` elements around a position, times its share.
    fn corner(&self, corner: usize, positions: &[Expr], i: &[Expr]) -> Expr {
        let mut element = i[..2].to_vec();
        let mut inside = Expr::bool(true);
        let mut share = None;
        for (axis, position) in positions.iter().enumerate() {
            let floor = Expr::unary(UnOp::Floor, position.clone());
            let above = position.clone() - floor.clone();
            let far = corner >> axis & 1;
            let part = if far == 1 { above } else { real(self.acc, 1.0) - above };
            let at = Expr::cast(self.acc, DType::I64, floor) + Expr::index(far);
            let extent = Expr::index(self.x.ty().shape[2 + axis]);
            inside = inside.and(Expr::int(0).le(at.clone())).and(at.clone().lt(extent));
            element.push(at);
            share = Some(match share {
                Some(share) => share * part,
                None => part,
            });
        }
        let value = self.x.at_as(self.acc, &element);
        let value = share.into_iter().fold(value, |value, share| value * share);
        Expr::select(inside, value, real(self.acc, 0.0))
    }
}
