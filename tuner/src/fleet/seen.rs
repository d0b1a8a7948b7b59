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
    pub(super) fn insert(&mut self, id: &str) -> bool {
        let id = u128::from_str_radix(id, 16).unwrap_or_default();
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
        let id = |n: usize| format!("{n:032x}");
        assert!((0..2 * MOST).all(|n| seen.insert(&id(n))));
        assert!((MOST..2 * MOST).all(|n| !seen.insert(&id(n))));
        assert!(seen.insert(&id(0)) && seen.all.len() == MOST && seen.order.len() == MOST);
    }
}
