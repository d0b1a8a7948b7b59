//! `Append`: rows that are written behind those of a tensor.
//!
//! ```text
//! past [a b . .], new [x y z], at 2, count 2   ->   [a b x y]
//! ```
//!
//! Rows behind the new ones stay as they are: zeros, in a state.
//!
//! No operator of ONNX: it stands for a `Concat` whose result takes the place of its first operand,
//! or for the cache of `GroupQueryAttention`, in which each sample has an end of its own. Where
//! past and result lie at one place, the new rows are all that is copied.

use std::ops::Range;

use super::shared::Shared;
use super::{HostError, Share};
use crate::dtype::DType;
use crate::extent::Extent;
use crate::tensor::Tensor;

const OP: &str = "Append";

/// Less is copied by one thread: to wake others takes longer.
const SHARED: usize = 1 << 18;

/// A call whose operands fit each other.
pub(crate) struct Append {
    /// Pieces of rows that are contiguous, in all and of each sample.
    pieces: usize,
    pieces_of_sample: usize,
    /// The bytes of each, and those from one to the next in the new rows and in the result.
    bytes: usize,
    from: usize,
    to: usize,
    /// Where the first one of each sample begins in its part of the result; the same for all, if
    /// there is only one.
    at: Vec<usize>,
}

impl Append {
    /// `past` and `new` are the types and shapes of the operands; `ends` tells where the rows of
    /// each sample end, and `sizes` are the further operands.
    pub(crate) fn new(
        [past, new]: [(DType, &[usize]); 2],
        ends: Option<&[i64]>,
        axis: usize,
        [at, count]: [&Extent; 2],
        sizes: &[i64],
    ) -> Result<Append, HostError> {
        let (rank, dtype) = (past.1.len(), past.0);
        if axis >= rank || ends.is_some() && axis == 0 {
            return Err(HostError::Axis { op: OP, axis, rank });
        }
        if new.0 != dtype {
            return Err(HostError::Type { op: OP, what: "new rows", dtype: new.0 });
        }
        let others_agree =
            || past.1.iter().zip(new.1).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if new.1.len() != rank || !others_agree() {
            return Err(HostError::Shape { op: OP, what: "new rows", shape: new.1.to_vec() });
        }
        let (room, most) = (past.1[axis], new.1[axis]);
        let number = |of: &Extent| of.at(sizes).and_then(|n| usize::try_from(n).ok());
        let too_many = |wanted, extent| HostError::TooMany { op: OP, wanted, extent };
        let count = number(count).filter(|n| *n <= most);
        let count = count.ok_or_else(|| too_many(most.saturating_add(1), most))?;
        let end = number(at).and_then(|at| at.checked_add(count)).filter(|end| *end <= room);
        let end = end.ok_or_else(|| too_many(room.saturating_add(1), room))?;
        let ends = match ends {
            None => vec![end],
            Some(ends) if ends.len() == past.1[0] => {
                let own = |own: &i64| {
                    let fits = usize::try_from(*own).ok().filter(|own| (count..=end).contains(own));
                    fits.ok_or_else(|| too_many(usize::try_from(*own).unwrap_or(0), end))
                };
                ends.iter().map(own).collect::<Result<_, _>>()?
            }
            Some(ends) => {
                return Err(HostError::Shape { op: OP, what: "ends", shape: vec![ends.len()] });
            }
        };
        let is_empty = count == 0 || past.1.contains(&0);
        let row = if is_empty { 0 } else { past.1[axis + 1..].iter().product() } * dtype.size();
        let pieces = if is_empty { 0 } else { past.1[..axis].iter().product() };
        Ok(Append {
            pieces,
            pieces_of_sample: (pieces / ends.len().max(1)).max(1),
            bytes: count * row,
            from: most * row,
            to: room * row,
            at: ends.iter().map(|end| (end - count) * row).collect(),
        })
    }

    /// Copies the new rows into the result.
    pub(crate) fn write(&self, new: &[u8], result: &mut [u8], share: &Share<'_>) {
        let to = Shared::new(result);
        let some = |pieces: Range<u64>| {
            for piece in pieces.map(|piece| piece as usize) {
                let at = self.at[piece / self.pieces_of_sample] + piece * self.to;
                // SAFETY: the pieces of a tensor do not overlap.
                let place = unsafe { to.slice(at..at + self.bytes) };
                place.copy_from_slice(&new[piece * self.from..][..self.bytes]);
            }
        };
        let pieces = self.pieces as u64;
        if self.pieces * self.bytes < SHARED { some(0..pieces) } else { share(pieces, &some) }
    }
}

/// `sizes` are what the extents are of.
pub(super) fn run(
    [past, new]: [&Tensor; 2],
    ends: Option<&Tensor>,
    axis: usize,
    extents: [&Extent; 2],
    sizes: &[&Tensor],
) -> Result<Tensor, HostError> {
    let forms = [past, new].map(|tensor| (tensor.dtype(), tensor.shape()));
    if let Some(other) = sizes.iter().copied().chain(ends).find(|t| t.dtype() != DType::I64) {
        return Err(HostError::Type { op: OP, what: "size", dtype: other.dtype() });
    }
    let sizes: Vec<i64> =
        sizes.iter().flat_map(|tensor| tensor.as_slice::<i64>()).copied().collect();
    let call = Append::new(forms, ends.map(Tensor::as_slice), axis, extents, &sizes)?;
    let mut result = super::copy(OP, past)?;
    call.write(new.bytes(), result.bytes_mut(), &|pieces, body| body(0..pieces));
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostOp;

    fn numbers(shape: &[usize], from: i32) -> Tensor {
        let all: Vec<i32> = (0..shape.iter().product::<usize>() as i32).map(|i| from + i).collect();
        Tensor::from_slice(shape, &all)
    }

    fn append(
        past: &Tensor,
        new: &Tensor,
        axis: usize,
        at: i64,
        count: i64,
    ) -> Result<Tensor, HostError> {
        let (at_size, count) = (Extent::Size(0), Extent::Constant(count));
        let op = HostOp::Append { axis, at: at_size, count, each: false };
        let at = Tensor::scalar(at);
        super::super::run(&op, &[past, new, &at]).map(|all| all[0].clone())
    }

    #[test]
    fn rows_go_behind_those_that_are_there() {
        let (past, new) = (numbers(&[2, 4, 2], 0), numbers(&[2, 2, 2], 100));
        let found = append(&past, &new, 1, 2, 1).unwrap();
        let expected = [0, 1, 2, 3, 100, 101, 6, 7, 8, 9, 10, 11, 104, 105, 14, 15];
        assert_eq!(found, Tensor::from_slice(&[2, 4, 2], &expected));
        let found = append(&past, &new, 1, 2, 2).unwrap();
        let expected = [0, 1, 2, 3, 100, 101, 102, 103, 8, 9, 10, 11, 104, 105, 106, 107];
        assert_eq!(found, Tensor::from_slice(&[2, 4, 2], &expected));
        assert_eq!(append(&past, &new, 1, 4, 0), Ok(past.clone()));
        let columns = numbers(&[2, 4, 1], 100);
        let found = append(&past, &columns, 2, 1, 1).unwrap();
        let expected = [0, 100, 2, 101, 4, 102, 6, 103, 8, 104, 10, 105, 12, 106, 14, 107];
        assert_eq!(found, Tensor::from_slice(&[2, 4, 2], &expected));
    }

    /// Two samples of one head: the first one has one row and the other one two.
    #[test]
    fn each_sample_has_an_end_of_its_own() {
        let (past, new) = (numbers(&[2, 1, 4, 2], 0), numbers(&[2, 1, 1, 2], 100));
        let append = |ends: &[i64]| {
            let (at, count) = (Extent::Constant(2), Extent::Constant(1));
            let op = HostOp::Append { axis: 2, at, count, each: true };
            let ends = Tensor::from_slice(&[ends.len()], ends);
            super::super::run(&op, &[&past, &new, &ends]).map(|all| all[0].clone())
        };
        let expected = [0, 1, 100, 101, 4, 5, 6, 7, 8, 9, 10, 11, 102, 103, 14, 15];
        assert_eq!(append(&[2, 3]), Ok(Tensor::from_slice(&[2, 1, 4, 2], &expected)));
        for ends in [[0, 3], [2, 4], [-1, 3]] {
            assert!(matches!(append(&ends), Err(HostError::TooMany { .. })), "{ends:?}");
        }
        assert!(matches!(append(&[2]), Err(HostError::Shape { .. })));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (past, new) = (numbers(&[2, 4, 2], 0), numbers(&[2, 2, 2], 100));
        for (at, count) in [(3, 2), (0, 3), (-1, 1), (0, -1), (i64::MAX, 1)] {
            let error = append(&past, &new, 1, at, count);
            assert!(matches!(error, Err(HostError::TooMany { .. })), "{at} {count}");
        }
        assert!(matches!(append(&past, &new, 3, 0, 1), Err(HostError::Axis { .. })));
        assert!(matches!(append(&past, &new, 0, 0, 1), Err(HostError::Shape { .. })));
        let bytes = Tensor::from_slice(&[2, 2, 2], &[0u8; 8]);
        assert!(matches!(append(&past, &bytes, 1, 0, 1), Err(HostError::Type { .. })));
    }
}
