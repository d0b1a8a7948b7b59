//! Which elements of the input each output element along one axis is made of, and by what weights.
//!
//! Everything here depends on sizes alone, so it is computed when compiling. ONNX's formulas are
//! evaluated in `f64`, but for the choice of the nearest element, where the runtimes that models
//! were written for use `f32`: there one rounding error chooses another element.

use std::ops::Range;

use super::{Coordinates, Interpolation, ResizeAttrs, ResizeAxis, Rounding};

/// One axis of the result: row `v` lists the input elements that element `v` is made of.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Table {
    /// Elements in each row.
    pub(super) taps: usize,
    /// `[out][taps]`, inside of the axis.
    pub(super) indices: Vec<i64>,
    /// `[out][taps]`; each row sums to one. Columns at the ends that have no weight are left out.
    pub(super) weights: Vec<f64>,
    /// Rows that lie outside of the input and get the extrapolation value instead, if there are any.
    pub(super) outside: Option<Vec<bool>>,
}

/// `n` elements become `axis.extent`; neither is zero.
pub(super) fn table(n: usize, axis: &ResizeAxis, attrs: &ResizeAttrs) -> Table {
    let positions: Vec<f64> = (0..axis.extent).map(|v| position(v, n, axis, attrs)).collect();
    let rows: Vec<Vec<(i64, f64)>> =
        positions.iter().map(|&x| row(x, n, axis.scale, attrs)).collect();
    let used = used_columns(&rows);
    let taps = used.len();
    let (indices, weights) = rows.iter().flat_map(|row| row[used.clone()].iter().copied()).unzip();
    let mut table = Table { taps, indices, weights, outside: None };
    if attrs.coordinates == Coordinates::TfCropAndResize {
        let last = (n - 1) as f64;
        let outside: Vec<bool> = positions.iter().map(|&x| x < 0.0 || x > last).collect();
        table.outside = Some(outside).filter(|o| o.contains(&true));
    }
    table
}

/// Where in the input the centre of output element `v` lies.
fn position(v: usize, n: usize, axis: &ResizeAxis, attrs: &ResizeAttrs) -> f64 {
    match attrs.interpolation {
        Interpolation::Nearest(_) => f64::from(source::<f32>(v, n, axis, attrs.coordinates)),
        _ => source::<f64>(v, n, axis, attrs.coordinates),
    }
}

trait Real:
    Copy
    + PartialEq
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
{
    fn of(value: f64) -> Self;
}

impl Real for f32 {
    fn of(value: f64) -> f32 {
        value as f32
    }
}

impl Real for f64 {
    fn of(value: f64) -> f64 {
        value
    }
}

fn source<T: Real>(v: usize, n: usize, axis: &ResizeAxis, coordinates: Coordinates) -> T {
    let (v, n, scale, half) = (T::of(v as f64), T::of(n as f64), T::of(axis.scale), T::of(0.5));
    let one = T::of(1.0);
    let resized = scale * n;
    let half_pixel = (v + half) / scale - half;
    match coordinates {
        Coordinates::HalfPixel => half_pixel,
        Coordinates::HalfPixelSymmetric => {
            let adjustment = T::of(axis.extent as f64) / resized;
            n / T::of(2.0) * (one - adjustment) + half_pixel
        }
        Coordinates::PytorchHalfPixel if axis.extent == 1 => T::of(0.0),
        Coordinates::PytorchHalfPixel => half_pixel,
        Coordinates::AlignCorners if resized == one || axis.extent == 1 => T::of(0.0),
        Coordinates::AlignCorners => v * (n - one) / (resized - one),
        Coordinates::Asymmetric => v / scale,
        Coordinates::TfHalfPixelForNn => (v + half) / scale,
        Coordinates::TfCropAndResize => {
            let (start, end) = (T::of(axis.region.0), T::of(axis.region.1));
            let length = (end - start) * (n - one);
            let offset = match axis.extent {
                1 => length / T::of(2.0),
                extent => v * length / (T::of(extent as f64) - one),
            };
            start * (n - one) + offset
        }
    }
}

/// Elements and weights for position `x`, with indices inside of the axis.
fn row(x: f64, n: usize, scale: f64, attrs: &ResizeAttrs) -> Vec<(i64, f64)> {
    let inside = |i: i64| i.clamp(0, n as i64 - 1);
    if let Interpolation::Nearest(rounding) = attrs.interpolation {
        return vec![(inside(nearest(x, scale, rounding)), 1.0)];
    }
    let floor = x.floor();
    let mut row: Vec<(i64, f64)> = weights(x - floor, scale, attrs)
        .into_iter()
        .map(|(offset, weight)| ((floor as i64).saturating_add(offset), weight))
        .collect();
    if attrs.exclude_outside {
        row.iter_mut().filter(|(i, _)| *i != inside(*i)).for_each(|(_, weight)| *weight = 0.0);
    }
    let sum: f64 = row.iter().map(|(_, weight)| weight).sum();
    let sum = if sum == 0.0 { 1.0 } else { sum };
    row.into_iter().map(|(i, weight)| (inside(i), weight / sum)).collect()
}

/// The columns without those at either end that have no weight in any row; one column at least.
fn used_columns(rows: &[Vec<(i64, f64)>]) -> Range<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let used = |&column: &usize| rows.iter().any(|row| row[column].1 != 0.0);
    let first = (0..columns).find(used).unwrap_or(0);
    let last = (0..columns).rfind(used).unwrap_or(0);
    first..last + 1
}

fn nearest(x: f64, scale: f64, rounding: Rounding) -> i64 {
    let rounded = match rounding {
        Rounding::CeilToShrink if scale < 1.0 => x.ceil(),
        Rounding::CeilToShrink => x.floor(),
        Rounding::Floor => x.floor(),
        Rounding::Ceil => x.ceil(),
        Rounding::PreferFloor => (x - 0.5).ceil(),
        Rounding::PreferCeil => (x + 0.5).floor(),
    };
    rounded as i64
}

/// Offsets from the element at or before a position, and their weights (which need not sum to one),
/// for a position at `fraction` behind that element.
fn weights(fraction: f64, scale: f64, attrs: &ResizeAttrs) -> Vec<(i64, f64)> {
    // Shrinking with antialiasing widens the kernel by as much as the image shrinks.
    let narrow = if attrs.antialias { scale.min(1.0) } else { 1.0 };
    let (reach, kernel): (f64, &dyn Fn(f64) -> f64) = match attrs.interpolation {
        Interpolation::Cubic { a } => (2.0, &move |x| cubic(x, f64::from(a))),
        _ => (1.0, &|x| (1.0 - x).max(0.0)),
    };
    let first = (-reach / narrow).floor() as i64 + 1;
    let offsets = first..2 - first;
    offsets.map(|i| (i, kernel(((i as f64 - fraction) * narrow).abs()))).collect()
}

/// Keys' cubic convolution kernel at distance `x`.
fn cubic(x: f64, a: f64) -> f64 {
    match x {
        ..=1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        ..2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRS: ResizeAttrs = ResizeAttrs {
        interpolation: Interpolation::Linear,
        coordinates: Coordinates::HalfPixel,
        antialias: false,
        exclude_outside: false,
        extrapolation: 0.0,
    };

    fn axis(extent: usize, scale: f64) -> ResizeAxis {
        ResizeAxis { axis: 0, extent, scale, region: (0.0, 1.0) }
    }

    #[test]
    fn doubling_mixes_neighbours_by_quarters() {
        let t = table(2, &axis(4, 2.0), &ATTRS);
        assert_eq!(t.taps, 2);
        assert_eq!(t.indices, [0, 0, 0, 1, 0, 1, 1, 1]);
        assert_eq!(t.weights, [0.25, 0.75, 0.75, 0.25, 0.25, 0.75, 0.75, 0.25]);
    }

    #[test]
    fn columns_without_weight_go() {
        let t = table(9, &axis(3, 1.0 / 3.0), &ATTRS);
        assert_eq!((t.taps, &t.indices[..], &t.weights[..]), (1, &[1, 4, 7][..], &[1.0; 3][..]));
    }

    #[test]
    fn weights_sum_to_one() {
        for interpolation in [Interpolation::Linear, Interpolation::Cubic { a: -0.5 }] {
            for (antialias, exclude_outside) in [(false, false), (true, false), (false, true)] {
                for (n, extent) in [(7, 3), (3, 7), (10, 1), (5, 5), (1, 4)] {
                    let attrs = ResizeAttrs { interpolation, antialias, exclude_outside, ..ATTRS };
                    let t = table(n, &axis(extent, extent as f64 / n as f64), &attrs);
                    for row in t.weights.chunks(t.taps) {
                        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{attrs:?} {row:?}");
                    }
                    assert!(t.indices.iter().all(|&i| (0..n as i64).contains(&i)));
                }
            }
        }
    }

    #[test]
    fn rounding_of_halves() {
        let all = [Rounding::Floor, Rounding::Ceil, Rounding::PreferFloor, Rounding::PreferCeil];
        assert_eq!(all.map(|r| nearest(1.5, 2.0, r)), [1, 2, 1, 2]);
        assert_eq!(all.map(|r| nearest(2.0, 2.0, r)), [2, 2, 2, 2]);
        assert_eq!(all.map(|r| nearest(-0.25, 2.0, r)), [-1, 0, 0, 0]);
        let by_scale = |scale| nearest(1.25, scale, Rounding::CeilToShrink);
        assert_eq!((by_scale(0.5), by_scale(2.0)), (2, 1));
    }

    #[test]
    fn a_region_beyond_the_input_is_outside() {
        let attrs = ResizeAttrs { coordinates: Coordinates::TfCropAndResize, ..ATTRS };
        let t = table(4, &ResizeAxis { region: (0.0, 2.0), ..axis(3, 0.75) }, &attrs);
        assert_eq!(t.outside, Some(vec![false, false, true]));
        assert_eq!(table(4, &axis(3, 0.75), &attrs).outside, None);
    }
}
