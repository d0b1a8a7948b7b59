//! How the terms of a tile's reduction are cut: those of a round, which are in shared memory
//! together, and those that are written out.
//!
//! ```text
//! for c in 0..64 { for r in 0..3 { .. } }, 8 terms of a round, 16 elements in registers
//! => iterations of c_0 are rounds
//! for c_0 in 0..16 { for c_1 in 0..1 { unrolled c_2 in 0..4 {
//!   for r_0 in 0..1 { unrolled r_1 in 0..3 { .. } }
//! } } }
//! ```
//!
//! Only the longest loop is cut into rounds, which are shorter where others are long. Where these
//! alone are too many terms, as those of large windows, the outer loops are rounds instead:
//!
//! ```text
//! for r in 0..7 { for s in 0..7 { for t in 0..7 { for c in 0..3 { .. } } } }, 8 terms of a round
//! => iterations of r and s are rounds
//! for rs in 0..49 { for t_0 in 0..1 { unrolled t_1 in 0..7 { .. } } }
//! ```
//!
//! Which loops are written out, and how far, is a choice, as an inner part of any length is: the
//! parts of one iteration are gone in the end.

use super::tile::MAX_UNROLLED;
use super::{Result, choose, fused};
use crate::trace::{LoopVar, Recorder};

/// Terms of a round along the longest loop, at least: a vector.
const LEAST: usize = 4;
/// More terms of a round leave no room in shared memory for tiles of any size.
const MOST: usize = 256;
/// So many times the room may be filled before a loop is cut.
const MANY: usize = 4;
/// Iterations of a loop that may be written out where the first candidate does not.
const SHORT: usize = 16;

/// The loops of a reduction.
pub(super) struct Terms {
    /// Over rounds.
    pub(super) outer: LoopVar,
    /// Those of a round, in order.
    pub(super) inner: Vec<LoopVar>,
    /// Those that are written out.
    pub(super) written_out: Vec<LoopVar>,
}

/// Cuts the loops of a reduction with about `room` terms in a round, and `elements` in registers.
pub(super) fn cut(
    r: &mut Recorder,
    reduced: &[LoopVar],
    room: usize,
    elements: usize,
) -> Result<Terms> {
    let extents = reduced.iter().map(|&l| r.extent(l)).collect::<Result<Vec<_>>>()?;
    let longest = (0..extents.len()).max_by_key(|&i| (extents[i], usize::MAX - i)).unwrap_or(0);
    let (mut lengths, given) = (extents.clone(), room);
    // All terms of the other loops are in each round.
    let others = extents.iter().product::<usize>() / extents[longest].max(1);
    let room = match extents[longest] <= room {
        true => room,
        false => (room / others.max(1)).max(room.min(LEAST)),
    };
    lengths[longest] = part(extents[longest], room);
    if lengths.iter().product::<usize>() > MOST {
        return outer_rounds(r, reduced, &extents, given, elements);
    }
    let first = first_written_out(&lengths, elements);
    let mut terms = Terms { outer: reduced[longest], inner: vec![], written_out: vec![] };
    for (i, (&l, &length)) in reduced.iter().zip(&lengths).enumerate() {
        let written_out = if first[i] { length } else { 1 };
        match (i == longest, extents[i]) {
            (true, 1) => {}
            (false, 1) => terms.inner.push(l),
            (true, _) => terms.rounds(r, l, length, written_out)?,
            (false, _) => terms.whole(r, l, length, written_out)?,
        }
    }
    Ok(terms)
}

/// The outer loops are rounds, and so is a part of the next one if it is long.
fn outer_rounds(
    r: &mut Recorder,
    reduced: &[LoopVar],
    extents: &[usize],
    room: usize,
    elements: usize,
) -> Result<Terms> {
    let (mut inner, mut count) = (extents.len(), 1);
    while count < room && inner > 0 {
        inner -= 1;
        count *= extents[inner];
    }
    let mut lengths = extents[inner..].to_vec();
    if count > MANY * room {
        lengths[0] = part(extents[inner], (room * extents[inner] / count).max(1));
    }
    let first = first_written_out(&lengths, elements);
    let mut rounds = reduced[..inner].to_vec();
    let mut terms = Terms { outer: reduced[0], inner: vec![], written_out: vec![] };
    for (at, &l) in reduced.iter().enumerate().skip(inner) {
        let (extent, length) = (extents[at], lengths[at - inner]);
        let written_out = if first[at - inner] { length } else { 1 };
        if at == inner && length < extent {
            terms.rounds(r, l, length, written_out)?;
            rounds.push(terms.outer);
        } else if extent == 1 {
            terms.inner.push(l);
        } else {
            terms.whole(r, l, length, written_out)?;
        }
    }
    terms.outer = fused(r, &rounds)?;
    Ok(terms)
}

impl Terms {
    /// Cuts the longest loop into rounds of this length, and each of them in steps.
    fn rounds(
        &mut self,
        r: &mut Recorder,
        l: LoopVar,
        length: usize,
        written_out: usize,
    ) -> Result<()> {
        let extent = r.extent(l)?;
        let fits = |n: usize| n > 0 && n <= extent.min(SHORT);
        let others = [length, 1, written_out * 2, written_out / 2];
        let own = choose(r, written_out, &others, fits)?;
        let steps = choose(r, length / written_out, &[1, 2, 4, 8], fits)?;
        let parts = r.split(l, &[0.into(), steps, own])?;
        self.outer = parts[0];
        self.add(&parts[1..]);
        Ok(())
    }

    /// A loop all of which is in each round.
    fn whole(
        &mut self,
        r: &mut Recorder,
        l: LoopVar,
        length: usize,
        written_out: usize,
    ) -> Result<()> {
        let own = choose(r, written_out, &[length, 1], |n| n <= SHORT)?;
        let parts = r.split(l, &[0.into(), own])?;
        self.add(&parts);
        Ok(())
    }

    fn add(&mut self, parts: &[LoopVar]) {
        self.inner.extend(parts);
        self.written_out.extend(parts.last());
    }
}

/// Which loops are written out first: as many of the innermost as is reasonable.
fn first_written_out(lengths: &[usize], elements: usize) -> Vec<bool> {
    let (mut copies, mut all) = (elements, vec![false; lengths.len()]);
    for (i, length) in lengths.iter().enumerate().rev() {
        copies *= length;
        if copies > MAX_UNROLLED {
            break;
        }
        all[i] = true;
    }
    all
}

/// The part of an axis that a tile with room for `room` elements takes: a divisor if that is half
/// of it.
pub(super) fn part(extent: usize, room: usize) -> usize {
    let divisor = largest_divisor(extent, room);
    if extent <= room || 2 * divisor > room { divisor } else { room }
}

pub(super) fn largest_divisor(n: usize, most: usize) -> usize {
    (1..=most.max(1).min(n)).rev().find(|&d| n.is_multiple_of(d)).unwrap_or(1)
}
