//! An axis to be resized as expressions: the index and the weight of each tap.

use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};

use super::table::{Table, table};
use super::{ResizeAttrs, ResizeAxis};
use crate::expr::Expr;
use crate::ops::index::{scaled, shifted};

/// Factors above this one are left to tables.
const MAX_FACTOR: usize = 64;

/// How one axis is resized. Expressions are at a point `v0, v1, ..` of the result.
pub(super) struct Sampling {
    pub(super) axis: usize,
    pub(super) extent: usize,
    pub(super) taps: usize,
    scale: f64,
    index: Index,
    weights: Option<usize>,
    outside: Option<usize>,
}

enum Index {
    /// Tap `t` of element `v` reads `floor_div(v * times + offset, over) + t`, kept inside `0..=last`
    /// where it does not stay there by itself.
    Rule { times: i64, over: i64, offset: i64, last: i64, stays: bool },
    /// Operand `[out, taps]`.
    Table(usize),
}

/// The operands after the first one, which is the tensor.
pub(super) struct Tables {
    dtype: DType,
    pub(super) tensors: Vec<Tensor>,
}

impl Tables {
    /// `dtype` is the type of weights.
    pub(super) fn new(dtype: DType) -> Tables {
        Tables { dtype, tensors: vec![] }
    }

    fn add(&mut self, tensor: Tensor) -> usize {
        self.tensors.push(tensor);
        self.tensors.len()
    }

    /// `n` elements become `axis.extent`; neither is zero.
    pub(super) fn sampling(
        &mut self,
        n: usize,
        axis: &ResizeAxis,
        attrs: &ResizeAttrs,
    ) -> Sampling {
        let table = table(n, axis, attrs);
        let shape = [axis.extent, table.taps];
        let index = rule(&table, n, axis.extent)
            .unwrap_or_else(|| Index::Table(self.add(Tensor::from_slice(&shape, &table.indices))));
        let weights =
            (table.taps > 1).then(|| self.add(stored(self.dtype, &shape, &table.weights)));
        let outside = table.outside.map(|o| self.add(Tensor::from_slice(&[o.len()], &o)));
        Sampling {
            axis: axis.axis,
            extent: axis.extent,
            taps: table.taps,
            scale: axis.scale,
            index,
            weights,
            outside,
        }
    }
}

impl Sampling {
    /// Above one for an axis that gets longer.
    pub(super) fn growth(&self) -> f64 {
        self.scale
    }

    pub(super) fn index(&self, tap: Expr) -> Expr {
        let v = Expr::var(self.axis);
        match self.index {
            Index::Table(operand) => Expr::load(operand, vec![v, tap]),
            Index::Rule { times, over, offset, last, stays } => {
                let at = shifted(scaled(v, times), offset);
                let first = if over == 1 { at } else { at.floor_div(over) };
                let at = match &tap {
                    Expr::Const(t) => shifted(first, t.as_i64()),
                    _ => first + tap,
                };
                if stays { at } else { at.max(Expr::int(0)).min(Expr::int(last)) }
            }
        }
    }

    pub(super) fn weight(&self, tap: Expr) -> Expr {
        let operand = self.weights.expect("weights are asked for where there are several taps");
        Expr::load(operand, vec![Expr::var(self.axis), tap])
    }

    /// Whether the element lies outside of the input.
    pub(super) fn outside(&self) -> Option<Expr> {
        self.outside.map(|operand| Expr::load(operand, vec![Expr::var(self.axis)]))
    }
}

fn stored(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    fn of<T: ansc_runtime::Element>(s: &[usize], v: &[f64], f: impl Fn(f64) -> T) -> Tensor {
        Tensor::from_slice(s, &v.iter().map(|&v| f(v)).collect::<Vec<T>>())
    }
    match dtype {
        DType::F16 => of(shape, values, f16::from_f64),
        DType::BF16 => of(shape, values, bf16::from_f64),
        DType::F32 => of(shape, values, |v| v as f32),
        _ => of(shape, values, |v| v),
    }
}

/// The rule that gives the indices of all taps that have a weight, for whole factors.
fn rule(table: &Table, n: usize, extent: usize) -> Option<Index> {
    let (times, over) = match (extent.checked_div(n)?, n.checked_div(extent)?) {
        (up, _) if up * n == extent && up <= MAX_FACTOR => (1, up as i64),
        (_, down) if down * extent == n && down <= MAX_FACTOR => (down as i64, 1),
        _ => return None,
    };
    let last = n as i64 - 1;
    let factor = times.max(over);
    (-3 * factor..=3 * factor).find_map(|offset| {
        let first = |v: usize| (v as i64 * times + offset).div_euclid(over);
        let stays = fits(table, first, last)?;
        Some(Index::Rule { times, over, offset, last, stays })
    })
}

/// Whether taps stay inside by themselves; `None` if they are not those of the table.
fn fits(table: &Table, first: impl Fn(usize) -> i64, last: i64) -> Option<bool> {
    let mut stays = true;
    for (i, (&index, &weight)) in table.indices.iter().zip(&table.weights).enumerate() {
        let at = first(i / table.taps) + (i % table.taps) as i64;
        stays &= (0..=last).contains(&at);
        if weight != 0.0 && at.clamp(0, last) != index {
            return None;
        }
    }
    Some(stays)
}

#[cfg(test)]
mod tests {
    use super::super::{Coordinates, Interpolation, Rounding};
    use super::*;

    fn sampling(
        n: usize,
        extent: usize,
        interpolation: Interpolation,
        coordinates: Coordinates,
    ) -> Sampling {
        let scale = extent as f64 / n as f64;
        let axis = ResizeAxis { axis: 0, extent, scale, region: (0.0, 1.0) };
        let attrs = ResizeAttrs {
            interpolation,
            coordinates,
            antialias: false,
            exclude_outside: false,
            extrapolation: 0.0,
        };
        Tables::new(DType::F32).sampling(n, &axis, &attrs)
    }

    #[test]
    fn whole_factors_need_no_table() {
        let nearest = Interpolation::Nearest(Rounding::Floor);
        let twice = sampling(5, 10, nearest, Coordinates::Asymmetric);
        assert_eq!(twice.index(Expr::int(0)), Expr::var(0).floor_div(2));
        let third = sampling(9, 3, nearest, Coordinates::Asymmetric);
        assert_eq!(third.index(Expr::int(0)), Expr::var(0) * Expr::int(3));
        for factor in 2..9 {
            for interpolation in [Interpolation::Linear, Interpolation::Cubic { a: -0.75 }] {
                let up = sampling(5, 5 * factor, interpolation, Coordinates::HalfPixel);
                assert!(matches!(up.index, Index::Rule { .. }), "{factor} {interpolation:?}");
            }
        }
        assert!(matches!(sampling(5, 7, nearest, Coordinates::Asymmetric).index, Index::Table(_)));
    }
}
