//! Dense matrices of floats, row-major, and their product.
//!
//! Threads share out rows of the result; each element is summed up in the order of its terms, so the result
//! does not depend on how many threads there are, nor on the processor's vectors.

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

    /// Adds another one of the same shape.
    pub(crate) fn plus(mut self, other: &Matrix) -> Matrix {
        self.data.iter_mut().zip(&other.data).for_each(|(a, b)| *a += b);
        self
    }

    /// # Panics
    /// If the shapes do not fit.
    pub(crate) fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows, "columns of the left, rows of the right side");
        let mut result = Matrix::zeros(self.rows, other.columns);
        if result.data.is_empty() {
            return result;
        }
        let rows = result.data.par_chunks_mut(BLOCK * other.columns).enumerate();
        rows.for_each(|(block, out)| {
            let first = block * BLOCK;
            let rows = BLOCK.min(self.rows - first);
            let left = &self.data[first * self.columns..][..rows * self.columns];
            product(left, self.columns, other, out);
        });
        result
    }
}

/// `out = left * right`, by whatever vectors the processor has. All of them give the same sums, as
/// no product is fused with a sum.
fn product(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the feature, as was just asked.
            return unsafe { product_avx512(left, terms, right, out) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature, as was just asked.
            return unsafe { product_avx2(left, terms, right, out) };
        }
    }
    product_in_tiles(left, terms, right, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn product_avx512(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    product_in_tiles(left, terms, right, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn product_avx2(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    product_in_tiles(left, terms, right, out);
}

/// The sides of a tile of the result, whose sums stay in registers.
const TILE: [usize; 2] = [4, 32];

#[inline(always)]
fn product_in_tiles(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    let (rows, columns) = (out.len() / right.columns, right.columns);
    let [high, wide] = TILE;
    for column in (0..columns - columns % wide).step_by(wide) {
        let mut row = 0;
        while row + high <= rows {
            tile::<{ TILE[0] }>(left, terms, right, out, [row, column]);
            row += high;
        }
        (row..rows).for_each(|row| tile::<1>(left, terms, right, out, [row, column]));
    }
    let rest = columns - columns % wide;
    for row in (0..rows).filter(|_| rest < columns) {
        let out = &mut out[row * columns + rest..(row + 1) * columns];
        for term in 0..terms {
            let factor = left[row * terms + term];
            let right = &right.row(term)[rest..];
            out.iter_mut().zip(right).for_each(|(out, x)| *out += factor * x);
        }
    }
}

/// `ROWS` rows and as many columns as a tile has, from `at`.
#[inline(always)]
fn tile<const ROWS: usize>(
    left: &[f32],
    terms: usize,
    right: &Matrix,
    out: &mut [f32],
    [row, column]: [usize; 2],
) {
    let left: [&[f32]; ROWS] = std::array::from_fn(|r| &left[(row + r) * terms..][..terms]);
    let mut sums = [[0.0f32; TILE[1]]; ROWS];
    for term in 0..terms {
        let first = term * right.columns + column;
        let Some(factors) = right.data[first..].first_chunk::<{ TILE[1] }>() else { return };
        for (sums, left) in sums.iter_mut().zip(left) {
            let factor = left[term];
            sums.iter_mut().zip(factors).for_each(|(sum, x)| *sum += factor * x);
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        out[(row + r) * right.columns + column..][..TILE[1]].copy_from_slice(sums);
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
        let shapes = [
            (1, 1, 1),
            (4, 3, 8),
            (5, 7, 9),
            (33, 2, 17),
            (70, 30, 1),
            (3, 0, 4),
            (0, 2, 3),
            (67, 5, 100),
            (3, 9, 64),
        ];
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
