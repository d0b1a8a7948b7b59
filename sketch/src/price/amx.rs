//! How a product is cut into tiles of a unit for matrices, and how many cycles a cut takes.
//!
//! ```text
//! 197 rows, 48 columns   ->   13 tiles of 16 rows, the last of 5, each with 3 tiles of columns
//! 56 x 56 rows, 64       ->   4 x 56 tiles of 14 rows, two by two with two tiles of columns
//! ```
//! An estimate for comparing cuts of one product.

use crate::intrinsic::amx::ROWS;

/// Cycles of a product of full tiles, and of one of at most half as many rows.
const DOT: [f64; 2] = [16.0, 10.0];
/// Cycles in which a tile comes from the nearest cache, and from the next one.
const LOAD: [f64; 2] = [8.0, 21.0];

/// A block of sums that fits the registers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    /// Rows of a tile.
    pub(crate) rows: usize,
    /// Tiles of rows, and the axis along which they lie: that of rows, or another one.
    pub(crate) high: usize,
    pub(crate) along: usize,
    /// Tiles of columns.
    pub(crate) wide: usize,
}

impl Shape {
    /// Cycles for all rows and a tile of columns.
    pub(crate) fn cycles(&self, row: usize, shape: &[usize]) -> f64 {
        let tiles = shape[row].div_ceil(self.rows) as f64;
        // A last tile of fewer rows has code of its own.
        let ragged = if shape[row].is_multiple_of(self.rows) { 1.0 } else { 1.02 };
        if self.along == row {
            return tiles * self.of_tile(self.high) * ragged;
        }
        let (count, rest) = (shape[self.along] as f64, shape[self.along] % self.high);
        let whole = count - rest as f64;
        let cycles = whole * self.of_tile(self.high) + rest as f64 * self.of_tile(rest.max(1));
        // A cut along the rows themselves has fewer loops, so it wins against cuts that cost the
        // same.
        tiles * cycles / count * 1.001
    }

    /// Cycles for one of the tiles of a block of so many tiles of rows.
    fn of_tile(&self, high: usize) -> f64 {
        let dot = DOT[usize::from(self.rows * 2 <= ROWS)];
        let (high, wide) = (high as f64, self.wide as f64);
        let loads = high * LOAD[0] + wide * LOAD[1];
        (high * wide * dot).max(loads) / (high * wide)
    }
}
