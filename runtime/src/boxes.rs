//! Tensors at the corner of larger ones.
//!
//! In: the elements of a dense tensor, its extents, and those of a tensor with room for it. Out:
//! the same elements at the same indices there, or back. Nothing else there is touched.
//!
//! ```text
//! dense [2, 2]    in the room of [3, 4]
//! a b             a b . .
//! c d             c d . .
//!                 . . . .
//! ```

use std::ops::Range;

/// Runs a body over parts of `0..n` that together are all of it, possibly at the same time.
pub(crate) type Share<'a> = &'a dyn Fn(u64, &(dyn Fn(Range<u64>) + Sync));

/// Fewer bytes are copied by one thread: to wake others takes longer.
const SHARED: usize = 1 << 18;

/// The elements of `dense` into the corner of `room`.
pub(crate) fn spread(dense: &[u8], corner: Corner<'_>, room: &mut [u8], share: Share<'_>) {
    let Some(pieces) = corner.pieces(dense.len()) else { return };
    pieces.copy(dense, room, share, |(near, far)| (near, far));
}

/// The elements in the corner of `room`, densely packed.
pub(crate) fn gather(room: &[u8], corner: Corner<'_>, dense: &mut [u8], share: Share<'_>) {
    let Some(pieces) = corner.pieces(dense.len()) else { return };
    pieces.copy(room, dense, share, |(near, far)| (far, near));
}

/// The part of a tensor that holds a smaller one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corner<'a> {
    /// The extents of the smaller tensor.
    pub(crate) shape: &'a [usize],
    /// As many, none of which is less.
    pub(crate) room: &'a [usize],
    /// Bytes of an element.
    pub(crate) size: usize,
}

impl<'a> Corner<'a> {
    /// The pieces that are contiguous in both tensors, of which the dense one has `bytes` bytes;
    /// `None` if there are no elements.
    fn pieces(&self, bytes: usize) -> Option<Pieces<'a>> {
        let Corner { shape, room, size } = *self;
        // Then no extent is 0, so that the products below are sizes of parts of memory.
        if bytes == 0 {
            return None;
        }
        let Some(cut) = shape.iter().zip(room).rposition(|(n, most)| n != most) else {
            return Some(Pieces { outer: &[], room, near: bytes, far: bytes, count: 1 });
        };
        // Axes after the cut are whole: with the part of the cut axis they are one piece.
        let inner = shape[cut + 1..].iter().product::<usize>() * size;
        let (near, far) = (shape[cut] * inner, room[cut] * inner);
        Some(Pieces { outer: &shape[..cut], room, near, far, count: bytes / near })
    }
}

/// Where a piece is in two tensors.
type Ends = (Range<usize>, Range<usize>);

/// The pieces that are contiguous in a dense tensor and in a larger one.
struct Pieces<'a> {
    /// Extents of the axes that pieces are along, and of the larger tensor.
    outer: &'a [usize],
    room: &'a [usize],
    /// Bytes of a piece, and from one to the next in the larger tensor.
    near: usize,
    far: usize,
    count: usize,
}

impl Pieces<'_> {
    /// Where a piece is in the dense tensor, and in the larger one.
    fn at(&self, index: usize) -> Ends {
        let (near, far) = (
            index * self.near,
            place(index, self.outer, &self.room[..self.outer.len()]) * self.far,
        );
        (near..near + self.near, far..far + self.near)
    }

    /// Copies all pieces; `ends` tells which end of one is read, and which is written.
    fn copy(&self, from: &[u8], to: &mut [u8], share: Share<'_>, ends: fn(Ends) -> Ends) {
        // Later pieces are further on at both ends.
        let (_, last) = ends(self.at(self.count - 1));
        assert!(last.end <= to.len(), "the pieces are parts of the tensors");
        let target = Target(to.as_mut_ptr());
        let some = |range: Range<u64>| {
            let target = &target;
            for index in range {
                let (read, written) = ends(self.at(index as usize));
                let piece = &from[read];
                // SAFETY: the piece ends before the last one does, which is inside of `to`, as was
                // checked; no other piece is written there, and `from` is another borrow.
                unsafe {
                    let place = target.0.add(written.start);
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len());
                }
            }
        };
        let is_little = self.near * self.count < SHARED;
        if is_little { some(0..self.count as u64) } else { share(self.count as u64, &some) }
    }
}

/// The tensor that is written, for all threads.
struct Target(*mut u8);

// SAFETY: threads write disjoint pieces of what it points to, which is borrowed uniquely meanwhile.
unsafe impl Sync for Target {}

/// The number, in a tensor of the extents `room`, of what is the `index`-th in one of `shape`,
/// which may have fewer axes.
fn place(mut index: usize, shape: &[usize], room: &[usize]) -> usize {
    let (mut place, mut stride) = (0, 1);
    for (n, most) in shape.iter().zip(room).rev() {
        place += index % n * stride;
        index /= n;
        stride *= most;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(count: u64, body: &(dyn Fn(Range<u64>) + Sync)) {
        body(0..count);
    }

    /// The room of zeros after `spread`, for elements 1, 2, .. of one byte.
    fn spread_out(shape: &[usize], room: &[usize]) -> Vec<u8> {
        let dense: Vec<u8> = (1..=shape.iter().product::<usize>() as u8).collect();
        let corner = Corner { shape, room, size: 1 };
        let mut larger = vec![0; room.iter().product()];
        spread(&dense, corner, &mut larger, &alone);
        let mut back = vec![0; dense.len()];
        gather(&larger, corner, &mut back, &alone);
        assert_eq!(back, dense, "{shape:?} in {room:?}");
        larger
    }

    #[test]
    fn elements_keep_their_indices() {
        assert_eq!(spread_out(&[2, 2], &[3, 4]), [1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(spread_out(&[1, 3], &[2, 3]), [1, 2, 3, 0, 0, 0]);
        assert_eq!(spread_out(&[2, 3], &[2, 3]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(spread_out(&[2], &[4]), [1, 2, 0, 0]);
        assert_eq!(spread_out(&[], &[]), [1]);
        assert_eq!(spread_out(&[0, 2], &[2, 2]), [0; 4]);
        assert_eq!(spread_out(&[2, 0], &[2, 1]), [0; 2]);
    }

    /// Each element is where its indices say, in all boxes of four small axes.
    #[test]
    fn all_corners_of_a_small_room() {
        let room = [2, 3, 2, 3];
        for number in 0..36 {
            let shape = [number % 2 + 1, number / 2 % 3 + 1, number / 6 % 2 + 1, number / 12 + 1];
            let found = spread_out(&shape, &room);
            let mut expected = vec![0; found.len()];
            for element in 0..shape.iter().product() {
                expected[place(element, &shape, &room)] = element as u8 + 1;
            }
            assert_eq!(found, expected, "{shape:?}");
        }
    }

    #[test]
    fn pieces_are_as_long_as_can_be() {
        let pieces = |shape: &[usize], room: &[usize]| {
            let corner = Corner { shape, room, size: 4 };
            corner.pieces(shape.iter().product::<usize>() * 4).map_or(0, |pieces| pieces.count)
        };
        assert_eq!(pieces(&[3, 4, 5], &[3, 4, 5]), 1);
        assert_eq!(pieces(&[2, 4, 5], &[3, 4, 5]), 1);
        assert_eq!(pieces(&[3, 2, 5], &[3, 4, 5]), 3);
        assert_eq!(pieces(&[3, 2, 4], &[3, 4, 5]), 6);
        assert_eq!(pieces(&[0, 2, 4], &[3, 4, 5]), 0);
    }

    /// The other extents of an empty tensor may be any.
    #[test]
    fn extents_of_nothing_do_not_overflow() {
        let (shape, room) = (&[0, usize::MAX, usize::MAX][..], &[0, usize::MAX, usize::MAX][..]);
        spread(&[], Corner { shape, room, size: 8 }, &mut [], &alone);
    }

    /// Several threads copy what is large.
    #[test]
    fn threads_share_pieces() {
        let (shape, room) = (&[64, 5, 1024][..], &[64, 7, 1024][..]);
        let dense: Vec<u8> =
            (0..shape.iter().product::<usize>()).map(|i| (i % 251) as u8).collect();
        let corner = Corner { shape, room, size: 1 };
        let halves = |count: u64, body: &(dyn Fn(Range<u64>) + Sync)| {
            std::thread::scope(|scope| {
                scope.spawn(|| body(0..count / 2));
                body(count / 2..count);
            });
        };
        let mut larger = vec![0; room.iter().product()];
        spread(&dense, corner, &mut larger, &halves);
        let mut back = vec![0; dense.len()];
        gather(&larger, corner, &mut back, &halves);
        assert_eq!(back, dense);
        assert_eq!(larger[..5 * 1024], dense[..5 * 1024]);
        assert_eq!(larger[7 * 1024], dense[5 * 1024]);
    }
}
