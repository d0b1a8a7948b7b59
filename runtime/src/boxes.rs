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

/// The elements of `dense` into the corner of `room`.
pub(crate) fn spread(dense: &[u8], corner: Corner<'_>, room: &mut [u8]) {
    corner.rows(dense.len(), &mut |near, far| room[far].copy_from_slice(&dense[near]));
}

/// The elements in the corner of `room`, densely packed.
pub(crate) fn gather(room: &[u8], corner: Corner<'_>, dense: &mut [u8]) {
    corner.rows(dense.len(), &mut |near, far| dense[near].copy_from_slice(&room[far]));
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

impl Corner<'_> {
    /// Calls `copy` for each piece that is contiguous in both tensors, with its place in the dense
    /// one, which has `bytes` bytes, and in the larger one.
    fn rows(&self, bytes: usize, copy: &mut dyn FnMut(Range<usize>, Range<usize>)) {
        let Corner { shape, room, size } = *self;
        // Then no extent is 0, so that the products below are sizes of parts of memory.
        if bytes == 0 {
            return;
        }
        let Some(cut) = shape.iter().zip(room).rposition(|(n, most)| n != most) else {
            return copy(0..bytes, 0..bytes);
        };
        // Axes after the cut are whole: with the part of the cut axis they are one piece.
        let inner = shape[cut + 1..].iter().product::<usize>() * size;
        let (near, far) = (shape[cut] * inner, room[cut] * inner);
        let (count, steps) = shape[..cut].split_last().map_or((1, &[][..]), |(n, rest)| (*n, rest));
        let step = room[..cut].last().map_or(0, |most| most * far);
        for block in 0..bytes / (near * count) {
            let start = place(block, steps, room) * step;
            for row in 0..count {
                let (from, to) = ((block * count + row) * near, start + row * far);
                copy(from..from + near, to..to + near);
            }
        }
    }
}

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

    /// What `spread` leaves of a room of zeros, for elements 1, 2, .. of one byte.
    fn spread_out(shape: &[usize], room: &[usize]) -> Vec<u8> {
        let dense: Vec<u8> = (1..=shape.iter().product::<usize>() as u8).collect();
        let corner = Corner { shape, room, size: 1 };
        let mut larger = vec![0; room.iter().product()];
        spread(&dense, corner, &mut larger);
        let mut back = vec![0; dense.len()];
        gather(&larger, corner, &mut back);
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
            let (mut count, corner) = (0, Corner { shape, room, size: 4 });
            corner.rows(shape.iter().product::<usize>() * 4, &mut |_, _| count += 1);
            count
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
        spread(&[], Corner { shape, room, size: 8 }, &mut []);
    }
}
