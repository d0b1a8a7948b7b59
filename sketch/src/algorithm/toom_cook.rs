//! The matrices of Winograd's minimal filters, from the points of Toom and Cook.
//!
//! Outputs `y[i] = sum[k] d[i + k] * g[k]`, `m` of them from a filter of `r` weights, are
//! `At ((G g) * (Bt d))` with `m + r - 1` products: polynomials of the points' values, transposed.
//!
//! ```text
//! F(2, 3), points 0, 1, -1 and infinity:
//! Bt = [1 0 -1 0; 0 1 1 0; 0 1 -1 0; 0 1 0 -1], G = [1 0 0; 1/2 1/2 1/2; -1/2 1/2 -1/2; 0 0 -1], At = [1 1 1 0; 0 1 -1 1]
//! ```
//!
//! Everything is exact; whoever uses a coefficient rounds it once.

use super::rational::Rational;

pub(super) type Matrix = Vec<Vec<Rational>>;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Filter {
    /// Of the products back to outputs: `m` rows.
    pub(super) output: Matrix,
    /// Of weights: a row for each product.
    pub(super) weight: Matrix,
    /// Of inputs: a row for each product.
    pub(super) input: Matrix,
}

/// The filter with `m` outputs and `r` weights.
pub(super) fn filter(m: usize, r: usize) -> Filter {
    let points = points(m + r - 2);
    let last = |row: usize, n: usize| if row + 1 == n { Rational::ONE } else { Rational::ZERO };
    let mut filter = Filter { output: vec![], weight: vec![], input: vec![] };
    for (j, &p) in points.iter().enumerate() {
        let others = || points.iter().enumerate().filter(move |(l, _)| *l != j).map(|(_, &q)| q);
        let scale = others().fold(Rational::ONE, |product, q| product * (p - q)).inverse();
        let mut input = product_of(others());
        input.push(Rational::ZERO);
        filter.push((0..r).map(|k| p.pow(k) * scale).collect(), input);
    }
    // The point at infinity: the product of the highest coefficients.
    filter.push((0..r).map(|k| last(k, r)).collect(), product_of(points.iter().copied()));
    let output = (0..m).map(|i| points.iter().map(|p| p.pow(i)).chain([last(i, m)]).collect());
    filter.output = output.collect();
    filter
}

impl Filter {
    /// Adds the rows of one product; what is subtracted from nothing would have to be negated first.
    fn push(&mut self, weight: Vec<Rational>, input: Vec<Rational>) {
        let first = input.iter().find(|c| !c.is_zero());
        let negated = |row: Vec<Rational>| row.into_iter().map(|c| -c).collect();
        match first.is_some_and(|c| c.is_negative()) {
            true => (self.weight.push(negated(weight)), self.input.push(negated(input))),
            false => (self.weight.push(weight), self.input.push(input)),
        };
    }
}

/// Small points, and inverses where there are many: their powers stay near one, which keeps errors small.
fn points(n: usize) -> Vec<Rational> {
    let all = [(0, 1), (1, 1), (-1, 1), (1, 2), (-2, 1), (2, 1), (-1, 2)];
    all.iter().map(|&(a, b)| Rational::new(a, b)).take(n).collect()
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

    fn matrix(rows: &[&[i64]], denominator: i64) -> Matrix {
        rows.iter().map(|r| r.iter().map(|&n| Rational::new(n, denominator)).collect()).collect()
    }

    #[test]
    fn the_smallest_filter_is_the_known_one() {
        let f = filter(2, 3);
        assert_eq!(f.output, matrix(&[&[1, 1, 1, 0], &[0, 1, -1, 1]], 1));
        assert_eq!(f.weight, matrix(&[&[2, 0, 0], &[1, 1, 1], &[-1, 1, -1], &[0, 0, -2]], 2));
        let input = [&[1, 0, -1, 0][..], &[0, 1, 1, 0], &[0, 1, -1, 0], &[0, 1, 0, -1]];
        assert_eq!(f.input, matrix(&input, 1));
    }

    /// Output `i` takes input `a` times weight `k` exactly where `a = i + k`.
    #[test]
    fn filters_are_exact() {
        for (m, r) in [(1, 3), (2, 3), (3, 3), (4, 3), (6, 3), (2, 5), (4, 2)] {
            let f = filter(m, r);
            for (i, a, k) in (0..m)
                .flat_map(|i| (0..m + r - 1).flat_map(move |a| (0..r).map(move |k| (i, a, k))))
            {
                let products =
                    (0..m + r - 1).map(|p| f.output[i][p] * f.input[p][a] * f.weight[p][k]);
                let sum = products.fold(Rational::ZERO, |sum, x| sum + x);
                let expected = if a == i + k { Rational::ONE } else { Rational::ZERO };
                assert_eq!(sum, expected, "F({m}, {r}) at {i}, {a}, {k}");
            }
        }
    }
}
