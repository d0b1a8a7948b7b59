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
        self.as_left().times(other, true)
    }

    /// The product, by this thread alone: for small ones.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub(crate) fn times_alone(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows, "columns of the left, rows of the right side");
        self.as_left().times(other, false)
    }

    /// The product of the transposed matrix with another one.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub(crate) fn transposed_times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.rows, other.rows, "rows of both sides");
        let steps = [1, self.columns];
        Left { data: &self.data, rows: self.columns, terms: self.rows, steps }.times(other, true)
    }

    fn as_left(&self) -> Left<'_> {
        let steps = [self.columns, 1];
        Left { data: &self.data, rows: self.rows, terms: self.columns, steps }
    }
}

/// The left side of a product.
#[derive(Clone, Copy)]
struct Left<'a> {
    /// From the first of the rows.
    data: &'a [f32],
    rows: usize,
    terms: usize,
    /// From a row to the next, and from a term to the next.
    steps: [usize; 2],
}

impl Left<'_> {
    fn times(self, right: &Matrix, in_parallel: bool) -> Matrix {
        let mut result = Matrix::zeros(self.rows, right.columns);
        if result.data.is_empty() || self.terms == 0 {
            return result;
        }
        if !in_parallel {
            self.add_product(right, &mut result.data);
            return result;
        }
        let rows = result.data.par_chunks_mut(BLOCK * right.columns).enumerate();
        rows.for_each(|(block, out)| {
            let first = block * BLOCK;
            let rows = BLOCK.min(self.rows - first);
            let data = &self.data[first * self.steps[0]..];
            Left { data, rows, ..self }.add_product(right, out);
        });
        result
    }

    /// `out += left * right`, by whatever vectors the processor has. All of them give the same
    /// sums.
    fn add_product(self, right: &Matrix, out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the feature, as was just asked.
                return unsafe { product_avx512(self, right, out) };
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the feature, as was just asked.
                return unsafe { product_avx2(self, right, out) };
            }
        }
        // SAFETY: arrays need no feature.
        unsafe { product_in_tiles::<[f32; 4]>(self, right, out) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn product_avx512(left: Left<'_>, right: &Matrix, out: &mut [f32]) {
    // SAFETY: the function has the feature.
    unsafe { product_in_tiles::<std::arch::x86_64::__m512>(left, right, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn product_avx2(left: Left<'_>, right: &Matrix, out: &mut [f32]) {
    // SAFETY: the function has the feature.
    unsafe { product_in_tiles::<std::arch::x86_64::__m256>(left, right, out) }
}

/// Rows of a tile of the result, whose sums stay in registers.
const HIGH: usize = 4;
/// Terms of a panel of the right side, which is copied to where it fits the first cache.
const DEEP: usize = 256;

/// # Safety
/// The processor has the vectors `V`.
#[inline(always)]
unsafe fn product_in_tiles<V: Lanes>(left: Left<'_>, right: &Matrix, out: &mut [f32]) {
    let (columns, Left { data, rows, terms, steps }) = (right.columns, left);
    let last = (rows - 1) * steps[0] + (terms - 1) * steps[1];
    assert!(data.len() > last && right.data.len() == terms * columns);
    assert_eq!(out.len(), rows * columns);
    let mut column = 0;
    while column + V::COUNT <= columns {
        if column + 2 * V::COUNT <= columns {
            // SAFETY: two vectors of columns are there.
            unsafe { columns_of::<V, 2>(left, right, out, column) };
            column += 2 * V::COUNT;
        } else {
            // SAFETY: one is.
            unsafe { columns_of::<V, 1>(left, right, out, column) };
            column += V::COUNT;
        }
    }
    for row in (0..rows).filter(|_| column < columns) {
        let out = &mut out[row * columns + column..(row + 1) * columns];
        for term in 0..terms {
            let factor = data[row * steps[0] + term * steps[1]];
            let right = &right.row(term)[column..];
            out.iter_mut().zip(right).for_each(|(out, x)| *out += factor * x);
        }
    }
}

/// Adds to `WIDE` vectors of columns of all rows, a panel of terms at a time.
///
/// # Safety
/// The processor has the vectors `V`; all of `left` and `out` is there, and from `column` on there
/// are as many columns.
#[inline(always)]
unsafe fn columns_of<V: Lanes, const WIDE: usize>(
    left: Left<'_>,
    right: &Matrix,
    out: &mut [f32],
    column: usize,
) {
    let (stride, width) = (right.columns, WIDE * V::COUNT);
    let mut panel = Vec::with_capacity(DEEP.min(left.terms) * width);
    for first in (0..left.terms).step_by(DEEP) {
        panel.clear();
        for term in first..left.terms.min(first + DEEP) {
            panel.extend_from_slice(&right.row(term)[column..][..width]);
        }
        let mut row = 0;
        while row < left.rows {
            let from = &left.data[row * left.steps[0] + first * left.steps[1]..];
            let out = &mut out[row * stride + column..];
            // SAFETY: the rows and columns of a tile are there.
            unsafe {
                if row + HIGH <= left.rows {
                    tile::<V, HIGH, WIDE>((from, left.steps), &panel, (out, stride));
                    row += HIGH;
                } else {
                    tile::<V, 1, WIDE>((from, left.steps), &panel, (out, stride));
                    row += 1;
                }
            }
        }
    }
}

/// Adds to a tile of the result. Loops in place of closures, which would not be compiled for the
/// vectors.
///
/// # Safety
/// The processor has the vectors `V`, and all elements of the tile and of its operands are there:
/// the outer ones come with their strides.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "indices of registers are known when compiling")]
unsafe fn tile<V: Lanes, const ROWS: usize, const WIDE: usize>(
    (left, steps): (&[f32], [usize; 2]),
    panel: &[f32],
    (out, stride): (&mut [f32], usize),
) {
    let (left, out) = (left.as_ptr(), out.as_mut_ptr());
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[V::splat(0.0); WIDE]; ROWS];
        for r in 0..ROWS {
            for c in 0..WIDE {
                sums[r][c] = V::load(out.add(r * stride + c * V::COUNT));
            }
        }
        for term in 0..panel.len() / (WIDE * V::COUNT) {
            let mut factors = [V::splat(0.0); WIDE];
            for c in 0..WIDE {
                factors[c] = V::load(panel.as_ptr().add((term * WIDE + c) * V::COUNT));
            }
            for r in 0..ROWS {
                let factor = V::splat(*left.add(r * steps[0] + term * steps[1]));
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
            (9, 600, 50),
        ];
        for (m, k, n) in shapes {
            let (a, b) = (numbers(m, k, 1), numbers(k, n, 4));
            let found = a.times(&b);
            assert_eq!((found.rows, found.columns), (m, n));
            assert_eq!(a.times_alone(&b), found);
            assert_eq!(a.transposed().transposed_times(&b), found);
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
