//! A number as a function of sizes.
//!
//! In: the sizes at which a model was looked at, and the values that a number had there. Out: an
//! [`Extent`] that gives each of these values, or `None` if no form that is known here does.
//!
//! ```text
//! s: 1 2 3 4 5    3 5 7 9 11 -> s * 2 + 1    1 1 2 2 3 -> floor((s + 1) / 2)
//! ```

use ansc_runtime::Extent;

/// Quotients by numbers up to this one are recognised.
const MAX_DIVISOR: i128 = 64;

/// So many sizes are looked at in enough places to tell how a number depends on two of them.
const MAX_SIZES: u32 = 6;
/// If there are more sizes than that, their pairs are too many to look at each.
const MAX_IN_PAIRS: u32 = 16;

/// Where a model was looked at.
pub(super) struct Fit<'a> {
    /// A tuple of sizes for each place, the largest first.
    pub(super) samples: &'a [Vec<usize>],
}

impl Fit<'_> {
    /// A function of the sizes with these values.
    pub(super) fn of(&self, values: &[i64]) -> Option<Extent> {
        if values.iter().all(|v| *v == values[0]) {
            return Some(Extent::Constant(values[0]));
        }
        let found = self.of_any(values);
        let found = found.or_else(|| self.polynomial(values)).or_else(|| self.product(values));
        found.filter(|extent| self.gives(extent, values))
    }

    /// A function of one of the sizes with these values.
    pub(super) fn of_any(&self, values: &[i64]) -> Option<Extent> {
        let found = (0..self.samples[0].len()).find_map(|size| self.of_one(size, values));
        found.filter(|extent| self.gives(extent, values))
    }

    fn gives(&self, extent: &Extent, values: &[i64]) -> bool {
        self.samples.iter().zip(values).all(|(sizes, value)| {
            let sizes: Vec<i64> = sizes.iter().map(|s| *s as i64).collect();
            extent.at(&sizes) == Some(*value)
        })
    }

    /// `c * floor((a * s + b) / d) + e` of one size `s`, or the smaller of a quotient and a number.
    fn of_one(&self, size: usize, values: &[i64]) -> Option<Extent> {
        let mut points: Vec<(i128, i128)> =
            self.samples.iter().zip(values).map(|(s, v)| (s[size] as i128, *v as i128)).collect();
        points.sort_unstable();
        points.dedup();
        if points.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let found = quotient(&points, size, 1).or_else(|| capped(&points, size, 1));
        let found = found.or_else(|| quotient(&points, size, MAX_DIVISOR));
        let found = found.or_else(|| steps(&points, size));
        found.or_else(|| capped(&points, size, MAX_DIVISOR))
    }

    /// A sum of products of at most two sizes, with whole coefficients.
    fn polynomial(&self, values: &[i64]) -> Option<Extent> {
        let count = self.samples[0].len() as u32;
        if count <= MAX_SIZES {
            return self.polynomial_of(&(0..count).collect::<Vec<u32>>(), values);
        }
        // Some of many sizes are looked at in few places, which tell nothing of all together.
        let pairs = (0..count).flat_map(|i| (i + 1..count).map(move |k| vec![i, k]));
        let pairs = pairs.filter(|_| count <= MAX_IN_PAIRS);
        let mut some = (0..count).map(|i| vec![i]).chain(pairs);
        some.find_map(|sizes| self.polynomial_of(&sizes, values))
    }

    fn polynomial_of(&self, of: &[u32], values: &[i64]) -> Option<Extent> {
        let mut monomials: Vec<Vec<u32>> = vec![vec![]];
        monomials.extend(of.iter().map(|&i| vec![i]));
        let pairs = of.iter().enumerate().flat_map(|(n, &i)| of[n..].iter().map(move |&k| [i, k]));
        monomials.extend(pairs.map(Vec::from));
        let row = |(sizes, value): (&Vec<usize>, &i64)| {
            let term = |m: &Vec<u32>| m.iter().map(|i| sizes[*i as usize] as i128).product();
            let mut row: Vec<i128> = monomials.iter().map(term).collect();
            row.push((*value).into());
            row
        };
        let rows: Vec<Vec<i128>> = self.samples.iter().zip(values).map(row).collect();
        let coefficients = solution(rows, monomials.len())?;
        let terms = monomials.iter().zip(coefficients).filter(|(_, c)| *c != 0);
        let term = |(monomial, c): (&Vec<u32>, i128)| {
            let mut factors: Vec<Extent> = monomial.iter().map(|i| Extent::Size(*i)).collect();
            if c != 1 || factors.is_empty() {
                factors.push(Extent::Constant(i64::try_from(c).ok()?));
            }
            Some(if factors.len() == 1 { factors.swap_remove(0) } else { Extent::Product(factors) })
        };
        Some(Extent::Sum(terms.map(term).collect::<Option<Vec<Extent>>>()?))
    }

    /// A product of functions of one size each.
    fn product(&self, values: &[i64]) -> Option<Extent> {
        let largest = &self.samples[0];
        let mut factors = vec![];
        let mut at_largest = 1_i64;
        for size in 0..largest.len() {
            let alone = |s: &Vec<usize>| (0..s.len()).all(|k| k == size || s[k] == largest[k]);
            let slice: Vec<(usize, i64)> = self
                .samples
                .iter()
                .zip(values)
                .filter(|(s, _)| alone(s))
                .map(|(s, v)| (s[size], *v))
                .collect();
            let common = slice.iter().fold(0, |common, (_, v)| divisor(common, *v));
            if common == 0 {
                return None;
            }
            let samples: Vec<Vec<usize>> = slice.iter().map(|(s, _)| vec![*s]).collect();
            let reduced: Vec<i64> = slice.iter().map(|(_, v)| v / common).collect();
            if reduced.iter().all(|v| *v == reduced[0]) {
                continue;
            }
            let factor = Fit { samples: &samples }.of_one(0, &reduced)?;
            factors.push(renamed(&factor, size as u32));
            at_largest = at_largest.checked_mul(reduced[0])?;
        }
        if factors.len() < 2 || at_largest == 0 || values[0] % at_largest != 0 {
            return None;
        }
        factors.push(Extent::Constant(values[0] / at_largest));
        Some(Extent::Product(factors))
    }
}

/// `floor((a * s + b) / d)`, of which these are the points, where `d` is at most `most`.
fn quotient(points: &[(i128, i128)], size: usize, most: i128) -> Option<Extent> {
    let (first, last) = (points.first()?, points.last()?);
    let (rise, run) = (last.1 - first.1, last.0 - first.0);
    if run == 0 {
        return None;
    }
    (1..=most).find_map(|by| {
        let slope = (rise * by).div_euclid(run);
        [slope, slope + 1].into_iter().find_map(|slope| {
            let constant = offset(points, slope, by)?;
            let linear = linear(size as u32, slope, constant)?;
            Some(if by == 1 { linear } else { Extent::Floor(Box::new(linear), by as i64) })
        })
    })
}

/// A multiple of a quotient, and a number more.
fn steps(points: &[(i128, i128)], size: usize) -> Option<Extent> {
    let base = i64::try_from(points[0].1).ok()?;
    let steps = points.iter().map(|p| i64::try_from(p.1 - points[0].1).ok());
    let step = steps.collect::<Option<Vec<i64>>>()?.into_iter().fold(0, divisor);
    let steps = points.iter().map(|p| (p.0, (p.1 - points[0].1) / i128::from(step.max(1))));
    let of = quotient(&steps.collect::<Vec<_>>(), size, MAX_DIVISOR)?;
    let scaled = Extent::Product(vec![of, Extent::Constant(step)]);
    Some(Extent::Sum(vec![scaled, Extent::Constant(base)]))
}

/// The smaller of a number and a quotient by at most `divisor`.
fn capped(points: &[(i128, i128)], size: usize, divisor: i128) -> Option<Extent> {
    let most = points.iter().map(|point| point.1).max()?;
    let below: Vec<(i128, i128)> = points.iter().filter(|p| p.1 < most).copied().collect();
    let of = match below[..] {
        _ if points.len() - below.len() < 2 => return None,
        [(one, value)] if one == value => Extent::Size(size as u32),
        _ => quotient(&below, size, divisor)?,
    };
    let reaches = |(s, value): &(i128, i128)| {
        let mut sizes = vec![0; size];
        sizes.push(*s as i64);
        of.at(&sizes).is_some_and(|quotient| i128::from(quotient) >= *value)
    };
    let number = Extent::Constant(i64::try_from(most).ok()?);
    points.iter().all(reaches).then(|| Extent::Min(vec![of.clone(), number]))
}

/// The `b` with which `floor((slope * s + b) / by)` is the value at each point.
fn offset(points: &[(i128, i128)], slope: i128, by: i128) -> Option<i128> {
    let (mut low, mut high) = (i128::MIN, i128::MAX);
    for (size, value) in points {
        let least = value * by - slope * size;
        low = low.max(least);
        high = high.min(least + by - 1);
    }
    (low <= high).then_some(low)
}

fn linear(size: u32, slope: i128, constant: i128) -> Option<Extent> {
    let (slope, constant) = (i64::try_from(slope).ok()?, i64::try_from(constant).ok()?);
    let scaled = match slope {
        1 => Extent::Size(size),
        _ => Extent::Product(vec![Extent::Size(size), Extent::Constant(slope)]),
    };
    Some(match constant {
        0 => scaled,
        _ => Extent::Sum(vec![scaled, Extent::Constant(constant)]),
    })
}

/// The same function of another size.
fn renamed(extent: &Extent, size: u32) -> Extent {
    let all = |parts: &[Extent]| parts.iter().map(|part| renamed(part, size)).collect();
    match extent {
        Extent::Constant(value) => Extent::Constant(*value),
        Extent::Size(_) => Extent::Size(size),
        Extent::Sum(parts) => Extent::Sum(all(parts)),
        Extent::Product(parts) => Extent::Product(all(parts)),
        Extent::Floor(of, by) => Extent::Floor(Box::new(renamed(of, size)), *by),
        Extent::Min(parts) => Extent::Min(all(parts)),
    }
}

fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { divisor(b, a % b) }
}

/// Whole numbers that solve the equations, whose last column is what they equal; 0 where anything
/// would do.
fn solution(mut rows: Vec<Vec<i128>>, unknowns: usize) -> Option<Vec<i128>> {
    let mut pivots = vec![];
    for column in 0..unknowns {
        let at = pivots.len();
        let Some(found) = (at..rows.len()).find(|&r| rows[r][column] != 0) else { continue };
        rows.swap(at, found);
        let pivot = rows[at].clone();
        for (r, row) in rows.iter_mut().enumerate() {
            if r != at && row[column] != 0 {
                *row = eliminated(row, &pivot, column)?;
            }
        }
        pivots.push(column);
    }
    let consistent = rows[pivots.len()..].iter().all(|row| row[unknowns] == 0);
    let mut solution = vec![0; unknowns];
    for (row, &column) in rows.iter().zip(&pivots) {
        if row[unknowns] % row[column] != 0 {
            return None;
        }
        solution[column] = row[unknowns] / row[column];
    }
    consistent.then_some(solution)
}

/// `row` without `column`, by a multiple of `pivot`, in lowest terms.
fn eliminated(row: &[i128], pivot: &[i128], column: usize) -> Option<Vec<i128>> {
    let (by, with) = (pivot[column], row[column]);
    let part = |(a, b): (&i128, &i128)| a.checked_mul(by)?.checked_sub(b.checked_mul(with)?);
    let row: Vec<i128> = row.iter().zip(pivot).map(part).collect::<Option<_>>()?;
    let common = row.iter().fold(0_i128, |common, v| {
        let (mut a, mut b) = (common, v.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    });
    Some(row.iter().map(|v| v / common.max(1)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Range;
    use super::super::samples::samples;
    use super::*;

    /// The text of what is found for `value`.
    fn found(ranges: &[(usize, usize)], value: impl Fn(&[i64]) -> i64) -> Option<String> {
        let range = |&(low, high): &(usize, usize)| Range { name: "n".into(), low, high };
        let samples = samples(&ranges.iter().map(range).collect::<Vec<_>>(), &[]);
        let values: Vec<i64> = samples
            .iter()
            .map(|s| value(&s.iter().map(|v| *v as i64).collect::<Vec<_>>()))
            .collect();
        Fit { samples: &samples }.of(&values).map(|extent| extent.to_string())
    }

    #[test]
    fn forms_are_found() {
        let one = &[(1, 300)];
        assert_eq!(found(one, |_| 7).unwrap(), "7");
        assert_eq!(found(one, |s| s[0]).unwrap(), "s0");
        assert_eq!(found(one, |s| 3 * s[0] - 4).unwrap(), "(s0 * 3 + -4)");
        assert_eq!(found(one, |s| -s[0]).unwrap(), "s0 * -1");
        assert_eq!(found(one, |s| (s[0] + 1) / 2).unwrap(), "floor((s0 + 1) / 2)");
        assert_eq!(found(one, |s| (3 * s[0] + 5) / 7).unwrap(), "floor((s0 * 3 + 5) / 7)");
        assert_eq!(found(one, |s| s[0] * s[0]).unwrap(), "(s0 * s0)");
        let two = &[(1, 9), (4, 100)];
        assert_eq!(found(two, |s| s[1] + 2).unwrap(), "(s1 + 2)");
        assert_eq!(found(two, |s| s[0] * s[1] * 12).unwrap(), "(s0 * s1 * 12)");
        assert_eq!(found(two, |s| s[0] + s[1]).unwrap(), "(s0 + s1)");
        let steps = found(one, |s| 2 * ((s[0] - 1).div_euclid(2)) + 3).unwrap();
        assert_eq!(steps, "(floor((s0 + -1) / 2) * 2 + 3)");
        assert_eq!(found(one, |s| s[0].min(100)).unwrap(), "min(s0, 100)");
        assert_eq!(found(&[(2, 9)], |s| s[0].min(3)).unwrap(), "min(s0, 3)");
        assert_eq!(found(&[(1, 128)], |s| (s[0] + 63) / 64).unwrap(), "floor((s0 + 63) / 64)");
        assert_eq!(found(one, |s| (3 * s[0]).min(100) + 2).unwrap(), "min((s0 * 3 + 2), 102)");
        let halves = found(two, |s| 8 * ((s[0] + 1) / 2) * (s[1] / 4)).unwrap();
        assert_eq!(halves, "floor((s0 + 1) / 2) * floor(s1 / 4) * 8");
    }

    #[test]
    fn forms_of_some_of_many_sizes_are_found() {
        let many = &[(1, 64), (1, 9), (1, 8), (1, 7), (1, 6), (1, 5), (1, 400)];
        assert_eq!(found(many, |s| 2 * s[0] * s[0]).unwrap(), "(s0 * s0 * 2)");
        assert_eq!(found(many, |s| s[0] * s[6] + s[0]).unwrap(), "(s0 + s0 * s6)");
        assert_eq!(found(many, |s| s[0] * s[1] + s[6]), None);
    }

    #[test]
    fn other_forms_are_not() {
        assert_eq!(found(&[(1, 300)], |s| s[0] * s[0] * s[0]), None);
        assert_eq!(found(&[(1, 9), (4, 100)], |s| s[0].max(s[1])), None);
        assert_eq!(found(&[(1, 300)], |s| s[0] % 2), None);
    }
}
