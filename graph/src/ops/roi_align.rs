//! `RoiAlign`: regions of images, each pooled to the same size from samples between the pixels.
//!
//! ```text
//! roi_align(x: f32[n, h, w, c], rois: f32[r, 4], image: i64[r])
//! ->  y: f32[r, oh, gh], x: f32[r, ow, gw] = where the samples of each bin lie: the pixels beside
//!     each, and their weights
//!     sum: f32[r, oh, ow, c] = sum[gh, gw] of what four pixels give to a sample
//!     average
//! ```
//!
//! Where channels are many they come last, for all are taken from the same pixels.
//!
//! Without a fixed number of samples that number follows from each region's size; there is space
//! for regions of twice the height and width of the image, and larger ones have no more samples.

use ansc_runtime::DType;

use super::index::clamped;
use super::stages::{Source, Stages, real};
use super::{OpError, sized};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{Expr, UnOp};
use crate::op::{Channels, ComputeOp, Kind};
use crate::scalar::Scalar;

/// Without a fixed number of samples there is space for those of regions so many times as large
/// as the image along each axis.
const LARGEST: usize = 2;

/// Attributes of [`roi_align`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoiAttrs {
    /// Height and width of the result.
    pub output: [usize; 2],
    /// Samples of a bin along each axis; 0 for as many as it has pixels.
    pub samples: usize,
    /// From the regions' coordinates to those of pixels.
    pub scale: f32,
    /// Pixels have their centres at half coordinates; otherwise regions are at least one pixel
    /// large.
    pub half_pixel: bool,
    /// The greatest of what any pixel gives, rather than the average of samples.
    pub max: bool,
    /// Where images and results have their channels.
    pub channels: Channels,
}

impl RoiAttrs {
    /// The indices or extents of a tensor with channels.
    fn order<T>(&self, first: T, channel: T, [row, column]: [T; 2]) -> [T; 4] {
        match self.channels {
            Channels::First => [first, channel, row, column],
            Channels::Last => [first, row, column, channel],
        }
    }
}

/// One of the two axes. What is told of samples is `[r, bins, samples]`.
struct Axis {
    /// The pixels before and after a sample.
    pixels: [Source; 2],
    /// The weight of the second one.
    weight: Source,
    /// Whether it is in the image.
    inside: Source,
    /// Samples of a bin, `[r]`.
    count: Source,
    samples: usize,
}

/// The mean or the greatest value of each bin of each region of an image.
pub fn roi_align(
    attrs: RoiAttrs,
    x: &TensorType,
    rois: &TensorType,
    image: &TensorType,
) -> Result<ComputeOp, OpError> {
    let (&[n, a, b, e], &[r, 4]) = (&x.shape[..], &rois.shape[..]) else {
        return Err(OpError::Invalid(format!("regions {rois} cannot be taken from {x}")));
    };
    let fits = x.dtype.is_float() && rois.dtype == x.dtype && image.dtype.is_int();
    if !fits || image.shape != [r] || (n == 0 && r > 0) || attrs.output.contains(&0) {
        return Err(OpError::Invalid(format!("regions {rois} of {x} cannot go by {image}")));
    }
    if x.is_empty() || r == 0 {
        return nothing(attrs, [x, rois, image]);
    }
    let ([c, h, w], at) = match attrs.channels {
        Channels::First => ([a, b, e], [1, 2, 3]),
        Channels::Last => ([e, a, b], [3, 1, 2]),
    };
    let d = x.dtype.accumulator();
    let (mut s, [data, rois, image]) = Stages::new([x, rois, image]);
    let [oh, ow] = attrs.output;
    let rows = axis(&mut s, &attrs, &rois, 0, h, d)?;
    let columns = axis(&mut s, &attrs, &rois, 1, w, d)?;
    let out = sized(TensorType::new(d, attrs.order(r, c, [oh, ow])))?;
    let combiner = if attrs.max { Combiner::Max } else { Combiner::Sum };
    let extents = [rows.samples, columns.samples];
    let pooled = s.reduce("pooled", combiner, out.clone(), &extents, |i, g| {
        let batch = clamped(image.at(&[i[0].clone()]), image.dtype(), n);
        let row = rows.sample(d, &i[0], &i[at[1]], &g[0]);
        let column = columns.sample(d, &i[0], &i[at[2]], &g[1]);
        let part = |y: &(Expr, Expr), x: &(Expr, Expr)| {
            let place = [y.0.clone(), x.0.clone()];
            let at = attrs.order(batch.clone(), i[at[0]].clone(), place);
            data.at_as(d, &at) * y.1.clone() * x.1.clone()
        };
        let corners = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let parts = corners.map(|(a, b)| part(&row.taps[a], &column.taps[b]));
        let join = |a: Expr, b: Expr| if attrs.max { a.max(b) } else { a + b };
        let value = parts.into_iter().reduce(join).expect("four parts");
        let outside = real(d, 0.0);
        let value = Expr::select(row.inside.and(column.inside), value, outside);
        match row.counts.into_iter().chain(column.counts).reduce(Expr::and) {
            Some(counts) => {
                let identity = combiner.identity(d).expect("of a sum or maximum");
                Expr::select(counts, value, Expr::Const(identity))
            }
            None => value,
        }
    });
    let result = s.map("roi_align", TensorType::new(x.dtype, out.shape), |i| {
        let value = pooled.at(i);
        let count = |axis: &Axis| axis.count.at(&[i[0].clone()]);
        let value = if attrs.max { value } else { value / (count(&rows) * count(&columns)) };
        Expr::cast(d, x.dtype, value)
    });
    Ok(s.finish(Kind::Other("RoiAlign".into()), &[&result]))
}

/// All samples of an image without pixels lie outside of it.
fn nothing(attrs: RoiAttrs, inputs: [&TensorType; 3]) -> Result<ComputeOp, OpError> {
    let [x, rois, _] = inputs;
    let channels = x.shape[if attrs.channels == Channels::First { 1 } else { 3 }];
    let shape = attrs.order(rois.shape[0], channels, attrs.output);
    let ty = sized(TensorType::new(x.dtype, shape))?;
    let stage = Stage::map("roi_align", ty, Expr::Const(Scalar::zero(x.dtype)));
    let expr = Compute::single(inputs.map(TensorType::clone).to_vec(), stage);
    Ok(ComputeOp::new(Kind::Other("RoiAlign".into()), expr))
}

/// `which` is 0 for rows and 1 for columns; regions are `x1, y1, x2, y2`.
fn axis(
    s: &mut Stages,
    attrs: &RoiAttrs,
    rois: &Source,
    which: usize,
    extent: usize,
    d: DType,
) -> Result<Axis, OpError> {
    let (r, bins) = (rois.ty().shape[0], attrs.output[which]);
    // A region may be larger than the image, of which its outer samples see nothing.
    let most = LARGEST.saturating_mul(extent).div_ceil(bins).max(1);
    let samples = if attrs.samples > 0 { attrs.samples } else { most };
    let edge = |i: &Expr, end: usize| {
        let at = rois.at_as(d, &[i.clone(), Expr::index(2 * end + 1 - which)]);
        at * real(d, attrs.scale) - real(d, if attrs.half_pixel { 0.5 } else { 0.0 })
    };
    let per_roi = TensorType::new(d, [r]);
    let size = s.map("size", per_roi.clone(), |i| {
        let size = edge(&i[0], 1) - edge(&i[0], 0);
        if attrs.half_pixel { size } else { size.max(real(d, 1.0)) }
    });
    let count = s.map("count", per_roi, |i| match attrs.samples {
        0 => {
            let wanted = Expr::unary(UnOp::Ceil, size.at(i) / real(d, bins as f64));
            wanted.max(real(d, 1.0)).min(real(d, samples as f64))
        }
        n => real(d, n as f64),
    });
    let ty = sized(TensorType::new(d, [r, bins, samples]))?;
    let at = s.map("at", ty, |i| {
        let number = |v: &Expr| Expr::cast(DType::I64, d, v.clone());
        let bin = size.at(&i[..1]) / real(d, bins as f64);
        let within = (number(&i[2]) + real(d, 0.5)) / count.at(&i[..1]);
        edge(&i[0], 0) + bin * (number(&i[1]) + within)
    });
    let ty = |dtype| TensorType::new(dtype, [r, bins, samples]);
    let last = extent as i64 - 1;
    // Samples up to a pixel outside are on its edge.
    let kept = |i: &[Expr]| at.at(i).max(real(d, 0.0)).min(real(d, last as f64));
    let floor = |i: &[Expr]| Expr::unary(UnOp::Floor, kept(i));
    let before = s.map("before", ty(DType::I64), |i| {
        clamped(Expr::cast(d, DType::I64, floor(i)), DType::I64, extent)
    });
    let after =
        s.map("after", ty(DType::I64), |i| (before.at(i) + Expr::int(1)).min(Expr::int(last)));
    let weight = s.map("weight", ty(d), |i| kept(i) - floor(i));
    let inside = s.map("inside", ty(DType::Bool), |i| {
        real(d, -1.0).le(at.at(i)).and(at.at(i).le(real(d, extent as f64)))
    });
    Ok(Axis { pixels: [before, after], weight, inside, count, samples })
}

/// A sample along one axis.
struct Sample {
    /// Index and weight of the pixels on both sides.
    taps: [(Expr, Expr); 2],
    inside: Expr,
    /// Whether the region has as many samples, where their number is its own.
    counts: Option<Expr>,
}

impl Axis {
    fn sample(&self, d: DType, roi: &Expr, bin: &Expr, sample: &Expr) -> Sample {
        let at = [roi.clone(), bin.clone(), sample.clone()];
        let weight = self.weight.at(&at);
        let inside = self.inside.at(&at);
        let counts = (self.samples > 1).then(|| {
            Expr::cast(DType::I64, d, sample.clone()).lt(self.count.at(std::slice::from_ref(roi)))
        });
        let [before, after] = self.pixels.each_ref().map(|pixel| pixel.at(&at));
        let taps = [(before, real(d, 1.0) - weight.clone()), (after, weight)];
        Sample { taps, inside, counts }
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;
    use crate::passes::testing::random;

    /// The pooled value of each region, channel, row and column.
    fn pooled(channels: Channels, max: bool, samples: usize) -> Vec<f32> {
        let attrs =
            RoiAttrs { output: [2, 3], samples, scale: 0.5, half_pixel: true, max, channels };
        let images = random(&[2, 4, 6, 5], 3);
        let (at, shape) = match channels {
            Channels::First => ([0, 1, 2, 3], [2, 4, 6, 5]),
            Channels::Last => ([0, 2, 3, 1], [2, 6, 5, 4]),
        };
        let ty = TensorType::of(&images);
        let turned = crate::ops::shape::transpose(&ty, &at).unwrap();
        let x = interp::eval(&turned.expr, &[&images]).unwrap().remove(0);
        assert_eq!(x.shape(), shape);
        let rois = [0.5f32, 1.0, 7.0, 11.5, -3.0, 2.0, 4.0, 30.0, 6.0, 6.0, 6.5, 6.0];
        let rois = Tensor::from_slice(&[3, 4], &rois);
        let image = Tensor::from_slice(&[3], &[1i64, 0, 1]);
        let types = [&x, &rois, &image].map(TensorType::of);
        let op = roi_align(attrs, &types[0], &types[1], &types[2]).unwrap();
        let y = interp::eval(&op.expr, &[&x, &rois, &image]).unwrap().remove(0);
        let back = match channels {
            Channels::First => [0, 1, 2, 3],
            Channels::Last => [0, 3, 1, 2],
        };
        let turned = crate::ops::shape::transpose(&TensorType::of(&y), &back).unwrap();
        let y = interp::eval(&turned.expr, &[&y]).unwrap().remove(0);
        assert_eq!(y.shape(), [3, 4, 2, 3]);
        y.as_slice::<f32>().to_vec()
    }

    /// Samples outside of the image are nothing, and count.
    #[test]
    fn regions_may_be_larger_than_the_image() {
        let x = Tensor::from_slice(&[1, 1, 2, 2], &[1f32; 4]);
        let rois = Tensor::from_slice(&[1, 4], &[-1f32, -1.0, 3.0, 3.0]);
        let image = Tensor::from_slice(&[1], &[0i64]);
        let attrs = RoiAttrs {
            output: [1, 1],
            samples: 0,
            scale: 1.0,
            half_pixel: false,
            max: false,
            channels: Channels::First,
        };
        let types = [&x, &rois, &image].map(TensorType::of);
        let op = roi_align(attrs, &types[0], &types[1], &types[2]).unwrap();
        let y = interp::eval(&op.expr, &[&x, &rois, &image]).unwrap();
        // At -0.5, 0.5, 1.5 and 2.5, of which the last is further than a pixel outside.
        assert_eq!(y[0].to_f64_vec(), [9.0 / 16.0]);
    }

    #[test]
    fn channels_may_come_last() {
        for (max, samples) in [(false, 2), (true, 2), (false, 0), (true, 3)] {
            let first = pooled(Channels::First, max, samples);
            assert_eq!(first, pooled(Channels::Last, max, samples), "{max} {samples}");
            assert!(first.iter().any(|value| *value != first[0]));
        }
    }
}
