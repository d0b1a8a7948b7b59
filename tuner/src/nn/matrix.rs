//! Dense matrices of floats, row-major, and their product.
//!
//! Threads share out rows of the result; each element is summed up in the order of its terms, so the result
//! does not depend on how many threads there are.

use rayon::prelude::*;

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) data: Vec<f32>,
}

/// Rows that a thread works on at once, and the side of a square that fits the cache.
const BLOCK: usize = 32;

impl Matrix {
    pub(crate) fn zeros(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, data: vec![0.0; rows * columns] }
    }

    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.columns..][..self.columns]
    }

    pub(crate) fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.data[index * self.columns..][..self.columns]
    }

    pub(crate) fn transposed(&self) -> Matrix {
        let mut result = Matrix::zeros(self.columns, self.rows);
        // In squares that fit the cache, since either side is walked in strides.
        for top in (0..self.rows).step_by(BLOCK) {
            for left in (0..self.columns).step_by(BLOCK) {
                for column in left..self.columns.min(left + BLOCK) {
                    for row in top..self.rows.min(top + BLOCK) {
                        result.data[column * self.rows + row] =
                            self.data[row * self.columns + column];
                    }
                }
            }
        }
        result
    }

    /// # Panics
    /// If the shapes do not fit.
    pub(crate) fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows, "columns of the left, rows of the right side");
        let mut result = Matrix::zeros(self.rows, other.columns);
        if result.data.is_empty() {
            return result;
        }
        let rows = result.data.par_chunks_mut(other.columns).enumerate();
        rows.with_min_len(BLOCK).for_each(|(row, out)| add_product(self.row(row), other, out));
        result
    }
}

/// Adds `left * right` to `out`, four terms at a time.
fn add_product(left: &[f32], right: &Matrix, out: &mut [f32]) {
    let (fours, rest) = left.as_chunks::<4>();
    for (index, &[a, b, c, d]) in fours.iter().enumerate() {
        let [of_a, of_b, of_c, of_d] = std::array::from_fn(|i| right.row(4 * index + i));
        let terms = of_a.iter().zip(of_b).zip(of_c.iter().zip(of_d));
        for (out, ((x, y), (z, w))) in out.iter_mut().zip(terms) {
            *out += (a * x + b * y) + (c * z + d * w);
        }
    }
    for (index, a) in rest.iter().enumerate() {
        let row = right.row(left.len() - rest.len() + index);
        out.iter_mut().zip(row).for_each(|(out, x)| *out += a * x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(rows: usize, columns: usize, seed: usize) -> Matrix {
        let data = (0..rows * columns).map(|i| ((i * 7 + seed) % 11) as f32 - 5.0).collect();
        Matrix { rows, columns, data }
    }

    #[test]
    fn products_of_any_shape() {
        let shapes =
            [(1, 1, 1), (4, 3, 8), (5, 7, 9), (33, 2, 17), (70, 30, 1), (3, 0, 4), (0, 2, 3)];
        for (m, k, n) in shapes {
            let (a, b) = (numbers(m, k, 1), numbers(k, n, 4));
            let found = a.times(&b);
            assert_eq!((found.rows, found.columns), (m, n));
            for i in 0..m {
                for j in 0..n {
                    let expected: f32 = (0..k).map(|l| a.row(i)[l] * b.row(l)[j]).sum();
                    assert_eq!(found.row(i)[j], expected, "{m} x {k} x {n} at {i}, {j}");
                }
            }
        }
    }

    #[test]
    fn transposition_swaps_rows_and_columns() {
        let a = numbers(3, 5, 2);
        let t = a.transposed();
        assert_eq!((t.rows, t.columns, t.row(4)[2]), (5, 3, a.row(2)[4]));
        assert_eq!(t.transposed(), a);
    }
}
