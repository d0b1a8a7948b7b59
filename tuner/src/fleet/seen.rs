//! Which answers were taken already. It forgets the oldest, so that it does not grow.

use std::collections::{HashSet, VecDeque};

const MOST: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Seen {
    order: VecDeque<u128>,
    all: HashSet<u128>,
}

impl Seen {
    /// Whether it is new.
    pub(super) fn insert(&mut self, id: u128) -> bool {
        if !self.all.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let mut seen = Seen::default();
        let mut insert = |n: usize| seen.insert(n as u128);
        assert!((0..2 * MOST).all(&mut insert));
        assert!((MOST..2 * MOST).all(|n| !insert(n)));
        assert!(insert(0));
        assert!(seen.all.len() == MOST && seen.order.len() == MOST);
    }
}
