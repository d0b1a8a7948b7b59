//! Lists of rows of different lengths, one after the other in a matrix.
//!
//! ```text
//! rows     a b   c d   e        a list that is filled up with equal rows
//! copies     1     3   2   =    keeps one of them:    a b   c d d d   e e
//! ```
//!
//! Layers without a notion of positions treat equal rows alike, so that one computation serves all
//! of them. The gradient of such a row is the sum of the gradients of its copies.

/// How many rows a list has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    /// At least one.
    pub(crate) rows: usize,
    /// For how many equal rows the last one stands.
    pub(crate) copies: usize,
}

impl List {
    /// The number of copies of each row.
    pub(crate) fn weights(self) -> impl Iterator<Item = f32> {
        (0..self.rows).map(move |row| if row + 1 == self.rows { self.copies as f32 } else { 1.0 })
    }
}

/// The part of each list, which has so many numbers.
pub(super) fn parts(data: &[f32], sizes: impl Iterator<Item = usize>) -> Vec<&[f32]> {
    let mut rest = data;
    let next = |size| {
        let (part, others) = rest.split_at(size);
        rest = others;
        part
    };
    sizes.map(next).collect()
}

/// The same, to write to.
pub(super) fn parts_mut(data: &mut [f32], sizes: impl Iterator<Item = usize>) -> Vec<&mut [f32]> {
    let (mut rest, mut all) = (data, vec![]);
    for size in sizes {
        let (part, others) = rest.split_at_mut(size);
        rest = others;
        all.push(part);
    }
    all
}
