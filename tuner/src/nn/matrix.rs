//! Dense matrices of floats, row-major, and their product.
//!
//! Threads share out rows of the result; each element is summed up in the order of its terms, so
//! the result does not depend on how many threads there are, nor on the processor's vectors.

use rayon::prelude::*;

use super::lanes::Lanes;

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

/// `out = left * right`, by whatever vectors the processor has. All of them give the same sums.
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
    // SAFETY: arrays need no feature.
    unsafe { product_in_tiles::<[f32; 4]>(left, terms, right, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn product_avx512(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    // SAFETY: the function has the feature.
    unsafe { product_in_tiles::<std::arch::x86_64::__m512>(left, terms, right, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn product_avx2(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    // SAFETY: the function has the feature.
    unsafe { product_in_tiles::<std::arch::x86_64::__m256>(left, terms, right, out) }
}

/// Rows of a tile of the result, whose sums stay in registers.
const HIGH: usize = 4;

/// # Safety
/// The processor has the vectors `V`.
#[inline(always)]
unsafe fn product_in_tiles<V: Lanes>(left: &[f32], terms: usize, right: &Matrix, out: &mut [f32]) {
    let (columns, rows) = (right.columns, out.len() / right.columns);
    assert!(left.len() == rows * terms && right.data.len() == terms * columns);
    let mut column = 0;
    while column + V::COUNT <= columns {
        if column + 2 * V::COUNT <= columns {
            // SAFETY: two vectors of columns are there.
            unsafe { columns_of::<V, 2>(left, [rows, terms], right, out, column) };
            column += 2 * V::COUNT;
        } else {
            // SAFETY: one is.
            unsafe { columns_of::<V, 1>(left, [rows, terms], right, out, column) };
            column += V::COUNT;
        }
    }
    for row in (0..rows).filter(|_| column < columns) {
        let out = &mut out[row * columns + column..(row + 1) * columns];
        for term in 0..terms {
            let factor = left[row * terms + term];
            let right = &right.row(term)[column..];
            out.iter_mut().zip(right).for_each(|(out, x)| *out += factor * x);
        }
    }
}

/// `WIDE` vectors of columns of all rows.
///
/// # Safety
/// The processor has the vectors `V`; `left` and `out` have so many rows, and from `column` on
/// there are as many columns.
#[inline(always)]
unsafe fn columns_of<V: Lanes, const WIDE: usize>(
    left: &[f32],
    [rows, terms]: [usize; 2],
    right: &Matrix,
    out: &mut [f32],
    column: usize,
) {
    let stride = right.columns;
    let mut row = 0;
    while row < rows {
        // SAFETY: the rows and columns of a tile are there.
        unsafe {
            let left = left.as_ptr().add(row * terms);
            let right = right.data.as_ptr().add(column);
            let out = out.as_mut_ptr().add(row * stride + column);
            if row + HIGH <= rows {
                tile::<V, HIGH, WIDE>(left, terms, right, out, stride);
                row += HIGH;
            } else {
                tile::<V, 1, WIDE>(left, terms, right, out, stride);
                row += 1;
            }
        }
    }
}

/// A tile of the result. Loops in place of closures, which would not be compiled for the vectors.
///
/// # Safety
/// The processor has the vectors `V`, and all elements of the tile and of its operands are there.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "indices of registers are known when compiling")]
unsafe fn tile<V: Lanes, const ROWS: usize, const WIDE: usize>(
    left: *const f32,
    terms: usize,
    right: *const f32,
    out: *mut f32,
    stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[V::splat(0.0); WIDE]; ROWS];
        for term in 0..terms {
            let mut factors = [V::splat(0.0); WIDE];
            for c in 0..WIDE {
                factors[c] = V::load(right.add(term * stride + c * V::COUNT));
            }
            for r in 0..ROWS {
                let factor = V::splat(*left.add(r * terms + term));
                for c in 0..WIDE {
                    sums[r][c] = sums[r][c].plus_product(factor, factors[c]);
                }
            }
        }
        for r in 0..ROWS {
            for c in 0..WIDE {
                sums[r][c].store(out.add(r * stride + c * V::COUNT));
            }
        }
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
