//! Inclusive intervals of integers, and how operations carry them on.

use ansc_runtime::DType;

use crate::expr::{BinOp, UnOp};
use crate::scalar::Scalar;

/// All integers from `low` to `high`; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The smallest value.
    pub low: i128,
    /// The largest value.
    pub high: i128,
}

impl Interval {
    /// From `low` to `high`, which must not be less.
    pub fn new(low: i128, high: i128) -> Interval {
        debug_assert!(low <= high, "{low}..={high} is empty");
        Interval { low, high }
    }

    /// One value alone.
    pub fn point(value: i128) -> Interval {
        Interval { low: value, high: value }
    }

    /// All values of an integer type or of bool.
    pub fn of_type(dtype: DType) -> Option<Interval> {
        let bits = 8 * dtype.size() as u32;
        match dtype {
            DType::Bool => Some(Interval::new(0, 1)),
            d if d.is_signed_int() => {
                Some(Interval::new(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
            }
            d if d.is_unsigned_int() => Some(Interval::new(0, (1 << bits) - 1)),
            _ => None,
        }
    }

    /// The value of an integer or bool; `None` for floats.
    pub fn of_scalar(value: Scalar) -> Option<Interval> {
        match value.dtype() {
            d if d.is_float() => None,
            DType::U64 => Some(Interval::point(i128::from(value.as_i64() as u64))),
            _ => Some(Interval::point(i128::from(value.as_i64()))),
        }
    }

    /// Whether it has one value alone.
    pub fn is_point(self) -> bool {
        self.low == self.high
    }

    /// Whether the value is between the bounds, or is one of them.
    pub fn contains(self, value: i128) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether all values are in `other` too.
    pub fn within(self, other: Interval) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// The smallest interval that has the values of both.
    pub fn union(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The values that both contain; `self` if there are none, which only dead code can ask for.
    pub fn meet(self, other: Interval) -> Interval {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Interval { low, high } } else { self }
    }

    /// All sums of a value of each; `None` if one overflows.
    pub fn plus(self, other: Interval) -> Option<Interval> {
        Some(Interval {
            low: self.low.checked_add(other.low)?,
            high: self.high.checked_add(other.high)?,
        })
    }

    /// All values times a constant; `None` if one overflows.
    pub fn times(self, by: i128) -> Option<Interval> {
        let (a, b) = (self.low.checked_mul(by)?, self.high.checked_mul(by)?);
        Some(Interval { low: a.min(b), high: a.max(b) })
    }

    /// Both bounds, if they are `i64`.
    pub fn to_i64(self) -> Option<(i64, i64)> {
        Some((i64::try_from(self.low).ok()?, i64::try_from(self.high).ok()?))
    }

    /// The values of `op` on integers that never wrap; `None` if nothing is known of them, or if a
    /// bound does not fit. Truth is 1, and what is divided by zero is zero.
    ///
    /// It is the smallest interval, except for remainders by several divisors and for bits of
    /// several numbers.
    pub fn binary(op: BinOp, a: Interval, b: Interval) -> Option<Interval> {
        match op {
            BinOp::Add => a.plus(b),
            BinOp::Sub => a.plus(b.negated()?),
            BinOp::Mul => corners(a, b, i128::checked_mul),
            BinOp::Min => Some(Interval::new(a.low.min(b.low), a.high.min(b.high))),
            BinOp::Max => Some(Interval::new(a.low.max(b.low), a.high.max(b.high))),
            BinOp::Div | BinOp::Rem | BinOp::FloorDiv | BinOp::FloorMod => divided(op, a, b),
            BinOp::And | BinOp::Or | BinOp::Xor => bitwise(op, a, b),
            BinOp::Shl if b.within(AMOUNTS) => corners(a, b, |x, by| x.checked_mul(1 << by)),
            BinOp::Shr if b.within(AMOUNTS) => corners(a, b, |x, by| Some(x >> by)),
            BinOp::Eq => Some(truth(a == b && a.is_point(), a.low <= b.high && b.low <= a.high)),
            BinOp::Ne => Some(truth(a.high < b.low || b.high < a.low, a != b || !a.is_point())),
            BinOp::Lt => Some(truth(a.high < b.low, a.low < b.high)),
            BinOp::Le => Some(truth(a.high <= b.low, a.low <= b.high)),
            BinOp::Shl | BinOp::Shr | BinOp::Pow => None,
            BinOp::Dot4 | BinOp::Dot2 | BinOp::PairBf16 | BinOp::DotBf16 | BinOp::Mix => None,
        }
    }

    /// As [`Interval::binary`], for operands of an integer type or bool: all values of the type,
    /// where the result may wrap or nothing is known of it. `None` for floats.
    pub fn wrapping_binary(op: BinOp, dtype: DType, a: Interval, b: Interval) -> Option<Interval> {
        Interval::wrapped(Interval::binary(op, a, b), dtype)
    }

    /// The values of an operation that wraps to `dtype`.
    fn wrapped(result: Option<Interval>, dtype: DType) -> Option<Interval> {
        let all = Interval::of_type(dtype)?;
        Some(result.filter(|r| r.within(all)).unwrap_or(all))
    }

    /// All values with the other sign; `None` if one overflows.
    fn negated(self) -> Option<Interval> {
        Some(Interval { low: self.high.checked_neg()?, high: self.low.checked_neg()? })
    }

    fn magnitude(self) -> i128 {
        self.low.abs().max(self.high.abs())
    }
}

/// Amounts that elements of some type can be moved by without losing all bits.
const AMOUNTS: Interval = Interval { low: 0, high: 63 };

/// The values of `op` on operands of an integer type or bool.
pub(super) fn unary(op: UnOp, dtype: DType, x: Interval) -> Option<Interval> {
    let result = match op {
        UnOp::Neg => x.times(-1),
        UnOp::Abs if x.low >= 0 => Some(x),
        UnOp::Abs => Some(Interval::new(if x.high < 0 { -x.high } else { 0 }, x.magnitude())),
        UnOp::Sign => Some(Interval::new(x.low.signum(), x.high.signum())),
        UnOp::Not if dtype.is_signed_int() => Some(Interval::new(-x.high - 1, -x.low - 1)),
        UnOp::Not => {
            let last = Interval::of_type(dtype)?.high;
            Some(Interval::new(last - x.high, last - x.low))
        }
        _ => None,
    };
    Interval::wrapped(result, dtype)
}

/// Whether something holds always, and whether it ever does.
fn truth(always: bool, ever: bool) -> Interval {
    Interval::new(always.into(), ever.into())
}

/// `a / b` rounded down, by a divisor that is at least 1.
pub(super) fn floor_div(a: i128, b: i128) -> i128 {
    match (i64::try_from(a), i64::try_from(b)) {
        // A division of 64 bits takes a fraction of the time.
        (Ok(a), Ok(b)) => a.div_euclid(b).into(),
        _ => a.div_euclid(b),
    }
}

/// The extremes of an operation that is monotonous in each operand.
fn corners(a: Interval, b: Interval, f: impl Fn(i128, i128) -> Option<i128>) -> Option<Interval> {
    let all = [f(a.low, b.low)?, f(a.low, b.high)?, f(a.high, b.low)?, f(a.high, b.high)?];
    let low = all.iter().copied().reduce(i128::min)?;
    let high = all.iter().copied().reduce(i128::max)?;
    Some(Interval { low, high })
}

/// Quotients or remainders, by the positive divisors, the negative ones and zero.
fn divided(op: BinOp, a: Interval, b: Interval) -> Option<Interval> {
    if b.low > 0 {
        return by_positive(op, a, b);
    }
    let mut all = b.contains(0).then(|| Interval::point(0));
    let mut join = |more: Interval| all = Some(all.map_or(more, |all| all.union(more)));
    if b.high > 0 {
        join(by_positive(op, a, Interval::new(1, b.high))?);
    }
    if b.low < 0 {
        let sizes = Interval::new(b.low, b.high.min(-1)).negated()?;
        join(match op {
            // The remainder has the sign of the dividend.
            BinOp::Rem => by_positive(op, a, sizes)?,
            // It has that of the divisor.
            BinOp::FloorMod => by_positive(op, a.negated()?, sizes)?.negated()?,
            _ => by_positive(op, a.negated()?, sizes)?,
        });
    }
    all
}

/// Quotients or remainders by divisors of which each is at least 1.
fn by_positive(op: BinOp, a: Interval, b: Interval) -> Option<Interval> {
    match op {
        BinOp::Div => Some(quotients(a, b, |x, y| x / y)),
        BinOp::FloorDiv => Some(quotients(a, b, floor_div)),
        BinOp::FloorMod => Some(modulo(a, b)),
        _ if a.low >= 0 => Some(modulo(a, b)),
        _ => {
            let sizes = Interval::new(a.low, a.high.min(-1)).negated()?;
            let below = modulo(sizes, b).negated()?;
            let above = (a.high >= 0).then(|| modulo(Interval::new(0, a.high), b));
            Some(above.map_or(below, |above| above.union(below)))
        }
    }
}

/// Quotients grow with the dividend; with the divisor they go towards zero.
fn quotients(a: Interval, b: Interval, f: impl Fn(i128, i128) -> i128) -> Interval {
    Interval {
        low: f(a.low, if a.low < 0 { b.low } else { b.high }),
        high: f(a.high, if a.high < 0 { b.high } else { b.low }),
    }
}

/// Remainders that are not negative, by divisors of which each is at least 1.
fn modulo(a: Interval, b: Interval) -> Interval {
    if a.low >= 0 && a.high < b.low {
        return a;
    }
    if b.is_point() {
        let start = floor_div(a.low, b.low) * b.low;
        if a.high - start < b.low {
            return Interval::new(a.low - start, a.high - start);
        }
    }
    let most = b.high - 1;
    Interval::new(0, if a.low < 0 { most } else { most.min(a.high) })
}

/// Bits of numbers that are not negative, and those that one of these lets through.
fn bitwise(op: BinOp, a: Interval, b: Interval) -> Option<Interval> {
    if a.is_point() && b.is_point() {
        return Some(Interval::point(match op {
            BinOp::And => a.low & b.low,
            BinOp::Or => a.low | b.low,
            _ => a.low ^ b.low,
        }));
    }
    let masks = [a, b].into_iter().filter(|x| x.low >= 0).map(|x| x.high);
    if op == BinOp::And {
        return Some(Interval::new(0, masks.min()?));
    }
    if a.low < 0 || b.low < 0 {
        return None;
    }
    let most = match a.high.max(b.high) {
        0 => 0,
        most => i128::MAX >> (most.leading_zeros() - 1),
    };
    Some(Interval::new(if op == BinOp::Or { a.low.max(b.low) } else { 0 }, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::fold_binary;

    /// The evaluator's results for each pair of `numbers`; none if the type lacks the operation.
    fn results(op: BinOp, dtype: DType, numbers: &[i64]) -> Option<Vec<Vec<i128>>> {
        let value = |a: i64, b: i64| {
            let [a, b] = [a, b].map(|v| Scalar::from_i64(dtype, v));
            Some(Interval::of_scalar(fold_binary(op, a, b)?)?.low)
        };
        let row = |&a: &i64| numbers.iter().map(|&b| value(a, b)).collect();
        numbers.iter().map(row).collect()
    }

    /// The smallest interval with the results for two ranges of places among the numbers.
    fn hull(results: &[Vec<i128>], a: &Places, b: &Places) -> Interval {
        let rows = &results[a.clone()];
        let all = rows.iter().flat_map(|row| &row[b.clone()]).map(|&v| Interval::point(v));
        all.reduce(Interval::union).unwrap()
    }

    type Places = std::ops::RangeInclusive<usize>;

    /// All ranges of the places of `ends`.
    fn ranges(ends: &[usize]) -> Vec<Places> {
        let from = |&low: &usize| ends.iter().filter(move |h| low <= **h).map(move |&h| low..=h);
        ends.iter().flat_map(from).collect()
    }

    /// Operations of which nothing is known at all.
    fn is_opaque(op: BinOp) -> bool {
        use BinOp::*;
        matches!(op, Pow | Dot4 | Dot2 | PairBf16 | DotBf16 | Mix)
    }

    /// Whether the smallest interval is promised.
    fn is_tight(op: BinOp, b: Interval) -> bool {
        match op {
            BinOp::Rem | BinOp::FloorMod => b.is_point(),
            BinOp::And | BinOp::Or | BinOp::Xor => false,
            _ => true,
        }
    }

    #[test]
    fn intervals_of_indices_have_all_results_and_no_others() {
        let numbers: Vec<i64> = (-9..=9).collect();
        let places = ranges(&Vec::from_iter(0..numbers.len()));
        let interval =
            |p: &Places| Interval::new(numbers[*p.start()].into(), numbers[*p.end()].into());
        for op in BinOp::ALL.into_iter().filter(|op| !is_opaque(*op)) {
            let results = results(op, DType::I64, &numbers).unwrap();
            for (a, b) in places.iter().flat_map(|a| places.iter().map(move |b| (a, b))) {
                let expected = hull(&results, a, b);
                let (a, b) = (interval(a), interval(b));
                let Some(found) = Interval::binary(op, a, b) else {
                    assert!(a.low < 0 || b.low < 0, "{op:?} of {a:?} and {b:?} is not known");
                    continue;
                };
                assert!(expected.within(found), "{op:?} of {a:?} and {b:?}: {found:?}");
                let is_tight = is_tight(op, b) || (a.is_point() && b.is_point());
                assert!(!is_tight || found == expected, "{op:?} of {a:?} and {b:?}: {found:?}");
            }
        }
    }

    /// With results that wrap, and amounts beyond the width.
    #[test]
    fn intervals_of_bytes_have_all_results() {
        for dtype in [DType::I8, DType::U8, DType::Bool] {
            let all = Interval::of_type(dtype).unwrap();
            let numbers: Vec<i64> = (all.low as i64..=all.high as i64).collect();
            let ends = [-128, -1, 0, 1, 7, 9, 127, 128, 255].into_iter();
            let ends: Vec<usize> = ends.filter_map(|v| numbers.binary_search(&v).ok()).collect();
            let places = ranges(&ends);
            let interval =
                |p: &Places| Interval::new(numbers[*p.start()].into(), numbers[*p.end()].into());
            for op in BinOp::ALL.into_iter().filter(|op| !op.is_comparison()) {
                let Some(results) = results(op, dtype, &numbers) else { continue };
                for (a, b) in places.iter().flat_map(|a| places.iter().map(move |b| (a, b))) {
                    let expected = hull(&results, a, b);
                    let found = Interval::wrapping_binary(op, dtype, interval(a), interval(b));
                    let found = found.unwrap();
                    assert!(
                        expected.within(found),
                        "{op:?} of {:?} and {:?} of {dtype:?}: {found:?} lacks {expected:?}",
                        interval(a),
                        interval(b)
                    );
                }
            }
        }
    }

    #[test]
    fn what_may_not_fit_is_not_known() {
        let all = Interval::of_type(DType::I64).unwrap();
        let huge = Interval::new(i128::MIN, i128::MAX);
        for op in [BinOp::Add, BinOp::Sub, BinOp::Mul] {
            assert_eq!(Interval::binary(op, huge, huge), None);
            assert!(!Interval::binary(op, all, all).unwrap().within(all));
            assert_eq!(Interval::wrapping_binary(op, DType::I64, all, all), Some(all));
        }
        let (low, minus) = (Interval::point(i64::MIN.into()), Interval::point(-1));
        assert_eq!(Interval::wrapping_binary(BinOp::Div, DType::I64, low, minus), Some(all));
    }
}
