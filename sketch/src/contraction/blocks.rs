//! Long sums by blocks: each block is summed from zero, and its sum added to the total.
//!
//! ```text
//! for c in 0..256 { tile += a[c] * b[c] }
//! =>
//! total = 0
//! for o in 0..4 { tile = 0;  for i in 0..64 { tile += a[o * 64 + i] * b[o * 64 + i] };  total += tile }
//! ```
//!
//! One after another, `n` terms are added to a sum that grows with them, and so does what each
//! addition rounds off; by blocks it grows within 64 terms, and then with `n / 64` of them. That is
//! a third to a sixth of the error for the sums of convolutions, for one more addition in 64.

/// Terms of a block, about.
const TERMS: usize = 64;

/// Loops over blocks, and loops over the terms of a block.
pub(crate) struct Blocks {
    pub(crate) outer: Vec<usize>,
    pub(crate) inner: Vec<usize>,
    /// The extent of the first inner loop, if it is a part of the axis that the last outer one
    /// walks.
    pub(crate) part: Option<usize>,
}

impl Blocks {
    /// None if there are too few terms.
    pub(crate) fn of(extents: &[usize]) -> Option<Blocks> {
        let (mut outer, mut inner, mut terms) = (extents.to_vec(), vec![], 1);
        while let Some(extent) = outer.pop_if(|extent| terms * *extent <= TERMS) {
            terms *= extent;
            inner.insert(0, extent);
        }
        let axis = outer.pop()?;
        let far = |part: &usize| far_from_block(terms * part);
        let part = (1..=axis).filter(|part| axis.is_multiple_of(*part)).min_by_key(far)?;
        inner.splice(0..0, (part > 1).then_some(part));
        outer.extend((part < axis).then_some(axis / part));
        let part = (1 < part && part < axis).then_some(part);
        (outer.iter().product::<usize>() > 1).then_some(Blocks { outer, inner, part })
    }
}

/// How many times as long or as short as it should be, in hundredths.
fn far_from_block(terms: usize) -> usize {
    100 * terms.max(TERMS) / terms.min(TERMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(extents: &[usize]) -> Option<(Vec<usize>, Vec<usize>)> {
        Blocks::of(extents).map(|blocks| (blocks.outer, blocks.inner))
    }

    #[test]
    fn blocks_have_about_64_terms() {
        assert_eq!(of(&[64]), None);
        assert_eq!(of(&[256]), Some((vec![4], vec![64])));
        assert_eq!(of(&[3, 3, 512]), Some((vec![3, 3, 8], vec![64])));
        assert_eq!(of(&[3, 3, 64]), Some((vec![3, 3], vec![64])));
        assert_eq!(of(&[3, 3, 20]), Some((vec![3], vec![3, 20])));
        // Primes are not cut.
        assert_eq!(of(&[127]), None);
        assert_eq!(of(&[5, 1021]), Some((vec![5], vec![1021])));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[2, 60]), Some((vec![2], vec![60])));
    }
}
