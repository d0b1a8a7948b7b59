//! Which answers were taken already. It forgets the oldest, so that it does not grow.

use std::collections::{HashMap, VecDeque};

use super::identity::Note;

const MOST: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Seen {
    order: VecDeque<u128>,
    /// By name: the print of an answer that an earlier life took, and perhaps did not write down;
    /// nothing of one that was taken or written down since.
    all: HashMap<u128, Option<u128>>,
}

impl Seen {
    /// Takes up a note of an earlier life.
    pub(super) fn restore(&mut self, note: Note) {
        match note {
            Note::Taken { name, print } => self.keep(name, Some(print)),
            Note::Written(name) => self.keep(name, None),
        }
    }

    /// Whether the answer is to be taken: a new one, or the one that an earlier life took and did
    /// not write down. Another measurement under the same name is not.
    pub(super) fn insert(&mut self, id: u128, print: u128) -> bool {
        match self.all.get(&id) {
            Some(known) if *known != Some(print) => false,
            _ => {
                self.keep(id, None);
                true
            }
        }
    }

    fn keep(&mut self, id: u128, state: Option<u128>) {
        if self.all.insert(id, state).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known() {
        let mut seen = Seen::default();
        let mut insert = |n: usize| seen.insert(n as u128, 0);
        assert!((0..2 * MOST).all(&mut insert));
        assert!((MOST..2 * MOST).all(|n| !insert(n)));
        assert!(insert(0));
        assert!(seen.all.len() == MOST && seen.order.len() == MOST);
    }

    /// It may not have been written down before that life ended.
    #[test]
    fn what_an_earlier_life_took_is_taken_once_more_and_nothing_else_of_that_name() {
        let mut seen = Seen::default();
        seen.restore(Note::Taken { name: 1, print: 10 });
        assert!(!seen.insert(1, 11));
        assert!(seen.insert(1, 10));
        assert!(!seen.insert(1, 10) && !seen.insert(1, 11));
    }

    #[test]
    fn what_an_earlier_life_wrote_down_is_not_taken_again() {
        let mut seen = Seen::default();
        seen.restore(Note::Taken { name: 1, print: 10 });
        seen.restore(Note::Written(1));
        assert!(!seen.insert(1, 10));
    }
}
