//! The matrices of Winograd's minimal filters, from the points of Toom and Cook.
//!
//! Outputs `y[i] = sum[k] d[i + k] * g[k]`, `m` of them from a filter of `r` weights, are
//! `At ((G g) * (Bt d))` with `m + r - 1` products: polynomials of the points' values, transposed.
//!
//! ```text
//! F(2, 3), points 0, 1, -1 and infinity:
//! Bt = [-1 0 1 0; 0 1 1 0; 0 -1 1 0; 0 -1 0 1], G = [-1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1], At = [1 1 1 0; 0 1 -1 1]
//! ```
//!
//! Points come in pairs `p` and `-p`. Powers of a pair are the same or opposite, so the rows of
//! `Bt` and `G` of a pair are a sum and a difference of the same two sums, one over even columns
//! and one over odd ones; and a row of `At` takes sums or differences of pairs of columns, which
//! other rows take too:
//!
//! ```text
//! Bt of p = 3/2, the other pair being 5/8:   (d4 - 25/64 d2) + 3/2 (d3 - 25/64 d1),  of -3/2:  (..) - 3/2 (..)
//! At of F(4, 3):   y0 + (y1 + y2) + (y3 + y4),   5/8 (y1 - y2) + 3/2 (y3 - y4),   25/64 (y1 + y2) + 9/4 (y3 + y4), ..
//! ```
//!
//! Everything is exact; whoever uses a coefficient rounds it once. Those of `Bt` and `At` are short
//! enough to need no rounding.

use super::rational::Rational;

/// A row of a matrix as a sum of multiples of sums: written the same wherever rows have sums in
/// common.
pub(super) type Row = Vec<Part>;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Part {
    pub(super) factor: Rational,
    /// Columns and coefficients, the first of which is one.
    pub(super) terms: Vec<(usize, Rational)>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Filter {
    /// The matrix `At`, which turns products into outputs: `m` rows.
    pub(super) output: Vec<Row>,
    /// The matrix `G`, which transforms weights: a row for each product.
    pub(super) weight: Vec<Row>,
    /// The matrix `Bt`, which transforms inputs: a row for each product.
    pub(super) input: Vec<Row>,
}

/// The filter with `m` outputs and `r` weights.
pub(super) fn filter(m: usize, r: usize) -> Filter {
    let n = m + r - 1;
    let points = points(n - 1);
    let last = |row: usize, n: usize| if row + 1 == n { Rational::ONE } else { Rational::ZERO };
    let (highest_first, lowest_first) = (by_parity((0..n).rev()), by_parity(0..r));
    let mut filter = Filter { output: vec![], weight: vec![], input: vec![] };
    for (j, &p) in points.iter().enumerate() {
        let others = || points.iter().enumerate().filter(move |(l, _)| *l != j).map(|(_, &q)| q);
        let scale = others().fold(Rational::ONE, |product, q| product * (p - q)).inverse();
        let weight: Vec<Rational> = (0..r).map(|k| p.pow(k) * scale).collect();
        filter.weight.push(row(&weight, &lowest_first));
        filter.input.push(row(&product_of(others()), &highest_first));
    }
    // The point at infinity: the product of the highest coefficients.
    let weight: Vec<Rational> = (0..r).map(|k| last(k, r)).collect();
    filter.weight.push(row(&weight, &lowest_first));
    filter.input.push(row(&product_of(points.iter().copied()), &highest_first));
    let pairs = in_pairs(&points);
    for i in 0..m {
        let output: Vec<Rational> = points.iter().map(|p| p.pow(i)).chain([last(i, m)]).collect();
        filter.output.push(row(&output, &pairs));
    }
    filter
}

/// The row with these columns summed apart. What is not multiplied comes first: to add a multiple
/// is one operation.
fn row(coefficients: &[Rational], together: &[Vec<usize>]) -> Row {
    let part = |columns: &Vec<usize>| {
        let coefficient = |&at: &usize| Some((at, *coefficients.get(at)?));
        let all = columns.iter().filter_map(coefficient).filter(|(_, c)| !c.is_zero());
        let all: Vec<(usize, Rational)> = all.collect();
        let factor = all.first()?.1;
        let terms = all.into_iter().map(|(at, c)| (at, c * factor.inverse())).collect();
        Some(Part { factor, terms })
    };
    let (mut plain, multiplied): (Row, Row) =
        together.iter().filter_map(part).partition(|p| p.factor == Rational::ONE);
    plain.extend(multiplied);
    plain
}

/// Even columns and odd ones, in the order given.
fn by_parity(columns: impl Iterator<Item = usize> + Clone) -> [Vec<usize>; 2] {
    [0, 1].map(|parity| columns.clone().filter(|at| at % 2 == parity).collect())
}

/// The columns of zero, of each pair of points, and of infinity.
fn in_pairs(points: &[Rational]) -> Vec<Vec<usize>> {
    let (n, alone) = (points.len(), points.len() % 2);
    let zero = (0..alone).map(|at| vec![at]);
    let pairs = (alone..n).step_by(2).map(|at| vec![at, at + 1]);
    zero.chain(pairs).chain([vec![n]]).collect()
}

/// Pairs of points with the least errors of those that are eighths, as `benches/winograd_points.py`
/// finds them. With magnitudes on both sides of one, powers stay near one; a pair may have any: its
/// own products cancel exactly.
const PAIRS: [&[(i64, i64)]; 4] = [&[], &[(1, 1)], &[(5, 8), (3, 2)], &[(1, 4), (7, 8), (7, 4)]];

/// So many points: zero if their number is odd, then pairs.
///
/// # Panics
/// For more than seven points, which no filter here has.
fn points(n: usize) -> Vec<Rational> {
    let pairs = PAIRS[n / 2].iter().map(|&(a, b)| Rational::new(a, b));
    let zero = (n % 2 == 1).then_some(Rational::ZERO);
    zero.into_iter().chain(pairs.flat_map(|p| [p, -p])).collect()
}

/// Coefficients of the product of all `x - p`, the constant one first.
fn product_of(roots: impl Iterator<Item = Rational>) -> Vec<Rational> {
    roots.fold(vec![Rational::ONE], |product, p| {
        let mut next = vec![Rational::ZERO; product.len() + 1];
        for (i, &c) in product.iter().enumerate() {
            next[i + 1] = next[i + 1] + c;
            next[i] = next[i] - p * c;
        }
        next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Matrix = Vec<Vec<Rational>>;

    /// The coefficients of rows with so many columns.
    fn dense(rows: &[Row], columns: usize) -> Matrix {
        let dense = |row: &Row| {
            let mut all = vec![Rational::ZERO; columns];
            for part in row {
                part.terms.iter().for_each(|&(at, c)| all[at] = all[at] + part.factor * c);
            }
            all
        };
        rows.iter().map(dense).collect()
    }

    fn matrix(rows: &[&[i64]], denominator: i64) -> Matrix {
        rows.iter().map(|r| r.iter().map(|&n| Rational::new(n, denominator)).collect()).collect()
    }

    #[test]
    fn the_smallest_filter_is_the_known_one() {
        let f = filter(2, 3);
        assert_eq!(dense(&f.output, 4), matrix(&[&[1, 1, 1, 0], &[0, 1, -1, 1]], 1));
        let weight = [&[-2, 0, 0][..], &[1, 1, 1], &[1, -1, 1], &[0, 0, 2]];
        assert_eq!(dense(&f.weight, 3), matrix(&weight, 2));
        let input = [&[-1, 0, 1, 0][..], &[0, 1, 1, 0], &[0, -1, 1, 0], &[0, -1, 0, 1]];
        assert_eq!(dense(&f.input, 4), matrix(&input, 1));
    }

    const SIZES: [(usize, usize); 7] = [(1, 3), (2, 3), (3, 3), (4, 3), (2, 5), (4, 2), (4, 4)];

    /// Output `i` takes input `a` times weight `k` exactly where `a = i + k`.
    #[test]
    fn filters_are_exact() {
        for (m, r) in SIZES {
            let (f, n) = (filter(m, r), m + r - 1);
            let (output, input, weight) =
                (dense(&f.output, n), dense(&f.input, n), dense(&f.weight, r));
            for (i, a, k) in
                (0..m).flat_map(|i| (0..n).flat_map(move |a| (0..r).map(move |k| (i, a, k))))
            {
                let products = (0..n).map(|p| output[i][p] * input[p][a] * weight[p][k]);
                let sum = products.fold(Rational::ZERO, |sum, x| sum + x);
                let expected = if a == i + k { Rational::ONE } else { Rational::ZERO };
                assert_eq!(sum, expected, "F({m}, {r}) at {i}, {a}, {k}");
            }
        }
    }

    #[test]
    fn rows_of_a_pair_have_their_sums_in_common() {
        for (m, r) in SIZES {
            let f = filter(m, r);
            let first = (m + r) % 2;
            let pairs = (first..m + r - 2).step_by(2);
            for (matrix, row) in
                [&f.input, &f.weight].iter().flat_map(|m| pairs.clone().map(move |p| (m, p)))
            {
                let sums = |row: &Row| {
                    let mut all: Vec<_> = row.iter().map(|p| p.terms.clone()).collect();
                    all.sort_unstable_by_key(|terms| terms[0].0);
                    all
                };
                assert_eq!(sums(&matrix[row]), sums(&matrix[row + 1]), "F({m}, {r}), row {row}");
            }
        }
    }

    #[test]
    fn data_meets_no_rounded_coefficient() {
        for (m, r) in SIZES {
            let f = filter(m, r);
            for part in f.input.iter().chain(&f.output).flatten() {
                for (_, c) in &part.terms {
                    for c in [*c, part.factor] {
                        assert_eq!(f64::from(c.to_f64() as f32), c.to_f64(), "F({m}, {r})");
                    }
                }
            }
        }
    }
}
