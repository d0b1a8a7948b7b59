//! Tiles that are loaded or stored along one axis and computed along another, transposed in
//! registers.
//!
//! In: an unrolled loop inside of a vectorised one, whose block accesses elements that lie side by
//! side for the unrolled loop and far apart for the lanes. Out: whole vectors and shuffles. A load
//! needs as many iterations as there are lanes; its value for each iteration is made beforehand,
//! and [`Emitter::load`] finds it. What a store would write is kept by [`Emitter::store`], until
//! all iterations have come.
//!
//! ```text
//! vectorized l in 0..8 { unrolled u in 0..8 { y[u, l] = x[l, u] } }
//! =>
//! r0..r7 = rows x[0, ..], .., x[7, ..];  c0..c7 = transposed(r0..r7);  y[0, ..] = c0; ..; y[7, ..] = c7
//!
//! vectorized l in 0..8 { unrolled u in 0..6 { y[l, u] = f(u, l) } }
//! =>
//! (two or four iterations that leave no gaps: the vectors interleaved, as one)
//! r0..r5 = f(0, ..), .., f(5, ..);  c0..c7 = transposed(r0..r5);  y[0, 0..4] = c0[0..4]; y[0, 4..6] = c0[4..6]; ..
//! ```

use ansc_graph::{BufId, Expr};
use ansc_sketch::program::For;
use ansc_sketch::{Block, Body, Stmt};

use crate::affine::{Affine, Term, affine};
use crate::emit::function::{Emitter, Result};
use crate::emit::memory::Pattern;
use crate::ir::Reg;

/// A value that was loaded beforehand. `flat` is its place in lane zero, plus the change from lane
/// to lane.
pub(crate) struct Loaded<'c> {
    pub(crate) buffer: BufId,
    pub(crate) flat: Affine,
    pub(crate) raw: Reg<'c>,
}

/// An access that walks memory with the unrolled loop; `base` is its place in the first iteration
/// and lane.
struct Tile {
    buffer: BufId,
    flat: Affine,
    base: Affine,
    stride: i64,
}

/// The tile that an unrolled loop stores, and the values of its iterations so far.
pub(crate) struct Stored<'c> {
    tile: Tile,
    /// A vector for each iteration so far.
    values: Vec<Reg<'c>>,
}

impl<'c> Emitter<'c, '_> {
    /// Keeps what is stored to the tile of an unrolled loop, if there is one; gives what was kept
    /// around it.
    pub(crate) fn keep_stores(&mut self, l: &For) -> Option<Stored<'c>> {
        let stored = self.stored_tile(l).map(|tile| Stored { tile, values: Vec::new() });
        std::mem::replace(&mut self.stored, stored)
    }

    /// Whether the value will be stored with others.
    pub(crate) fn keeps(&mut self, buffer: BufId, value: Reg<'c>) -> bool {
        let count = self.lanes.map(|lanes| lanes.count);
        let Some(stored) = self.stored.as_mut().filter(|s| s.tile.buffer == buffer) else {
            return false;
        };
        stored.values.push(self.ir.splat(value, count));
        true
    }

    /// Stores what was kept.
    pub(crate) fn store_kept(&mut self, around: Option<Stored<'c>>) -> Result<()> {
        let Some(Stored { tile, values }) = std::mem::replace(&mut self.stored, around) else {
            return Ok(());
        };
        let lanes = self.lanes.map_or(1, |lanes| lanes.count as usize);
        if lanes > 1 && tile.stride == values.len() as i64 && matches!(values.len(), 2 | 4) {
            let vector = self.interleaved(values);
            return self.store_at(tile.buffer, &tile.base, vector);
        }
        for (part, rows) in values.chunks(lanes).enumerate() {
            let start = tile.base.clone().plus(&Affine::constant((part * lanes) as i64));
            let mut square = rows.to_vec();
            square.resize_with(lanes, || self.ir.poison(rows[0]));
            for (lane, column) in self.transposed(square).into_iter().enumerate() {
                let at = start.clone().plus(&Affine::constant(lane as i64 * tile.stride));
                self.store_first(tile.buffer, at, column, rows.len())?;
            }
        }
        Ok(())
    }

    /// The first lane of each of two or four vectors, then the second one of each, and so on.
    fn interleaved(&self, values: Vec<Reg<'c>>) -> Reg<'c> {
        let two = |a: Reg<'c>, b: Reg<'c>| {
            let n = crate::ir::lanes(a).expect("a vector");
            let mask: Vec<u32> = (0..n).flat_map(|i| [i, n + i]).collect();
            self.ir.shuffle(a, b, &mask)
        };
        match values[..] {
            [a, b] => two(a, b),
            [a, b, c, d] => two(two(a, c), two(b, d)),
            _ => unreachable!("called for two or four"),
        }
    }

    /// Stores the first `count` lanes of a vector side by side, in pieces of a power of two.
    fn store_first(
        &mut self,
        buffer: BufId,
        mut at: Affine,
        vector: Reg<'c>,
        count: usize,
    ) -> Result<()> {
        let mut done = 0;
        while done < count {
            let width = 1 << (count - done).ilog2();
            let piece = match width {
                1 => self.ir.lane(vector, done as u32),
                _ => {
                    let lanes: Vec<u32> = (done..done + width).map(|i| i as u32).collect();
                    self.ir.shuffle(vector, vector, &lanes)
                }
            };
            self.store_at(buffer, &at, piece)?;
            at = at.plus(&Affine::constant(width as i64));
            done += width;
        }
        Ok(())
    }

    /// Loads the tiles of an unrolled loop; gives how many values were known before.
    pub(crate) fn load_tiles(&mut self, l: &For) -> Result<usize> {
        let known = self.loaded.len();
        for tile in self.tiles(l) {
            let count = self.lanes.map_or(0, |lanes| i64::from(lanes.count));
            let mut rows = Vec::new();
            for lane in 0..count {
                let row = tile.base.clone().plus(&Affine::constant(lane * tile.stride));
                rows.push(self.load_vector(tile.buffer, &row, None)?);
            }
            for (i, raw) in self.transposed(rows).into_iter().enumerate() {
                let flat = tile.flat.clone().plus(&Affine::constant(i as i64));
                self.loaded.push(Loaded { buffer: tile.buffer, flat, raw });
            }
        }
        Ok(known)
    }

    fn tiles(&mut self, l: &For) -> Vec<Tile> {
        let square = |lanes: crate::emit::function::Lanes| {
            lanes.count as usize == l.extent && lanes.count >= 4 && self.mask.is_none()
        };
        match (&l.body[..], self.lanes.is_some_and(square)) {
            ([Stmt::Block(block)], true) => self.tiles_of(l, block),
            _ => vec![],
        }
    }

    /// The tiles of a block that loads from nothing that it writes. A block that does not always
    /// run has tiles only of what is there to be loaded anyway.
    fn tiles_of(&mut self, l: &For, block: &Block) -> Vec<Tile> {
        let Body::Assign { dst, value } = &block.body else { return vec![] };
        if contains_choice(value) {
            return vec![];
        }
        let always = block.predicate.is_none();
        self.within_block(l, block, |e| {
            let mut tiles: Vec<Tile> = Vec::new();
            for (buffer, indices) in value.loads() {
                let is_there = buffer != dst.buffer && (always || e.in_bounds(buffer, indices));
                let found = e.tile(l, buffer, indices).filter(|_| is_there);
                tiles.extend(found.filter(|t| {
                    !tiles.iter().any(|other| (other.buffer, &other.flat) == (buffer, &t.flat))
                }));
            }
            tiles
        })
    }

    /// The tile that the block of an unrolled loop stores, if the block always runs in all lanes
    /// and loads nothing that it writes.
    fn stored_tile(&mut self, l: &For) -> Option<Tile> {
        let [Stmt::Block(block)] = &l.body[..] else { return None };
        let Body::Assign { dst, value } = &block.body else { return None };
        let plain = self.lanes.is_some_and(|lanes| lanes.count >= 4) && self.mask.is_none();
        let reads_itself = value.loads().iter().any(|(buffer, _)| *buffer == dst.buffer);
        if !plain || l.extent < 2 || block.predicate.is_some() || reads_itself {
            return None;
        }
        self.within_block(l, block, |e| e.tile(l, dst.buffer, &dst.indices))
    }

    /// Runs `f` with the block's iterators bound, and the loop's variable anywhere in its range.
    fn within_block<T>(&mut self, l: &For, block: &Block, f: impl FnOnce(&mut Self) -> T) -> T {
        self.ranges.insert(l.var, (0, l.extent as i64 - 1));
        let iters: Vec<_> = block.iters.iter().map(|i| (i.var, affine(&i.binding, self))).collect();
        self.bindings.extend(iters);
        let result = f(self);
        block.iters.iter().for_each(|i| _ = self.bindings.remove(&i.var));
        self.ranges.remove(&l.var);
        result
    }

    fn tile(&mut self, l: &For, buffer: BufId, indices: &[Expr]) -> Option<Tile> {
        let mut flat = self.flatten(buffer, indices);
        let walks = flat.terms.remove(&Term::Var(l.var)) == Some(1);
        let mentions = |t: &Term| matches!(t, Term::Opaque(e) if e.vars().contains(&l.var));
        if !walks || flat.terms.keys().any(mentions) {
            return None;
        }
        match self.pattern(&flat) {
            Pattern::Strided { base, stride } if stride.unsigned_abs() >= l.extent as u64 => {
                Some(Tile { buffer, flat, base, stride })
            }
            _ => None,
        }
    }

    /// The columns of a square of rows: squares of four within registers' quarters first, then
    /// quarters change places, in ever larger blocks.
    fn transposed(&self, mut rows: Vec<Reg<'c>>) -> Vec<Reg<'c>> {
        let count = rows.len();
        for four in rows.chunks_mut(4) {
            let [a, b, c, d] = [four[0], four[1], four[2], four[3]];
            let low = |x, y| self.ir.shuffle(x, y, &pick(count, [(0, 0), (1, 0), (0, 1), (1, 1)]));
            let high = |x, y| self.ir.shuffle(x, y, &pick(count, [(0, 2), (1, 2), (0, 3), (1, 3)]));
            let (ab, cd, ab_high, cd_high) = (low(a, b), low(c, d), high(a, b), high(c, d));
            let first =
                |x, y| self.ir.shuffle(x, y, &pick(count, [(0, 0), (0, 1), (1, 0), (1, 1)]));
            let last = |x, y| self.ir.shuffle(x, y, &pick(count, [(0, 2), (0, 3), (1, 2), (1, 3)]));
            let columns =
                [first(ab, cd), last(ab, cd), first(ab_high, cd_high), last(ab_high, cd_high)];
            four.copy_from_slice(&columns);
        }
        // There is nothing to be gained by putting what follows together with what came before.
        if count > 4 {
            rows.iter_mut().for_each(|row| *row = self.ir.as_it_is(*row));
        }
        let mut block = 4;
        while block < count {
            for i in (0..count).filter(|i| i & block == 0) {
                let (x, y) = (rows[i], rows[i | block]);
                rows[i] = self.ir.shuffle(x, y, &exchange(count, block, false));
                rows[i | block] = self.ir.shuffle(x, y, &exchange(count, block, true));
            }
            block *= 2;
        }
        rows
    }
}

pub(super) fn contains_choice(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= matches!(e, Expr::Select(..)));
    found
}

/// In each group of four lanes, (operand, lane within the group).
fn pick(count: usize, lanes: [(usize, usize); 4]) -> Vec<u32> {
    (0..count).map(|i| (lanes[i % 4].0 * count + (i - i % 4) + lanes[i % 4].1) as u32).collect()
}

/// Takes two rows that are `block` apart, and picks the halves of each pair of blocks that belong
/// to the first row, or to the second, once they are columns.
fn exchange(count: usize, block: usize, second: bool) -> Vec<u32> {
    let from = |i: usize| match (second, i & block == 0) {
        (false, true) => i,
        (false, false) => count + (i ^ block),
        (true, true) => i ^ block,
        (true, false) => count + i,
    };
    (0..count).map(|i| from(i) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffle(a: &[usize], b: &[usize], mask: &[u32]) -> Vec<usize> {
        let both = [a, b].concat();
        mask.iter().map(|&i| both[i as usize]).collect()
    }

    #[test]
    fn exchanged_blocks_are_transposed() {
        for (count, block) in [(8, 4), (16, 4), (16, 8)] {
            let rows: Vec<Vec<usize>> =
                (0..count).map(|r| (0..count).map(|c| r * count + c).collect()).collect();
            for i in (0..count).filter(|i| i & block == 0) {
                let (x, y) = (&rows[i], &rows[i | block]);
                let first = shuffle(x, y, &exchange(count, block, false));
                let second = shuffle(x, y, &exchange(count, block, true));
                for c in 0..count {
                    let (row, column) = (i & !block | (c & block), c & !block);
                    assert_eq!(first[c], row * count + column);
                    assert_eq!(second[c], row * count + (column | block));
                }
            }
        }
    }
}
