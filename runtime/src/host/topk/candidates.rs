//! The best k of lanes whose elements pass by once. Those that may be among them are kept, and
//! others must be better than a limit. Most elements of a long lane are not, which is one
//! comparison for many of them.
//!
//! A few are kept in order, best first. Of more of them, up to twice as many as wanted are kept in
//! any order. Then the best half stays, and the worst of it is the limit.
//!
//! ```text
//! k = 2, smallest first: 5 3 9 1 | kept 3 1, limit 3 | 7 2 4 0 | kept 3 1 2 0 -> 0 1
//! ```

use super::Results;
use super::key::{Index, Key, Keyed};
use super::lanes::{Block, Source, WIDE};
use crate::host::HostError;

/// So many are kept in order.
const FEW: usize = 16;

pub(super) struct Candidates<K: Key, const N: usize> {
    k: usize,
    /// Room for each lane, one after another.
    kept: Vec<K::Packed>,
    room: usize,
    counts: [usize; N],
    /// The largest key that other candidates may have. Not all that have it are any use. Lanes
    /// that are not the block's own have none but the least key of all.
    limits: [K; N],
}

impl<K: Key, const N: usize> Candidates<K, N> {
    pub(super) fn new(k: usize, extent: usize) -> Result<Self, HostError> {
        let room = if k <= FEW { k } else { k.saturating_mul(2).min(extent) };
        let elements = room.saturating_mul(N);
        let mut kept = Vec::new();
        let memory = |_| HostError::Memory { op: super::OP, elements };
        kept.try_reserve_exact(elements).map_err(memory)?;
        kept.resize(elements, K::Packed::default());
        Ok(Candidates { k, kept, room, counts: [0; N], limits: [K::MAX; N] })
    }

    #[inline(always)]
    pub(super) fn run<T: Keyed<Key = K>>(
        &mut self,
        source: &Source<'_, T>,
        index: usize,
        results: &Results<'_, T>,
    ) {
        let block = source.block::<N>(index);
        (self.counts, self.limits) = ([0; N], [K::MIN; N]);
        self.limits[block.own.clone()].fill(K::MAX);
        let begin = if N == 1 { self.chunks(source, &block) } else { 0 };
        for i in begin..source.view.extent {
            let keys = source.keys(&block, i);
            let mut any = false;
            for (key, limit) in keys.iter().zip(&self.limits) {
                any |= key <= limit;
            }
            if any {
                for lane in block.own.clone() {
                    self.offer(lane, keys[lane], i as Index);
                }
            }
        }
        for lane in block.own.clone() {
            for (rank, packed) in self.best(lane).iter().enumerate() {
                // SAFETY: blocks share no lane of their own.
                unsafe { source.put(&block, lane, rank, K::index_of(*packed), results) };
            }
        }
    }

    /// Reads full chunks of the only lane, and says where the rest begins.
    #[inline(always)]
    fn chunks<T: Keyed<Key = K>>(&mut self, source: &Source<'_, T>, block: &Block<N>) -> usize {
        let full = source.view.extent / WIDE * WIDE;
        for begin in (0..full).step_by(WIDE) {
            let keys = source.column(block, begin);
            let mut any = false;
            for key in &keys {
                any |= *key <= self.limits[0];
            }
            if any {
                for (key, i) in keys.into_iter().zip(begin as Index..) {
                    self.offer(0, key, i);
                }
            }
        }
        full
    }

    #[inline(always)]
    fn offer(&mut self, lane: usize, key: K, i: Index) {
        if key > self.limits[lane] {
            return;
        }
        if self.k <= FEW {
            self.insert(lane, key.pack(i));
            return;
        }
        if self.counts[lane] == self.room {
            self.thin(lane);
        }
        self.kept[lane * self.room + self.counts[lane]] = key.pack(i);
        self.counts[lane] += 1;
    }

    /// Puts one into its place among those kept in order. The worst of `k` gives way.
    #[inline(always)]
    fn insert(&mut self, lane: usize, new: K::Packed) {
        let count = self.counts[lane];
        let kept = &mut self.kept[lane * self.room..][..self.room];
        let mut at = count.min(self.k - 1);
        if count == self.k && kept[at] <= new {
            return;
        }
        while at > 0 && new < kept[at - 1] {
            kept[at] = kept[at - 1];
            at -= 1;
        }
        kept[at] = new;
        self.counts[lane] = self.k.min(count + 1);
        if self.counts[lane] == self.k {
            self.limits[lane] = K::unpack(kept[self.k - 1]).below();
        }
    }

    /// Leaves the best `k` of a lane that has no room. Later elements with the key of the last of
    /// them are worse. If all of a lane is wanted, it has room for all.
    #[cold]
    fn thin(&mut self, lane: usize) {
        let kept = &mut self.kept[lane * self.room..][..self.room];
        let (_, last, _) = kept.select_nth_unstable(self.k - 1);
        self.limits[lane] = K::unpack(*last).below();
        self.counts[lane] = self.k;
    }

    fn best(&mut self, lane: usize) -> &[K::Packed] {
        let kept = &mut self.kept[lane * self.room..][..self.counts[lane]];
        if self.k > FEW {
            if self.k < kept.len() {
                kept.select_nth_unstable(self.k - 1);
            }
            kept[..self.k].sort_unstable();
        }
        &kept[..self.k]
    }
}
